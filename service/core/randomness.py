"""Own the randomness of a foreign-key candidate: how far its values are from a random sample of the key.

After Zhang et al., On Multi-Column Foreign Key Discovery (2010), section 3. The measure is the Earth Mover's Distance
between the histograms of candidate and key over the key's quantile grid, with the quantile distance (the sum over
the columns of what lies between two values, as a share of the key's), divided by the number of columns: 0 is a sample
as even as can be. The mass of a cell stands in its upper corner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from service.core.quantile_grids import SINGLE_CELLS, Floats, GridHistogram, KeyHistogram
from service.core.records import Int64s

DRIFT = 2
"""How many times Lemma 1's bound a distance over a grid may be off before the grid is to be built anew."""

MOST_ROUTES = 1_000_000
"""How many pairs of cells a transport may be between; beyond, neighbouring cells are joined."""

_MOST_STEPS = 10_000_000

_Places = tuple[Int64s, ...]


class Randomness(NamedTuple):
    """Hold the normalised distance of a candidate, in [0, 1], and how far at most it is from that without a grid."""

    distance: float
    error: float


def randomness(candidate: GridHistogram, key: KeyHistogram, most_routes: int = MOST_ROUTES) -> Randomness:
    """Measure the randomness of a candidate whose histogram is over the key's grids.

    `error` bounds the distance to the one over all values for a candidate that the key contains (a value outside has no
    quantile but its cell's). It is that of Lemma 1, with the cells as they are: over a new grid of l cells a column
    less than 2/l, and 0 where each value has a cell of its own.
    Raises ValueError when either has no values.
    """
    places, (f, p) = _both(candidate, key)
    if len(key.grids) == 1:
        positions = np.cumsum(key.columns[0]) / key.columns[0].sum()
        distance = emd_on_line(candidate.dense() / candidate.total, key.tuples.dense() / key.tuples.total, positions)
        return Randomness(distance, _hidden(key.columns, places, (f, p)))
    columns = list(key.columns)
    # What both have in a cell stays there: for a distance that is a metric some cheapest transport leaves it.
    while True:
        shape = [len(counts) for counts in columns]
        surplus, deficit = _differences(shape, places, (f, p))
        if len(surplus) * len(deficit) <= most_routes:
            break
        widest = int(np.argmax(shape))
        columns[widest] = np.add.reduceat(columns[widest], np.arange(0, shape[widest], 2))
        places = tuple(
            tuple(place // 2 if column == widest else place for column, place in enumerate(side)) for side in places
        )  # type: ignore[assignment]
    distance = _transport(columns, surplus, deficit) / len(columns)
    return Randomness(distance, _hidden(columns, places, (f, p)))


def has_drifted(candidate: GridHistogram, key: KeyHistogram, cells: int) -> bool:
    """Tell whether the grid of a key hides more than `DRIFT` times what Lemma 1 allows a new one of so many cells.

    Raises ValueError when either has no values.
    """
    return _hidden(key.columns, *_both(candidate, key)) > DRIFT * 2 / cells


def _both(candidate: GridHistogram, key: KeyHistogram) -> tuple[tuple[_Places, _Places], tuple[Floats, Floats]]:
    """Give for a candidate and its key the cells that have values, in each dimension, and their shares."""
    if not candidate.total or not key.tuples.total:
        raise ValueError("what has no values has no randomness")
    shares = candidate.counts / candidate.total, key.tuples.counts / key.tuples.total
    return (candidate.places(), key.tuples.places()), shares


def _hidden(columns: Sequence[Int64s], places: Sequence[_Places], masses: Sequence[Floats]) -> float:
    """Give how far both sides' mass can be from the corners of its cells, together, as a mean over the columns."""
    hidden = sum(
        float(mass @ _widths(counts)[place])
        for side, mass in zip(places, masses, strict=True)
        for counts, place in zip(columns, side, strict=True)
    )
    return hidden / len(columns)


def emd_on_line(first: Floats, second: Floats, positions: Floats) -> float:
    """Give the Earth Mover's Distance between two distributions over the same ascending positions, all float64[n].

    In one dimension it is the area between the cumulated shares.
    """
    return float(np.abs(np.cumsum(first - second)[:-1]) @ np.diff(positions))


def outside(candidate: GridHistogram, key: KeyHistogram) -> float:
    """Give which share of a key's values is in cells below a candidate's least, or above its greatest.

    Of a composite it is the mean over its columns. Raises ValueError when the candidate has no values.
    """
    if not candidate.total:
        raise ValueError("what has no values has no range")
    shares = [
        1 - counts[int(place.min()) : int(place.max()) + 1].sum() / counts.sum()
        for counts, place in zip(key.columns, candidate.places(), strict=True)
    ]
    return float(np.mean(shares))


def _widths(counts: Int64s) -> Floats:
    """Give how far a value of each cell can be from its corner, as a share of all values."""
    widths: Floats = np.maximum(counts - 1, 0) / counts.sum()
    return widths


def _differences(
    shape: Sequence[int], places: Sequence[Sequence[Int64s]], masses: Sequence[Floats]
) -> tuple[dict[int, float], dict[int, float]]:
    """Give what the first has more than the second by cell, and what it has less."""
    cells, inverse = np.unique(
        np.concatenate([np.ravel_multi_index(tuple(side), tuple(shape)) for side in places]), return_inverse=True
    )
    more = np.bincount(inverse, np.concatenate((masses[0], -masses[1])), len(cells))
    # Equal shares can differ in their last bits.
    rounding = 1e-15
    return (
        dict(zip(cells[more > rounding].tolist(), more[more > rounding].tolist(), strict=True)),
        dict(zip(cells[more < -rounding].tolist(), (-more[more < -rounding]).tolist(), strict=True)),
    )


def _transport(columns: Sequence[Int64s], surplus: dict[int, float], deficit: dict[int, float]) -> float:
    """Solve the transportation problem between cells, whose corners are quantiles, by the network simplex of POT."""
    if not surplus or not deficit:
        return 0.0
    import ot  # here: loading it takes longer than most commands

    shape = tuple(len(counts) for counts in columns)
    corners = [np.cumsum(counts) / counts.sum() for counts in columns]
    ends = [
        [positions[place] for positions, place in zip(corners, np.unravel_index(list(side), shape), strict=True)]
        for side in (surplus, deficit)
    ]
    costs = sum(np.abs(np.subtract.outer(start, end)) for start, end in zip(*ends, strict=True))
    masses = [np.array(list(side.values())) for side in (surplus, deficit)]
    moved = float(masses[0].sum())
    cost, log = ot.emd2(*(mass / mass.sum() for mass in masses), costs, numItermax=_MOST_STEPS, log=True)
    if log["warning"]:
        raise ArithmeticError(f"no transport was found: {log['warning']}")
    return float(cost) * moved


class Jump(NamedTuple):
    """Say where a ranking leaps: behind its first `behind` distances, by which factor."""

    behind: int
    factor: float


@dataclass(frozen=True, slots=True)
class Cut:
    """Say where a ranking by randomness suggests to be cut: `jumps`, the largest first, of which the first is taken."""

    jumps: tuple[Jump, ...]

    @property
    def count(self) -> int:
        """Tell how many candidates are in front of it."""
        return self.jumps[0].behind if self.jumps else 0


def suggest_cut(distances: Sequence[float], resolution: float = 1 / SINGLE_CELLS) -> Cut:
    """Find where ascending distances leap, which is where the answer ends (sections 5.1 and 5.2).

    A leap is a factor, as good and bad candidates are orders of magnitude apart; below the `resolution` of the grid
    there are none. Of equal leaps the first counts. A ranking that leaps nowhere is all answer.
    """
    floored = np.maximum(np.asarray(distances, np.float64), resolution)
    factors = floored[1:] / floored[:-1]
    jumps = [Jump(int(place) + 1, float(factors[place])) for place in np.argsort(-factors, kind="stable")]
    return Cut((*(jump for jump in jumps if jump.factor > 1), Jump(len(distances), 1.0)))

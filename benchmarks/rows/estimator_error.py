"""Own the row `estimator-error`: mean absolute error by exact Φ, at equal memory, over the columns of TPC-DS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.column_hashes import ColumnHashes, tpcds_columns
from benchmarks.context import Context
from benchmarks.equal_memory import KEPT, absolute_errors, column, sketch_of
from benchmarks.results_file import Result

SEED = 11
THRESHOLD = 5000
"""Columns of more values are large (Figures 15 to 17)."""
METHODS = ("bml", "bottom-k", "estimated", KEPT)
"""The report (`make sketch-report`) has the others."""
MOST_PAIRS = 200
"""So many pairs of each bin are measured, drawn at random where there are more."""
LOWEST_BIN = 4
"""So many times more are in the lowest bin, where most columns are disjoint and only some of the others tell."""
LEAST_PAIRS = 20
"""A bin of fewer pairs says nothing of a mean."""

Indices = NDArray[np.int64]


class Bin(NamedTuple):
    """Hold pairs x[i], y[i] drawn from the `total` of a bin of exact Φ, and their Φ."""

    name: str
    x: Indices
    y: Indices
    phi: NDArray[np.float64]
    total: int


def run(context: Context) -> list[Result]:
    """Estimate the same pairs with every estimator, and say of each kind of pairs in which bin it is worst."""
    columns = tpcds_columns(context)
    held = {method: [column(method, hashes) for hashes in columns.hashes] for method in METHODS}
    rng = np.random.default_rng(SEED)
    results: list[Result] = []
    for kind, pairs in kinds(columns):
        errors: dict[str, list[float]] = {method: [] for method in METHODS}
        bins: list[str] = []
        for one in bins_of(columns, pairs, context.scaled(MOST_PAIRS), rng):
            bins.append(one.name)
            for method in METHODS:
                found = absolute_errors(method, held[method], one.x, one.y, one.phi)
                errors[method].append(float(found.mean()))
        context.say(f"{kind}: mean absolute error by exact Φ")
        context.say(f"  {'Φ':<10}" + "".join(f"{method:>16}" for method in METHODS))
        for place, name in enumerate(bins):
            context.say(f"  {name:<10}" + "".join(f"{errors[method][place]:16.5f}" for method in METHODS))
        results += compare(kind, bins, errors)
    sizes = {
        method: np.mean([len(sketch_of(method, hashes).to_bytes()) for hashes in columns.hashes])
        for method in ("estimated", KEPT)
    }
    results.append(
        Result("bytes of a column, mean: " + KEPT, float(sizes[KEPT]), "B", "estimated", float(sizes["estimated"]))
    )
    return results


def kinds(columns: ColumnHashes) -> Iterator[tuple[str, tuple[Indices, Indices]]]:
    """Give the pairs of columns of different tables, apart by how many of both are large (Figures 15 to 17)."""
    x, y = columns.pairs_of_tables()
    large_x, large_y = columns.sizes[x] > THRESHOLD, columns.sizes[y] > THRESHOLD
    for kind, of_kind in (
        ("both large", large_x & large_y), ("one large", large_x ^ large_y), ("none large", ~large_x & ~large_y)
    ):  # fmt: skip
        yield kind, (x[of_kind], y[of_kind])


def bins_of(
    columns: ColumnHashes,
    pairs: tuple[Indices, Indices],
    most: int,
    rng: np.random.Generator,
    least: int = LEAST_PAIRS,
) -> Iterator[Bin]:
    """Draw at most so many pairs of each bin of exact Φ that has `least` of them."""
    x, y = pairs
    phi = columns.overlap[x, y] / columns.sizes[x]
    number = np.minimum((phi * 10).astype(np.int64), 9)
    for low in range(10):
        chosen = of_bin = np.flatnonzero(number == low)
        if len(chosen) < least:
            continue
        measured = most if low else LOWEST_BIN * most
        if len(chosen) > measured:
            chosen = rng.choice(chosen, measured, replace=False)
        name = f"{low / 10:.1f}-{(low + 1) / 10:.1f}"
        yield Bin(name, x[chosen], y[chosen], phi[chosen], len(of_bin))


def compare(kind: str, bins: list[str], errors: dict[str, list[float]]) -> Iterator[Result]:
    """Hold `estimated` to the paper's estimator and to bottom-k, each in the bin where it is worst beside it."""
    ours = errors["estimated"]
    # A bin in which neither errs says nothing, one in which only we do is lost.
    for other, goal in (
        ("bml", 0.2 if kind == "both large" else None),
        ("bottom-k", 1.0 if kind == "both large" else 1.1),
    ):
        theirs = errors[other]
        ratios = [a / b if b else (0.0 if a == 0 else np.inf) for a, b in zip(ours, theirs, strict=True)]
        worst = max(range(len(bins)), key=lambda place: (ratios[place], theirs[place]))
        yield Result(
            f"{kind}, worst bin: estimated", ours[worst], "mean |error|",
            f"{other}", theirs[worst], None if goal is None else f"ratio <= {goal:g}",
        )  # fmt: skip
        yield Result(f"{kind}, worst bin: least Φ, beside {other}", float(bins[worst].partition("-")[0]), "")
    for other in ("bml", "bottom-k"):
        yield Result(
            f"{kind}, mean over {len(bins)} bins: estimated", float(np.mean(ours)), "mean |error|",
            other, float(np.mean(errors[other])),
        )  # fmt: skip
    yield Result(
        f"{kind}, mean over {len(bins)} bins: {KEPT}", float(np.mean(errors[KEPT])), "mean |error|",
        "estimated", float(np.mean(ours)),
    )  # fmt: skip

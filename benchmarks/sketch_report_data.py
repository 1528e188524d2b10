"""Own what the report on sketches measures: errors of pairs of a database, of made pairs, and under deletions."""

from __future__ import annotations

from dataclasses import dataclass
from time import process_time

import numpy as np
from numpy.typing import NDArray

from benchmarks import equal_memory
from benchmarks.column_hashes import ColumnHashes, UInt64s
from benchmarks.made_columns import Pair
from benchmarks.rows.estimator_error import bins_of, kinds
from benchmarks.sketch_peers import PEERS, PeerColumn, estimate_by_peer
from service.core.estimators import Column, estimate
from service.core.sketches.bottom_k import BottomK
from service.core.sketches.column import BUCKET_BITS
from service.core.sketches.heaps import HllHeaps

METHODS = (*equal_memory.METHODS, *PEERS)
HEAPS, HEAPS_BML, ONCE, ONCE_LARGE = "heaps, estimated", "heaps, bml", "bottom-k, k = 1,536", "bottom-k, k = 12,288"
DELETION = (HEAPS, HEAPS_BML, ONCE, ONCE_LARGE)
LARGE_K = 8 * equal_memory.K
"""What the paper gives bottom-k beside heaps (section 5.2)."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Measured:
    """Hold pairs with their exact Φ, sizes, how many pairs each stands for, and |estimate - Φ| by method.

    `milliseconds` of CPU a pair took by each method, sketches being there.
    """

    phi: Floats
    size_x: NDArray[np.int64]
    size_y: NDArray[np.int64]
    weight: Floats
    errors: dict[str, Floats]
    milliseconds: dict[str, float]

    def mean(self, method: str, chosen: NDArray[np.bool_] | None = None) -> float:
        """Give the mean absolute error over all pairs that these stand for; NaN of none."""
        where = np.ones(len(self.phi), np.bool_) if chosen is None else chosen
        if not where.any():
            return float("nan")
        return float(np.average(self.errors[method][where], weights=self.weight[where]))


def measure(columns: ColumnHashes, most: int, rng: np.random.Generator) -> Measured:
    """Estimate a sample of pairs of different tables: at most so many of each kind and bin of exact Φ."""
    bins = [one for _, pairs in kinds(columns) for one in bins_of(columns, pairs, most, rng, least=1)]
    x, y, phi = (np.concatenate([one[place] for one in bins]) for place in (1, 2, 3))
    weight = np.concatenate([np.full(len(one.x), one.total / len(one.x)) for one in bins])
    used = np.unique(np.r_[x, y])
    errors, milliseconds = {}, {}
    for method in METHODS:
        held = {column: _held(method, columns.hashes[column]) for column in used.tolist()}
        errors[method], milliseconds[method] = _errors(method, held, x, y, phi)
    sizes = columns.sizes
    return Measured(phi, sizes[x], sizes[y], weight, errors, milliseconds)


def _held(method: str, hashes: UInt64s) -> Column | PeerColumn:
    return PeerColumn(hashes) if method in PEERS else equal_memory.column(method, hashes)


def _estimate(method: str, x: Column | PeerColumn, y: Column | PeerColumn) -> float:
    if isinstance(x, PeerColumn) or isinstance(y, PeerColumn):
        return estimate_by_peer(method, x, y)  # type: ignore[arg-type]
    phi = estimate(x, y, method).phi
    assert phi is not None, "a column without values is left out"
    return phi


def _errors(
    method: str, held: dict[int, Column | PeerColumn], x: NDArray[np.int64], y: NDArray[np.int64], phi: Floats
) -> tuple[Floats, float]:
    pairs = list(zip(x.tolist(), y.tolist(), strict=True))
    _estimate(method, held[pairs[0][0]], held[pairs[0][1]])  # compiled or loaded before it is timed
    started = process_time()
    estimates = [_estimate(method, held[a], held[b]) for a, b in pairs]
    milliseconds = (process_time() - started) * 1e3 / len(pairs)
    return np.abs(np.array(estimates) - phi), milliseconds


def made_errors(x: int, y: int, shares: Floats, repetitions: int, rng: np.random.Generator) -> dict[str, Floats]:
    """Give the mean absolute error of made pairs of one shape by their Φ, for each method: float64[shares]."""
    errors = {method: np.zeros(len(shares)) for method in METHODS}
    for place, share in enumerate(shares.tolist()):
        for _ in range(repetitions):
            pair = Pair(int(rng.integers(1 << 63)), x, y, round(share * min(x, y)))
            hashes = [np.sort(of_column) for of_column in pair.hashes()]
            for method in METHODS:
                found = _estimate(method, *(_held(method, of_column) for of_column in hashes))
                errors[method][place] += abs(found - pair.phi) / repetitions
    return errors


def deletion_errors(
    columns: ColumnHashes, deleted: Floats, count: int, rng: np.random.Generator
) -> tuple[dict[str, Floats], Floats, float]:
    """Delete a growing share of the values of large columns, read once, and give the mean error by share (Figure 20).

    Also the share of the values that bottom-k (k = 1,536, 512 spares) has to read again to have k hashes at all times,
    and the mean bytes of heaps before anything is deleted.
    """
    x, y = dict(kinds(columns))["both large"]
    overlapping = np.flatnonzero(
        (columns.overlap[x, y] > 0) & (np.maximum(columns.sizes[x], columns.sizes[y]) < 200_000)
    )
    errors = {method: np.zeros(len(deleted)) for method in DELETION}
    read_again, size = np.zeros(len(deleted)), 0.0
    chosen = rng.choice(overlapping, min(count, len(overlapping)), replace=False)
    for place in chosen.tolist():
        shrinking = [Shrinking(columns.hashes[x[place]], rng), Shrinking(columns.hashes[y[place]], rng)]
        size += sum(len(one.heaps.to_bytes()) for one in shrinking) / 2 / len(chosen)
        for step, share in enumerate(deleted.tolist()):
            for one in shrinking:
                one.shrink_to(1 - share)
            left = [one.left for one in shrinking]
            phi = len(np.intersect1d(*left, assume_unique=True)) / len(left[0])
            for method in DELETION:
                found = _after_deletion(method, *(one.column(method) for one in shrinking))
                errors[method][step] += abs(found - phi) / len(chosen)
            read_again[step] += sum(one.read_again / len(one.order) for one in shrinking) / 2 / len(chosen)
    return errors, read_again, size


def _after_deletion(method: str, x: Column, y: Column) -> float:
    of_method = {HEAPS: "estimated", HEAPS_BML: "bml"}.get(method, "bottom-k")
    return _estimate(of_method, x, y)


class Shrinking:
    """Follow the sketches of a column whose values go one after the other, in random order."""

    PORTIONS = 50
    """Deletes come in so many portions, after each of which bottom-k may read again."""

    def __init__(self, hashes: UInt64s, rng: np.random.Generator) -> None:
        self.order = rng.permutation(hashes)
        self.gone = 0
        self.read_again = 0
        self.heaps = HllHeaps(BUCKET_BITS)
        self.small, self.large = BottomK(equal_memory.K, 0), BottomK(LARGE_K, 0)
        self.rescanned = BottomK(equal_memory.K, 512)
        for sketch in (self.heaps, self.small, self.large, self.rescanned):
            sketch.update(hashes)

    @property
    def left(self) -> UInt64s:
        return np.sort(self.order[self.gone :])

    def shrink_to(self, share: float) -> None:
        """Delete until this share of the values is left."""
        until = len(self.order) - max(round(share * len(self.order)), 1)
        for portion in np.array_split(self.order[self.gone : until], self.PORTIONS):
            if not len(portion):
                continue
            for sketch in (self.heaps, self.small, self.large, self.rescanned):
                sketch.remove(portion)
            self.gone += len(portion)
            if self.rescanned.needs_rescan:
                self.rescanned = BottomK(equal_memory.K, 512)
                self.rescanned.update(self.order[self.gone :])
                self.read_again += len(self.order) - self.gone

    def column(self, method: str) -> Column:
        """Give what is left in a sketch that has read the values once."""
        if method in (HEAPS, HEAPS_BML):
            return Column(self.heaps.registers, float(self.heaps.size))
        bottom = self.small if method == ONCE else self.large
        complete = bottom.hashes if bottom.is_complete else None
        return Column(self.heaps.registers, float(max(bottom.estimate(), 1.0)), False, complete, bottom.hashes)

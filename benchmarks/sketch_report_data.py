"""Own what the report on sketches measures: errors of pairs of a database, of made pairs, and under deletions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
from service.core.sketches.column import BUCKET_BITS, SPARES, ColumnSketch
from service.core.sketches.heaps import HllHeaps
from service.usecases.sketched_columns import known_column

METHODS = (*equal_memory.METHODS, *PEERS)
HEAPS, HEAPS_BML, KEPT = "heaps, estimated", "heaps, bml", "as a state keeps it, estimated"
ONCE, ONCE_EQUAL, ONCE_LARGE = "bottom-k, k = 1,536", "bottom-k, bytes of the heaps", "bottom-k, k = 12,288"
DELETION = (KEPT, HEAPS, HEAPS_BML, ONCE, ONCE_EQUAL, ONCE_LARGE)
LARGE_K = 8 * equal_memory.K
"""What the paper gives bottom-k beside heaps (section 5.2)."""
AGAIN, AGAIN_LARGE = "bottom-k, k = 1,536, read again", "bottom-k, k = 12,288, read again"
FOLLOWING = ("heaps", "as a state keeps it", AGAIN, AGAIN_LARGE)
"""What of `Shrinking` is timed."""

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


@dataclass(frozen=True, slots=True)
class Deletions:
    """Hold, by the share that is deleted, the mean error of each of DELETION, and the cost of each of FOLLOWING.

    `milliseconds` of CPU a column took to build and to follow until then; `read_again` is the share of the first
    values that bottom-k with k = 1,536 read again. Means before anything is deleted: `values` of a column, and `size`,
    the bytes of its heaps.
    """

    errors: dict[str, Floats]
    milliseconds: dict[str, Floats]
    read_again: Floats
    values: float
    size: float


def measure_deletions(columns: ColumnHashes, deleted: Floats, count: int, rng: np.random.Generator) -> Deletions:
    """Delete a growing share of the values of large columns (Figures 20 and 21)."""
    x, y = dict(kinds(columns))["both large"]
    overlapping = np.flatnonzero(
        (columns.overlap[x, y] > 0) & (np.maximum(columns.sizes[x], columns.sizes[y]) < 200_000)
    )
    errors = {method: np.zeros(len(deleted)) for method in DELETION}
    milliseconds = {method: np.zeros(len(deleted)) for method in FOLLOWING}
    read_again, values, size = np.zeros(len(deleted)), 0.0, 0.0
    Shrinking(columns.hashes[x[0]], rng).shrink_to(0.5)  # compiled or loaded before it is timed
    chosen = rng.choice(overlapping, min(count, len(overlapping)), replace=False)
    for place in chosen.tolist():
        shrinking = [Shrinking(columns.hashes[x[place]], rng), Shrinking(columns.hashes[y[place]], rng)]
        values += sum(len(one.order) for one in shrinking) / 2 / len(chosen)
        size += sum(one.size for one in shrinking) / 2 / len(chosen)
        for step, share in enumerate(deleted.tolist()):
            for one in shrinking:
                one.shrink_to(1 - share)
            left = [one.left for one in shrinking]
            phi = len(np.intersect1d(*left, assume_unique=True)) / len(left[0])
            for method in DELETION:
                found = _after_deletion(method, *(one.column(method) for one in shrinking))
                errors[method][step] += abs(found - phi) / len(chosen)
            for method in FOLLOWING:
                milliseconds[method][step] += sum(one.seconds[method] for one in shrinking) * 1e3 / 2 / len(chosen)
            read_again[step] += sum(one.read_again / len(one.order) for one in shrinking) / 2 / len(chosen)
    return Deletions(errors, milliseconds, read_again, values, size)


def _after_deletion(method: str, x: Column, y: Column) -> float:
    of_method = {HEAPS: "estimated", HEAPS_BML: "bml", KEPT: "estimated"}.get(method, "bottom-k")
    return _estimate(of_method, x, y)


class Shrinking:
    """Follow the sketches of a column whose values go one after the other, in random order.

    Those of FOLLOWING are timed: CPU seconds, hashes being in memory.
    """

    PORTIONS = 50
    """Deletes come in so many portions, after each of which bottom-k may read again."""

    def __init__(self, hashes: UInt64s, rng: np.random.Generator) -> None:
        self.order = rng.permutation(hashes)
        self.gone = 0
        self.read_again = 0
        self.seconds = dict.fromkeys(FOLLOWING, 0.0)
        self.heaps, self.kept = HllHeaps(BUCKET_BITS), ColumnSketch()
        self.rescanned, self.rescanned_large = BottomK(equal_memory.K, SPARES), BottomK(LARGE_K, LARGE_K // 3)
        for name, sketch in self._followed():
            with self._timed(name):
                sketch.update(self.order)
        self.size = len(self.heaps.to_bytes())
        self.small, self.large = BottomK(equal_memory.K, 0), BottomK(LARGE_K, 0)
        self.equal = BottomK(self.size // 8, 0)
        for bottom in (self.small, self.equal, self.large):
            bottom.update(hashes)

    @property
    def left(self) -> UInt64s:
        return np.sort(self.order[self.gone :])

    def shrink_to(self, share: float) -> None:
        """Delete until this share of the values is left."""
        until = len(self.order) - max(round(share * len(self.order)), 1)
        for portion in np.array_split(self.order[self.gone : until], self.PORTIONS):
            if not len(portion):
                continue
            for name, sketch in self._followed():
                with self._timed(name):
                    sketch.remove(portion)
            for bottom in (self.small, self.equal, self.large):
                bottom.remove(portion)
            self.gone += len(portion)
            if self.rescanned.needs_rescan:
                self.read_again += len(self.order) - self.gone
                self.rescanned = self._rescan(self.rescanned, AGAIN)
            if self.rescanned_large.needs_rescan:
                self.rescanned_large = self._rescan(self.rescanned_large, AGAIN_LARGE)

    def _followed(self) -> Iterator[tuple[str, HllHeaps | ColumnSketch | BottomK]]:
        sketches = (self.heaps, self.kept, self.rescanned, self.rescanned_large)
        return zip(FOLLOWING, sketches, strict=True)

    def _rescan(self, bottom: BottomK, name: str) -> BottomK:
        with self._timed(name):
            fresh = BottomK(bottom.k, bottom.spares)
            fresh.update(self.order[self.gone :])
        return fresh

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        started = process_time()
        yield
        self.seconds[name] += process_time() - started

    def column(self, method: str) -> Column:
        """Give what is left in a sketch that has read the values once."""
        if method == KEPT:
            return known_column(self.kept)
        if method in (HEAPS, HEAPS_BML):
            return Column(self.heaps.registers, float(self.heaps.size))
        bottom = {ONCE: self.small, ONCE_EQUAL: self.equal, ONCE_LARGE: self.large}[method]
        complete = bottom.hashes if bottom.is_complete else None
        return Column(self.heaps.registers, float(max(bottom.estimate(), 1.0)), False, complete, bottom.hashes)

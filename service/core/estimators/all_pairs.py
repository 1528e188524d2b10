"""Own the estimates of many pairs of columns at once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from service.core.compiled import kernel
from service.core.errors import SketchError
from service.core.estimators.best import Side, estimate_overlap
from service.core.estimators.lookup import exact_load, probability
from service.core.estimators.model import Column, Float64s, held_of
from service.core.estimators.registers import fold
from service.core.estimators.tails import likelihood_drop
from service.core.records import Flags, Int64s, UInt64s, starts_of
from service.core.sketches.cardinality import histogram
from service.core.sketches.hashing import UInt8s

PORTION = 4096
"""So many pairs a thread takes at once."""

RULED_OUT = 6.0
"""A pair is left out when its registers are so many standard deviations from what the threshold asks."""


class Stack(NamedTuple):
    """Hold n columns: registers uint8[n, 2^m], their counts int64[n, 66 - m], sizes float64[n], the hashes end to end.

    Of column i those from starts[i] to starts[i + 1] are known: the smallest, or all when `is_complete[i]`.
    """

    registers: UInt8s
    counts: Int64s
    sizes: Float64s
    hashes: UInt64s
    starts: Int64s
    is_complete: Flags


class Overlaps(NamedTuple):
    """Give the number of values that pairs of columns x[i], y[i] have in common, and its interval: float64[pairs].

    Φ(x, y) = overlap / size of x, and Φ(y, x) = overlap / size of y.
    """

    x: Int64s
    y: Int64s
    overlap: Float64s
    low: Float64s
    high: Float64s


def stack(columns: Sequence[Column]) -> Stack:
    """Put columns together, with as many registers each as the one with the fewest has.

    Estimated sizes are taken for exact; `estimate` knows better, a pair at a time.
    """
    if not columns:
        raise SketchError("there are no columns to compare")
    m = min(column.bucket_bits for column in columns)
    registers = np.stack([fold(column.registers, m) for column in columns])
    counts = np.stack([histogram(row, m) for row in registers])
    hashes = [held_of(column) for column in columns]
    starts = starts_of(np.array([len(h) for h in hashes], np.int64))
    is_complete = np.array([column.hashes is not None for column in columns])
    sizes = np.array([column.size for column in columns], np.float64)
    return Stack(registers, counts, sizes, np.concatenate(hashes), starts, is_complete)


def pairs_of(columns: Stack) -> tuple[Int64s, Int64s]:
    """Give all pairs x < y of columns with values."""
    filled = np.flatnonzero(columns.sizes > 0)
    x, y = np.triu_indices(len(filled), 1)
    return filled[x], filled[y]


def estimate_pairs(
    columns: Stack, x: Int64s, y: Int64s, level: float = 0.95, threshold: float = 0.0, threads: int = 2
) -> Overlaps:
    """Estimate the overlap of pairs of columns with values, each pair once: it gives both coefficients.

    With a threshold pairs of which neither coefficient can reach it are left out: those whose registers refuse it by
    RULED_OUT standard deviations.
    """
    drop, law = likelihood_drop(level), exact_load(int(columns.registers.shape[1]).bit_length() - 1)
    overlap, low, high = (np.zeros(len(x)) for _ in range(3))
    is_kept = np.ones(len(x), np.bool_)

    def estimate_portion(first: int) -> None:
        last = first + PORTION
        _estimate(
            columns, x[first:last], y[first:last], drop, threshold, law,
            overlap[first:last], low[first:last], high[first:last], is_kept[first:last],
        )  # fmt: skip

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(estimate_portion, range(0, len(x), PORTION)))
    return Overlaps(x[is_kept], y[is_kept], overlap[is_kept], low[is_kept], high[is_kept])


@kernel
def _estimate(
    columns: Stack,
    x: Int64s,
    y: Int64s,
    drop: float,
    threshold: float,
    law: Float64s,
    overlap: Float64s,
    low: Float64s,
    high: Float64s,
    is_kept: Flags,
) -> None:
    for i in range(len(x)):
        one, other = _side(columns, x[i]), _side(columns, y[i])
        if threshold > 0 and not _can_reach(one, other, threshold, law):
            is_kept[i] = False
            continue
        overlap[i], low[i], high[i] = estimate_overlap(one, other, drop)


@kernel
def _side(columns: Stack, i: int) -> Side:
    hashes = columns.hashes[columns.starts[i] : columns.starts[i + 1]]
    registers, counts, size = columns.registers[i], columns.counts[i], columns.sizes[i]
    return Side(registers, counts, size, hashes, columns.is_complete[i])


@kernel
def _can_reach(x: Side, y: Side, threshold: float, law: Float64s) -> bool:
    """Tell whether the smaller column may have the threshold's share in common with the larger.

    The chance that a register of the smaller is at most that of the larger grows with the overlap (Theorem 2). The
    coefficient of the larger column is the lower of the two.
    """
    if y.size < x.size:
        x, y = y, x
    chance = probability(threshold * x.size, x.size, y.size, law)
    buckets = len(x.registers)
    at_most = 0
    for j in range(buckets):
        at_most += x.registers[j] <= y.registers[j]
    # One bucket more for the few that are not near normal.
    return bool(at_most + 1 >= buckets * chance - RULED_OUT * np.sqrt(buckets * chance * (1 - chance)))

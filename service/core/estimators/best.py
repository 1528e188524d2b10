"""Own the estimate that measures best: by all that is known of two columns, the median of the overlap that is left."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from service.core.estimators import joint, known
from service.core.estimators.curve import Curve, Prior, cut, posterior_median
from service.core.estimators.registers import count_greater
from service.core.records import Int64s, UInt64s
from service.core.sketches.hashing import HASH_BITS, UInt8s

OVERLAPPING, OVERLAPPING_A_DECADE, MOST_OVERLAPPING = 0.02, 0.035, 0.5
CONTAINED, EVEN, FEW, MOST = 0.15, 0.34, 0.34, 0.17
"""What overlaps pairs of columns have beforehand: the larger the smaller column, the more often some.

Rather low: of the pairs of TPC-H and Mondial 8 % overlap where one column has below ten values, a third where both are
large. Where the sketches tell next to nothing the estimate is then 0, as that of a sample without a common value is."""


class Side(NamedTuple):
    """Hold one column for the kernels: `hashes` are those of all values if `is_complete`; `counts` of its registers."""

    registers: UInt8s
    counts: Int64s
    size: float
    is_size_exact: bool
    hashes: UInt64s
    is_complete: bool


@njit(cache=True, nogil=True)
def prior_of(smaller: float) -> Prior:
    """Give the chances of the overlap of two columns of which the smaller has so many values."""
    overlapping = min(OVERLAPPING + OVERLAPPING_A_DECADE * math.log10(max(smaller, 1.0)), MOST_OVERLAPPING)
    contained = overlapping * max(CONTAINED, 1 / max(smaller, 1.0))
    between = overlapping - contained
    return Prior(1 - overlapping, contained, between * EVEN, between * FEW, between * MOST)


@njit(cache=True, nogil=True)
def count_common(x: UInt64s, y: UInt64s) -> int:
    """Count the hashes that are in both of two ascending lists."""
    i = j = common = 0
    while i < len(x) and j < len(y):
        if x[i] == y[j]:
            common += 1
        step = x[i] <= y[j]
        j += y[j] <= x[i]
        i += step
    return common


@njit(cache=True, nogil=True)
def trace(x: Side, y: Side) -> Curve:
    """Give the likelihood of the overlap by what is known of both columns, which have equally many registers."""
    m = 0
    while 1 << m < len(x.registers):
        m += 1
    unit, top = 0.5**m, HASH_BITS + 1 - m
    if x.is_complete:
        return known.trace(y.size, y.is_size_exact, known.gather(x.hashes, y.registers, m, y.counts), unit, top)
    if y.is_complete:
        return known.trace(x.size, x.is_size_exact, known.gather(y.hashes, x.registers, m, x.counts), unit, top)
    return joint.trace(joint.pair_of(x.size, y.size, count_greater(x.registers, y.registers), unit, top))


@njit(cache=True, nogil=True)
def estimate_overlap(x: Side, y: Side, drop: float) -> tuple[float, float, float]:
    """Give the overlap and its interval, where the log-likelihood has fallen by no more than `drop`.

    Overlaps are whole numbers, so the ends of the interval go outward.
    """
    if x.is_complete and y.is_complete:
        common = float(count_common(x.hashes, y.hashes))
        return common, common, common
    curve = trace(x, y)
    median = posterior_median(curve, prior_of(curve.largest))
    low, high = cut(curve, drop)
    return median, min(math.floor(low), median), max(min(math.ceil(high), curve.largest), median)


NO_HASHES = np.zeros(0, np.uint64)

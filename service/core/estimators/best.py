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

NOT_DISJOINT, NOT_DISJOINT_A_DECADE, MOST_NOT_DISJOINT = 0.03, 0.04, 0.5
CONTAINED, EVEN, FEW, MOST = 0.15, 0.34, 0.34, 0.17
"""What overlaps pairs of columns have beforehand: the larger the smaller column, the less often none. After TPC-H and
Mondial, where 3 to 15 % of the pairs with a column of a few values overlap, and a third of pairs of large ones."""


class Side(NamedTuple):
    """Hold one column for the kernels: `hashes` are those of all values if `is_complete`; `counts` of its registers."""

    registers: UInt8s
    counts: Int64s
    size: float
    hashes: UInt64s
    is_complete: bool


@njit(cache=True, nogil=True)
def prior_of(smaller: float) -> Prior:
    """Give the chances of the overlap of two columns of which the smaller has so many values."""
    overlapping = min(NOT_DISJOINT + NOT_DISJOINT_A_DECADE * math.log10(max(smaller, 1.0)), MOST_NOT_DISJOINT)
    between = overlapping * (1 - CONTAINED)
    return Prior(1 - overlapping, overlapping * CONTAINED, between * EVEN, between * FEW, between * MOST)


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
        return known.trace(y.size, known.gather(x.hashes, y.registers, m, y.counts), unit, top)
    if y.is_complete:
        return known.trace(x.size, known.gather(y.hashes, x.registers, m, x.counts), unit, top)
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

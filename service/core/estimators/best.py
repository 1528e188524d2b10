"""Own the estimate that measures best: by all that is known of two columns, the median of the overlap that is left."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from service.core.compiled import kernel
from service.core.estimators import joint, known
from service.core.estimators.curve import HALF_POINTS, Curve, Prior, cut, posterior_median
from service.core.estimators.registers import count_greater
from service.core.estimators.tails import log_choose
from service.core.records import Int64s, UInt64s
from service.core.sketches.hashing import HASH_BITS, UInt8s, bucket_of

OVERLAPPING, OVERLAPPING_A_DECADE, MOST_OVERLAPPING = 0.01, 0.025, 0.5
CONTAINED, EVEN, FEW, MOST = 0.15, 0.34, 0.34, 0.17
"""What overlaps pairs of columns have beforehand: the larger the smaller column, the more often some.

Rather low: of the pairs of TPC-H and Mondial 8 % overlap where one column has below ten values, a third where both are
large. Where the sketches tell next to nothing the estimate is then 0, as that of a sample without a common value is."""


LEAST_KNOWN = 0.05
"""Known hashes are looked at from this share of all buckets on: a twentieth more data is 2 % less error."""


class Side(NamedTuple):
    """Hold one column for the kernels: `hashes` are its smallest, all if `is_complete`; `counts` of its registers."""

    registers: UInt8s
    counts: Int64s
    size: float
    hashes: UInt64s
    is_complete: bool


@kernel
def prior_of(smaller: float) -> Prior:
    """Give the chances of the overlap of two columns of which the smaller has so many values."""
    overlapping = min(OVERLAPPING + OVERLAPPING_A_DECADE * math.log10(max(smaller, 1.0)), MOST_OVERLAPPING)
    contained = overlapping * max(CONTAINED, 1 / max(smaller, 1.0))
    between = overlapping - contained
    return Prior(1 - overlapping, contained, between * EVEN, between * FEW, between * MOST)


@kernel
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


@kernel
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
    known_buckets = 0
    if len(x.hashes) and len(y.hashes):
        known_buckets = int(bucket_of(min(x.hashes[-1], y.hashes[-1]), m))
    if known_buckets < LEAST_KNOWN * len(x.registers):
        return joint.trace(joint.pair_of(x.size, y.size, count_greater(x.registers, y.registers), unit, top))
    return _trace_rest(x, y, known_buckets, m)


@kernel
def _trace_rest(x: Side, y: Side, known_buckets: int, m: int) -> Curve:
    """Give the likelihood of the overlap where all values are known in the first buckets.

    In the others there are registers. Each of a = |X \\ Y|, b = |Y \\ X| and t is divided between the two at random, by
    the share f of the known buckets: with A, B, T of them known, Pr = C(a, A) C(b, B) C(t, T) / (1 - f)^t, but for a
    constant.
    """
    end = np.uint64(known_buckets) << np.uint64(HASH_BITS - m)
    of_x, of_y = x.hashes[: np.searchsorted(x.hashes, end)], y.hashes[: np.searchsorted(y.hashes, end)]
    common = count_common(of_x, of_y)
    counts = count_greater(x.registers[known_buckets:], y.registers[known_buckets:])
    unit = 1 / (len(x.registers) - known_buckets)
    pair = joint.pair_of(x.size - len(of_x), y.size - len(of_y), counts, unit, HASH_BITS + 1 - m)
    rest = joint.trace(pair, 2 * HALF_POINTS)
    points, values = rest.points + common, rest.values.copy()
    for i in range(len(points)):
        t = points[i]
        values[i] += log_choose(x.size - t, len(of_x) - common) + log_choose(y.size - t, len(of_y) - common)
        values[i] += log_choose(t, common) - t * math.log1p(-known_buckets / len(x.registers))
    best = np.argmax(values)
    return Curve(points, np.maximum(values - values[best], -745.0), points[best], min(x.size, y.size))


@kernel
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

"""Own BML, the paper's estimator (Algorithms 1 and 2), the same with the exact load of the buckets, the choice of m."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from service.core.compiled import kernel
from service.core.errors import SketchError
from service.core.estimators import unsized
from service.core.estimators.joint import information
from service.core.estimators.model import Float64s
from service.core.estimators.registers import LEVELS
from service.core.estimators.tails import clopper_pearson
from service.core.sketches.hashing import HASH_BITS, MOST_BUCKET_BITS, most_rho

LEAST_BUCKET_BITS = 4
"""HyperLogLog is defined from 16 buckets on; the paper's rule would leave small columns one or two."""

MANY = 1e8
"""Values of a column that fill all buckets of any sketch."""

TOLERANCE = 1e-5
"""Algorithm 2 stops when it is as near as this to the observed probability."""


def choose_bucket_bits(nx: float, ny: float, most: int) -> int:
    """Give m by Equation 12, log2(max(n_X, n_Y)) / 2, rounded, from LEAST_BUCKET_BITS on and at most `most`."""
    return min(most, max(LEAST_BUCKET_BITS, round(math.log2(max(nx, ny, 1)) / 2)))


def needed_bucket_bits(
    nx: float, ny: float, error: float, level: float = 0.95, *, are_sizes_known: bool = True
) -> int | None:
    """Give the least m at which Φ(X, Y) is expected within `error` of its estimate with the chance `level`.

    By the joint likelihood of registers, whatever Φ is; known hashes only add to what they tell. None when no m up to
    MOST_BUCKET_BITS is enough.
    """
    width = -NormalDist().inv_cdf((1 - level) / 2)  # from below: a level near 1 has no quantile above
    for m in range(MOST_BUCKET_BITS + 1):
        if width * math.sqrt(_largest_variance(nx, ny, m, are_sizes_known)) <= error:
            return m
    return None


def _largest_variance(nx: float, ny: float, m: int, are_sizes_known: bool) -> float:
    """Give the variance of the estimate at the Φ where it is largest."""
    overlaps, unit, top = np.linspace(0, min(nx, ny), 21), 0.5**m, most_rho(m)
    if are_sizes_known:
        return max(information(t, nx, ny, unit, top)[1] for t in overlaps) / nx**2
    pair = unsized.Unsized(np.zeros((5, LEVELS), np.int64), 0.0, 0.0, unit, top)
    return max(unsized.variance_of(t / nx, nx, ny - t, pair)[1] for t in overlaps)


def bucket_bits_for(error: float) -> int:
    """Give the least m for columns of any sizes, known or not, if Y has no more values than X; at a level of 95 %.

    Where there are more values than buckets it makes no difference any more how many. With R times as many values in Y
    the error is about sqrt(R) times as large. Raises SketchError where no m keeps the error.
    """
    m = needed_bucket_bits(MANY, MANY, error, are_sizes_known=False) if error > 0 else None
    if m is None:
        raise SketchError(
            f"no sketch of up to 2^{MOST_BUCKET_BITS} buckets keeps coefficients within {error:g} at 95 %; name a "
            "larger error"
        )
    return max(m, LEAST_BUCKET_BITS)


def average_load(m: int) -> Float64s:
    """Give ln Pr(V <= k) for one value, k from 0, as Equation 9 has it: each bucket has n / 2^m values."""
    k = np.arange(1, HASH_BITS - m + 1)
    return np.concatenate([[-np.inf], np.log1p(-(0.5**k)) * 0.5**m])


def exact_load(m: int) -> Float64s:
    """Give ln Pr(V <= k) for one value, k from 0 to 65 - m: it is above k in this bucket with the chance 2^-(m+k)."""
    k = np.arange(HASH_BITS - m + 1)
    with np.errstate(divide="ignore"):  # one bucket is never empty
        return np.concatenate([np.log1p(-(0.5 ** (m + k))), [0.0]])


@kernel
def probability(t: float, nx: float, ny: float, law: Float64s) -> float:
    """Give Pr(V^X <= V^Y) when t values are common (Equations 6 to 8, which are one: only X's own values are apart).

    With F_n(k) = Pr(V <= k) of n values it is the sum over k of F_(n_X - t)(k) (F_(n_Y)(k) - F_(n_Y)(k - 1)).
    """
    total = lower = 0.0
    for one in law:
        of_y = math.exp(ny * one) if ny > 0 else 1.0
        total += (math.exp((nx - t) * one) if nx > t else 1.0) * (of_y - lower)
        lower = of_y
    return total


@kernel
def look_up(observed: float, nx: float, ny: float, law: Float64s) -> float:
    """Give the t that has the observed probability (Algorithm 2, its lines 9 and 10 in the right order).

    Where even t = 0 has a higher one it is 0; where even the largest t has a lower one it is the largest.
    """
    low, high = 0.0, min(nx, ny)
    if probability(low, nx, ny, law) >= observed:
        return low
    if probability(high, nx, ny, law) <= observed:
        return high
    while True:
        t = (low + high) / 2
        found = probability(t, nx, ny, law)
        if abs(found - observed) <= TOLERANCE or high - low <= 1e-9 * high:
            return t
        if found > observed:
            high = t
        else:
            low = t


def estimate_by_lookup(
    at_most: int, buckets: int, nx: float, ny: float, law: Float64s, level: float
) -> tuple[float, float, float]:
    """Give Φ(X, Y) and its interval from the number of buckets where V^X <= V^Y (Algorithm 1).

    The interval of the probability is exact (Clopper and Pearson) and mapped through the lookup, in place of Theorem 4.
    """
    ends = clopper_pearson(at_most, buckets, level)
    low, high = (look_up(p, nx, ny, law) / nx for p in ends)
    phi = look_up(at_most / buckets, nx, ny, law) / nx
    return phi, min(low, phi), max(high, phi)

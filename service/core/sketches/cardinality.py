"""Own estimates of how many distinct values registers have seen, from the registers' histogram.

A histogram counts the registers of each value: int64[66 - m], for values from 0 (empty bucket) to 65 - m; it sums to
2^m. Ertl 2017: "New cardinality estimation algorithms for HyperLogLog sketches"; q there is 64 - m here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np

from service.core.records import Int64s
from service.core.sketches.hashing import UInt8s, check_bucket_bits, most_rho

SMALL_ALPHAS = {1: 0.0, 2: 0.3512, 4: 0.5324, 8: 0.6256, 16: 0.673, 32: 0.697, 64: 0.709}
"""α of Flajolet et al. 2007, Figure 3, and for fewer buckets by its integral. A lone bucket has no finite mean."""


def histogram(registers: UInt8s, m: int) -> Int64s:
    """Count the registers of each value."""
    return np.bincount(registers, minlength=most_rho(check_bucket_bits(m)) + 1).astype(np.int64)


def maximum_likelihood(counts: Int64s, ones: int = 0, zeros: int = 0) -> float:
    """Estimate by maximum likelihood in Ertl's Poisson model (section 4); infinite when all registers are full.

    Beside the registers there may be cells as wide as a register that hold one bit: so many `ones` and `zeros`.

    The derivative of the likelihood, times the rate, is convex and falls, so Newton's steps from a point below its
    root never leave that side (the start is Ertl's lower bound).
    """
    likelihood = _Likelihood(counts, ones, zeros)
    if likelihood.seen == 0:
        return 0.0
    if likelihood.linear == 0:
        return math.inf
    rate = likelihood.seen / (likelihood.linear + likelihood.levels.sum() / 2)
    while True:
        value, slope = likelihood.score(rate)
        step = -value / slope
        if not step > 1e-12 * rate:
            return float(rate * likelihood.buckets)
        rate += step


def likelihood_bounds(counts: Int64s, level: float) -> tuple[float, float]:
    """Give the interval of all sizes that a likelihood ratio test at this level does not refuse."""
    likelihood = _Likelihood(counts)
    return _bounds(likelihood, maximum_likelihood(counts), _drop(level))


def likelihood_bounds_of_cells(counts: Int64s, ones: int, zeros: int, level: float) -> tuple[float, float]:
    """Give the like for registers with cells beside them.

    The likelihood is that of a Poisson number's mean, but few hashes share a cell and their number itself is seen: of
    the variance 1 / J that it claims, that of a Poisson number, n, is none of the error.
    """
    likelihood = _Likelihood(counts, ones, zeros)
    best = maximum_likelihood(counts, ones, zeros)
    if not 0 < best < math.inf:
        return _bounds(likelihood, best, _drop(level))
    explained = -likelihood.score(best / likelihood.buckets)[1] / likelihood.buckets
    low, high = _bounds(likelihood, best, _drop(level) * max(1 - explained, 1e-12))
    # Whole numbers, but for what is rounding.
    return math.floor(low + 1e-6), math.ceil(high - 1e-6)


def _drop(level: float) -> float:
    return NormalDist().inv_cdf((1 - level) / 2) ** 2 / 2


def _bounds(likelihood: _Likelihood, estimate: float, drop: float) -> tuple[float, float]:
    best = estimate / likelihood.buckets
    if best == math.inf:
        # No rate is too high; the lowest is sought from one at which no register would be lower.
        best = likelihood.filling
    least = likelihood.log(best) - drop
    low = 0.0 if likelihood.seen == 0 else _bisect(lambda rate: likelihood.log(rate) >= least, 0.0, best)
    if likelihood.linear == 0:
        return low * likelihood.buckets, math.inf
    above = max(2 * best, 1.0)
    while likelihood.log(above) >= least:
        above *= 2
    high = _bisect(lambda rate: likelihood.log(rate) < least, best, above)
    return low * likelihood.buckets, high * likelihood.buckets


def linear_counting(counts: Int64s) -> float:
    """Estimate from the share of empty buckets (Whang et al. 1990); infinite when none is empty."""
    buckets = int(counts.sum())
    return buckets * math.log(buckets / counts[0]) if counts[0] else math.inf


def flajolet(counts: Int64s) -> float:
    """Estimate as HyperLogLog was published (Flajolet et al. 2007, Figure 3), with ln in its small range.

    Its correction for large ranges mends 32-bit hashes and has no part here.
    """
    buckets = int(counts.sum())
    alpha = SMALL_ALPHAS.get(buckets, 0.7213 / (1 + 1.079 / buckets))
    raw = alpha * buckets**2 / float(counts @ 0.5 ** np.arange(len(counts)))
    return linear_counting(counts) if raw <= 2.5 * buckets and counts[0] else raw


class _Likelihood:
    """Be the likelihood of a histogram where each bucket gets Poisson(rate) values.

    log L(rate) = -linear * rate + sum of levels' counts * ln(1 - exp(-rate * share)), the share of a level being 2^-ρ;
    the highest ρ has no level above it, so its share is that of the one below.
    """

    def __init__(self, counts: Int64s, ones: int = 0, zeros: int = 0) -> None:
        self.buckets = int(counts.sum()) + ones + zeros
        self.filling = 2.0 ** (len(counts) + 6)
        self.seen = int(counts[1:].sum()) + ones
        shares = 0.5 ** np.arange(len(counts))
        self.linear = float(counts[:-1] @ shares[:-1]) + zeros
        shares[-1] = shares[-2]
        used = np.flatnonzero(counts[1:]) + 1
        self._counts = np.append(counts[used].astype(np.float64), float(ones))
        self._shares = np.append(shares[used], 1.0)
        self.levels = self._counts * self._shares

    def log(self, rate: float) -> float:
        """Give the logarithm of the likelihood."""
        if rate == 0:
            return 0.0 if self.seen == 0 else -math.inf
        return float(self._counts @ np.log(-np.expm1(-rate * self._shares))) - self.linear * rate

    def score(self, rate: float) -> tuple[float, float]:
        """Give the derivative of the log-likelihood times the rate, and the slope of that."""
        y = rate * self._shares
        below = np.exp(-y) / -np.expm1(-y)
        # y / (e^y - 1) has slope -1/2 + y/6 near 0, where the closed form cancels out.
        slopes = np.where(y < 1e-4, -0.5 + y / 6, below * (1 - y / -np.expm1(-y)))
        return float(self._counts @ (y * below)) - self.linear * rate, float(self.levels @ slopes) - self.linear


def _bisect(is_above: Callable[[float], bool], low: float, high: float) -> float:
    """Find where `is_above` turns true between two points, to 12 digits."""
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if is_above(middle) else (middle, high)
    return (low + high) / 2

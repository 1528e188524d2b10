"""Own exact intervals of counts, binomial (Clopper and Pearson 1934) and hypergeometric, and the quantile they need."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

from service.core.compiled import kernel


def likelihood_drop(level: float) -> float:
    """Give how far the log-likelihood may fall in an interval of that level: half the quantile of chi-squared(1)."""
    return NormalDist().inv_cdf((1 - level) / 2) ** 2 / 2


@kernel
def log_choose(n: float, k: float) -> float:
    """Give ln C(n, k), of real numbers too."""
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


@kernel
def binomial_tail(n: int, k: int, p: float) -> float:
    """Give Pr(K >= k) of n trials with the chance p."""
    if k <= 0 or p >= 1:
        return 1.0
    if p <= 0:
        return 0.0
    upper = k > n * p  # sum the shorter tail
    i = k if upper else k - 1
    term = math.exp(log_choose(n, i) + i * math.log(p) + (n - i) * math.log1p(-p))
    total = 0.0
    while 0 <= i <= n and term > 1e-18 * (total + 1e-300):
        total += term
        if upper:
            term *= (n - i) / (i + 1) * p / (1 - p)
            i += 1
        else:
            term *= i / (n - i + 1) * (1 - p) / p
            i -= 1
    return min(total, 1.0) if upper else max(1.0 - total, 0.0)


def clopper_pearson(k: int, n: int, level: float) -> tuple[float, float]:
    """Give the exact interval of a chance of which k of n trials came out."""
    tail = (1 - level) / 2
    low = 0.0 if k == 0 else _bisect(lambda p: binomial_tail(n, k, p) - tail)
    high = 1.0 if k == n else _bisect(lambda p: binomial_tail(n, k + 1, p) - (1 - tail))
    return low, high


def _bisect(rising: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@kernel
def hypergeometric_tail(total: int, marked: int, drawn: int, k: int) -> float:
    """Give the chance of k or more marked ones among those drawn from `total`, of which `marked` are marked."""
    first, last = max(0, drawn - (total - marked)), min(drawn, marked)
    if k <= first:
        return 1.0
    if k > last:
        return 0.0
    upper = k > drawn * marked / total
    i = k if upper else k - 1
    term = math.exp(log_choose(marked, i) + log_choose(total - marked, drawn - i) - log_choose(total, drawn))
    summed = 0.0
    while first <= i <= last and term > 1e-18 * (summed + 1e-300):
        summed += term
        if upper:
            term *= (marked - i) / (i + 1) * (drawn - i) / (total - marked - drawn + i + 1)
            i += 1
        else:
            term *= i / (marked - i + 1) * (total - marked - drawn + i) / (drawn - i + 1)
            i -= 1
    return min(summed, 1.0) if upper else max(1.0 - summed, 0.0)


def hypergeometric_interval(k: int, drawn: int, total: int, level: float) -> tuple[int, int]:
    """Give the least and the largest number of marked ones among `total` that k marked of `drawn` do not rule out."""
    tail = (1 - level) / 2
    possible = range(k, total - (drawn - k) + 1)
    low = _first(possible, lambda marked: hypergeometric_tail(total, marked, drawn, k) > tail)
    high = _first(possible, lambda marked: hypergeometric_tail(total, marked, drawn, k + 1) >= 1 - tail) - 1
    return low, max(low, high)


def _first(numbers: range, holds: Callable[[int], bool]) -> int:
    """Give the first number for which something holds that holds for all behind it; one behind the last if none."""
    low, high = 0, len(numbers)
    while low < high:
        middle = (low + high) // 2
        if holds(numbers[middle]):
            high = middle
        else:
            low = middle + 1
    return numbers.start + low

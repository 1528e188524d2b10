"""Own what follows from a likelihood of the overlap, however it came about: an interval, a posterior median."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from service.core.compiled import kernel
from service.core.estimators.model import Float64s

HALF_POINTS = 6
"""A curve has so many points on each side of its maximum."""

DEEP = 14.0
"""A curve ends where the likelihood is e^-14 of its maximum, or at a border."""


class Curve(NamedTuple):
    """Hold the logarithm of a likelihood of the overlap t = |X ∩ Y|: 0 at its maximum, `best`.

    `points` ascend and begin (end) at 0 (at `largest`) unless the likelihood is negligible there.
    """

    points: Float64s
    values: Float64s
    best: float
    largest: float


class Prior(NamedTuple):
    """Hold the chances of an overlap t beforehand, in proportion to one another: their sum makes no difference.

    The columns are disjoint; the smaller is `contained` in the other; or t is between: spread evenly, with few common
    values (as 1 / (t + 1)), with most of the smaller column's (as 1 / (largest - t + 1)).
    """

    disjoint: float
    contained: float
    even: float
    few: float
    most: float


@kernel
def cut(curve: Curve, drop: float) -> tuple[float, float]:
    """Give the lowest and the highest t at which the likelihood is at least e^-drop of its maximum.

    Between two points the fall is taken for a power of the distance from the maximum: a square in the middle of what
    is possible, rather the first power at a border.
    """
    points = curve.points
    best = np.argmax(curve.values)
    # A maximum that was searched for is a little below the height that it was searched with.
    values = curve.values - curve.values[best]
    ends = np.array([points[0], points[-1]])
    if drop <= 0:  # a level so near to 0 that a float takes it for 0
        return points[best], points[best]
    for side in range(2):
        step, last = (1, len(points) - 1) if side else (-1, 0)
        i = best
        while i != last and -values[i] < drop:
            i += step
        if -values[i] < drop:
            continue
        # The power is that of this point and the one before, or at the first point the one behind.
        is_first = i - step == best
        j = i - step if not is_first else i if i == last else i + step
        power = 2.0
        if values[j] < 0 and values[j] != values[i]:
            far, near = abs(points[i] - points[best]), abs(points[j] - points[best])
            power = math.log(values[i] / values[j]) / math.log(far / near)
        if is_first:
            power = min(max(power, 1.0), 2.0)
        ends[side] = points[best] + (points[i] - points[best]) * (drop / -values[i]) ** (1 / power)
    return ends[0], ends[1]


@kernel
def _cumulate(t: float, largest: float, prior: Prior) -> float:
    """Give the chance beforehand of an overlap above 0 and up to t, short of the largest."""
    few, most = math.log1p(t), math.log1p(largest) - math.log1p(largest - t)
    return prior.even * t / largest + (prior.few * few + prior.most * most) / math.log1p(largest)


def probability_beforehand(t: int, largest: int, prior: Prior) -> float:
    """Give the chance beforehand of an overlap of t values of at most `largest`."""
    between = prior.few / (t + 1) + prior.most / (largest - t + 1)
    chance = (prior.even / largest + between / math.log1p(largest)) * (0 < t < largest)
    return chance + prior.disjoint * (t == 0) + prior.contained * (t == largest)


@kernel
def posterior_median(curve: Curve, prior: Prior) -> float:
    """Give the median of t, which has the least mean absolute error."""
    points, largest = curve.points, curve.largest
    n = len(points)
    likelihoods = np.exp(curve.values)
    at_zero = prior.disjoint * likelihoods[0] if points[0] <= 0.0 else 0.0
    total = at_zero + (prior.contained * likelihoods[-1] if points[-1] >= largest else 0.0)
    if points[-1] - points[0] == n - 1:
        # Each possible overlap is a point, and the two at the ends are counted already.
        likelihoods[0] *= points[0] > 0.0
        likelihoods[-1] *= points[-1] < largest
    shares = np.empty(n)
    for i in range(n):
        shares[i] = _cumulate(points[i], largest, prior)
    for i in range(n - 1):
        total += (shares[i + 1] - shares[i]) * (likelihoods[i] + likelihoods[i + 1]) / 2
    sought = total / 2 - at_zero
    if sought <= 0.0:
        return 0.0
    for i in range(n - 1):
        share, left, right = shares[i + 1] - shares[i], likelihoods[i], likelihoods[i + 1]
        area = share * (left + right) / 2
        if sought <= area:
            root = math.sqrt(max(left * left + 2 * (right - left) * sought / share, 0.0))
            at: float = points[i] + (points[i + 1] - points[i]) * 2 * sought / (share * (left + root))
            return at
        sought -= area
    return largest

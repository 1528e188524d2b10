"""Own what follows from a likelihood of the overlap, however it came about: an interval, a posterior median."""

from __future__ import annotations

import math
from typing import NamedTuple

from numba import njit

from service.core.estimators.model import Float64s

HALF_POINTS = 10
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


@njit(cache=True, nogil=True)
def cut(curve: Curve, drop: float) -> tuple[float, float]:
    """Give the lowest and the highest t at which the likelihood is at least e^-drop of its maximum.

    The root of the drop is nearly linear in t, so that it is what is interpolated.
    """
    points, values = curve.points, curve.values
    root = math.sqrt(drop)
    low, high = points[0], points[-1]
    for i in range(len(points) - 1):
        below, above = math.sqrt(max(-values[i], 0.0)), math.sqrt(max(-values[i + 1], 0.0))
        if below > root >= above:
            low = points[i] + (points[i + 1] - points[i]) * (below - root) / (below - above)
            break
    for i in range(len(points) - 1, 0, -1):
        below, above = math.sqrt(max(-values[i], 0.0)), math.sqrt(max(-values[i - 1], 0.0))
        if below > root >= above:
            high = points[i] - (points[i] - points[i - 1]) * (below - root) / (below - above)
            break
    return low, high


@njit(cache=True, nogil=True)
def posterior_median(curve: Curve, disjoint: float, contained: float) -> float:
    """Give the median of t when the prior has mass `disjoint` at 0, `contained` at the largest t, the rest evenly.

    Pairs of real columns are mostly disjoint or contained. The median has the least mean absolute error.
    """
    points, values, largest = curve.points, curve.values, curve.largest
    n = len(points)
    at_zero = disjoint * math.exp(values[0]) if points[0] <= 0.0 else 0.0
    at_largest = contained * math.exp(values[-1]) if points[-1] >= largest else 0.0
    density = (1.0 - disjoint - contained) / largest
    total = at_zero + at_largest
    for i in range(n - 1):
        total += density * (points[i + 1] - points[i]) * (math.exp(values[i]) + math.exp(values[i + 1])) / 2
    sought = total / 2 - at_zero
    if sought <= 0.0:
        return 0.0
    for i in range(n - 1):
        width, left, right = points[i + 1] - points[i], density * math.exp(values[i]), density * math.exp(values[i + 1])
        area = width * (left + right) / 2
        if sought <= area:
            slope = (right - left) / width
            at: float = points[i] + 2 * sought / (left + math.sqrt(max(left * left + 2 * slope * sought, 0.0)))
            return at
        sought -= area
    return largest

"""Own what follows from a likelihood of the overlap, however it came about: an interval, a posterior median."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
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


class Prior(NamedTuple):
    """Hold the chances of an overlap t beforehand; they sum to 1.

    The columns are disjoint; the smaller is `contained` in the other; or t is between: spread evenly, with few common
    values (as 1 / (t + 1)), with most of the smaller column's (as 1 / (largest - t + 1)).
    """

    disjoint: float
    contained: float
    even: float
    few: float
    most: float


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
def posterior_median(curve: Curve, prior: Prior) -> float:
    """Give the median of t, which has the least mean absolute error."""
    points, largest = curve.points, curve.largest
    n = len(points)
    at_zero = prior.disjoint * math.exp(curve.values[0]) if points[0] <= 0.0 else 0.0
    total = at_zero + (prior.contained * math.exp(curve.values[-1]) if points[-1] >= largest else 0.0)
    densities = np.empty(n)
    is_lattice = points[-1] - points[0] == n - 1
    for i in range(n):
        if is_lattice and (points[i] <= 0.0 or points[i] >= largest):
            densities[i] = 0.0  # each overlap is a point: these two are counted already
            continue
        ends = prior.few / (points[i] + 1) + prior.most / (largest - points[i] + 1)
        densities[i] = (prior.even / largest + ends / math.log1p(largest)) * math.exp(curve.values[i])
    for i in range(n - 1):
        total += (points[i + 1] - points[i]) * (densities[i] + densities[i + 1]) / 2
    sought = total / 2 - at_zero
    if sought <= 0.0:
        return 0.0
    for i in range(n - 1):
        width = points[i + 1] - points[i]
        area = width * (densities[i] + densities[i + 1]) / 2
        if sought <= area:
            slope = (densities[i + 1] - densities[i]) / width
            root = math.sqrt(max(densities[i] ** 2 + 2 * slope * sought, 0.0))
            at: float = points[i] + 2 * sought / (densities[i] + root)
            return at
        sought -= area
    return largest

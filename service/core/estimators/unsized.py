"""Own the joint likelihood of columns whose sizes are not known exactly: what is not asked for is profiled out.

The law is that of `joint`; now the registers below matter as well, as the sizes are read off them too. The likelihood
of a = |X \\ Y|, b = |Y \\ X| and t = |X & Y| is maximised over all with the same Φ = t / (a + t), and as a function of
Φ alone it is treated like any likelihood of one number.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from service.core.estimators.curve import DEEP, HALF_POINTS, Curve
from service.core.estimators.model import Float64s
from service.core.estimators.registers import LEVELS, chance_at
from service.core.records import Int64s
from service.core.sketches.hashing import UInt8s, most_rho

SAME, X_ABOVE, Y_ABOVE, X_BELOW, Y_BELOW = range(5)
"""Rows of counts: of equal registers; of X's where it is the greater, of Y's; of X's where it is the lesser, of Y's."""

MAKERS = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
"""Which of (a, b, t) make the registers of a row: X's own values, Y's own, all of X, all of Y."""

LEAST = 0.01
"""No part is taken for smaller than this many values: its logarithm is what is sought."""


STEP = 1e-5
"""The search ends at such steps of the logarithms: the likelihood is flat there to ten digits."""


class Unsized(NamedTuple):
    """Hold the counts of two rows of registers, int64[5, LEVELS], and the sizes: 0 for one that is not known.

    Beside the registers there may be `cells` as wide as a register that hold one bit: they are 0 or at top + 1.
    """

    counts: Int64s
    nx: float
    ny: float
    unit: float
    top: int
    cells: float = 0.0


def observe(x: UInt8s, y: UInt8s, nx: float, ny: float) -> Unsized:
    """Put together what is known; the sizes are 0 where they are not known."""
    chosen = (x[x == y], x[x > y], y[y > x], x[y > x], y[x > y])
    counts = np.stack([np.bincount(row, minlength=LEVELS) for row in chosen])
    m = len(x).bit_length() - 1
    return Unsized(counts.astype(np.int64), float(nx), float(ny), 0.5**m, most_rho(m))


@njit(cache=True, nogil=True, error_model="numpy")
def evaluate(a: float, b: float, t: float, pair: Unsized) -> tuple[float, Float64s, Float64s]:
    """Give the log-likelihood of (a, b, t), its gradient float64[3] and its second derivatives float64[3, 3]."""
    ell, gradient, hessian = 0.0, np.zeros(3), np.zeros((3, 3))
    whole = np.ones(3)
    for k in range(min(pair.top + 2, LEVELS)):
        at = 0.0 if k >= pair.top else pair.unit * 0.5**k
        q = pair.unit * chance_at(k, pair.top)
        if pair.counts[SAME, k]:
            n = float(pair.counts[SAME, k])
            ell -= n * (a + b + t) * at
            gradient -= n * at * whole
            if k:
                fa, fb, ft = math.exp(-a * q), math.exp(-b * q), math.exp(-t * q)
                ea, eb, et = -math.expm1(-a * q), -math.expm1(-b * q), -math.expm1(-t * q)
                h = et + ft * ea * eb
                first = np.array([ft * fa * eb, ft * ea * fb, ft * (1 - ea * eb)]) * (q / h)
                second = -q * np.diag(first)
                second[0, 1] = second[1, 0] = q * q * ft * fa * fb / h
                second[0, 2] = second[2, 0] = -q * first[0]
                second[1, 2] = second[2, 1] = -q * first[1]
                ell += n * math.log(h)
                gradient += n * first
                hessian += n * (second - np.outer(first, first))
        for row in range(X_ABOVE, Y_BELOW + 1):
            if pair.counts[row, k] == 0:
                continue
            n, parts = float(pair.counts[row, k]), MAKERS[row]
            size = parts[0] * a + parts[1] * b + parts[2] * t
            ell -= n * size * at
            gradient -= n * at * parts
            if k:
                f, e = math.exp(-size * q), -math.expm1(-size * q)
                ell += n * math.log(e)
                gradient += n * q * f / e * parts
                hessian -= n * q * q * f / (e * e) * np.outer(parts, parts)
    return ell, gradient, hessian


@njit(cache=True, nogil=True, error_model="numpy")
def profile(phi: float, start: Float64s, pair: Unsized) -> tuple[float, float, Float64s]:
    """Give the greatest log-likelihood with this Φ, its derivative by Φ, and the (|X|, b) where it is.

    Newton's steps in the logarithms of what is free, from `start`, halved while they lead down.
    """
    best = start.copy()
    if pair.nx > 0:
        best[0] = pair.nx
    step = np.zeros(2)
    height, slope = -math.inf, 0.0
    ell, gradient, hessian = -math.inf, np.zeros(3), np.zeros((3, 3))
    for turn in range(60):
        tried = best * np.exp(step)
        if pair.nx > 0:
            tried[0] = pair.nx
        if pair.ny > 0:
            if pair.nx <= 0 and phi * tried[0] > pair.ny - LEAST:
                tried[0] = (pair.ny - LEAST) / phi
            tried[1] = pair.ny - phi * tried[0]
        tried[1] = max(tried[1], LEAST)
        ell, gradient, hessian = evaluate((1 - phi) * tried[0], tried[1], phi * tried[0], pair)
        if turn == 0 and not ell > -math.inf:
            return -math.inf, -math.inf, start  # all of X in Y, but for a register that only X reached
        if not ell >= height - 1e-9 * abs(height) and np.abs(step).max() > STEP:
            step /= 2
            continue
        moved = np.abs(np.log(tried / best)).max()
        best, height = tried, max(ell, height)
        along = np.array([1 - phi, -phi if pair.ny > 0 else 0.0, phi])
        slope = best[0] * (gradient[2] - gradient[0] - (gradient[1] if pair.ny > 0 else 0.0))
        turned = (hessian * along).sum(axis=1)  # numba has no matrix products without SciPy
        du, dv = best[0] * (along * gradient).sum(), best[1] * gradient[1]
        duu, dvv = best[0] ** 2 * (along * turned).sum() + du, best[1] ** 2 * hessian[1, 1] + dv
        duv = best[0] * best[1] * turned[1]
        if pair.nx > 0:
            du = duv = 0.0
            duu = -1.0
        if pair.ny > 0:
            dv = duv = 0.0
            dvv = -1.0
        if duu < 0 and dvv < 0 and duu * dvv > duv * duv:
            bottom = duu * dvv - duv * duv
            step[0], step[1] = (duv * dv - dvv * du) / bottom, (duv * du - duu * dv) / bottom
        else:
            step[0], step[1] = du / max(abs(duu), 1e-9), dv / max(abs(dvv), 1e-9)
        step = np.minimum(np.maximum(step, -1.0), 1.0)
        if best[1] <= LEAST:
            step[1] = max(step[1], 0.0)
        if np.abs(step).max() < STEP or (turn > 0 and moved < STEP / 100):
            break
    return height, slope, best


def information_of(parts: Float64s, pair: Unsized) -> Float64s:
    """Give the Fisher information of the parts (a, b, t) that is to be expected, float64[3, 3], from all (Vx, Vy)."""
    k = np.arange(pair.top + 1)
    told = (1 / pair.unit - pair.cells) * _information(parts, np.where(k < pair.top, pair.unit * 0.5**k, 0.0))
    return told + pair.cells * _information(parts, np.array([pair.unit, 0.0])) if pair.cells else told


def _information(parts: Float64s, at: Float64s) -> Float64s:
    """Give that of one pair of registers, which are at most k with the chances exp(-n at[k])."""
    a, b, t = parts
    x, y = at[:, None], at[None, :]
    both = np.exp(-(a * x + b * y + t * np.maximum(x, y)))

    def of_cells(at_most: Float64s) -> Float64s:
        return np.diff(np.diff(at_most, axis=0, prepend=0.0), axis=1, prepend=0.0)

    chance = of_cells(both)
    slopes = [of_cells(-share * both) for share in (x, y, np.maximum(x, y))]
    used = chance > 1e-14
    return np.array([[np.sum(s[used] * r[used] / chance[used]) for s in slopes] for r in slopes])


def _stretch(phi: float, size: float, b: float, pair: Unsized) -> float:
    """Give by how much the likelihood of Φ understates what the registers tell, as `joint.information` has it."""
    parts = np.maximum([(1 - phi) * size, b, phi * size], 1e-6 * (size + b))
    told = information_of(parts, pair)
    ways = [np.array([1 - phi, -phi if pair.ny else 0, phi])] if not pair.nx else []
    ways += [np.array([-1.0, -1.0 if pair.ny else 0, 1.0])]
    ways += [np.array([0.0, 1.0, 0.0])] if not pair.ny else []
    free = np.array(ways).T
    towards = np.array([-phi, 0, 1 - phi]) / size
    weights = free @ np.linalg.solve(free.T @ told @ free, free.T @ towards)
    claimed = weights @ told @ weights
    of_counts = told @ weights
    variance = claimed - of_counts @ (parts * of_counts)
    return float(claimed / max(variance, 1e-6 * claimed))


def trace(size: float, other: float, pair: Unsized, most: float = 1.0) -> Curve:
    """Give the curve of the likelihood of Φ up to `most`, in units of values: its points are Φ `size`.

    `size` and `other` are the sizes of X and Y, or what they are estimated to be.
    """
    start = np.array([size, max(other - size / 2, other / 2)])

    def climb(phi: float) -> tuple[float, float]:
        nonlocal start
        height, slope, found = profile(phi, start, pair)
        if math.isfinite(height):
            start = found
        return height, slope

    low, high = 0.0, most
    at_high = climb(high)
    if math.isfinite(at_high[0]) and at_high[1] >= 0:
        best = high
    else:
        while high - low > 1e-7 * max(high, 1e-3):
            middle = (low + high) / 2
            low, high = (middle, high) if climb(middle)[1] > 0 else (low, middle)
        best = (low + high) / 2 if low else 0.0
    height, _ = climb(best)
    stretch = _stretch(best, start[0], start[1], pair)
    if best in (0.0, most) and stretch > 1:
        stretch *= math.log(stretch) / (stretch - 1)
    ends = []
    for border in (0.0, most):
        near, far = best, border
        if stretch * (height - climb(far)[0]) > DEEP:
            for _ in range(12):
                middle = (near + far) / 2
                near, far = (near, middle) if stretch * (height - climb(middle)[0]) > DEEP else (middle, far)
        ends.append(far)
    points = np.concatenate([np.linspace(ends[0], best, HALF_POINTS + 1), np.linspace(best, ends[1], HALF_POINTS + 1)])
    points = np.unique(points)
    values = np.array([stretch * (climb(phi)[0] - height) for phi in points])
    return Curve(points * size, np.clip(values, -745.0, 0.0), best * size, most * size)

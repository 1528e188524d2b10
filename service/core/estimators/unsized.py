"""Own the joint likelihood of columns whose sizes are not known exactly: what is not asked for is profiled out.

The law is that of `joint`; now the registers below matter as well, as the sizes are read off them too. The likelihood
of a = |X \\ Y|, b = |Y \\ X| and t = |X & Y| is maximised over all with the same Φ = t / (a + t), and as a function of
Φ alone it is treated like any likelihood of one number.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from service.core.compiled import dividing_kernel, kernel
from service.core.estimators.curve import DEEP, HALF_POINTS, Curve
from service.core.estimators.model import Float64s
from service.core.estimators.registers import LEVELS, chance_at
from service.core.records import Int64s
from service.core.sketches.hashing import UInt8s, most_rho

SAME, X_ABOVE, Y_ABOVE, X_BELOW, Y_BELOW = range(5)
"""Rows of counts: of equal registers; of X's where it is the greater, of Y's; of X's where it is the lesser, of Y's."""

MAKERS = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
"""Which of (a, b, t) make the registers of a row: all values, X's own, Y's own, all of X, all of Y."""

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


@dividing_kernel
def evaluate(a: float, b: float, t: float, pair: Unsized) -> tuple[float, Float64s, Float64s]:
    """Give the log-likelihood of (a, b, t), its gradient float64[3] and its second derivatives float64[3, 3]."""
    ell, gradient, hessian = 0.0, np.zeros(3), np.zeros((3, 3))
    sizes = (a + b + t, a, b, a + t, b + t)
    # What a row says depends on its size alone, but for equal registers: slopes and curvatures by that.
    slopes, curvatures = np.zeros(5), np.zeros(5)
    for k in range(min(pair.top + 2, LEVELS)):
        at = 0.0 if k >= pair.top else pair.unit * 0.5**k
        q = pair.unit * chance_at(k, pair.top)
        for row in range(SAME, Y_BELOW + 1):
            n = float(pair.counts[row, k])
            if n == 0:
                continue
            ell -= n * sizes[row] * at
            slopes[row] -= n * at
            if k and row == SAME:
                ea, eb, et = -math.expm1(-a * q), -math.expm1(-b * q), -math.expm1(-t * q)
                fa, fb, ft = 1 - ea, 1 - eb, 1 - et
                h = et + ft * ea * eb
                of_a, of_b, of_t = q * ft * fa * eb / h, q * ft * ea * fb / h, q * ft * (1 - ea * eb) / h
                ell += n * math.log(h)
                gradient[0] += n * of_a
                gradient[1] += n * of_b
                gradient[2] += n * of_t
                hessian[0, 0] -= n * of_a * (q + of_a)
                hessian[1, 1] -= n * of_b * (q + of_b)
                hessian[2, 2] -= n * of_t * (q + of_t)
                hessian[0, 1] += n * (q * q * ft * fa * fb / h - of_a * of_b)
                hessian[0, 2] -= n * of_a * (q + of_t)
                hessian[1, 2] -= n * of_b * (q + of_t)
            elif k:
                e = -math.expm1(-sizes[row] * q)
                ell += n * math.log(e)
                slopes[row] += n * q * (1 - e) / e
                curvatures[row] -= n * q * q * (1 - e) / (e * e)
    for row in range(SAME, Y_BELOW + 1):
        for i in range(3):
            gradient[i] += slopes[row] * MAKERS[row, i]
            for j in range(i, 3):
                hessian[i, j] += curvatures[row] * MAKERS[row, i] * MAKERS[row, j]
    hessian[1, 0], hessian[2, 0], hessian[2, 1] = hessian[0, 1], hessian[0, 2], hessian[1, 2]
    return ell, gradient, hessian


@kernel
def _within(size: float, phi: float, ny: float) -> float:
    """Give |X|, or less where its share in Y would leave no value to Y alone."""
    return (ny - LEAST) / phi if phi * size > ny - LEAST else size


@dividing_kernel
def profile(phi: float, start: Float64s, pair: Unsized) -> tuple[float, float, Float64s]:
    """Give the greatest log-likelihood with this Φ, its derivative by Φ, and the (|X|, b) where it is.

    Newton's steps in the logarithms of what is free, from `start`, halved while they lead down; where |Y| alone is
    known, in log(t / b), which is at ease with few values of Y alone as with few common ones.
    """
    best = start.copy()
    if pair.nx > 0:
        best[0] = pair.nx
    elif pair.ny > 0:
        best[0] = _within(best[0], phi, pair.ny)
    step = np.zeros(2)
    height, slope = -math.inf, 0.0
    for turn in range(60):
        tried = best * np.exp(step)
        if pair.nx > 0:
            tried[0] = pair.nx
        if pair.ny > 0:
            if pair.nx <= 0:
                t = phi * best[0]
                tried[0] = _within(best[0] * pair.ny / (t + (pair.ny - t) * math.exp(-step[0])), phi, pair.ny)
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
        own = best[1] / pair.ny if pair.ny > 0 else 1.0
        du, dv = own * best[0] * (along * gradient).sum(), best[1] * gradient[1]
        duu = (own * best[0]) ** 2 * (along * turned).sum() + (2 * own - 1) * du
        dvv = best[1] ** 2 * hessian[1, 1] + dv
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


@kernel
def _information(parts: Float64s, at: Float64s) -> Float64s:
    """Give that of one pair of registers, which are at most k with the chances exp(-n at[k])."""
    n = len(at)
    # The chance of both at most (i - 1, j - 1), and its derivatives by a, b, t: what is of one cell is a difference.
    at_most = np.zeros((n + 1, n + 1, 4))
    told, of_cell = np.zeros((3, 3)), np.empty(4)
    for i in range(n):
        for j in range(n):
            x, y = at[i], at[j]
            both = math.exp(-(parts[0] * x + parts[1] * y + parts[2] * max(x, y)))
            here = at_most[i + 1, j + 1]
            here[0], here[1], here[2], here[3] = both, -x * both, -y * both, -max(x, y) * both
            for part in range(4):
                of_cell[part] = here[part] - at_most[i, j + 1, part] - at_most[i + 1, j, part] + at_most[i, j, part]
            if of_cell[0] > 1e-14:
                for r in range(3):
                    for s in range(3):
                        told[r, s] += of_cell[1 + r] * of_cell[1 + s] / of_cell[0]
    return told


def variance_of(phi: float, size: float, b: float, pair: Unsized) -> tuple[float, float]:
    """Give the variance of Φ's estimate that the likelihood claims, and the one that is to be expected.

    They differ as `joint.information` has it. Of the pair only `unit`, `top`, and which sizes are known are read.
    """
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
    return float(claimed), max(float(claimed - of_counts @ (parts * of_counts)), 1e-6 * float(claimed))


def _stretch(phi: float, size: float, b: float, pair: Unsized) -> float:
    """Give by how much the likelihood of Φ understates what the registers tell."""
    claimed, expected = variance_of(phi, size, b, pair)
    return claimed / expected


def trace(size: float, other: float, pair: Unsized, most: float = 1.0) -> Curve:
    """Give the curve of the likelihood of Φ up to `most`, in units of values: its points are Φ `size`.

    `size` and `other` are the sizes of X and Y, or what they are estimated to be.
    """
    best, height, start = _maximise(np.array([size, max(other - size / 2, other / 2)]), pair, most)
    stretch = _stretch(best, start[0], start[1], pair)
    if best in (0.0, most) and stretch > 1:
        stretch *= math.log(stretch) / (stretch - 1)
    points, values = _walk(best, height, start, stretch, pair, most)
    return Curve(points * size, values, best * size, most * size)


@kernel
def _climb(phi: float, start: Float64s, pair: Unsized) -> tuple[float, float]:
    """Give height and slope of the profile; the next search starts where this one ended."""
    height, slope, found = profile(phi, start, pair)
    if math.isfinite(height):
        start[:] = found
    return height, slope


@kernel
def _maximise(start: Float64s, pair: Unsized, most: float) -> tuple[float, float, Float64s]:
    """Give the Φ up to `most` of the greatest likelihood, that likelihood, and the sizes there."""
    low, high = 0.0, most
    height, slope = _climb(high, start, pair)
    if math.isfinite(height) and slope >= 0:
        best = high
    else:
        while high - low > 1e-7 * max(high, 1e-3):
            middle = (low + high) / 2
            if _climb(middle, start, pair)[1] > 0:
                low = middle
            else:
                high = middle
        best = (low + high) / 2 if low else 0.0
    return best, _climb(best, start, pair)[0], start


@kernel
def _walk(
    best: float, height: float, start: Float64s, stretch: float, pair: Unsized, most: float
) -> tuple[Float64s, Float64s]:
    """Give points on both sides of the maximum, and the stretched logarithms of the likelihood there."""
    ends = np.empty(2)
    for side in range(2):
        near, far = best, side * most
        if stretch * (height - _climb(far, start, pair)[0]) > DEEP:
            for _ in range(12):
                middle = (near + far) / 2
                if stretch * (height - _climb(middle, start, pair)[0]) > DEEP:
                    far = middle
                else:
                    near = middle
        ends[side] = far
    below, above = np.linspace(ends[0], best, HALF_POINTS + 1), np.linspace(best, ends[1], HALF_POINTS + 1)
    points = np.unique(np.concatenate((below, above)))
    values = np.empty(len(points))
    for i in range(len(points)):
        values[i] = min(max(stretch * (_climb(points[i], start, pair)[0] - height), -745.0), 0.0)
    return points, values

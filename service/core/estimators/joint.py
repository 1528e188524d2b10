"""Own the joint law of two rows of registers: likelihood of the overlap, its maximum, what it tells of the overlap.

A register is V <= k with probability exp(-n 2^-(m+k)), n values spread at random (Pr(V <= k) of paper-notes.md, item 3,
with n a Poisson number). With a = |X \\ Y|, b = |Y \\ X|, t = |X & Y| and F_n(k) = Pr(V <= k), E_n(k) = 1 - F_n(k-1) /
F_n(k), the chance that n values reach k when none is above it, the three kinds of buckets have

    Pr(Vx = i < Vy = k) = Pr(V of X = i) F_b(k) E_b(k),   the same with X and Y exchanged, and
    Pr(Vx = Vy = k) = F_(a+b+t)(k) h(k),   h = E_t + (1 - E_t) E_a E_b :  a common value is at k, or one of each.

So all that t decides are three histograms of the greater register. With known sizes a = n_X - t and b = n_Y - t, and
the derivatives close: d/dt h = q (1 - E_t)(1 - E_a)(1 - E_b).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from service.core.compiled import dividing_kernel, kernel
from service.core.estimators.curve import DEEP, HALF_POINTS, Curve
from service.core.estimators.registers import LEVELS, SAME, X_ABOVE, Y_ABOVE
from service.core.records import Int64s


class Pair(NamedTuple):
    """Hold what is known of two columns: sizes, and the counts of their buckets by the greater register.

    `unit` is the share of values that fall into one bucket, 2^-m; `top` is the greatest register, 65 - m: a value is
    there with the chance of top - 1. No register is below `first` or above `last`. `slope` t is the part of the
    log-likelihood that is linear.
    """

    nx: float
    ny: float
    counts: Int64s
    unit: float
    top: int
    first: int
    last: int
    slope: float


@kernel
def pair_of(nx: float, ny: float, counts: Int64s, unit: float, top: int) -> Pair:
    """Put together what is known of two columns; `counts` is from `count_greater`."""
    first, last = top, 0
    slope = 0.0
    for k in range(LEVELS):
        n = counts[SAME, k] + counts[X_ABOVE, k] + counts[Y_ABOVE, k]
        if n:
            first, last = min(first, k), k
            if k < top:
                slope += n * unit * 0.5**k
    return Pair(float(nx), float(ny), counts, unit, top, first, last, slope)


@dividing_kernel
def evaluate(t: float, pair: Pair) -> tuple[float, float, float]:
    """Give the log-likelihood of t, but for a constant, and its first two derivatives.

    Levels halve the chance of a value, so that one exponential at the highest gives all others by squaring.
    """
    a, b, counts = max(pair.nx - t, 0.0), max(pair.ny - t, 0.0), pair.counts
    ell, d1, d2 = pair.slope * t, pair.slope, 0.0
    q = pair.unit * 0.5 ** min(pair.last, pair.top - 1)
    fa, fb, ft = math.exp(-a * q), math.exp(-b * q), math.exp(-t * q)
    ea, eb, et = -math.expm1(-a * q), -math.expm1(-b * q), -math.expm1(-t * q)
    for k in range(pair.last, max(pair.first, 1) - 1, -1):
        if k < pair.last and k < pair.top - 1:
            q *= 2
            ea, eb, et = ea * (2 - ea), eb * (2 - eb), et * (2 - et)
            fa, fb, ft = fa * fa, fb * fb, ft * ft
        if counts[SAME, k]:
            n = float(counts[SAME, k])
            h = et + ft * ea * eb
            ratio = fa * fb * ft / h
            ell += n * math.log(h)
            d1 += n * q * ratio
            d2 += n * q * q * ratio * (1 - ratio)
        if counts[X_ABOVE, k]:
            n = float(counts[X_ABOVE, k])
            ell += n * math.log(ea)
            d1 -= n * q * fa / ea
            d2 -= n * q * q * fa / (ea * ea)
        if counts[Y_ABOVE, k]:
            n = float(counts[Y_ABOVE, k])
            ell += n * math.log(eb)
            d1 -= n * q * fb / eb
            d2 -= n * q * q * fb / (eb * eb)
    return ell, d1, d2


@dividing_kernel
def maximise(pair: Pair) -> float:
    """Give the t in [0, min(nx, ny)] of the greatest likelihood: Newton's steps, bisection where they leave."""
    low, high = 0.0, min(pair.nx, pair.ny)
    if not evaluate(low, pair)[1] > 0:
        return low
    if evaluate(high, pair)[1] >= 0:
        return high
    t = high / 2
    for _ in range(60):
        _, d1, d2 = evaluate(t, pair)
        if d1 > 0:
            low = t
        else:
            high = t
        step = -d1 / d2 if d2 < 0 else math.inf
        after = t + step
        if not low < after < high:
            after = (low + high) / 2
        if abs(after - t) <= 1e-7 * t or high - low <= 1e-9 * high:
            return after
        t = after
    return t


@dividing_kernel
def information(t: float, nx: float, ny: float, unit: float, top: int) -> tuple[float, float]:
    """Give the Fisher information of t that the likelihood claims, and the variance of its estimate, to be expected.

    The likelihood takes a, b and t for means of Poisson numbers. We ask for the numbers themselves, whose own variance
    is none of the error: with u = (-1, -1, 1) along which t moves at known sizes, J the Fisher information of the
    means and L = diag(a, b, t), the variance of the estimate is (uJu - uJLJu) / (uJu)^2 in place of 1 / uJu. (The
    estimate itself is efficient: the least possible variance, 1 / u(J^-1 - L)^-1 u, is the same within a percent.)
    """
    t = max(t, 1e-6 * min(nx, ny))
    a, b = max(nx - t, 1e-6 * nx), max(ny - t, 1e-6 * ny)
    n = a + b + t
    # Above `last` and below `first` nearly no bucket is: what they tell is below any figure shown.
    last = min(top, max(1, int(math.log2(max(n * unit, 1.0))) + 24))
    q = unit * 0.5 ** min(last, top - 1)
    fa, fb, ft = math.exp(-a * q), math.exp(-b * q), math.exp(-t * q)
    ea, eb, et = -math.expm1(-a * q), -math.expm1(-b * q), -math.expm1(-t * q)
    jua = jub = jut = 0.0
    for k in range(last, 0, -1):
        if k < last and k < top - 1:
            q *= 2
            ea, eb, et = ea * (2 - ea), eb * (2 - eb), et * (2 - et)
            fa, fb, ft = fa * fa, fb * fb, ft * ft
        at = 0.0 if k == top else q  # the exponent of F(k); that of F(k - 1) is at + q
        all_below = math.exp(-n * at)
        if all_below < 1e-15:
            break
        # The score of Vx < Vy = k is that of Y's own values, and X's registers below k have their own for a and t.
        p = math.exp(-(nx * (at + q) + b * at)) * eb
        s = at - q * fb / eb
        jub -= p * s * s
        jua -= p * s * (at + q)
        jut -= p * s * (at + q)
        p = math.exp(-(ny * (at + q) + a * at)) * ea
        s = at - q * fa / ea
        jua -= p * s * s
        jub -= p * s * (at + q)
        jut -= p * s * (at + q)
        h = et + ft * ea * eb
        p = all_below * h
        s = at + q * fa * fb * ft / h
        jua += p * s * (-at + q * ft * fa * eb / h)
        jub += p * s * (-at + q * ft * ea * fb / h)
        jut += p * s * (-at + q * ft * (1 - ea * eb) / h)
    empty = math.exp(-n * unit) * unit * unit
    jua, jub, jut = (jua - empty) / unit, (jub - empty) / unit, (jut - empty) / unit
    juu = jut - jua - jub
    rest = juu - a * jua * jua - b * jub * jub - t * jut * jut
    return juu, max(rest, 1e-6 * juu) / (juu * juu)


@kernel
def sharpness(t: float, pair: Pair) -> float:
    """Give by how much the likelihood understates what the registers tell of t: its logarithm is to be stretched so."""
    claimed, variance = information(t, pair.nx, pair.ny, pair.unit, pair.top)
    return 1 / (claimed * variance)


@dividing_kernel
def trace(pair: Pair, half_points: int = HALF_POINTS) -> Curve:
    """Give the curve of the likelihood of t, stretched to what the registers tell."""
    largest = min(pair.nx, pair.ny)
    best = maximise(pair)
    height, d1, d2 = evaluate(best, pair)
    stretch = sharpness(best, pair)
    is_border = best <= 0.0 or best >= largest
    if is_border and stretch > 1.0 + 1e-9:
        # No value was seen to differ (to agree): of n hidden ones the chance is (1 - c)^n, c = 1 - 1 / stretch, where
        # the likelihood has exp(-c n).
        stretch *= math.log(stretch) / (stretch - 1)
    # A first guess of where the curve ends: by the slope at a border, else by the curvature.
    reach = math.sqrt(2 * DEEP / (stretch * -d2)) if d2 < 0 else largest
    if is_border and abs(d1) > 0:
        reach = min(reach, DEEP / (stretch * abs(d1)))
    ends = np.empty(2)
    stretches = np.empty(2)
    for side in range(2):
        sign = 2.0 * side - 1.0
        room = largest - best if side else best
        distance = min(reach, room)
        for _ in range(6):
            if distance <= 0:
                break
            at = best + sign * distance
            drop = stretch * (height - evaluate(at, pair)[0])
            if drop > 2 * DEEP:
                distance *= 0.5 if not drop < 1e4 * DEEP else max(0.5, math.sqrt(1.3 * DEEP / drop))
            elif drop < DEEP and distance < room:
                distance = min(room, distance * min(2.0, math.sqrt(1.5 * DEEP / max(drop, 0.1))))
            else:
                break
        ends[side] = best + sign * distance if distance < room else (largest if side else 0.0)
        stretches[side] = stretch if is_border else sharpness(ends[side], pair)
    points, values = np.empty(2 * half_points + 1), np.empty(2 * half_points + 1)
    lower = 0 if best <= 0 else 2 * half_points if best >= largest else half_points
    for i in range(2 * half_points + 1):
        side = 1 if i > lower else 0
        share = (i - lower) / (2 * half_points - lower) if side else (lower - i) / max(lower, 1)
        points[i] = ends[side] if share == 1 else best + (ends[side] - best) * share
        factor = stretch + (stretches[side] - stretch) * share
        ell = evaluate(points[i], pair)[0]
        values[i] = max(factor * (ell - height), -745.0) if ell > -math.inf else -745.0
    return Curve(points, np.minimum(values, 0.0), best, largest)

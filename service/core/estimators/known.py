"""Own the likelihood of the overlap when one column's hashes are all known and of the other there are registers.

Let K be the known set, D the other, t = |K & D|, b = |D| - t. A hash of K with bucket j and rho r is not in D when
r > V_j; when r < V_j the register says nothing of it; when r = V_j it is in D, or others of D are at V_j. If each hash
of K is in D with odds z, a bucket with register v, e hashes of K at v and l below it has the probability, but for a
constant,

    F_b(v) (1 + z)^l [ (1 + z)^e - 1 + E_b(v) ]      (F and E as in `joint`; e = 0: F_b(v) E_b(v)),

a polynomial in z. The coefficient of z^t in the product over all buckets, over C(|K|, t), is the probability when
exactly t hashes are common: t itself is sought, not a chance of which it is a draw. Of many hashes the coefficient is
taken at the saddle point, with the variance + 1/6 in Stirling's root (Gosper), which is right at both ends.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from service.core.compiled import dividing_kernel, kernel
from service.core.estimators.curve import DEEP, HALF_POINTS, Curve
from service.core.estimators.model import Float64s
from service.core.estimators.registers import chance_at
from service.core.records import Int64s, UInt64s
from service.core.sketches.hashing import UInt8s, bucket_of, rho_of

MOST_LATTICE = 20
"""Up to so many possible overlaps each is a point of the curve."""


class Evidence(NamedTuple):
    """Hold what registers say of n known hashes.

    `excluded` are not in the other column. Class c: `buckets[c]` buckets have the register `levels[c]` and `equal[c]`
    hashes at it. `others` are the buckets of each register without such a hash: int64[66 - m].
    """

    n: int
    excluded: int
    levels: Int64s
    equal: Int64s
    buckets: Float64s
    others: Int64s


@kernel
def gather(hashes: UInt64s, registers: UInt8s, m: int, counts: Int64s) -> Evidence:
    """Hold ascending hashes against the registers of the other column; `counts` is their histogram."""
    n = len(hashes)
    cells, own, met = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    for i in range(n):
        cells[i], own[i] = bucket_of(hashes[i], m), rho_of(hashes[i], m)
        met[i] = registers[cells[i]]
    return evidence_of(cells, own, met, counts.copy())


@kernel
def evidence_of(cells: Int64s, own: Int64s, met: Int64s, registers: Int64s) -> Evidence:
    """Count the classes: hash i is in cells[i], which ascend, at own[i], and the other column's register is met[i].

    `registers` counts all registers of the other column; it is changed to `others`.
    """
    n = len(cells)
    keys = np.empty(n, np.int64)  # of a bucket with the register v and e hashes at it: v (n + 1) + e
    n_keys = excluded = i = 0
    while i < n:
        first, equal = i, 0
        while i < n and cells[i] == cells[first]:
            excluded += own[i] > met[i]
            equal += own[i] == met[i]
            i += 1
        if equal:
            registers[met[first]] -= 1
            keys[n_keys] = met[first] * (n + 1) + equal
            n_keys += 1
    keys = np.sort(keys[:n_keys])
    levels, equals, buckets = np.empty(n_keys, np.int64), np.empty(n_keys, np.int64), np.empty(n_keys, np.float64)
    c = -1
    for i in range(n_keys):
        if i == 0 or keys[i] != keys[i - 1]:
            c += 1
            levels[c], equals[c], buckets[c] = keys[i] // (n + 1), keys[i] % (n + 1), 0.0
        buckets[c] += 1
    return Evidence(n, excluded, levels[: c + 1], equals[: c + 1], buckets[: c + 1], registers)


@dividing_kernel
def _moments(p: float, evidence: Evidence, reach: Float64s) -> tuple[float, float]:
    """Give mean and variance of the number of common hashes when each is common with the chance p beforehand."""
    possible = evidence.n - evidence.excluded
    mean, variance = possible * p, possible * p * (1 - p)
    for c in range(len(reach)):
        e = evidence.equal[c]
        rest = (1 - p) ** e
        y = rest * (1 - reach[c])
        none = reach[c] * rest + (1 - rest) if e > 1 else p + reach[c] * (1 - p)  # 1 - y without cancellation
        g = y / none
        mean += evidence.buckets[c] * e * p * g
        variance += evidence.buckets[c] * e * (p * (1 - p) * g - e * p * p * y / (none * none))
    return mean, max(variance, 0.0)


@dividing_kernel
def _solve(t: float, p: float, evidence: Evidence, reach: Float64s) -> tuple[float, float]:
    """Give the p at which the mean is t, and the variance there; the search begins at p."""
    low, high = 0.0, 1.0
    for _ in range(60):
        mean, variance = _moments(p, evidence, reach)
        if mean < t:
            low = p
        else:
            high = p
        step = (t - mean) * p * (1 - p) / variance if variance > 0 else 2.0
        after = p + step
        if not low < after < high:
            after = (low + high) / 2
        if abs(t - mean) <= 1e-7 * (1 + variance) or high - low < 1e-15:
            break
        p = after
    return p, variance


@dividing_kernel
def _fill_reach(reach: Float64s, b: float, evidence: Evidence, unit: float, top: int) -> None:
    for c in range(len(reach)):
        reach[c] = -math.expm1(-b * unit * chance_at(evidence.levels[c], top))


@dividing_kernel
def evaluate(
    t: float, p: float, size: float, evidence: Evidence, reach: Float64s, unit: float, top: int
) -> tuple[float, float]:
    """Give the log-likelihood of t common hashes, but for a constant, and the saddle point; look near p first."""
    b = max(size - t, 0.0)
    ell = 0.0
    for k in range(len(evidence.others)):
        if evidence.others[k]:
            if k:
                ell += evidence.others[k] * math.log(-math.expm1(-b * unit * chance_at(k, top)))
            if k < top:
                ell += t * evidence.others[k] * unit * 0.5**k
    for c in range(len(reach)):
        if evidence.levels[c] < top:
            ell += t * evidence.buckets[c] * unit * 0.5 ** evidence.levels[c]
    if ell == -math.inf:
        return ell, p
    _fill_reach(reach, b, evidence, unit, top)
    ell -= math.lgamma(evidence.n + 1.0) - math.lgamma(t + 1) - math.lgamma(evidence.n - t + 1)
    if evidence.n - evidence.excluded <= MOST_LATTICE:
        return ell + math.log(expand(int(t), evidence, reach)), p
    coefficient, p = saddle(t, p, evidence, reach)
    return ell + coefficient, p


@dividing_kernel
def saddle(t: float, p: float, evidence: Evidence, reach: Float64s) -> tuple[float, float]:
    """Give the logarithm of the coefficient of z^t, and the chance p at which t is the mean; look near p first."""
    possible = float(evidence.n - evidence.excluded)
    ell = 0.0
    if t <= 0:
        for c in range(len(reach)):
            ell += evidence.buckets[c] * math.log(reach[c])
        return ell, 0.0
    if t >= possible:
        return 0.0, 1.0
    p, variance = _solve(t, p, evidence, reach)
    ell -= possible * math.log1p(-p) + t * (math.log(p) - math.log1p(-p))
    for c in range(len(reach)):
        rest = (1 - p) ** evidence.equal[c]
        ell += evidence.buckets[c] * math.log(reach[c] * rest + (1 - rest))
    return ell - 0.5 * math.log(2 * math.pi * (variance + 1 / 6)), p


@kernel
def expand(t: int, evidence: Evidence, reach: Float64s) -> float:
    """Give the coefficient of z^t, multiplied out."""
    product = np.zeros(t + 1)
    product[0] = 1.0
    free = evidence.n - evidence.excluded
    for c in range(len(reach)):
        e = evidence.equal[c]
        for _ in range(int(evidence.buckets[c])):
            free -= e
            for d in range(t, -1, -1):
                total = reach[c] * product[d]
                ways = 1.0
                for i in range(1, min(e, d) + 1):
                    ways *= (e - i + 1) / i
                    total += ways * product[d - i]
                product[d] = total
    coefficient, ways = 0.0, 1.0
    for i in range(min(free, t) + 1):
        coefficient += ways * float(product[t - i])
        ways *= (free - i) / (i + 1)
    return coefficient


@dividing_kernel
def trace(size: float, evidence: Evidence, unit: float, top: int) -> Curve:
    """Give the curve of the likelihood of t; `size` is the number of values of the column that has the registers."""
    largest = min(float(evidence.n), size)
    last = min(float(evidence.n - evidence.excluded), size)
    reach = np.empty(len(evidence.levels))
    if last <= MOST_LATTICE:
        n = int(last) + 1
        points = np.arange(n).astype(np.float64)
        if last > n - 1:
            points[-1] = last
    else:
        points = _place_points(last, size, evidence, reach, unit, top)
    values = np.empty(len(points))
    p = 0.5
    for i in range(len(points)):
        if 0 < p < 1:
            values[i], p = evaluate(points[i], p, size, evidence, reach, unit, top)
        else:
            values[i], p = evaluate(points[i], 0.5, size, evidence, reach, unit, top)
    best = np.argmax(values)
    return Curve(points, np.maximum(values - values[best], -745.0), points[best], largest)


@dividing_kernel
def _place_points(last: float, size: float, evidence: Evidence, reach: Float64s, unit: float, top: int) -> Float64s:
    """Give points around the maximum, as far as the likelihood is not negligible; the ends are among them if near.

    Without what the registers of other buckets tell of b, the maximum is where p = t / n (`evaluate`'s derivative).
    """
    n = float(evidence.n)
    low, high = 0.0, last
    for _ in range(40):
        t = (low + high) / 2
        _fill_reach(reach, max(size - t, 0.0), evidence, unit, top)
        if _moments(t / n, evidence, reach)[0] > t:
            low = t
        else:
            high = t
        if high - low < 1e-3 * last:
            break
    best = (low + high) / 2
    _fill_reach(reach, max(size - best, 0.0), evidence, unit, top)
    variance = _moments(best / n, evidence, reach)[1]
    prior = best * (n - best) / n
    spread = math.sqrt(1 / max(1 / max(variance, 1e-3) - 1 / max(prior, 1e-3), 1 / n**2)) + 1.0
    reached = math.sqrt(2 * DEEP) * spread
    low, high = best - reached, best + reached
    height = evaluate(best, 0.5, size, evidence, reach, unit, top)[0]
    for _ in range(40):
        if low > 0 and height - evaluate(low, 0.5, size, evidence, reach, unit, top)[0] < DEEP:
            low -= reached / 2
        elif high < last and height - evaluate(high, 0.5, size, evidence, reach, unit, top)[0] < DEEP:
            high += reached / 2
        else:
            break
    return np.linspace(max(low, 0.0), min(high, last), 2 * HALF_POINTS + 7)

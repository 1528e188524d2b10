"""Pieces of the estimators, small enough to be counted one by one: curves, likelihoods, what all registers tell."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from service.core.errors import SketchError
from service.core.estimators import Column, joint, known, lookup, unsized
from service.core.estimators.best import Side, count_common, estimate_overlap, prior_of, trace
from service.core.estimators.curve import Curve, Prior, cut, posterior_median, probability_beforehand
from service.core.estimators.model import Float64s, held_of
from service.core.estimators.registers import count_greater
from service.core.estimators.tails import clopper_pearson
from service.core.sketches.hashing import most_rho
from tests.columns import draw_pair

DROP = 1.92


@pytest.mark.parametrize(
    ("smaller", "overlapping", "contained"),
    [(0.2, 0.01, 1), (1, 0.01, 1), (4, 0.01 + 0.025 * math.log10(4), 0.25), (1e4, 0.11, 0.15), (1e30, 0.5, 0.15)],
)
def test_the_larger_the_smaller_column_the_more_often_some_overlap(
    smaller: float, overlapping: float, contained: float
) -> None:
    between = overlapping * (1 - contained)
    expected = (1 - overlapping, overlapping * contained, 0.34 * between, 0.34 * between, 0.17 * between)
    assert prior_of(float(smaller)) == pytest.approx(expected)


def test_hashes_of_two_lists_are_counted_once() -> None:
    random = np.random.default_rng(3)
    for nx, ny in product((0, 1, 7, 20), repeat=2):
        x, y = (np.sort(random.choice(25, n, replace=False)).astype(np.uint64) for n in (nx, ny))
        assert count_common(x, y) == len(set(x.tolist()) & set(y.tolist()))


@pytest.mark.parametrize("power", [1.0, 1.3, 2.0])
@pytest.mark.parametrize("largest", [100.0, 40.0])
def test_between_two_points_the_likelihood_falls_by_a_power(power: float, largest: float) -> None:
    """Right of 20 it falls three times as fast; 40 and what is below 8 are borders of what is looked at."""
    points = np.array([8.0, 11.0, 14.0, 20.0, 22.0, 31.0, 40.0])
    values = -np.where(points < 20, 1, 3) * (np.abs(points - 20) / 5) ** power
    curve = Curve(points, values, 20.0, largest)
    for drop in (0.3, 0.5, 1.0, 1.3):
        reach = 5 * drop ** (1 / power), 5 * (drop / 3) ** (1 / power)
        assert cut(curve, drop) == pytest.approx((20 - reach[0], 20 + reach[1]))
    assert cut(curve, 1000.0) == (8.0, 40.0)
    assert cut(curve, -float(values[0]))[0] == pytest.approx(8.0)


def test_the_first_point_beside_the_maximum_takes_the_power_of_the_next_within_reason() -> None:
    flat, steep = (
        Curve(np.arange(3.0), np.array([0.0, -4.0, -4.4]), 0.0, 2.0),
        Curve(np.arange(3.0), np.array([0.0, -4.0, -400.0]), 0.0, 2.0),
    )
    assert cut(flat, 1.0) == pytest.approx((0, 0.25))  # no power is below 1
    assert cut(steep, 1.0) == pytest.approx((0, 0.5))  # and none above 2
    last = Curve(np.arange(2.0), np.array([0.0, -4.0]), 0.0, 1.0)
    assert cut(last, 1.0) == pytest.approx((0, 0.5))
    same = Curve(np.arange(3.0), np.array([-4.0, -4.0, 0.0]), 2.0, 2.0)
    assert cut(same, 1.0) == pytest.approx((1.5, 2))
    level = Curve(np.arange(3.0), np.array([0.0, 0.0, -4.0]), 0.0, 2.0)
    assert cut(level, 1.0) == pytest.approx((0, 1))


def chance_up_to(t: float, largest: float, prior: Prior) -> float:
    """Integrate the chances beforehand of what is above 0 and at most t, which are densities there."""
    few = math.log(1 + t) / math.log(1 + largest)
    most = 1 - math.log(1 + largest - t) / math.log(1 + largest)
    return prior.even * t / largest + prior.few * few + prior.most * most


def median_by_steps(curve: Curve, prior: Prior) -> float:
    """Cut each piece between two points into a thousand of the same chance beforehand; see where half is reached."""
    points, weights = [0.0], [prior.disjoint * math.exp(curve.values[0]) * (curve.points[0] == 0)]
    lone = np.diff(curve.points[[0, -1]])[0] == len(curve.points) - 1
    likelihoods = np.exp(curve.values)
    if lone:
        likelihoods = likelihoods * (curve.points > 0) * (curve.points < curve.largest)
    for i in range(len(curve.points) - 1):
        grid = np.linspace(curve.points[i], curve.points[i + 1], 1001)
        shares = np.linspace(*(chance_up_to(t, curve.largest, prior) for t in grid[[0, -1]]), 1001)
        at = np.linspace(likelihoods[i], likelihoods[i + 1], 1001)
        points += grid[1:].tolist()
        weights += (np.diff(shares) * (at[1:] + at[:-1]) / 2).tolist()
    points.append(curve.largest)
    weights.append(prior.contained * math.exp(curve.values[-1]) * (curve.points[-1] == curve.largest))
    sums = np.cumsum(weights)
    return points[int(np.searchsorted(sums, sums[-1] / 2))]


@pytest.mark.parametrize(
    "prior", [Prior(0.2, 0.2, 0.6, 0, 0), Prior(0.1, 0.1, 0, 0.8, 0), Prior(0.05, 0.1, 0.1, 0, 0.7)]
)
def test_the_median_is_where_half_of_all_is_reached(prior: Prior) -> None:
    for points, values, largest in (
        ([0, 3, 10, 20], [-1, 0, -0.3, -2], 20),
        ([0, 3, 10, 20], [0, -0.5, -1, -2], 30),
        ([4, 9, 10, 20], [-2, 0, -1, -1.5], 20),
        ([5, 9, 10, 18], [-2, 0, -1, -1.5], 22),
        ([0, 1, 2, 3, 4], [-1, -0.5, 0, -1, -0.2], 4),
        ([0, 1, 2, 3, 4], [-1, -0.5, 0, -1, -1.2], 9),
        ([1, 2, 3, 4], [-1, 0, -1, -1.2], 9),
        ([2, 3, 4], [-1, 0, -1], 4),
    ):
        curve = Curve(np.array(points, np.float64), np.array(values, np.float64), 0.0, float(largest))
        assert posterior_median(curve, prior) == pytest.approx(median_by_steps(curve, prior), abs=0.03)


def test_chances_beforehand_are_those_of_each_overlap() -> None:
    prior = Prior(0.4, 0.2, 0.1, 0.2, 0.1)
    assert (probability_beforehand(0, 9, prior), probability_beforehand(9, 9, prior)) == (0.4, 0.2)
    for t in (1, 4, 8):
        few, most = 0.2 / (t + 1), 0.1 / (10 - t)
        assert probability_beforehand(t, 9, prior) == pytest.approx(0.1 / 9 + (few + most) / math.log(10))


def below(n: Float64s | float, k: int, m: int) -> float:
    if k < 0:
        return 0.0
    return 1.0 if k >= most_rho(m) else math.exp(-n * 2.0 ** -(m + k))


def information_by_cells(a: float, b: float, t: float, m: int) -> Float64s:
    """Sum (∂p)(∂p)' / p over all registers of one bucket, times the number of buckets: float64[3, 3]."""
    told = np.zeros((3, 3))
    top = most_rho(m)
    share = [0.0 if k >= top else 2.0 ** -(m + k) for k in range(top + 1)]
    for i, j in product(range(top + 1), repeat=2):
        p, slope = 0.0, np.zeros(3)
        for sign, u, v in ((1, i, j), (-1, i - 1, j), (-1, i, j - 1), (1, i - 1, j - 1)):
            if min(u, v) >= 0:
                both = math.exp(-a * share[u] - b * share[v] - t * share[min(u, v)])
                p += sign * both
                slope -= sign * both * np.array([share[u], share[v], share[min(u, v)]])
        if p > 1e-14:
            told += np.outer(slope, slope) / p
    return told * 2**m


@pytest.mark.parametrize(("a", "b", "t"), [(30.0, 50.0, 20.0), (3.0, 400.0, 60.0), (700.0, 5.0, 5.0)])
@pytest.mark.parametrize("m", [0, 3])
def test_what_registers_tell_is_summed_over_all_that_they_can_be(a: float, b: float, t: float, m: int) -> None:
    told = information_by_cells(a, b, t, m)
    parts = np.array([a, b, t])
    pair = unsized.Unsized(np.zeros((5, 66), np.int64), 0.0, 0.0, 0.5**m, most_rho(m))
    assert unsized.information_of(parts, pair) == pytest.approx(told, rel=1e-3)
    u = np.array([-1.0, -1.0, 1.0])
    claimed = u @ told @ u
    expected = (claimed - told @ u @ (parts * (told @ u))) / claimed**2
    found = joint.information(t, a + t, b + t, 0.5**m, most_rho(m))
    assert found == pytest.approx((claimed, expected), rel=2e-3)


def test_the_last_register_holds_what_is_deeper_still() -> None:
    parts = np.full(3, 2.0**62)
    pair = unsized.Unsized(np.zeros((5, 66), np.int64), 0.0, 0.0, 1 / 8, 62)
    assert unsized.information_of(parts, pair) == pytest.approx(information_by_cells(*parts, 3), rel=1e-9, abs=0)


@pytest.mark.parametrize("known_sizes", list(product((False, True), repeat=2)))
def test_the_variance_of_a_coefficient_is_that_of_what_is_free(known_sizes: tuple[bool, bool]) -> None:
    """By the delta method: what is free is all (a, b, t), or what moves along with known sizes."""
    a, b, t, m = 60.0, 90.0, 40.0, 4
    told = information_by_cells(a, b, t, m)
    free = np.eye(3)
    if known_sizes == (True, False):
        free = np.array([[-1.0, 0, 1], [0, 1, 0]]).T
    elif known_sizes == (False, True):
        free = np.array([[1.0, 0, 0], [0, -1, 1]]).T
    elif all(known_sizes):
        free = np.array([[-1.0, -1, 1]]).T
    towards = np.array([-t, 0, a]) / (a + t) ** 2
    inverse = free @ np.linalg.inv(free.T @ told @ free) @ free.T
    claimed = towards @ inverse @ towards
    weights = told @ inverse @ towards
    expected = claimed - weights @ (np.array([a, b, t]) * weights)
    sizes = [size * is_known for size, is_known in zip((a + t, b + t), known_sizes, strict=True)]
    pair = unsized.Unsized(np.zeros((5, 66), np.int64), *sizes, 0.5**m, most_rho(m))
    assert unsized.variance_of(t / (a + t), a + t, b, pair) == pytest.approx((claimed, expected), rel=2e-3)


def test_cells_of_one_bit_tell_as_much_as_registers_that_end_there() -> None:
    parts = np.array([30.0, 50.0, 20.0])
    nothing = np.zeros((5, 66), np.int64)
    bits = unsized.Unsized(nothing, 0.0, 0.0, 1 / 64, 59, 64.0)
    told = np.zeros((3, 3))
    for x, y in product((0, 1), repeat=2):
        p, slope = 0.0, np.zeros(3)
        for sign, u, v in ((1, x, y), (-1, x - 1, y), (-1, x, y - 1), (1, x - 1, y - 1)):
            if min(u, v) >= 0:
                share = np.array([1 - u, 1 - v, 1 - min(u, v)]) / 64
                both = math.exp(-parts @ share)
                p += sign * both
                slope -= sign * both * share
        told += 64 * np.outer(slope, slope) / p
    assert unsized.information_of(parts, bits) == pytest.approx(told)
    half = unsized.Unsized(nothing, 0.0, 0.0, 1 / 64, 59, 32.0)
    assert unsized.information_of(parts, half) == pytest.approx((told + information_by_cells(*parts, 6)) / 2, rel=1e-3)


@pytest.mark.parametrize(("nx", "ny", "common"), [(60, 60, 30), (40, 300, 40), (60, 40, 0), (300, 20, 12)])
def test_a_curve_ends_where_nothing_is_likely_or_possible(nx: int, ny: int, common: int) -> None:
    m = 6
    x, y = draw_pair(nx, nx, ny, common, m)
    pair = joint.pair_of(nx, ny, count_greater(x.registers, y.registers), 2.0**-m, most_rho(m))
    for half_points in (6, 9):
        curve = joint.trace(pair, half_points)
        points, values = curve.points, curve.values
        assert (len(points), curve.largest) == (2 * half_points + 1, min(nx, ny))
        best = int(np.argmax(values))
        assert (values[best], points[best]) == (0, curve.best)
        assert curve.best == pytest.approx(joint.maximise(pair))
        assert (np.diff(values[: best + 1]) >= 0).all()
        assert (np.diff(values[best:]) <= 0).all()
        assert points[0] == 0 or -29 < values[0] < -13
        assert points[-1] == curve.largest or -29 < values[-1] < -13
        steps = np.diff(points)
        for side in (steps[:best], steps[best:]):
            assert np.ptp(side) < 1e-9 if len(side) else True
        # The stretch is what the variance asks for, changing evenly from the maximum to each end.
        height = joint.evaluate(curve.best, pair)[0]
        if 0 < curve.best < curve.largest:
            for i in (0, best // 2, len(points) - 1):
                end = points[0] if i < best else points[-1]
                share = (points[i] - curve.best) / (end - curve.best)
                stretch = (1 - share) * joint.sharpness(curve.best, pair) + share * joint.sharpness(end, pair)
                claimed = stretch * (joint.evaluate(points[i], pair)[0] - height)
                assert values[i] == pytest.approx(max(claimed, -745), rel=1e-6)


def polynomial(evidence: known.Evidence, reach: Float64s) -> Float64s:
    """Multiply out (1 + z)^l ((1 + z)^e - 1 + E) over all buckets: coefficients from z^0."""
    whole = np.ones(1)
    free = evidence.n - evidence.excluded
    for e, buckets, beyond in zip(evidence.equal.tolist(), evidence.buckets.tolist(), reach.tolist(), strict=True):
        factor = np.array([math.comb(e, d) for d in range(e + 1)], np.float64)
        factor[0] = beyond
        for _ in range(int(buckets)):
            whole = np.convolve(whole, factor)
            free -= e
    return np.convolve(whole, [math.comb(free, d) for d in range(free + 1)])


EVIDENCE = known.Evidence(
    14, 3, np.array([1, 2, 2]), np.array([1, 1, 3]), np.array([2.0, 1.0, 1.0]), np.array([3, 0, 1, 0])
)
REACH = np.array([0.3, 0.05, 0.6])


def test_coefficients_are_those_of_the_polynomial_multiplied_out() -> None:
    expected = polynomial(EVIDENCE, REACH)
    assert len(expected) == 12
    assert [known.expand(t, EVIDENCE, REACH) for t in range(12)] == pytest.approx(expected)
    for t in range(12):
        assert known.saddle(t, 0.5, EVIDENCE, REACH)[0] == pytest.approx(math.log(expected[t]), abs=0.12)
    assert known.saddle(0, 0.5, EVIDENCE, REACH) == pytest.approx((math.log(expected[0]), 0.0))
    assert known.saddle(11, 0.5, EVIDENCE, REACH) == (0.0, 1.0)


@pytest.mark.parametrize("p", [0.05, 0.4, 0.97])
def test_moments_and_the_chance_that_has_a_mean_are_those_of_the_polynomial(p: float) -> None:
    """Each coefficient of z^t is a chance in proportion to itself times odds^t."""
    weights = polynomial(EVIDENCE, REACH) * (p / (1 - p)) ** np.arange(12)
    weights /= weights.sum()
    mean = weights @ np.arange(12)
    variance = weights @ (np.arange(12) - mean) ** 2
    assert known._moments(p, EVIDENCE, REACH) == pytest.approx((mean, variance))
    for start in (0.5, 0.01, 0.999):
        assert known._solve(mean, start, EVIDENCE, REACH) == pytest.approx((p, variance), rel=1e-5)
    ell, found = known.saddle(mean, 0.5, EVIDENCE, REACH)
    assert found == pytest.approx(p, rel=1e-5)
    total = (polynomial(EVIDENCE, REACH) * (p / (1 - p)) ** np.arange(12)).sum()
    stirling = math.log(total) - mean * math.log(p / (1 - p)) - math.log(2 * math.pi * (variance + 1 / 6)) / 2
    assert ell == pytest.approx(stirling)


def test_known_hashes_are_classed_by_the_register_that_they_meet() -> None:
    """Cells 0, 0, 1, 3, 3, 3, 5: hashes above the register are excluded, those at it counted together."""
    cells, own = np.array([0, 0, 1, 3, 3, 3, 5]), np.array([2, 3, 1, 4, 1, 4, 2])
    met = np.array([3, 3, 0, 4, 4, 4, 2])
    found = known.evidence_of(cells, own, met, np.array([2, 1, 3, 1, 1]))
    assert (found.n, found.excluded) == (7, 1)
    assert found.levels.tolist() == [2, 3, 4]
    assert found.equal.tolist() == [1, 1, 2]
    assert found.buckets.tolist() == [1, 1, 1]
    assert found.others.tolist() == [2, 1, 2, 0, 0]
    twice = known.evidence_of(np.array([0, 4]), np.array([2, 2]), np.array([2, 2]), np.array([0, 0, 5]))
    assert (twice.levels.tolist(), twice.equal.tolist(), twice.buckets.tolist()) == ([2], [1], [2])
    assert twice.others.tolist() == [0, 0, 3]
    none = known.evidence_of(cells[:0], own[:0], met[:0], np.array([4]))
    assert (none.n, none.excluded, len(none.levels), none.others.tolist()) == (0, 0, 0, [4])


@pytest.mark.parametrize(("n", "size", "common"), [(12, 40, 5), (60, 90, 40), (60, 400, 0), (30, 30, 30)])
def test_the_curve_of_known_hashes_ends_where_nothing_is_likely_or_possible(n: int, size: int, common: int) -> None:
    m = 4
    x, y = draw_pair(n, n, size, common, m, k=n)
    assert x.hashes is not None
    counts = np.bincount(y.registers, minlength=66 - m)
    evidence = known.gather(x.hashes, y.registers, m, counts)
    assert counts.sum() == 2**m, "what was given is left as it was"
    curve = known.trace(float(size), evidence, 2.0**-m, most_rho(m))
    points, values = curve.points, curve.values
    possible = min(n - evidence.excluded, size)
    assert curve.largest == min(n, size)
    assert 0 <= points[0] <= points[-1] <= possible
    if possible <= 20:
        assert points.tolist() == list(range(possible + 1))
    else:
        assert len(points) == 19
        assert points[0] == 0 or values[0] < -10
        assert points[-1] == possible or values[-1] < -10
    reach = np.empty(len(evidence.levels))
    heights = np.array([known.evaluate(t, 0.5, float(size), evidence, reach, 2.0**-m, most_rho(m))[0] for t in points])
    assert values == pytest.approx(np.maximum(heights - heights.max(), -745), abs=1e-5)
    assert curve.best == points[int(np.argmax(heights))]


def side(column: Column) -> Side:
    counts = np.bincount(column.registers, minlength=66 - column.bucket_bits)
    return Side(column.registers, counts, float(column.size), held_of(column), column.hashes is not None)


def assert_same(found: Curve, expected: Curve) -> None:
    for part, wanted in zip(found, expected, strict=True):
        assert part == pytest.approx(wanted)
    assert max(found.values) == 0


@pytest.mark.parametrize("m", [0, 1, 3, 4])
def test_what_is_known_of_two_columns_chooses_the_likelihood(m: int) -> None:
    (x, y), unit, top = draw_pair(m, 9, 40, 5, m, 9), 2.0**-m, 65 - m
    y.registers[0] = top  # a value whose bits are all 0 behind
    one, other = side(x), side(y)
    assert x.hashes is not None
    evidence = known.gather(x.hashes, y.registers, m, other.counts)
    for curve in (trace(one, other), trace(other, one)):
        assert_same(curve, known.trace(40.0, evidence, unit, top))
    bare = [side(of._replace(hashes=None, bottom=None)) for of in (x, y)]
    pair = joint.pair_of(9, 40, count_greater(x.registers, y.registers), unit, top)
    assert_same(trace(*bare), joint.trace(pair))
    few = one._replace(is_complete=False)  # beside a column without any
    assert_same(trace(few, bare[1]), joint.trace(pair))
    assert_same(trace(bare[0], other), joint.trace(pair))


@pytest.mark.parametrize("common", [0, 14, 30])
def test_known_hashes_and_the_registers_behind_them_are_told_together(common: int) -> None:
    """Up to the smaller of both last known hashes all are known; what is not is divided at random."""
    m, nx, ny = 5, 60, 80
    x, y = draw_pair(common, nx, ny, common, m, 20)
    y.registers[-1] = 65 - m  # a value whose bits are all 0 behind
    assert x.bottom is not None
    assert y.bottom is not None
    first = int(min(x.bottom[-1], y.bottom[-1])) >> (64 - m)
    assert first > 1
    of_x, of_y = ({int(h) for h in of.bottom if int(h) >> (64 - m) < first} for of in (x, y) if of.bottom is not None)
    both = len(of_x & of_y)
    counts = count_greater(x.registers[first:], y.registers[first:])
    rest = joint.trace(joint.pair_of(nx - len(of_x), ny - len(of_y), counts, 1 / (2**m - first), 65 - m), 12)

    def choose(n: float, k: int) -> float:
        return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)

    values = [
        ell + choose(nx - t, len(of_x) - both) + choose(ny - t, len(of_y) - both) + choose(t, both)
        - t * math.log(1 - first / 2**m)
        for t, ell in zip(rest.points + both, rest.values, strict=True)
    ]  # fmt: skip
    best = int(np.argmax(values))
    heights = np.maximum(np.array(values) - values[best], -745)
    expected = Curve(rest.points + both, heights, rest.points[best] + both, min(nx, ny))
    assert_same(trace(side(x), side(y)), expected)
    median = posterior_median(expected, prior_of(60.0))
    low, high = cut(expected, DROP)
    found = estimate_overlap(side(x), side(y), DROP)
    assert found == pytest.approx((median, min(math.floor(low), median), max(min(math.ceil(high), 60), median)))
    whole = [side(of)._replace(is_complete=True) for of in (x, y)]
    assert estimate_overlap(*whole, DROP) == (count_common(whole[0].hashes, whole[1].hashes),) * 3


@pytest.mark.parametrize("is_known", [True, False])
def test_the_least_number_of_buckets_is_the_first_with_the_error(
    monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    def variance_of(nx: float, ny: float, m: int, are_sizes_known: bool) -> float:
        assert (nx, ny, are_sizes_known) == (7, 9, is_known)
        return 0.25**m

    monkeypatch.setattr(lookup, "_largest_variance", variance_of)
    for m in (0, 5, 18, 19):
        wanted = None if m > 18 else m
        assert lookup.needed_bucket_bits(7, 9, 1.97 * 0.5**m, are_sizes_known=is_known) == wanted
        assert lookup.needed_bucket_bits(7, 9, 0.675 * 0.5**m, 0.5, are_sizes_known=is_known) == wanted


def test_the_variance_is_that_of_the_coefficient_where_it_is_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = max(joint.information(t, 40.0, 30.0, 1 / 8, 62)[1] for t in np.linspace(0, 30, 21))
    assert lookup._largest_variance(40, 30, 3, True) == pytest.approx(largest / 1600)

    def variance_of(phi: float, size: float, b: float, pair: unsized.Unsized) -> tuple[float, float]:
        assert (size, phi * size + b) == (40, pytest.approx(30))
        assert (pair.nx, pair.ny, pair.unit, pair.top, pair.counts.shape) == (0, 0, 1 / 8, 62, (5, 66))
        return math.nan, phi * (0.75 - phi)

    monkeypatch.setattr(unsized, "variance_of", variance_of)
    assert lookup._largest_variance(40, 30, 3, False) == pytest.approx(0.375**2)


def test_an_error_asks_for_buckets_whatever_the_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = {0.3: 2, 0.1: 9}

    def needed_bucket_bits(nx: float, ny: float, error: float, *, are_sizes_known: bool) -> int | None:
        assert (nx, ny, are_sizes_known) == (1e8, 1e8, False)
        return needed.get(error)

    monkeypatch.setattr(lookup, "needed_bucket_bits", needed_bucket_bits)
    assert [lookup.bucket_bits_for(error) for error in needed] == [4, 9]
    for error in (0.0, -1.0, 1e-5):
        with pytest.raises(SketchError, match=rf"2\^18 buckets keeps coefficients within {error:g} at 95 %; name"):
            lookup.bucket_bits_for(error)


def test_the_share_of_registers_at_most_as_high_is_looked_up_with_its_interval() -> None:
    law = np.log([0.5, 0.75, 0.875, 1.0])
    phi, low, high = lookup.estimate_by_lookup(6, 8, 3.0, 4.0, law, 0.5)
    ends = [lookup.look_up(p, 3.0, 4.0, law) / 3 for p in clopper_pearson(6, 8, 0.5)]
    assert (phi, low, high) == (lookup.look_up(0.75, 3.0, 4.0, law) / 3, *ends)
    assert low < phi < high
    assert lookup.choose_bucket_bits(1, 0, 14) == 4


@pytest.mark.parametrize(("common", "m", "first"), [(200, 7, 140), (100, 9, 40)])
def test_points_are_placed_where_something_is_likely(common: int, m: int, first: int) -> None:
    x, y = draw_pair(200, 200, 400, common, m, k=200)
    assert x.hashes is not None
    evidence = known.gather(x.hashes, y.registers, m, np.bincount(y.registers, minlength=66 - m))
    curve = known.trace(400.0, evidence, 2.0**-m, 65 - m)
    assert curve.points[0] > first
    assert -20 < curve.values[0] < -14
    assert curve.values[-1] > -30

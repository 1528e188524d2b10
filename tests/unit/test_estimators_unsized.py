"""Columns whose sizes are only estimated: the likelihood of all three parts, and intervals that know it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from service.core.estimators import Column, estimate, unsized
from service.core.sketches.cardinality import histogram, maximum_likelihood
from service.core.sketches.hashing import most_rho
from tests.columns import draw_pair

M = 7


def forget_size(column: Column) -> Column:
    return column._replace(size=maximum_likelihood(histogram(column.registers, M)), is_size_exact=False)


def at_most(n: float, k: int) -> float:
    return 0.0 if k < 0 else 1.0 if k >= most_rho(M) else math.exp(-n * 2.0 ** -(M + k))


def direct(a: float, b: float, t: float, x: Column, y: Column) -> float:
    """Give the log-likelihood from Pr(Vx <= i, Vy <= j) = F_a(i) F_b(j) F_t(min(i, j)), bucket by bucket."""

    def both(i: int, j: int) -> float:
        return at_most(a, i) * at_most(b, j) * at_most(t, min(i, j))

    return sum(
        math.log(both(i, j) - both(i - 1, j) - both(i, j - 1) + both(i - 1, j - 1))
        for i, j in zip(x.registers.tolist(), y.registers.tolist(), strict=True)
    )


@pytest.mark.parametrize(("nx", "ny", "common"), [(300, 500, 100), (50, 40, 10), (900, 30, 20)])
def test_likelihood_and_derivatives_are_those_of_all_buckets(nx: int, ny: int, common: int) -> None:
    x, y = draw_pair(nx, nx, ny, common, M)
    pair = unsized.observe(x.registers, y.registers, 0, 0)
    here = np.array([nx - common, ny - common, common], np.float64)
    ell, gradient, hessian = unsized.evaluate(*here, pair)
    assert ell == pytest.approx(direct(*here, x, y), rel=1e-6)
    for i, step in enumerate(np.eye(3) * 0.1):
        after, before = (unsized.evaluate(*(here + sign * step), pair) for sign in (1, -1))
        assert gradient[i] == pytest.approx((after[0] - before[0]) / 0.2, rel=1e-3, abs=1e-5)
        assert hessian[i] == pytest.approx((after[1] - before[1]) / 0.2, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("known", [(0, 0), (1, 0), (0, 1)], ids=["neither", "X", "Y"])
@pytest.mark.parametrize("phi", [0.2, 0.5, 0.8])
def test_the_profile_is_the_highest_of_all_sizes(known: tuple[int, int], phi: float) -> None:
    nx, ny = 400, 700
    x, y = draw_pair(2, nx, ny, 200, M)
    pair = unsized.observe(x.registers, y.registers, nx * known[0], ny * known[1])
    found, slope, (size, b) = unsized.profile(phi, np.array([nx * 0.8, ny * 0.6]), pair)
    sizes = [nx] if known[0] else np.linspace(0.9, 1.1, 21) * size
    highest = max(
        unsized.evaluate((1 - phi) * n, other, phi * n, pair)[0]
        for n in sizes
        for other in ([ny - phi * n] if known[1] else np.linspace(0.9, 1.1, 21) * b)
    )
    assert found >= highest - 1e-6
    after, before = (unsized.profile(phi + step, np.array([size, b]), pair)[0] for step in (1e-4, -1e-4))
    assert slope == pytest.approx((after - before) / 2e-4, rel=1e-2, abs=0.1)


def test_the_information_is_the_mean_curvature() -> None:
    nx, ny, common = 3000, 2000, 1000
    parts = np.array([nx - common, ny - common, common], np.float64)
    curvatures = []
    for seed in range(200):
        x, y = draw_pair(seed, nx, ny, common, M)
        curvatures.append(-unsized.evaluate(*parts, unsized.observe(x.registers, y.registers, 0, 0))[2])
    pair = unsized.observe(x.registers, y.registers, 0, 0)
    assert unsized.information_of(parts, pair) == pytest.approx(np.mean(curvatures, axis=0), rel=0.03, abs=1e-6)


@pytest.mark.parametrize(
    ("nx", "ny", "common"), [(2000, 2000, 1000), (2000, 2000, 2000), (4000, 900, 900), (900, 4000, 0), (150, 150, 80)]
)
@pytest.mark.parametrize("is_y_known", [False, True])
@pytest.mark.parametrize("method", ["joint-mle", "bml-exact-load", "bottom-k"])
def test_intervals_hold_the_truth_as_often_as_they_say(
    nx: int, ny: int, common: int, is_y_known: bool, method: str
) -> None:
    missed = 0
    for seed in range(40):
        x, y = draw_pair(seed, nx, ny, common, M, k=100)
        found = estimate(forget_size(x), y if is_y_known else forget_size(y), method, 0.9)
        missed += not found.low - 1e-9 <= common / nx <= found.high + 1e-9
    assert missed <= 9, "4 are expected; 10 or more would come once in 150 times"


def test_known_hashes_against_a_column_of_unknown_size() -> None:
    x, y = draw_pair(6, 60, 300, 40, M, k=60)
    found = estimate(x, forget_size(y))
    assert found.low <= 40 / 60 <= found.high
    back = estimate(forget_size(y), x)
    assert back.low <= 40 / 300 <= back.high
    assert back.high / back.low > found.high / found.low, "it does not know what to divide by"


@pytest.mark.parametrize(
    ("known", "nx", "ny", "common", "m", "most"),
    [
        ((0, 0), 60, 80, 40, 4, 1.0),
        ((0, 0), 80, 60, 0, 4, 0.75),
        ((1, 0), 40, 90, 40, 4, 1.0),
        ((0, 1), 60, 50, 20, 4, 0.8),
        ((0, 1), 9, 3, 1, 4, 0.3),
        ((0, 0), 900, 800, 450, 8, 1.0),
    ],
)
def test_the_curve_of_a_coefficient_is_its_profile_stretched(
    known: tuple[int, int], nx: int, ny: int, common: int, m: int, most: float
) -> None:
    x, y = draw_pair(nx, nx, ny, common, m)
    pair = unsized.observe(x.registers, y.registers, nx * known[0], ny * known[1])
    curve = unsized.trace(float(nx), float(ny), pair, most)
    start = np.array([nx, ny / 2])
    heights = np.array([unsized.profile(phi, start, pair)[0] for phi in curve.points / nx])
    best = int(np.argmax(curve.values))
    assert (curve.best, curve.largest) == (curve.points[best], most * nx)
    assert max(unsized.profile(phi, start, pair)[0] for phi in np.linspace(0, most, 9)) <= heights[best] + 1e-6
    phi = curve.best / nx
    claimed, expected = unsized.variance_of(phi, *unsized.profile(phi, start, pair)[2], pair)
    stretch = claimed / expected
    if best in (0, len(heights) - 1) and stretch > 1:
        stretch *= math.log(stretch) / (stretch - 1)
    assert curve.values == pytest.approx(np.maximum(stretch * (heights - heights[best]), -745), rel=1e-4, abs=1e-4)
    for end, border, steps in ((0, 0.0, np.diff(curve.points[: best + 1])), (-1, most, np.diff(curve.points[best:]))):
        assert curve.points[end] == pytest.approx(border * nx) or 14 < -curve.values[end] < 14.2
        assert len(steps) in (0, 6)
        assert len(steps) == 0 or np.ptp(steps) < 1e-9 * nx
    assert m == 4 or 0 < curve.points[0] < curve.points[-1] < nx


@pytest.mark.parametrize("known", [(0, 0), (1, 0), (0, 1)])
def test_the_profile_is_found_from_wherever_the_search_begins(known: tuple[int, int]) -> None:
    x, y = draw_pair(2, 400, 700, 200, M)
    pair = unsized.observe(x.registers, y.registers, 400 * known[0], 700 * known[1])
    height, slope, sizes = unsized.profile(0.4, np.array([400.0, 500.0]), pair)
    for far in ([20.0, 9000.0], [9000.0, 20.0], [5.0, 5.0], [9000.0, 9000.0]):
        found = unsized.profile(0.4, np.array(far), pair)
        assert (found[0], found[1]) == (pytest.approx(height, abs=1e-6), pytest.approx(slope, abs=0.05))
        assert found[2] == pytest.approx(sizes, rel=1e-3)


@pytest.mark.parametrize(("nx", "ny", "phi"), [(400, 200, 0.5), (300, 250, 0.8)])
def test_where_y_is_in_x_the_slope_is_that_of_no_value_of_y_alone(nx: int, ny: int, phi: float) -> None:
    x, y = draw_pair(5, nx, ny, ny, M)
    pair = unsized.observe(x.registers, y.registers, 0, 0)
    start = np.array([float(nx), 1.0])
    _, slope, sizes = unsized.profile(phi, start, pair)
    assert sizes[1] == pytest.approx(unsized.LEAST)
    after, before = (unsized.profile(phi + step, sizes, pair)[0] for step in (1e-4, -1e-4))
    assert slope == pytest.approx((after - before) / 2e-4, rel=1e-2, abs=0.1)

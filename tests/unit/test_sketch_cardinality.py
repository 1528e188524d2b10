"""Estimates from a histogram of registers: against series, integrals, likelihoods, and simulated columns."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import chi2

from service.core.records import Int64s
from service.core.sketches.cardinality import (
    SMALL_ALPHAS,
    _Likelihood,
    flajolet,
    histogram,
    likelihood_bounds,
    likelihood_bounds_of_cells,
    linear_counting,
    maximum_likelihood,
)
from service.core.sketches.hll import Hll
from tests.sketches import random_hashes


def thrown(n: int, m: int, generator: np.random.Generator) -> Int64s:
    """Throw n values into buckets, each with its ρ."""
    registers = np.zeros(1 << m, np.uint8)
    np.maximum.at(registers, generator.integers(0, 1 << m, n), generator.geometric(0.5, n).astype(np.uint8))
    return histogram(registers, m)


def simulated(n: float, m: int, generator: np.random.Generator) -> Int64s:
    """Draw each register for itself by its law, Pr(V ≤ k) = (1 - 2^-(m + k))^n: for more values than can be thrown."""
    tops = np.append(np.exp(n * np.log1p(-(2.0 ** -(m + np.arange(1, 65 - m))))), 1.0)
    tops = np.insert(tops, 0, (1 - 2.0**-m) ** n)
    registers = np.searchsorted(tops, generator.random(1 << m)).astype(np.uint8)
    return histogram(registers, m)


def log_likelihood(counts: Int64s, n: float) -> float:
    """Give the likelihood of a histogram where a bucket gets Poisson(n / 2^m) values, level by level."""
    buckets, m = int(counts.sum()), 66 - len(counts)
    tops = [0.0] + [math.exp(-n / buckets / 2.0**k) for k in range(65 - m)] + [1.0]
    return sum(int(count) * math.log(tops[k + 1] - tops[k]) for k, count in enumerate(counts) if count)


@pytest.mark.parametrize("n", [1, 30, 300, 1000, 3000, 30_000, 10**6, 10**12])
def test_maximum_likelihood_is_unbiased_and_as_sharp_as_it_should_be(n: int) -> None:
    generator = np.random.default_rng(n)
    draw = thrown if n <= 3000 else simulated
    estimates = np.array([maximum_likelihood(draw(n, 10, generator)) for _ in range(400)]) / n
    error = 1.04 / math.sqrt(1 << 10)
    assert abs(estimates.mean() - 1) < 4 * error / math.sqrt(400)
    assert math.sqrt(((estimates - 1) ** 2).mean()) < 1.15 * error


def test_estimates_of_real_hashes() -> None:
    for size in (10, 5000, 400_000):
        sketch = Hll(12)
        sketch.update(random_hashes(size, seed=size))
        counts = histogram(sketch.registers, 12)
        estimates = [maximum_likelihood(counts), flajolet(counts), sketch.estimate()]
        assert all(abs(estimate / size - 1) < 0.05 for estimate in estimates)


@settings(max_examples=60)
@given(n=st.floats(0.5, 1e9), m=st.integers(2, 11), seed=st.integers(0, 1000))
def test_maximum_likelihood_is_the_highest_point_of_the_likelihood(n: float, m: int, seed: int) -> None:
    counts = simulated(n, m, np.random.default_rng(seed))
    best = maximum_likelihood(counts)
    if best == 0:
        assert counts[0] == 1 << m
        return
    top = log_likelihood(counts, best)
    for factor in (0.5, 0.9, 0.999, 1.001, 1.1, 2):
        assert log_likelihood(counts, best * factor) < top
    low, high = likelihood_bounds(counts, 0.95)
    for bound in (low, high):
        assert top - log_likelihood(counts, bound) == pytest.approx(3.841458820694124 / 2, rel=1e-6)


@pytest.mark.parametrize("m", [0, 1, 5, 18])
def test_registers_that_are_all_empty_or_all_full(m: int) -> None:
    empty, full = np.zeros(66 - m, np.int64), np.zeros(66 - m, np.int64)
    empty[0] = full[-1] = 1 << m
    for estimator in (maximum_likelihood, linear_counting, flajolet):
        assert estimator(empty) == 0
    assert maximum_likelihood(full) == linear_counting(full) == math.inf
    low, high = likelihood_bounds(empty, 0.95)
    assert low == 0
    # A ratio of likelihoods e^-n below e^-1.92 is refused.
    assert high == pytest.approx(3.841458820694124 / 2)
    low, high = likelihood_bounds(full, 0.95)
    assert 2**60 < low < high == math.inf
    assert full[-1] * math.log(-math.expm1(-low / 2.0**64)) == pytest.approx(-3.841458820694124 / 2, rel=1e-6)


@pytest.mark.parametrize("buckets", [size for size in SMALL_ALPHAS if size > 1])
def test_alpha_is_the_integral_of_flajolet(buckets: int) -> None:
    # 1 / alpha = m times the integral over u from 0 of (log2((2 + u) / (1 + u)))^m; u = x / (1 - x) makes it finite.
    x = (np.arange(2_000_000) + 0.5) / 2_000_000
    u = x / (1 - x)
    integral = (np.log2((2 + u) / (1 + u)) ** buckets / (1 - x) ** 2).mean()
    assert SMALL_ALPHAS[buckets] == pytest.approx(1 / (buckets * integral), abs=6e-4)


def test_the_published_estimator_counts_linearly_by_ln_where_it_is_small() -> None:
    counts = np.zeros(66 - 4, np.int64)
    counts[[0, 1]] = 12, 4
    assert flajolet(counts) == linear_counting(counts) == 16 * math.log(16 / 12)
    counts[[0, 1, 9]] = 0, 0, 16
    assert flajolet(counts) == pytest.approx(0.673 * 256 / (16 / 2**9))


@pytest.mark.parametrize(("ones", "zeros"), [(30, 70), (3, 500), (900, 60)])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_bounds_beside_cells_of_one_bit_leave_out_what_the_number_itself_varies(
    ones: int, zeros: int, level: float
) -> None:
    counts = np.zeros(62, np.int64)
    counts[[0, 1, 2, 5]] = 9, 4, 2, 1
    cells = 16 + ones + zeros

    def log_of(n: float) -> float:
        registers = log_likelihood(counts, 16 * n / cells)
        return registers + ones * math.log(-math.expm1(-n / cells)) - zeros * n / cells

    best = maximum_likelihood(counts, ones, zeros)
    step = best / 1000
    curvature = (log_of(best + step) + log_of(best - step) - 2 * log_of(best)) / step**2
    drop = likelihood_bounds_drop(level) * (1 + best * curvature)
    low = brentq(lambda n: log_of(n) - log_of(best) + drop, best / 100, best)
    high = brentq(lambda n: log_of(n) - log_of(best) + drop, best, 100 * best)
    assert likelihood_bounds_of_cells(counts, ones, zeros, level) == (math.floor(low), math.ceil(high))


def likelihood_bounds_drop(level: float) -> float:
    return float(chi2.ppf(level, 1)) / 2


def test_cells_that_are_all_zero_or_all_one() -> None:
    counts = np.zeros(62, np.int64)
    counts[0] = 16
    assert maximum_likelihood(counts, 8, 0) == pytest.approx(24 * math.log(24 / 16))
    assert maximum_likelihood(counts, 0, 8) == 0
    once = counts.copy()
    once[[0, 1]] = 12, 4
    assert maximum_likelihood(once, 4, 9) > 4
    assert likelihood_bounds_of_cells(counts, 0, 8, 0.95) == pytest.approx((0, likelihood_bounds_drop(0.95)))
    counts[0], counts[-1] = 0, 16
    low, high = likelihood_bounds_of_cells(counts, 8, 0, 0.95)
    assert 2**50 < low < high == math.inf


def test_near_0_the_slope_is_that_of_its_series() -> None:
    counts = np.zeros(62, np.int64)
    counts[[0, 1, 3]] = 10, 4, 2
    likelihood = _Likelihood(counts, 3, 5)
    for rate in (5e-5, 3e-4):
        series = [-1 / 2 + y / 6 - y**3 / 180 for y in (rate / 2, rate / 8, rate)]
        expected = 4 / 2 * series[0] + 2 / 8 * series[1] + 3 * series[2] - (10 + 4 / 2 + 2 / 8 + 5)
        assert likelihood.score(rate)[1] == pytest.approx(expected, rel=1e-9)
    assert histogram(np.zeros(16, np.uint8), 4).dtype == np.int64

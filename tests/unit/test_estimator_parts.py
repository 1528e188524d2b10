"""Parts of the estimators, held against SciPy's distributions, sums that are written out, and counting one by one."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from service.core.estimators.bottom_k import Sample, bottom_of, estimate_from, sample_union
from service.core.estimators.lookup import average_load, choose_bucket_bits, exact_load, look_up, probability
from service.core.estimators.model import Column, held_of
from service.core.estimators.registers import LEVELS, align, chance_at, count_greater
from service.core.estimators.tails import (
    binomial_tail,
    clopper_pearson,
    hypergeometric_interval,
    hypergeometric_tail,
    likelihood_drop,
    log_choose,
)

HASHES = np.arange(10, 400, 10, dtype=np.uint64)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_a_likelihood_may_fall_by_half_the_quantile_of_chi_squared(level: float) -> None:
    assert likelihood_drop(level) == pytest.approx(stats.chi2.ppf(level, 1) / 2)


def test_binomial_tails_are_those_of_scipy() -> None:
    for n, p in product((1, 2, 7, 40), (0.0, 1e-9, 0.2, 0.5, 0.93, 1.0)):
        for k in range(-1, n + 1):
            assert binomial_tail(n, k, p) == pytest.approx(stats.binom.sf(k - 1, n, p), abs=1e-12), (n, k, p)


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_intervals_of_a_chance_are_those_of_the_beta_distribution(level: float) -> None:
    for n, k in ((1, 0), (1, 1), (9, 0), (9, 4), (9, 9), (60, 59)):
        low = stats.beta.ppf((1 - level) / 2, k, n - k + 1) if k else 0
        high = stats.beta.ppf((1 + level) / 2, k + 1, n - k) if k < n else 1
        assert clopper_pearson(k, n, level) == pytest.approx((low, high), abs=1e-9)


def test_hypergeometric_tails_are_those_of_scipy() -> None:
    for total, marked, drawn in product((1, 8, 13), (0, 1, 5, 8), (0, 1, 4, 8)):
        if max(marked, drawn) <= total:
            for k in range(-1, drawn + 2):
                expected = stats.hypergeom.sf(k - 1, total, marked, drawn)
                assert hypergeometric_tail(total, marked, drawn, k) == pytest.approx(expected, abs=1e-12)
    assert log_choose(13, 5) == pytest.approx(math.log(math.comb(13, 5)))


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_the_interval_of_marked_ones_holds_those_that_neither_tail_rules_out(level: float) -> None:
    tail = (1 - level) / 2
    for total, drawn in ((9, 3), (12, 6), (7, 7), (5, 0)):
        for k in range(drawn + 1):
            likely = [
                marked
                for marked in range(k, total - drawn + k + 1)
                if stats.hypergeom.sf(k - 1, total, marked, drawn) > tail + 1e-12
                and stats.hypergeom.cdf(k, total, marked, drawn) > tail + 1e-12
            ]
            assert hypergeometric_interval(k, drawn, total, level) == (likely[0], likely[-1])


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_greater_registers_are_counted_apart(size: int) -> None:
    x, y = np.random.default_rng(size).integers(0, 5, (2, size)).astype(np.uint8)
    x[-1], y[0] = LEVELS - 1, 3
    expected = np.zeros((3, LEVELS), np.int64)
    for u, v in zip(x.tolist(), y.tolist(), strict=True):
        expected[1 if u > v else 2 if v > u else 0, max(u, v)] += 1
    found = count_greater(x, y)
    assert found.tolist() == expected.tolist()
    assert found.dtype == np.int64
    same = count_greater(np.full(size - 1, 2, np.uint8), np.full(size - 1, 2, np.uint8))
    assert (int(same[0, 2]), int(same.sum())) == (size - 1, size - 1)


def test_the_chance_of_a_register_halves_up_to_the_last_two_which_are_alike() -> None:
    assert [chance_at(k, 4) for k in range(6)] == [1, 0.5, 0.25, 0.125, 0.125, 1]


def test_registers_are_compared_by_as_many_buckets_as_both_have() -> None:
    x, y = Column(np.arange(8, dtype=np.uint8), 9), Column(np.array([3, 0], np.uint8), 5)
    assert (x.bucket_bits, y.bucket_bits) == (3, 1)
    # Of the two bits that a bucket's number loses the leftmost 1 gives ρ, 2 for 01; for 100 it is 2 more than its 4.
    for found in (align(x, y), align(y, x)[::-1]):
        assert [of.tolist() for of in found] == [[2, 6], [3, 0]]


@pytest.mark.parametrize("m", [0, 1, 4])
def test_the_law_of_a_register_is_that_of_one_hash_in_this_bucket(m: int) -> None:
    """A bucket is met with the chance 2^-m, and ρ is above k with 2^-k; at 65 - m all bits behind are 0."""
    with np.errstate(divide="ignore"):
        expected = [math.log(1 - 2.0 ** -(m + k)) if m + k else -math.inf for k in range(65 - m)] + [0.0]
    assert exact_load(m) == pytest.approx(expected)
    average = average_load(m)
    assert average[0] == -math.inf
    assert average[1:] == pytest.approx([math.log(1 - 2.0**-k) * 2.0**-m if k < 53 else 0 for k in range(1, 65 - m)])


@pytest.mark.parametrize(("t", "nx", "ny"), [(0, 3, 4), (2, 3, 4), (3, 3, 4), (4, 9, 4), (0, 2, 0), (1, 3, 1)])
def test_how_often_one_register_is_at_most_the_other_is_summed_over_both(t: int, nx: int, ny: int) -> None:
    """Of n values a register is at most k with F(k)^n: own ones of X against those of Y, in which the common are."""
    law = np.log([0.5, 0.75, 0.875, 1.0])
    f = [0.5, 0.75, 0.875, 1.0]
    at = [f[k] ** ny - (f[k - 1] ** ny if k else 0) for k in range(4)]
    expected = sum(at[k] * f[k] ** (nx - t) for k in range(4))
    assert probability(t, nx, ny, law) == pytest.approx(expected)
    if ny:
        assert look_up(expected, nx, ny, law) == pytest.approx(t, abs=1e-3)
    assert look_up(0.0, nx, ny, law) == 0
    assert look_up(1.0, nx, ny, law) == min(nx, ny)


@pytest.mark.parametrize(
    ("sizes", "most", "m"), [((0, 0), 14, 4), ((2**10, 3), 14, 5), ((3, 2**20), 14, 10), ((2**20, 1), 8, 8)]
)
def test_the_paper_takes_the_square_root_of_the_larger_size_in_buckets(
    sizes: tuple[int, int], most: int, m: int
) -> None:
    assert choose_bucket_bits(*sizes, most) == m


def test_what_is_held_of_a_column_is_all_or_the_smallest_hashes_or_none() -> None:
    registers = np.zeros(2, np.uint8)
    whole, some, bare = (
        Column(registers, 39, True, HASHES, HASHES[:3]),
        Column(registers, 39, True, None, HASHES[:5]),
        Column(registers, 39),
    )
    assert [len(held_of(of)) for of in (whole, some, bare)] == [39, 5, 0]
    assert held_of(bare).dtype == np.uint64
    assert bottom_of(bare) is None
    assert [(len(of[0]), of[1]) for of in map(bottom_of, (whole, some)) if of] == [(39, True), (5, False)]


def test_a_sample_of_the_smallest_hashes_is_scaled_and_never_says_more_than_is_possible() -> None:
    x, y = Column(np.zeros(2, np.uint8), 100), Column(np.zeros(2, np.uint8), 30)
    assert estimate_from(Sample(4, 4, 1, True), x, y, 0.95) == (0.25, 0.25, 0.25)
    low, high = hypergeometric_interval(2, 10, 100, 0.95)
    assert estimate_from(Sample(10, 6, 2, False), x, y, 0.95) == (0.2, low / 100, min(high, 30) / 100)
    phi, _, most = estimate_from(Sample(10, 10, 9, False), x, y, 0.95)
    assert (phi, most) == (0.3, 0.3)
    about = y._replace(is_size_exact=False)
    assert estimate_from(Sample(10, 10, 9, False), x, about, 0.95)[2] > 0.9
    estimated = x._replace(is_size_exact=False)
    assert estimate_from(Sample(10, 6, 2, False), estimated, y, 0.95) == (0.2, *clopper_pearson(2, 10, 0.95))
    assert estimate_from(Sample(0, 6, 0, False), estimated, y, 0.95) == (0, 0, 1)
    assert estimate_from(Sample(0, 6, 0, False), x, y, 0.95) == (0, 0, 0.3)


def test_a_sample_is_of_both_columns_or_none() -> None:
    """X has 10 to 90, Y 50 to 150: of columns that are known in part the shorter says how many are looked at."""
    registers = np.zeros(2, np.uint8)
    of_x, of_y = np.arange(10, 100, 10, dtype=np.uint64), np.arange(50, 160, 10, dtype=np.uint64)
    x, y = (Column(registers, len(of), True, of) for of in (of_x, of_y))
    some_x, some_y = (Column(registers, len(of), True, None, of[:6]) for of in (of_x, of_y))
    assert sample_union(x, y) == Sample(9, 11, 5, True)
    assert sample_union(some_x, y) == Sample(6, 2, 2, False)
    assert sample_union(x, some_y) == Sample(6, 2, 2, False)
    assert sample_union(some_x, some_y._replace(bottom=of_y[:2])) == Sample(2, 0, 0, False)
    bare = Column(registers, 9)
    assert sample_union(x, bare) is sample_union(bare, some_y) is sample_union(bare, bare) is None

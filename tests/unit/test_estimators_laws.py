"""The laws of registers against ones that were made otherwise: enumeration, simulation, the paper's own figures."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.estimators import joint, known
from service.core.estimators.lookup import (
    average_load,
    choose_bucket_bits,
    exact_load,
    look_up,
    needed_bucket_bits,
    probability,
)
from service.core.estimators.registers import LEVELS, SAME, X_ABOVE, Y_ABOVE, count_greater
from service.core.estimators.tails import (
    binomial_tail,
    clopper_pearson,
    hypergeometric_interval,
    hypergeometric_tail,
    likelihood_drop,
)
from service.core.sketches.cardinality import histogram
from service.core.sketches.hashing import UInt8s, most_rho
from tests.columns import column_of, draw_pair

SIZES = st.integers(1, 10**7)


def test_the_probabilities_of_figure_2() -> None:
    law = average_load(0)
    assert probability(0, 10**4, 10**4, law) == pytest.approx(0.58, abs=0.01)
    assert probability(6200, 10**4, 10**4, law) == pytest.approx(0.8, abs=0.02)  # read off a figure
    assert probability(10**4, 10**4, 10**4, law) == pytest.approx(1)


@pytest.mark.parametrize(
    ("nx", "least", "most"),
    [(10000, 0.241, 0.719), (9000, 0.235, 0.646), (7000, 0.219, 0.503), (5000, 0.192, 0.359), (3000, 0.145, 0.216)],
)
def test_the_slopes_of_table_2(nx: int, least: float, most: float) -> None:
    phi = np.linspace(0, 1, 401)
    slopes = np.diff([probability(p * nx, nx, 10**4, average_load(0)) for p in phi]) / np.diff(phi)
    assert slopes.min() == pytest.approx(least, abs=0.004)
    assert slopes.max() == pytest.approx(most, abs=0.008)


@given(nx=SIZES, ny=SIZES, m=st.integers(0, 18), shares=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_theorem_2_the_probability_grows_with_the_overlap(
    nx: int, ny: int, m: int, shares: tuple[float, float]
) -> None:
    low, high = (share * min(nx, ny) for share in sorted(shares))
    for law in (average_load(m), exact_load(m)):
        assert probability(low, nx, ny, law) <= probability(high, nx, ny, law) + 1e-12


@given(nx=SIZES, ny=SIZES, m=st.integers(0, 12), share=st.floats(0, 1))
def test_the_lookup_finds_the_overlap_that_has_the_probability(nx: int, ny: int, m: int, share: float) -> None:
    law = exact_load(m)
    observed = probability(share * min(nx, ny), nx, ny, law)
    assert probability(look_up(observed, nx, ny, law), nx, ny, law) == pytest.approx(observed, abs=1.1e-5)


def test_the_lookup_stays_within_what_is_possible() -> None:
    law = exact_load(10)
    assert look_up(0.0, 1000, 500, law) == 0
    assert look_up(1.0, 1000, 500, law) == 500


def test_the_exact_load_is_that_of_all_placings_of_three_values() -> None:
    """Of hashes that end after 6 bits: one bucket bit, 5 bits of ρ; the deepest level has what is beyond."""
    m, n, deep = 1, 3, 5
    below = [0] * (deep + 1)
    for hashes in itertools.product(range(1 << (m + deep)), repeat=n):
        rhos = [deep + 1 - (h % (1 << deep)).bit_length() for h in hashes if h >> deep == 0]
        for k in range(max(rhos, default=0), deep + 1):
            below[k] += 1
    for k in range(deep):
        assert math.exp(n * exact_load(m)[k]) == pytest.approx(below[k] / (1 << n * (m + deep)))


def test_equation_12_with_its_lower_bound() -> None:
    assert choose_bucket_bits(10**4, 10, 13) == 7
    assert choose_bucket_bits(10, 2**26, 18) == 13
    assert choose_bucket_bits(10, 2**26, 10) == 10
    assert choose_bucket_bits(1, 1, 13) == 4


def test_the_needed_buckets_bring_the_error_that_was_asked_for() -> None:
    nx, ny, common, error = 3000, 9000, 1200, 0.05
    m = needed_bucket_bits(nx, ny, error)
    assert m is not None
    assert needed_bucket_bits(nx, ny, error / 4) > m
    assert needed_bucket_bits(10, 10**9, error) is None
    missed = 0
    for seed in range(100):
        x, y = draw_pair(seed, nx, ny, common, m)
        found = joint.maximise(joint.pair_of(nx, ny, count_greater(x.registers, y.registers), 2.0**-m, most_rho(m)))
        missed += abs(found - common) / nx > error
    assert missed <= 12, "1 in 20 is expected at most"


def below(n: float, k: int, m: int) -> float:
    """Give Pr(V <= k) of a Poisson number of values, written as the definition has it."""
    if k < 0:
        return 0.0
    return 1.0 if k >= most_rho(m) else math.exp(-n * 2.0 ** -(m + k))


def joint_probability(i: int, j: int, a: float, b: float, t: float, m: int) -> float:
    """Give Pr(Vx = i, Vy = j) from the joint distribution Pr(Vx <= i, Vy <= j) = F_a(i) F_b(j) F_t(min(i, j))."""

    def both(i: int, j: int) -> float:
        return below(a, i, m) * below(b, j, m) * below(t, min(i, j), m)

    return both(i, j) - both(i - 1, j) - both(i, j - 1) + both(i - 1, j - 1)


def rows(draws: int, levels: int) -> st.SearchStrategy[tuple[UInt8s, UInt8s]]:
    row = st.lists(st.integers(0, levels), min_size=draws, max_size=draws).map(lambda v: np.array(v, np.uint8))
    return st.tuples(row, row)


@given(rows=rows(37, 61), m=st.just(4))
def test_buckets_are_counted_by_the_greater_register(rows: tuple[UInt8s, UInt8s], m: int) -> None:
    x, y = rows
    counts = count_greater(x, y)
    for row, chosen in ((SAME, x == y), (X_ABOVE, x > y), (Y_ABOVE, y > x)):
        assert counts[row].tolist() == np.bincount(np.maximum(x, y)[chosen], minlength=LEVELS).tolist()


@given(rows=rows(16, 5), t=st.integers(1, 9), extra=st.tuples(st.integers(1, 30), st.integers(1, 30)))
def test_the_likelihood_of_three_histograms_is_the_product_over_all_buckets(
    rows: tuple[UInt8s, UInt8s], t: int, extra: tuple[int, int]
) -> None:
    m = 4
    x, y = rows
    nx, ny = 10 + extra[0], 10 + extra[1]

    def direct(t: float) -> float:
        return sum(math.log(joint_probability(int(i), int(j), nx - t, ny - t, t, m)) for i, j in zip(x, y, strict=True))

    counts = count_greater(x, y)
    pair = joint.pair_of(nx, ny, counts, 2.0**-m, most_rho(m))
    found, start = joint.evaluate(t, pair)[0], joint.evaluate(0.5, pair)[0]
    assert found - start == pytest.approx(direct(t) - direct(0.5), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("nx", "ny", "common", "m"), [(500, 500, 200, 6), (90, 40_000, 50, 8), (9000, 700, 600, 4)])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.9])
def test_the_derivatives_are_those_of_the_likelihood(nx: int, ny: int, common: int, m: int, share: float) -> None:
    x, y = draw_pair(nx, nx, ny, common, m)
    counts = count_greater(x.registers, y.registers)
    pair = joint.pair_of(nx, ny, counts, 2.0**-m, most_rho(m))
    t, step = share * min(nx, ny), 1e-3 * min(nx, ny)
    before, here, after = (joint.evaluate(at, pair) for at in (t - step, t, t + step))
    assert here[1] == pytest.approx((after[0] - before[0]) / (2 * step), rel=1e-3)
    assert here[2] == pytest.approx((after[1] - before[1]) / (2 * step), rel=1e-3)


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.tuples(st.integers(5, 4000), st.integers(5, 4000)),
    share=st.floats(0, 1),
    m=st.integers(2, 9),
)
def test_the_maximum_is_the_highest_of_a_fine_grid(seed: int, sizes: tuple[int, int], share: float, m: int) -> None:
    x, y = draw_pair(seed, *sizes, round(share * min(sizes)), m)
    counts = count_greater(x.registers, y.registers)
    pair = joint.pair_of(*sizes, counts, 2.0**-m, most_rho(m))
    best = joint.maximise(pair)
    height = joint.evaluate(best, pair)[0]
    grid = np.linspace(0, min(sizes), 300)
    assert height >= max(joint.evaluate(t, pair)[0] for t in grid) - 1e-6


@pytest.mark.parametrize(("nx", "ny", "common"), [(300, 300, 150), (3000, 2000, 400), (4000, 40_000, 2000)])
def test_estimates_have_the_spread_that_is_expected(nx: int, ny: int, common: int) -> None:
    m = 9
    estimates = []
    for seed in range(400):
        x, y = draw_pair(seed, nx, ny, common, m)
        pair = joint.pair_of(nx, ny, count_greater(x.registers, y.registers), 2.0**-m, most_rho(m))
        estimates.append(joint.maximise(pair))
    _, variance = joint.information(common, nx, ny, 2.0**-m, most_rho(m))
    assert np.mean(estimates) == pytest.approx(common, abs=4 * math.sqrt(variance / 400))
    assert np.std(estimates) == pytest.approx(math.sqrt(variance), rel=0.12)  # 400 draws know it to 3.5 %


def exact_known(hashes: list[tuple[int, int]], registers: UInt8s, size: int, t: int, m: int) -> float:
    """Give the probability of registers when t of the hashes (bucket, ρ) are among the other column's, any t alike."""
    total = 0.0
    for subset in itertools.combinations(hashes, t):
        product = 1.0
        for j, v in enumerate(registers.tolist()):
            least = max((rho for bucket, rho in subset if bucket == j), default=0)
            at_most = below(size - t, v, m) if v >= least else 0.0
            under = below(size - t, v - 1, m) if v - 1 >= least else 0.0
            product *= at_most - under
        total += product
    return total / math.comb(len(hashes), t)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 9), size=st.integers(9, 60), data=st.data())
def test_the_likelihood_of_known_hashes_is_that_of_all_subsets(
    seed: int, n: int, size: int, data: st.DataObject
) -> None:
    m = 2
    common = data.draw(st.integers(0, n))
    x, y = draw_pair(seed, n, size, common, m, k=n)
    assert x.hashes is not None
    evidence = known.gather(x.hashes, y.registers, m, histogram(y.registers, m))
    placed = [(int(h) >> 62, 63 - (int(h) & (2**62 - 1)).bit_length()) for h in x.hashes]
    possible = n - evidence.excluded
    exact = [exact_known(placed, y.registers, size, t, m) for t in range(n + 1)]
    assert all(probability == 0 for probability in exact[possible + 1 :])
    reach = np.empty(len(evidence.levels))
    found = [
        known.evaluate(t, 0.5, size, evidence, reach, 2.0**-m, most_rho(m))[0]
        for t in range(min(possible, size - 1) + 1)
    ]
    for t, ell in enumerate(found):
        assert ell - found[0] == pytest.approx(math.log(exact[t] / exact[0]))


@pytest.mark.parametrize(("n", "size", "common", "m"), [(30, 60, 20, 4), (60, 900, 30, 6), (200, 300, 40, 4)])
def test_the_saddle_point_is_near_the_coefficient_multiplied_out(n: int, size: int, common: int, m: int) -> None:
    x, y = draw_pair(n, n, size, common, m, k=n)
    assert x.hashes is not None
    evidence = known.gather(x.hashes, y.registers, m, histogram(y.registers, m))
    reach = np.linspace(0.01, 0.6, len(evidence.levels))
    for t in range(n - evidence.excluded + 1):
        assert known.saddle(t, 0.5, evidence, reach)[0] == pytest.approx(
            math.log(known.expand(t, evidence, reach)), abs=0.1
        )


def test_tails_are_those_of_exact_fractions() -> None:
    for n, k, p in itertools.product((1, 5, 20), (0, 1, 3, 20), (Fraction(1, 7), Fraction(1, 2), Fraction(9, 10))):
        exact = sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))
        assert binomial_tail(n, k, float(p)) == pytest.approx(float(exact))
    for total, marked, drawn, k in itertools.product((12, 30), (0, 5, 12), (1, 6, 12), (0, 1, 4, 7)):
        ways = sum(math.comb(marked, i) * math.comb(total - marked, drawn - i) for i in range(k, drawn + 1))
        assert hypergeometric_tail(total, marked, drawn, k) == pytest.approx(ways / math.comb(total, drawn), abs=1e-12)


def test_exact_intervals_have_the_tails_that_they_promise() -> None:
    low, high = clopper_pearson(3, 20, 0.95)
    assert binomial_tail(20, 3, low) == pytest.approx(0.025)
    assert 1 - binomial_tail(20, 4, high) == pytest.approx(0.025)
    assert clopper_pearson(0, 20, 0.95) == (0, pytest.approx(1 - 0.025 ** (1 / 20)))
    assert clopper_pearson(20, 20, 0.95)[1] == 1
    assert likelihood_drop(0.95) == pytest.approx(1.9207, abs=1e-4)


@given(total=st.integers(1, 60), data=st.data())
def test_a_hypergeometric_interval_is_that_of_a_search_through_all(total: int, data: st.DataObject) -> None:
    drawn = data.draw(st.integers(0, total))
    k = data.draw(st.integers(0, drawn))
    not_ruled_out = [
        marked
        for marked in range(k, total - (drawn - k) + 1)
        if hypergeometric_tail(total, marked, drawn, k) > 0.025
        and 1 - hypergeometric_tail(total, marked, drawn, k + 1) > 0.025
    ]
    assert hypergeometric_interval(k, drawn, total, 0.95) == (not_ruled_out[0], not_ruled_out[-1])


def test_registers_of_a_column_are_what_the_sketch_has() -> None:
    hashes = np.array([0, 1, 2**63, 2**64 - 1], np.uint64)
    assert column_of(hashes, 1).registers.tolist() == [64, 64]

"""Hash prefixes: their likelihood held against all cells one by one, their estimates against pairs that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from service.core.estimators import Column, estimate, known, unsized
from service.core.estimators.best import prior_of
from service.core.estimators.curve import cut as cut_curve
from service.core.estimators.curve import posterior_median, probability_beforehand
from service.core.estimators.model import Prefixes
from service.core.estimators.prefixes import (
    _median_of_matches,
    gather,
    observe,
    prefixes_of,
    size_bounds,
    tell_apart,
)
from service.core.estimators.tails import likelihood_drop
from service.core.records import UInt64s
from service.core.sketches.cardinality import likelihood_bounds_of_cells
from service.core.sketches.hashing import HASH_BITS
from service.core.sketches.hll import Hll
from service.core.sketches.prefixes import HashPrefixes, count_cells, cut
from tests.columns import draw_pair
from tests.sketches import bucket_and_rho, random_hashes

M, BUDGET = 7, 96


def column_of(hashes: UInt64s, m: int = M, budget: int = BUDGET) -> Column:
    sketch = HashPrefixes(m, budget)
    sketch.update(hashes)
    held, all_hashes = Prefixes(sketch.entries, sketch.bits), sketch.entries if sketch.is_complete else None
    return Column(sketch.registers(), sketch.estimate(), sketch.is_size_exact, all_hashes, prefixes=held)


def draw(seed: int, nx: int, ny: int, common: int, m: int = M, budget: int = BUDGET) -> tuple[Column, Column]:
    hashes = random_hashes(nx + ny - common, seed)
    return column_of(hashes[:nx], m, budget), column_of(hashes[nx - common :], m, budget)


def observed(x: Column, y: Column, bits: int) -> unsized.Unsized:
    entries = [cut(one.prefixes.entries, M, bits) for one in (x, y) if one.prefixes and one.prefixes.bits >= bits]
    return observe(*entries, M, bits, x, y)


def observed_registers(x: Column, y: Column) -> unsized.Unsized:
    return unsized.observe(x.registers, y.registers, x.size * x.is_size_exact, y.size * y.is_size_exact)


def cells_of(hashes: UInt64s, bits: int) -> list[int]:
    """Give what each cell holds: the highest ρ where the bits from M on are zero, else 1 when it is met."""
    cells = [0] * 2**bits
    for value in hashes.tolist():
        cell, rho = bucket_and_rho(value, bits)
        cells[cell] = max(cells[cell], 1 if cell % 2 ** (bits - M) else rho)
    return cells


@pytest.mark.parametrize(
    ("nx", "ny", "common", "bits"), [(200, 180, 100, 9), (150, 160, 0, 9), (90, 80, 50, 11), (300, 250, 200, 7)]
)
def test_the_likelihood_is_that_of_all_cells(nx: int, ny: int, common: int, bits: int) -> None:
    hashes = random_hashes(nx + ny - common, seed=nx)
    x, y = column_of(hashes[:nx]), column_of(hashes[nx - common :])
    pair = observed(x, y, bits)
    a, b, t = np.array([nx - common, ny - common, common + 1], np.float64)

    def at_most(n: float, level: int, deepest: int) -> float:
        return 0.0 if level < 0 else 1.0 if level >= deepest else math.exp(-n * 2.0 ** -(bits + level))

    def both(i: int, j: int, deepest: int) -> float:
        return at_most(a, i, deepest) * at_most(b, j, deepest) * at_most(t, min(i, j), deepest)

    ell = 0.0
    rows = cells_of(hashes[:nx], bits), cells_of(hashes[nx - common :], bits)
    for cell, (i, j) in enumerate(zip(*rows, strict=True)):
        top = 1 if cell % 2 ** (bits - M) else HASH_BITS + 1 - bits
        ell += math.log(both(i, j, top) - both(i - 1, j, top) - both(i, j - 1, top) + both(i - 1, j - 1, top))
    here = unsized.evaluate(a, b, t, pair)
    assert here[0] == pytest.approx(ell, rel=1e-6)
    for i, step in enumerate(np.eye(3) * 0.1):
        after, before = (unsized.evaluate(*(np.array([a, b, t]) + sign * step), pair)[0] for sign in (1, -1))
        assert here[1][i] == pytest.approx((after - before) / 0.2, rel=1e-3, abs=1e-4)


def test_the_information_is_the_mean_curvature() -> None:
    nx, ny, common, bits = 150, 180, 70, 8
    parts = np.array([nx - common, ny - common, common], np.float64)
    pairs = [observed(*draw(seed, nx, ny, common), bits) for seed in range(200)]
    mean = np.mean([-unsized.evaluate(*parts, pair)[2] for pair in pairs], axis=0)
    assert unsized.information_of(parts, pairs[0]) == pytest.approx(mean, rel=0.03, abs=2e-6)


@pytest.mark.parametrize(
    ("nx", "ny", "common"),
    [
        (60, 70, 30), (200, 220, 100), (200, 220, 200), (220, 200, 0), (900, 700, 400), (20, 700, 10), (700, 20, 20),
        (5000, 5000, 2500),
    ],
)  # fmt: skip
def test_intervals_hold_the_truth_as_often_as_they_say(nx: int, ny: int, common: int) -> None:
    missed = 0
    for seed in range(40):
        found = estimate(*draw(seed, nx, ny, common), level=0.9)
        assert found.phi is not None
        assert found.low <= found.phi <= found.high
        missed += not found.low - 1e-9 <= common / nx <= found.high + 1e-9
    assert missed <= 9, "4 are expected; 10 or more would come once in 150 times"


@pytest.mark.parametrize("apart", [0, 1, 2])
def test_the_likelihood_rises_to_one_maximum_where_hardly_a_value_of_y_is_not_in_x(apart: int) -> None:
    """|Y| is known and |X| is not: once the search stuck where no value is left to Y alone, and Φ had no maximum."""
    nx, ny = 7198, 994
    for seed in range(5):
        x, y = draw(seed, nx, ny, ny - apart, 14, 12_288)
        assert (x.is_size_exact, y.hashes is not None) == (False, True)
        curve = unsized.trace(x.size, y.size, observed_registers(x, y))
        best = int(np.argmax(curve.values))
        assert curve.values[best] == pytest.approx(0, abs=1e-3)
        assert (np.diff(curve.values[: best + 1]) >= 0).all()
        assert (np.diff(curve.values[best:]) <= 0).all()
        found = estimate(x, y, "joint-mle", 0.999)
        assert found.low <= (ny - apart) / nx <= found.high


def test_values_that_hardly_ever_share_a_cell_are_counted() -> None:
    for seed, common in enumerate((0, 1, 1500, 3000)):
        x, y = draw(seed, 3000, 4000, common, 14, 12_288)
        assert x.is_size_exact
        assert estimate(x, y).phi == common / 3000
        assert estimate(y, x).phi == common / 4000


def test_one_value_in_a_met_cell_is_rather_not_in_a_large_column() -> None:
    """With 18 bits for 18,000 values each 15th stranger meets a cell."""
    hashes = random_hashes(18_000, seed=1)
    y, stranger = column_of(hashes, 14, 12_288), hashes[:1] ^ np.uint64(1)
    found = estimate(column_of(stranger, 14, 12_288), y)
    assert (found.phi, found.low, found.high) == (0.0, 0.0, 1.0)


def test_a_lone_match_of_large_columns_is_rather_a_shared_cell() -> None:
    """Where prefixes of 30 bits meet once though 5,000 values each are disjoint, 1 time in 43."""
    hashes = random_hashes(10_000, seed=5)
    hashes[5000] = hashes[0] ^ np.uint64(1)
    found = estimate(column_of(hashes[:5000], 14, 12_288), column_of(hashes[5000:], 14, 12_288))
    assert (found.phi, found.low, found.high) == (0.0, 0.0, 1 / 5000)


@pytest.mark.parametrize(("size", "ratio"), [(500, 0.1), (1500, 0.4), (3000, 0.8), (20_000, 1.05)])
def test_they_tell_more_than_registers_of_the_same_memory(size: int, ratio: float) -> None:
    m, errors = 10, np.zeros(2)
    for seed in range(40):
        columns = draw(seed, size, size, size // 2, m, 2**m * 6 // 8)
        plain = [Column(one.registers, Hll(m, one.registers).estimate(), is_size_exact=False) for one in columns]
        for place, (x, y) in enumerate((columns, plain)):
            phi = estimate(x, y).phi
            assert phi is not None
            errors[place] += abs(phi - 0.5)
    assert errors[0] <= ratio * errors[1]


def test_beside_a_column_with_registers_alone_they_are_as_good_as_hashes() -> None:
    x, _ = draw(1, 40, 300, 20, 10, 96)
    all_hashes, y = draw_pair(1, 40, 300, 20, 10, k=50)
    assert x.hashes is None
    assert estimate(x, y) == estimate(all_hashes, y)
    assert estimate(y, x) == estimate(y, all_hashes)


@pytest.mark.parametrize(("nx", "ny", "common"), [(500, 600, 300), (150, 100, 100), (1000, 1000, 1000)])
def test_known_hashes_beside_registers_of_a_column_whose_size_is_estimated(nx: int, ny: int, common: int) -> None:
    missed = 0
    for seed in range(40):
        x, y = draw_pair(seed, nx, ny, common, M, k=nx)
        y = Column(y.registers, Hll(M, y.registers).estimate(), is_size_exact=False)
        for found, phi in ((estimate(x, y, level=0.9), common / nx), (estimate(y, x, level=0.9), common / ny)):
            missed += not found.low - 1e-9 <= phi <= found.high + 1e-9
    assert missed <= 15, "8 are expected; 16 or more would come once in 150 times"


def test_of_different_m_the_smaller_is_taken() -> None:
    hashes = random_hashes(300, seed=3)
    x, y = column_of(hashes[:200], 6), column_of(hashes[100:], 9)
    found = estimate(x, y)
    assert found.low <= 0.5 <= found.high
    assert found.high - found.low < 0.5


def cut_column(hashes: UInt64s, m: int, bits: int, *, is_size_exact: bool) -> Column:
    """Hold hashes cut to so many bits, with their number, which is told or not."""
    registers = Hll(m)
    registers.update(hashes)
    held = Prefixes(cut(np.sort(hashes), m, bits), bits)
    return Column(registers.registers, float(len(hashes)), is_size_exact, prefixes=held)


def test_prefixes_are_told_apart_with_128_cells_for_each() -> None:
    hashes = np.arange(1, 6, dtype=np.uint64) << np.uint64(55)
    four, five = (cut_column(hashes[:n], 3, 9, is_size_exact=False) for n in (4, 5))
    assert tell_apart(five) is five
    told = tell_apart(four._replace(size=4.1))
    assert told.hashes is not None
    assert (told.hashes.tolist(), told.size, told.is_size_exact) == (hashes[:4].tolist(), 4, True)
    whole, bare = four._replace(hashes=hashes[:4], size=4.1), four._replace(prefixes=None)
    assert tell_apart(whole) is whole
    assert tell_apart(bare) is bare
    assert prefixes_of(four) is four.prefixes
    assert prefixes_of(bare._replace(hashes=hashes)) == (pytest.approx(hashes), 64)
    assert (prefixes_of(bare).bits, len(prefixes_of(bare).entries)) == (3, 1)


def test_matches_are_shared_cells_or_common_values_whichever_is_likelier() -> None:
    """Of `common` matches so many are chance as a Poisson number says, and the rest as is likely beforehand."""
    seen = set()
    for common, nx, ny, cells in (
        (1, 90, 900, 2000), (5, 9, 70, 99), (9, 60, 60, 2600), (3, 3, 9, 64), (0, 4, 9, 64), (2, 5, 8, 256),
    ):  # fmt: skip
        least, mean = min(nx, ny), (nx - common) * (ny - common) / cells
        weights = [
            math.exp(-mean)
            * mean**by
            / math.factorial(by)
            * probability_beforehand(common - by, least, prior_of(least))
            for by in range(common + 1)
        ]
        by = next(by for by in range(common + 1) if sum(weights[: by + 1]) >= sum(weights) / 2)
        assert _median_of_matches(common, nx, ny, float(cells)) == common - by
        seen.add(by)
    assert len(seen) > 2


@pytest.mark.parametrize("is_exact", [(True, False), (False, True), (False, False)])
@pytest.mark.parametrize(("nx", "ny", "common"), [(40, 25, 15), (25, 40, 20)])
def test_prefixes_of_many_values_have_the_likelihood_of_all_cells(
    is_exact: tuple[bool, bool], nx: int, ny: int, common: int
) -> None:
    hashes, m, bits, level = random_hashes(nx + ny - common, 5), 4, 7, 0.8
    x = cut_column(hashes[:nx], m, bits, is_size_exact=is_exact[0])
    y = cut_column(hashes[nx - common :], m, bits + 1, is_size_exact=is_exact[1])
    entries = [cut(np.sort(of), m, bits) for of in (hashes[:nx], hashes[nx - common :])]
    turned = is_exact == (False, True)
    one, other = (y, x) if turned else (x, y)
    pair = observe(*(entries[::-1] if turned else entries), m, bits, one, other)
    curve = unsized.trace(one.size, other.size, pair)
    low, high = cut_curve(curve, likelihood_drop(level))
    share = other.size / one.size
    possible = curve if share >= 1 else unsized.trace(one.size, other.size, pair, share)
    median, low, high = posterior_median(possible, prior_of(possible.largest)), math.floor(low), math.ceil(high)
    least, most = nx, nx
    if turned:
        least, most = likelihood_bounds_of_cells(*count_cells(entries[0], m, bits), level)
        assert size_bounds(x, level) == (least, most)
        assert size_bounds(y, level) == (ny, ny)
    found = estimate(x, y, level=level)
    assert found.phi == pytest.approx(median / nx)
    assert found.low == pytest.approx(min(low / most, found.phi))
    assert found.high == pytest.approx(min(max(high / least, found.phi), 1))


@pytest.mark.parametrize("turned", [False, True])
def test_values_that_are_told_apart_are_held_against_the_cells_of_many(turned: bool) -> None:
    hashes, m, bits, level = random_hashes(130, 6), 4, 9, 0.8
    few = Column(Hll(m).registers, 20.0, True, np.sort(hashes[:20]))
    many = cut_column(hashes[6:], m, bits, is_size_exact=False)
    assert many.prefixes is not None
    evidence = gather(np.sort(hashes[:20]), many.prefixes.entries, m, bits)
    curve = known.trace(124.0, evidence, 2.0**-bits, HASH_BITS + 1 - bits)
    median, ends = posterior_median(curve, prior_of(20.0)), cut_curve(curve, likelihood_drop(level))
    low, high = min(math.floor(ends[0]), median), max(math.ceil(ends[1]), median)
    assert low < median < high
    if turned:
        found, (least, most) = estimate(many, few, level=level), size_bounds(many, level)
        expected = median / 124, low / most, high / least
    else:
        found, expected = estimate(few, many, level=level), (median / 20, low / 20, high / 20)
    assert found[:3] == pytest.approx(expected)


def test_hardly_any_shared_cell_is_expected_up_to_half_of_what_may_be_missed() -> None:
    """8 and 9 of 1024 cells: 0.07 shared ones are expected, below half of 1 - 0.8 and above half of 1 - 0.9."""
    hashes = np.arange(1, 15, dtype=np.uint64) << np.uint64(54)
    x, y = (cut_column(of, 4, 10, is_size_exact=False) for of in (hashes[:8], hashes[5:]))
    found = estimate(x, y, level=0.8)
    assert found[:3] == (3 / 8, 3 / 8, 3 / 8)
    assert estimate(x, y, level=0.9).low < 3 / 8

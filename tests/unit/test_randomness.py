"""Randomness of foreign-key candidates: distances against POT and SciPy, laws, Lemma 1, what the 2010 paper shows."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import ot
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance

from service.core.quantile_grids import GridHistogram, KeyHistogram, QuantileGrid, histogram_over
from service.core.randomness import Cut, Randomness, emd_on_line, has_drifted, outside, randomness, suggest_cut
from service.core.value_order import ValueOrder

NUMERIC = ValueOrder.NUMERIC
Tuples = list[tuple[str, ...]]


def texts(*columns: range | list[int]) -> Tuples:
    return [tuple(map(str, row)) for row in zip(*columns, strict=True)]


def measure(candidate: Tuples, key: Tuples, cells: int | None = None, most_routes: int = 1_000_000) -> Randomness:
    of_key = KeyHistogram.of(key, [NUMERIC] * len(key[0]), cells)
    return randomness(histogram_over(of_key.grids, candidate), of_key, most_routes)


def over_all_values(candidate: Tuples, key: Tuples) -> float:
    """Give the normalised distance as Definition 2 has it, without a grid, by POT."""
    ranks = [{v: i for i, v in enumerate(sorted(set(column), key=int), 1)} for column in zip(*key, strict=True)]
    sides = [
        np.array([[r[v] / len(r) for r, v in zip(ranks, row, strict=True)] for row in s]) for s in (candidate, key)
    ]
    return float(ot.emd2([], [], ot.dist(*sides, metric="cityblock"), numItermax=1_000_000)) / len(ranks)


def distributions(size: int) -> st.SearchStrategy[np.ndarray]:
    weights = st.lists(st.integers(0, 50), min_size=size, max_size=size).filter(any)
    return weights.map(lambda w: np.array(w) / sum(w))


@given(st.data(), st.integers(1, 20))
def test_on_a_line_the_distance_is_that_of_scipy_and_pot(data: st.DataObject, size: int) -> None:
    first, second = data.draw(distributions(size)), data.draw(distributions(size))
    steps = data.draw(st.lists(st.floats(0.01, 1), min_size=size, max_size=size))
    positions = np.cumsum(steps)
    found = emd_on_line(first, second, positions)
    assert found == pytest.approx(wasserstein_distance(positions, positions, first, second), abs=1e-9)
    assert found == pytest.approx(ot.emd2_1d(positions, positions, first, second, metric="euclidean"), abs=1e-9)


@given(st.data(), st.integers(1, 20))
def test_the_distance_is_a_metric(data: st.DataObject, size: int) -> None:
    positions = np.cumsum(data.draw(st.lists(st.floats(0.01, 1), min_size=size, max_size=size)))
    f, g, h = (data.draw(distributions(size)) for _ in range(3))
    assert emd_on_line(f, f, positions) == 0
    assert emd_on_line(f, g, positions) == pytest.approx(emd_on_line(g, f, positions))
    assert emd_on_line(f, h, positions) <= emd_on_line(f, g, positions) + emd_on_line(g, h, positions) + 1e-9


@given(st.data(), st.integers(1, 12), st.integers(0, 8))
def test_a_distribution_that_is_shifted_is_as_far_as_the_shift(data: st.DataObject, size: int, shift: int) -> None:
    own = data.draw(distributions(size))
    first, second = np.zeros(size + shift), np.zeros(size + shift)
    first[:size], second[shift:] = own, own
    positions = np.arange(1, size + shift + 1) / (size + shift)
    assert emd_on_line(first, second, positions) == pytest.approx(shift / (size + shift))


@given(st.data(), st.integers(1, 4))
def test_in_more_dimensions_the_distance_is_the_transport_between_all_values(data: st.DataObject, columns: int) -> None:
    """With a cell for each value the grid hides nothing, and a cell that both have needs no route."""
    rows = st.tuples(*[st.integers(0, 6).map(str)] * columns)
    key = data.draw(st.lists(rows, min_size=1, max_size=30, unique=True))
    candidate = data.draw(st.lists(st.sampled_from(key), min_size=1, unique=True))
    found = measure(candidate, key, cells=7)
    assert found.distance == pytest.approx(over_all_values(candidate, key), abs=1e-9)
    assert found.error == 0


@given(st.data(), st.integers(1, 3), st.integers(1, 6))
def test_a_grid_errs_no_more_than_it_says_and_no_more_than_lemma_1(data: st.DataObject, n: int, cells: int) -> None:
    rows = st.tuples(*[st.integers(0, 40).map(str)] * n)
    key = data.draw(st.lists(rows, min_size=1, max_size=40, unique=True))
    candidate = data.draw(st.lists(st.sampled_from(key), min_size=1, unique=True))
    found = measure(candidate, key, cells)
    assert abs(found.distance - over_all_values(candidate, key)) <= found.error + 1e-9
    assert found.error < 2 / cells


@given(st.data(), st.integers(2, 3))
def test_cells_are_joined_where_routes_would_be_too_many(data: st.DataObject, n: int) -> None:
    rows = st.tuples(*[st.integers(0, 40).map(str)] * n)
    key = data.draw(st.lists(rows, min_size=2, max_size=40, unique=True))
    candidate = data.draw(st.lists(st.sampled_from(key), min_size=1, unique=True))
    found = measure(candidate, key, cells=41, most_routes=data.draw(st.integers(1, 60)))
    assert abs(found.distance - over_all_values(candidate, key)) <= found.error + 1e-9


@pytest.mark.parametrize(("more", "drifted"), [(0, False), (60, False), (110, False), (120, True), (400, True)])
def test_a_key_that_grows_behind_its_last_bound_drifts_when_the_last_cell_hides_too_much(
    more: int, drifted: bool
) -> None:
    """Of 1000 values in cells of 10 a cell hides 9; the limit is twice 2/100."""
    grid = QuantileGrid(NUMERIC, tuple(str(value) for value in range(10, 1001, 10)))
    key, candidate = texts(range(1, 1001 + more)), texts(range(1, 1001 + more, 2))
    of_key = KeyHistogram((grid,), (histogram_over((grid,), key).dense(),), histogram_over((grid,), key))
    hidden = 2 * (990 * 9 + (10 + more) * (9 + more)) / (1000 + more) ** 2
    assert randomness(histogram_over((grid,), candidate), of_key).error == pytest.approx(hidden)
    assert has_drifted(histogram_over((grid,), candidate), of_key, 100) is drifted is (hidden > 0.04)
    assert has_drifted(histogram_over((grid,), texts([1005])), of_key, 100) is (more > 30)  # it is all in the last cell


def test_more_dimensions_are_no_further_for_being_more() -> None:
    """EMD_n divides by the number of columns: a prefix on the diagonal is as far as the prefix alone."""
    key, prefix = range(100), range(10)
    alone = measure(texts(prefix), texts(key), cells=100).distance
    assert alone == pytest.approx(0.45)
    assert measure(texts(prefix, prefix), texts(key, key), cells=100).distance == pytest.approx(alone)


def test_ids_of_another_table_are_a_prefix_and_those_that_refer_are_a_sample() -> None:
    """Figure 1: 100 brokers, 10,000 trades; accounts refer to brokers, and all ids count from 1."""
    trades, brokers = texts(range(1, 10_001)), texts(range(1, 101))
    accounts = texts(Random(1).sample(range(1, 101), 60))
    assert measure(brokers, trades).distance == pytest.approx(0.495, abs=2 / 256)
    assert measure(accounts, trades).distance == pytest.approx(0.495, abs=0.01)
    assert measure(accounts, brokers).distance < 0.05


def test_a_contiguous_part_of_a_two_column_key_fails_where_a_scattered_one_passes() -> None:
    """Figures 2 and 5: F is sprinkled over the key, F' lies in a corner of it."""
    key = [(str(x), str(y)) for x, y in product(range(1, 13), repeat=2) if (x + y) % 3 == 0]
    scattered, corner = Random(2).sample(key, 12), [(x, y) for x, y in key if int(x) <= 6 and int(y) <= 6]
    assert measure(scattered, key, 4).distance < 0.15
    assert measure(corner, key, 4).distance > 0.2


def test_cells_are_as_far_apart_as_their_upper_right_corners() -> None:
    """Figure 6: cell (2/4, 1/4) is (3/4 − 2/4) + (2/4 − 1/4) = 0.5 from cell (3/4, 2/4); two columns halve it."""
    grid = QuantileGrid(NUMERIC, ("2", "4", "6", "8"))
    key = KeyHistogram((grid, grid), (np.full(4, 2),) * 2, histogram_over((grid, grid), [("6", "4")]))
    assert randomness(histogram_over((grid, grid), [("4", "2")]), key).distance == pytest.approx(0.5 / 2)


def test_a_column_without_values_has_no_randomness() -> None:
    with pytest.raises(ValueError, match=r"^what has no values has no randomness$"):
        measure([], texts([1, 2]))


def test_the_answer_ends_where_distances_leap() -> None:
    assert suggest_cut([0.01, 0.012, 0.02, 0.3, 0.4, 0.45]).count == 3
    assert suggest_cut([0.01, 0.012, 0.02, 0.3, 0.4, 0.45]).jumps[0].factor == pytest.approx(15)


def test_below_the_resolution_of_the_grid_nothing_leaps() -> None:
    assert suggest_cut([0.0, 1e-9, 1e-5, 0.002, 0.05]).count == 4


def test_a_ranking_that_leaps_nowhere_is_all_answer() -> None:
    assert suggest_cut([0.2, 0.2, 0.2]).count == 3
    assert suggest_cut([0.2]).count == 1
    assert suggest_cut([]) == Cut(((0, 1.0),))
    assert suggest_cut([]).count == 0


def test_of_equal_leaps_the_first_counts() -> None:
    distances = [2.0 ** (3 * step // 2) for step in range(60)]  # twice and four times as far by turns
    leaps = suggest_cut(distances, resolution=1.0).jumps
    assert [jump.behind for jump in leaps] == [*range(2, 60, 2), *range(1, 60, 2), 60]
    assert Cut(()).count == 0


def test_a_transport_that_is_not_found_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.core.randomness._MOST_STEPS", 1)
    key = [(str(x), str(y)) for x, y in product(range(12), repeat=2)]
    told = pytest.raises(ArithmeticError, match=r"^no transport was found: numItermax reached")
    with pytest.warns(UserWarning, match="numItermax reached"), told:
        measure(key[:40], key)


@given(st.lists(st.floats(0, 1)).map(sorted))
def test_a_cut_is_within_the_ranking_and_never_in_front_of_it(distances: list[float]) -> None:
    cut = suggest_cut(distances)
    assert min(1, len(distances)) <= cut.count <= len(distances)
    factors = [jump.factor for jump in cut.jumps]
    assert factors == sorted(factors, reverse=True)


def test_transports_of_six_columns_stay_bounded() -> None:
    """A dense grid of six columns would have 16 million cells."""
    draw = Random(3)
    key = list({tuple(str(draw.randrange(60)) for _ in range(6)) for _ in range(3_000)})
    found = measure(key[:1500], key, most_routes=90_000)
    assert 0 <= found.distance <= 1
    assert found.error < 1


def test_histograms_of_equal_distributions_are_at_no_distance() -> None:
    key = texts(range(3), range(3))
    histogram = KeyHistogram.of(key, [NUMERIC] * 2)
    twice = GridHistogram(histogram.tuples.shape, histogram.tuples.cells, histogram.tuples.counts * 2)
    assert randomness(twice, histogram) == (0, 0)


@given(st.sets(st.integers(0, 60), min_size=1), st.sets(st.integers(0, 60), min_size=1))
def test_outside_counts_the_keys_values_beyond_a_candidates(key: set[int], dependent: set[int]) -> None:
    inside = dependent & key
    if not inside:
        return
    of_key = KeyHistogram.of(texts(sorted(key)), [NUMERIC])
    beyond = sum(not min(inside) <= value <= max(inside) for value in key)
    found = outside(histogram_over(of_key.grids, texts(sorted(inside))), of_key)
    assert found == pytest.approx(beyond / len(key))


def test_outside_of_a_composite_is_the_mean_of_its_columns() -> None:
    of_key = KeyHistogram.of([(str(a), str(b)) for a in range(4) for b in range(10)], [NUMERIC, NUMERIC])
    assert outside(histogram_over(of_key.grids, [("0", "0"), ("1", "9")]), of_key) == pytest.approx((0.5 + 0) / 2)
    with pytest.raises(ValueError, match="no range"):
        outside(histogram_over(of_key.grids, []), of_key)

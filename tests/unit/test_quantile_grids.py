"""Quantile grids and histograms: the order of values, the paper's ranks, and histograms that follow changes."""

from __future__ import annotations

from decimal import Decimal
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance

from service.core.quantile_grids import (
    GridHistogram,
    KeyHistogram,
    QuantileGrid,
    cells_of_each,
    histogram_over,
    quantile_ranks,
)
from service.core.randomness import has_drifted, randomness
from service.core.value_order import ValueOrder, order_of

NUMERIC, LEXICOGRAPHIC, MIXED = ValueOrder.NUMERIC, ValueOrder.LEXICOGRAPHIC, ValueOrder.MIXED


def sorted_as(order: ValueOrder, values: list[str]) -> list[str]:
    return sorted(values, key=order.key)


@pytest.mark.parametrize(
    ("values", "order"),
    [
        (["1", "-2.5", "10"], NUMERIC),
        (["1", "NaN", "-Infinity"], NUMERIC),
        (["a", "B", "é"], LEXICOGRAPHIC),
        (["A-1", "A-2"], LEXICOGRAPHIC),
        (["2026-11-21", "2025-01-01"], LEXICOGRAPHIC),
        (["NaN", "Infinity"], LEXICOGRAPHIC),
        (["1", "1a"], MIXED),
        (["NaN", "1", "x"], MIXED),
        ([], LEXICOGRAPHIC),
    ],
)
def test_values_say_how_their_column_is_ordered(values: list[str], order: ValueOrder) -> None:
    assert order_of(values) is order


def test_numbers_are_ordered_by_what_they_are() -> None:
    ascending = ["-Infinity", "-10", "-9.5", "0", "2", "10", "100000000000000000000", "100000000000000000001", "NaN"]
    assert sorted_as(NUMERIC, ascending[::-1]) == ascending


def test_mixed_values_are_ordered_as_sort_n_does() -> None:
    """As `LC_ALL=C sort -n` prints these lines: leading numbers, 0 without one, then the text."""
    ascending = ["-3", "-.5", "", "A", "b", "0", "00", "1", "01", "1 a", "1a", "2", " 2", "10", "10.5x"]
    assert sorted_as(MIXED, ascending) == [
        "-3",
        "-.5",
        "",
        "0",
        "00",
        "A",
        "b",
        "01",
        "1",
        "1 a",
        "1a",
        " 2",
        "2",
        "10",
        "10.5x",
    ]


def test_numbers_are_no_sample_of_a_key_of_strings() -> None:
    """Figure 3: a prefix of the numbers looks sprinkled among them in lexicographic order."""
    assert not NUMERIC.is_comparable_with(LEXICOGRAPHIC)
    assert all(a.is_comparable_with(b) for a in ValueOrder for b in ValueOrder if (a, b) != (NUMERIC, LEXICOGRAPHIC))


@given(st.integers(0, 5_000), st.integers(1, 300))
def test_ranks_of_quantiles_cut_values_into_even_shares(count: int, cells: int) -> None:
    ranks = quantile_ranks(count, cells)
    assert len(ranks) == min(count, cells)
    assert ranks[-1:] == ([count] if count else [])
    shares = np.diff([0, *ranks])
    assert set(shares.tolist()) <= {count // max(len(ranks), 1), -(-count // max(len(ranks), 1))}


def test_quantiles_are_those_of_the_papers_figure_6() -> None:
    """Eight distinct values in a dimension: the first 4-quantile has rank 8 · 1/4, the second 8 · 2/4."""
    assert quantile_ranks(8, 4) == [2, 4, 6, 8]
    key = [
        (str(x), str(y)) for x, y in [(1, 1), (2, 2), (3, 8), (3, 3), (3, 5), (4, 4), (5, 6), (6, 6), (7, 6), (8, 7)]
    ]
    histogram = KeyHistogram.of(key, [NUMERIC, NUMERIC], 4)
    assert [grid.bounds for grid in histogram.grids] == [("2", "4", "6", "8")] * 2
    assert [counts.tolist() for counts in histogram.columns] == [[2, 2, 2, 2]] * 2
    assert histogram.tuples.dense().tolist() == [[2, 0, 0, 0], [0, 2, 1, 1], [0, 0, 2, 0], [0, 0, 1, 1]]


def test_grids_have_as_many_cells_as_in_the_papers_experiments() -> None:
    """Section 5.2: 256 cells for a key of one column, 16 for each dimension of a composite one."""
    rows = [(str(value), str(-value)) for value in range(300)]
    assert [len(grid) for grid in KeyHistogram.of([row[:1] for row in rows], [NUMERIC]).grids] == [256]
    assert [len(grid) for grid in KeyHistogram.of(rows, [NUMERIC] * 2).grids] == [16, 16]


def test_keys_of_many_columns_have_fewer_cells_each() -> None:
    """All cells of a grid are numbered in 64 bits: 16 in each of 15 columns, 3 in each of 32."""
    assert [cells_of_each(columns) for columns in (1, 2, 15, 16, 32)] == [256, 16, 16, 14, 3]
    assert [cells_of_each(2, 7), cells_of_each(6, 10**6)] == [7, 1290]
    rows = [tuple(str(value * column) for column in range(1, 33)) for value in range(40)]
    of_key = KeyHistogram.of(rows, [NUMERIC] * 32)
    assert of_key.tuples.counts.tolist() == [14, 13, 13]
    assert randomness(histogram_over(of_key.grids, rows[:20]), of_key).distance == pytest.approx(0.25, abs=0.1)


@given(st.lists(st.integers(-50, 50).map(str), min_size=1, unique=True), st.integers(1, 30))
def test_every_value_is_in_the_cell_whose_bound_is_the_first_not_below_it(values: list[str], cells: int) -> None:
    grid = QuantileGrid.of(values, NUMERIC, cells)
    for value, cell in zip(values, grid.cells_of(values).tolist(), strict=True):
        assert Decimal(value) <= Decimal(grid.bounds[cell])
        assert cell == 0 or Decimal(value) > Decimal(grid.bounds[cell - 1])


def test_values_beyond_the_key_are_in_its_outer_cells() -> None:
    assert QuantileGrid(NUMERIC, ("2", "4")).cells_of(["-7", "5", "3"]).tolist() == [0, 1, 1]


@pytest.mark.parametrize("bounds", [(), ("2", "1"), ("1", "1"), ("10", "9")])
def test_bounds_that_do_not_ascend_are_refused(bounds: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="ascend"):
        QuantileGrid(NUMERIC, bounds)


def test_no_cell_can_be_left_by_more_than_are_in_it() -> None:
    histogram = GridHistogram.of([4], [np.array([1, 1, 3])])
    with pytest.raises(ValueError, match="fewer than no values"):
        histogram.moved([np.array([3, 3])], np.array([-1, -1]))
    key = KeyHistogram.of([("1",), ("2",)], [NUMERIC])
    with pytest.raises(ValueError, match="fewer than no values"):
        key.moved([np.array([-2, 0])], [np.array([0])], np.array([-1]))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), unique=False), st.data())
def test_a_histogram_that_follows_changes_is_that_of_what_is_left(
    places: list[tuple[int, int]], data: st.DataObject
) -> None:
    shape = (3, 4)
    gone = data.draw(st.sets(st.sampled_from(range(len(places))))) if places else set()

    def columns(rows: list[tuple[int, int]]) -> list[np.ndarray]:
        return [np.array([row[i] for row in rows], np.int64) for i in range(2)]

    whole = GridHistogram.of(shape, columns([])).moved(columns(places), np.ones(len(places), np.int64))
    left = whole.moved(columns([places[i] for i in gone]), -np.ones(len(gone), np.int64))
    expected = GridHistogram.of(shape, columns([row for i, row in enumerate(places) if i not in gone]))
    assert left.dense().tolist() == expected.dense().tolist()
    assert (left.counts > 0).all()
    assert left.counts.dtype == left.dense().dtype == np.int64


@pytest.mark.parametrize("seed", range(5))
def test_on_the_old_grid_ranks_stay_true_within_the_stated_error(seed: int) -> None:
    """Thousands of values come and go: on the bounds of the first day no distance is off by more than is said."""
    draw = Random(seed)
    key, foreign = set(range(2_000)), set(draw.sample(range(2_000), 300))
    histogram = KeyHistogram.of([(str(v),) for v in key], [NUMERIC])
    of_foreign = histogram_over(histogram.grids, [(str(v),) for v in foreign])
    for _ in range(20):
        came = set(draw.sample(range(draw.randrange(400, 20_000)), 400)) - key
        went = set(draw.sample(sorted(key - foreign), min(100, len(key - foreign))))
        key = (key | came) - went
        cells = histogram.grids[0].cells_of(map(str, [*came, *went]))
        ways = np.array([1] * len(came) + [-1] * len(went), np.int64)
        by_cell = np.zeros(len(histogram.grids[0]), np.int64)
        np.add.at(by_cell, cells, ways)
        histogram = histogram.moved([by_cell], [cells], ways)
        more = set(draw.sample(sorted(key), min(20, len(key)))) - foreign
        foreign |= more
        new = histogram.grids[0].cells_of(map(str, more))
        of_foreign = of_foreign.moved([new], np.ones(len(new), np.int64))

        found = randomness(of_foreign, histogram)
        ranks = {v: i / len(key) for i, v in enumerate(sorted(key), 1)}
        exact = wasserstein_distance([ranks[v] for v in foreign], list(ranks.values()))
        assert abs(found.distance - exact) <= found.error + 1e-9
        assert has_drifted(of_foreign, histogram, 256) == (found.error > 2 * 2 / 256)
    assert has_drifted(of_foreign, histogram, 256)
    anew = KeyHistogram.of([(str(v),) for v in key], [NUMERIC])
    assert not has_drifted(histogram_over(anew.grids, [(str(v),) for v in foreign]), anew, 256)

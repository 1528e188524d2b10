"""The search for joinable tables against brute force: mappings, ties, empty cells, up to ten key columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import permutations
from typing import NamedTuple
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.core import joinability
from service.core.canonical import value_keys
from service.core.cell_index import CellIndex
from service.core.joinability import (
    IndexInMemory,
    Initial,
    Joinable,
    Progress,
    best_mapping,
    initial_column,
    search,
    top_joinable,
)
from service.core.records import Int64s, starts_of
from service.core.row_filters import WIDE, CountedBits, RowFilter, ValueHashes, _counted_bits, values_held
from service.core.xash import Xash

Table = list[tuple[int, ...]]
WORDS = ["muhammad", "lee", "us", "ali", "germany", "dancer", "boxer", "birder"]


class Searched(NamedTuple):
    """Hold tables as they are searched: their cells, and a row filter by which they are asked."""

    index: CellIndex
    rows: RowFilter

    def top(self, keys: Int64s, k: int, initial: Initial = Initial.POSTINGS) -> list[Joinable]:
        return top_joinable(self.index, self.rows, keys, k, initial)


FILTERS: dict[str, Callable[[CellIndex, list[str]], RowFilter]] = {
    "xash": lambda index, texts: ValueHashes.of(index, Xash().hashes(pa.array(texts))),
    "xash of 64 bits": lambda index, texts: ValueHashes.of(index, Xash(64, 1).hashes(pa.array(texts))),
    "xash of 512 bits": lambda index, texts: ValueHashes.of(index, Xash(512, 9).hashes(pa.array(texts))),
    "counted bits": lambda index, texts: CountedBits.of(index, value_keys(texts)),
}


def searched(tables: list[Table], by: str = "counted bits") -> Searched:
    """Index tables whose values 0, 1, ... are words, and then numbers."""
    rows = [row for table in tables for row in table]
    cells = np.array([cell for row in rows for cell in row], np.int64)
    texts = WORDS + [str(value) for value in range(len(WORDS), max([9, *cells.tolist()]) + 1)]
    index = CellIndex.of(cells, starts_of(list(map(len, rows))), starts_of(list(map(len, tables))), len(texts))
    return Searched(index, FILTERS[by](index, texts))


def brute_force(tables: list[Table], keys: Int64s) -> list[Joinable]:
    """Try every mapping of every table; the best table first."""
    wanted = {tuple(key) for key in keys.tolist() if -1 not in key}
    found = []
    for number, table in enumerate(tables):
        best = Joinable(number, (), 0)
        for columns in permutations(range(max(map(len, table), default=0)), keys.shape[1]):
            joinability = len(wanted & {tuple(row[c] for c in columns) for row in table if len(row) > max(columns)})
            if joinability > best.joinability:
                best = Joinable(number, columns, joinability)
        if best.joinability:
            found.append(best)
    return sorted(found, key=lambda one: (-one.joinability, one.table))


@st.composite
def corpora(draw: st.DrawFn) -> tuple[list[Table], Int64s]:
    """Draw tables of few values, so that much joins, and a query that repeats rows of them and has some of its own."""
    cell = st.integers(-1, draw(st.sampled_from([1, 3, 9])))
    widths = draw(st.lists(st.integers(1, 5), max_size=6))
    tables = [draw(st.lists(st.tuples(*[cell] * width), max_size=7)) for width in widths]
    size = draw(st.integers(1, 4))
    rows = [row[:size] for table in tables for row in table if len(row) >= size]
    own = draw(st.lists(st.tuples(*[cell] * size), max_size=5))
    chosen = draw(st.lists(st.sampled_from(rows), max_size=8)) if rows else []
    return tables, np.array(own + chosen, np.int64).reshape(-1, size)


@given(corpora(), st.integers(1, 7), st.sampled_from(Initial), st.sampled_from(sorted(FILTERS)))
@example(([[(0, 1)], [(1, 0)], [(0, 1)]], np.array([[0, 1]])), 2, Initial.POSTINGS, "xash")
@example(([[(0, 0, 1)], [(0, 1), (0, 1)]], np.array([[0, 0]])), 1, Initial.CARDINALITY, "counted bits")
def test_the_best_tables_are_those_of_brute_force(corpus, k, initial, by) -> None:
    tables, keys = corpus
    assert searched(tables, by).top(keys, k, initial) == brute_force(tables, keys)[:k]


@pytest.mark.parametrize("k", range(1, 9))
@pytest.mark.parametrize("by", FILTERS)
def test_ties_go_by_number_also_where_the_bounds_equal_the_worst(k: int, by: str) -> None:
    """Tables 0 to 6 have 3, 2 or 1 keys; those with more postings, all of one key, are looked at first."""
    few, many = [(0, 1), (2, 3)], [(0, 1), (2, 3), (4, 5)]
    tables = [few * 9, many, few, many * 3, [(0, 1)] * 30, few * 4, many, [(0, 9)] * 50]
    keys = np.array([(0, 1), (2, 3), (4, 5)])
    found = searched(tables, by).top(keys, k)
    assert [one.table for one in found] == [1, 3, 6, 0, 2, 5, 4][:k]
    assert found == brute_force(tables, keys)[:k]


@given(st.integers(1, 10), st.integers(0, 3), st.randoms(use_true_random=False), st.sampled_from(sorted(FILTERS)))
def test_one_to_ten_key_columns_in_any_order(size: int, more: int, random, by: str) -> None:
    """The columns of a table of different values are found, however they stand."""
    columns = [range(50 * c, 50 * c + 5) for c in range(size + more)]
    mapping = random.sample(range(size + more), size)
    table = list(zip(*columns, strict=True))
    keys = np.array([[row[c] for c in mapping] for row in table[1:]] * 2)
    assert searched([[(7,) * 12], table], by).top(keys, 3) == [Joinable(1, tuple(mapping), 4)]


def test_equal_columns_cost_one_mapping() -> None:
    """Of 12 equal columns for ten key columns there are 239,500,800 mappings; the first is as good as any."""
    keys = np.repeat(np.arange(3)[:, None], 10, axis=1)
    assert searched([[(v,) * 12 for v in range(3)]]).top(keys, 1) == [Joinable(0, tuple(range(10)), 3)]


def test_the_running_example_of_the_paper_joins_by_swapped_columns() -> None:
    """Figure 1: the columns are called otherwise, and a first name that is also a family's is told by its column."""
    table = [(0, 1, 2), (3, 1, 2), (1, 3, 4), (1, 0, 2), (3, 0, 4), (0, 3, 4)]
    keys = np.array([(1, 0, 2), (1, 3, 2), (3, 1, 4), (0, 1, 2), (0, 3, 4), (5, 5, 5)])
    (found,) = searched([table]).top(keys, 1)
    assert found == brute_force([table], keys)[0]


@given(corpora(), st.sampled_from(sorted(FILTERS)))
def test_a_row_that_has_a_key_shows_all_of_its_bits(corpus, by) -> None:
    tables, keys = corpus
    keys = keys[(keys >= 0).all(1)]
    rows = searched(tables, by).rows
    of_keys = rows.of_keys(keys)
    row = 0
    for number, table in enumerate(tables):
        for cells in table:
            for key, bits in zip(keys.tolist(), of_keys[rows.classes[number]], strict=True):
                assert Counter(key) - Counter(cells) or not (bits & ~rows.rows[row]).any()
            row += 1


def test_counted_bits_tell_a_value_from_the_same_value_twice() -> None:
    rows = searched([[(0, 1, 2), (0, 0, 1)]]).rows
    (once, twice), (of_once, of_twice) = rows.rows, rows.of_keys(np.array([(0, 1), (0, 0)]))[0]
    assert [bool((key & ~row).any()) for row in (once, twice) for key in (of_once, of_twice)] == [0, 1, 0, 0]


def test_counted_bits_have_more_functions_in_narrow_tables() -> None:
    rows = searched([[(0, 1)] * 3, [tuple(range(20))] * 3, [], [(-1, 5)]]).rows
    assert isinstance(rows, CountedBits)
    assert rows.functions[rows.classes].tolist() == [16, 4, 1, 16]


def test_the_initial_column_is_the_one_with_the_fewest_postings_or_values() -> None:
    keys = np.array([(0, 5), (0, 6), (1, 7)])
    counts = np.array([(9, 1), (9, 2), (4, 3)])
    assert initial_column(keys, counts) == 1, "6 postings against 13: each value's count once"
    assert initial_column(keys, counts, Initial.CARDINALITY) == 0


def test_a_bound_that_cannot_be_reached_gives_nothing() -> None:
    rows = IndexInMemory(*searched([[(0, 1), (2, 3)]])).rows(np.arange(2))
    pairs = np.array([0, 1]), np.array([(0, 1), (2, 3)]), np.array([0, 1])
    assert best_mapping(rows, *pairs, least=2) == ((0, 1), 2, True)
    assert best_mapping(rows, *pairs, least=3)[1] == 0


def test_the_worst_mapping_ends_at_its_bound_and_says_so() -> None:
    """Of 20 random columns of 3 values and six key columns the best mapping takes more than a minute to find."""
    random = np.random.default_rng(2)
    tables = [[(0,) * 6] * 30, [tuple(row) for row in random.integers(0, 3, (300, 20)).tolist()]]
    keys = np.unique(random.integers(0, 3, (200, 6)), axis=0)
    index = IndexInMemory(*searched(tables))
    best, unfinished, _ = search(index, keys, 2, most=1_000_000)
    assert unfinished == [1]
    for found in best:
        rows = np.array(tables[found.table])[:, found.columns]
        assert found.joinability == len({*map(tuple, rows.tolist())} & {*map(tuple, keys.tolist())})


@given(corpora(), st.integers(1, 3))
def test_tables_that_are_not_named_unfinished_are_as_without_a_bound(corpus, most) -> None:
    tables, keys = corpus
    best, unfinished, _ = search(IndexInMemory(*searched(tables)), keys, 9, most=most)
    exact = {one.table: one for one in brute_force(tables, keys)}
    for found in best:
        if found.table in unfinished:
            assert found.joinability <= exact[found.table].joinability
        else:
            assert found == exact[found.table]
    assert {*exact} <= {*unfinished, *(found.table for found in best)}


@given(corpora(), st.integers(1, 7))
def test_rows_that_are_asked_for_in_turns_give_the_same(corpus, k) -> None:
    tables, keys = corpus
    with mock.patch.object(joinability, "POSTINGS_AT_ONCE", 2):
        assert searched(tables).top(keys, k) == brute_force(tables, keys)[:k]


@given(corpora(), st.integers(1, 7), st.integers(1, 4))
def test_a_floor_leaves_out_what_joins_with_fewer_keys(corpus, k, floor) -> None:
    tables, keys = corpus
    exact = [one for one in brute_force(tables, keys) if one.joinability >= floor]
    assert search(IndexInMemory(*searched(tables)), keys, k, floor=floor).best == exact[:k]


@given(corpora(), st.integers(1, 3), st.sampled_from([2, 8192]))
def test_matches_are_the_first_rows_that_have_each_key(corpus, shown, at_once) -> None:
    tables, keys = corpus
    weights = np.arange(len(keys)) + 1
    with mock.patch.object(joinability, "POSTINGS_AT_ONCE", at_once):
        found = search(IndexInMemory(*searched(tables)), keys, 3, shown=shown, weights=weights)
    assert [*found.matched] == [one.table for one in found.best]
    asked: dict[tuple[int, ...], int] = {}
    for place, key in enumerate(map(tuple, keys.tolist())):
        asked.setdefault(key, place)
    for one in found.best:
        first_row = sum(map(len, tables[: one.table]))
        expected: dict[int, int] = {}
        for row, cells in enumerate(tables[one.table], first_row):
            key = tuple(cells[column] for column in one.columns)
            if key in asked and -1 not in key:
                expected.setdefault(asked[key], row)
        matched = found.matched[one.table]
        assert [*zip(matched.rows.tolist(), matched.keys.tolist(), strict=True)] == [
            (row, place) for place, row in expected.items()
        ][:shown]
        assert matched.weight == sum(weights[[*expected]])


def test_a_search_tells_its_work_before_it_fetches_anything_and_may_be_ended() -> None:
    """Of (0, 1), (0, 2), (3, 1) the first column has the fewest postings: 2 of 0, with two keys each, and 1 of 3.

    The other one has 4 of 1 and 3 of 2.
    """
    index = IndexInMemory(*searched([[(0, 1), (0, 2), (8, 1)], [(3, 1), (8, 1), (8, 2), (8, 2)]]))
    keys = np.array([(0, 1), (0, 2), (3, 1)])
    told: list[Progress] = []
    search(index, keys, 5, tell=told.append)
    assert told == [(10, 5, 0, None), (10, 5, 0, 2), (10, 5, 1, 2)]

    class EndedError(Exception):
        pass

    def end(progress: Progress) -> None:
        raise EndedError

    with mock.patch.object(joinability, "narrowed") as fetching, pytest.raises(EndedError):
        search(index, keys, 5, tell=end)
    fetching.assert_not_called()


def test_of_too_many_postings_only_those_of_one_column_are_fetched_and_the_answer_is_the_same() -> None:
    index = IndexInMemory(*searched([[(0, 1), (0, 2), (8, 1)], [(3, 1), (8, 1), (8, 2), (8, 2)]]))
    keys = np.array([(0, 1), (0, 2), (3, 1)])
    told: list[Progress] = []
    narrowed = search(index, keys, 5).best
    with mock.patch.object(joinability, "MOST_NARROWED", 9):
        assert search(index, keys, 5, tell=told.append).best == narrowed
    assert told[0] == (3, 5, 0, None)


@pytest.mark.parametrize(("keys", "k"), [(np.zeros((3, 0), np.int64), 1), (np.zeros((3, 1), np.int64), 0)])
def test_no_key_column_and_no_table_cannot_be_asked(keys: Int64s, k: int) -> None:
    with pytest.raises(ValueError, match="at least one"):
        searched([[(0, 1)]]).top(keys, k)


def test_of_a_value_that_a_row_has_thrice_two_are_counted_and_each_has_bits_of_its_own() -> None:
    cells, starts = np.array([1, 1, -1, 1, 0, 0]), np.array([0, 4, 6])
    assert values_held(cells, starts).tolist() == [2, 2]
    bits = np.zeros((2, 32), np.uint8)
    bits[0, [0, 1, 16]] = 63, 64, 127
    bits[1, [0, 16, 17]] = 65, 1, 2
    assert _counted_bits(bits, cells, starts, np.array([1, 2])).tolist() == [
        [1 << 1, 1 << 1],
        [1 << 63 | 1, 1 | 1 << 63],
    ]


@pytest.mark.parametrize("width", [WIDE, WIDE + 1, 3 * WIDE])
def test_of_wide_rows_the_same_is_counted_as_of_narrow_ones(width: int) -> None:
    rng = np.random.default_rng(width)
    rows = rng.integers(-1, width, (9, width))
    bits = rng.integers(0, 128, (width, 32), np.uint8)
    starts, functions = np.arange(10) * width, rng.integers(1, 17, 9)
    expected = []
    for row, count in zip(rows.tolist(), functions.tolist(), strict=True):
        times = {value: min(row.count(value), 2) for value in row if value >= 0}
        chosen = {int(bit) for value, of in times.items() for n in range(of) for bit in bits[value, 16 * n :][:count]}
        expected.append((sum(times.values()), sum(1 << bit for bit in chosen)))
    made = _counted_bits(bits, rows.ravel(), starts, functions).tolist()
    assert [
        *zip(values_held(rows.ravel(), starts).tolist(), [low | high << 64 for low, high in made], strict=True)
    ] == expected


def test_a_row_of_a_million_values_is_counted() -> None:
    """Each value against each other one would take hours."""
    cells, starts = np.arange(1_000_000), np.array([0, 1_000_000])
    assert values_held(cells, starts).tolist() == [1_000_000]
    assert _counted_bits(np.zeros((1_000_000, 32), np.uint8), cells, starts, np.array([1])).tolist() == [[1, 0]]


def test_an_index_holds_the_cells_of_each_value_in_their_order() -> None:
    cells = np.random.default_rng(1).integers(-1, 3, 2000)
    index = CellIndex.of(cells, np.arange(0, 2001, 4), np.arange(501), 4)
    for value in range(4):
        held = index.places[index.value_starts[value] : index.value_starts[value + 1]]
        assert held.tolist() == np.flatnonzero(cells == value).tolist()
    asked = np.array([[2, -1], [3, 0]])
    assert index.counts(asked).tolist() == [[(cells == 2).sum(), 0], [0, (cells == 0).sum()]]

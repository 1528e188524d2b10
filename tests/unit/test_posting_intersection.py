"""Rows that have all values of a key, against looking at each row; and the search that is narrowed to them."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from unittest import mock

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from service.core import joinability
from service.core.canonical import value_keys
from service.core.cell_index import CellIndex
from service.core.joinability import IndexInMemory, narrowed, prepare, search
from service.core.posting_intersection import rows_with_keys
from service.core.records import starts_of
from service.core.row_filters import CountedBits

VALUES = 6
TABLES = st.lists(
    st.integers(1, 4).flatmap(
        lambda width: st.lists(st.lists(st.integers(-1, VALUES - 1), min_size=width, max_size=width), max_size=9)
    ),
    max_size=6,
)
KEYS = st.integers(1, 3).flatmap(
    lambda size: st.lists(st.tuples(*[st.integers(0, VALUES - 1)] * size), min_size=1, max_size=9)
)


def index_of(tables: list[list[list[int]]]) -> CellIndex:
    rows = [row for table in tables for row in table]
    cells = np.array([cell for row in rows for cell in row], np.int64)
    widths, heights = (np.array(list(map(len, part)), np.int64) for part in (rows, tables))
    return CellIndex.of(cells, starts_of(widths), starts_of(heights), VALUES)


@given(TABLES, KEYS)
@example([[[0], [1]]], [(1,)])  # the second row is the first of its value
def test_rows_that_have_all_values_of_a_key(tables, keys) -> None:
    index = index_of(tables)
    values = np.unique(np.array(keys))
    rows, found_tables, found_keys = rows_with_keys(np.array(keys), values, index.postings(values))
    every = [(row, table) for table, rows in enumerate(tables) for row in rows]
    assert list(zip(found_keys.tolist(), rows.tolist(), found_tables.tolist(), strict=True)) == [
        (number, place, table)
        for number, key in enumerate(keys)
        for place, (row, table) in enumerate(every)
        if set(key) <= set(row)
    ]


@given(TABLES, KEYS)
@example([[[0, 1], [0, 1], [0, 1]]], [(0, 1), (1, 0)])  # rows alike, that may have either key
def test_of_postings_those_are_left_whose_rows_may_have_a_key_each_once(tables, keys) -> None:
    index = index_of(tables)
    searched = IndexInMemory(index, CountedBits.of(index, value_keys([str(value) for value in range(VALUES)])))
    query = prepare(searched, np.array(keys))
    left, bounds = narrowed(searched, query)
    every = [(table, place, row) for table, rows in enumerate(tables) for place, row in enumerate(rows)]
    initial = np.repeat(np.arange(len(query.values)), np.diff(query.starts)).tolist()
    wanted: dict[int, set[tuple[int, int]]] = defaultdict(set)
    of_table: dict[int, set[tuple[int, ...]]] = defaultdict(set)
    for number, (table, _, row) in enumerate(every):
        for key, place in zip(map(tuple, query.keys.tolist()), initial, strict=True):
            if set(key) <= set(row):
                wanted[table].add((number, place))
                of_table[table].add(key)
    of_each = [
        list(zip(left.rows[start:end].tolist(), left.values[start:end].tolist(), strict=True))
        for start, end in pairwise(left.starts.tolist())
    ]
    assert dict(zip(left.tables.tolist(), of_each, strict=True)) == {t: sorted(found) for t, found in wanted.items()}
    rows_of = {table: len({number for number, _ in found}) for table, found in wanted.items()}
    most = [min(rows_of[table], len(of_table[table])) for table in left.tables.tolist()]
    assert bounds.tolist() == most == sorted(most, reverse=True)


@given(TABLES, KEYS, st.integers(1, 4), st.sampled_from([1, 3, 1024]))
def test_a_narrowed_search_finds_what_the_paper_s_finds(tables, keys, k, at_once) -> None:
    index = index_of(tables)
    searched = IndexInMemory(index, CountedBits.of(index, value_keys([str(value) for value in range(VALUES)])))
    with mock.patch.object(joinability, "FIRST_POSTINGS", at_once):
        narrow = search(searched, np.array(keys), k)
    assert narrow == search(searched, np.array(keys), k, narrow=False)

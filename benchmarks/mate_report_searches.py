"""Own the searches that MATE is compared with, SCR and MCR (7.1.1), and what filters let reach the exact comparison.

All are Algorithm 1 with the same ranks, table filters and initial column. They differ in how they come by the pairs of
a row and a key whose best mapping is then looked for: by super keys, or by comparing the cells of each row (SCR), of
rows first found in the postings of all key columns (MCR).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass
from time import process_time
from typing import NamedTuple

import numpy as np
from numba import njit

from service.core.cell_index import CellIndex, Postings
from service.core.joinability import Joinable, Query, Retrieved, Rows, best_mapping, prepare, retrieve, row_filter
from service.core.records import Flags, Int64s
from service.core.row_filters import RowFilter

Pairs = tuple[Int64s, Int64s]
"""Rows, and the number of a key of the query for each."""


@dataclass(frozen=True, slots=True)
class Others:
    """Be the cells of a corpus without the table that asks: that it joins with itself is known."""

    cells: CellIndex
    table: int

    def counts(self, values: Int64s) -> Int64s:
        """Give how many postings values have, the asking table's included: an index knows no more."""
        return self.cells.counts(values)

    def postings(self, values: Int64s) -> Postings:
        """Fetch the postings of values."""
        found = self.cells.postings(values)
        other = found.tables != self.table
        return Postings(*(part[other] for part in found))


@dataclass(frozen=True, slots=True)
class Intersected:
    """Be the cells of the rows that have a value of each key column, by the postings of all of them (MCR)."""

    others: Others
    in_all: Flags

    @staticmethod
    def of(others: Others, keys: Int64s) -> Intersected:
        """Fetch the postings of all key columns."""
        rows = len(others.cells.row_starts) - 1
        in_all = np.ones(rows, np.bool_)
        for column in keys.T:
            has = np.zeros(rows, np.bool_)
            has[others.postings(np.unique(column)).rows] = True
            in_all &= has
        return Intersected(others, in_all)

    def postings(self, values: Int64s) -> Postings:
        """Fetch the postings of values."""
        found = self.others.postings(values)
        kept = self.in_all[found.rows]
        return Postings(*(part[kept] for part in found))


class Looked(NamedTuple):
    """Hold an answer, and the pairs whose cells had to be compared for it; `keys` are the query's, in its order.

    `fetching` is how many seconds of CPU it took to prepare the query and fetch its postings.
    """

    best: list[Joinable]
    keys: Int64s
    pairs: list[Pairs]
    fetching: float


def by_super_keys(others: Others, rows: RowFilter, keys: Int64s, k: int) -> Looked:
    """Search with a row filter: MATE."""
    started = process_time()
    query = prepare(others, keys)
    found = retrieve(others, query)
    fetching = process_time() - started
    of_keys = rows.of_keys(query.keys)

    def pairs(values: Int64s, of_values: Int64s, table: int, least: int) -> Pairs:
        return row_filter(values, of_values, query.starts, of_keys[rows.classes[table]], rows.rows, least)

    return _search(others.cells, query, found, k, pairs, fetching)


def by_one_column(others: Others, keys: Int64s, k: int) -> Looked:
    """Search by comparing the cells of the rows that one key column finds: SCR."""
    started = process_time()
    query = prepare(others, keys)
    found = retrieve(others, query)
    fetching = process_time() - started
    return _search(others.cells, query, found, k, _comparing(others.cells, query), fetching)


def by_all_columns(others: Others, keys: Int64s, k: int) -> Looked:
    """Search by comparing the cells of the rows that all key columns find: MCR."""
    started = process_time()
    query = prepare(others, keys)
    found = retrieve(Intersected.of(others, query.keys), query)
    fetching = process_time() - started
    return _search(others.cells, query, found, k, _comparing(others.cells, query), fetching)


def without_filter(others: Others, keys: Int64s, k: int) -> Looked:
    """Search with all pairs of the initial column: what there is to filter."""
    query = prepare(others, keys)

    def pairs(values: Int64s, of_values: Int64s, table: int, least: int) -> Pairs:
        counts = np.diff(query.starts)[values]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(of_values, counts), np.repeat(query.starts[values], counts) + within

    return _search(others.cells, query, retrieve(others, query), k, pairs)


def joining(cells: CellIndex, looked: Looked) -> tuple[int, int]:
    """Count the pairs whose cells were compared: those that join, and those that do not."""
    join = sum(int(_join(*pairs, looked.keys, cells.cells, cells.row_starts)) for pairs in looked.pairs)
    return join, sum(len(rows) for rows, _ in looked.pairs) - join


def _comparing(cells: CellIndex, query: Query) -> Callable[[Int64s, Int64s, int, int], Pairs]:
    def pairs(values: Int64s, of_values: Int64s, table: int, least: int) -> Pairs:
        return _compare(values, of_values, query.starts, query.keys, cells.cells, cells.row_starts, least)

    return pairs


def _search(
    cells: CellIndex,
    query: Query,
    found: Retrieved,
    k: int,
    pairs: Callable[[Int64s, Int64s, int, int], Pairs],
    fetching: float = 0.0,
) -> Looked:
    best: list[tuple[int, Joinable]] = []
    looked = []
    rows = Rows(found.rows[:0], np.empty((0, 0), np.uint64), cells.row_starts, cells.cells)
    for t, table in enumerate(found.tables.tolist()):
        least = 1
        if len(best) == k:
            order, last = best[-1]
            least = -order if table < last.table else 1 - order
        first, end = found.starts[t : t + 2].tolist()
        if end - first < least:
            break
        of_table = pairs(found.values[first:end], found.rows[first:end], table, least)
        looked.append(of_table)
        mapping = best_mapping(rows, of_table[0], query.keys[of_table[1]], of_table[1], least)
        if mapping.joinability >= least:
            insort(best, (-mapping.joinability, Joinable(table, mapping.columns, mapping.joinability)))
            del best[k:]
    return Looked([joinable for _, joinable in best], query.keys, looked, fetching)


@njit(cache=True)
def _compare(
    values: Int64s, rows: Int64s, starts: Int64s, keys: Int64s, cells: Int64s, row_starts: Int64s, least: int
) -> Pairs:
    """Give the pairs that join, as `row_filter` gives those that may."""
    found_rows, found_keys = [0 for _ in range(0)], [0 for _ in range(0)]
    can_match = len(values)
    for at in range(len(values)):
        row, joins = rows[at], False
        for key in range(starts[values[at]], starts[values[at] + 1]):
            if _has(keys[key], cells[row_starts[row] : row_starts[row + 1]]):
                joins = True
                found_rows.append(row)
                found_keys.append(key)
        can_match -= not joins
        if can_match < least:
            return np.empty(0, np.int64), np.empty(0, np.int64)
    return np.array(found_rows, np.int64), np.array(found_keys, np.int64)


@njit(cache=True)
def _join(rows: Int64s, matched: Int64s, keys: Int64s, cells: Int64s, row_starts: Int64s) -> int:
    joining = 0
    for pair in range(len(rows)):
        row = rows[pair]
        joining += _has(keys[matched[pair]], cells[row_starts[row] : row_starts[row + 1]])
    return joining


@njit(cache=True)
def _has(key: Int64s, row: Int64s) -> bool:
    """Say whether a row has all values of a key, each in a column of its own."""
    for value in key:
        lacking = 0
        for other in key:
            lacking += other == value
        for cell in row:
            lacking -= cell == value
        if lacking > 0:
            return False
    return True

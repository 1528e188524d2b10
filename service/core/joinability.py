"""Own the search for the tables that join with a query on several columns at once (MATE, Algorithm 1).

A query is n distinct combinations of key values, int64[n, |Q|] of value ids. A table's joinability is the largest
number of them that its rows have in some |Q| different columns, one for each key column (Equation 2); these columns are
the mapping, of equal ones the first in lexicographic order. Tables rank by joinability, equals by their number.

A row matches at most one combination under a mapping, so that a table's postings bound its joinability, and both table
filters lose nothing. The paper drops a table whose bound equals the k-th joinability; here the table's number decides.

How long the best mapping takes to find is exponential in the worst case. A search may bound that: `Ranking.unfinished`.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol

import numpy as np

from service.core.cell_index import CellIndex, Postings
from service.core.compiled import kernel
from service.core.posting_intersection import rows_with_keys
from service.core.records import Int64s, UInt64s, distinct_of, starts_of
from service.core.row_filters import RowFilter

MOST_PAIRS = 1_000_000_000
"""Pairs of row and key that the mapping of one table may cost where searches are bounded: a few seconds."""

MOST_NARROWED = 30_000_000
"""Postings of all key columns that are intersected, some GB; of more only those of the initial column are fetched."""

FIRST_POSTINGS, POSTINGS_AT_ONCE = 1024, 8192
"""Rows are asked for so many postings at a time, first and at most, in whole tables: a statement, where they are in a
store. The first tables often leave no others to look at."""


class Initial(StrEnum):
    """Name how the column is chosen whose postings are fetched: fewest in the index, or fewest values (section 6.1)."""

    POSTINGS = "postings"
    CARDINALITY = "cardinality"


class Joinable(NamedTuple):
    """Hold a table of the answer: the column that each key column is mapped to, and how many keys join."""

    table: int
    columns: tuple[int, ...]
    joinability: int


class Matched(NamedTuple):
    """Hold what of a query a table has under its mapping: the first row of each key, in the order of the rows.

    `rows` are their numbers in the index and `keys` places in the query, of as many as are to be shown; `weight` is
    that of all keys that join.
    """

    rows: Int64s
    keys: Int64s
    weight: int


class Ranking(NamedTuple):
    """Hold the best tables, and those whose mapping was not searched to its end: they may join better than is said.

    `matched` tells of each best table what it has, where that was asked for.
    """

    best: list[Joinable]
    unfinished: list[int]
    matched: Mapping[int, Matched]


class Progress(NamedTuple):
    """Say how far a search is: `done` tables of `tables` that have postings, None before these are fetched.

    At most so many `postings` are fetched. `pairs` of row and key are what the row filter looks at in all of them.
    """

    postings: int
    pairs: int
    done: int
    tables: int | None


Telling = Callable[[Progress], None]
"""Hear how far a search is, first before any posting is fetched; what it raises ends the search."""


class BestMapping(NamedTuple):
    """Hold the mapping of most keys, and how many; where the search was ended by its bound, it may not be the best."""

    columns: tuple[int, ...]
    joinability: int
    is_best: bool


class Rows(NamedTuple):
    """Hold rows that are looked at; asked row i is the row places[i] of these.

    Their super keys are uint64[n, words], the cells of row r are at [starts[r]:starts[r + 1]].
    """

    places: Int64s
    super_keys: UInt64s
    starts: Int64s
    cells: Int64s


class JoinIndex(Protocol):
    """Give what the search asks for, as CellIndex and RowFilter have it; rows and tables by their numbers."""

    @property
    def classes(self) -> Int64s: ...
    def of_keys(self, keys: Int64s) -> UInt64s: ...
    def counts(self, values: Int64s) -> Int64s:
        """Give how many postings values have, at most; none for -1."""

    def postings(self, values: Int64s) -> Postings:
        """Give the postings of ascending values, each once: by value, and then by row."""

    def rows(self, numbers: Int64s) -> Rows: ...


class IndexInMemory(NamedTuple):
    """Be an index whose cells and super keys are all at hand."""

    cells: CellIndex
    filter: RowFilter

    @property
    def classes(self) -> Int64s:
        """Give the class of each table."""
        return self.filter.classes

    def of_keys(self, keys: Int64s) -> UInt64s:
        """Give the super keys of keys: uint64[classes, n, words]."""
        return self.filter.of_keys(keys)

    def counts(self, values: Int64s) -> Int64s:
        """Give how many postings values have."""
        return self.cells.counts(values)

    def postings(self, values: Int64s) -> Postings:
        """Fetch the postings of values."""
        return self.cells.postings(values)

    def rows(self, numbers: Int64s) -> Rows:
        """Give rows with all others."""
        return Rows(numbers, self.filter.rows, self.cells.row_starts, self.cells.cells)


class Query(NamedTuple):
    """Hold a query for its search: distinct keys by their value in the initial column.

    The keys of the initial column's distinct value v are [starts[v]:starts[v + 1]]. `places` are those at which each
    key was asked first.
    """

    keys: Int64s
    values: Int64s
    starts: Int64s
    places: Int64s


class Retrieved(NamedTuple):
    """Hold postings by table, tables with most postings first: those of tables[t] are at [starts[t]:starts[t + 1]].

    `values` are places in the query's values.
    """

    tables: Int64s
    starts: Int64s
    values: Int64s
    rows: Int64s


def initial_column(keys: Int64s, counts: Int64s, by: Initial = Initial.POSTINGS) -> int:
    """Choose the key column to fetch; `counts`, int64[n, |Q|], are the postings of the keys' values."""
    costs = []
    for column, of_column in zip(keys.T, counts.T, strict=True):
        _, first = np.unique(column, return_index=True)
        costs.append(len(first) if by is Initial.CARDINALITY else of_column[first].sum())
    return int(np.argmin(costs))


def top_joinable(
    index: CellIndex, rows: RowFilter, keys: Int64s, k: int, initial: Initial = Initial.POSTINGS
) -> list[Joinable]:
    """Search an index in memory as the paper does, without a bound; see `search`."""
    return search(IndexInMemory(index, rows), keys, k, initial, most=None, narrow=False).best


def untold(_: Progress) -> None:
    """Tell nobody."""


def search(
    index: JoinIndex,
    keys: Int64s,
    k: int,
    initial: Initial = Initial.POSTINGS,
    most: int | None = MOST_PAIRS,
    *,
    narrow: bool = True,
    floor: int = 1,
    shown: int = 0,
    weights: Int64s | None = None,
    tell: Telling = untold,
) -> Ranking:
    """Give the k tables of highest joinability, none below `floor` (from 1).

    With `weights`, int64[n] of the keys, it is told of each what it has, and `shown` rows of it.
    Keys may repeat; one with an empty cell or a value that the index does not have, -1, joins nothing. `most` bounds
    the work for the mapping of each table (None: it is not bounded). With `narrow` the postings of all key columns are
    asked for, while they are at most MOST_NARROWED; the paper asks for those of one. Raises ValueError for k < 1 and
    for a query without key columns.
    """
    if k < 1:
        raise ValueError(f"k = {k}: at least one table can be asked for")
    if not keys.shape[1]:
        raise ValueError("no key column: name at least one")
    query = prepare(index, keys, initial)
    counts = index.counts(query.values)
    postings = int(counts.sum())
    if narrow:
        of_all = int(index.counts(distinct_of(query.keys)).sum())
        narrow = of_all <= MOST_NARROWED
        postings = of_all if narrow else postings
    work = postings, int((counts * np.diff(query.starts)).sum())
    tell(Progress(*work, 0, None))
    super_keys = index.of_keys(query.keys)
    if narrow:
        found, bounds = narrowed(index, query)
    else:
        found = retrieve(index, query)
        bounds = np.diff(found.starts)
    best: list[tuple[int, Joinable]] = []
    told: dict[int, Matched] = {}
    unfinished = []
    first_asked = asked = 0
    at_once = FIRST_POSTINGS
    rows = index.rows(found.rows[:0])
    for t, table in enumerate(found.tables.tolist()):
        tell(Progress(*work, t, len(found.tables)))
        least = floor
        if len(best) == k:
            order, last = best[-1]
            least = max(floor, -order if table < last.table else 1 - order)
        first, end = found.starts[t : t + 2].tolist()
        if bounds[t] < least:
            break  # all that follow have fewer, or as many and a higher number
        if end > asked:
            behind = np.searchsorted(found.starts, first + at_once, "right") - 1
            at_once = min(2 * at_once, POSTINGS_AT_ONCE)
            first_asked, asked = first, int(found.starts[max(behind, t + 1)])
            rows = index.rows(found.rows[first_asked:asked])
        of_keys = super_keys[index.classes[table]]
        places = rows.places[first - first_asked : end - first_asked]
        passed, matched = row_filter(found.values[first:end], places, query.starts, of_keys, rows.super_keys, least)
        columns, joinability, is_best = best_mapping(rows, passed, query.keys[matched], matched, least, most)
        if not is_best:
            unfinished.append(table)
        if joinability >= least:
            insort(best, (-joinability, Joinable(table, columns, joinability)))
            del best[k:]
            if weights is not None:
                has_rows, has_keys = first_matches(rows, passed, query.keys[matched], matched, columns)
                by_place = np.argsort(places, kind="stable")
                at = by_place[np.searchsorted(places, has_rows[:shown], sorter=by_place)]
                asked_at = query.places[has_keys]
                told[table] = Matched(found.rows[first:end][at], asked_at[:shown], int(weights[asked_at].sum()))
    ranked = [joinable for _, joinable in best]
    return Ranking(ranked, unfinished, {} if weights is None else {one.table: told[one.table] for one in ranked})


def prepare(index: JoinIndex, keys: Int64s, initial: Initial = Initial.POSTINGS) -> Query:
    """Choose the initial column, and order the keys by it (section 6.1)."""
    present = np.flatnonzero((keys >= 0).all(1))
    keys, first = np.unique(keys[present], axis=0, return_index=True)
    asked = initial_column(keys, index.counts(keys), initial)
    order = np.argsort(keys[:, asked], kind="stable")
    keys = keys[order]
    values, counts = np.unique(keys[:, asked], return_counts=True)
    return Query(keys, values, starts_of(counts), present[first[order]])


def retrieve(index: JoinIndex, query: Query) -> Retrieved:
    """Fetch the postings of the initial column, and sort the tables by how many they have, equals by their number."""
    values, rows, tables = index.postings(query.values)
    order = np.argsort(tables, kind="stable")
    every, starts, counts = np.unique(tables[order], return_index=True, return_counts=True)
    ranked = np.argsort(-counts, kind="stable")
    order = order[np.repeat(starts[ranked] - starts_of(counts[ranked])[:-1], counts[ranked]) + np.arange(len(order))]
    return Retrieved(every[ranked], starts_of(counts[ranked]), values[order], rows[order])


def narrowed(index: JoinIndex, query: Query) -> tuple[Retrieved, Int64s]:
    """Fetch the postings of all columns, and keep those of the initial one whose rows have all values of some key.

    No table has more keys than are given with it, int64[tables], and the tables with most of these come first.
    """
    values = distinct_of(query.keys)
    rows, tables, keys = rows_with_keys(query.keys, values, index.postings(values))
    every, of = np.unique(tables, return_inverse=True)
    _, first = np.unique(rows, return_index=True)
    is_new = np.ones(len(keys), np.bool_)
    is_new[1:] = (keys[1:] != keys[:-1]) | (tables[1:] != tables[:-1])
    bounds = np.minimum(*(np.bincount(of[which], minlength=len(every)) for which in (first, is_new)))
    ranked = np.argsort(-bounds, kind="stable")
    rank = np.argsort(ranked)[of]
    initial = np.repeat(np.arange(len(query.values)), np.diff(query.starts))[keys]
    order = np.lexsort((initial, rows, rank))
    rank, rows, initial = rank[order], rows[order], initial[order]
    is_new[1:] = (rows[1:] != rows[:-1]) | (initial[1:] != initial[:-1])
    starts = np.searchsorted(rank[is_new], np.arange(len(every) + 1))
    return Retrieved(every[ranked], starts, initial[is_new], rows[is_new]), bounds[ranked]


@kernel
def row_filter(
    values: Int64s, rows: Int64s, starts: Int64s, of_keys: UInt64s, of_rows: UInt64s, least: int
) -> tuple[Int64s, Int64s]:
    """Give the pairs (row, key) of a table's postings in which the row's super key has all bits of the key's.

    None where fewer than `least` postings can have one, which the second table filter sees on the way (section 6.2).
    """
    found_rows, found_keys = [0 for _ in range(0)], [0 for _ in range(0)]
    can_match = len(values)
    for at in range(len(values)):
        passed = False
        for key in range(starts[values[at]], starts[values[at] + 1]):
            lacking = np.uint64(0)
            for word in range(of_keys.shape[1]):
                lacking |= of_keys[key, word] & ~of_rows[rows[at], word]
            if not lacking:
                passed = True
                found_rows.append(rows[at])
                found_keys.append(key)
        can_match -= not passed
        if can_match < least:
            return np.empty(0, np.int64), np.empty(0, np.int64)
    return np.array(found_rows, np.int64), np.array(found_keys, np.int64)


def best_mapping(
    looked_at: Rows, rows: Int64s, keys: Int64s, numbers: Int64s, least: int = 1, most: int | None = None
) -> BestMapping:
    """Give the mapping by which most distinct keys are in their rows, and their number; 0 where fewer than `least`.

    Rows are of one table; row i may have the key keys[i], of which `numbers` tells equal ones. A branch of mappings is
    left as soon as the pairs that are left in it have no more keys than the best found. After looking `most` times
    at a pair the best so far is given.
    """
    order = np.argsort(numbers, kind="stable")
    columns, joinability, is_best = _best_mapping(
        looked_at.cells, looked_at.starts, rows[order], keys[order], numbers[order], least - 1,
        np.iinfo(np.int64).max if most is None else most,
    )  # fmt: skip
    return BestMapping(tuple(columns.tolist()), int(joinability), bool(is_best))


def first_matches(
    looked_at: Rows, rows: Int64s, keys: Int64s, numbers: Int64s, columns: tuple[int, ...]
) -> tuple[Int64s, Int64s]:
    """Give the first row of each key that is there under a mapping, and the key's number, in the order of the rows.

    Pairs are as best_mapping has them.
    """
    at = looked_at.starts[rows][:, None] + np.array(columns, np.int64)
    inside = at < looked_at.starts[rows + 1][:, None]
    pairs = np.flatnonzero((inside & (looked_at.cells[np.where(inside, at, 0)] == keys)).all(axis=1))
    pairs = pairs[np.argsort(rows[pairs], kind="stable")]
    _, first = np.unique(numbers[pairs], return_index=True)
    chosen = pairs[np.sort(first)]
    return rows[chosen], numbers[chosen]


@kernel
def _best_mapping(
    cells: Int64s, row_starts: Int64s, rows: Int64s, keys: Int64s, numbers: Int64s, reached: int, most: int
) -> tuple[Int64s, int, bool]:
    pairs, size = keys.shape
    width = 0
    for row in rows:
        width = max(width, row_starts[row + 1] - row_starts[row])
    left = np.ones((size + 1, pairs), np.bool_)
    tried, best = np.full(size + 1, -1, np.int64), np.full(size, -1, np.int64)
    joinability = depth = looks = 0
    while depth >= 0:
        tried[depth] += 1
        column = tried[depth]
        if column >= width:
            depth -= 1
            continue
        if (tried[:depth] == column).any():
            continue
        looks += pairs
        if looks > most:
            return best, joinability, False
        distinct, last = 0, -1
        for i in range(pairs):
            here = row_starts[rows[i]] + column
            has = left[depth, i] and here < row_starts[rows[i] + 1] and cells[here] == keys[i, depth]
            left[depth + 1, i] = has
            if has and numbers[i] != last:
                distinct += 1
                last = numbers[i]
        if distinct <= reached:
            continue
        if depth + 1 < size:
            depth += 1
            tried[depth] = -1
        else:
            reached = joinability = distinct
            best[:] = tried[:size]
    return best, joinability, True

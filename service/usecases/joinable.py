"""Own the question which tables of a corpus join with given rows on several columns at once (MATE)."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from service.core.canonical_arrow import key_array
from service.core.errors import SourceError
from service.core.joinability import MOST_PAIRS, JoinIndex, Ranking, search
from service.core.records import Int64s, Keys


class IndexedTable(NamedTuple):
    """Name a table of a segment: its number in the corpus, its path, and its columns."""

    number: int
    path: str
    names: Sequence[str]


class Segment(JoinIndex, Protocol):
    """Be an index of some tables of a corpus, in the order of their paths; values are asked for before all else."""

    def numbers(self, keys: Keys) -> Int64s:
        """Give the numbers of values, -1 for those that are nowhere; keys by ascending order, each once."""

    def tables(self, places: Sequence[int]) -> Mapping[int, IndexedTable]:
        """Name tables by their places in the segment."""


class JoinSnapshot(Protocol):
    """Hold what one search sees: segments, and the generation of the corpus that they are of."""

    @property
    def generation(self) -> int: ...
    @property
    def built_at(self) -> datetime: ...
    @property
    def segments(self) -> Sequence[Segment]: ...


class JoinIndexes(Protocol):
    """Open the index of a corpus."""

    def snapshot(self, corpus: str) -> AbstractContextManager[JoinSnapshot]:
        """Open it; raise NotFoundError where there is no such corpus, or no index of it."""


class JoinQuery(NamedTuple):
    """Hold the key cells of n rows, one list for each key column."""

    columns: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class JoinableTable:
    """Hold a table that joins: the column for each key column, by position from 0 and name, and how many keys join.

    `share` is of the query's distinct keys.
    """

    table: str
    positions: tuple[int, ...]
    columns: tuple[str, ...]
    matched_keys: int
    share: float


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """Hold the tables that join best, equals by their paths.

    `keys` counts the distinct keys that were asked, `empty` the rows that an empty key cell leaves out. The mappings of
    tables that are `unfinished` were not searched to their end: these may join with more keys than is said, or be
    missing.
    """

    generation: int
    built_at: datetime
    rows: int
    keys: int
    empty: int
    tables: Sequence[JoinableTable]
    unfinished: Sequence[str]


def read_query(lines: Iterable[str], key: Sequence[str]) -> JoinQuery:
    """Read the key columns of a CSV with a header. Raises SourceError for columns that it has not, or not once."""
    csv.field_size_limit(sys.maxsize)
    rows = csv.reader(lines, strict=True)
    found: list[list[str]] = [[] for _ in key]
    try:
        header = next((row for row in rows if row), None)
        if header is None:
            raise SourceError("There is no line in it, not even a header.")
        places = _places(header, key)
        for row in rows:
            if row and len(row) != len(header):
                raise SourceError(f"Line {rows.line_num}: the row has {len(row)} cells, the header {len(header)}.")
            for column, place in zip(found, places, strict=True):
                if row:
                    column.append(row[place])
    except (csv.Error, UnicodeDecodeError) as error:
        raise SourceError(f"Line {rows.line_num + 1}: it cannot be read as CSV in UTF-8: {error}.") from error
    return JoinQuery(found)


def find_joinable(
    indexes: JoinIndexes, corpus: str, query: JoinQuery, k: int, most: int | None = MOST_PAIRS
) -> JoinAnswer:
    """Give the k tables of a corpus that join with most distinct keys of a query; see core.joinability.search.

    Raises NotFoundError, and SourceError for a query that cannot be asked.
    """
    if k < 1:
        raise SourceError(f"k = {k}: at least one table can be asked for.")
    if not query.columns:
        raise SourceError("No key column is named: give at least one.")
    texts = pa.concat_arrays([pa.array(column, pa.large_string()) for column in query.columns]).dictionary_encode()
    codes = texts.indices.to_numpy().astype(np.int64).reshape(len(query.columns), -1).T
    halves = key_array(texts.dictionary)
    keys = Keys(halves[:, 0].copy(), halves[:, 1].copy())
    has_text = np.array([bool(text) for text in texts.dictionary.to_pylist()], np.bool_)
    asked = codes[has_text[codes].all(axis=1)]
    distinct = np.unique(asked, axis=0)
    order = keys.order()
    ranked: list[JoinableTable] = []
    unfinished: list[str] = []
    with indexes.snapshot(corpus) as snapshot:
        for segment in snapshot.segments:
            numbers = np.empty(len(order), np.int64)
            numbers[order] = segment.numbers(keys.take(order))
            ranking = search(segment, numbers[distinct], k, most=most)
            tables = segment.tables(_named(ranking))
            unfinished += [tables[place].path for place in ranking.unfinished]
            for found in ranking.best:
                table = tables[found.table]
                columns = tuple(table.names[column] for column in found.columns)
                share = found.joinability / len(distinct)
                ranked.append(JoinableTable(table.path, found.columns, columns, found.joinability, share))
    ranked.sort(key=lambda each: (-each.matched_keys, each.table))
    return JoinAnswer(
        snapshot.generation,
        snapshot.built_at,
        len(codes),
        len(distinct),
        len(codes) - len(asked),
        ranked[:k],
        sorted(unfinished),
    )


def _named(ranking: Ranking) -> list[int]:
    return sorted({*ranking.unfinished, *(found.table for found in ranking.best)})


def _places(header: Sequence[str], key: Sequence[str]) -> list[int]:
    """Find the key columns by their names."""
    if not key:
        raise SourceError("No key column is named: give at least one.")
    for name in key:
        if header.count(name) != 1:
            has = "has no column" if name not in header else "has more than one column"
            raise SourceError(f"The file {has} {name!r}. Its columns are {', '.join(map(repr, header))}.")
        if list(key).count(name) > 1:
            raise SourceError(f"The key column {name!r} is named twice.")
    return [header.index(name) for name in key]

"""Own the question which tables join with given rows on several columns at once (MATE): a corpus', or tracked ones."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from service.core.canonical_arrow import key_array
from service.core.column_filters import are_null_tokens
from service.core.csv_lines import csv_reader
from service.core.errors import SourceError
from service.core.joinability import MOST_PAIRS, JoinIndex, Matched, Progress, Ranking, Telling, search, untold
from service.core.near_matches import Near, folded
from service.core.records import Int64s, Keys

MOST_TABLES = 1000
"""Tables of an answer."""
MOST_KEY_COLUMNS = 10
DEFAULT_TABLES = 10
DEFAULT_PREVIEW = 3
TOLD, TOLD_CHARACTERS = 20, 60
"""What is told of the names of a file's columns."""
CELL_CHARACTERS = 200
"""What is shown of a cell."""
READ_AT_ONCE = 1 << 16
"""Rows of a query that are held as texts of Python until they are packed."""


class IndexedTable(NamedTuple):
    """Name a table of a segment: its number in the corpus, its path, and its columns."""

    number: int
    path: str
    names: Sequence[str]


class ShownRow(NamedTuple):
    """Hold a row for a preview: its number in its table, from 0, where its cells lie in a file; else the cells."""

    number: int | None
    cells: Sequence[str | None] | None


class Segment(JoinIndex, Protocol):
    """Be an index of some tables, in the order of their paths; values are asked for before all else."""

    def numbers(self, keys: Keys) -> Int64s:
        """Give the numbers of values, -1 for those that are nowhere; keys by ascending order, each once."""

    def tables(self, places: Sequence[int]) -> Mapping[int, IndexedTable]:
        """Name tables by their places in the segment."""

    def show(self, place: int, rows: Int64s) -> Sequence[ShownRow]:
        """Give rows of a table; of cells at most the first `CELL_CHARACTERS` are needed."""


class JoinSnapshot(Protocol):
    """Hold what one search sees: segments, of which generation of a corpus or version of the state, and what is near.

    `null_tokens` are texts that stand for NULL, before anything is folded. `not_indexed` names tables that have no
    index yet.
    """

    @property
    def generation(self) -> int | None: ...
    @property
    def version(self) -> int | None: ...
    @property
    def built_at(self) -> datetime: ...
    @property
    def near(self) -> frozenset[Near]: ...
    @property
    def null_tokens(self) -> Sequence[str]: ...
    @property
    def segments(self) -> Sequence[Segment]: ...
    @property
    def not_indexed(self) -> Sequence[str]: ...


class JoinIndexes(Protocol):
    """Open the index of a corpus."""

    def snapshot(self, corpus: str) -> AbstractContextManager[JoinSnapshot]:
        """Open it; raise NotFoundError where there is no such corpus, or no index of it."""


class JoinQuery(NamedTuple):
    """Hold the key cells of n rows, one list or Arrow's array of texts for each key column."""

    columns: Sequence[Sequence[str] | pa.ChunkedArray]

    def texts(self) -> list[pa.Array]:
        """Give each column as one array."""
        return [
            column.combine_chunks() if isinstance(column, pa.ChunkedArray) else pa.array(column, pa.large_string())
            for column in self.columns
        ]


class JoinQuestion(NamedTuple):
    """Say what is asked of a query: the best `k` tables, or all that have a share of its distinct keys, at most k.

    The tables are those of a corpus, or the tracked ones that are indexed where `corpus` is None. `preview` rows of
    each table are shown, and up to `through` other tables that it leads to. `near`, if it is said, has to be what the
    index folds its cells by; of tracked tables it may be numbers.
    """

    corpus: str | None
    k: int | None = None
    min_share: Fraction | None = None
    preview: int = 0
    through: int = 0
    near: Sequence[Near] | None = None


@dataclass(frozen=True, slots=True)
class PreviewRow:
    """Show a row of a table, from 0, that has a key of the query; the rows of tracked tables have no numbers.

    `values` are those of the table's new columns, None while they were not read.
    """

    row: int | None
    key: tuple[str, ...]
    values: tuple[str | None, ...] | None = None


class LeadReason(StrEnum):
    """Say why a table leads to another one: a foreign key that was accepted, or is suggested, or an IND. Best first."""

    ACCEPTED = "accepted"
    SUGGESTED = "suggested"
    IND = "ind"


@dataclass(frozen=True, slots=True)
class LeadsTo:
    """Name another table that columns of ours refer to, or whose column holds all values of ours.

    `through` are our columns, `columns` those that they lead to, side by side, with their positions from 0. `coverage`
    is the share of the others' distinct values that ours have; None where tuples are not followed.
    """

    table: str
    reason: LeadReason
    through: tuple[str, ...]
    through_positions: tuple[int, ...]
    columns: tuple[str, ...]
    positions: tuple[int, ...]
    coverage: float | None


@dataclass(frozen=True, slots=True)
class JoinableTable:
    """Hold a table that joins: the column for each key column, by position from 0 and name, and how many keys join.

    `share` is of the query's distinct keys; `matched_rows` are the query's rows that have one of these, `row_share` is
    their share of all of its rows. `new_columns` are all others, which a join would add. `preview` has the
    first row of some keys, in the order of the rows; where their values could not be read, `preview_fault` says why.
    `leads_to` is None where it was not asked for, or the generation that is indexed is not kept any more.
    """

    table: str
    columns: tuple[str, ...]
    matched_keys: int
    share: float
    positions: tuple[int, ...]
    matched_rows: int
    row_share: float
    new_columns: tuple[str, ...] = ()
    preview: tuple[PreviewRow, ...] = ()
    preview_fault: str | None = None
    leads_to: tuple[LeadsTo, ...] | None = None


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """Hold the tables that join best, equals by their paths; cells were compared as folded by `near`.

    Searched was a `generation` of a corpus, or a `version` of the state, in which tables may be `not_indexed` yet.
    `keys` counts the distinct keys that were asked, `empty` the rows that an empty key cell leaves out. `is_cut` says
    that more tables reach the least share than are listed. The mappings of tables that are `unfinished` were not
    searched to their end: these may join with more keys than is said, or be missing.
    """

    generation: int | None
    version: int | None
    built_at: datetime
    near: Sequence[Near]
    rows: int
    keys: int
    empty: int
    is_cut: bool
    tables: Sequence[JoinableTable]
    unfinished: Sequence[str]
    not_indexed: Sequence[str] = ()


def read_query(lines: Iterable[str], key: Sequence[str], most_rows: int | None = None) -> JoinQuery:
    """Read the key columns of a CSV with a header.

    Raises SourceError for columns that it has not, or not once, for bad CSV, and for more than `most_rows` rows.
    """
    rows = csv_reader(lines, strict=True)
    found: list[list[str]] = [[] for _ in key]
    packed: list[list[pa.Array]] = [[] for _ in key]
    count = 0

    def pack() -> None:
        for column, chunks in zip(found, packed, strict=True):
            chunks.append(pa.array(column, pa.large_string()))
            column.clear()

    try:
        header = next((row for row in rows if row), None)
        if header is None:
            raise SourceError("There is no line in it, not even a header.")
        places = key_places(header, key)
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                raise SourceError(f"Line {rows.line_num}: the row has {len(row)} cells, the header {len(header)}.")
            count += 1
            if most_rows is not None:
                require_rows(count, most_rows)
            for column, place in zip(found, places, strict=True):
                column.append(row[place])
            if not count % READ_AT_ONCE:
                pack()
        pack()
    except (csv.Error, UnicodeError) as error:
        raise SourceError(f"Line {rows.line_num + 1}: it cannot be read as CSV in UTF-8: {error}.") from error
    return JoinQuery([pa.chunked_array(chunks) for chunks in packed])


def find_joinable(
    snapshot: JoinSnapshot,
    query: JoinQuery,
    k: int | None = None,
    most: int | None = MOST_PAIRS,
    *,
    min_share: Fraction | None = None,
    preview: int = 0,
    near: Collection[Near] | None = None,
    tell: Telling = untold,
) -> JoinAnswer:
    """Give the tables that join with most distinct keys of a query; see core.joinability.search.

    The query's cells are folded by `near`; None: as those of the index. Rows of previews that lie in files have no
    values yet. Raises SourceError for what cannot be asked, and what `tell` raises.
    """
    asked_for = _asked_for(k, min_share)
    require_key(query.columns)
    # One more shows whether there are more.
    wanted = asked_for if min_share is None else asked_for + 1
    ranked: list[JoinableTable] = []
    unfinished: list[str] = []
    folding = snapshot.near if near is None else near
    keys = _keys_of(query, folding, snapshot.null_tokens)
    floor = 1 if min_share is None else max(1, math.ceil(min_share * len(keys.distinct)))
    telling = _AllSegments(len(snapshot.segments), tell)
    for segment in snapshot.segments:
        numbers = np.empty(len(keys.order), np.int64)
        numbers[keys.order] = segment.numbers(keys.of_texts.take(keys.order))
        asked = numbers[keys.distinct]
        ranking = search(
            segment, asked, wanted, most=most, floor=floor, shown=preview, weights=keys.counts, tell=telling.tell
        )
        telling.end()
        tables = segment.tables(_named(ranking))
        unfinished += [tables[place].path for place in ranking.unfinished]
        for found in ranking.best:
            table, matched = tables[found.table], ranking.matched[found.table]
            new = [place for place in range(len(table.names)) if place not in found.columns]
            ranked.append(
                JoinableTable(
                    table.path,
                    tuple(table.names[column] for column in found.columns),
                    found.joinability,
                    found.joinability / len(keys.distinct),
                    found.columns,
                    matched.weight,
                    matched.weight / keys.rows,
                    tuple(table.names[place] for place in new),
                    keys.preview(matched, segment.show(found.table, matched.rows), new),
                )
            )
    ranked.sort(key=lambda each: (-each.matched_keys, each.table))
    return JoinAnswer(
        snapshot.generation,
        snapshot.version,
        snapshot.built_at,
        sorted(folding),
        keys.rows,
        len(keys.distinct),
        keys.rows - int(keys.counts.sum()),
        len(ranked) > asked_for and min_share is not None,
        ranked[:asked_for],
        sorted(unfinished),
        snapshot.not_indexed,
    )


class _AllSegments:
    """Tell how far a search of several segments is; one that is still to come counts as one table."""

    def __init__(self, segments: int, tell: Telling) -> None:
        self._to_come = segments
        self._before = self._here = 0
        self._tell = tell

    def tell(self, progress: Progress) -> None:
        """Tell of a segment."""
        if progress.tables is not None:
            self._here = progress.tables
            progress = progress._replace(
                done=self._before + progress.done, tables=self._before + self._here + self._to_come - 1
            )
        self._tell(progress)

    def end(self) -> None:
        """Go on to the next segment."""
        self._before, self._here, self._to_come = self._before + self._here, 0, self._to_come - 1


def cut(cell: str | None) -> str | None:
    """Give what is shown of a cell."""
    return cell and cell[:CELL_CHARACTERS]


class _Keys(NamedTuple):
    """Hold the distinct keys of a query, int64[n, |Q|], by the places of their texts, and how many rows have each.

    `order` sorts the texts' keys.
    """

    texts: pa.Array
    of_texts: Keys
    order: Int64s
    distinct: Int64s
    counts: Int64s
    rows: int

    def preview(self, matched: Matched, rows: Sequence[ShownRow], new_columns: Sequence[int]) -> tuple[PreviewRow, ...]:
        keys = (tuple(self.texts.take(pa.array(self.distinct[place])).to_pylist()) for place in matched.keys)
        return tuple(
            PreviewRow(
                row.number, key, None if row.cells is None else tuple(cut(row.cells[place]) for place in new_columns)
            )
            for row, key in zip(rows, keys, strict=True)
        )


def _keys_of(query: JoinQuery, near: Collection[Near], null_tokens: Sequence[str]) -> _Keys:
    columns = [
        folded(pc.if_else(are_null_tokens(column, tuple(null_tokens)), "", column) if null_tokens else column, near)
        for column in query.texts()
    ]
    texts = pa.concat_arrays(columns).dictionary_encode()
    codes = texts.indices.to_numpy().astype(np.int64).reshape(len(columns), -1).T
    halves = key_array(texts.dictionary)
    keys = Keys(halves[:, 0].copy(), halves[:, 1].copy())
    has_text = pc.not_equal(texts.dictionary, "").to_numpy(zero_copy_only=False)
    asked = codes[has_text[codes].all(axis=1)]
    distinct, counts = np.unique(asked, axis=0, return_counts=True)
    return _Keys(texts.dictionary, keys, keys.order(), distinct, counts, len(codes))


def require_askable(query: JoinQuery, question: JoinQuestion) -> None:
    """Raise SourceError for what cannot be asked."""
    require_key(query.columns)
    _asked_for(question.k, question.min_share)


def _asked_for(k: int | None, min_share: Fraction | None) -> int:
    """Give how many tables are asked for."""
    if min_share is not None and not 0 < min_share <= 1:
        raise SourceError(f"A least share of {float(min_share):g} cannot be asked for: it is above 0 and at most 1.")
    if k is None:
        return DEFAULT_TABLES if min_share is None else MOST_TABLES
    if k < 1:
        raise SourceError(f"k = {k}: at least one table can be asked for.")
    if k > MOST_TABLES:
        raise SourceError(f"k = {k}: at most {MOST_TABLES:,} tables can be asked for.")
    return k


def _named(ranking: Ranking) -> list[int]:
    return sorted({*ranking.unfinished, *(found.table for found in ranking.best)})


def require_key(key: Sequence[object]) -> None:
    """Raise SourceError for a number of key columns that cannot be asked."""
    if not key:
        raise SourceError("No key column is named: give at least one.")
    if len(key) > MOST_KEY_COLUMNS:
        raise SourceError(f"{len(key)} key columns are named: at most {MOST_KEY_COLUMNS} can be asked.")


def require_rows(rows: int, most: int) -> None:
    """Raise SourceError for more rows than can be asked."""
    if rows > most:
        raise SourceError(f"There are more than {most:,} rows, the most that are asked at once.")


def key_places(header: Sequence[str], key: Sequence[str]) -> list[int]:
    """Find the key columns by their names; raise SourceError for one that is not there, or not once."""
    require_key(key)
    for name in key:
        if header.count(name) != 1:
            has = "is no column" if name not in header else "are several columns"
            raise SourceError(f"There {has} {name!r}. The columns are {_listed(header)}.")
        if list(key).count(name) > 1:
            raise SourceError(f"The key column {name!r} is named twice.")
    return [header.index(name) for name in key]


def _listed(header: Sequence[str]) -> str:
    """List the first names, so that a file without a header is not told whole."""
    first = [repr(name if len(name) <= TOLD_CHARACTERS else f"{name[:TOLD_CHARACTERS]}...") for name in header[:TOLD]]
    return ", ".join([*first, "..."] if len(header) > TOLD else first)

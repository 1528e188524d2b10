"""Own the reading side of corpora: the SQL behind `CorpusSnapshot`, one transaction for one answer."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import Connection, Engine, Row, text

from service.core.column_filters import Reason
from service.core.corpus import CorpusSettings
from service.core.errors import NotFoundError
from service.store.copy_stream import HEADER
from service.store.corpus_landing import served_inds
from service.store.corpus_tables import read_tables
from service.usecases.corpora import (
    Change,
    ChangeKind,
    ColumnFilter,
    ColumnRef,
    Corpus,
    CorpusColumn,
    CorpusFault,
    CorpusInd,
    CorpusTable,
    PairAnswer,
    TableVersions,
)
from service.usecases.queries import TrivialPairError

if TYPE_CHECKING:
    from service.core.group_inds import Inds

Found = Sequence[Row[Any]]

ALL = ColumnFilter()

IS_VISIBLE = "t.corpus_id = :corpus_id and t.since <= :generation and (t.until is null or t.until > :generation)"

LOADS = """
select load_id from corpus_load
where corpus_id = :corpus_id and generation <= :generation and (gone is null or gone > :generation) order by load_id
"""

COUNTS = f"""
select count(*) as tables, coalesce(sum(column_count), 0)::bigint as columns,
       (select (report ->> 'inds')::bigint from corpus_refresh
        where corpus_id = :corpus_id and generation = :generation) as inds
from corpus_table t where {IS_VISIBLE}
"""

TABLES = f"""
select table_number, path, row_count, first_column, column_count, since from corpus_table t where {IS_VISIBLE}
"""

# Of a table with as many columns as there can be, the part of its arrays with all that is wanted is cut out once: an
# element of what is stored would have the whole array unpacked, for each column again. That part is cut into blocks:
# Postgres counts its way to an element of an array of texts from the beginning.
BLOCK_PLACES = 1 << 16

COLUMNS = f"""
with wanted as (
    select w.column_id, t.table_number, t.since, w.column_id - t.first_column + 1 as place
    from unnest(cast(:columns as integer[])) w (column_id)
    cross join lateral (
        select table_number, since, first_column from corpus_table t
        where {IS_VISIBLE} and first_column <= w.column_id and first_column + column_count > w.column_id
        order by first_column desc limit 1) t),
cut as materialized (
    select t.path, t.row_count, w.places, w.low, t.first_column, t.column_names[w.low:w.high] as names,
           t.distinct_counts[w.low:w.high] as distincts, t.dependent_reasons[w.low:w.high] as dependents,
           t.referenced_reasons[w.low:w.high] as referenceds
    from (select table_number, since, array_agg(place) as places, min(place) as low, max(place) as high
          from wanted group by table_number, since) w
    join corpus_table t on t.corpus_id = :corpus_id and t.table_number = w.table_number and t.since = w.since),
block as materialized (
    select c.path, c.row_count, b.places, b.low, c.first_column, c.names[b.low - c.low + 1:b.high - c.low + 1] as names,
           c.distincts[b.low - c.low + 1:b.high - c.low + 1] as distincts,
           c.dependents[b.low - c.low + 1:b.high - c.low + 1] as dependents,
           c.referenceds[b.low - c.low + 1:b.high - c.low + 1] as referenceds
    from cut c cross join lateral (
        select array_agg(place) as places, min(place) as low, max(place) as high
        from unnest(c.places) p (place) group by place / {BLOCK_PLACES}) b)
select b.first_column + p.place - 1 as column_id, b.path, p.place - 1 as position, b.names[p.place - b.low + 1] as name,
       b.distincts[p.place - b.low + 1] as distinct_count, b.row_count,
       b.dependents[p.place - b.low + 1] as dependent, b.referenceds[p.place - b.low + 1] as referenced
from block b cross join lateral unnest(b.places) p (place)
"""

BEHIND = "(dependent, referenced) > (:after_dependent, :after_referenced)"

# Both orders have an index. Pages go by the side that fewer columns are chosen of.
INDS = """
select dependent, referenced, overlap from {inds} i
where dependent between :first_dependent and :last_dependent
and referenced between :first_referenced and :last_referenced and {behind} order by {order} limit :limit
"""
BEHIND_REFERENCED = "(referenced, dependent) > (:after_referenced, :after_dependent)"

CHANGES = f"""
select dependent, referenced, overlap, appeared from corpus_change where load_id = :load_id and {BEHIND}
order by dependent, referenced limit :limit
"""

FAULTS = """
select fault_number, path, message from corpus_fault
where refresh_id = :refresh_id and fault_number > :after order by fault_number limit :limit
"""

_PAIR_ROW = np.dtype([("fields", ">u2"), *((f"{kind}{i}", ">i4") for i in range(3) for kind in ("length", "value"))])


@contextmanager
def open_snapshot(
    engine: Engine, find: Callable[[Connection], Corpus], generation: int | None
) -> Iterator[PostgresCorpusSnapshot]:
    """Open a generation (None: the served one) in a transaction of its own; raise NotFoundError when it is not kept."""
    reading = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    with reading.connect() as connection:
        # What is dropped is not hidden by a snapshot; the lock is taken before it. Who drops a partition locks its
        # parent, too: without ONLY each reader would lock the partitions of all corpora, for which no server has room.
        connection.execute(text("lock table only corpus_ind, only corpus_change in access share mode"))
        corpus = find(connection)
        served = corpus.generation
        if served is None:
            raise NotFoundError(
                f"No refresh of the corpus {corpus.name!r} has landed yet; run `subsetd corpus refresh {corpus.name}`."
            )
        kept = (served - 1, served) if served > 1 else (served,)
        asked = served if generation is None else generation
        if asked not in kept:
            there = " and ".join(map(str, kept))
            raise NotFoundError(f"Generation {asked} of the corpus {corpus.name!r} is not kept; there is {there}.")
        yield PostgresCorpusSnapshot(connection, corpus, asked, kept)


def read_faults(
    connection: Connection, refresh_id: int, after: int | None, limit: int
) -> list[tuple[int, CorpusFault]]:
    """List what a refresh could not read by (number)."""
    values = {"refresh_id": refresh_id, "after": -1 if after is None else after, "limit": limit}
    return [(row[0], CorpusFault(row[1], row[2])) for row in connection.execute(text(FAULTS), values)]


class PostgresCorpusSnapshot:
    """Read one generation; see corpora_ports.CorpusSnapshot for what each method gives."""

    def __init__(self, connection: Connection, corpus: Corpus, generation: int, kept: tuple[int, ...]) -> None:
        self._connection = connection
        self.corpus = corpus
        self.generation = generation
        self.generations = kept

    def counts(self) -> dict[str, int]:
        return dict(self._rows(COUNTS)[0]._mapping)

    def inds(
        self,
        dependent: ColumnFilter = ALL,
        referenced: ColumnFilter = ALL,
        *,
        after: tuple[int, int] | None = None,
        limit: int,
    ) -> list[CorpusInd]:
        first_dependent, last_dependent = self._range(dependent)
        first_referenced, last_referenced = self._range(referenced)
        by_dependent = last_dependent - first_dependent <= last_referenced - first_referenced
        behind, order = (
            (BEHIND, "dependent, referenced") if by_dependent else (BEHIND_REFERENCED, "referenced, dependent")
        )
        found = self._pairs(
            INDS.format(inds=self._inds(), behind=behind, order=order),
            after,
            first_dependent=first_dependent,
            last_dependent=last_dependent,
            first_referenced=first_referenced,
            last_referenced=last_referenced,
            limit=limit,
        )
        columns = self._columns(self.generation, (side for row in found for side in (row.dependent, row.referenced)))
        inds = []
        for row in found:
            left, right = columns[row.dependent], columns[row.referenced]
            coefficient, coverage = row.overlap / left.distinct_count, row.overlap / right.distinct_count
            inds.append(CorpusInd(left.column, right.column, row.overlap, coefficient, coverage))
        return inds

    def pair(self, dependent: ColumnFilter, referenced: ColumnFilter) -> PairAnswer:
        left, left_fault = self._column(dependent)
        right, right_fault = self._column(referenced)
        if left is None or right is None:
            fault = left_fault or right_fault
            return PairAnswer(self.generation, left, right, False, None, Reason(0), False, fault)
        if left.column == right.column:
            raise TrivialPairError(
                f"Column {left.column.position} of {left.column.table} is on both sides; a column contains itself, "
                "which is not reported. Name two."
            )
        settings = self._settings()
        found = self._rows(
            f"select overlap from {self._inds()} i where dependent = :dependent and referenced = :referenced",
            dependent=left.column.column_id,
            referenced=right.column.column_id,
        )
        if found:
            return PairAnswer(self.generation, left, right, True, found[0].overlap, Reason(0), False, None)
        reasons = left.dependent_reasons | right.referenced_reasons
        if settings.filters.covers_too_little(left.distinct_count, right.distinct_count):
            reasons |= Reason.LOW_COVERAGE
        is_full = not reasons and settings.top is not None and len(self._best(left, settings.top)) == settings.top
        return PairAnswer(self.generation, left, right, False, None, reasons, is_full, None)

    def tables(self, *, after: int | None = None, limit: int) -> list[CorpusTable]:
        rows = self._rows(
            f"{TABLES} and table_number > :after order by table_number limit :limit",
            after=-1 if after is None else after,
            limit=limit,
        )
        return [CorpusTable(**row._mapping) for row in rows]

    def paths(self, numbers: Sequence[int]) -> dict[int, str]:
        rows = self._rows(f"{TABLES} and table_number = any(:numbers)", numbers=list(numbers))
        return {row.table_number: row.path for row in rows}

    def table(self, path: str) -> CorpusTable:
        found = self._rows(f"{TABLES} and path = :path", path=path) if "\0" not in path else []
        if not found:
            fault = self._fault(path)
            why = f"it could not be read: {fault}" if fault else "see the corpus' list of tables"
            raise NotFoundError(
                f"There is no table {path!r} in generation {self.generation} of the corpus {self.corpus.name!r}; {why}."
            )
        return CorpusTable(**found[0]._mapping)

    def columns(self, path: str, *, after: int | None = None, limit: int) -> list[CorpusColumn]:
        table = self.table(path)
        first = 0 if after is None else after + 1
        ids = range(table.first_column + first, table.first_column + min(table.column_count, first + limit))
        columns = self._columns(self.generation, ids)
        return [columns[column_id] for column_id in ids]

    def changes(self, *, after: tuple[int, int] | None = None, limit: int) -> list[Change]:
        before = self.generation - 1
        if before not in self.generations:
            raise NotFoundError(
                f"The generation before {self.generation} of the corpus {self.corpus.name!r} is not kept, "
                "so that nothing can be said of what changed."
            )
        rows = self._pairs(CHANGES, after, load_id=self._refresh_id(), limit=limit)
        found = [
            (row, *((ChangeKind.APPEARED, self.generation) if row.appeared else (ChangeKind.WENT, before)))
            for row in rows
        ]
        columns = {
            generation: self._columns(
                generation,
                (side for row, _, of in found if of == generation for side in (row.dependent, row.referenced)),
            )
            for generation in (before, self.generation)
        }
        return [
            Change(kind, columns[of][row.dependent].column, columns[of][row.referenced].column, row.overlap)
            for row, kind, of in found
        ]

    def faults(self, *, after: int | None = None, limit: int) -> list[tuple[int, CorpusFault]]:
        return read_faults(self._connection, self._refresh_id(), after, limit)

    def stream_pairs(self) -> Iterator[Inds]:
        from service.core.group_inds import BLOCK, Inds

        last = (-1, -1)
        with self._cursor() as cursor:
            while True:
                sink = io.BytesIO()
                cursor.copy_expert(
                    f"COPY (SELECT dependent, referenced, overlap FROM {self._inds()} i "
                    f"WHERE (dependent, referenced) > {last} ORDER BY dependent, referenced LIMIT {BLOCK}) "
                    "TO STDOUT (FORMAT binary)",
                    sink,
                )
                rows = (sink.tell() - len(HEADER)) // _PAIR_ROW.itemsize
                if not rows:
                    return
                found = np.frombuffer(sink.getbuffer(), _PAIR_ROW, rows, len(HEADER))
                inds = Inds(*(found[f"value{i}"].astype(np.int32) for i in range(3)))
                yield inds
                last = int(inds.dependent[-1]), int(inds.referenced[-1])

    def stream_tables(self) -> Iterator[TableVersions]:
        with self._cursor() as cursor:
            yield from read_tables(cursor, self.corpus.corpus_id, self.generation)

    def _range(self, chosen: ColumnFilter) -> tuple[int, int]:
        """Give the first and last id of the chosen columns."""
        if chosen.table is None:
            return 0, np.iinfo(np.int32).max
        table = self.table(chosen.table)
        if chosen.position is None:
            return table.first_column, table.first_column + table.column_count - 1
        if not 0 <= chosen.position < table.column_count:
            raise NotFoundError(
                f"There is no column {chosen.position} in the table {chosen.table!r}; "
                f"it has {table.column_count}, counted from 0."
            )
        return (table.first_column + chosen.position,) * 2

    def _column(self, chosen: ColumnFilter) -> tuple[CorpusColumn | None, str | None]:
        """Find a column; or say why its table could not be read."""
        path = chosen.table or ""
        fault = self._fault(path)
        # A file that breaks off is a fault, and its tables before the break are there.
        if fault is not None and not self._rows(f"{TABLES} and path = :path", path=path):
            return None, fault
        column_id, _ = self._range(chosen)
        return self._columns(self.generation, [column_id])[column_id], None

    def _best(self, dependent: CorpusColumn, count: int) -> Found:
        column_id = dependent.column.column_id
        return self._rows(f"select from {self._inds()} i where dependent = {column_id} limit :limit", limit=count)

    def _fault(self, path: str) -> str | None:
        """Say why a table, its file or a folder above it could not be read for this generation; None if they were."""
        query = (
            "select message from corpus_fault where refresh_id = :refresh_id and (path = :path "
            "or starts_with(:path, path || '#') or starts_with(:path, path || '/')) order by path desc limit 1"
        )
        found = self._rows(query, refresh_id=self._refresh_id(), path=path) if "\0" not in path else []
        return found[0].message if found else None

    def _settings(self) -> CorpusSettings:
        """Give the settings that the generation was found with: those of the corpus may be others since."""
        query = (
            "select coalesce(report -> 'settings', cast(:settings as jsonb)) from corpus_refresh "
            "where corpus_id = :corpus_id and generation = :generation"
        )
        return CorpusSettings.from_json(self._rows(query, settings=json.dumps(self.corpus.settings.to_json()))[0][0])

    def _refresh_id(self) -> int:
        query = "select refresh_id from corpus_refresh where corpus_id = :corpus_id and generation = :generation"
        return int(self._rows(query)[0].refresh_id)

    def _columns(self, generation: int, columns: Iterable[int]) -> dict[int, CorpusColumn]:
        rows = self._rows(COLUMNS, generation=generation, columns=sorted(set(columns)))
        return {
            row.column_id: CorpusColumn(
                ColumnRef(row.column_id, row.path, row.position, row.name),
                row.distinct_count,
                row.row_count,
                Reason(row.dependent),
                Reason(row.referenced),
            )
            for row in rows
        }

    def _inds(self) -> str:
        """Give the INDs of the generation as a subquery."""
        return served_inds([load.load_id for load in self._rows(LOADS)], self.generation)

    def _pairs(self, query: str, after: tuple[int, int] | None, **values: int) -> Found:
        after_dependent, after_referenced = (-1, -1) if after is None else after
        return self._rows(query, after_dependent=after_dependent, after_referenced=after_referenced, **values)

    def _cursor(self) -> Any:
        connection = self._connection.connection.driver_connection
        assert connection is not None
        return connection.cursor()

    def _rows(self, query: str, **values: Any) -> Found:
        given = {"corpus_id": self.corpus.corpus_id, "generation": self.generation} | values
        return self._connection.execute(text(query), given).all()

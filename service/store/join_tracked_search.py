"""Own the search of tracked tables: their segments, and the rows that changed since, as one version has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
import psycopg2
from sqlalchemy import Connection, Engine, text

from service.core.errors import DamagedStateError, NotFoundError
from service.core.join_layout import Layout
from service.core.join_parts import CellRows, Part, RowsInMemory, TableInParts, distinct_keys
from service.core.near_matches import Near
from service.core.records import Int64s, Keys, distinct_of
from service.store.database import state_error
from service.store.join_index import PostgresSegment, SegmentShape
from service.store.join_tracked_rows import KeptRows, row_keys_of, row_keys_to_bytes
from service.store.reader import PostgresSnapshot
from service.store.reader_sql import HEAD
from service.usecases.answers import StateHead
from service.usecases.joinable import CELL_CHARACTERS, IndexedTable, ShownRow

CHANGED_AT_ONCE = 40_000
"""Changed rows of a statement: of 16 columns half a second."""

INDEXED = """
select table_id, schema_name, table_name, functions, built_version
from join_tracked join tracked_table using (table_id) order by (schema_name || '.' || table_name) collate "C"
"""
COLUMNS = """
select table_id, ordinal, column_name from attribute join tracked_table using (source_id, schema_name, table_name)
where dropped_version is null and stale_version is null and parts is null order by ordinal
"""
SEGMENTS = """
select table_id, segment_id, bucket_bits, layout, coalesce(row_keys, '') as row_keys
from join_segment left join join_cover using (segment_id) where table_id is not null order by segment_id
"""
CHANGES = "select table_id, row_keys from join_change"
ROW_KEYS = """
select first_row, row_keys from join_row_keys where segment_id = :segment_id and first_row = any (:asked)
order by first_row
"""
SHOWN = """
select uuid_send(row_key) as row_key, array(select left(cell, :most) from unnest(cells) with ordinality as c (cell, n)
    order by n) as cells
from row_image where table_id = :table_id and row_key = any (cast(:row_keys as uuid[])) and cells is not null
"""


class PostgresTrackedTables:
    """Implement usecases.joinable_details.TrackedTables."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def require_index(self) -> None:
        with self._engine.connect() as connection:
            _indexed(connection)

    @contextmanager
    def snapshot(self) -> Iterator[PostgresTrackedSnapshot]:
        reading = self._engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        with reading.connect() as connection:
            tables = _indexed(connection)
            head = connection.execute(text(HEAD)).one()
            names: dict[int, dict[int, str]] = {}
            for table_id, ordinal, column in connection.execute(text(COLUMNS)):
                names.setdefault(table_id, {})[ordinal] = column
            parts: dict[int, list[tuple[Part, Keys]]] = {}
            for table_id, segment_id, bits, layout, cover in connection.execute(text(SEGMENTS)):
                segment = StoredPart(connection, segment_id, bits, Layout.from_bytes(bytes(layout)))
                parts.setdefault(table_id, []).append((segment, row_keys_of(cover)))
            changed: dict[int, list[Keys]] = {}
            for table_id, row_keys in connection.execute(text(CHANGES)):
                changed.setdefault(table_id, []).append(row_keys_of(row_keys))
            segments, not_indexed, paths = [], [], {}
            for table_id, schema, table, functions, built_version in tables:
                name = f"{schema}.{table}"
                if built_version is None:
                    not_indexed.append(name)
                    continue
                paths[name] = schema, table
                of_table = table_id, name, names.get(table_id, {}), parts.get(table_id, []), functions
                segments.append(partial(TrackedTable, connection, *of_table, changed.get(table_id)))
            state = PostgresSnapshot(connection, StateHead(**head._mapping))
            yield PostgresTrackedSnapshot(state, head.committed_at, Opening(segments), paths, not_indexed)


class Opening(Sequence["TrackedTable"]):
    """Be tables that are opened one by one, as they are asked for: of one at a time what has changed is in memory."""

    def __init__(self, tables: Sequence[Callable[[], TrackedTable]]) -> None:
        self._tables = tables

    def __len__(self) -> int:
        return len(self._tables)

    def __getitem__(self, place: Any) -> Any:
        return self._tables[place]()


class PostgresTrackedSnapshot:
    """Hold what is searched: the index of each table, as of a version of the state; which have none yet is told."""

    generation = None
    near: frozenset[Near] = frozenset()
    null_tokens: Sequence[str] = ()

    def __init__(
        self,
        state: PostgresSnapshot,
        committed_at: datetime,
        segments: Opening,
        names: Mapping[str, tuple[str, str]],
        not_indexed: Sequence[str],
    ) -> None:
        self.state = state
        self.version = state.head.version
        self.built_at = committed_at
        self.segments = segments
        self.names = names
        self.not_indexed = not_indexed


class StoredPart(PostgresSegment):
    """Be a part of a table: a segment whose rows are known by their row keys."""

    def __init__(self, connection: Connection, segment_id: int, bits: int, layout: Layout) -> None:
        super().__init__(connection, segment_id, SegmentShape(bits, layout), np.zeros(0, np.int32))
        self.layout = layout

    def row_keys(self, numbers: Int64s) -> Keys:
        """Fetch the row keys of rows."""
        asked = distinct_of(self.layout.blocks(numbers))
        found = self._connection.execute(text(ROW_KEYS), self._of(asked.tolist())).all() if len(asked) else []
        keys = Keys.of(bytes(row.row_keys) for row in found)
        return keys.take(_places(numbers, asked, [len(row.row_keys) // 16 for row in found]))


class TrackedTable(TableInParts):
    """Be a segment of one table."""

    def __init__(
        self,
        connection: Connection,
        table_id: int,
        name: str,
        columns: Mapping[int, str],
        parts: Sequence[tuple[Part, Keys]],
        functions: int,
        changed: Sequence[Keys] | None,
    ) -> None:
        """Open the parts and, where the log has rows of the table, these."""
        if changed is not None:
            row_keys = distinct_keys(changed)
            parts = [*parts, (RowsInMemory(_rows_now(connection, table_id, row_keys), functions), row_keys)]
        super().__init__([part for part, _ in parts], [cover for _, cover in parts], functions, list(columns))
        self._connection = connection
        self._table_id = table_id
        self._columns = list(columns)
        self._table = IndexedTable(0, name, list(columns.values()))

    def tables(self, places: Sequence[int]) -> dict[int, IndexedTable]:
        """Name the table."""
        return dict.fromkeys(places, self._table)

    def show(self, place: int, rows: Int64s) -> list[ShownRow]:
        """Read rows from the row images."""
        keys = row_keys_to_bytes(self.row_keys(rows))
        wanted = [keys[at : at + 16] for at in range(0, len(keys), 16)]
        asked = {"table_id": self._table_id, "row_keys": [key.hex() for key in wanted], "most": CELL_CHARACTERS}
        found = {bytes(row.row_key): row.cells for row in self._connection.execute(text(SHOWN), asked)}
        if not found.keys() >= set(wanted):
            raise DamagedStateError(f"Rows of {self._table.path} are in its join index, and not among the kept rows.")
        return [ShownRow(None, self._present(found[key])) for key in wanted]

    def _present(self, cells: Sequence[str | None]) -> list[str | None]:
        """Choose the cells of the present columns; a row that was written before the last of them lacks these."""
        return [cells[ordinal] if ordinal < len(cells) else None for ordinal in self._columns]


def _indexed(connection: Connection) -> Sequence[Any]:
    """Give the tables that are indexed, or to be; raise NotFoundError where there are none."""
    tables = connection.execute(text(INDEXED)).all()
    if not tables:
        raise NotFoundError(
            "No tracked table is indexed for joins; `subsetd join-index track SCHEMA.TABLE` indexes one."
        )
    return tables


def _rows_now(connection: Connection, table_id: int, row_keys: Keys) -> CellRows:
    raw: Any = connection.connection
    try:
        with raw.cursor() as cursor:
            kept = KeptRows(cursor, table_id)
            portions = range(0, len(row_keys.high), CHANGED_AT_ONCE)
            return CellRows.joined([kept.some(row_keys.take(slice(at, at + CHANGED_AT_ONCE))) for at in portions])
    except psycopg2.Error as error:
        told = state_error(error, connection.engine.url)
        if told is None:
            raise
        raise told from error


def _places(numbers: Int64s, blocks: Int64s, heights: Sequence[int]) -> Int64s:
    """Give where rows are in blocks that lie end to end, given the blocks' first rows."""
    starts = np.cumsum([0, *heights])[:-1]
    block = np.searchsorted(blocks, numbers, "right") - 1
    places: Int64s = starts[block] + numbers - blocks[block]
    return places

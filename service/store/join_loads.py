"""Own the load of a join index: segments that many tasks fill, and the landing of an index in one transaction.

The job's driver holds the index by `building` and makes segments by `SegmentLoad.begin`; tasks copy into them, and the
driver then lands a `NewIndex` of them and of segments that stay. Nothing is searched before that has committed; what a
job that died left behind, the next one removes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from service.core.errors import StateError
from service.core.join_layout import Layout
from service.core.posting_buckets import Buckets
from service.core.records import Int64s
from service.store.copy_stream import copy_blocks
from service.store.corpus_locks import hold
from service.store.database import connect
from service.store.join_clearing import TASK_NAME, clear, delete_others
from service.store.join_packing import RowBlock, pack_buckets, pack_rows
from service.store.locks import JOIN_INDEX_LOCK
from service.store.writer_lock import releasing_locks

BUILD_NAME = "subsetd join index"

_TABLE = struct.Struct(">hiiiiiii")
_FILE = struct.Struct(">iqiq")
_ARRAY = struct.Struct(">iiIii")
_LENGTH = struct.Struct(">i")

TEXT = 25
"""The type of texts among Postgres' types."""


class StoredTable(NamedTuple):
    """Hold a table of a segment: its number in the corpus, its path and columns.

    `file_size` and `file_modified` are those of its file, as it was listed before it was read.
    """

    number: int
    path: str
    names: Sequence[str]
    file_size: int
    file_modified: int


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """Describe a segment: the bits of its bucket numbers, all its tables, and those that live, by their places."""

    segment_id: int
    bits: int
    layout: Layout
    tables: Mapping[int, StoredTable]

    @property
    def dead(self) -> Int64s:
        """Give the places of tables that are no more, ascending."""
        return np.setdiff1d(np.arange(len(self.layout.rows)), np.fromiter(self.tables, np.int64, len(self.tables)))


@contextmanager
def building(url: str, corpus_id: int) -> Iterator[None]:
    """Hold the join index of a corpus, and clear what others left behind that died; StateError when it is held.

    A cleaning that holds it is waited for. Sessions of their tasks are orphans. Theirs may still be on their way, and
    find no segment.
    """
    with connect(url, BUILD_NAME) as connection, releasing_locks(connection), connection.cursor() as cursor:

        def ask(query: str) -> Any:
            cursor.execute(query)
            return cursor.fetchone()[0]

        if not hold(ask, JOIN_INDEX_LOCK, corpus_id):
            raise StateError("This corpus' index of joinable tables is being built; wait until that has ended.")
        clear(cursor, corpus_id)
        connection.commit()
        yield


def stored_segments(url: str, corpus_id: int, reading: Mapping[str, object]) -> list[StoredSegment]:
    """Give the segments of a corpus' index by their ids; none where its cells were read by other settings."""
    with connect(url, BUILD_NAME) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT segment_id, bucket_bits, layout FROM join_segment s JOIN join_index i USING (corpus_id) "
            "WHERE corpus_id = %s AND reading = %s AND segment_id = ANY (segment_ids) ORDER BY segment_id",
            (corpus_id, json.dumps(reading)),
        )
        found = []
        for segment_id, bits, layout in cursor.fetchall():
            cursor.execute(
                "SELECT place, table_number, path, column_names, file_size, file_modified FROM join_table "
                "WHERE segment_id = %s ORDER BY place",
                (segment_id,),
            )
            tables = {place: StoredTable(*table) for place, *table in cursor}
            found.append(StoredSegment(segment_id, bits, Layout.from_bytes(bytes(layout)), tables))
    return found


@dataclass(frozen=True, slots=True)
class SegmentLoad:
    """Name a segment that is filled; picklable, so that executors can write to it."""

    url: str
    corpus_id: int
    segment_id: int

    @staticmethod
    def begin(url: str, corpus_id: int, layout: Layout, tables: Sequence[StoredTable], bits: int) -> SegmentLoad:
        """Make an empty segment of tables. The caller holds the index by `building`."""
        with connect(url, BUILD_NAME) as connection, connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO join_segment (corpus_id, bucket_bits, layout) SELECT corpus_id, %s, %s FROM corpus "
                "WHERE corpus_id = %s RETURNING segment_id",
                (bits, layout.to_bytes(), corpus_id),
            )
            found = cursor.fetchone()
            if found is None:
                raise StateError("The corpus was removed.")
            rows = (_table_row(found[0], place, table) for place, table in enumerate(tables))
            copy_blocks(cursor, "join_table", rows)
            connection.commit()
        return SegmentLoad(url, corpus_id, found[0])

    def copy_buckets(self, task: int, buckets: Buckets) -> bool:
        """Write the buckets of one task, in one transaction; a task that has done it writes nothing and gives False."""
        return self._copy(task, "join_bucket", pack_buckets(self.segment_id, buckets))

    def copy_rows(self, task: int, blocks: Iterable[RowBlock]) -> bool:
        """Write the blocks of rows of one task, as `copy_buckets` does."""
        return self._copy(task, "join_rows", (pack_rows(self.segment_id, block) for block in blocks))

    def _copy(self, task: int, table: str, rows: Iterable[bytes]) -> bool:
        with connect(self.url, f"{TASK_NAME} {self.corpus_id}") as connection, connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO join_task SELECT segment_id, %s FROM join_segment WHERE segment_id = %s "
                "ON CONFLICT DO NOTHING RETURNING task",
                (task, self.segment_id),
            )
            if cursor.fetchone() is None:
                return False
            copy_blocks(cursor, table, rows)
            connection.commit()
        return True


def _table_row(segment_id: int, place: int, table: StoredTable) -> bytes:
    names = [name.encode() for name in table.names]
    # An array's dimensions (1), whether it has NULLs, type, length, and first index; of nothing, no dimension.
    array = _ARRAY.pack(1, 0, TEXT, len(names), 1) if names else _ARRAY.pack(0, 0, TEXT, 0, 0)[:12]
    array += b"".join(_LENGTH.pack(len(name)) + name for name in names)
    path = table.path.encode()
    head = _TABLE.pack(7, 4, segment_id, 4, place, 4, table.number, len(path))
    return b"".join(
        (head, path, _LENGTH.pack(len(array)), array, _FILE.pack(8, table.file_size, 8, table.file_modified))
    )


@dataclass(frozen=True, slots=True)
class NewIndex:
    """Hold the index of a generation that is to land: all segments with tables that live, none that has none.

    `written` are those that are new, with the number of tasks that have written each. `reading` are the settings by
    which cells were read.
    """

    corpus_id: int
    generation: int
    reading: Mapping[str, object]
    segments: Sequence[StoredSegment]
    written: Mapping[int, int]
    report: Mapping[str, Any]

    def land(self, cursor: Any) -> None:
        """Make it the index of its corpus, as `put` does; StateError when another generation is served by now."""
        cursor.execute("SELECT generation FROM corpus WHERE corpus_id = %s FOR SHARE", (self.corpus_id,))
        served = cursor.fetchone()
        if served != (self.generation,):
            raise StateError(
                f"The index of joinable tables cannot land: it is of generation {self.generation}, and "
                f"{'its corpus was removed' if served is None else f'{served[0]} is served'}. Build it again."
            )
        self.put(cursor)

    def put(self, cursor: Any) -> None:
        """Make it the index of its corpus, in the cursor's transaction, which sees to the generation.

        Raises StateError when a task has not written; then the transaction must not be committed.
        """
        for segment_id, tasks in self.written.items():
            cursor.execute("SELECT count(*) FROM join_task WHERE segment_id = %s", (segment_id,))
            written = cursor.fetchone()[0]
            if written != tasks:
                raise StateError(f"Of {tasks} tasks of the index of joinable tables {written} have written.")
        cursor.execute(
            "INSERT INTO join_index (corpus_id, generation, segment_ids, reading, report) VALUES (%s, %s, %s, %s, %s) "
            "ON CONFLICT (corpus_id) DO UPDATE SET (generation, segment_ids, reading, built_at, report) = "
            "ROW (excluded.generation, excluded.segment_ids, excluded.reading, clock_timestamp(), excluded.report)",
            (
                self.corpus_id, self.generation, [segment.segment_id for segment in self.segments],
                json.dumps(self.reading), json.dumps(self.report),
            ),
        )  # fmt: skip
        for segment in self.segments:
            dead = segment.dead
            cursor.execute(
                "UPDATE join_segment SET dead = %s WHERE segment_id = %s AND dead <> %s",
                (dead.astype("<i4").tobytes(), segment.segment_id, dead.astype("<i4").tobytes()),
            )
            if cursor.rowcount:
                cursor.execute(
                    "DELETE FROM join_table WHERE segment_id = %s AND place = ANY (%s)",
                    (segment.segment_id, dead.tolist()),
                )
        cursor.execute("DELETE FROM join_task WHERE segment_id = ANY (%s)", (list(self.written),))
        delete_others(cursor, self.corpus_id)

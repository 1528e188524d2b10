"""Own the load of a segment of a join index: buckets and rows from many tasks, and its landing in one transaction.

The job's driver holds the index by `building` and makes a segment by `begin`; its tasks copy, the driver then `land`s.
Nothing is searched before `land` has committed; what a job that died left behind, the next `begin` removes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from psycopg2.extras import execute_values

from service.core.errors import StateError
from service.core.join_layout import Layout
from service.core.posting_buckets import Buckets
from service.core.records import Int64s, UInt64s
from service.store.copy_stream import copy_blocks
from service.store.generation import connect
from service.store.tables import JOIN_INDEX_LOCK
from service.usecases.joinable import IndexedTable

BUILD_NAME = "subsetd join index"
TASK_NAME = "subsetd join index task"

_BUCKET = struct.Struct(">hiiiii")
_ROWS = struct.Struct(">hiiiqi")
_LENGTH = struct.Struct(">i")


class RowBlock(NamedTuple):
    """Hold rows of one table: their super keys, uint64[rows, 2], and the numbers of their values, row by row."""

    first_row: int
    super_keys: UInt64s
    cells: Int64s


@contextmanager
def building(url: str, corpus_id: int) -> Iterator[None]:
    """Hold the join index of a corpus; raise StateError when another process builds it."""
    with connect(url, BUILD_NAME) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", (JOIN_INDEX_LOCK, corpus_id))
        if not cursor.fetchone()[0]:
            raise StateError("This corpus' index of joinable tables is being built; wait until that has ended.")
        connection.commit()
        yield  # the lock ends with the session


@dataclass(frozen=True, slots=True)
class SegmentLoad:
    """Name a segment that is filled; picklable, so that executors can write to it."""

    url: str
    corpus_id: int
    generation: int
    segment_id: int

    @staticmethod
    def begin(
        url: str, corpus_id: int, generation: int, layout: Layout, tables: Sequence[IndexedTable], bits: int
    ) -> SegmentLoad:
        """Clear what builds of this corpus left behind that died, and make an empty segment of tables.

        The caller holds the index by `building`: sessions of other tasks are orphans. Theirs may still be on their
        way, and find no segment.
        """
        with connect(url, BUILD_NAME) as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name = %s AND pid <> pg_backend_pid()",
                (f"{TASK_NAME} {corpus_id}",),
            )
            _delete_others(cursor, corpus_id)
            cursor.execute(
                "INSERT INTO join_segment (corpus_id, bucket_bits, layout) SELECT corpus_id, %s, %s FROM corpus "
                "WHERE corpus_id = %s RETURNING segment_id",
                (bits, layout.to_bytes(), corpus_id),
            )
            found = cursor.fetchone()
            if found is None:
                raise StateError("The corpus was removed.")
            rows = (
                (found[0], place, table.number, table.path, list(table.names)) for place, table in enumerate(tables)
            )
            execute_values(cursor, "INSERT INTO join_table VALUES %s", rows, "(%s, %s, %s, %s, %s::text[])", 1000)
            connection.commit()
        return SegmentLoad(url, corpus_id, generation, found[0])

    def copy_buckets(self, task: int, buckets: Buckets) -> bool:
        """Write the buckets of one task, in one transaction; a task that has done it writes nothing and gives False."""
        bounds = zip(buckets.numbers.tolist(), buckets.starts[:-1].tolist(), buckets.starts[1:].tolist(), strict=True)
        rows = (
            _BUCKET.pack(3, 4, self.segment_id, 4, number, end - first) + buckets.data[first:end].tobytes()
            for number, first, end in bounds
        )
        return self._copy(task, "join_bucket", rows)

    def copy_rows(self, task: int, blocks: Iterable[RowBlock]) -> bool:
        """Write the blocks of rows of one task, as `copy_buckets` does."""
        return self._copy(task, "join_rows", map(self._row, blocks))

    def land(self, tasks: int, report: Mapping[str, Any]) -> None:
        """Make the segment the index of its corpus, in one transaction, when all tasks have written.

        Raises StateError, and changes nothing, when one has not, or when another generation is served by now.
        """
        with connect(self.url, BUILD_NAME) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT generation FROM corpus WHERE corpus_id = %s FOR SHARE", (self.corpus_id,))
            served = cursor.fetchone()
            if served != (self.generation,):
                raise StateError(
                    f"The index of joinable tables cannot land: it is of generation {self.generation}, and "
                    f"{'its corpus was removed' if served is None else f'{served[0]} is served'}. Build it again."
                )
            cursor.execute("SELECT count(*) FROM join_task WHERE segment_id = %s", (self.segment_id,))
            written = cursor.fetchone()[0]
            if written != tasks:
                raise StateError(f"Of {tasks} tasks of the index of joinable tables {written} have written.")
            cursor.execute(
                "INSERT INTO join_index (corpus_id, generation, segment_ids, report) VALUES (%s, %s, %s, %s) "
                "ON CONFLICT (corpus_id) DO UPDATE SET (generation, segment_ids, built_at, report) = "
                "ROW (excluded.generation, excluded.segment_ids, clock_timestamp(), excluded.report)",
                (self.corpus_id, self.generation, [self.segment_id], json.dumps(report)),
            )
            cursor.execute("DELETE FROM join_task WHERE segment_id = %s", (self.segment_id,))
            _delete_others(cursor, self.corpus_id)
            connection.commit()

    def _row(self, block: RowBlock) -> bytes:
        super_keys, cells = block.super_keys.astype("<u8").tobytes(), block.cells.astype("<u4").tobytes()
        head = _ROWS.pack(4, 4, self.segment_id, 8, block.first_row, len(super_keys))
        return b"".join((head, super_keys, _LENGTH.pack(len(cells)), cells))

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


def _delete_others(cursor: Any, corpus_id: int) -> None:
    """Delete the segments that the corpus' index lacks; who searches one goes on with what it has seen."""
    cursor.execute(
        "DELETE FROM join_segment s WHERE corpus_id = %s AND NOT EXISTS (SELECT FROM join_index i "
        "WHERE i.corpus_id = s.corpus_id AND s.segment_id = ANY (i.segment_ids))",
        (corpus_id,),
    )

"""Own the compaction of the log of changed rows: they become segments of the index, beside the consumer.

A segment is made of the rows as the newest version has them, and covers what is in the log and in the segments that it
takes the place of: the newest ones that have not twice as many, so that a row is written again only as often as the
number of segments doubles. When as many rows have changed as the table had, all are indexed anew: that costs no more.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg2
from psycopg2.extras import execute_values
from sqlalchemy import text

from service.core.errors import StateError
from service.core.join_parts import CellRows, CodedPart, code_part, distinct_keys
from service.core.records import Keys
from service.store.copy_stream import copy_blocks
from service.store.database import OTHERS_IN_THE_WAY, connect, make_engine
from service.store.join_packing import RowBlock, pack_buckets, pack_rows
from service.store.join_tracked_rows import KeptRows, row_keys_of, row_keys_to_bytes
from service.store.locks import JOIN_COMPACTION_LOCK
from service.store.versions import NEWEST
from service.store.writer_lock import releasing_locks
from service.usecases.join_tracked import Backlog

COMPACTOR_NAME = "subsetd joins"

CANCELLED = "57014"

SEGMENT_CELLS = 2_000_000
"""A segment is made of at most so many cells, which some 150 MB of memory hold."""

AGAIN_SECONDS = 0.1
"""A cancel that comes between two statements of a compaction cancels nothing: it is repeated."""

BACKLOG = """
select t.table_id, t.built_version is null as is_new, coalesce(sum(octet_length(row_keys)), 0) / 16 as changed
from join_tracked t left join join_change using (table_id) group by t.table_id order by t.table_id
"""

TRACKED = "select built_version, functions, row_count from join_tracked where table_id = %s"
NAME = "select schema_name || '.' || table_name from tracked_table where table_id = %s"
LOG = "select version, row_keys from join_change where table_id = %s order by version"
COVERS = """
select segment_id, octet_length(row_keys) / 16 from join_segment left join join_cover using (segment_id)
where table_id = %s order by segment_id desc
"""
COVERED = "select row_keys from join_cover where segment_id = any (%s)"
BUILT = f"""
update join_tracked set functions = %(functions)s, row_count = %(rows)s,
    built_version = case when %(is_whole)s then {NEWEST} else built_version end
where table_id = %(table_id)s
"""
BEGIN = "insert into join_segment (table_id, bucket_bits, layout) values (%s, %s, %s) returning segment_id"
REPLACED = "delete from join_segment where segment_id = any (%s)"
FOLDED = "delete from join_change where table_id = %s and version <= %s"

IS_GONE = "23503"
"""Code of a compaction whose table was untracked or bootstrapped meanwhile: no row of it can be referred to."""


class PostgresTrackedIndexes:
    """Implement usecases.join_tracked.TrackedIndexes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._engine = make_engine(url, COMPACTOR_NAME, pool_size=1, max_overflow=0)
        self._connection: Any = None
        self._is_idle = threading.Event()
        self._is_idle.set()
        self._is_over = False

    def backlog(self) -> list[Backlog]:
        with self._engine.connect() as connection:
            return [Backlog(*row) for row in connection.execute(text(BACKLOG))]

    def compact(self, table_id: int, *, waiting: bool = False) -> bool:
        with connect(self._url, COMPACTOR_NAME) as connection, _alone(self._url, table_id, waiting) as is_alone:
            if not is_alone:
                return False
            connection.set_session(isolation_level="REPEATABLE READ")
            self._connection = connection
            self._is_idle.clear()
            try:
                if self._is_over:
                    return False
                _compact(connection, table_id)
                connection.commit()
            except psycopg2.Error as error:
                if error.pgcode not in (*OTHERS_IN_THE_WAY, IS_GONE, *([CANCELLED] if self._is_over else [])):
                    raise
                return False
            finally:
                self._is_idle.set()
        return True

    def end(self) -> None:
        """End the compaction at work, which changes nothing then, and let none begin; may be called by any thread."""
        self._is_over = True
        while not self._is_idle.wait(AGAIN_SECONDS):
            with suppress(psycopg2.Error):
                self._connection.cancel()

    def close(self) -> None:
        self._engine.dispose()


@contextmanager
def _alone(url: str, table_id: int, waiting: bool) -> Iterator[bool]:
    """Be the one compactor of a table, before the compaction's transaction has its snapshot."""
    with connect(url, COMPACTOR_NAME) as connection, releasing_locks(connection), connection.cursor() as cursor:
        cursor.execute(f"select pg_{'' if waiting else 'try_'}advisory_lock(%s, %s)", (JOIN_COMPACTION_LOCK, table_id))
        is_alone = waiting or cursor.fetchone()[0]
        connection.commit()
        yield is_alone


def _compact(connection: Any, table_id: int) -> None:
    """Index what the log has of a table, or all of it."""
    with connection.cursor() as cursor:
        cursor.execute(TRACKED, (table_id,))
        tracked = cursor.fetchone()
        if tracked is None:
            return
        built_version, functions, rows = tracked
        cursor.execute(LOG, (table_id,))
        log = cursor.fetchall()
        changed = distinct_keys([row_keys_of(row_keys) for _, row_keys in log])
        cursor.execute(COVERS, (table_id,))
        segments = cursor.fetchall()
        covered = len(changed.high) + sum(size or 0 for _, size in segments)
        is_whole = built_version is None or covered >= rows
        kept = KeptRows(cursor, table_id)
        portion = max(1, SEGMENT_CELLS // max(kept.width, 1))
        replaced = [segment for segment, _ in segments] if is_whole else _replaced(len(changed.high), segments)
        if is_whole:
            rows, functions = 0, None
            for found in kept.all(portion):
                part = _coded(cursor, table_id, found, functions)
                rows, functions = rows + len(found.row_keys.high), int(part.layout.functions[0])
                _put(cursor, table_id, part)
        elif len(changed.high):
            cursor.execute(COVERED, (replaced,))
            covers = distinct_keys([changed, *(row_keys_of(row_keys) for (row_keys,) in cursor)])
            for at in range(0, len(covers.high), portion):
                cover = covers.take(slice(at, at + portion))
                _put(cursor, table_id, _coded(cursor, table_id, kept.some(cover), functions), cover)
        built = {"table_id": table_id, "functions": functions, "rows": rows, "is_whole": is_whole}
        cursor.execute(BUILT, built)
        cursor.execute(REPLACED, (replaced,))
        if log:
            cursor.execute(FOLDED, (table_id, log[-1][0]))


def _replaced(changed: int, segments: Iterable[tuple[int, int | None]]) -> list[int]:
    """Choose the segments, newest first, that a new one of so many changed rows takes the place of."""
    replaced = []
    for segment_id, size in segments:
        if size is None or size > 2 * changed:
            break
        replaced.append(segment_id)
        changed += size
    return replaced


def _coded(cursor: Any, table_id: int, rows: CellRows, functions: int | None) -> CodedPart:
    """Code rows of a table; raise StateError where their values cannot be numbered."""
    try:
        return code_part(rows, functions)
    except ValueError as error:
        cursor.execute(NAME, (table_id,))
        raise StateError(f"{cursor.fetchone()[0]} cannot be indexed for joins: {error}.") from error


def _put(cursor: Any, table_id: int, part: CodedPart, cover: Keys | None = None) -> None:
    """Write a segment; it is the newest."""
    cursor.execute(BEGIN, (table_id, part.bits, part.layout.to_bytes()))
    (segment_id,) = cursor.fetchone()
    if cover is not None:
        cursor.execute("insert into join_cover values (%s, %s)", (segment_id, row_keys_to_bytes(cover)))
    copy_blocks(cursor, "join_bucket", pack_buckets(segment_id, part.buckets))
    block_rows = int(part.layout.block_rows[0])
    blocks = [slice(first, first + block_rows) for first in range(0, len(part.super_keys), block_rows)]
    copy_blocks(cursor, "join_rows", (pack_rows(segment_id, _block(part, rows)) for rows in blocks))
    row_keys = ((segment_id, rows.start, row_keys_to_bytes(part.row_keys.take(rows))) for rows in blocks)
    execute_values(cursor, "insert into join_row_keys values %s", row_keys)


def _block(part: CodedPart, rows: slice) -> RowBlock:
    width = int(part.layout.widths[0])
    return RowBlock(rows.start, part.super_keys[rows], part.cells[rows.start * width : rows.stop * width])

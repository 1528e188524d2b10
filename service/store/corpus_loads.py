"""Own the load of one refresh: INDs from many tasks into a table of their own, and its landing in one transaction.

The job's driver calls `begin`, its tasks `copy`, the driver then `build_indexes` and `land`. Nothing is visible before
`land` has committed; what a refresh that died left behind, the next `begin` of the corpus removes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import psycopg2
from numpy.typing import NDArray
from psycopg2.extras import execute_values
from sqlalchemy import text

from service.core.errors import DamagedStateError, StateError
from service.core.group_inds import Inds
from service.core.records import Int32s, distinct_of
from service.store.backup import BACKUP_NAME
from service.store.copy_stream import copy_blocks
from service.store.corpora import CLAIM, corpus_of, refresh_of
from service.store.corpus_cleaning import TASK_NAME, clear_remains, load_table, tidy
from service.store.corpus_landing import GONE_INDEX, LANDING_TIMEOUT, PAIR_INDEXES, put_inds, put_tables
from service.store.corpus_locks import hold
from service.store.corpus_tables import read_tables
from service.store.database import connect, make_engine
from service.store.join_loads import NewIndex
from service.store.locks import CORPUS_LOCK
from service.store.writer_lock import end_session
from service.usecases.corpora import Corpus, CorpusFault, Refresh, RefreshState, TableVersions

REFRESH_NAME = "subsetd corpus refresh"

BLOCK_INDS = 1 << 17
"""INDs that are turned into one block of the COPY stream: 3.4 MB."""

BACKUP_LOOK_SECONDS = 1.0
"""How often it is looked whether a backup that is waited for has ended."""

IN_USE = """
SELECT EXISTS (SELECT FROM pg_locks JOIN pg_stat_activity a USING (pid) WHERE granted AND relation = to_regclass(%s)
AND a.datname = current_database() AND application_name = %s)
"""

_ROW = np.dtype([("fields", ">u2"), *((f"{kind}{i}", ">i4") for i in range(3) for kind in ("length", "value"))])


@dataclass(frozen=True, slots=True)
class Landed:
    """Say what landing did: INDs that are served now, and how many appeared and went since the generation before."""

    generation: int
    inds: int
    appeared: int
    went: int


@contextmanager
def working_on(url: str, refresh_id: int) -> Iterator[tuple[Corpus, Refresh]]:
    """Hold the lock of a refresh's corpus while the refresh is at work; one that waits begins to run.

    A cleaning of the corpus is waited for. Raises `StateError` when another process is at work on it or the refresh has
    ended, NotFoundError when there is no such refresh.
    """
    engine = make_engine(url, REFRESH_NAME, statement_timeout_ms=0, pool_size=1, max_overflow=0)
    try:
        with engine.connect() as connection:
            refresh = refresh_of(connection, refresh_id)
            if not hold(lambda query: connection.scalar(text(query)), CORPUS_LOCK, refresh.corpus_id):
                raise StateError(
                    f"Another refresh of the corpus {refresh.corpus!r} is at work; wait until it has ended."
                )
            try:
                connection.execute(text(CLAIM), {"refresh_id": refresh_id})
                refresh, corpus = refresh_of(connection, refresh_id), corpus_of(connection, refresh.corpus_id)
                connection.commit()
                if refresh.state is not RefreshState.RUNNING:
                    raise StateError(f"The refresh {refresh_id} cannot be run: it is {refresh.state}.")
                yield corpus, refresh
            finally:
                end_session(connection)  # the lock is the session's
    finally:
        engine.dispose()


@dataclass(frozen=True, slots=True)
class Load:
    """Name the load of one refresh; picklable, so that executors can write to it.

    `generation` is the one that it is to land as, `served` the one that it builds on (None: there is none). New tables
    are numbered from `next_table` on, new columns from `next_column`. INDs are gathered in `table`. `started_at` tells
    the refresh's attempts apart.
    """

    url: str
    refresh_id: int
    corpus_id: int
    generation: int
    served: int | None
    next_table: int
    next_column: int
    started_at: datetime
    table: str

    @staticmethod
    def begin(url: str, refresh_id: int) -> Load:
        """Clear what refreshes of this corpus left behind that died, and make an empty load.

        The caller holds the corpus by `working_on`.
        """
        with connect(url, REFRESH_NAME) as connection, connection.cursor() as cursor:
            cursor.execute(
                "UPDATE corpus_refresh r SET started_at = clock_timestamp() FROM corpus c "
                "WHERE c.corpus_id = r.corpus_id AND refresh_id = %s "
                "RETURNING c.corpus_id, c.generation, next_table, next_column, started_at",
                (refresh_id,),
            )
            corpus_id, served, next_table, next_column, started_at = cursor.fetchone()
            # A task of an attempt that died may still be on its way. One that has begun is ended; one that begins from
            # now on finds that it is late. Its table may be there still: pg_dump keeps it in use while it reads.
            connection.commit()
            clear_remains(connection, corpus_id)
            cursor.execute("SELECT pg_current_xact_id()::text")
            table = f"{load_table(refresh_id)}_x{cursor.fetchone()[0]}"
            cursor.execute(
                f"CREATE TABLE {table} (LIKE corpus_ind INCLUDING COMMENTS) WITH (autovacuum_enabled = false)"
            )
            cursor.execute(
                f"ALTER TABLE {table} ALTER load_id SET DEFAULT {refresh_id}, "
                f"ADD CONSTRAINT {table}_load CHECK (load_id = {refresh_id})"
            )
            cursor.execute(GONE_INDEX.format(table=table))  # no row is in it now
            connection.commit()
        return Load(url, refresh_id, corpus_id, (served or 0) + 1, served, next_table, next_column, started_at, table)

    def served_tables(self) -> Iterator[TableVersions]:
        """Give the tables of the served generation by (table_number), in blocks; none when there is none."""
        if self.served is None:
            return
        with connect(self.url, REFRESH_NAME) as connection, connection.cursor() as cursor:
            yield from read_tables(cursor, self.corpus_id, self.served)

    def served_index(self) -> str | None:
        """Give the identity of the index that the served generation's refresh wrote; earlier versions gave none."""
        with connect(self.url, REFRESH_NAME) as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT report ->> 'index_identity' FROM corpus_refresh WHERE corpus_id = %s AND generation = %s",
                (self.corpus_id, self.served),
            )
            (identity,) = cursor.fetchone() or (None,)
            return identity

    def copy(self, task: int, blocks: Iterable[Inds]) -> int:
        """Write the INDs of one task, in one transaction, and give their number.

        A task that is run again, or twice at once, writes nothing and gives the number of the attempt that committed.
        Raises StateError for one whose refresh was begun anew since.
        """
        count = 0

        def rows() -> Iterator[Any]:
            nonlocal count
            for inds in blocks:
                count += len(inds.dependent)
                yield from _rows(inds)

        with connect(self.url, f"{TASK_NAME} {self.corpus_id}") as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT FROM corpus_refresh WHERE refresh_id = %s AND started_at = %s",
                (self.refresh_id, self.started_at),
            )
            if not cursor.rowcount:
                raise StateError(
                    f"This task is of an attempt of the refresh {self.refresh_id} that died; nothing was written."
                )
            cursor.execute(
                "INSERT INTO corpus_load_task VALUES (%s, %s, 0) ON CONFLICT DO NOTHING", (self.refresh_id, task)
            )
            if not cursor.rowcount:
                cursor.execute(
                    "SELECT ind_count FROM corpus_load_task WHERE load_id = %s AND task = %s", (self.refresh_id, task)
                )
                return int(cursor.fetchone()[0])
            copy_blocks(cursor, f"{self.table} (dependent, referenced, overlap)", rows())
            cursor.execute(
                "UPDATE corpus_load_task SET ind_count = %s WHERE load_id = %s AND task = %s",
                (count, self.refresh_id, task),
            )
            connection.commit()
        return count

    def build_indexes(self) -> int:
        """Build the load's indexes, once all tasks are done; give the number of its INDs.

        Raises DamagedStateError when a pair is there twice, or others than the tasks told of.
        """
        with ThreadPoolExecutor() as both:
            list(both.map(self._run, (statement.format(table=self.table) for statement in PAIR_INDEXES)))
        with connect(self.url, REFRESH_NAME) as connection, connection.cursor() as cursor:
            cursor.execute(f"SET default_statistics_target = 20; ANALYZE {self.table}")
            cursor.execute(
                f"SELECT coalesce(sum(ind_count), 0)::bigint, (SELECT count(*) FROM {self.table}) "
                "FROM corpus_load_task WHERE load_id = %s",
                (self.refresh_id,),
            )
            told, count = cursor.fetchone()
            connection.commit()
        if count != told:
            raise DamagedStateError(
                f"The load of the refresh {self.refresh_id} has {count:,} INDs, and its tasks stored {told:,}, which "
                "is a fault of subsetd. The generation before is still served."
            )
        return int(count)

    def put_faults(self, faults: Iterable[CorpusFault]) -> None:
        """Keep what could not be read with the refresh, and commit: `land` does it, too; this is for one that fails."""
        with connect(self.url, REFRESH_NAME) as connection, connection.cursor() as cursor:
            _put_faults(cursor, self.refresh_id, faults)
            connection.commit()

    def land(
        self,
        tables: TableVersions,
        gone_tables: Int32s,
        changed_columns: Int32s | None,
        faults: Iterable[CorpusFault],
        report: Mapping[str, Any],
        joins: NewIndex | None = None,
    ) -> Landed:
        """Make the load, with the tables that are new or changed, the served generation, in one transaction.

        `gone_tables` are the numbers of those that are no more. The load must hold all INDs with a column of
        `changed_columns` on either side, and only such ones; None: all INDs there are. Other INDs stay as they are,
        except those of columns that are no more. `report` is kept with `inds`, `appeared` and `went` added; with it
        lands `joins`, the index of joinable tables of this generation.
        A backup that has begun since the load was made, and keeps its table in use, is waited for.
        Raises `StateError` when another generation is served by now, the refresh was ended by others, or somebody else
        keeps the tables in use; then nothing has changed.
        """
        faults = list(faults)
        with connect(self.url, REFRESH_NAME) as connection, connection.cursor() as cursor:
            while True:
                self._wait_for_backup(connection)
                try:
                    landed = self._put(cursor, tables, gone_tables, changed_columns, faults, report, joins)
                    break
                except psycopg2.errors.LockNotAvailable as error:
                    connection.rollback()
                    if not self._is_backed_up(cursor):  # one that has begun meanwhile
                        raise StateError(
                            f"The INDs of corpora were kept in use for {LANDING_TIMEOUT}, so the refresh could not "
                            "land. The generation before is still served: end long sessions on the database, and "
                            "refresh again."
                        ) from error
            connection.commit()
            tidy(connection, self.corpus_id)
        return landed

    def _put(
        self,
        cursor: Any,
        tables: TableVersions,
        gone_tables: Int32s,
        changed_columns: Int32s | None,
        faults: Iterable[CorpusFault],
        report: Mapping[str, Any],
        joins: NewIndex | None,
    ) -> Landed:
        """Do what `land` does, in the cursor's transaction."""
        self._require_own(cursor)
        old_columns = put_tables(cursor, self.corpus_id, self.generation, tables, gone_tables)
        if changed_columns is not None:
            changed_columns = distinct_of(np.concatenate((changed_columns, old_columns))).astype(np.int32)
        cursor.execute(f"SET LOCAL lock_timeout = '{LANDING_TIMEOUT}'")
        before = self._inds_before(cursor)
        appeared, went, attaching = put_inds(
            cursor, self.corpus_id, self.refresh_id, self.table, self.served, before, changed_columns
        )
        _put_faults(cursor, self.refresh_id, faults)
        landed = Landed(self.generation, before + appeared - went, appeared, went)
        if joins is not None:
            joins.put(cursor)
        for statement in attaching:
            cursor.execute(statement)
        self._put_refresh(cursor, landed, report)
        return landed

    def _wait_for_backup(self, connection: Any) -> None:
        """Wait for the end of a backup that keeps the load's table in use, which is to be renamed, or dropped."""
        with connection.cursor() as cursor:
            while self._is_backed_up(cursor):
                connection.rollback()
                time.sleep(BACKUP_LOOK_SECONDS)
        connection.rollback()

    def _is_backed_up(self, cursor: Any) -> bool:
        cursor.execute(IN_USE, (self.table, BACKUP_NAME))
        return bool(cursor.fetchone()[0])

    def _run(self, statement: str) -> None:
        with connect(self.url, REFRESH_NAME) as connection, connection.cursor() as cursor:
            cursor.execute("SET maintenance_work_mem = '256MB'; SET max_parallel_maintenance_workers = 0")
            try:
                cursor.execute(statement)
            except psycopg2.errors.UniqueViolation as error:
                raise DamagedStateError(
                    f"The refresh {self.refresh_id} found a pair of columns twice ({error.diag.message_detail}), "
                    "which is a fault of subsetd. The generation before is still served."
                ) from error
            connection.commit()

    def _require_own(self, cursor: Any) -> None:
        """Raise StateError when the load cannot land on what is served."""
        cursor.execute(
            "SELECT c.generation, r.state, to_regclass(%s) IS NOT NULL FROM corpus c JOIN corpus_refresh r "
            "USING (corpus_id) WHERE refresh_id = %s",
            (self.table, self.refresh_id),
        )
        served, state, has_load = cursor.fetchone() or (None, "removed", False)
        if state != RefreshState.RUNNING or served != self.served or not has_load:
            raise StateError(
                f"The refresh {self.refresh_id} cannot land: it is {state}, and generation {served} of its corpus is "
                f"served where it was begun on {self.served}. Nothing was changed; refresh again."
            )

    def _inds_before(self, cursor: Any) -> int:
        cursor.execute(
            "SELECT (report ->> 'inds')::bigint FROM corpus_refresh WHERE corpus_id = %s AND generation = %s",
            (self.corpus_id, self.served),
        )
        return int((cursor.fetchone() or (0,))[0])

    def _put_refresh(self, cursor: Any, landed: Landed, report: Mapping[str, Any]) -> None:
        """Make the new generation the served one; last of all, so that nobody who asks for a cancel waits for long."""
        told = {**report, "inds": landed.inds, "appeared": landed.appeared, "went": landed.went}
        cursor.execute(
            "WITH landed AS (UPDATE corpus_refresh SET state = 'landed', generation = %s, "
            "ended_at = clock_timestamp(), fault = NULL, report = %s WHERE refresh_id = %s AND state = 'running' "
            "RETURNING corpus_id, generation) UPDATE corpus c SET generation = l.generation FROM landed l "
            "WHERE c.corpus_id = l.corpus_id AND c.generation IS NOT DISTINCT FROM %s",
            (landed.generation, json.dumps(told), self.refresh_id, self.served),
        )
        if not cursor.rowcount:
            self._require_own(cursor)
        cursor.execute("DELETE FROM corpus_load_task WHERE load_id = %s", (self.refresh_id,))


def _put_faults(cursor: Any, refresh_id: int, faults: Iterable[CorpusFault]) -> None:
    cursor.execute("DELETE FROM corpus_fault WHERE refresh_id = %s", (refresh_id,))
    rows = (
        (refresh_id, number, fault.path.replace("\0", "\\x00"), fault.message.replace("\0", "\\x00"))
        for number, fault in enumerate(faults)
    )
    execute_values(cursor, "INSERT INTO corpus_fault VALUES %s", rows, page_size=1000)


def _rows(inds: Inds) -> Iterator[NDArray[np.void]]:
    """Give INDs as rows of a binary COPY of three integers, block by block."""
    for start in range(0, len(inds.dependent), BLOCK_INDS):
        sides = [side[start : start + BLOCK_INDS] for side in inds]
        rows = np.empty(len(sides[0]), _ROW)
        rows["fields"] = 3
        for i, side in enumerate(sides):
            rows[f"length{i}"], rows[f"value{i}"] = 4, side
        yield rows

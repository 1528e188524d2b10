"""Own audits in Postgres: the one snapshot that all tasks of an audit read, what audits found, and whose turn it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import psycopg2.errors
from psycopg2.extras import Json
from sqlalchemy import Connection, Engine, text

from service.core.errors import NoStateError, StateError
from service.core.model import AttributeName
from service.core.records import Flags, Int32s, Int64s
from service.store.bulk import KeyRange, RecordArrays, read_range
from service.store.database import connect
from service.store.locks import AUDIT_LOCK, is_held
from service.store.shard_reading import Elsewhere, between_batches, require_whole
from service.store.shard_servers import ShardServer, reaching
from service.store.versions import NEWEST
from service.store.writer_lock import end_session, release_locks, take_bootstrap_lock
from service.usecases.audits import Audit

DRIVER_NAME = "subsetd audit"
TASK_NAME = "subsetd audit task"

KEPT_AUDITS = 1000
"""Audits that are kept, the newest."""

LOCK_TIMEOUT = "60s"
"""How long a task waits for a table that somebody alters: its driver holds what would let that one go on."""

ATTRIBUTES = """
select attribute_id, schema_name, table_name, column_name, row_count, shown_characters is not null, sketch_only
from attribute join source using (source_id) where dropped_version is null order by attribute_id
"""

COUNTS = """
select coalesce(sum(value_count), 0)::bigint, coalesce(sum(value_count * cardinality(attribute_ids)), 0)::bigint
from cluster
"""

SERVED = "select dependent_id, referenced_id from uind where until_version is null"

ADD = """
insert into audit (version, started_at, attributes, value_count, inds, not_served, not_holding, report)
values (%s, %s, %s, %s, %s, %s, %s, %s) returning audit_id, ended_at
"""

FORGET = "delete from audit where audit_id <= %s - %s"

READ = """
select audit_id, version, started_at, ended_at, attributes, value_count, inds, not_served, not_holding, report
from audit where audit_id < :before order by audit_id desc limit :limit
"""


class Place(NamedTuple):
    """Name a database that has records of the state, the audit's snapshot of it, and whose shards they are.

    `server` is None for the state's own database, whose address is that of the task. Picklable.
    """

    server: ShardServer | None
    snapshot: str


@dataclass(frozen=True, slots=True)
class AuditedState:
    """Hold one version of the state as an audit needs it, and the `places` where tasks read the same.

    Arrays are by attribute id, of `names`' length: `rows` are int64[n]; an id that is dropped, or not there, has no
    name and 0 rows. `cells` are the distinct values of each column, added up. `served` are the INDs, int32[n, 2] of
    (dependent, referenced). Of columns that are `hidden`, bool[n], the stored texts are not the values.
    """

    places: Sequence[Place]
    version: int
    started_at: datetime
    names: Sequence[AttributeName | None]
    rows: Int64s
    sketch_only: int
    records: int
    cells: int
    served: Int32s
    hidden: Flags


@contextmanager
def audited_state(url: str) -> Iterator[AuditedState]:
    """Open the newest version, until the end of the audit, and be its only one.

    No bootstrap can run beside it: its end waits for all readers, and they would wait for it. A consumer is not
    disturbed. Raises StateError while a bootstrap or another audit runs, when there is no state yet, and when a server
    of shards is away.
    """
    with connect(url, DRIVER_NAME) as connection, Elsewhere() as elsewhere:
        try:
            take_bootstrap_lock(connection)
            with between_batches(connection) as cursor:
                cursor.execute("set transaction isolation level repeatable read, read only")
                cursor.execute("lock table gen_rec in access share mode")
                cursor.execute(f"select pg_export_snapshot(), now(), {NEWEST}")
                snapshot, started_at, version = cursor.fetchone()
                if version is None:
                    raise NoStateError
                require_whole(cursor)
                elsewhere.open(cursor)
                cursor.execute(ATTRIBUTES)
                found = cursor.fetchall()
                cursor.execute(SERVED)
                served = np.array(cursor.fetchall(), np.int32).reshape(-1, 2)
                cursor.execute(COUNTS)
                records, cells = cursor.fetchone()
                cursor.execute("select coalesce(max(attribute_id), -1) + 1 from attribute")
                (count,) = cursor.fetchone()
            places = [Place(None, snapshot), *(Place(*one) for one in elsewhere.export())]
            names: list[AttributeName | None] = [None] * count
            rows, hidden = np.zeros(count, np.int64), np.zeros(count, np.bool_)
            for attribute_id, schema, table, column, row_count, is_hidden, _ in found:
                hidden[attribute_id] = is_hidden
                names[attribute_id] = AttributeName(schema, table, column)
                rows[attribute_id] = row_count
            yield AuditedState(
                places, version, started_at, names, rows, sum(row[-1] for row in found), records, cells, served,
                hidden,
            )  # fmt: skip
        finally:
            release_locks(connection)


def read_audited(url: str, place: Place, key_range: KeyRange) -> RecordArrays:
    """Read the records of a key range that one place has, as the audit's snapshot has them; `url` is the state's."""
    server, snapshot = place
    named = nullcontext() if server is None else reaching(server)
    address = url if server is None else server.address
    with named, connect(address, TASK_NAME) as connection, connection.cursor() as cursor:
        cursor.execute("set transaction isolation level repeatable read, read only")
        try:
            cursor.execute("set transaction snapshot %s", (snapshot,))
        except (psycopg2.errors.InvalidParameterValue, psycopg2.errors.UndefinedObject) as error:
            raise StateError(
                "The audit has lost its session on the state's database, and with it the version that it was reading, "
                "as when the server is started anew; audit again."
            ) from error
        cursor.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'")
        try:
            return read_range(connection, key_range)
        except psycopg2.errors.LockNotAvailable as error:
            raise StateError(
                f"A table of the state is being altered for more than {LOCK_TIMEOUT}; audit it again later."
            ) from error


def add_audit(
    url: str,
    state: AuditedState,
    value_count: int,
    inds: int,
    not_served: int,
    not_holding: int,
    report: dict[str, Any],
) -> Audit:
    """Keep what an audit found."""
    attributes = sum(name is not None for name in state.names) - state.sketch_only
    found = state.version, state.started_at, attributes, value_count, inds, not_served, not_holding
    with connect(url, DRIVER_NAME) as connection, connection.cursor() as cursor:
        cursor.execute(ADD, (*found, Json(report)))
        audit_id, ended_at = cursor.fetchone()
        cursor.execute(FORGET, (audit_id, KEPT_AUDITS))
        connection.commit()
    return Audit(
        audit_id, state.version, state.started_at, ended_at, attributes, value_count, inds, not_served, not_holding,
        report,
    )  # fmt: skip


def read_audits(connection: Connection, before: int | None, limit: int) -> list[Audit]:
    """List audits, newest first, those with an id below `before`."""
    rows = connection.execute(text(READ), {"before": 2**63 - 1 if before is None else before, "limit": limit})
    return [Audit(**row._mapping) for row in rows]


class AuditTurn:
    """Implement usecases.audit_schedule.Turn: the lock is on a connection of its own, and ends with it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None

    def take(self) -> bool:
        self._connection = self._engine.connect()
        is_ours = bool(self._connection.scalar(text("select pg_try_advisory_lock(:lock)"), {"lock": AUDIT_LOCK}))
        self._connection.commit()
        if not is_ours:
            self.give_back()
        return is_ours

    def is_taken(self) -> bool:
        with self._engine.connect() as connection:
            return bool(connection.scalar(text(f"select {is_held(AUDIT_LOCK)}")))

    def give_back(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            end_session(connection)  # not back to the pool: the lock is the session's
            connection.close()

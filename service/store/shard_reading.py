"""Own how records are read that several shards write: by the clusters that they are in, all shards at one version."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import ProgrammingError

from service.core.errors import StateError
from service.store.copy_stream import copy_between
from service.store.database import connect, make_engine
from service.store.locks import SHARDS_LOCK
from service.store.shard_servers import LOCK_TIMEOUT_MS, WAY_OUT, ShardServer, reaching, read_servers
from service.store.versions import NEWEST

RECORD_CLUSTERS = """(
    select cluster_id, attribute_ids, value_count from cluster where not exists (select from shard)
    union all select cluster_id, attribute_ids, value_count from shard_cluster
)"""
"""The clusters that records are in: to be read as `cluster` is, in a snapshot that sees one version of all shards."""

AHEAD = f"""
select shard, batch, {NEWEST} from shard
where batch > {NEWEST} order by shard limit 1
"""

SHARDS_NAME = "subsetd shards"

STANDS = "select shard, batch from shard where server = %s order by shard"
FOUND = "select shard, batch from shard order by shard"
TIMEOUT = "select setting from pg_settings where name = 'statement_timeout'"

# What servers keep beside the records of a state's other shards lies beside them for as long as they are asked.
SHADOWED = """
create temporary table elsewhere_cluster (like shard_cluster) on commit drop;
create temporary table elsewhere_rec (like gen_rec) on commit drop;
"""
SHADOWS = """
create temporary view shard_cluster as select * from {schema}.shard_cluster union all select * from elsewhere_cluster;
create temporary view gen_rec as select * from {schema}.gen_rec union all select * from elsewhere_rec;
"""
SCHEMA = "select relnamespace::regnamespace::text from pg_class where oid = 'gen_rec'::regclass"
OF_ATTRIBUTES = """
select * from gen_rec
where cluster_id = any (array(select cluster_id from shard_cluster where attribute_ids && '{{{ids}}}'))
"""


class Elsewhere:
    """Hold a snapshot of each server that has shards, all of the version of the state's own snapshot; may be none."""

    def __init__(self) -> None:
        self.servers: list[ShardServer] = []
        self.connections: list[Connection] = []
        self._closing = ExitStack()

    def __enter__(self) -> Elsewhere:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def open(self, cursor: Any) -> None:
        """Take snapshots of the servers that a cursor's own snapshot knows.

        Raises StateError where one is away, or at another version than that snapshot.
        """
        torn = self.begin(cursor)
        if torn is not None:
            raise StateError(torn)

    def begin(self, cursor: Any) -> str | None:
        """Do what `open` does, but tell which server is at another version; None where none is.

        Statements may take as long there as the cursor's.
        """
        servers = [(server, _stands(cursor, server)) for server in read_servers(cursor)]
        cursor.execute(TIMEOUT)
        (milliseconds,) = cursor.fetchone()
        for server, stands in servers:
            with reaching(server):
                connection = self._closing.enter_context(_engine(server.address, milliseconds).connect())
                try:
                    connection.execute(text("lock table gen_rec in access share mode"))
                    found = [(shard, batch) for shard, batch in connection.execute(text(FOUND))]
                except ProgrammingError as error:
                    raise StateError(f"It has no tables for shards: {WAY_OUT}.") from error
                self.servers.append(server)
                self.connections.append(connection)
            if found != stands:
                return f"{server} {_differing(dict(found), dict(stands))}"
        return None

    def export(self) -> list[tuple[ShardServer, str]]:
        """Name the snapshots, for other sessions to read in them for as long as these are open."""
        names = [connection.scalar(text("select pg_export_snapshot()")) for connection in self.connections]
        return list(zip(self.servers, names, strict=True))

    def close(self) -> None:
        """Let the snapshots go."""
        self._closing.close()


@functools.lru_cache(64)
def _engine(address: str, milliseconds: str) -> Engine:
    """Make the engine that all who read a server in this process share; `milliseconds` bound each statement.

    Batches wait for who takes snapshots, so these wait for no lock for long. A backup reads the state's tables first.
    """
    made = make_engine(
        address,
        SHARDS_NAME,
        statement_timeout_ms=int(milliseconds),
        lock_timeout_ms=LOCK_TIMEOUT_MS,
        idle_timeout_ms=0,
        max_overflow=20,
    )
    return made.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def lock_records(connection: Connection) -> Elsewhere:
    """Begin to read records in a new REPEATABLE READ transaction, all of them of one version and generation.

    LOCK takes no snapshot: the first statement behind it does. It keeps a bootstrap from swapping partitions, which no
    snapshot hides. Where a batch is under way in some shards, this waits for its end; raises StateError when it was
    left there half done. What it gives has the shards that are on servers of their own, and is to be closed.
    """
    elsewhere, torn = _try(connection)
    if torn is None:
        return elsewhere
    connection.rollback()
    connection.execute(text("select pg_advisory_lock_shared(:lock)"), {"lock": SHARDS_LOCK})
    connection.rollback()  # the lock is the session's, the snapshot is to be newer
    try:
        elsewhere, torn = _try(connection)
        connection.execute(text("select pg_advisory_unlock_shared(:lock)"), {"lock": SHARDS_LOCK})
    except BaseException:
        elsewhere.close()
        connection.invalidate()  # the lock goes with the session, which is not to come back to the pool with it
        raise
    if torn is not None:
        raise StateError(torn)
    return elsewhere


def _try(connection: Connection) -> tuple[Elsewhere, str | None]:
    """Take the snapshots; tells, where they are not of one version, what is not. Then none is left open elsewhere."""
    elsewhere = Elsewhere()
    try:
        connection.execute(text("lock table gen_rec in access share mode"))
        torn = _torn(connection.execute(text(AHEAD)).one_or_none())
        if torn is None:
            raw: Any = connection.connection
            with raw.cursor() as cursor:
                torn = elsewhere.begin(cursor)
    except BaseException:
        elsewhere.close()
        raise
    if torn is not None:
        elsewhere.close()
    return elsewhere, torn


def _stands(cursor: Any, server: ShardServer) -> list[tuple[int, int]]:
    cursor.execute(STANDS, (server.name,))
    return list(cursor.fetchall())


@contextmanager
def gathered(connection: Connection, elsewhere: Elsewhere, attribute_ids: Sequence[int]) -> Iterator[Connection]:
    """Give a connection that sees all records of attributes in one place, and the clusters of all shards.

    It is the snapshot's own where all shards are in one database. Else another of its version, on which temporary
    views stand before `gen_rec` and `shard_cluster`: what servers have of these attributes is copied for as long.
    """
    if not elsewhere.connections:
        yield connection
        return
    snapshot, milliseconds = connection.execute(text(f"select pg_export_snapshot(), ({TIMEOUT})")).one()
    with connection.engine.connect() as other:
        other.execute(text("set transaction read write"))
        other.execute(text(f"set transaction snapshot '{snapshot}'"))
        other.execute(text(f"set local statement_timeout = {milliseconds}"))
        schema = other.scalar(text(SCHEMA))
        raw: Any = other.connection
        with raw.cursor() as cursor:
            cursor.execute(SHADOWED)
            ids = ",".join(map(str, attribute_ids))
            for server in elsewhere.connections:
                source: Any = server.connection
                with source.cursor() as reading:
                    for table, query in (
                        ("elsewhere_cluster", "select * from shard_cluster"),
                        ("elsewhere_rec", OF_ATTRIBUTES.format(ids=ids)),
                    ):
                        copy_between(reading, query, cursor, table)
            cursor.execute(SHADOWS.format(schema=schema))
        yield other
        other.rollback()


@contextmanager
def between_batches(connection: Any) -> Iterator[Any]:
    """Keep shards from beginning a batch for as long, once the one under way has ended; gives a raw cursor.

    Snapshots that are taken meanwhile are of one version, but for a batch that was left half done.
    """
    with connection.cursor() as cursor:
        cursor.execute("select pg_advisory_lock_shared(%s)", (SHARDS_LOCK,))
        connection.commit()
        yield cursor
        cursor.execute("select pg_advisory_unlock_shared(%s)", (SHARDS_LOCK,))


def require_whole(cursor: Any) -> None:
    """Raise StateError when a batch was left half done in the state's own database."""
    cursor.execute(AHEAD)
    torn = _torn(cursor.fetchone())
    if torn is not None:
        raise StateError(torn)


def keep_shards(cursor: Any) -> None:
    """Keep shards from beginning a batch until the cursor's READ COMMITTED transaction ends.

    Raises StateError when a batch was left half done.
    """
    cursor.execute("select pg_advisory_xact_lock_shared(%s)", (SHARDS_LOCK,))
    require_whole(cursor)
    for server in read_servers(cursor):
        stands = _stands(cursor, server)
        with reaching(server), connect(server.address, SHARDS_NAME) as other, other.cursor() as found:
            found.execute(FOUND)
            there = list(found.fetchall())
            if there != stands:
                raise StateError(f"It {_differing(dict(there), dict(stands))}")


_LEFT = (
    "following ended between the two, or waits for another shard. What is asked of values waits until it goes on; all "
    "else is answered"
)


def _differing(found: dict[int, int], stands: dict[int, int]) -> str:
    if found.items() > stands.items():
        return (
            f"has shards {sorted(found.keys() - stands.keys())}, which the state has elsewhere: `subsetd shards set` "
            "ended half way. Run it again; whoever writes the state next removes them, too."
        )
    if stands.keys() - found.keys():
        return f"lacks shards {sorted(stands.keys() - found.keys())}: {WAY_OUT}."
    return f"has versions {found} of shards, and the state {stands}: {_LEFT}."


def _torn(ahead: Any) -> str | None:
    if ahead is None:
        return None
    shard, batch, version = ahead
    return f"Shard {shard} holds version {batch} and the state {version}: {_LEFT} at version {version}."

"""Own the beginning and the end of a Postgres feed: its publication, its slot, and the snapshot in between."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, NamedTuple

import psycopg2
import psycopg2.errors

from service.core.errors import FeedError, first_line
from service.core.model import StoredPosition, slot_feed
from service.core.sql_names import sql_name
from service.stream.postgres_address import PostgresAddress, grant_replication, lsn_number
from service.stream.postgres_catalog import read_slot, source_identity

# What stands in the way of publishing a table, by its stored parts: a partition's own replica identity counts. Postgres
# takes no index for one that is deferrable, not valid or gone, and no whole row with a column that is not published.
_TABLES = """
SELECT n.nspname, c.relname, has_schema_privilege(n.oid, 'USAGE'),
  pg_get_userbyid(c.relowner), pg_has_role(c.relowner, 'USAGE'), c.relkind = 'p',
  part.schema, part.name, part.kind = 'f', part.persistence = 'u',
  part.identity = 'n' OR (part.identity IN ('d', 'i') AND NOT EXISTS
    (SELECT FROM pg_index i WHERE i.indrelid = part.oid AND i.indimmediate AND i.indisvalid
      AND CASE part.identity WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END)),
  part.identity = 'f',
  EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = part.oid AND a.attgenerated = 'v' AND NOT a.attisdropped)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (
  SELECT p.oid, p.relkind AS kind, p.relreplident AS identity, p.relpersistence AS persistence,
    pn.nspname AS schema, p.relname AS name
  FROM pg_class p JOIN pg_namespace pn ON pn.oid = p.relnamespace
  WHERE p.oid IN (SELECT relid FROM pg_partition_tree(c.oid) WHERE isleaf UNION SELECT c.oid)
    AND p.relkind IN ('r', 'f')
  UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL WHERE c.relkind = 'p'
) AS part
WHERE (n.nspname, c.relname) IN (SELECT * FROM unnest(%s::text[], %s::text[])) AND c.relkind IN ('r', 'p')
ORDER BY 1, 2, 7, 8
"""

_PUBLISHED = """
SELECT n.nspname, c.relname FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.pubname = %s
UNION ALL SELECT schemaname, tablename FROM pg_publication_tables t JOIN pg_publication p USING (pubname)
WHERE p.pubname = %s AND p.puballtables
"""

TableName = tuple[str, str]


class FeedStart(NamedTuple):
    """Tell where a new feed begins: the snapshot to read the source in, and the position behind it."""

    feed: str
    topic: str
    snapshot: str
    position: StoredPosition


@contextmanager
def new_slot(address: PostgresAddress, tables: Sequence[TableName], *, replace: bool) -> Iterator[FeedStart]:
    """Make publication and slot, and hold the slot's snapshot open; drop both again when what is inside fails.

    The slot gives every transaction that the snapshot does not show, and no other. With `replace` a slot and a
    publication that are there already are dropped first. Making a slot waits for all transactions that are running.
    Raises FeedError that names what is in the way, with the statement that mends it; then nothing was made.
    """
    slot = address.slot
    with closing(address.connect()) as connection, connection.cursor() as cursor:
        found = read_slot(cursor, slot)
        if found is not None and not replace:
            raise FeedError(
                f"The {address.place} has a slot {slot} already, of which this state knows nothing: another subsetd "
                f"follows it, or a `follow` was killed. Give another --name, or drop it by --replace."
            )
        _require_publishable(cursor, address, tables)
        drop(address)
        _publish(cursor, address, tables)
        try:
            with closing(address.connect_for_replication()) as sender, sender.cursor() as replication:
                lsn, snapshot = _create(replication, address)
                identity = source_identity(cursor)
                kept = {"txn_lsn": lsn - 1, "first": 0, "end_lsn": lsn, "system": identity["system"]}
                yield FeedStart(slot_feed(address.name), slot, snapshot, StoredPosition(0, kept))
        except BaseException:
            with suppress(FeedError):
                drop(address)
            raise


def drop(address: PostgresAddress) -> bool:
    """Drop slot and publication of a source; tell whether there was one of them. Raise FeedError when one is in use."""
    slot = address.slot
    with closing(address.connect()) as connection, connection.cursor() as cursor:
        try:
            # The name of a slot is that of the cluster's: it may be another database's.
            cursor.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                "WHERE slot_name = %s AND database = current_database()",
                (slot,),
            )
            had_slot = cursor.rowcount > 0
            cursor.execute("SELECT FROM pg_publication WHERE pubname = %s", (slot,))
            had_publication = cursor.rowcount > 0
            cursor.execute(f"DROP PUBLICATION IF EXISTS {sql_name(slot)}")
        except psycopg2.errors.ObjectInUse as error:
            raise FeedError(
                f"The slot {slot} of the {address.place} is in use: {first_line(error)}. Stop the subsetd that follows "
                f"it, or end its session: SELECT pg_terminate_backend(PID)"
            ) from error
        except psycopg2.Error as error:
            raise FeedError(
                f"The {address.place} does not let its slot be dropped: {first_line(error)}. As a superuser run there: "
                f"{how_to_drop(address)}"
            ) from error
    return bool(had_slot or had_publication)


def how_to_drop(address: PostgresAddress) -> str:
    """Give the statements that drop slot and publication."""
    return f"SELECT pg_drop_replication_slot('{address.slot}'); DROP PUBLICATION IF EXISTS {sql_name(address.slot)};"


def require_published(address: PostgresAddress, tables: Mapping[TableName, str]) -> None:
    """Raise FeedError when the publication lacks one of these tables, which are given with their names in the state."""
    with closing(address.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(_PUBLISHED, (address.slot, address.slot))
        missing = sorted(set(tables) - set(cursor.fetchall()))
        cursor.execute("SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace")
        gone = [tables[table] for table in set(missing) - set(cursor.fetchall())]
    if gone:
        ways = [
            f"`{shlex.join(['subsetd', 'attribute', 'drop', name, '--force'])}`, or if it has another name now "
            f"`{shlex.join(['subsetd', 'attribute', 'rename', name, 'NEW'])}`"
            for name in sorted(gone)
        ]
        raise FeedError(
            f"The {address.place} has tables no longer that are followed. Say what became of each, as "
            f"docs/schema-changes.md tells: {'; '.join(ways)}"
        )
    if missing:
        listed = ", ".join(sql_name(*table) for table in missing)
        raise FeedError(
            f"The publication {address.slot} of the {address.place} lacks tables that are followed, whose changes "
            f"since then are lost: {listed}. Read the source anew with `subsetd follow ... --replace`, or put up with "
            f"it: ALTER PUBLICATION {sql_name(address.slot)} ADD TABLE {listed}"
        )


def _require_publishable(cursor: Any, address: PostgresAddress, tables: Sequence[TableName]) -> None:
    """Raise FeedError for what would make the publication fail, or the source's own updates."""
    cursor.execute("SELECT current_setting('wal_level'), current_user, current_database(), "
                   "has_database_privilege(current_database(), 'CREATE')")  # fmt: skip
    wal_level, user, database, may_create = cursor.fetchone()
    if wal_level != "logical":
        raise FeedError(
            f"The {address.place} has wal_level {wal_level}, and changes can be read with logical alone. As a "
            f"superuser run there, and restart the server: ALTER SYSTEM SET wal_level = logical"
        )
    if not may_create:
        raise FeedError(
            f"The user {user!r} may not make a publication in the {address.place}. As its owner run there: "
            f"GRANT CREATE ON DATABASE {sql_name(database)} TO {sql_name(user)}"
        )
    cursor.execute(_TABLES, ([schema for schema, _ in tables], [name for _, name in tables]))
    owners: dict[str, str] = {}
    foreign: dict[str, str] = {}
    unlogged: dict[str, str] = {}
    unknown_rows = []
    untold_rows = []
    for schema, name, may_use, owner, is_ours, _, *part in cursor.fetchall():
        part_schema, part_name, is_foreign, is_unlogged, has_no_identity, is_whole, has_virtual = part
        if not may_use:
            raise FeedError(
                f"The user {user!r} may not look into the schema {schema} of the {address.place}. As its owner run "
                f"there: GRANT USAGE ON SCHEMA {sql_name(schema)} TO {sql_name(user)}"
            )
        if not is_ours:
            owners[f"{schema}.{name}"] = owner
        if is_foreign:
            foreign[sql_name(part_schema, part_name)] = f"{schema}.{name}"
        elif is_unlogged:
            unlogged[sql_name(part_schema, part_name)] = f"{schema}.{name}"
        elif has_no_identity:
            way_out = "USING INDEX UNIQUE_INDEX" if has_virtual else "FULL"
            unknown_rows.append(f"ALTER TABLE {sql_name(part_schema, part_name)} REPLICA IDENTITY {way_out};")
        elif is_whole and has_virtual:
            untold_rows.append(f"ALTER TABLE {sql_name(part_schema, part_name)} REPLICA IDENTITY DEFAULT;")
    if owners:
        table, owner = next(iter(owners.items()))
        raise FeedError(
            f"Only its owner can publish a table, and the user {user!r} is not the owner of {', '.join(owners)}. As a "
            f"superuser run there: GRANT {sql_name(owner)} TO {sql_name(user)}; or leave it out: "
            f"--exclude {shlex.quote(table)}"
        )
    if foreign:
        raise FeedError(
            f"Changes of foreign tables are not told by Postgres: {', '.join(foreign)}. Detach them from the tables "
            f"that they are partitions of, or leave these out: --exclude {shlex.quote(next(iter(foreign.values())))}"
        )
    if unlogged:
        raise FeedError(
            f"Changes of unlogged tables are not told by Postgres: {', '.join(unlogged)}. Make them logged: "
            f"ALTER TABLE {next(iter(unlogged))} SET LOGGED; or leave them out: "
            f"--exclude {shlex.quote(next(iter(unlogged.values())))}"
        )
    if unknown_rows:
        statements = "\n  ".join(unknown_rows)
        raise FeedError(
            f"Some tables have neither a primary key nor another replica identity, or one that is deferrable or whose "
            f"index is gone; published, Postgres would refuse every update and delete of them. Run there, or leave "
            f"the tables out with --exclude:\n  {statements}"
        )
    if untold_rows:
        statements = "\n  ".join(untold_rows)
        raise FeedError(
            f"Some tables with virtual generated columns, which are not published, have REPLICA IDENTITY FULL; "
            f"published, Postgres would refuse every update and delete of them. Run there (without a primary key: "
            f"USING INDEX), or leave the tables out with --exclude:\n  {statements}"
        )


def _publish(cursor: Any, address: PostgresAddress, tables: Sequence[TableName]) -> None:
    cursor.execute(_TABLES, ([schema for schema, _ in tables], [name for _, name in tables]))
    kinds = {(row[0], row[1]): row[5] for row in cursor.fetchall()}
    generated = " WITH (publish_generated_columns = stored)" if cursor.connection.server_version >= 180000 else ""
    name = sql_name(address.slot)
    try:
        cursor.execute(f"CREATE PUBLICATION {name}{generated}")
        for table in tables:
            # One at a time, so that no two locks are held: somebody may be emptying them in another order. A table
            # that others inherit from is told alone; they are tables of their own.
            only = "" if kinds.get(table) else "ONLY "
            cursor.execute(f"ALTER PUBLICATION {name} ADD TABLE {only}{sql_name(*table)}")
    except psycopg2.Error as error:
        with suppress(psycopg2.Error):
            cursor.execute(f"DROP PUBLICATION IF EXISTS {name}")
        raise FeedError(f"The {address.place} refuses a publication: {first_line(error)}.") from error


def _create(cursor: Any, address: PostgresAddress) -> tuple[int, str]:
    """Create the slot; return where it begins, and the name of its snapshot, which lives as long as the connection."""
    try:
        cursor.execute(f"CREATE_REPLICATION_SLOT {address.slot} LOGICAL pgoutput EXPORT_SNAPSHOT")
    except psycopg2.errors.DuplicateObject as error:
        raise FeedError(
            f"The {address.place} is of a cluster that has a slot {address.slot} already, of another database: give "
            f"another --name."
        ) from error
    except psycopg2.errors.ConfigurationLimitExceeded as error:
        raise FeedError(
            f"The {address.place} has no free slot: {first_line(error)}. Drop one that is not used, or raise it and "
            f"restart the server: ALTER SYSTEM SET max_replication_slots = 20"
        ) from error
    except psycopg2.errors.InsufficientPrivilege as error:
        user = address.parameters.get("user", "the user")
        raise FeedError(
            f"The {address.place} refused a replication slot: {first_line(error)}. Grant it as a superuser: "
            f"{grant_replication(user)}"
        ) from error
    except psycopg2.Error as error:
        raise FeedError(f"The {address.place} refused a replication slot: {first_line(error)}.") from error
    _, lsn, snapshot, _ = cursor.fetchone()
    return lsn_number(lsn), snapshot

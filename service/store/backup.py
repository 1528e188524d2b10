"""Own the backup of a state and its way back: all tables in one snapshot, with the positions of the feeds.

The schema comes from pg_dump, which knows partitions and indexes that no migration made; the rows by COPY,
in the same snapshot. A restore is one transaction: the state is the backup's, or what it was.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg2
from psycopg2.extensions import ISOLATION_LEVEL_REPEATABLE_READ, make_dsn, parse_dsn
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from service import __version__
from service.core.errors import StateError
from service.store.backup_file import CHUNK, SECTIONS, BackupError, BackupReader, BackupWriter, Manifest, TableRows
from service.store.copy_stream import copy_stream
from service.store.database import connect, make_engine, parse_address, place, state_error
from service.store.embedded import programs
from service.store.feeds import FORGET_LAG
from service.store.locks import MIGRATION_LOCK
from service.store.migrate import LOCK_TIMEOUT, found_revision, is_known, require_encoding, require_known, upgrade
from service.store.shard_reading import Elsewhere, between_batches
from service.store.shard_servers import reaching
from service.store.table_base import metadata
from service.store.versions import NEWEST
from service.store.writer_lock import release_locks, take_bootstrap_lock, take_writer_lock

BACKUP_NAME = "subsetd backup"
RESTORE_NAME = "subsetd restore"

# Beside the models: partitions, and what bootstraps and refreshes that are at work (or died) have built so far.
TABLES = r"""
select c.relname, c.relkind = 'r' from pg_class c
where c.relkind in ('r', 'p') and c.relnamespace = quote_ident(current_schema())::regnamespace
and (c.relname = any (%s) or c.relname ~ '^(gen_(rec|cluster|sketch)_g|corpus_(ind|change)_l)\d+(_|$)')
order by pg_table_size(c.oid) desc, 1
"""

SEQUENCES = """
select s.relname from pg_class s join pg_depend d on d.objid = s.oid and d.deptype in ('a', 'i')
join pg_class c on c.oid = d.refobjid
where s.relkind = 'S' and c.relnamespace = quote_ident(current_schema())::regnamespace and c.relname = any (%s)
order by 1
"""

HEAD = f"""
select current_schema(), current_setting('server_version'), (select max(version_num) from alembic_version),
    coalesce({NEWEST}, 0)
"""

SERVERS_SINCE = "0020"
"""The schema revision that brought servers of shards."""

ON_SERVERS = ("gen_rec", "shard_cluster")
"""Tables of which servers of shards have rows that the state's own database does not have."""

# The servers of the state that was backed up are still that one's: this one is another, and has all shards itself. What
# was under way for the one before it, whose epoch the backup may have, is refused.
AT_HOME = """
update shard_owner set state = gen_random_uuid();
update shard set server = null, address = null, state = (select state from shard_owner),
    epoch = pg_current_xact_id()::text::bigint;
delete from shard_write
"""

# Whoever watches the state that was backed up hears of it from there: not a second time, nor of a consumer that is not
# this one's.
TELLS_NOBODY = f"""
update watch_alert set state = 'failed', fault = 'the state was restored from a backup', ended_at = now()
where state = 'pending';
{FORGET_LAG}
"""

POSITIONS = 'select feed, topic, "partition", next_offset from feed_position order by 1, 2, 3'

ATTEMPTS = 10
"""How often a backup begins again because a table went away before it was held, or a bootstrap took it."""

NOT_FOR_US = re.compile(r"^(\\.*|SET transaction_timeout = .*)$", re.MULTILINE)
"""Lines of pg_dump's scripts for psql alone, and for servers from 17 on."""


@dataclass(frozen=True, slots=True)
class BackupReport:
    """Say what was written or restored: the state's version and schema revision, tables, rows, bytes uncompressed."""

    version: int
    revision: str
    tables: int
    rows: int
    bytes: int


def back_up(url: str, path: Path) -> BackupReport:
    """Write the state at `url` to a new file, beside whoever reads or writes it.

    Raises StateError when there is no state, the database fails, or the file is there already or cannot be written.
    A file that was not finished is removed.
    """
    try:
        if path.exists():  # as are the folders that have no name (`.`)
            raise BackupError(f"{path} is there already: name a file that is not")
        unfinished = path.with_name(f"{path.name}.unfinished")
        # It holds what the state holds, keys' digests and watches' secrets among it: its owner alone reads it.
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            try:
                with connect(url, BACKUP_NAME) as connection, BackupWriter(file) as writer:
                    manifest = _write(connection, writer, url)
                file.flush()
                os.fsync(file.fileno())
                unfinished.rename(path)
            except BaseException:
                with suppress(OSError):
                    unfinished.unlink()
                raise
        _sync_folder(path.parent)
    except OSError as error:
        raise BackupError(
            f"The backup cannot be written to {error.filename or path}: {error.strerror}; "
            "make room, name another file, or remove what an earlier backup left there"
        ) from error
    return _report(manifest)


def restore(
    url: str, path: Path, *, replace: bool, telling: Callable[[str], None], without_watches: bool = False
) -> BackupReport:
    """Make the state at `url` that of a backup, in one transaction, and bring it to this release's schema.

    `telling` hears what is done. Alerts that waited to be sent are given up. Raises BackupError for a file that is none
    or damaged, StateError when the state is not empty (and not to be replaced), or when a consumer or a bootstrap is at
    work on it.
    """
    # Whatever bounds statements of the role, those that take long come to their end, also behind the commit.
    engine = make_engine(url, RESTORE_NAME, statement_timeout_ms=0, idle_timeout_ms=0)
    try:
        with BackupReader(path) as backup:
            require_known(backup.manifest.revision)
            telling(f"Checking {path}, of version {backup.manifest.version}.")
            backup.check()
            with connect(url, RESTORE_NAME) as locks:
                take_writer_lock(locks, taking_over=False)  # it goes: servers that it has lost are not missed
                take_bootstrap_lock(locks)
                telling("Restoring, in one transaction.")
                try:
                    with engine.begin() as connection:
                        _put(connection, backup, replace)
                        connection.execute(text(TELLS_NOBODY))
                        if without_watches:
                            connection.execute(text("delete from watch"))
                    with engine.begin() as connection:
                        connection.execute(text("analyze"))
                finally:
                    release_locks(locks)
    except (psycopg2.Error, OperationalError) as error:
        raise state_error(getattr(error, "orig", error), engine.url) or BackupError(
            f"The backup {path} does not go into the {place(engine.url)}; it is as it was. Postgres says: {error}"
        ) from error
    finally:
        engine.dispose()
    return _report(backup.manifest)


def _write(connection: Any, writer: BackupWriter, url: str) -> Manifest:
    where = place(parse_address(url))
    if found_revision(url) is None:
        raise StateError(f"The {where} holds no state that could be backed up")
    connection.set_session(isolation_level=ISOLATION_LEVEL_REPEATABLE_READ, readonly=True)
    with connection.cursor() as cursor, Elsewhere() as elsewhere:
        with between_batches(connection):
            tables = _hold_tables(cursor, where)
            cursor.execute("select pg_export_snapshot()")
            (snapshot,) = cursor.fetchone()
            cursor.execute(HEAD)
            schema, postgres, revision, version = cursor.fetchone()
            if revision >= SERVERS_SINCE:
                elsewhere.open(cursor)
        names = [f"{_quoted(schema)}.{_quoted(name)}" for name, _ in tables]
        scripts = {section: _dump(connection, section, snapshot, names) for section in SECTIONS}
        sections = {name: writer.section(name, script) for name, script in scripts.items()}
        cursor.execute(POSITIONS)
        positions = [list(row) for row in cursor]
        rows = [_rows(cursor, writer, name, f'"{name}"') for name, has_rows in tables if has_rows]
        for number, (server, its) in enumerate(zip(elsewhere.servers, elsewhere.connections, strict=True), 1):
            raw: Any = its.connection
            with reaching(server), raw.cursor() as other:
                for name in ON_SERVERS:
                    rows.append(_rows(other, writer, f"{name}_{number}", f"(SELECT * FROM {name})", name))
        # Sequences are in no snapshot: read last, they are at least as far as any row that was read.
        cursor.execute(SEQUENCES, ([name for name, _ in tables],))
        sequences = {}
        for (name,) in cursor.fetchall():
            cursor.execute(f'select last_value from "{name}" where is_called')
            for (last,) in cursor:
                sequences[name] = last
    connection.rollback()
    manifest = Manifest(
        subsetd=__version__,
        postgres=postgres,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        schema=schema,
        revision=revision,
        version=version,
        positions=positions,
        sequences=sequences,
        sections=sections,
        tables=tuple(rows),
        format=2 if elsewhere.servers else 1,
    )
    writer.finish(manifest)
    return manifest


def _rows(cursor: Any, writer: BackupWriter, name: str, what: str, into: str | None = None) -> TableRows:
    with writer.table(name) as stream:
        cursor.copy_expert(f"COPY {what} TO STDOUT (FORMAT binary)", stream, CHUNK)
        count = cursor.rowcount
    return TableRows(name, count, stream.bytes, stream.sum, into)


def _hold_tables(cursor: Any, where: str) -> list[tuple[str, bool]]:
    """Lock the state's tables against being dropped or swapped, before the snapshot; give (name, has rows of its own).

    LOCK takes no snapshot: the first statement behind it does, and sees what is held.
    """
    connection = cursor.connection
    cursor.execute(f"set lock_timeout = '{LOCK_TIMEOUT}'")
    connection.commit()
    for _ in range(ATTEMPTS):
        try:
            names = [name for name, _ in _ours(cursor)]
            connection.rollback()
            cursor.execute(f"lock table {', '.join(map(_quoted, names))} in access share mode")
            tables = _ours(cursor)
            if {name for name, _ in tables} == set(names):
                return tables
        except (psycopg2.errors.UndefinedTable, psycopg2.errors.DeadlockDetected):
            pass  # a bootstrap's last commit takes them in another order
        except psycopg2.errors.LockNotAvailable:
            break
        connection.rollback()
    raise StateError(f"Tables of the {where} are being replaced by a bootstrap or a refresh; try again a little later")


def _ours(cursor: Any) -> list[tuple[str, bool]]:
    cursor.execute(TABLES, ([*metadata.tables, "alembic_version"],))
    found: list[tuple[str, bool]] = cursor.fetchall()
    return found


def _dump(connection: Any, section: str, snapshot: str, names: Sequence[str]) -> str:
    """Let pg_dump tell a part of the schema as the snapshot shows it.

    The wheel's knows no TLS, nor newer servers: where it is refused, that on the PATH is asked.
    """
    options = ["--schema-only", f"--section={section}", f"--snapshot={snapshot}", "--no-password"]
    options += ["--no-owner", "--no-privileges", "--no-tablespaces", "--no-publications", "--no-subscriptions"]
    # The password goes where lists of processes do not show it; what libpq reads of the environment is read here, too.
    told = {name: value for name, value in parse_dsn(connection.dsn).items() if name != "password"}
    options += ["--dbname", make_dsn(**told), *(f"--table={name}" for name in names)]
    environment = os.environ | {"PGPASSWORD": connection.info.password or "", "LC_ALL": "C"}  # noqa: TID251
    said = []
    for program in filter(None, (str(programs() / "pg_dump"), shutil.which("pg_dump"))):
        done = subprocess.run([program, *options], check=False, capture_output=True, text=True, env=environment)
        if not done.returncode:
            return NOT_FOR_US.sub("", done.stdout)
        said.append(f"{program} says: {done.stderr.strip()}")
    raise StateError(
        f"The state's schema cannot be read; {'; '.join(said)}. Where it is TLS or the server's version that subsetd's "
        f"own pg_dump lacks, put one on the PATH, of Postgres {connection.server_version // 10000} or later."
    )


def _put(connection: Connection, backup: BackupReader, replace: bool) -> None:
    manifest = backup.manifest
    where = place(connection.engine.url)
    raw: Any = connection.connection.driver_connection
    with raw.cursor() as cursor:
        cursor.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'; select current_schema()")
        (schema,) = cursor.fetchone()
        # Before any table: whoever comes to migrate meanwhile waits for the end, and holds nothing that is needed here.
        cursor.execute("select pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
        require_encoding(connection)
        if schema != manifest.schema:
            raise BackupError(
                f"The backup's tables are in the schema {manifest.schema}, those of the {where} in {schema}"
            )
        found = found_revision(connection)
        if found is not None and not is_known(found):  # it may have tables that would stay, or stand in the way
            raise StateError(
                f"The {where} is at schema revision {found}, which another release of subsetd made, with tables that "
                "this one may not know: restore into an empty database (SUBSETD_DATA_DIR, SUBSETD_DATABASE_URL)"
            )
        present = _ours(cursor)
        if not replace:
            _require_empty(cursor, [name for name, has_rows in present if has_rows], where)
        if present:
            cursor.execute(f"drop table {', '.join(_quoted(name) for name, _ in present)}")
        before, behind = SECTIONS
        cursor.execute(backup.section(before))
        for table in manifest.tables:
            with backup.rows(table.name) as rows:
                target = f"{_quoted(schema)}.{_quoted(table.into or table.name)}"
                copy_stream(cursor, f"{target} FROM STDIN (FORMAT binary)", rows, CHUNK)
            if cursor.rowcount != table.rows:
                raise BackupError(f"{table.name} got {cursor.rowcount} rows, the backup speaks of {table.rows}")
        cursor.execute(backup.section(behind))
        # The scripts have set the session up for themselves.
        cursor.execute("reset all")
        for name, last in manifest.sequences.items():
            cursor.execute("select setval(%s::regclass, %s)", (f"{_quoted(schema)}.{_quoted(name)}", last))
    upgrade(connection)
    with raw.cursor() as cursor:
        cursor.execute(AT_HOME)


def _require_empty(cursor: Any, names: Sequence[str], where: str) -> None:
    for name in names:
        if name != "alembic_version":
            cursor.execute(f"select exists (select from {_quoted(name)})")
            if cursor.fetchone()[0]:
                raise StateError(
                    f"The {where} holds a state already ({name} has rows): give --replace to drop it, or restore into "
                    "another one (SUBSETD_DATA_DIR, SUBSETD_DATABASE_URL)"
                )


def _report(manifest: Manifest) -> BackupReport:
    return BackupReport(
        manifest.version,
        manifest.revision,
        len(manifest.tables),
        sum(table.rows for table in manifest.tables),
        sum(table.bytes for table in manifest.tables),
    )


def _sync_folder(folder: Path) -> None:
    """Let the disk have the file's name as well."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

"""Own the schema's version: bring a database to the revision that this code works with, or say what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, text
from sqlalchemy.exc import ProgrammingError

from service.core.errors import StateError, first_line
from service.store.database import OthersInTheWayError, make_engine, place
from service.store.locks import MIGRATION_LOCK
from service.store.tables import SCHEMA_REVISION
from service.store.writer_lock import keep_writers_away

MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"
"""Beside `service`, in a checkout as in an installed package."""

LOCK_TIMEOUT = "30s"
"""How long a migration waits for a table that others use, before it gives up and leaves everything as it was."""

LOCK_NOT_AVAILABLE = "55P03"
DEADLOCK = "40P01"
DUPLICATE_TABLE = "42P07"

OLDEST_POSTGRES = 15
"""The first one with MERGE, by which each batch is stored."""

Database = Engine | Connection | URL | str


def upgrade(database: Database) -> str | None:
    """Bring `database` to this code's revision, in one transaction: all of it or nothing; give the one that it was at.

    A `Connection` is used as it is, within its transaction, and not committed. Raises StateError when the
    database is not there, is of a Postgres or a revision that cannot be used, its tables stay locked by others, or who
    began by an older revision writes it still.
    """
    return _migrate(database, "upgrade", SCHEMA_REVISION)


def downgrade(database: Database, revision: str = "base") -> None:
    """Take `database` back to `revision`; `base` drops the whole state. Guarantees and errors as for `upgrade`."""
    _migrate(database, "downgrade", revision)


def found_revision(database: Database) -> str | None:
    """Read the revision that `database` is at; None where no state was ever made."""
    with _connection(database) as connection:
        return _found(connection)


def is_known(revision: str) -> bool:
    """Tell whether this code has migrations from a revision."""
    return revision in {path.name.split("_")[0] for path in (MIGRATIONS / "versions").glob("*.py")}


def require_known(revision: str) -> None:
    """Raise StateError for a revision that this code has no migrations from."""
    if not is_known(revision):
        raise StateError(
            f"Schema revision {revision} was made by another release of subsetd, this one knows {SCHEMA_REVISION} and "
            "those before it: use that release"
        )


def require_current(database: Database) -> None:
    """Raise StateError unless `database` is at the revision that this code works with."""
    with _connection(database) as connection:
        found = _found(connection)
        if found != SCHEMA_REVISION:
            raise _wrong_revision(connection, found)


def _found(connection: Connection) -> str | None:
    """Read Alembic's own table: what migrates nothing need not load Alembic, which takes a quarter of a second."""
    if connection.scalar(text("select to_regclass('alembic_version')")) is None:
        return None
    found: str | None = connection.scalar(text("select version_num from alembic_version"))
    return found


def _migrate(database: Database, step: str, revision: str) -> str | None:
    with _connection(database) as connection:
        _require_postgres(connection)
        # Whatever bounds statements of the role, a migration, and the wait for a restore, take as long as they do.
        connection.execute(text("set local statement_timeout = 0"))
        connection.execute(text("select pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK})
        connection.execute(text(f"set local lock_timeout = '{LOCK_TIMEOUT}'"))
        before = _found(connection)
        if before == revision:
            return before
        if before is None:
            require_encoding(connection)
        elif connection is not database:  # a caller's own connection: who restores is the writer
            keep_writers_away(connection)
        from alembic import command
        from alembic.config import Config
        from alembic.util.exc import CommandError

        config = Config()
        # Alembic interpolates its options, and a folder's name may hold a percent sign.
        config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
        config.attributes["connection"] = connection
        try:
            getattr(command, step)(config, revision)
        except CommandError as error:
            raise _wrong_revision(connection, _found(connection)) from error
        except ProgrammingError as error:
            if getattr(error.orig, "pgcode", None) != DUPLICATE_TABLE:
                raise
            raise StateError(
                f"The {place(connection.engine.url)} has tables of others with names that the state's have "
                f"({first_line(error.orig)}); nothing was made: set SUBSETD_DATABASE_URL to a database of its own"
            ) from error
        connection.execute(text("set local lock_timeout = default; set local statement_timeout = default"))
    return before


def _require_postgres(connection: Connection) -> None:
    number, name = connection.execute(
        text("select current_setting('server_version_num')::int / 10000, current_setting('server_version')")
    ).one()
    if number < OLDEST_POSTGRES:
        raise StateError(
            f"The {place(connection.engine.url)} is Postgres {name}, and a state needs {OLDEST_POSTGRES} or later: set "
            "SUBSETD_DATABASE_URL to such a one, or leave it out, and the embedded Postgres is used"
        )


def require_encoding(connection: Connection) -> None:
    """Raise StateError for a database in which not each value can be stored."""
    found = connection.scalar(text("select current_setting('server_encoding')"))
    if found != "UTF8":
        raise StateError(
            f"The {place(connection.engine.url)} has the encoding {found}, and a state needs UTF8, which has all "
            "characters: make a database by `createdb --encoding=UTF8 --locale=C --template=template0 NAME`, and set "
            "SUBSETD_DATABASE_URL to it"
        )


@contextmanager
def _connection(database: Database) -> Iterator[Connection]:
    """Give a connection in a transaction that commits at the end, unless it is the caller's own."""
    if isinstance(database, Connection):
        yield database
        return
    engine = database if isinstance(database, Engine) else make_engine(database, "subsetd migration")
    try:
        with engine.begin() as connection:
            yield connection
    except OthersInTheWayError as error:
        waited = {LOCK_NOT_AVAILABLE: f"for {LOCK_TIMEOUT}", DEADLOCK: "who waited for the migration"}
        code = getattr(error.__cause__, "pgcode", None)
        if code not in waited:
            raise
        raise StateError(
            f"A table of the {place(engine.url)} was in use by others {waited[code]}; nothing was migrated. "
            "End the other subsetd processes that use it, and start again."
        ) from error
    finally:
        if engine is not database:
            engine.dispose()


def _wrong_revision(connection: Connection, found: str | None) -> StateError:
    where = place(connection.engine.url)
    if found is None:
        way_out = "it holds no state yet: `subsetd bootstrap` or `subsetd run` makes it"
    elif is_known(found):
        way_out = "start `subsetd run` once, which migrates it, with a feed or without"
    else:
        way_out = (
            "it was made by another release of subsetd: use that one, or set SUBSETD_DATABASE_URL to another database"
        )
    return StateError(f"The {where} is at schema revision {found or 'none'}, expected {SCHEMA_REVISION}; {way_out}")

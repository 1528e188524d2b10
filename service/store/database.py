"""Own engines and connections: how Postgres is reached, and what is said when it is away, full, or too slow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg2
import psycopg2.errors
from sqlalchemy import URL, Engine, ExceptionContext, PoolProxiedConnection, QueuePool, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from service.core.errors import FullDiskError, StateError, first_line, refusal

CONNECT_TIMEOUT_SECONDS = 5
CONNECT_ARGS = "subsetd_connect_args"
"""Under which an engine keeps what it connects with, for `begin_connection`."""

RELEASES_THE_VANISHED = (
    "-c tcp_keepalives_idle=30",
    "-c tcp_keepalives_interval=10",
    "-c tcp_keepalives_count=3",
)
"""Let the server notice in a minute, not in 2 hours, that our machine vanished: until then it keeps our locks."""

READ_COMMITTED = r"-c default_transaction_isolation=read\ committed"
"""Let who has waited for a lock see what others committed before they let it go, as who takes one relies on."""

OTHERS_IN_THE_WAY = ("40001", "40P01", "55P03")
"""Codes of statements that others were in the way of: conflicts of snapshots, deadlocks, locks waited for in vain."""

READ_ONLY = "25006"
NO_RIGHT = "42501"

ENDED_SESSIONS = ("25P03", "25P04")
"""Codes of sessions that the server ended because a transaction stayed open, or idle, for longer than it bears."""


class LostConnectionError(StateError):
    """A connection that was open is gone; the same work on a new connection may succeed."""


class OthersInTheWayError(StateError):
    """Others were in the way of a statement; its transaction, begun anew, may succeed."""


def make_engine(
    url: str | URL,
    application_name: str,
    *,
    statement_timeout_ms: int | None = None,
    lock_timeout_ms: int | None = None,
    idle_timeout_ms: int | None = None,
    pool_size: int = 5,
    max_overflow: int = 5,
    pool_timeout_seconds: float = 10.0,
) -> Engine:
    """Make an engine over psycopg2 whose failures to reach or keep the database are `StateError`.

    The message of such an error names host, port and database (never the password) and the way out. A
    connection that is lost in mid-work raises `LostConnectionError` and empties the pool, so that the next
    one is new; that all connections stayed in use is a `StateError`, too. Sessions run in UTC and UTF-8, and see what
    is committed unless they ask for a snapshot, whatever environment, role or database say; they may be idle for any
    time. For failures of raw cursors (COPY) see `state_error`. Raises `StateError` for an address that is none;
    connects only when it is used.
    """
    address = parse_address(url)
    # Compiling a plan costs more than any of our statements gains by it.
    options = ["-c timezone=UTC", "-c jit=off", READ_COMMITTED, *RELEASES_THE_VANISHED]
    if statement_timeout_ms is not None:
        options.append(f"-c statement_timeout={statement_timeout_ms}")
    if lock_timeout_ms is not None:
        options.append(f"-c lock_timeout={lock_timeout_ms}")
    if idle_timeout_ms is not None:
        options.append(f"-c idle_in_transaction_session_timeout={idle_timeout_ms}")
    given = address.query.get("options")
    if given:
        options = [given if isinstance(given, str) else " ".join(given), *options]
        address = address.difference_update_query(["options"])
    connect_args = {
        "application_name": application_name,
        "connect_timeout": CONNECT_TIMEOUT_SECONDS,
        # Texts are sent as UTF-8, also those inside of a binary COPY, which the server takes for what this says: else
        # PGCLIENTENCODING, the role or the database may say something else.
        "client_encoding": "UTF8",
        "options": " ".join(options),
        # A server whose machine vanished is noticed in about a minute: where nothing is said instead of in 2 hours,
        # where a question is on its way, for which nobody keeps a connection alive, instead of in a quarter of an hour.
        # Less would end a COPY into a server that reads nothing while its disk is held up: that counts as no answer.
        "keepalives_idle": 5,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 60_000,
    }

    class Pool(QueuePool):
        def connect(self) -> PoolProxiedConnection:
            try:
                return super().connect()
            except PoolTimeoutError as error:  # of which `handle_error` does not hear
                raise StateError(f"All connections to {place(address)} are in use; try again later.") from error

    engine = create_engine(
        address,
        poolclass=Pool,
        connect_args=connect_args,
        execution_options={CONNECT_ARGS: connect_args},
        pool_size=pool_size,
        max_overflow=max_overflow,
        pool_timeout=pool_timeout_seconds,
        hide_parameters=True,  # errors are logged, and a parameter may be a watch's secret or a value of the data
    )
    # SQLAlchemy's own way back from a read-only transaction lets the connection begin all further ones READ WRITE: over
    # a default of the server that forbids it, and on a standby to an error even of those that only read.
    engine.dialect.set_readonly = _set_read_only  # type: ignore[attr-defined]

    @event.listens_for(engine, "do_connect")
    def connect(_dialect: Any, _record: Any, arguments: list[Any], parameters: dict[str, Any]) -> Any:
        try:
            connection = psycopg2.connect(*arguments, **parameters)
            _bear_idleness(connection)
        except psycopg2.OperationalError as error:
            raise cannot_connect(error, address) from error
        return connection

    @event.listens_for(engine, "handle_error")
    def translate(context: ExceptionContext) -> BaseException | None:
        if not isinstance(context.original_exception, Exception):
            return None  # the process is told to end, and its connection is given up for that alone
        if context.is_disconnect:
            return LostConnectionError(_lost(context.original_exception, address))
        if getattr(context.original_exception, "pgcode", None) == READ_ONLY:
            # A session stays as read-only as it began, also where the database no longer is: the next one is new.
            context.is_disconnect = True
        return state_error(context.original_exception, address)

    return engine


def _bear_idleness(connection: Any) -> None:
    """Let the server end no session for being idle: it waits in a pool, or holds a lock that others work under."""
    if connection.server_version >= 140000:  # a source may be older
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute("SET idle_session_timeout = 0")
        connection.autocommit = False


def _set_read_only(connection: Any, value: bool) -> None:
    connection.readonly = value or None


def parse_address(url: str | URL) -> URL:
    """Read a `postgresql://` address and pin its driver to psycopg2; raise `StateError` for any other."""
    try:
        address = make_url(url)
    except (ArgumentError, ValueError):  # the latter for a port that is no number
        raise StateError(
            "The address of the state's database cannot be read; "
            "write it as postgresql://user:password@host:port/database."
        ) from None
    if address.get_backend_name() not in ("postgresql", "postgres"):
        raise StateError(
            f"The state lives in Postgres, not in {address.get_backend_name()!r}; "
            "write its address as postgresql://user:password@host:port/database."
        )
    return address.set(drivername="postgresql+psycopg2")


def place(url: URL) -> str:
    """Name a database for a message: its name, host and port or socket; never user or password."""
    host = url.host or url.query.get("host")
    if not isinstance(host, str):
        host = ",".join(host) if host else "the default socket"
    where = f"socket {host}" if host.startswith("/") else f"{host}:{url.port or url.query.get('port') or 5432}"
    return f"database {_name(url)!r} at {where}"


def _name(url: URL) -> str:
    return url.database or url.username or "postgres"


def address_of(cursor: Any) -> URL:
    """Give the address that a raw cursor's connection, which may be lost by now, was opened with; no password."""
    told = psycopg2.extensions.parse_dsn(cursor.connection.dsn)
    return URL.create("postgresql", told.get("user"), query={"host": told["host"]} if "host" in told else {},
                      port=told.get("port"), database=told.get("dbname"))  # fmt: skip


def state_error(error: BaseException | None, url: URL) -> StateError | None:
    """Turn a psycopg2 error that is the database's plight, not the statement's fault, into a `StateError`.

    Covers lost connections, a full disk, too many connections, shutdowns, statement timeouts, a database that takes no
    writes, a role without the right, and statements that others were in the way of; gives None for every other error.
    Use it around raw cursors (COPY); an engine's own executions do it already.
    """
    if not isinstance(error, psycopg2.Error):
        return None
    code = error.pgcode or ""
    where = place(url)
    if code == "57014":
        return StateError(f"A statement on {where} took longer than its time limit; ask for less, or try again later.")
    if code == "53100":
        return FullDiskError(f"The disk of {where} is full; nothing was applied. Make room and start again.")
    if code == READ_ONLY:
        return StateError(
            f"The {where} is read-only ({first_line(error)}); nothing was applied. SELECT pg_is_in_recovery() says "
            "whether it is a standby: then give the primary's address, or promote it. If not, SHOW "
            f'default_transaction_read_only says on: ALTER DATABASE "{_name(url)}" RESET '
            "default_transaction_read_only, or of the role or system, where it was set there."
        )
    if code == NO_RIGHT:
        return StateError(
            f"The role of this address may not do that on {where}: {first_line(error)}. GRANT it the right, or give "
            "the address of the role that owns the state."
        )
    if code in OTHERS_IN_THE_WAY:
        return OthersInTheWayError(
            f"Others were in the way of a statement on {where}: {first_line(error)}; nothing was applied, try again."
        )
    if code[:2] in ("53", "58"):
        return StateError(f"The {where} is out of resources: {first_line(error)}; look at its log.")
    # A COPY whose connection dies raises psycopg2's base class, without a code.
    is_unreachable = isinstance(error, psycopg2.OperationalError | psycopg2.InterfaceError)
    if not code and (is_unreachable or type(error) is psycopg2.DatabaseError):
        return LostConnectionError(_lost(error, url))
    if code[:2] in ("08", "57") or code in ENDED_SESSIONS:
        return LostConnectionError(_lost(error, url))
    return None


def cannot_connect(error: psycopg2.OperationalError | TimeoutError, url: URL) -> StateError:
    """Say why a server was not reached."""
    text = "no answer" if isinstance(error, TimeoutError) else refusal(error)
    where = place(url)
    if re.search(r'FATAL: +database ".*" does not exist', text):
        return StateError(f"There is no {where}; create it with createdb, or correct SUBSETD_DATABASE_URL.")
    if re.search(r'password authentication failed|no pg_hba.conf entry|no password supplied|role ".*" does not', text):
        return StateError(f"The {where} refused the user {url.username!r}: {text}; correct SUBSETD_DATABASE_URL.")
    if "unsupported startup parameter" in text:  # as PgBouncer says
        return StateError(
            f"The {where} is a pooler's ({text}), which shares sessions out, and with them locks and snapshots; "
            "correct SUBSETD_DATABASE_URL: it has to be the address of Postgres itself."
        )
    return StateError(
        f"Cannot reach {where}: {text}. Start the server, or correct SUBSETD_DATABASE_URL; nothing was lost."
    )


def _lost(error: BaseException | None, url: URL) -> str:
    cause = first_line(error)
    return f"The connection to {place(url)} was lost: {cause}. What was not committed was not applied; try again."


def told_too_long(error: psycopg2.errors.ProgramLimitExceeded) -> str:
    """Say that a column's name does not go into an index."""
    return f"its name is too long for the state to find it by ({first_line(error)})"


def begin_connection(engine: Engine) -> Any:
    """Begin a connection as the engine's are, outside of its pool, that waits for nothing (psycopg2's async mode).

    Raises StateError.
    """
    arguments, parameters = engine.dialect.create_connect_args(engine.url)
    parameters |= engine.get_execution_options()[CONNECT_ARGS]
    try:
        return psycopg2.connect(*arguments, **parameters, async_=True)
    except psycopg2.OperationalError as error:
        raise cannot_connect(error, engine.url) from error


@contextmanager
def connect(url: str, application_name: str, lock_timeout_ms: int | None = None) -> Iterator[Any]:
    """Open a raw psycopg2 connection; what fails because of the database is a StateError, nothing is committed."""
    engine = make_engine(url, application_name, lock_timeout_ms=lock_timeout_ms, pool_size=1, max_overflow=0)
    pooled = engine.raw_connection()
    connection = pooled.driver_connection
    assert connection is not None
    try:
        with connection.cursor() as cursor:  # a COPY of a partition, or a wait for the tasks, may take long
            cursor.execute("SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0")
            if connection.server_version >= 170000:
                cursor.execute("SET transaction_timeout = 0")
        connection.commit()
        yield connection
    except psycopg2.Error as error:
        told = state_error(error, parse_address(url))
        if told is None:
            raise
        raise told from error
    finally:
        connection.close()
        pooled.invalidate()
        engine.dispose()

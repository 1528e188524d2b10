"""Own the tests' databases: one throw-away server a session, one database a test, cloned from a migrated template."""

from __future__ import annotations

import itertools
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from sqlalchemy import Engine, StaticPool, create_engine, make_url

from service.store import migrate
from service.store.embedded import EmbeddedPostgres
from tests.in_memory import IN_MEMORY
from tests.waiting import wait_for

TEMPLATE = "subsetd_template"
_numbers = itertools.count(1)


def administer(server: EmbeddedPostgres, statement: str) -> None:
    """Run one statement outside a transaction, as CREATE and DROP DATABASE want it."""
    _run(kept_connection(server.url).raw, statement)


def server_version(server: EmbeddedPostgres) -> int:
    """Give a server's version as libpq has it: 150004 is 15.4."""
    version: int = kept_connection(server.url).raw.server_version
    return version


def _run(connection: Any, statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


class _Kept(threading.local):
    """Hold the connections of one thread by process and address: a child must not use, nor close, its parent's."""

    def __init__(self) -> None:
        self.connections: dict[tuple[int, str], KeptConnection] = {}


class KeptConnection:
    """A connection to a database that commits each statement, and an engine over it."""

    def __init__(self, url: str) -> None:
        self.raw: Any = psycopg2.connect(url)
        self.raw.autocommit = True

    @cached_property
    def engine(self) -> Engine:
        return create_engine("postgresql+psycopg2://", creator=lambda: self.raw, poolclass=StaticPool)

    @contextmanager
    def in_one_transaction(self) -> Iterator[None]:
        """Commit no statement by itself meanwhile."""
        self.raw.autocommit = False
        try:
            yield
        finally:
            if not self.raw.closed:
                self.raw.rollback()
                self.raw.autocommit = True


_kept = _Kept()


def kept_connection(url: str) -> KeptConnection:
    """Give this thread's connection to a database.

    A connection of its own for each question costs the server more than the question.
    """
    here = (os.getpid(), url)
    if (kept := _kept.connections.get(here)) is not None:
        with suppress(psycopg2.Error):
            _run(kept.raw, "select")
            return kept
    kept = _kept.connections[here] = KeptConnection(url)
    return kept


def let_go(url: str) -> None:
    """Close this thread's connection to a database: it is in the way of whoever wants that one alone."""
    kept = _kept.connections.pop((os.getpid(), url), None)
    if kept is not None:
        kept.raw.close()


def name_of(url: str) -> str:
    """Give the name of the database at an address: what it is copied by."""
    return str(make_url(url).database)


@contextmanager
def fresh_database(server: EmbeddedPostgres, template: str) -> Iterator[str]:
    """Give the address (`postgresql://...`) of a new copy of `template`; drop it at the end, whoever is still in it.

    Where nothing is synced to disk, copying files takes a third of what copying through the log does, which came with
    Postgres 15.
    """
    name = f"test_{next(_numbers)}"
    by_files = "strategy file_copy" if server_version(server) >= 15_00_00 else ""
    let_go(server.url_of(template))
    administer(server, f"create database {name} template {template} {by_files}")
    try:
        yield server.url_of(name)
    finally:
        let_go(server.url_of(name))
        administer(server, f"drop database {name} with (force)")


@contextmanager
def with_template(server: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    """Run a server that has a migrated database to be copied."""
    with server:
        administer(server, f"create database {TEMPLATE}")
        migrate.upgrade(server.url_of(TEMPLATE))
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[EmbeddedPostgres]:
    """Run one real Postgres for the whole session; nothing of it is synced to disk or kept."""
    folder = Path(tempfile.mkdtemp(prefix="subsetd-test-", dir=IN_MEMORY))
    with with_template(EmbeddedPostgres(folder, throw_away=True)) as server:
        yield server


@pytest.fixture
def database_url(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """Give a fresh, migrated database of this test alone."""
    with fresh_database(postgres_server, TEMPLATE) as url:
        yield url


@pytest.fixture
def empty_database_url(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """Give a fresh database of this test alone, without any table."""
    with fresh_database(postgres_server, "template0") as url:
        yield url


@pytest.fixture(scope="session")
def logical_server() -> Iterator[EmbeddedPostgres]:
    """Run one real Postgres whose changes can be followed, for the whole session; nothing of it is kept."""
    folder = Path(tempfile.mkdtemp(prefix="subsetd-logical-", dir=IN_MEMORY))
    settings = {"wal_level": "logical", "max_wal_senders": "20", "max_replication_slots": "40"}
    with EmbeddedPostgres(folder, throw_away=True, extra_settings=settings) as server:
        yield server


@pytest.fixture
def followed_url(logical_server: EmbeddedPostgres) -> Iterator[str]:
    """Give a fresh database that can be followed, without any table; its slots are dropped in the end."""
    with fresh_database(logical_server, "template0") as url:
        try:
            yield url
        finally:
            drop_slots(url)


def drop_slots(url: str) -> None:
    """Drop the slots of a database, whoever reads them: it could not be dropped itself."""
    with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        cursor.execute("select slot_name, active_pid from pg_replication_slots where database = current_database()")
        for slot, pid in cursor.fetchall():
            if pid is not None:
                cursor.execute("select pg_terminate_backend(%s)", (pid,))
                wait_for(partial(_is_let_go, cursor, slot))  # servers wait themselves from Postgres 14 on
            cursor.execute("select pg_drop_replication_slot(%s)", (slot,))


def _is_let_go(cursor: Any, slot: str) -> bool:
    cursor.execute("select from pg_replication_slots where slot_name = %s and active", (slot,))
    return cursor.fetchone() is None

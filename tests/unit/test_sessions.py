"""What sessions on the state's database begin with, whatever the environment, the role or the database say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg2
import pytest

from service.core.errors import SourceError, StateError
from service.store import cluster_rows, record_rows, row_images
from service.store.database import begin_connection, cannot_connect, make_engine, parse_address
from service.store.preflight_facts import read_source_facts
from service.store.source_reader import SourceSnapshot
from service.store.writer import RENEW_STAGING, PostgresWriter
from service.stream.postgres_address import PostgresAddress, SourceAway


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Give what is asked of a server that is not there."""
    found: list[dict[str, Any]] = []

    def connect(*_: Any, **parameters: Any) -> Any:
        found.append(parameters)
        raise psycopg2.OperationalError("no server")

    monkeypatch.setattr(psycopg2, "connect", connect)
    return found


def test_texts_are_told_to_be_utf_8(asked: list[dict[str, Any]]) -> None:
    """Binary COPY has them as UTF-8: a server that takes them for LATIN1 stores others."""
    engine = make_engine("postgresql://me@h/state?client_encoding=LATIN1", "test")
    with pytest.raises(StateError):
        engine.connect()
    with pytest.raises(StateError):
        begin_connection(engine)
    assert [one["client_encoding"] for one in asked] == ["UTF8", "UTF8"]


def test_who_waited_for_a_lock_sees_what_was_committed(asked: list[dict[str, Any]]) -> None:
    """Where a role or database says `repeatable read`, a batch would not log changes for whom it has waited for."""
    with pytest.raises(StateError):
        make_engine("postgresql://me@h/state?options=-c default_transaction_isolation=serializable", "test").connect()
    *_, last = re.findall(r"-c default_transaction_isolation=(\w+(?:\\ \w+)?)", asked[0]["options"])
    assert last == r"read\ committed"


NOBODY_LISTENS = """connection to server at "localhost" (::1), port 5432 failed: Connection refused
\tIs the server running on that host and accepting TCP/IP connections?
"""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            'FATAL:  password authentication failed for user "me"\n',
            "The database 'state' at localhost:5432 refused the user 'me': ",
        ),
        ('FATAL:  database "state" does not exist\n', "There is no database 'state' at localhost:5432; create it"),
        (
            'FATAL:  role "database" does not exist\n',
            "The database 'state' at localhost:5432 refused the user 'me': ",
        ),
        ("fe_sendauth: no password supplied\n", "The database 'state' at localhost:5432 refused the user 'me': "),
        (
            "FATAL:  unsupported startup parameter: options\n",
            "The database 'state' at localhost:5432 is a pooler's (connection to ",
        ),
        ("Connection refused\n", "Cannot reach database 'state' at localhost:5432: connection to "),
    ],
)
@pytest.mark.parametrize("others", ["", NOBODY_LISTENS])
def test_why_there_is_no_connection_is_what_the_server_says(others: str, said: str, told: str) -> None:
    """Of several addresses of a host the first ones may be none of the server's."""
    error = psycopg2.OperationalError(
        f'{others}connection to server at "database" (127.0.0.1), port 5432 failed: {said}'
    )
    found = str(cannot_connect(error, parse_address("postgresql://me@localhost/state")))
    assert found.startswith(told)
    assert said.strip() in found or "There is no database" in found


def test_a_source_behind_a_pooler_is_told_with_its_own_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: Any, **__: Any) -> Any:
        raise psycopg2.OperationalError("FATAL:  unsupported startup parameter: options")

    monkeypatch.setattr(psycopg2, "connect", connect)
    told = r"'shop'.*pooler's.*correct the source's address: it has to be the address of Postgres itself\.$"
    with pytest.raises(SourceError, match=told):
        SourceSnapshot("postgresql://me@h/shop")
    with pytest.raises(SourceError, match=r"correct --source: it has to be the address of Postgres itself\.$"):
        read_source_facts("postgresql://me@h/shop")


def test_a_source_that_refuses_the_user_is_not_away() -> None:
    error = psycopg2.OperationalError(
        f'{NOBODY_LISTENS}connection to server at "h" (127.0.0.1), port 5432 failed: '
        'FATAL:  password authentication failed for user "me"\n'
    )
    found = PostgresAddress("shop", {"host": "h", "user": "me"})._unreachable(error)
    assert not isinstance(found, SourceAway)
    assert "refused the user 'me'" in str(found)


class Session:
    """Be a connection that notes what is executed and committed."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def cursor(self) -> Session:
        return self

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def execute(self, statement: str) -> None:
        self.said.append(statement)

    def commit(self) -> None:
        self.said.append("commit")

    rollback = commit


def test_staging_tables_begin_anew_each_hour_between_two_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """No vacuum comes to them: with those of a session that lasts the server would run out of transactions."""
    now = 0.0
    monkeypatch.setattr("service.store.writer.time.monotonic", lambda: now)
    writer = PostgresWriter("postgresql://me@h/state")
    writer.writing, writer._reading = Session(), Session()
    writer.is_wanted()
    now = record_rows.RENEWED_SECONDS
    unit = writer.begin()
    assert writer.writing.said == [RENEW_STAGING, "commit"]
    now *= 2
    writer.is_wanted()
    assert len(writer.writing.said) == 2, "a batch is under way, which may have staged rows"
    unit.rollback()
    writer.is_wanted()
    writer.is_wanted()
    assert writer.writing.said[2:] == ["commit", RENEW_STAGING, "commit"]
    staging = record_rows.STAGING + cluster_rows.STAGING + row_images.STAGING
    made = re.findall(r"create temporary table if not exists (\w+)", staging)
    assert f"truncate {', '.join(made)}" == RENEW_STAGING

"""A database that takes no writes, as behind a failover: it is read from, and the consumer waits until it does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta

import psycopg2
import pytest
from sqlalchemy import Engine, make_url

from service.core.errors import StateError
from service.store.api_keys import PostgresApiKeys
from service.store.database import make_engine, state_error
from service.store.writer import PostgresWriter
from service.usecases.access import AccessControl, Scope
from tests import states
from tests.asking import http_client
from tests.following import MakeStream, Watch, consume, shop_tables
from tests.integration.serving import app_over, serving
from tests.waiting import BOUND_SECONDS, wait_for

WATCH = {
    "name": "orders",
    "rule": {"kind": "ind", "dependent": "*", "referenced": "*"},
    "channel": {"kind": "webhook", "url": "https://alerts.example/"},
}


@contextmanager
def taking_no_writes(url: str) -> Iterator[None]:
    """End the sessions of a database, and let it be read-only for all others."""

    def administer(change: str) -> None:
        options = "-c default_transaction_read_only=off"
        with closing(psycopg2.connect(url, options=options)) as connection, connection.cursor() as cursor:
            connection.autocommit = True  # before the sessions end: who connects again at once is to find it changed
            cursor.execute(f"alter database {make_url(url).database} {change}")
            cursor.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where datname = current_database() and pid <> pg_backend_pid()"
            )

    administer("set default_transaction_read_only = on")
    try:
        yield
    finally:
        administer("reset default_transaction_read_only")


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    states.store(database_url, shop_tables())
    engine = make_engine(database_url, "test")
    yield engine
    engine.dispose()


def test_who_has_a_key_reads_from_it_and_a_write_is_told_why_it_cannot_be(engine: Engine, database_url: str) -> None:
    access = AccessControl(PostgresApiKeys(engine), None, timedelta(hours=1))
    bearer = {"Authorization": f"Bearer {access.create('ops', Scope.ADMIN, None)[1]}"}
    with serving(app_over(engine, access=access)) as base, http_client(base_url=base, headers=bearer) as client:
        with taking_no_writes(database_url):
            assert wait_for(lambda: client.get("/api/v1/state").status_code == 200)
            assert client.get("/metrics").status_code == 200
            refused = client.post("/api/v1/watches", json=WATCH)
            assert (refused.status_code, refused.headers["content-type"]) == (503, "application/problem+json")
            assert "is read-only" in refused.json()["detail"]
            assert "RESET default_transaction_read_only" in refused.json()["detail"]
            assert client.get("/api/v1/watches").json()["items"] == []
        wait_for(lambda: client.post("/api/v1/watches", json=WATCH).status_code == 201)


def test_the_way_out_names_the_database_that_is_called_as_the_user(database_url: str) -> None:
    """As where the address names none."""
    with closing(psycopg2.connect(database_url)) as connection, connection.cursor() as cursor:
        with pytest.raises(psycopg2.Error) as caught:
            cursor.execute("set transaction read only; create table made (id integer)")
        told = state_error(caught.value, make_url("postgresql://ada@host"))
    assert 'ALTER DATABASE "ada" RESET' in str(told)


def test_a_session_that_began_read_only_is_not_used_again(engine: Engine, database_url: str) -> None:
    """The database takes writes again; the sessions of before, whom nobody ended, would not."""
    keys = PostgresApiKeys(engine)
    with taking_no_writes(database_url), pytest.raises(StateError, match="is read-only"):
        keys.add_key("ops", Scope.READ, "abc", b"x", None)
    assert keys.add_key("ops", Scope.READ, "abc", b"x", None).name == "ops"


def test_a_consumer_goes_on_when_it_takes_writes_again(
    engine: Engine, database_url: str, make_stream: MakeStream
) -> None:
    stream, watch, stop = make_stream(shop_tables()), Watch(), threading.Event()
    options = {"watch": watch, "stop": stop, "retry_seconds": BOUND_SECONDS}
    consumer = threading.Thread(target=consume, args=(database_url, stream), kwargs=options)
    consumer.start()
    try:
        wait_for(lambda: watch.followed)
        with taking_no_writes(database_url):
            stream.change("customers", None, ["4", "Dora"])
            wait_for(lambda: any("is read-only" in str(error) for error in watch.errors) or not consumer.is_alive())
            assert consumer.is_alive(), "it tries again"
        wait_for(lambda: watch.reports)
    finally:
        stop.set()
        consumer.join()
    assert states.read(database_url) == states.expected(stream.tables)


def test_a_statement_that_others_are_in_the_way_of_may_be_tried_again(engine: Engine, database_url: str) -> None:
    """A server may bound how long a lock is waited for; the consumer does not end by that."""
    states.execute(database_url, f"alter database {make_url(database_url).database} set lock_timeout = '10ms'")
    writer = PostgresWriter(database_url)
    with closing(psycopg2.connect(database_url)) as other, closing(writer):
        writer.acquire()
        other.cursor().execute("lock table source")
        with pytest.raises(StateError, match=r"Others were in the way of a statement on database 'test_.*lock timeout"):
            writer.load()


def test_a_reader_that_others_are_in_the_way_of_is_told_to_try_again(engine: Engine, database_url: str) -> None:
    states.execute(database_url, f"alter database {make_url(database_url).database} set lock_timeout = '10ms'")
    hurried = make_engine(database_url, "test-api")
    with (
        serving(app_over(hurried)) as base,
        http_client(base_url=base) as client,
        closing(psycopg2.connect(database_url)) as other,
    ):
        other.cursor().execute("lock table contract, uind in access exclusive mode")
        for route in ("uinds", "contracts"):
            answer = client.get(f"/api/v1/{route}")
            assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
            assert "Others were in the way" in answer.json()["detail"]
        other.rollback()
        assert client.get("/api/v1/contracts").status_code == 200
    hurried.dispose()

"""A second source joins a running state: its bootstrap stops neither the writers nor, for long, the consumer."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from pyspark.sql import SparkSession
from sqlalchemy import make_url

from service.core.canonical import value_keys
from service.core.errors import StateError
from service.store import publication
from service.store.checks import PostgresVerifier
from service.store.database import connect, make_engine
from service.store.writer import PostgresWriter
from service.store.writer_lock import CONSUMER_NAME, is_wanted, release_locks, take_writer_lock
from service.stream.envelope import Decoder
from service.stream.file_feed import FileFeed
from service.usecases.batches import BatchLimits
from service.usecases.follow_feed import Consumer
from service.usecases.screening import CAUGHT_UP, IN_BOOTSTRAP
from service.usecases.verify import verify
from spark_jobs import bootstrap
from spark_jobs.bootstrap import run_bootstrap
from spark_jobs.progress import Quiet
from spark_jobs.sources import Options
from tests import states
from tests.events import envelope
from tests.following import Stream, Watch
from tests.postgres import fresh_database
from tests.spark.oracle import query, write_csv
from tests.states import Tables
from tests.waiting import BOUND_SECONDS, wait_for

SHOP = {"customers": ["id", "name"]}


@pytest.fixture
def source_url(postgres_server) -> Iterator[str]:
    """Give a source with one table, beside the state's database."""
    with fresh_database(postgres_server, "template0") as url:
        query(url, "create table items (id integer primary key, customer integer)")
        query(url, "insert into items select i, i % 7 from generate_series(1, 500) i")
        yield url


class Writers:
    """Change two sources without a pause, and tell one feed of both, each change after its commit."""

    def __init__(self, stream: Stream, source_url: str) -> None:
        self.stream = stream
        self.number = 0
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self._database = psycopg2.connect(source_url)
        self._name = self._database.info.dbname
        self._thread = threading.Thread(target=self._body)

    def __enter__(self) -> Writers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(BOUND_SECONDS)
        self._database.close()
        assert not self._thread.is_alive()
        assert self._errors == []

    def _body(self) -> None:
        try:
            while not self._stop.is_set():
                self._change()
                self._stop.wait(0.002)  # the feed is to be longer than what a consumer does in the time
        except BaseException as error:
            self._errors.append(error)

    def _change(self) -> None:
        self.number += 1
        number = self.number
        self.stream.change("customers", None, [str(number + 100), "x"])
        with self._database.cursor() as cursor:
            cursor.execute(
                "update items set customer = customer + 1000 where id = %s returning customer", (number % 400,)
            )
            changed = cursor.fetchone()
            cursor.execute("insert into items values (%s, %s)", (number + 1000, number))
            cursor.execute("select txid_current()")
            (transaction,) = cursor.fetchone()
        self._database.commit()
        tell = partial(
            envelope,
            schema="public",
            table="items",
            db=self._name,
            connector="postgresql",
            txId=transaction % (1 << 32),
        )
        if changed is not None:
            at = {"id": number % 400, "customer": changed[0]}
            self.stream.write(tell("u", before={**at, "customer": changed[0] - 1000}, after=at))
        self.stream.write(tell("c", after={"id": number + 1000, "customer": number}))


@pytest.fixture
def stream(tmp_path: Path, database_url: str) -> Stream:
    tables = Tables(dict(SHOP))
    tables.add("customers", *[[str(i), "x"] for i in range(5)])
    states.store(database_url, tables)
    states.execute(
        database_url,
        "insert into tracked_table (source_id, schema_name, table_name, source_schema, source_table) "
        "select source_id, 's', 'customers', 's', 'customers' from source",
    )
    path = tmp_path / "feed.jsonl"
    path.touch()
    return Stream(path, tables, dict(SHOP))


def make_consumer(url: str, stream: Stream, watch: Watch) -> Consumer:
    return Consumer(
        PostgresWriter(url),
        lambda: FileFeed(str(stream.path)),
        partial(Decoder, unknown_tables="ignore"),
        value_keys,
        watch,
        limits=BatchLimits(records=200),
    )


@contextmanager
def consuming(url: str, stream: Stream, watch: Watch) -> Iterator[list[BaseException]]:
    """Let a consumer run beside; gives its errors, of which there must be none in the end."""
    stop, errors = threading.Event(), []

    def body() -> None:
        try:
            make_consumer(url, stream, watch).run(stop)
        except BaseException as error:
            errors.append(error)

    consumer = threading.Thread(target=body)
    consumer.start()
    try:
        yield errors
    finally:
        stop.set()
        consumer.join(BOUND_SECONDS)
    assert errors == []


def position(url: str) -> int:
    ((offset,),) = states.query(url, "select coalesce(max(next_offset), 0) from feed_position") or [(0,)]
    return int(offset)


def check(spark: SparkSession, url: str, source_url: str, stream: Stream) -> None:
    """Hold the state against a recomputation of each source, and its invariants."""
    options = Options(source_url, "db", url, check=True)
    assert run_bootstrap(spark, options).differences == []
    found, wanted = states.read(url).counters, states.expected(stream.tables).counters
    assert {name: found[name] for name in wanted} == wanted
    engine = make_engine(url, "test")
    with PostgresVerifier(engine).checks() as checks:
        assert [finding for finding in verify(checks) if not finding.holds] == []
    engine.dispose()


def test_a_database_joins_while_its_writers_and_the_consumer_go_on(
    spark: SparkSession, database_url: str, source_url: str, stream: Stream
) -> None:
    watch = Watch()
    with consuming(database_url, stream, watch) as errors:
        with Writers(stream, source_url) as writers:
            wait_for(lambda: position(database_url) > 0 or errors)
            begun = writers.number
            assert run_bootstrap(spark, Options(source_url, "db", database_url)).version
            joined = writers.number
            wait_for(lambda: writers.number > joined + 50)
        wait_for(lambda: position(database_url) == stream.path.stat().st_size or errors)
    assert joined > begun, "nobody stood still for the bootstrap"
    assert len(watch.followed) == 2, "the consumer handed over once"
    reasons = {reason for report in watch.reports for reason in report.skipped}
    assert {CAUGHT_UP, IN_BOOTSTRAP} <= reasons, "the feed went back, and each source took what it had not"
    assert states.query(database_url, "select count(*) from feed_catch_up") == [(0,)]
    check(spark, database_url, source_url, stream)


def test_files_that_were_read_at_an_earlier_position_catch_up(
    spark: SparkSession, database_url: str, stream: Stream, tmp_path: Path
) -> None:
    stream.columns["parts"] = stream.tables.columns["parts"] = ["id"]
    stream.change("customers", None, ["6", "x"])
    at = stream.path.stat().st_size
    stream.change("parts", None, ["2"])
    stream.change("customers", ["6", "x"], ["7", "x"])
    make_consumer(database_url, stream, Watch()).run(threading.Event(), until_end=True)
    end = stream.path.stat().st_size
    write_csv(tmp_path / "data" / "parts.csv", ["id"], [["1"]])
    stream.tables.add("parts", ["1"])
    feed, topic = f"file:{stream.path}", str(stream.path)
    run_bootstrap(spark, Options(str(tmp_path / "data"), "s2", database_url, feed_positions=((feed, topic, 0, at),)))
    assert position(database_url) == at
    assert states.query(database_url, "select name, until_offset from feed_catch_up join source using (source_id)") == [
        ("s", end)
    ]
    states.execute(database_url, "update tracked_table set source_schema = 's' where schema_name = 's2'")
    make_consumer(database_url, stream, Watch()).run(threading.Event(), until_end=True)
    assert states.query(database_url, "select count(*) from feed_catch_up") == [(0,)]
    counters = states.read(database_url).counters
    assert counters["s2.parts.id"] == (2, 0, 2, 0)
    assert counters["s.customers.id"] == states.expected(stream.tables).counters["s.customers.id"]


def test_files_join_while_their_writer_and_the_consumer_go_on(
    spark: SparkSession, database_url: str, stream: Stream, tmp_path: Path
) -> None:
    """What is in the files is what the feed had told up to a position, which is known."""
    rows: dict[int, dict[str, str]] = {}
    number, lock, stop = 0, threading.Lock(), threading.Event()

    def write() -> None:
        nonlocal number
        while not stop.is_set():
            with lock:
                number += 1
                before, after = rows.get(number % 40), {"id": str(number % 40), "note": str(number)}
                rows[number % 40] = after
                stream.write(envelope("u" if before else "c", "s2", "parts", before, after))
                stream.change("customers", None, [str(number + 100), "x"])
            stop.wait(0.002)

    watch, writer = Watch(), threading.Thread(target=write)
    with consuming(database_url, stream, watch) as errors:
        writer.start()
        try:
            wait_for(lambda: (number > 60 and position(database_url) > 0) or errors)
            with lock:
                at = stream.path.stat().st_size
                write_csv(
                    tmp_path / "data" / "parts.csv", ["id", "note"], [list(row.values()) for row in rows.values()]
                )
            begun, where = number, (f"file:{stream.path}", str(stream.path), 0, at)
            run_bootstrap(spark, Options(str(tmp_path / "data"), "s2", database_url, feed_positions=(where,)))
            joined = number
            wait_for(lambda: number > joined + 50 or errors)
        finally:
            stop.set()
            writer.join(BOUND_SECONDS)
        wait_for(lambda: position(database_url) == stream.path.stat().st_size or errors)
    assert joined > begun, "the writer did not stand still for the bootstrap"
    state, expected = states.read(database_url), states.expected(stream.tables)
    parts = {name: [row[name.rpartition(".")[2]] for row in rows.values()] for name in ("s2.parts.id", "s2.parts.note")}
    for name, cells in parts.items():
        found = Counter({value: members[name] for value, members in state.records.values() if name in members})
        assert found == Counter(cells)
    assert state.counters["s.customers.id"] == expected.counters["s.customers.id"]
    assert states.query(database_url, "select count(*) from feed_catch_up") == [(0,)]


def test_two_databases_of_equal_tables_are_told_apart_by_their_sources_names(
    spark: SparkSession, database_url: str, postgres_server, tmp_path: Path
) -> None:
    feed = tmp_path / "feed.jsonl"
    feed.touch()
    with fresh_database(postgres_server, "template0") as north, fresh_database(postgres_server, "template0") as south:
        for number, url in enumerate((north, south)):
            query(url, "create table items (id integer)")
            query(url, f"insert into items values ({number}), (7)")
        run_bootstrap(spark, Options(north, "north", database_url))
        with pytest.raises(StateError, match=r"public\.items is already followed in the source 'north'.*--qualify"):
            run_bootstrap(spark, Options(south, "south", database_url))
        run_bootstrap(spark, Options(south, "south", database_url, qualify=True))
        names = [make_url(url).database for url in (north, south)]
        with feed.open("ab") as file:
            for number, name in enumerate(names):
                after = {"id": 100 + number}
                file.write(envelope("c", "public", "items", None, after, db=name) + b"\n")
                query((north, south)[number], f"insert into items values (10{number})")
        stream = Stream(feed, Tables({}))
        make_consumer(database_url, stream, Watch()).run(threading.Event(), until_end=True)
        found = {
            name: sorted(value for value, members in states.read(database_url).records.values() if name in members)
            for name in ("public.items.id", "south.public.items.id")
        }
        assert found == {"public.items.id": ["0", "100", "7"], "south.public.items.id": ["1", "101", "7"]}
        for name, url in (("north", north), ("south", south)):
            assert run_bootstrap(spark, Options(url, name, database_url, check=True)).differences == []
        again = Options(south, "south", database_url, replace=True, qualify=True)
        assert run_bootstrap(spark, again).version == 4


def test_a_source_whose_columns_changed_is_verified_without_those_that_are_stale(
    spark: SparkSession, database_url: str, source_url: str, tmp_path: Path
) -> None:
    run_bootstrap(spark, Options(source_url, "db", database_url))
    query(
        source_url,
        "alter table items drop column customer, add column state text default 'new', add column note text; "
        "update items set state = 'paid', note = 'x' where id = 1",
    )
    stream = Stream(tmp_path / "items.jsonl", Tables({}))
    after = {"id": 1, "state": "paid", "note": "x"}
    stream.write(envelope("u", "public", "items", {**after, "state": "new", "note": None}, after))
    watch = Watch()
    make_consumer(database_url, stream, watch).run(threading.Event(), until_end=True)
    assert watch.schema == [("public.items", ("note", "state"), ("customer",))]
    stale = "select column_name from attribute where stale_version is not null order by 1"
    assert query(database_url, stale) == [("customer",), ("note",), ("state",)], "older rows may hold a default"
    assert run_bootstrap(spark, Options(source_url, "db", database_url, check=True)).differences == []
    query(source_url, "update items set id = 9999 where id = 2")
    assert run_bootstrap(spark, Options(source_url, "db", database_url, check=True)).differences != []


def test_a_source_that_is_read_anew_under_a_running_consumer_goes_on_where_it_was(
    spark: SparkSession, database_url: str, source_url: str, tmp_path: Path
) -> None:
    """Its position is kept although it is the only source: the consumer was following it, and its snapshot tells."""
    run_bootstrap(spark, Options(source_url, "db", database_url))
    stream, watch, stop = (
        Stream(tmp_path / "feed.jsonl", Tables({"customers": ["id", "name"]})),
        Watch(),
        threading.Event(),
    )
    stream.path.touch()
    consumer = threading.Thread(target=make_consumer(database_url, stream, watch).run, args=(stop,))
    consumer.start()
    try:
        with Writers(stream, source_url) as writers:
            wait_for(lambda: position(database_url) > 0)
            run_bootstrap(spark, Options(source_url, "db", database_url, replace=True))
            joined = writers.number
            wait_for(lambda: writers.number > joined + 50)
        wait_for(lambda: position(database_url) == stream.path.stat().st_size)
    finally:
        stop.set()
        consumer.join(BOUND_SECONDS)
    assert len(watch.followed) == 2
    assert next(iter(watch.followed[1].values())) > 0
    assert run_bootstrap(spark, Options(source_url, "db", database_url, check=True)).differences == []


def test_a_source_is_not_read_anew_beside_those_who_follow_its_slot(
    spark: SparkSession, database_url: str, source_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot tells each change once: what it tells while the source is read would be lost with the old state."""
    write_csv(tmp_path / "files" / "t.csv", ["id"], [["1"]])
    run_bootstrap(spark, Options(str(tmp_path / "files"), "files", database_url))
    again = Options(source_url, "db", database_url, replace=True)
    run_bootstrap(spark, replace(again, replace=False))
    states.execute(
        database_url,
        "insert into feed_position (feed, topic, partition, next_offset, version) "
        "values ('postgres:db', 'wal', 0, 7, 1)",
    )
    with connect(database_url, CONSUMER_NAME) as other:
        take_writer_lock(other)
        with pytest.raises(StateError, match=r"stop its consumer, and .* `subsetd follow \.\.\. --name db --replace`"):
            run_bootstrap(spark, again)
        release_locks(other)
    publish = bootstrap.publish

    def publish_what_is_passed(*given: Any) -> int:
        states.execute(database_url, "update feed_position set next_offset = 8")
        return publish(*given)

    with monkeypatch.context() as patched:
        patched.setattr(bootstrap, "publish", publish_what_is_passed)
        with pytest.raises(StateError, match="is told once"):
            run_bootstrap(spark, again)
    assert states.query(database_url, "select max(version) from state_version") == [(2,)]
    run_bootstrap(spark, again)
    assert position(database_url) == 8


@pytest.mark.parametrize(("name", "what"), publication.WAITED_FOR.items())
def test_who_reads_for_long_and_ends_by_himself_is_waited_for(
    spark: SparkSession, database_url: str, source_url: str, monkeypatch: pytest.MonkeyPatch, name: str, what: str
) -> None:
    monkeypatch.setattr(publication, "LOCK_TIMEOUT", "100ms")
    monkeypatch.setattr(publication, "READER_LOOK_SECONDS", 0.05)
    told: list[str] = []

    class Told(Quiet):
        def begin(self, stage: str, total: int | None = None) -> None:
            told.append(stage)
            if told.count(f"waiting for the end of {what}") == 10:
                backup.rollback()

    with connect(database_url, name) as backup:
        with backup.cursor() as cursor:
            cursor.execute("lock table gen_rec in access share mode")
        run_bootstrap(spark, Options(source_url, "db", database_url), Told())
    assert told.count(f"waiting for the end of {what}") == 10
    with connect(database_url, "another reader") as reader:
        with reader.cursor() as cursor:
            cursor.execute("lock table gen_rec in access share mode")
        with pytest.raises(StateError, match="Readers kept the records in use for 100ms"):
            run_bootstrap(spark, Options(source_url, "db", database_url, replace=True))
        reader.rollback()


def test_who_is_stopped_behind_the_commit_is_told_of_it(
    spark: SparkSession, database_url: str, source_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    for name, told in (("publish", "^$"), ("tidy_up", "is read and served, as version 1; the next")):
        with monkeypatch.context() as patched:
            patched.setattr(bootstrap, name, interrupted)
            with pytest.raises(KeyboardInterrupt, match=told):
                run_bootstrap(spark, Options(source_url, "db", database_url))


def test_values_are_counted_again_when_the_consumer_found_a_new_column_meanwhile(
    spark: SparkSession, database_url: str, stream: Stream, tmp_path: Path
) -> None:
    """The ids that the values were counted for are another attribute's by then."""
    write_csv(tmp_path / "data" / "parts.csv", ["id"], [["1"], ["7"]])
    took_one = (
        "insert into attribute (attribute_id, source_id, schema_name, table_name, column_name, ordinal, row_count, "
        "null_count, distinct_count, repeated_count) "
        "select 3, source_id, 's', 'customers', 'new', 2, 5, 5, 0, 0 from source"
    )
    with connect(database_url, CONSUMER_NAME) as connection:
        take_writer_lock(connection)

        def hand_over() -> None:
            wait_for(lambda: is_wanted(connection))
            states.execute(database_url, took_one)
            release_locks(connection)

        consumer = threading.Thread(target=hand_over)
        consumer.start()
        summary = run_bootstrap(spark, Options(str(tmp_path / "data"), "s2", database_url))
        consumer.join(BOUND_SECONDS)
    assert summary.version == 2
    named = "select column_name from attribute where attribute_id in (3, 4) order by attribute_id"
    assert query(database_url, named) == [("new",), ("id",)]
    found = states.read(database_url)
    assert found.counters["s2.parts.id"] == (2, 0, 2, 0)
    assert found.records[states.key_of("7").hex()] == ("7", {"s2.parts.id": 1})

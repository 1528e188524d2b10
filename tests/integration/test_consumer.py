"""The consumer on a real Postgres: whatever the feed holds, the state equals what the tables recompute to."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing

import psycopg2
import pytest

from service.core.errors import RecordError, StateError
from service.store.writer import PostgresUnitOfWork, PostgresWriter
from service.usecases.batches import ErrorPolicy
from tests import states
from tests.events import envelope
from tests.following import COLUMNS, MakeStream, Stream, Watch, consume, random_changes, shop_tables
from tests.states import Tables
from tests.waiting import wait_for


@pytest.fixture(params=[1, 3], ids=["whole", "sharded"])
def stream(make_stream: MakeStream, database_url: str, request: pytest.FixtureRequest) -> Stream:
    tables = shop_tables()
    states.store(database_url, tables)
    states.deal(database_url, request.param)
    return make_stream(tables)


def test_the_stored_state_is_what_brute_force_says(database_url: str, stream: Stream) -> None:
    assert states.read(database_url) == states.expected(stream.tables)


def test_each_version_is_told_to_whoever_listens(database_url: str, stream: Stream) -> None:
    with closing(psycopg2.connect(database_url)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        cursor.execute("listen subsetd_version")
        for number in range(3):
            stream.change("customers", None, [f"9{number}", "x"])
        consume(database_url, stream, records=1)

        def has_heard() -> bool:
            connection.poll()
            return len(connection.notifies) >= 3

        wait_for(has_heard)  # the listener's session tells of a commit after the committer has its answer
        assert [heard.payload for heard in connection.notifies] == ["2", "3", "4"]


def test_inserts_updates_and_deletes_change_the_state_and_its_inds(database_url: str, stream: Stream) -> None:
    dependency = ("s.orders.customer", "s.customers.id")
    assert dependency in states.read(database_url).inds
    stream.change("orders", None, ["13", "9", "for whom?"])
    totals = consume(database_url, stream)
    assert (totals.batches, totals.records, totals.inserted) == (1, 1, 1)
    assert dependency not in states.read(database_url).inds
    assert states.read(database_url) == states.expected(stream.tables)
    assert states.query(
        database_url,
        "select version, kind, witness_value, cause_count from ind_transition join attribute on "
        "attribute_id = dependent_id where column_name = 'customer'",
    ) == [(2, "broke", "9", 1)]

    stream.change("orders", ["13", "9", "for whom?"], ["13", "2", "for whom?"])
    stream.change("customers", ["3", None], None)
    totals = consume(database_url, stream)
    assert (totals.updated, totals.deleted, totals.version) == (1, 1, 3)
    assert dependency in states.read(database_url).inds
    assert states.read(database_url) == states.expected(stream.tables)
    assert states.query(
        database_url,
        "select since_version, until_version from uind join attribute on attribute_id = dependent_id "
        "where column_name = 'customer' order by 1",
    ) == [(1, 2), (3, None)]


def test_null_is_no_value_and_a_column_without_values_is_in_no_ind(database_url: str, stream: Stream) -> None:
    note = "s.orders.note"
    assert COLUMNS["orders"][2] == "note"
    for row in (["10", "1", "first"], ["12", "1", "Bob"]):
        stream.change("orders", row, [*row[:2], None])
    consume(database_url, stream)
    found = states.read(database_url)
    assert found == states.expected(stream.tables)
    assert not [ind for ind in found.inds if note in ind], "it has three rows, and all are NULL"
    stream.change("orders", ["10", "1", None], ["10", "1", "Ada"])
    consume(database_url, stream)
    assert (note, "s.customers.name") in states.read(database_url).inds


@pytest.mark.parametrize("cache_bytes", [0, 2000, 1 << 20], ids=["no cache", "small cache", "cache"])
@pytest.mark.parametrize("records", [1, 7, 5000])
def test_any_history_in_any_batches_equals_recomputing(
    database_url: str, stream: Stream, records: int, cache_bytes: int
) -> None:
    random_changes(stream, random.Random(f"{records} {cache_bytes}"), 150)
    totals = consume(database_url, stream, records=records, cache_bytes=cache_bytes)
    assert totals.records == 150
    assert states.read(database_url) == states.expected(stream.tables)
    assert totals.version == 1 + totals.batches
    positions = states.query(database_url, "select next_offset from feed_position")
    assert positions == [(stream.end(),)]


def test_a_truncate_extracts_every_attribute_of_its_table(database_url: str, stream: Stream) -> None:
    stream.change("orders", None, ["13", "9", "Ada"])
    stream.write(envelope("t", "s", "orders", None, None))
    stream.tables.rows["orders"] = Counter()
    stream.change("orders", None, ["14", "1", None])
    totals = consume(database_url, stream)
    assert states.read(database_url) == states.expected(stream.tables)
    assert totals.batches == 3, "before the truncate, the truncate, after it"


def test_a_record_that_cannot_be_applied_stops_the_feed_in_front_of_it(database_url: str, stream: Stream) -> None:
    stream.change("customers", None, ["4", "Dora"])
    bad = stream.write(b"{this is no JSON")
    stream.append("customers", None, ["5", "Emil"])
    for _ in range(2):
        with pytest.raises(RecordError, match=rf"offset {bad}: is not JSON"):
            consume(database_url, stream)
        assert states.read(database_url) == states.expected(stream.tables), "all before it is applied, nothing behind"
        assert states.query(database_url, "select next_offset from feed_position") == [(bad,)]


def test_a_delete_of_what_was_never_inserted_stops_the_feed_in_front_of_it(database_url: str, stream: Stream) -> None:
    stream.change("customers", None, ["4", "Dora"])
    stream.change("customers", ["4", "Dora"], None)
    bad = stream.end()
    stream.append("customers", ["4", "Dora"], None)
    stream.append("customers", None, ["5", "Emil"])
    with pytest.raises(RecordError, match=rf"offset {bad}: .*'4' out of s.customers.id.*never inserted"):
        consume(database_url, stream)
    assert states.read(database_url) == states.expected(stream.tables)
    assert states.query(database_url, "select next_offset from feed_position") == [(bad,)]


def test_records_that_cannot_be_applied_are_set_aside_on_request(database_url: str, stream: Stream) -> None:
    offsets = [stream.write(b"[]")]
    stream.change("customers", None, ["4", "Dora"])
    offsets.append(stream.end())
    stream.append("customers", ["7", "nobody"], ["8", "nobody"])
    offsets.append(stream.end())
    stream.append("orders", ["10", "1", "never so"], None)
    stream.change("orders", ["10", "1", "first"], None)
    totals = consume(database_url, stream, on_error=ErrorPolicy.SET_ASIDE)
    assert (totals.dead, totals.inserted, totals.deleted) == (3, 1, 1)
    assert states.read(database_url) == states.expected(stream.tables)
    letters = states.query(database_url, "select record_offset, error_class from dead_letter order by 1")
    assert letters == [(offset, "RecordError") for offset in offsets]


def test_an_insert_only_source_keeps_members_and_refuses_deletes(database_url: str, make_stream: MakeStream) -> None:
    tables = Tables(COLUMNS, insert_only=True)
    tables.add("customers", ["1", "Ada"]).add("orders", ["10", "1", None])
    states.store(database_url, tables)
    stream = make_stream(tables)
    for row in (["2", "Bob"], ["2", "Ada"], ["3", None]):
        stream.change("customers", None, row)
    consume(database_url, stream)
    assert states.read(database_url) == states.expected(tables)
    stream.append("customers", ["2", "Bob"], None)
    with pytest.raises(RecordError, match="insert-only"):
        consume(database_url, stream)
    assert states.read(database_url) == states.expected(tables)


def test_a_second_consumer_is_refused_and_told_who_is_the_first(database_url: str, stream: Stream) -> None:
    first = PostgresWriter(database_url)
    first.acquire()
    try:
        with pytest.raises(StateError, match="another writer: subsetd consumer"):
            consume(database_url, stream)
    finally:
        first.close()
    consume(database_url, stream)


def test_consuming_before_any_bootstrap_says_what_to_do(database_url: str, make_stream: MakeStream) -> None:
    with pytest.raises(StateError, match="subsetd bootstrap"):
        consume(database_url, make_stream(Tables(COLUMNS)))


class Interrupted(Exception):
    """Stand for the process being gone."""


STATEMENTS: list[str] = ["begin", "copy records", "merge", "before commit", "after commit"]


class InterruptedUnit(PostgresUnitOfWork):
    """Fail at one step of the n-th batch, as a crash would: whatever was not committed is lost."""

    def __init__(self, writer: PostgresWriter, fails_at: str | None) -> None:
        super().__init__(writer)
        self.fails_at = fails_at
        self.reach("begin")

    def reach(self, step: str) -> None:
        if step == self.fails_at:
            raise Interrupted(step)

    def write_records(self, records, texts, changed_texts=()) -> None:  # type: ignore[no-untyped-def]
        self.reach("copy records")
        super().write_records(records, texts, changed_texts)
        self.reach("merge")

    def commit(self, commit) -> None:  # type: ignore[no-untyped-def]
        self.reach("before commit")
        super().commit(commit)
        self.reach("after commit")


class InterruptedWriter(PostgresWriter):
    def __init__(self, url: str, step: str, batch: int) -> None:
        super().__init__(url)
        self.step, self.batch = step, batch

    def begin(self) -> InterruptedUnit:
        self.batch -= 1
        return InterruptedUnit(self, self.step if self.batch == 0 else None)


@pytest.mark.parametrize("step", STATEMENTS)
@pytest.mark.parametrize("batch", [1, 3])
def test_a_crash_at_any_step_loses_nothing_and_applies_nothing_twice(
    database_url: str, stream: Stream, step: str, batch: int
) -> None:
    random_changes(stream, random.Random(step), 40)
    with pytest.raises(Interrupted):
        consume(database_url, stream, records=10, writer=InterruptedWriter(database_url, step, batch))
    consume(database_url, stream, records=10)
    assert states.read(database_url) == states.expected(stream.tables)
    chain = states.query(database_url, "select first_offset, next_offset from batch_position order by version")
    assert [after for _, after in chain[:-1]] == [before for before, _ in chain[1:]]


class LookingWriter(PostgresWriter):
    """A writer that remembers when its database has answered between two batches."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.looks = [0.0]

    def is_wanted(self) -> bool:
        found = super().is_wanted()
        self.looks.append(time.monotonic())
        return found


@pytest.mark.parametrize("stream", [1], indirect=True)
def test_an_idle_consumer_outlives_any_number_of_short_outages(database_url: str, stream: Stream) -> None:
    watch, stop, writer, retry_seconds = Watch(), threading.Event(), LookingWriter(database_url), 1.0
    options = {"writer": writer, "watch": watch, "retry_seconds": retry_seconds, "stop": stop}
    consumer = threading.Thread(target=consume, args=(database_url, stream), kwargs=options)
    consumer.start()
    try:
        for outage in range(3):
            wait_for(lambda outage=outage: len(watch.followed) > outage or not consumer.is_alive())
            looks = len(writer.looks)
            wait_for(lambda looks=looks: len(writer.looks) > looks or not consumer.is_alive())
            first = writer.looks[-1]
            wait_for(lambda first=first: writer.looks[-1] > first + retry_seconds or not consumer.is_alive())
            states.query(
                database_url,
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'subsetd consumer'",
            )
            wait_for(lambda outage=outage: len(watch.errors) > outage or not consumer.is_alive())
        wait_for(lambda: len(watch.followed) > 3 or not consumer.is_alive())
        assert consumer.is_alive()
    finally:
        stop.set()
        consumer.join()


def test_a_batch_that_always_fails_is_given_up(
    database_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StateError("no such luck")

    monkeypatch.setattr(PostgresUnitOfWork, "commit", fail)
    stream.change("customers", None, ["9", "x"])
    with pytest.raises(StateError, match="no such luck"):
        consume(database_url, stream, retry_seconds=0.1)


def test_a_database_session_that_dies_in_mid_batch_is_replaced(
    database_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    random_changes(stream, random.Random(1), 40)
    killed: list[Callable[[], None]] = []
    merge = PostgresUnitOfWork.write_records

    def kill_once(self, records, texts, changed_texts) -> None:  # type: ignore[no-untyped-def]
        merge(self, records, texts, changed_texts)
        if not killed:
            killed.append(lambda: None)
            states.query(
                database_url,
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'subsetd consumer'",
            )

    monkeypatch.setattr(PostgresUnitOfWork, "write_records", kill_once)
    watch = Watch()
    consume(database_url, stream, records=10, watch=watch, retry_seconds=30)
    assert len(watch.errors) == 1
    assert states.read(database_url) == states.expected(stream.tables)

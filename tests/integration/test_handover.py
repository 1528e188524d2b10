"""The state has one writer at a time, and a consumer hands it over to who asks for it, between two batches."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from service.core.canonical import value_keys
from service.core.errors import StateError
from service.store import writer_lock
from service.store.database import connect
from service.store.writer import PostgresWriter
from service.store.writer_lock import release_locks, take_bootstrap_lock, take_writer_lock
from service.stream.envelope import Decoder
from service.stream.file_feed import FileFeed
from service.usecases.batches import BatchLimits
from service.usecases.follow_feed import Consumer
from service.usecases.schema_changes import drop
from tests import states
from tests.following import COLUMNS, Stream, Watch, consume, random_changes
from tests.states import Tables
from tests.waiting import BOUND_SECONDS, wait_for


@pytest.fixture
def stream(tmp_path: Path, database_url: str) -> Stream:
    tables = Tables(dict(COLUMNS))
    tables.add("customers", ["1", "Ada"], ["2", "Bob"]).add("orders", ["10", "1", "first"])
    states.store(database_url, tables)
    path = tmp_path / "feed.jsonl"
    path.touch()
    return Stream(path, tables)


@contextmanager
def consuming(url: str, stream: Stream, watch: Watch) -> Iterator[threading.Event]:
    """Follow the file until the event that is given is set, or the block ends."""
    consumer = Consumer(
        PostgresWriter(url),
        lambda: FileFeed(str(stream.path)),
        Decoder,
        value_keys,
        watch,
        limits=BatchLimits(records=20),
    )
    stop = threading.Event()
    errors: list[BaseException] = []

    def body() -> None:
        try:
            consumer.run(stop)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    try:
        wait_for(lambda: watch.followed or errors)
        yield stop
    finally:
        stop.set()
        thread.join(BOUND_SECONDS)
    assert not thread.is_alive()
    assert errors == []


def is_applied(url: str, stream: Stream) -> bool:
    return states.query(url, "select next_offset from feed_position") == [(stream.path.stat().st_size,)]


def test_a_consumer_hands_over_between_two_batches_and_goes_on_behind(database_url: str, stream: Stream) -> None:
    rng, told, watch = random.Random(1), [], Watch()
    with consuming(database_url, stream, watch):
        for round_ in range(3):
            random_changes(stream, rng, 100)
            asking = PostgresWriter(database_url, "subsetd test", told.append)
            asking.acquire()
            version = asking.load().version
            assert states.query(database_url, "select max(version) from state_version") == [(version,)]
            asking.close()
            wait_for(lambda round_=round_: len(watch.followed) == round_ + 2)
        wait_for(lambda: is_applied(database_url, stream))
    assert states.read(database_url) == states.expected(stream.tables)
    assert [text.startswith("Waiting for the consumer") for text in told] == [True] * 3
    assert watch.errors == []


def test_whoever_waits_behind_the_first_gets_the_state_as_well(database_url: str, stream: Stream) -> None:
    watch, has_waited = Watch(), threading.Event()
    with consuming(database_url, stream, watch):
        first = PostgresWriter(database_url, "subsetd test", lambda _: None)
        first.acquire()
        with pytest.raises(StateError, match="another writer: subsetd test "):
            PostgresWriter(database_url, "subsetd test 2", lambda _: None).acquire()
        assert not first.is_wanted(), "the consumer waits for its turn, and hurries nobody"

        def wait_behind() -> None:
            with connect(database_url, "subsetd waiting") as connection:
                with connection.cursor() as cursor:
                    cursor.execute("select pg_advisory_lock(%s)", (writer_lock.WRITER_LOCK,))
                connection.commit()
                has_waited.set()

        thread = threading.Thread(target=wait_behind)
        thread.start()
        wait_for(first.is_wanted)
        first.close()
        assert has_waited.wait(BOUND_SECONDS)
        thread.join(BOUND_SECONDS)
        stream.change("customers", None, ["3", "Cleo"])
        wait_for(lambda: is_applied(database_url, stream))
    assert states.read(database_url) == states.expected(stream.tables)


def test_a_consumer_that_waits_for_its_turn_can_be_stopped(database_url: str, stream: Stream) -> None:
    watch = Watch()
    with consuming(database_url, stream, watch) as stop:
        asking = PostgresWriter(database_url, "subsetd test", lambda _: None)
        asking.acquire()
        stop.set()
    asking.close()
    assert len(watch.followed) == 1


def test_a_consumer_whose_place_was_taken_by_another_ends(database_url: str, stream: Stream) -> None:
    """It waits for a bootstrap, not for a second consumer that started behind it."""
    with connect(database_url, writer_lock.CONSUMER_NAME) as connection:
        take_writer_lock(connection)
        waiting = PostgresWriter(database_url)
        with pytest.raises(StateError, match="another writer: subsetd consumer"):
            waiting.acquire(behind_others=threading.Event())
        waiting.close()
        release_locks(connection)


def test_a_writer_that_ends_while_it_is_looked_for_is_in_nobody_s_way(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = writer_lock._holder
    with connect(database_url, "subsetd test") as ending, connect(database_url, "subsetd test") as connection:
        take_writer_lock(ending)

        def ended_meanwhile(asking: Any, lock: int) -> tuple[int, str] | None:
            release_locks(ending)
            return look(asking, lock)

        monkeypatch.setattr(writer_lock, "_holder", ended_meanwhile)
        take_writer_lock(connection)
        release_locks(connection)


def test_a_consumer_that_does_not_hand_over_is_not_waited_for_for_ever(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_lock, "HAND_OVER_SECONDS", 0.2)
    told: list[str] = []
    with connect(database_url, writer_lock.CONSUMER_NAME) as busy, connect(database_url, "subsetd test") as connection:
        take_writer_lock(busy)
        with pytest.raises(StateError, match=r"did not hand the state over within.*Try again, or stop it"):
            take_writer_lock(connection, told.append)
        release_locks(busy)
    assert len(told) == 1


def test_one_bootstrap_at_a_time(database_url: str) -> None:
    with connect(database_url, "subsetd bootstrap") as first, connect(database_url, "subsetd bootstrap") as second:
        take_bootstrap_lock(first)
        with pytest.raises(StateError, match="another writer: subsetd bootstrap"):
            take_bootstrap_lock(second)


def test_a_column_is_dropped_under_a_running_consumer(database_url: str, stream: Stream) -> None:
    """The consumer loads the state anew and finds the column to be a new one, which is not kept current."""
    watch = Watch()
    with consuming(database_url, stream, watch):
        stream.change("orders", None, ["11", "2", "second"])
        wait_for(lambda: is_applied(database_url, stream))
        drop(PostgresWriter(database_url, "subsetd attribute", lambda _: None), "s.orders.note", force=True)
        stream.change("orders", None, ["12", "2", "third"])
        wait_for(lambda: is_applied(database_url, stream))
    assert watch.schema == [("s.orders", ("note",), ())]
    query = (
        "select row_count, null_count, distinct_count from attribute where column_name = 'note' order by attribute_id"
    )
    assert states.query(database_url, query) == [(0, 0, 0), (2, 2, 0)]
    consume(database_url, stream)

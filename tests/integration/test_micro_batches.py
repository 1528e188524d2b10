"""Micro-batches that are committed while Spark goes on: what fails, hangs, or waits for one meanwhile."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry

from service.core.errors import StateError
from service.observe import ConsumerObserver
from service.store.writer import PostgresUnitOfWork
from service.usecases import follow_feed
from spark_jobs import streamed_session
from spark_jobs.follow_tasks import ShardTask, applied
from tests import local_streams, states
from tests.following import Stream, consume, random_changes
from tests.integration.test_shard_servers import OF, require_true, spread_stream, stream
from tests.integration.test_shards import values_of
from tests.integration.test_shards_away import VERSIONS, ahead
from tests.local_streams import LocalSession, Spark, following
from tests.waiting import BOUND_SECONDS, wait_for

__all__ = ["spread_stream", "stream"]

ENDS = "select version, next_offset from batch_position order by 1"


def test_a_commit_that_fails_while_spark_goes_on_ends_the_session(
    database_url: str, spread_stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The micro-batch behind it is not begun, and what shards have of the failed one is undone."""
    random_changes(spread_stream, random.Random(19), 15)
    with Spark(database_url, spread_stream) as spark:
        spark.take(5)
        with monkeypatch.context() as patching:
            patching.setattr(PostgresUnitOfWork, "commit", _failing)
            spark.take(5, settles=False)
            assert states.query(database_url, VERSIONS) == [(4,)]
            with pytest.raises(StateError, match="It is gone"):
                spark.take(5)
        assert ahead(database_url) == [5] * OF
    consume(database_url, spread_stream)
    require_true(database_url, spread_stream)


def _failing(*_: object) -> None:
    raise StateError("It is gone.")


@pytest.mark.parametrize("place", [slice(1, OF), slice(0, OF - 1)])
def test_what_only_some_shards_tell_of_is_not_concluded(
    database_url: str, spread_stream: Stream, monkeypatch: pytest.MonkeyPatch, place: slice
) -> None:
    def some(table: pa.Table, *of: int) -> Any:
        return applied(table.take(list(range(*place.indices(OF)))), *of)

    random_changes(spread_stream, random.Random(23), 10)
    with Spark(database_url, spread_stream) as spark:
        spark.take(5)
        monkeypatch.setattr(local_streams, "applied", some)
        with pytest.raises(StateError, match=f"{OF - 1} of {OF} shards"):
            spark.take(5)
    assert states.query(database_url, VERSIONS) == [(4,)]
    consume(database_url, spread_stream)
    require_true(database_url, spread_stream)


def test_what_shards_have_applied_of_other_ranges_is_not_concluded(
    database_url: str, spread_stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = ShardTask.apply

    def without_the_last(task: ShardTask, shard: int, rows: Sequence[Mapping[str, bytes]]) -> Any:
        return apply(task, shard, rows[: len(rows) - (shard == 1)])

    monkeypatch.setattr(ShardTask, "apply", without_the_last)
    random_changes(spread_stream, random.Random(23), 5)
    with Spark(database_url, spread_stream) as spark:
        ((place, first),) = spark.feed.positions().items()
        found = list(spark.feed.poll(5, 1 << 20, 0.0))
        told = (*place, first, spark.feed.positions()[place], found)
        with pytest.raises(StateError, match="1 to 2 ranges"):
            spark.session._take_micro_batch([told, ("another", 0, 0, 0, [])])
    consume(database_url, spread_stream)
    require_true(database_url, spread_stream)


def test_no_micro_batch_takes_what_a_look_has_found_to_be_lost(
    database_url: str, spread_stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look waits for the commit, too: where that failed, memory is ahead of what is stored."""
    waits, is_lost, is_decided = (threading.Event() for _ in range(3))
    taken = []
    micro_batch, take = LocalSession._micro_batch, LocalSession._take_micro_batch
    monkeypatch.setattr(streamed_session, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(follow_feed, "RETRY_SECONDS", 0.1)

    def waiting(session: LocalSession, *given: Any) -> None:
        waits.set()
        micro_batch(session, *given)
        is_decided.set()

    random_changes(spread_stream, random.Random(22), 5)
    with following(database_url, spread_stream) as follower:
        failing = follower.session
        assert failing is not None
        monkeypatch.setattr(LocalSession, "_micro_batch", waiting)
        monkeypatch.setattr(LocalSession, "_take_micro_batch", lambda *given: (taken.append(given[0]), take(*given)))

        def look() -> None:
            waits.wait(BOUND_SECONDS)
            is_lost.set()
            raise StateError("It is gone.")

        class HandedOn:
            """Be its lock: a look has it first, and a micro-batch as soon as the look gives it back."""

            def __init__(self, lock: threading.Lock) -> None:
                self.acquire, self._lock = lock.acquire, lock

            def __enter__(self) -> None:
                is_lost.wait(BOUND_SECONDS)
                self._lock.acquire()

            def __exit__(self, *_: object) -> None:
                self._lock.release()

            def release(self) -> None:
                self._lock.release()
                if is_lost.is_set():
                    is_decided.wait(BOUND_SECONDS)

        failing._at_work = HandedOn(failing._at_work)  # type: ignore[assignment]
        failing._look_around = look  # type: ignore[method-assign]
        random_changes(spread_stream, random.Random(21), 5)
        follower.wait(follower.all_applied)
        assert taken
        assert failing not in taken
    require_true(database_url, spread_stream)


def test_records_are_read_as_soon_as_a_micro_batch_is_committed(database_url: str, spread_stream: Stream) -> None:
    """Nothing comes behind it that would let them."""
    random_changes(spread_stream, random.Random(20), 5)
    with Spark(database_url, spread_stream) as spark:
        spark.take(5, settles=False)
        assert values_of(database_url) == 4


def test_a_batch_of_a_brokers_markers_is_no_version(database_url: str, spread_stream: Stream) -> None:
    """The next one begins before it, as that of an ordinary session does."""
    random_changes(spread_stream, random.Random(5), 10)
    with Spark(database_url, spread_stream) as spark:
        spark.take(5)
        ends = states.query(database_url, ENDS)
        spark.mark()
        assert states.query(database_url, ENDS) == ends
        assert spark.session._lag() == {place: spread_stream.end() - at for place, at in spark.feed.positions().items()}
        spark.take(5)
    require_true(database_url, spread_stream)


@pytest.mark.parametrize("told", ["a micro-batch is at work", "bytes behind the feed's end"])
def test_a_micro_batch_that_hangs_is_told_by_what_was_not_committed(
    database_url: str, spread_stream: Stream, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    """A look at the feed's end may have seen what it has in hand, before it began, or not."""
    goes_on, observer = threading.Event(), ConsumerObserver(CollectorRegistry(), lag_unit="bytes")
    run, look = LocalSession._run, LocalSession._look_around

    def hang(session: LocalSession, frame: Any) -> Any:
        goes_on.wait(BOUND_SECONDS)
        return run(session, frame)

    monkeypatch.setattr(streamed_session, "LOOK_SECONDS", 0.1)
    random_changes(spread_stream, random.Random(15), 5)
    with following(database_url, spread_stream, observer) as follower:
        wait_for(lambda: observer.lag == 0 and observer.fault(0.0) is None)
        session = follower.session
        assert session is not None
        with session._at_work:  # neither a look nor a micro-batch is under way
            monkeypatch.setattr(LocalSession, "_run", hang)
            monkeypatch.setattr(LocalSession, "_look_around", lambda _: None)
            random_changes(spread_stream, random.Random(16), 5)
            if told == "bytes behind the feed's end":
                look(session)
        wait_for(lambda: told in (observer.fault(0.0) or ""))
        monkeypatch.setattr(LocalSession, "_look_around", look)
        goes_on.set()
        follower.wait(follower.all_applied)
        wait_for(lambda: observer.fault(0.0) is None)


@pytest.mark.parametrize("records", [1, 12])
def test_a_commit_that_hangs_is_told_whether_anything_comes_behind_it(
    database_url: str, spread_stream: Stream, monkeypatch: pytest.MonkeyPatch, records: int
) -> None:
    hangs, goes_on, observer = threading.Event(), threading.Event(), ConsumerObserver(CollectorRegistry())
    commit = PostgresUnitOfWork.commit

    def hang(unit: PostgresUnitOfWork, given: Any) -> Any:
        hangs.set()
        goes_on.wait(BOUND_SECONDS)
        return commit(unit, given)

    monkeypatch.setattr(streamed_session, "LOOK_SECONDS", 0.1)
    random_changes(spread_stream, random.Random(15), 5)
    with following(database_url, spread_stream, observer) as follower:
        wait_for(lambda: observer.lag == 0 and observer.fault(0.0) is None)
        monkeypatch.setattr(PostgresUnitOfWork, "commit", hang)
        random_changes(spread_stream, random.Random(16), records)
        assert hangs.wait(BOUND_SECONDS)
        observer.waiting({})  # what it was told before is forgotten
        wait_for(lambda: observer.fault(0.0) is not None)
        goes_on.set()
        follower.wait(follower.all_applied)
        wait_for(lambda: observer.fault(0.0) is None)

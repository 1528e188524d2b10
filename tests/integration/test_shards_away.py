"""Following in shards while servers of some are away: the others go on, and the state is that of every change once."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import psutil
import psycopg2
import pytest

from service.core.errors import ConflictError, DamagedStateError, FeedError, ShardAwayError, StateError
from service.core.model import RawRecord
from service.store import shards, silence, writer_lock
from service.store.embedded import EmbeddedPostgres
from service.store.shard_dealing import read_shards
from service.store.writer import PostgresWriter
from service.usecases import follow_feed
from service.usecases.batches import ErrorPolicy
from service.usecases.feed_session import BeginAnew
from service.usecases.shards import ShardBatch, ShardPlace, ShardSummary
from spark_jobs import follow_tasks, streamed_session
from tests import states
from tests.events import envelope
from tests.following import Stream, consume, random_changes
from tests.integration.test_screening import Connector
from tests.integration.test_shard_servers import OF, TAKES_NO_WRITES, require_true, spread_stream, stream
from tests.integration.test_shards import values_of
from tests.integration.test_verify import findings
from tests.local_streams import LocalSession, Spark, following
from tests.postgres import name_of
from tests.shard_servers import killed, spread

__all__ = ["spread_stream", "stream"]

VERSIONS = "select max(version) from state_version"


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Give a set of shards whose servers answer nobody."""
    shards: set[int] = set()

    def refusing(function: Callable[..., ShardSummary]) -> Callable[..., ShardSummary]:
        def call(place: Any, batch: ShardBatch, *given: Any) -> ShardSummary:
            of = place if isinstance(place, ShardPlace) else place.place
            if of.shard in shards:
                raise StateError("Cannot reach it.")
            return function(place, batch, *given)

        return call

    monkeypatch.setattr(follow_tasks, "apply_to_shard", refusing(follow_tasks.apply_to_shard))
    monkeypatch.setattr(streamed_session.ShardStore, "apply", refusing(streamed_session.ShardStore.apply))
    return shards


def ahead(url: str) -> list[int | None]:
    return [one.ahead for one in read_shards(url)]


KEPT = ("gen_rec_shard_1", "shard_cluster", "shard", "shard_batch")


def keep(east_url: str) -> None:
    """Keep a copy of what a server has, for `set_back`."""
    for table in KEPT:
        states.execute(east_url, f"create table kept_{table} as select * from {table}")


def set_back(east_url: str) -> None:
    for table in KEPT:
        states.execute(east_url, f"delete from {table}; insert into {table} select * from kept_{table}")


def test_a_server_that_came_back_as_it_was_before_is_refused_by_name(
    database_url: str, spread_stream: Stream, east_url: str
) -> None:
    """Its standby had not heard of the last batches when it was promoted; nobody's session was cut."""
    random_changes(spread_stream, random.Random(12), 60)
    with Spark(database_url, spread_stream) as spark:
        spark.take(20)
        keep(east_url)
        spark.take(20)
        set_back(east_url)
        with pytest.raises(DamagedStateError, match=r"server 'east': Shard 1 is at version .* an older backup"):
            spark.take_all(20)
    with pytest.raises(StateError, match=r"server 'east' \(shard 1\): Shard 1 is at version .* an older backup"):
        consume(database_url, spread_stream)


def test_what_one_process_wrote_does_not_bring_back_what_tasks_wrote_behind_it(
    database_url: str, spread_stream: Stream, east_url: str
) -> None:
    """The state keeps the one, which begins where the server was set back to, and not the other."""
    keep(east_url)
    random_changes(spread_stream, random.Random(12), 20)
    consume(database_url, spread_stream)
    assert states.query(database_url, "select from shard_write where shard = 1")
    random_changes(spread_stream, random.Random(13), 20)
    with Spark(database_url, spread_stream) as spark:
        spark.take_all(20)
    set_back(east_url)
    with pytest.raises(StateError, match=r"server 'east' \(shard 1\): Shard 1 is at version .* an older backup"):
        consume(database_url, spread_stream)


def test_what_executors_cannot_follow_any_more_ends_at_once(database_url: str, spread_stream: Stream) -> None:
    """It is dealt to one shard between two sessions; no trying again mends that."""

    class HandedOver(LocalSession):
        def follow(self, *_: object) -> None:
            self.close()
            self._writer.close()
            spread(database_url, 1)
            raise BeginAnew

    with Spark(database_url, spread_stream) as spark:
        consumer, sessions = spark.consumer, iter([HandedOver, LocalSession])
        consumer.make_session = lambda following: next(sessions)(following, spark.told)
        with pytest.raises(ConflictError, match="The state is one shard"):
            consumer.run(threading.Event())
    assert not spark.watch.errors


def test_the_others_go_on_while_a_server_is_killed(
    database_url: str, spread_stream: Stream, east_server: EmbeddedPostgres
) -> None:
    rng = random.Random(4)
    random_changes(spread_stream, rng, 40)
    with Spark(database_url, spread_stream) as spark:
        spark.take(10)
        assert states.query(database_url, VERSIONS) == [(4,)]
        with killed(east_server):
            spark.take(10)
            spark.mark()
            spark.take(10)
            spark.look()
            assert states.query(database_url, VERSIONS) == [(4,)]
            ((told,),) = spark.watch.away
            assert told.startswith("server 'east' (shard 1): ")
            assert ahead(database_url) == [6, None, 6], "they are two batches ahead of the state"
            with pytest.raises(StateError, match=r"Shard 0 holds version 6 and the state 4: .* waits for"):
                values_of(database_url)
        spark.look()
        assert states.query(database_url, VERSIONS) == [(6,)]
        assert spark.watch.away[1:] == [[]]
        assert values_of(database_url) == 6
        spark.take(10)
    require_true(database_url, spread_stream)


@pytest.mark.parametrize("seed", range(4))
def test_servers_come_and_go_and_sessions_die(
    database_url: str, spread_stream: Stream, away: set[int], seed: int
) -> None:
    rng = random.Random(seed)
    waited = 0
    for _ in range(5):
        random_changes(spread_stream, rng, 30)
        with Spark(database_url, spread_stream) as spark:
            while spark.take(rng.randrange(1, 9), settles=rng.random() < 0.5):
                away ^= {rng.choice([1, 2])} if rng.random() < 0.6 else set()
                if rng.random() < 0.3:
                    spark.mark()
                if rng.random() < 0.5:
                    spark.look()
                waited = max(waited, len(spark.session._pending))
            if rng.random() < 0.5:
                away.clear()
                spark.look()
                assert not spark.session._pending
                assert all(finding.holds for finding in findings(database_url))
        away.clear()
    assert waited > 2
    consume(database_url, spread_stream)
    require_true(database_url, spread_stream)


def test_what_a_shard_refuses_when_it_is_back_is_for_a_session(
    database_url: str, spread_stream: Stream, away: set[int]
) -> None:
    """No shard keeps anything of it, nor of what came behind it."""
    with Spark(database_url, spread_stream) as spark:
        away |= {0, 1, 2}
        spread_stream.append("customers", ["99", "nobody"], None)
        spread_stream.change("orders", None, ["13", "1", "new"])
        with pytest.raises(StateError, match="Cannot reach it"):
            spark.take(1)  # the state's own shard is not waited for: without its database there is no following
    away -= {0}
    with Spark(database_url, spread_stream) as spark:
        spark.take_all(1)
        is_refused_at_once = bool(spark.session._is_torn)
        assert is_refused_at_once or len(spark.session._pending) == 2
        away.clear()
        with pytest.raises(BeginAnew):
            spark.look()
        assert ahead(database_url) == [None] * OF
    consume(database_url, spread_stream, on_error=ErrorPolicy.SET_ASIDE)
    require_true(database_url, spread_stream)


def test_what_waits_is_known_to_be_repeated(database_url: str, spread_stream: Stream, away: set[int]) -> None:
    connector = Connector(spread_stream)
    connector.commit([("orders", None, ["20", "2", None]), ("customers", None, ["30", "Cy"])])
    with Spark(database_url, spread_stream) as spark:
        away.add(1)
        spark.take(1)
        spark.take(1)
        connector.repeat(2)
        connector.commit([("orders", ["20", "2", None], None)])
        spark.take_all(2)
        away.clear()
        spark.look()
        assert [report.skipped for report in spark.watch.reports] == [{}, {}, {"repeated by the connector": 2}, {}]
    require_true(database_url, spread_stream)


def test_what_is_rare_waits_for_all_shards(database_url: str, spread_stream: Stream, away: set[int]) -> None:
    random_changes(spread_stream, random.Random(2), 20)
    with Spark(database_url, spread_stream) as spark:
        away.add(1)
        spark.take(20)
        spread_stream.write(envelope("t", "s", "orders"))
        spread_stream.tables.rows["orders"].clear()
        with pytest.raises(streamed_session._Rare):
            spark.take(1)
        stop = threading.Event()
        with pytest.raises(StateError, match=r"server 'east' \(shard 1\): Cannot reach it"):
            spark.session._wait_for_all(stop, until_end=True)
        threading.Timer(0.2, away.clear).start()
        spark.session._wait_for_all(stop, until_end=False)
        assert spark.session._rare_ends is not None
        spark.session._take_alone(spark.session._rare_ends, stop)
    require_true(database_url, spread_stream)


def test_a_batch_that_is_refused_while_a_server_is_away_keeps_nobody_waiting(
    database_url: str, spread_stream: Stream, away: set[int]
) -> None:
    """Who asks for values is told what is missing, for as long as it is."""
    random_changes(spread_stream, random.Random(23), 10)
    with following(database_url, spread_stream) as follower:
        session = follower.session
        assert session is not None
        away.add(1)
        random_changes(spread_stream, random.Random(24), 10)
        follower.wait(lambda: session._pending)
        for name in "abcdef":
            spread_stream.append("customers", [f"9{name}", name], None)
        follower.wait(lambda: session._rare_ends is not None)
        assert session._is_torn
        connection = session._stream.writer.writing.driver_connection
        with pytest.raises(StateError, match=r"Shard 0 holds version .* waits for another shard"):
            values_of(database_url, 5_000)
        away.clear()
        follower.wait(follower.all_applied)
        assert not any("lock" in told for told in connection.notices), "none is given back that nobody has"
    require_true(database_url, spread_stream)


def test_a_server_that_is_long_in_not_answering_is_seldom_tried(
    database_url: str, spread_stream: Stream, away: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    random_changes(spread_stream, random.Random(9), 10)
    clock = [100.0]
    told = SimpleNamespace(monotonic=lambda: clock[0], perf_counter=time.perf_counter)
    monkeypatch.setattr(streamed_session, "time", told)
    tried = []

    def slow(store: streamed_session.ShardStore, _: ShardBatch) -> ShardSummary:
        tried.append(store.place.shard)
        clock[0] += 5
        raise StateError("It does not answer.")

    with Spark(database_url, spread_stream) as spark:
        away.add(1)
        spark.take(10)
        monkeypatch.setattr(streamed_session.ShardStore, "apply", slow)
        for _ in range(60):
            spark.session._look_around()
            clock[0] += 1
    assert tried == [1, 1]


def test_a_server_whose_locks_somebody_has_is_away(
    database_url: str, spread_stream: Stream, east_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "LOCK_TIMEOUT_MS", 200)
    monkeypatch.setattr(streamed_session, "RESTS", 1)
    random_changes(spread_stream, random.Random(11), 5)
    with following(database_url, spread_stream) as follower:
        with closing(psycopg2.connect(east_url)) as other, other.cursor() as cursor:
            cursor.execute("select from shard for update")
            random_changes(spread_stream, random.Random(13), 20)
            follower.wait(lambda: follower.watch.away)
            follower.wait(lambda: follower.session is not None and len(follower.session._pending) > 1)
            assert None not in ahead(database_url)[::2], "they are ahead of the state"
        follower.wait(follower.all_applied)
        with closing(psycopg2.connect(east_url)) as other, other.cursor() as cursor:
            cursor.execute("select from shard for update")
            random_changes(spread_stream, random.Random(14), 5)
            follower.wait(lambda: len(follower.watch.away) > 2)
            follower.stop.set()
    consume(database_url, spread_stream)
    require_true(database_url, spread_stream)


def test_a_server_that_hangs_is_away(
    database_url: str, spread_stream: Stream, east_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = follow_tasks.apply_to_shard

    def impatient_with_one(place: ShardPlace, *given: Any) -> ShardSummary:
        """Leave the others, and this one before and after, as long as a busy machine takes."""
        with monkeypatch.context() as patching:
            if place.shard == 1:
                patching.setattr(silence, "SILENT_SECONDS", 0.5)
            return apply(place, *given)

    random_changes(spread_stream, random.Random(15), 20)
    with Spark(database_url, spread_stream) as spark:
        spark.take(5)
        sessions = "select pid from pg_stat_activity where application_name = 'subsetd shard' and datname = "
        hanging = [psutil.Process(pid) for (pid,) in states.query(east_url, f"{sessions}current_database()")]
        assert hanging
        for process in hanging:
            process.suspend()
        try:
            with monkeypatch.context() as patching:
                patching.setattr(follow_tasks, "apply_to_shard", impatient_with_one)
                spark.take(5)
            assert spark.session._away.keys() == {1}
            assert re.search(r"server 'east' \(shard 1\): The connection .* was lost", spark.session._away[1])
        finally:
            for process in hanging:
                process.resume()
        spark.take_all(5)
        spark.look()
        assert not spark.session._pending
    require_true(database_url, spread_stream)


@pytest.mark.parametrize("what", ["the state is asked for", "a pause", "a missing cell", "a truncate"])
def test_a_server_that_is_away_is_waited_for_whatever_else_is_wanted(
    database_url: str,
    spread_stream: Stream,
    east_server: EmbeddedPostgres,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
) -> None:
    monkeypatch.setattr(follow_feed, "ROOM_SECONDS", 0.1)
    pausing = "update feed set paused_at = {}"
    random_changes(spread_stream, random.Random(16), 10)
    with following(database_url, spread_stream) as follower:
        session = follower.session
        assert session is not None
        with killed(east_server):
            if what == "a missing cell":
                for name in "abcdef":
                    spread_stream.append("customers", [f"9{name}", name], None)
                follower.wait(lambda: len(follower.watch.errors) > 3)
            elif what == "a truncate":
                spread_stream.write(envelope("t", "s", "orders"))
                spread_stream.tables.rows["orders"].clear()
                follower.wait(lambda: len(follower.watch.errors) > 3)
            else:
                random_changes(spread_stream, random.Random(17), 10)
                follower.wait(lambda: session._pending)
                if what == "a pause":
                    states.execute(database_url, pausing.format("now()"))
                    follower.wait(lambda: not session._goes_on.is_set())
                else:
                    asking = PostgresWriter(database_url, "subsetd dead letters", [].append)
                    with pytest.raises(ShardAwayError, match=r"server 'east' \(shard 1\): Cannot reach"):
                        asking.acquire()
                    asking.close()
                random_changes(spread_stream, random.Random(18), 10)
                assert session._pending
                assert not follower.watch.errors, "nothing of it is lost"
            assert follower.failed is None
        if what == "a pause":
            follower.wait(lambda: not session._pending)
            states.execute(database_url, pausing.format("null"))
        follower.wait(follower.all_applied)
    require_true(database_url, spread_stream)


def test_who_asks_for_the_state_is_refused_by_the_name_of_a_server_that_takes_no_writes(
    database_url: str, spread_stream: Stream, east_url: str, away: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for it is kept, so that the state would not be handed over."""
    monkeypatch.setattr(writer_lock, "HAND_OVER_SECONDS", 1.0)
    random_changes(spread_stream, random.Random(25), 10)
    with following(database_url, spread_stream) as follower:
        session = follower.session
        assert session is not None
        away.add(1)
        states.execute(east_url, TAKES_NO_WRITES.format(name_of(east_url)))
        random_changes(spread_stream, random.Random(26), 10)
        follower.wait(lambda: session._pending)
        asking = PostgresWriter(database_url, "subsetd dead letters", [].append)
        with closing(asking), pytest.raises(ShardAwayError, match=r"server 'east' \(shard 1\): .* is read-only"):
            asking.acquire()
        assert session._pending


def test_nothing_is_read_ahead_beside_the_session_that_takes_what_is_rare(
    database_url: str, spread_stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is one connection of the writer's for that, and two threads would take it from each other amid a COPY."""
    read_range, readers = PostgresWriter.read_range, []

    def read(writer: PostgresWriter, *given: int) -> Any:
        readers.append(threading.current_thread())
        return read_range(writer, *given)

    monkeypatch.setattr(PostgresWriter, "read_range", read)
    with Spark(database_url, spread_stream) as spark:
        assert not readers
        spread_stream.append("customers", ["98", "nobody"], None)
        with pytest.raises(streamed_session._Rare):
            spark.take(1)
        assert spark.session._rare_ends is not None
        spark.session._take_alone(spark.session._rare_ends, threading.Event())
    assert len(set(readers)) == 1


def test_a_cause_that_the_broker_has_no_more_is_told_by_its_place(
    database_url: str, spread_stream: Stream, away: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waited for a server was removed meanwhile, as its time was up."""
    monkeypatch.setattr(LocalSession, "_read_again", _gone)
    with Spark(database_url, spread_stream) as spark:
        away.add(1)
        spread_stream.change("orders", None, ["77", "77", "77"])
        spark.take_all(1)
        assert spark.session._pending
        away.clear()
        spark.look()
        assert not spark.session._pending
    told = states.query(database_url, "select distinct position ->> 'offset' from ind_transition where version > 3")
    assert told == [("0",)]
    require_true(database_url, spread_stream)


def _gone(*_: object) -> list[RawRecord]:
    raise FeedError("records were removed")


def test_no_more_waits_than_there_is_room_for(
    database_url: str, spread_stream: Stream, away: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed_session, "MOST_LEFT_BYTES", 500_000)
    random_changes(spread_stream, random.Random(3), 200)
    with Spark(database_url, spread_stream) as spark:
        away.add(1)
        with pytest.raises(streamed_session._Full):
            spark.take_all(1)  # of which each has little in it, and takes much
        assert len(spark.session._pending) > 1
        away.clear()
        spark.session._wait_for_all(threading.Event(), until_end=False)
        assert not spark.session._pending
    consume(database_url, spread_stream)
    require_true(database_url, spread_stream)

"""Following in shards while the servers of some are away: the others go on, and the state is that of every change once.

The session is the one that follows on Spark; what executors run is run here, one task behind the other.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import psycopg2
import pyarrow as pa
import pytest

from service.core.canonical import value_keys
from service.core.cell_decoding import WireSettings
from service.core.errors import ConflictError, DamagedStateError, FeedError, ShardAwayError, StateError
from service.core.model import RawRecord, StoredPosition
from service.store import shards, silence
from service.store.embedded import EmbeddedPostgres
from service.store.shard_dealing import read_shards
from service.store.writer import PostgresWriter
from service.stream.envelope import Decoder
from service.stream.file_feed import FileFeed
from service.stream.kafka_topics import TopicRange
from service.usecases import follow_feed
from service.usecases.batches import ErrorPolicy
from service.usecases.feed_session import BeginAnew, Following, Session
from service.usecases.follow_feed import Consumer
from service.usecases.shards import ShardBatch, ShardPlace, ShardSummary
from spark_jobs import follow_tasks, streamed_session
from spark_jobs.follow_tasks import AppliedBatch, Decoding, applied
from spark_jobs.streamed_session import StreamedSession
from tests import states
from tests.events import envelope
from tests.following import Stream, Watch, consume, random_changes
from tests.integration.test_screening import Connector
from tests.integration.test_shard_servers import OF, require_true, spread_stream, stream
from tests.integration.test_shards import values_of
from tests.integration.test_verify import findings
from tests.shard_servers import killed, spread
from tests.waiting import BOUND_SECONDS, wait_for

__all__ = ["spread_stream", "stream"]

DECODING = Decoding(WireSettings(), None, "refuse")
VERSIONS = "select max(version) from state_version"
Ranges = list[tuple[str, int, int, int, list[RawRecord]]]


class LocalSession(StreamedSession):
    """Follow on Spark, without Spark: a micro-batch is ranges of records."""

    def _run(self, frame: Any) -> AppliedBatch:
        ranges: Ranges = frame
        net, shard = self._tasks()
        rows = [row for one in ranges for row in net._net(one[:2], *one[2:], 0.0).to_pylist()]
        told = [shard.apply(number, [row for row in rows if row["shard"] == number]) for number in range(OF)]
        return applied(pa.Table.from_batches(told))

    def _read_again(self, ranges: Sequence[TopicRange]) -> list[RawRecord]:
        found: list[RawRecord] = []
        for one in ranges:
            with closing(FileFeed(one.topic)) as feed:
                feed.start({(one.topic, one.partition): StoredPosition(one.first)})
                while got := feed.poll(1000, 1 << 20, 0.0):
                    found += [record for record in got if record.offset < one.end]
        return found


@dataclass
class Spark:
    """Give a session the micro-batches of a file, as Spark would."""

    url: str
    stream: Stream
    watch: Watch = field(default_factory=Watch)

    def __enter__(self) -> Spark:
        writer = PostgresWriter(self.url)
        self.told = streamed_session.Stream(None, writer, self.url, "", 0, DECODING, 1 << 20)  # type: ignore[arg-type]
        self.consumer = consumer = Consumer(
            writer, lambda: FileFeed(str(self.stream.path)), Decoder, value_keys, self.watch,  # type: ignore[arg-type]
            on_error=ErrorPolicy.SET_ASIDE, cache_bytes=1 << 20,
            make_session=lambda following: LocalSession(following, self.told),
        )  # fmt: skip
        assert writer.acquire()
        self.writer = writer
        self.session = consumer.make_session(consumer)
        self.feed = FileFeed(str(self.stream.path))
        self.feed.start(writer.positions(self.feed.name))
        return self

    def __exit__(self, *_: object) -> None:
        self.feed.close()
        self.session.close()
        self.writer.close()

    def take(self, records: int) -> bool:
        """Take a micro-batch of at most so many records; False where there are none."""
        ((place, first),) = self.feed.positions().items()
        found = list(self.feed.poll(records, 1 << 20, 0.0))
        if found:
            self.session._take_micro_batch([(*place, first, self.feed.positions()[place], found)])
        return bool(found)

    def take_all(self, records: int) -> None:
        while self.take(records):
            pass

    def look(self) -> None:
        """Look between two micro-batches, and try what is away whenever that was tried last."""
        self.session._tried_again_at = 0.0
        self.session._look_around()

    def mark(self) -> None:
        """Take a micro-batch of a broker's marker alone, which is one offset long."""
        ((place, first),) = self.feed.positions().items()
        self.session._take_micro_batch([(*place, first, first, [])])


class LocalQuery:
    """Be a stream of Spark's over a file, with micro-batches of at most so many records on a thread of its own."""

    def __init__(self, session: LocalSession, path: Path, records: int) -> None:
        self._session, self._path, self._records = session, path, records
        self._begins = dict(session._feed.positions())
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def isActive(self) -> bool:
        return self._thread.is_alive()

    def awaitTermination(self, _: float) -> None:
        self._thread.join(0.05)

    def stop(self) -> None:
        self._is_stopped.set()
        self._thread.join()

    def exception(self) -> None:
        return None

    def _run(self) -> None:
        with closing(FileFeed(str(self._path))) as feed, suppress(Exception):  # the session has it
            feed.start({place: StoredPosition(at) for place, at in self._begins.items()})
            while not self._is_stopped.is_set():
                ((place, first),) = feed.positions().items()
                if found := list(feed.poll(self._records, 1 << 20, 0.05)):
                    self._session._micro_batch([(*place, first, feed.positions()[place], found)], 0)


@dataclass
class Follower:
    """Follow a file as on Spark, on a thread, for as long as `following` lasts; nothing is tried again for a time."""

    url: str
    stream: Stream
    watch: Watch = field(default_factory=Watch)
    stop: threading.Event = field(default_factory=threading.Event)
    session: LocalSession | None = None
    failed: BaseException | None = None

    def run(self) -> None:
        try:
            consume(self.url, self.stream, watch=self.watch, stop=self.stop, on_error=ErrorPolicy.SET_ASIDE)  # type: ignore[arg-type]
        except BaseException as error:
            self.failed = error

    def sessions(self, writer: PostgresWriter, records: int) -> Callable[[Following], Session]:
        told = streamed_session.Stream(None, writer, self.url, "", 0, DECODING, 1 << 20)  # type: ignore[arg-type]

        def make(following: Following) -> Session:
            session = self.session = LocalSession(following, told)
            session._start = lambda _: LocalQuery(session, self.stream.path, 5)  # type: ignore[method-assign,assignment,return-value]
            return session

        return make

    def wait(self, condition: Callable[[], object]) -> None:
        """Wait for a condition, with a follower that has not failed."""
        wait_for(lambda: self.failed is not None or condition())
        assert self.failed is None

    def all_applied(self) -> bool:
        return states.query(self.url, "select next_offset from feed_position") == [(self.stream.end(),)]


@contextmanager
def following(url: str, stream: Stream) -> Iterator[Follower]:
    follower = Follower(url, stream)
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(stream, "sessions", follower.sessions)
        thread = threading.Thread(target=follower.run)
        thread.start()
        try:
            follower.wait(follower.all_applied)
            yield follower
        finally:
            follower.stop.set()
            thread.join(BOUND_SECONDS)
        assert not thread.is_alive()
        assert follower.failed is None


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


def test_a_server_that_came_back_as_it_was_before_is_refused_by_name(
    database_url: str, spread_stream: Stream, east_url: str
) -> None:
    """Its standby had not heard of the last batches when it was promoted; nobody's session was cut."""
    kept = ("gen_rec_shard_1", "shard_cluster", "shard", "shard_batch")
    random_changes(spread_stream, random.Random(12), 60)
    with Spark(database_url, spread_stream) as spark:
        spark.take(20)
        for table in kept:
            states.execute(east_url, f"create table kept_{table} as select * from {table}")
        spark.take(20)
        for table in kept:
            states.execute(east_url, f"delete from {table}; insert into {table} select * from kept_{table}")
        with pytest.raises(DamagedStateError, match=r"server 'east': Shard 1 is at version .* an older backup"):
            spark.take_all(20)
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
            while spark.take(rng.randrange(1, 9)):
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
    monkeypatch.setattr(silence, "SILENT_SECONDS", 0.5)
    random_changes(spread_stream, random.Random(15), 20)
    with Spark(database_url, spread_stream) as spark:
        spark.take(5)
        sessions = "select pid from pg_stat_activity where application_name = 'subsetd shard' and datname = "
        hanging = [psutil.Process(pid) for (pid,) in states.query(east_url, f"{sessions}current_database()")]
        assert hanging
        for process in hanging:
            process.suspend()
        try:
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


def test_a_batch_of_a_brokers_markers_is_no_version(database_url: str, spread_stream: Stream) -> None:
    random_changes(spread_stream, random.Random(5), 10)
    with Spark(database_url, spread_stream) as spark:
        spark.take(5)
        spark.mark()
        spark.take(5)
    require_true(database_url, spread_stream)

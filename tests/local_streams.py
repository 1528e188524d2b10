"""Own following in shards on Spark without Spark: what executors run is run here, one task behind the other."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from service.core.canonical import value_keys
from service.core.cell_decoding import WireSettings
from service.core.model import RawRecord, RowChange, StoredPosition
from service.store.writer import PostgresWriter
from service.stream.envelope import Decoder
from service.stream.file_feed import FileFeed
from service.stream.kafka_topics import TopicRange
from service.usecases.batches import ErrorPolicy, Observer
from service.usecases.feed_session import Session
from service.usecases.follow_feed import Consumer
from service.usecases.following import Following
from spark_jobs.follow_tasks import AppliedBatch, CauseTask, Decoding, applied
from spark_jobs.stream import Stream as SparkStream
from spark_jobs.streamed_session import StreamedSession
from tests import states
from tests.following import Stream, Watch, consume
from tests.integration.test_shard_servers import OF
from tests.waiting import BOUND_SECONDS, wait_for

DECODING = Decoding(WireSettings(), None, "refuse")
Ranges = list[tuple[str, int, int, int, list[RawRecord]]]


class LocalSession(StreamedSession):
    """Follow on Spark, without Spark: a micro-batch is ranges of records."""

    def _run(self, frame: Any) -> AppliedBatch:
        ranges: Ranges = frame
        net, shard = self._tasks()
        rows: list[list[dict[str, Any]]] = [[] for _ in range(OF)]
        for topic, partition, *of_range in ranges:
            facts, parts = net._net((topic, partition), *of_range)  # type: ignore[arg-type]
            for of_shard, part in zip(rows, parts, strict=True):
                of_shard.append({"facts": pickle.dumps(facts), "deltas": part})
        told = [shard.apply(number, of_shard) for number, of_shard in enumerate(rows)]
        return applied(pa.Table.from_batches(told), OF)

    def _read_again(self, task: CauseTask, ranges: Sequence[TopicRange]) -> list[tuple[list[RowChange], float]]:
        found = []
        for one in ranges:
            with closing(FileFeed(one.topic)) as feed:
                feed.start({(one.topic, one.partition): StoredPosition(one.first)})
                while got := feed.poll(1000, 1 << 20, 0.0):
                    records = [record for record in got if record.offset < one.end]
                    found.append((task.among(records), 0.0))
        return found


@dataclass
class Spark:
    """Give a session the micro-batches of a file, as Spark would."""

    url: str
    stream: Stream
    watch: Watch = field(default_factory=Watch)

    def __enter__(self) -> Spark:
        writer = PostgresWriter(self.url)
        self.told = SparkStream(None, writer, self.url, "", 0, DECODING, 1 << 20)  # type: ignore[arg-type]
        self.consumer = consumer = Consumer(
            writer, lambda: FileFeed(str(self.stream.path)), Decoder, value_keys, self.watch,  # type: ignore[arg-type]
            on_error=ErrorPolicy.SET_ASIDE, cache_bytes=1 << 20,
        )  # fmt: skip
        consumer.make_session = lambda following: LocalSession(following, self.told)
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

    def take(self, records: int, *, settles: bool = True) -> bool:
        """Take a micro-batch of at most so many records, and wait for its commit; False where there are none."""
        ((place, first),) = self.feed.positions().items()
        found = list(self.feed.poll(records, 1 << 20, 0.0))
        if found:
            self.session._take_micro_batch([(*place, first, self.feed.positions()[place], found)])
            if settles:
                self.session._settle()
        return bool(found)

    def take_all(self, records: int) -> None:
        while self.take(records):
            pass

    def look(self) -> None:
        """Look between two micro-batches, and try what is away whenever that was tried last."""
        self.session._tried_again_at = 0.0
        self.session._look_around()

    def mark(self) -> None:
        """Take a micro-batch of a broker's marker alone: of a blank line, which is put in where the feed stands."""
        ((place, first),) = self.feed.positions().items()
        with self.stream.path.open("r+b") as file:
            file.seek(first)
            behind = file.read()
            file.seek(first)
            file.write(b"\n" + behind)
        self.feed.close()
        self.feed = FileFeed(str(self.stream.path))
        self.feed.start({place: StoredPosition(first + 1)})
        self.session._take_micro_batch([(*place, first, first + 1, [])])


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
    watch: Observer = field(default_factory=Watch)
    stop: threading.Event = field(default_factory=threading.Event)
    session: LocalSession | None = None
    failed: BaseException | None = None

    def run(self) -> None:
        try:
            consume(self.url, self.stream, watch=self.watch, stop=self.stop, on_error=ErrorPolicy.SET_ASIDE)  # type: ignore[arg-type]
        except BaseException as error:
            self.failed = error

    def sessions(self, writer: PostgresWriter, records: int) -> Callable[[Following], Session]:
        told = SparkStream(None, writer, self.url, "", 0, DECODING, 1 << 20)  # type: ignore[arg-type]

        def make(following: Following) -> Session:
            session = self.session = LocalSession(following, told)
            session._start = lambda _: LocalQuery(session, self.stream.path, 5)  # type: ignore[method-assign,assignment,return-value]
            return session

        return make

    def wait(self, condition: Callable[[], object]) -> None:
        """Wait for a condition, with a follower that has not failed."""
        wait_for(lambda: self.failed is not None or condition())
        if self.failed is not None:
            raise self.failed

    def all_applied(self) -> bool:
        return states.query(self.url, "select next_offset from feed_position") == [(self.stream.end(),)]


@contextmanager
def following(url: str, stream: Stream, watch: Observer | None = None) -> Iterator[Follower]:
    follower = Follower(url, stream, watch or Watch())
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
        if follower.failed is not None:
            raise follower.failed

"""Own a session of following on Spark: micro-batches that shards apply on executors and the driver concludes.

The state's positions say where the stream begins, each time anew, so that nothing rests on what Spark remembers. What
is rare is taken by an ordinary session, and the stream begins anew behind it.

Where a shard's server is away, the others go on: what it is to apply waits here, and the state stays at the last
version that all shards have. The feed has it all still, so that nothing is lost with this process.
"""

from __future__ import annotations

import copy
import itertools
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from service.core.errors import ConflictError, FeedAwayError, FeedError, StateError, SubsetdError
from service.core.model import RawRecord, RowChange
from service.store.shard_coordinator import ShardCoordinator
from service.store.shards import ShardStore
from service.stream.kafka_feed import KafkaFeed
from service.stream.kafka_topics import TopicRange
from service.usecases.batches import Batch, Positions, timed
from service.usecases.bounded_feed import BoundedFeed
from service.usecases.causes import wanted_by
from service.usecases.feed_session import LOOK_SECONDS, BeginAnew, Session
from service.usecases.following import Following
from service.usecases.netted_ranges import BatchFacts, Partition
from service.usecases.screening import Reader, Screen, Seen
from service.usecases.shards import ShardSummary, conclude
from service.usecases.transactions import name_on_wire, transaction_topics
from spark_jobs.checkpoint import begin_checkpoint
from spark_jobs.follow_source import FORMAT, ChangesDataSource, plan_of
from spark_jobs.follow_tasks import (
    APPLIED_DDL,
    PART_DDL,
    AppliedBatch,
    CauseTask,
    Left,
    NetTask,
    ShardTask,
    applied,
    is_next,
    why_away,
)
from spark_jobs.job_folder import job_folder
from spark_jobs.parallel import run_parallel
from spark_jobs.session import map_in_arrow, register
from spark_jobs.stream import Stream
from spark_jobs.telling import told_error

TRIGGER = "100 milliseconds"
"""How long records wait at most for a micro-batch to begin when none is at work."""

FILES_OF_CHECKPOINT = "spark.sql.streaming.checkpointFileManagerClass"
QUICK_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Writes two files a micro-batch in 30 ms where the other, which may be had for any file system, takes 130."""

MOST_LEFT_BYTES = 256 << 20
"""How much may wait for servers that are away before all shards wait for them."""

RESTS = 10
"""A server that is away is tried again after so many times what trying took: one that does not answer takes seconds."""

_numbers = itertools.count(1)

log = structlog.get_logger(__name__)


class _Rare(Exception):
    """A micro-batch is for an ordinary session."""


class _Full(Exception):
    """So much waits for servers which are away that all shards are to wait."""


class _Resized(Exception):
    """The stream is to begin anew behind a micro-batch, with others of another size."""


@dataclass(slots=True)
class _Pending:
    """Hold a micro-batch that the whole does not have yet: `left` is what shards lack whose servers are away."""

    facts: BatchFacts
    summaries: list[ShardSummary]
    left: dict[int, Left]
    kept_bytes: int
    seconds: dict[str, float]


class StreamedSession(Session):
    """Follow topics by a stream of Spark's; in all else be a session."""

    def __init__(self, following: Following, stream: Stream) -> None:
        # Shards have memories of their own; and a session beside this one warms up, over the one connection for that.
        super().__init__(following, warms_up=False)
        self._stream = stream
        self._coordinator = ShardCoordinator(stream.writer, stream.database_url)
        self._stop = threading.Event()
        self._at_work = threading.Lock()
        """Held for a micro-batch, and for a look at what else is wanted between two."""
        self._goes_on = threading.Event()
        """Not set while the feed is paused and shards lack what waits for them: then no micro-batch begins."""
        self._goes_on.set()
        self._is_ending = False
        self._error: BaseException | None = None
        self._rare_ends: Positions | None = None
        self._is_torn = False
        """Whether some shards have applied what a session is to take."""
        self._has_given = False
        """Whether the shards were given a batch: the one before the next is the last that each has."""
        self._streamed: set[str] = set()
        """Topics that micro-batches were of."""
        self._pending: list[_Pending] = []
        self._concluded = dict(self._positions)
        """Where what is concluded ends: of markers alone nothing is stored, and the next batch begins before them."""
        self._away: dict[int, str] = {}
        self._tried_again_at = 0.0
        stream.begin(len(self._coordinator.places))
        try:
            self._refuse_what_executors_cannot_apply()
        except SubsetdError:
            self.close()
            raise

    def follow(self, stop: threading.Event, until_end: bool) -> None:
        self._stop = stop
        self._rest_while_paused(stop)
        while isinstance(failed := self._stream_once(stop, until_end), _Resized) and not stop.is_set():
            pass
        if isinstance(failed, _Rare | _Full) or (failed is None and until_end):
            self._wait_for_all(stop, until_end)
            if self._pending:
                return  # stopped meanwhile: whoever follows next undoes what shards have beyond the state
        if self._rare_ends is not None:
            if self._is_torn:
                self._coordinator.begin()
                self._coordinator.undo()
            self._take_alone(self._rare_ends, stop)
        if isinstance(failed, _Rare | _Full):
            raise BeginAnew
        if failed is not None and not isinstance(failed, _Resized):
            raise told_error(failed) if isinstance(failed, PySparkException | Py4JError) else failed

    def _stream_once(self, stop: threading.Event, until_end: bool) -> BaseException | None:
        """Stream from where the shards stand until something ends it, and give what that was."""
        self._is_ending, self._error = False, None
        query = self._start(until_end)
        try:
            while query.isActive and not stop.is_set():
                query.awaitTermination(LOOK_SECONDS)  # type: ignore[arg-type]
                if not self._look_if_idle():  # what a micro-batch has in hand is not known
                    behind = self._behind
                    self._of.observer.waiting(behind if any((behind or {}).values()) else None)
        except PySparkException:
            pass  # told by who called
        finally:
            self._is_ending = True
            self._goes_on.set()
            with self._at_work:  # a micro-batch that is under way ends first
                pass
            query.stop()
        self._settle()
        return self._error or query.exception()

    def _look_if_idle(self) -> bool:
        """Look around unless a micro-batch is at work, or being committed, and may hang; tells whether it did."""
        if not self._at_work.acquire(timeout=LOOK_SECONDS):
            return False
        try:
            # Behind an error memory may be ahead of the store: whoever called `follow` is told of it.
            is_idle = self._error is None and self._in_flight.ends_within(LOOK_SECONDS)
            if is_idle:
                self._look_around()
            return is_idle
        except BaseException:
            self._is_ending = True  # what failed is not for a micro-batch that waits
            raise
        finally:
            self._at_work.release()

    def _refuse_what_executors_cannot_apply(self) -> None:
        if not self._coordinator.places:
            raise ConflictError(
                "The state is one shard, which one process follows best: deal it out first, with `subsetd shards set`."
            )
        if not self._state.shown.are_whole:
            raise ConflictError(
                "Of some columns' values less than all is kept, which tasks on executors do not know of: follow with "
                "`subsetd consume`."
            )
        topics = (topic for topic, _ in self._feed.positions())
        told = sorted(transaction_topics(topics, set(map(name_on_wire, self._state.tables))))
        if told:
            raise FeedError(
                f"feed {self._stream.address}: {told[0]} tells of the source's transactions, which following on Spark "
                f"does not keep whole: leave the topic out, or follow with `subsetd consume`"
            )

    def _look_around(self) -> None:
        """Look between micro-batches what else is wanted, and where the feed ends."""
        self._settle()
        if not self._pending:  # what waits would be lost, and who asks for the state is refused, too
            self._hand_over_if_wanted()
        elif time.monotonic() >= self._tried_again_at:
            begun = time.monotonic()
            self._catch_up()
            self._tried_again_at = time.monotonic() + RESTS * (time.monotonic() - begun)
        if not self._writer.is_paused(self._feed.name):
            self._goes_on.set()
        elif self._pending:
            self._goes_on.clear()
        else:
            raise BeginAnew
        self._feed.rest()
        self._behind = lag = self._lag()
        self._of.observer.waiting(lag)
        if not self._pending and any((lag or {}).values()):
            self.rested = 0.0  # there is something to be stored: while a stream begins nothing rests

    def _start(self, until_end: bool) -> StreamingQuery:
        stream, topic_ids = self._stream, self._feed.describe().topic_ids
        plan = plan_of(stream.address, self._begins(), topic_ids, stream.most_records, stream.range_bytes)
        register(stream.spark, ChangesDataSource)
        writing = stream.spark.readStream.format(FORMAT).option("plan", plan).load().writeStream
        checkpoint = stream.checkpoint
        if checkpoint is None:
            checkpoint = f"file:{job_folder()}/checkpoint-{next(_numbers)}"
            stream.spark.conf.set(FILES_OF_CHECKPOINT, QUICK_FILES)
        else:
            begin_checkpoint(stream.spark, checkpoint, self._positions, stream.has_begun)
            stream.has_begun = True
        writing = writing.foreachBatch(self._micro_batch).option("checkpointLocation", checkpoint)
        return (writing.trigger(availableNow=True) if until_end else writing.trigger(processingTime=TRIGGER)).start()

    def _begins(self) -> Positions:
        """Say where a stream begins: of the feed's topics alone, as the state may stand in others of its cluster.

        A new topic may be known to the planner of the stream before, and by its micro-batches, earlier than here.
        """
        begun = self._feed.positions()
        topics = {topic for topic, _ in begun} | self._streamed
        return begun | {place: at for place, at in self._stands().items() if place[0] in topics}

    def _micro_batch(self, frame: Any, _: int) -> None:
        """Take a micro-batch, on a thread of Spark's; `follow` tells what befalls it."""
        self._goes_on.wait()
        with self._at_work:
            if self._is_ending:
                return  # Spark counts it as taken, and nothing rests on that
            try:
                self._take_micro_batch(frame)
            except BaseException as error:
                self._error = error
                raise

    def _take_micro_batch(self, frame: DataFrame) -> None:
        seconds: dict[str, float] = {}
        coordinator, stream = self._coordinator, self._stream
        self._of.started = self._of.started or time.perf_counter()
        with timed(seconds, "wait"):
            self._settle()
        coordinator.begin()
        with timed(seconds, "spark"):
            done = self._run(frame)
        facts = done.facts
        self._streamed |= {topic for topic, _ in facts.ends}
        seconds["net (processor)"] = sum(one.seconds for one in facts.ranges)
        seconds["apply (processor)"] = sum(done.seconds)
        seconds["slowest shard (processor)"] = max(done.seconds, default=0.0)
        stands = self._stands()
        if any(summary.missing for summary in done.summaries):
            self._is_torn = True
            coordinator.end()  # a server that is away may be waited for first: who reads values is told so
            self._leave_to_session(facts)
        if not facts.ranges:  # a stream begins with a micro-batch of nothing where nothing is new
            pass
        elif not is_next(facts, stands):
            raise FeedError("The stream does not go on where the state stands.")
        elif facts.has_records and not done.summaries and not done.left:
            coordinator.end()
            self._leave_to_session(facts)
        else:
            self._pending.append(_Pending(facts, done.summaries, done.left, done.kept_bytes, seconds))
            self._has_given = self._has_given or facts.has_records
            self._conclude()
        self._in_flight.then(coordinator.end)  # it is committed while Spark plans the next
        if sum(pending.kept_bytes for pending in self._pending) > MOST_LEFT_BYTES:
            raise _Full
        if stream.fit(facts):
            raise _Resized

    def _run(self, frame: DataFrame) -> AppliedBatch:
        """Let executors net the micro-batch and the shards apply it; gives what it says, and the shards' summaries."""
        net, shard = self._tasks()
        parts = map_in_arrow(frame, net, PART_DDL).repartitionById(len(shard.places), sf.col("shard"))
        return applied(map_in_arrow(parts, shard, APPLIED_DDL).toArrow(), len(shard.places))  # type: ignore[arg-type]

    def _tasks(self) -> tuple[NetTask, ShardTask]:
        """Make the two tasks of the next micro-batch: it is behind those that wait."""
        state, coordinator, stream = self._state, self._coordinator, self._stream
        nulls = Counter({attribute_id: counted.null_count for attribute_id, counted in state.counters.items()})
        screen = self._screen
        assert isinstance(screen, Screen)
        if self._pending:
            screen = copy.deepcopy(screen)
        for pending in self._pending:
            nulls.update(pending.facts.nulls)
            screen.advance(_seen(pending.facts))
        number = state.version + 1 + sum(pending.facts.has_records for pending in self._pending)
        away, memory = self._away, (stream.cache_bytes, stream.warm_up)
        net = NetTask(state.tables, stream.decoding, screen, len(coordinator.places))
        stands = self._stands()
        behind = number - 1 if self._has_given else None
        return net, ShardTask(
            coordinator.places, number, behind, state.version, away, state.uncounted, dict(nulls), stands, *memory
        )

    def _stands(self) -> Positions:
        """Say where the shards stand in the feed, all but those that wait."""
        stands = dict(self._concluded)
        for pending in self._pending:
            stands |= pending.facts.ends
        return stands

    def _conclude(self) -> None:
        """Let the whole follow the batches that all shards have, up to the first that one of them lacks.

        The last of them is in flight then.
        """
        while self._pending and not self._pending[0].left:
            pending = self._pending.pop(0)
            facts = pending.facts
            self._concluded |= facts.ends
            if not facts.has_records:  # markers of the broker alone
                continue
            batch = self._batch(facts, pending.seconds)
            with timed(pending.seconds, "conclude"):
                delta = conclude(self._state, pending.summaries, facts.rows, facts.nulls, facts.sketched)
            changes = [change for one in facts.ranges for change in one.last]
            if wanted := wanted_by(delta):  # those at the end are what the positions are told of, and have no rows
                changes = [*self._causes(facts, wanted, pending.seconds), *changes]
            with timed(pending.seconds, "wait"):
                self._settle()  # the one before, where several have waited
            commit = self._commit(batch, changes, facts.counts, delta)
            self._behind = self._lag()
            self._in_flight.write(self._writer.begin(), commit, self._report(commit, batch), self._sink)
        away = {shard: left.told for pending in self._pending for shard, left in pending.left.items()}
        if away.keys() != self._away.keys():
            self._of.observer.shards_away(list(away.values()))
        self._away = away

    def _catch_up(self) -> None:
        """Let shards apply what they lack, where their servers are there again, and conclude what all have."""
        self._coordinator.begin()
        for shard in self._away:
            place = self._coordinator.places[shard]
            with closing(ShardStore(place, self._stream.cache_bytes)) as store:
                for pending in self._pending:
                    if self._stop.is_set():
                        break
                    if shard not in pending.left:
                        continue
                    try:
                        summary = store.apply(pending.left[shard].batch)
                    except StateError as error:
                        if why_away(place, error) is None:
                            raise
                        break
                    if summary.missing:
                        self._coordinator.undo()
                        raise BeginAnew
                    del pending.left[shard]
                    pending.summaries.append(summary)
        self._conclude()
        self._settle()
        self._coordinator.end()

    def _wait_for_all(self, stop: threading.Event, until_end: bool) -> None:
        """Wait until the whole has all that shards have, or `stop` is set; raises StateError where none may come."""
        while self._pending:
            self._look_around()
            if self._pending and until_end:
                raise StateError("; ".join(self._away.values()))
            if stop.wait(LOOK_SECONDS if self._pending else 0):
                return

    def _leave_to_session(self, facts: BatchFacts) -> None:
        self._rare_ends = facts.ends
        raise _Rare

    def _take_alone(self, ends: Positions, stop: threading.Event) -> None:
        """Let an ordinary session follow to the end of a micro-batch."""
        open_whole = self._of.open_feed
        alone = Session(replace(self._of, open_feed=lambda: BoundedFeed(open_whole(), ends)))
        try:
            alone.follow(stop, until_end=True)
        finally:
            alone.close()

    def _batch(self, facts: BatchFacts, seconds: dict[str, float]) -> Batch:
        """Make a batch of what its ranges say: of its records there are the first and the last of each partition."""
        ends = [place for one in facts.ranges for place in (one.begun, one.ended) if place is not None]
        records = [RawRecord(*place, None, None, 0) for place in ends]
        batch = Batch(records, (), self._positions, facts.ends, seconds)
        batch.skipped = [skipped for one in facts.ranges for skipped in one.skipped]
        batch.seen = _seen(facts)
        return batch

    def _causes(self, facts: BatchFacts, wanted: Mapping[int, set[str]], seconds: dict[str, float]) -> list[RowChange]:
        """Let executors read a batch once more, for the changes that moved wanted values last.

        Gives none where the broker has them no more: a batch may have waited for longer than records are kept.
        """
        assert isinstance(self._screen, Screen)
        task = CauseTask(self._state.tables, self._stream.decoding, self._screen, wanted)
        ranges = [TopicRange(*one.partition, one.first, one.end) for one in facts.ranges if one.begun is not None]
        try:
            with timed(seconds, "causes"):
                told = self._read_again(task, ranges)
        except FeedAwayError:
            raise
        except FeedError as error:
            log.warning("causes unknown", error=str(error))
            return []
        seconds["causes (processor)"] = sum(taken for _, taken in told)
        return [change for found, _ in told for change in found]

    def _read_again(self, task: CauseTask, ranges: Sequence[TopicRange]) -> list[tuple[list[RowChange], float]]:
        assert isinstance(self._feed, KafkaFeed)
        return run_parallel(self._stream.spark)(partial(task.read, tuple(self._feed.servers)), ranges)

    def _lag(self) -> Positions | None:
        """Count what is behind the newest commit, as far as the topics were when they were last looked at."""
        behind, begun = self._feed.lag(), self._feed.positions()
        if behind is None:
            return None
        return {place: max(0, at + behind[place] - self._concluded.get(place, at)) for place, at in begun.items()}


def _seen(facts: BatchFacts) -> dict[Partition, dict[Reader, Seen]]:
    return {one.partition: dict(one.seen) for one in facts.ranges if one.seen is not None}

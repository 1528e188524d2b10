"""Own topics as a stream of Spark's: where it begins, how a micro-batch is cut, and its records, read on executors.

A micro-batch has a range of each partition, whose records lie end to end in a row, or in some: so they pass through
Java as they are. Beside them stands what reading them took, in seconds of the processor. What is read and where it
ends is the broker's to say, where it begins the state's. A range is planned by offsets, as nobody tells how large
records are before they are read; one that has too many bytes ends earlier, and says so.

Spark plans in processes that it starts anew for each stream, and that import this: neither SQL nor kernels are for it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from service.core.errors import FeedAwayError
from service.core.model import RawRecord, StoredPosition
from service.stream.kafka_address import open_topics, parse_kafka
from service.stream.kafka_feed import KafkaFeed
from service.stream.kafka_topics import TopicRange, read_again
from spark_jobs.telling import telling_errors
from spark_jobs.worker_daemon import end_quietly_here

FORMAT = "subsetd_changes"
LOOK_SECONDS = 0.05
"""How often the broker is asked for the topics' ends."""

CHUNK_BYTES = 16 << 20
"""A range is handed on in rows of at most so many bytes, and a record: a row is one array in Java."""

RANGE_BYTES = 64 << 20
"""A range ends with the record that fills it: whoever nets it has all of its records in memory."""

RANGE = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("first", pa.int64()),
        ("planned", pa.int64()),
        ("end", pa.int64()),
        ("records", pa.binary()),
        ("seconds", pa.float64()),
    ]
)
RANGE_DDL = "topic string, partition int, first bigint, planned bigint, end bigint, records binary, seconds double"

RECORD = pa.schema([("offset", pa.int64()), ("key", pa.large_binary()), ("value", pa.large_binary())])

Offsets = dict[str, dict[str, int]]
"""Next offset by topic and by partition, whose number is a text: as Spark's log of offsets has it."""

Positions = dict[tuple[str, int], int]


class ChangesDataSource(DataSource):
    """Give the records of an address's topics from given positions on (Spark's Python data source)."""

    def __init__(self, options: dict[str, str]) -> None:
        end_quietly_here()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return RANGE_DDL

    def streamReader(self, schema: Any) -> ChangesReader:
        end_quietly_here()
        return ChangesReader(self.options["plan"])


def plan_of(
    address: str, positions: Positions, topic_ids: Mapping[str, str], batch_records: int, range_bytes: int
) -> str:
    """Give the data source's option: what is read, from where, and how much a micro-batch and a range have at most."""
    return json.dumps([address, to_offsets(positions), dict(topic_ids), batch_records, range_bytes])


class ChangesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plan micro-batches beside the driver, and read their ranges on executors."""

    def __init__(self, plan: str) -> None:
        self.plan = plan
        self._feed: KafkaFeed | None = None
        self._looks_at = 0.0
        self._ends: Positions = {}
        self._last: Positions | None = None

    def initialOffset(self) -> Offsets:
        offsets: Offsets = json.loads(self.plan)[1]
        return offsets

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(json.loads(self.plan)[3])

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Cut the next micro-batch; it ends where it begins when the broker has no more, or is away."""
        ends = self._last if self._last is not None else self._look()
        if isinstance(limit, ReadMaxRows):
            ends = cut(self._begins(start), ends, limit.max_rows)
        return to_offsets({**from_offsets(start), **ends})

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the stream end where the topics end now; raise FeedAwayError where nobody tells."""
        self._last = self._look()
        if not self._last:
            with telling_errors():
                raise FeedAwayError("no broker tells where the topics end; start it, and again")

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Give a range for each partition that has one: what is in one is screened in its order, by one task."""
        begins = self._begins(start)
        return [
            InputPartition((*place, begins[place], stop))
            for place, stop in sorted(from_offsets(end).items())
            if begins[place] < stop
        ]

    def _begins(self, start: Offsets) -> Positions:
        """Give where a micro-batch begins in each partition, a new one with its earliest record."""
        self._look()
        assert self._feed is not None
        return {**self._feed.positions(), **from_offsets(start)}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with telling_errors():
            part = TopicRange(*partition.value)
            begun = time.process_time()
            address, *_, range_bytes = json.loads(self.plan)
            servers, _, _ = parse_kafka(address)
            for end, chunk in to_chunks(read_again(tuple(servers), part), part.end, range_bytes):
                cells = (*part, end, chunk, time.process_time() - begun)
                columns = [pa.array([cell], field.type) for cell, field in zip(cells, RANGE, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, schema=RANGE)
                begun = time.process_time()

    def stop(self) -> None:
        if self._feed is not None:
            self._feed.close()

    def _look(self) -> Positions:
        """Ask the broker for the ends; raise FeedError where a topic or a position is lost, as the consumer does."""
        if time.monotonic() < self._looks_at:
            return self._ends
        with telling_errors():
            if self._feed is None:
                address, offsets, topic_ids, *_ = json.loads(self.plan)
                feed, positions = open_topics(address), from_offsets(offsets)
                feed.start({p: StoredPosition(at, topic_id=topic_ids.get(p[0])) for p, at in positions.items()})
                self._feed = feed
            self._feed.rest()
        lag = self._feed.lag()
        if lag is not None:
            # A broker that has just come back may not know all topics yet: one that it does not tell of has no end, as
            # the feed's own place, from which nothing is polled here, may be far behind what was read since.
            begins = ((place, at) for place, at in self._feed.positions().items() if place[0] not in self._feed.gone)
            self._ends = {place: at + lag[place] for place, at in begins}
        self._looks_at = time.monotonic() + LOOK_SECONDS
        return self._ends


def cut(begins: Positions, ends: Positions, most: int) -> Positions:
    """Cut partitions to `most` offsets in all, in fair shares: what a short one leaves goes to the longer ones."""
    behind = sorted((end - begins[place], place) for place, end in ends.items())
    cut_ends = {}
    for done, (length, place) in enumerate(behind):
        taken = min(length, -(-most // (len(behind) - done)))
        cut_ends[place] = begins[place] + taken
        most -= taken
    return cut_ends


def to_offsets(positions: Positions) -> Offsets:
    """Give positions as Spark keeps them."""
    offsets: Offsets = {}
    for (topic, partition), at in sorted(positions.items()):
        offsets.setdefault(topic, {})[str(partition)] = at
    return offsets


def from_offsets(offsets: Offsets) -> Positions:
    """Read positions as Spark keeps them."""
    return {(topic, int(number)): at for topic, of_topic in offsets.items() for number, at in of_topic.items()}


def to_chunks(records: Iterable[RawRecord], end: int, most_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Put the records of a range end to end (Arrow's stream format), in chunks; one of no record when there is none.

    Beside each stands where the range ends: the last says it, at `end`, or behind the record that made it too large.
    """
    rows: list[tuple[int, bytes | None, bytes | None]] = []
    size = whole = 0
    for record in records:
        rows.append((record.offset, record.key, record.value))
        length = len(record.key or b"") + len(record.value or b"")
        size, whole = size + length, whole + length
        if whole >= most_bytes:
            end = record.offset + 1
            break
        if size >= CHUNK_BYTES:
            yield end, _to_bytes(rows)
            rows, size = [], 0
    yield end, _to_bytes(rows)


def _to_bytes(rows: Sequence[tuple[int, bytes | None, bytes | None]]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, RECORD) as writer:
        if rows:
            columns = zip(zip(*rows, strict=True), RECORD, strict=True)
            writer.write_batch(pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in columns], schema=RECORD))
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def from_bytes(topic: str, partition: int, data: bytes) -> list[RawRecord]:
    """Read a chunk."""
    table = pa.ipc.open_stream(data).read_all()
    cells = zip(*(table.column(name).to_pylist() for name in RECORD.names), strict=True)
    return [RawRecord(topic, partition, offset, key, value, 0) for offset, key, value in cells]

"""Own the tasks of a micro-batch as executors run them: net the ranges of partitions, apply a shard's share.

Between them stands the one shuffle. Every shard is sent what all ranges say, so that all of them decide alike, before
anything is applied, whether the batch is theirs. Where it turned something, ranges are read once more for the causes.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import groupby
from operator import itemgetter
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from service.core.canonical import value_keys
from service.core.cell_decoding import WireSettings
from service.core.errors import ConflictError, DamagedStateError, StateError
from service.core.model import RawRecord, RowChange, Table
from service.core.records import Deltas, Flags, Keys
from service.store.shards import apply_to_shard
from service.stream.envelope import Decoder
from service.stream.kafka_topics import TopicRange, read_again
from service.stream.schema_registry import HttpSchemaRegistry
from service.usecases.batches import decode_each, separate
from service.usecases.causes import those_that_moved
from service.usecases.netted_ranges import (
    BatchFacts,
    Partition,
    RangeFacts,
    Valued,
    net_range,
    split_deltas,
    sum_deltas,
)
from service.usecases.screening import Screen
from service.usecases.shards import ShardBatch, ShardPlace, ShardSummary
from service.usecases.warm_up import WarmUpPolicy
from spark_jobs.follow_source import RANGE, from_bytes
from spark_jobs.shard_keeper import kept
from spark_jobs.telling import telling_errors

PART = pa.schema([("shard", pa.int32()), ("facts", pa.binary()), ("deltas", pa.binary())])
PART_DDL = "shard int, facts binary, deltas binary"
APPLIED = pa.schema(
    [
        ("facts", pa.binary()),
        ("ranges", pa.int32()),
        ("shard", pa.int32()),
        ("told", pa.binary()),
        ("seconds", pa.float64()),
    ]
)
APPLIED_DDL = "facts binary, ranges int, shard int, told binary, seconds double"

CELLS = pa.schema(
    [
        ("high", pa.uint64()),
        ("low", pa.uint64()),
        ("text", pa.large_string()),
        ("attribute_ids", pa.large_list(pa.int64())),
        ("differences", pa.large_list(pa.int64())),
    ]
)


OBJECTS_BYTES = 32 << 10
"""What a micro-batch takes in the driver beside what is in it: Python's objects."""

_registry = cache(HttpSchemaRegistry)
"""A worker asks a registry for each schema once."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """Say how a feed's records are decoded; picklable. `sources` are those that the feed is of, None: all."""

    wire: WireSettings
    registry: str | None
    unknown_tables: Literal["ignore", "refuse"]
    sources: frozenset[str] | None = None

    def decoder(self, tables: Sequence[Table]) -> Decoder:
        """Make the decoder of the changes of tables."""
        registry = None if self.registry is None else _registry(self.registry)
        wanted = [table for table in tables if self.sources is None or table.source in self.sources]
        return Decoder(wanted, self.wire, registry, self.unknown_tables)


@dataclass(frozen=True, slots=True)
class NetTask:
    """Net ranges of records and cut them by shard; picklable. Takes rows of the stream, gives a row for each shard.

    The screen knows what was seen up to this batch.
    """

    tables: Sequence[Table]
    decoding: Decoding
    screen: Screen
    shards: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with telling_errors():
            rows = (row for batch in batches for row in batch.to_pylist())
            for (topic, partition, first, planned), chunks in groupby(rows, itemgetter(*RANGE.names[:4])):
                begun, reading, size, end = time.process_time(), 0.0, 0, planned
                records: list[RawRecord] = []
                for row in chunks:
                    records += from_bytes(topic, partition, row["records"])
                    reading += row["seconds"]
                    size += len(row["records"])
                    end = row["end"]
                facts, parts = self._net((topic, partition), first, end, records)
                seconds = time.process_time() - begun + reading
                told = pickle.dumps(replace(facts, planned=planned, bytes=size, seconds=seconds))
                yield _batch([range(self.shards), [told] * self.shards, parts], PART)

    def _net(
        self, partition: Partition, first: int, end: int, records: Sequence[RawRecord]
    ) -> tuple[RangeFacts, Sequence[bytes | None]]:
        decoder = self.decoding.decoder(self.tables)
        facts, netted = net_range(partition, first, end, records, decoder, self.screen, value_keys)
        if netted is None:
            return facts, [None] * self.shards
        return facts, [to_bytes(part) for part in split_deltas(netted, self.shards)]


@dataclass(frozen=True, slots=True)
class CauseTask:
    """Find in ranges that are read once more the changes that moved a wanted value last; picklable.

    The screen knows what was seen up to the batch of the ranges.
    """

    tables: Sequence[Table]
    decoding: Decoding
    screen: Screen
    wanted: Mapping[int, set[str]]

    def read(self, servers: tuple[str, ...], part: TopicRange) -> tuple[list[RowChange], float]:
        """Look for them in a range of a topic; gives the seconds of a processor that it took, too."""
        begun = time.process_time()
        return self.among(list(read_again(servers, part))), time.process_time() - begun

    def among(self, records: Sequence[RawRecord]) -> list[RowChange]:
        changes, _, _ = separate(records, decode_each(self.decoding.decoder(self.tables), records))
        return those_that_moved(self.screen.screen(changes).changes, self.wanted)


@dataclass(frozen=True, slots=True)
class ShardTask:
    """Apply a batch's deltas to the shard whose rows a task has, unless a session is to take the batch; picklable.

    `behind` is the version that the shards had last of this session, None: what the state has each at. `expected` is
    where the state stands in each partition. Gives one row: what the ranges say, of the first shard
    alone, how many they were, and the shard's summary if the batch was applied, or, where its server is away, what it
    is to apply. Of shards in `away` that is known before.
    """

    places: Sequence[ShardPlace]
    number: int
    behind: int | None
    concluded: int
    away: Mapping[int, str]
    uncounted: Flags
    null_counts: Mapping[int, int]
    expected: Mapping[Partition, int]
    cache_bytes: int
    warm_up: WarmUpPolicy

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with telling_errors():
            rows = [row for batch in batches for row in batch.to_pylist()]
            if rows:
                shard = rows[0]["shard"]
                yield kept(shard, partial(self.apply, shard, rows))

    def apply(self, shard: int, rows: Sequence[Mapping[str, bytes]]) -> pa.RecordBatch:
        """Apply a shard's rows with the memory that this process has of the shard."""
        begun = time.process_time()
        facts = BatchFacts([pickle.loads(row["facts"]) for row in rows])
        told = None
        if self.applies(facts):
            deltas, texts = sum_deltas([valued(row["deltas"]) for row in rows])
            place = self.places[shard]
            behind = place.batch if self.behind is None else self.behind
            batch = ShardBatch(self.number, behind, self.concluded, deltas, list(texts), self.uncounted)
            told = pickle.dumps(self._apply(place, batch))
        ranges = pickle.dumps(facts.ranges) if shard == 0 else None
        return _batch([[ranges], [len(rows)], [shard], [told], [time.process_time() - begun]], APPLIED)

    def applies(self, facts: BatchFacts) -> bool:
        """Tell whether a batch is applied by the shards: all of them come to the same."""
        has_to = facts.has_records and is_next(facts, self.expected)
        return has_to and facts.why_not_apart(self.null_counts) is None

    def _apply(self, place: ShardPlace, batch: ShardBatch) -> ShardSummary | Left:
        told = self.away.get(place.shard)
        if told is None:
            try:
                return apply_to_shard(place, batch, self.cache_bytes, self.warm_up)
            except StateError as error:
                told = why_away(place, error)
                if told is None:
                    raise
        return Left(batch, told)


class Left(NamedTuple):
    """Hold what a shard is to apply when its server is there again; `told` says what the server lacks."""

    batch: ShardBatch
    told: str


def why_away(place: ShardPlace, error: StateError) -> str | None:
    """Say that a shard's server is away; None where that is not what an error tells, or it is the state's own."""
    if place.server is None or isinstance(error, ConflictError | DamagedStateError):
        return None
    said = str(error).replace("SUBSETD_DATABASE_URL", "its address")
    return f"server {place.server!r} (shard {place.shard}): {said}"


def is_next(facts: BatchFacts, expected: Mapping[Partition, int]) -> bool:
    """Tell whether a batch begins where the state stands; partitions that are new to it begin anywhere."""
    return all(one.first == expected.get(one.partition, one.first) for one in facts.ranges)


class AppliedBatch(NamedTuple):
    """Hold what came of a micro-batch: what its ranges say, and the shards' summaries, if they have applied it.

    `left` is what shards have not applied whose servers are away, `kept_bytes` how much all of this is. `seconds` are
    those of a processor that each shard took.
    """

    facts: BatchFacts
    summaries: list[ShardSummary]
    left: dict[int, Left]
    kept_bytes: int
    seconds: Sequence[float]


def applied(table: pa.Table, of: int) -> AppliedBatch:
    """Read what the tasks of so many shards gave: nothing of a micro-batch without ranges.

    Raises StateError unless all shards have had all ranges: what of it is applied is to be undone.
    """
    counts = table.column("ranges").to_pylist()
    if counts and (len(counts) != of or len(set(counts)) > 1):
        raise StateError(
            f"Spark gave what {len(counts)} of {of} shards did with {min(counts)} to {max(counts)} ranges of a "
            f"micro-batch, which all shards are to have whole: it is taken again."
        )
    ranges: list[RangeFacts] = []
    summaries: list[ShardSummary] = []
    left: dict[int, Left] = {}
    kept_bytes = OBJECTS_BYTES
    for row in table.to_pylist():
        if row["facts"] is not None:
            ranges += pickle.loads(row["facts"])
        kept_bytes += len(row["facts"] or b"") + len(row["told"] or b"")
        told = None if row["told"] is None else pickle.loads(row["told"])
        if isinstance(told, Left):
            left[row["shard"]] = told
        elif told is not None:
            summaries.append(told)
    return AppliedBatch(BatchFacts(ranges), summaries, left, kept_bytes, table.column("seconds").to_pylist())


def to_bytes(part: Valued) -> bytes:
    """Give deltas and texts in Arrow's stream format."""
    deltas = part.deltas
    starts = pa.array(deltas.starts, pa.int64())
    columns = [
        pa.array(deltas.keys.high),
        pa.array(deltas.keys.low),
        pa.array(part.texts, pa.large_string()),
        pa.LargeListArray.from_arrays(starts, pa.array(deltas.attribute_ids)),
        pa.LargeListArray.from_arrays(starts, pa.array(deltas.differences)),
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, CELLS) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=CELLS))
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def valued(data: bytes) -> Valued:
    """Read what `to_bytes` gave."""
    batch = pa.ipc.open_stream(data).read_next_batch()
    high, low, texts, ids, differences = batch.columns
    keys = Keys(high.to_numpy(zero_copy_only=False), low.to_numpy(zero_copy_only=False))
    starts = np.asarray(ids.offsets, np.int64)
    deltas = Deltas(keys, starts, *(np.asarray(cells.flatten(), np.int64) for cells in (ids, differences)))
    return Valued(deltas, texts.to_pylist())


def _batch(columns: Iterable[Sequence[object]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array(cells, field.type) for cells, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

"""Own the two tasks of the bootstrap as Spark runs them: count the values of splits, merge and store a key range."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import Accumulator

from service.core.canonical import CellDecoder, cell_decoder
from service.core.canonical_arrow import text_buffers
from service.core.errors import (
    RecordError,
    SourceError,
)
from service.core.records import Int64s, UInt64s
from service.core.shown_values import WHOLE, most_shown
from service.core.sketch_upkeep import FixedForm, SketchForm
from service.core.sketches.comparable import Comparable
from service.store.bulk import KeyRange, RecordArrays, read_range, write_partition
from service.store.canonical_sql import needs_document_walk
from service.store.database import connect
from service.store.generation import NOT_READ, TASK_NAME, hold_unpublished, register_clusters
from service.store.shard_servers import ShardServer, reaching
from service.store.sketch_generation import write_parts, write_whole
from spark_jobs.kernels import (
    Entries,
    Records,
    attribute_counters,
    column_texts,
    concat_entries,
    count_column,
    count_hashes,
    cut_by_range,
    cut_texts,
    from_payload,
    merge_entries,
    to_payload,
    tuple_texts,
)
from spark_jobs.row_images import ImageWriter
from spark_jobs.sketches import merge_sketches, parts_of
from spark_jobs.sources import Reader, SourceTable, Split
from spark_jobs.telling import telling_errors

Payload = bytes | NDArray[np.int64] | tuple[int, bytes]
"""What is shuffled: entries of one key range, or (to the first range) the rows of each table that a task has read.

Of a sketch-only source it is an attribute and its sketch, to a range that has nothing else to do with it.
"""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """Kill the driver from inside a task: the tests' pulled plug. Works only where driver and tasks share a machine."""

    stage: str | None
    pid: int

    def reach(self, stage: str) -> None:
        if stage == self.stage:
            os.kill(self.pid, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """Hold what the driver learns of a key range: never a value.

    `clusters` are ids of the registry, or the attribute sets themselves when nothing is stored; `counters` is
    int64[3, attributes] of distinct values, repeated values and occurrences; `row_counts` is int64[tables].
    """

    records: int
    clusters: NDArray[np.int64] | list[tuple[int, ...]]
    cluster_sizes: NDArray[np.int64]
    counters: NDArray[np.int64]
    row_counts: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CountTask:
    """Count the values of a task's splits and cut them by key range; picklable.

    Takes the numbers of tasks, gives pairs of a key range's number and a payload.
    """

    reader: Reader
    is_database: bool
    tasks: Sequence[Sequence[Split]]
    tables: Sequence[SourceTable]
    attribute_ids: Sequence[Sequence[int]]
    null_tokens: Sequence[str]
    bits: int
    rows_read: Accumulator[int]
    crash: CrashPoint
    images: ImageWriter | None = None
    sketched: SketchForm | FixedForm | None = None
    """With a form values are sketched, and none leaves the task."""
    shown: NDArray[np.int64] | None = None
    """How many first characters of values may leave the task, by attribute id; None: all of all."""

    def __call__(self, numbers: Iterable[int]) -> Iterator[tuple[int, Payload]]:
        with telling_errors():
            for number in numbers:
                yield from self._run(number)

    def _run(self, number: int) -> Iterator[tuple[int, Payload]]:
        yield from self._count_tables(
            (split, table) for split in self.tasks[number] for table in self.reader.read(split)
        )

    def count_chunks(self, chunks: Iterable[tuple[int, pa.Table]]) -> Iterator[tuple[int, Payload]]:
        """Count rows that come from elsewhere, each chunk with its table's place."""
        with telling_errors():
            yield from self._count_tables((Split(place, 0, None), table) for place, table in chunks)

    def _count_tables(self, tables: Iterable[tuple[Split, pa.Table]]) -> Iterator[tuple[int, Payload]]:
        self.crash.reach("map")
        parts: list[Entries] = []
        sketches: dict[int, Comparable] = {}
        row_counts = np.zeros(len(self.attribute_ids), np.int64)
        with self._open_images() as connection:
            for split, table in tables:
                row_counts[split.table] += len(table)
                self.rows_read.add(len(table))
                if self.sketched is None:
                    parts += [entries for _, entries in self._count(split, table, self._entries) if len(entries)]
                else:
                    for attribute_id, (hashes, counts) in self._count(split, table, self._hashes):
                        if len(hashes):
                            sketch = sketches.setdefault(attribute_id, self.sketched.empty(counts_values=False))
                            sketch.update(hashes, counts)
                if self.images is not None and split.table in self.images.tables:
                    self.images.write(connection, split.table, table, self._decoders(split.table))
        yield 0, row_counts
        entries = concat_entries(parts)
        parts.clear()
        for partition, piece in cut_by_range(entries, self.bits):
            yield partition, to_payload(piece)
        for attribute_id, sketch in sketches.items():
            yield attribute_id % (1 << self.bits), (attribute_id, sketch.to_bytes())

    def _entries(
        self, column: pa.ChunkedArray, attribute_id: int, decode: CellDecoder | None, of_tuples: bool
    ) -> Entries:
        entries = count_column(column, attribute_id, self.null_tokens, decode, of_tuples=of_tuples)
        if not self._is_hidden(attribute_id):
            return entries
        assert self.shown is not None
        return replace(entries, value=cut_texts(entries.value, self.shown[entries.attribute]))

    def _is_hidden(self, attribute_id: int) -> bool:
        return self.shown is not None and self.shown[attribute_id] != WHOLE

    def _hashes(
        self, column: pa.ChunkedArray, _: int, decode: CellDecoder | None, of_tuples: bool
    ) -> tuple[UInt64s, Int64s]:
        return count_hashes(column, self.null_tokens, decode, of_tuples=of_tuples)

    def _open_images(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.images is None else connect(self.images.database_url, TASK_NAME)

    def _decoders(self, table: int) -> list[CellDecoder | None]:
        return [
            cell_decoder(kind) if self.is_database and needs_document_walk(kind) else None
            for _, kind in self.tables[table].columns
        ]

    def _count(
        self, split: Split, table: pa.Table, count: Callable[[pa.ChunkedArray, int, CellDecoder | None, bool], Result]
    ) -> Iterator[tuple[int, Result]]:
        described, decoders = self.tables[split.table], self._decoders(split.table)
        for place, (attribute_id, (name, _, parts)) in enumerate(
            zip(self.attribute_ids[split.table], described.attributes, strict=True)
        ):
            if attribute_id == NOT_READ:
                continue
            try:
                if parts is None:
                    yield attribute_id, count(table.column(place), attribute_id, decoders[place], False)
                else:
                    texts = [column_texts(table.column(part), self.null_tokens, decoders[part]) for part in parts]
                    yield attribute_id, count(tuple_texts(texts), attribute_id, None, True)
            except (RecordError, SourceError) as error:
                if self._is_hidden(attribute_id):  # the error may show the value
                    raise SourceError(
                        f"{self.reader.place(split)}, column {name!r} of {described}: a value of it cannot be read; "
                        f"which is not told, as values of this table are not to be kept"
                    ) from None
                raise SourceError(f"{self.reader.place(split)}, column {name!r} of {described}: {error}") from error


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Merge the payloads of a key range with the served records and store the next generation's partition; picklable.

    Takes the key range's number and its payloads, gives one result, also for a range without payloads.
    Without a database nothing is stored. `registry` is what `create_registry` gave, and `uncounted` marks attributes
    whose frequencies are not kept.
    """

    database_url: str | None
    generation: int
    registry: int
    bits: int
    tables: int
    has_served: bool
    dropped: Sequence[int]
    uncounted: NDArray[np.bool_]
    crash: CrashPoint
    sketches: SketchForm | None = None
    shown: NDArray[np.int64] | None = None
    """How many first characters of values may be kept, by attribute id; None: all of all."""
    servers: Sequence[ShardServer] = ()
    """Where served records are beside the state's own database."""

    def __call__(self, number: int, payloads: Iterable[tuple[int, Payload]]) -> Iterator[PartitionResult]:
        with telling_errors():
            row_counts = np.zeros(self.tables, np.int64)
            parts: list[Entries] = []
            sketched: dict[int, list[bytes]] = {}
            for _, payload in payloads:
                if isinstance(payload, bytes):
                    parts.append(from_payload(payload))
                elif isinstance(payload, tuple):
                    sketched.setdefault(payload[0], []).append(payload[1])
                else:
                    row_counts += payload
            yield self._merge(KeyRange(number, self.bits), parts, sketched, row_counts)

    def _merge(
        self,
        key_range: KeyRange,
        parts: list[Entries],
        sketched: Mapping[int, Sequence[bytes]],
        row_counts: NDArray[np.int64],
    ) -> PartitionResult:
        if self.database_url is None:
            records = merge_entries(parts)
            sets = [tuple(s.tolist()) for s in records.cluster_sets()]
            return self._result(records, sets, row_counts)
        with connect(self.database_url, TASK_NAME) as connection:
            if self.has_served:
                parts.append(_as_entries(read_range(connection, key_range, self.dropped)))
                connection.rollback()
                for server in self.servers:
                    with reaching(server), connect(server.address, TASK_NAME) as other:
                        parts.append(_as_entries(read_range(other, key_range, self.dropped)))
            records = merge_entries(parts, longest=self.shown is not None)
            parts.clear()
            ids = register_clusters(connection, self.generation, records.cluster_sets())
            result = self._result(records, ids, row_counts)
            hold_unpublished(connection, self.generation, self.registry)
            write_partition(connection, self.generation, key_range, self._arrays(records, ids))
            if self.sketches is not None:
                self._write_sketches(connection, self.sketches, key_range, records)
                for attribute_id, partial in sketched.items():
                    sketch = merge_sketches(self.sketches, partial)
                    result.counters[2, attribute_id] = sketch.size  # all that is known of how often it has values
                    write_whole(connection, self.generation, [(attribute_id, sketch)])
            if key_range.number == (1 << self.bits) - 1:
                self.crash.reach("reduce")
            connection.commit()
            return result

    def _write_sketches(self, connection: Any, form: SketchForm, key_range: KeyRange, records: Records) -> None:
        parts = parts_of(form, key_range, records.high, records.starts, records.attribute_ids)
        write_parts(
            connection, self.generation, key_range.number, ((number, part.to_bytes()) for number, part in parts)
        )

    def _result(
        self, records: Records, clusters: NDArray[np.int64] | list[tuple[int, ...]], row_counts: NDArray[np.int64]
    ) -> PartitionResult:
        counters = attribute_counters(records, len(self.uncounted))
        return PartitionResult(len(records), clusters, records.cluster_size, counters, row_counts)

    def _arrays(self, records: Records, ids: NDArray[np.int64]) -> RecordArrays:
        if self.uncounted.any():
            records.frequencies[self.uncounted[records.attribute_ids]] = 0
        texts = records.value
        if self.shown is not None:
            texts = cut_texts(texts, most_shown(self.shown, records.starts, records.attribute_ids))
        starts, data = text_buffers(texts)
        return RecordArrays(
            records.high, records.low, starts, data, ids[records.cluster], records.starts, records.attribute_ids,
            records.frequencies,
        )  # fmt: skip


def _as_entries(records: RecordArrays) -> Entries:
    widths = np.diff(records.starts)
    place = np.repeat(np.arange(len(records)), widths)
    value = pa.LargeStringArray.from_buffers(
        len(records), pa.py_buffer(records.value_starts), pa.py_buffer(records.value_data)
    )
    return Entries(
        records.high[place], records.low[place], records.attribute_ids, records.frequencies, value.take(pa.array(place))
    )

"""Own topics of change events as a source: read to fixed offsets on the executors, folded by key into present rows.

Each partition is read in ranges by a Spark data source of our own, with the consumer's decoding. A range gives what it
says last of each key; Spark brings these together by key, and the newest wins. The feed goes on at the same offsets.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from pyspark import RDD
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from service.core.errors import FeedError, RecordError, SourceError
from service.core.exclusion import not_excluded
from service.core.model import NULL_IN_DOUBT, UNAVAILABLE, Attribute, AttributeName, Operation, Row, Table
from service.core.row_key import row_key
from service.stream.discovery import Discovery, RowReader, SeenTable, WireName, key_of
from service.stream.kafka_topics import TopicPlan, TopicRange, plan_topics, read_range
from service.stream.schema_registry import HttpSchemaRegistry
from service.usecases.row_images import lost_places, undoubted
from spark_jobs.session import map_in_arrow, register
from spark_jobs.sources import Fault, Options, ParallelMap, SourceTable, Split
from spark_jobs.telling import telling_errors
from spark_jobs.worker_daemon import end_quietly_here

FORMAT = "subsetd_kafka"
RANGE_RECORDS = 200_000
"""Offsets that one task reads at most."""
CHUNK_KEYS = 20_000
"""Rows that are handed on at once, at most."""
CHUNK_BYTES = 64 << 20
"""Characters of text that are handed on at once, but for those of one row more."""
OF_ROUTER = "__dbz__physicalTableIdentifier"
"""What Debezium's ByLogicalTableRouter puts into keys of topics that it merges; the rows' own table says the same."""
RECORD_BYTES = 256
"""What a record counts for where sizes decide: nobody has measured it."""

FOUND = pa.schema(
    [
        ("table", pa.int32()),
        ("key", pa.binary()),
        ("origin", pa.int32()),
        ("position", pa.int64()),
        ("cells", pa.list_(pa.string())),
    ]
)
FOUND_DDL = "table int, key binary, origin int, position bigint, cells array<string>"


@dataclass(frozen=True, slots=True)
class FoldedTable:
    """Describe a table to the tasks that read its changes: emptied by (topic, partition) at an offset, if ever."""

    wire: WireName
    columns: tuple[tuple[str, str], ...]
    key_columns: tuple[str, ...]
    emptied: tuple[tuple[str, int, int], ...]

    def tracked(self) -> Table:
        """Give the table as the decoder wants it."""
        _, schema, name = self.wire
        attributes = tuple(
            Attribute(place, AttributeName(schema, name, column), place, data_type)
            for place, (column, data_type) in enumerate(self.columns)
        )
        names = [column for column, _ in self.columns]
        key = tuple(names.index(column) for column in self.key_columns)
        return Table(schema, name, attributes, wire=self.wire, key=key, row_images=True)


class KafkaSource:
    """Be topics of change events; the tables are those that the events speak of."""

    kind = "kafka"
    snapshot = None

    def __init__(self, options: Options) -> None:
        self.options = options
        self.location = options.source
        self.settings = options.settings()
        self.warnings: list[str] = []
        try:
            self.plan: TopicPlan = plan_topics(options.source)
        except FeedError as error:
            raise SourceError(str(error)) from error
        self.warnings += [
            f"topic {topic!r} has lost its first records, and is not compacted: rows that were not changed since are "
            f"not in it. Let the connector send a snapshot again, and bootstrap again."
            for topic in self.plan.cut
        ]
        self._seen: dict[WireName, SeenTable] = {}

    @property
    def feed_positions(self) -> tuple[tuple[str, str, int, int], ...]:
        """Give where the feed goes on: the offsets at which reading ends."""
        return tuple((self.plan.feed, part.topic, part.partition, part.end) for part in self.plan.ranges)

    def discover(self, parallel: ParallelMap[Any, Any]) -> None:
        """Learn on the executors which tables there are; raise SourceError where they cannot be made of the events."""
        for seen in parallel(_Look(self.plan.servers, self.options.schema_registry), self._ranges()):
            for wire, table in seen.items():
                if wire in self._seen:
                    self._seen[wire].join(table)
                else:
                    self._seen[wire] = table
        left = set(not_excluded((wire[1:] for wire in self._seen), self.options.exclude))
        self._seen = {
            wire: seen for wire, seen in sorted(self._seen.items(), key=lambda item: str(item[0])) if wire[1:] in left
        }
        if not self._seen:
            raise SourceError(f"{self.location}: there is no change event in these topics. Check their names.")
        bare = [wire for wire, seen in self._seen.items() if not seen.columns]
        self.warnings += [
            f"{'.'.join(wire[1:])} is left out: the topics have no row of it, only deletes or TRUNCATE, and so nothing "
            f"tells its columns. Bootstrap again with --replace once it has rows."
            for wire in bare
        ]
        for wire in bare:
            del self._seen[wire]
        if not self._seen:
            raise SourceError(f"{self.location}: there is no row in these topics. Bootstrap them once they have some.")
        names: dict[tuple[str, str], WireName] = {}
        for wire, seen in self._seen.items():
            _, schema, table = wire
            other = names.setdefault((schema, table), wire)
            if other is not wire:
                raise SourceError(
                    f"{self.location}: the databases {other[0]!r} and {wire[0]!r} both have a table {schema}.{table}. "
                    f"Bootstrap their topics one by one, as sources of their own."
                )
            if seen.emptied and len(seen.places) > 1:
                raise SourceError(
                    f"{self.location}: the table {schema}.{table} was emptied (TRUNCATE), and its changes are in "
                    f"several partitions, so that nothing says which of them were before. Let the connector send a "
                    f"snapshot into a new topic, and bootstrap from that."
                )
            self.warnings += [
                f"{schema}.{table}.{column} was of another type ({', '.join(sorted(types))}) in records of before: "
                f"rows that were not changed since have its texts. Let the connector send a snapshot again into a new "
                f"topic, and bootstrap from that."
                for column, types in seen.retyped.items()
            ]

    def tables(self) -> list[SourceTable]:
        found = []
        given = {name for name, _ in self.options.keys}
        for (database, schema, name), seen in self._seen.items():
            names = dict(seen.columns)
            key = tuple(column for column in seen.key_columns if column != OF_ROUTER)
            unsent = [column for column in key if column not in names]
            if unsent and not given & {name, f"{schema}.{name}"}:  # a part of a key would bring rows together
                raise SourceError(
                    f"{self.location}: {unsent[0]!r} of the key of {schema}.{name} is not in its rows. Let the "
                    f"connector send it (column.exclude.list, column.include.list), name columns that tell rows apart "
                    f"with --key {schema}.{name}=COLUMN,..., or leave the table out with --exclude."
                )
            key = () if unsent else key
            found.append(SourceTable(schema, name, seen.columns, key, row_images=True, database=database))
        return found

    def splits(self, target: int, parallel: ParallelMap[Any, Any]) -> list[Split]:
        return [Split(0, (part.end - part.first) * RECORD_BYTES, part) for part in self._ranges()]

    def reader(self) -> KafkaReader:
        return KafkaReader()

    def confirm(self) -> None:
        """Take what was read as it is."""

    def close(self) -> None:
        """Hold nothing open."""

    def rows(self, spark: SparkSession, tables: Sequence[SourceTable]) -> RDD[tuple[int, pa.Table]]:
        """Give the present rows of the tables, each with its table's place: read, brought together by key, folded."""
        folded = [
            FoldedTable(
                wire,
                table.columns,
                table.key_columns,
                tuple((topic, partition, offset) for (topic, partition), offset in seen.emptied.items()),
            )
            for (wire, seen), table in zip(self._seen.items(), tables, strict=True)
        ]
        for table in tables:
            if not table.key_columns:
                raise SourceError(
                    f"{table}: its records have no key, so that nothing says which of them are of one row. Set the "
                    f"connector's message.key.columns, or say it with --key {table}=COLUMN,..."
                )
        register(spark, TopicsDataSource)
        found = (
            spark.read.format(FORMAT)
            .option("plan", json.dumps([self.plan.servers, self._ranges(), [asdict(table) for table in folded]]))
            .option("registry", self.options.schema_registry or "")
            .load()
        )
        together = found.groupBy("table", "key").agg(
            sf.collect_list(sf.struct("position", "origin", "cells")).alias("parts")
        )
        fold = _Fold(tuple(folded), tuple(sorted({(part.topic, part.partition) for part in self.plan.ranges})))
        chunks = map_in_arrow(together, fold, "table int, rows binary").rdd  # type: ignore[arg-type]
        return chunks.map(_from_ipc)

    def _ranges(self) -> list[TopicRange]:
        return [
            TopicRange(part.topic, part.partition, first, min(first + RANGE_RECORDS, part.end))
            for part in self.plan.ranges
            for first in range(part.first, part.end, RANGE_RECORDS)
        ]


class KafkaReader:
    """Name the place of rows in a message; the rows themselves come by `KafkaSource.rows`."""

    def read(self, split: Split) -> Iterator[pa.Table]:
        raise NotImplementedError("rows of topics are folded before they are read")

    def check(self, split: Split) -> Fault | None:
        return None

    def told(self, fault: Fault) -> str:
        return fault.message

    def place(self, split: Split) -> str:
        return "the topics"


class TopicsDataSource(DataSource):
    """Give, of ranges of topics, what each range says last of each key (Spark's Python data source)."""

    def __init__(self, options: dict[str, str]) -> None:
        end_quietly_here()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return FOUND_DDL

    def reader(self, schema: Any) -> TopicsReader:
        end_quietly_here()
        return TopicsReader(self.options["plan"], self.options["registry"])


class TopicsReader(DataSourceReader):
    """Read ranges on executors, in Arrow batches."""

    def __init__(self, plan: str, registry: str) -> None:
        self.plan = plan
        self.registry = registry

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(len(json.loads(self.plan)[1]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        servers, ranges, described = json.loads(self.plan)
        with telling_errors():
            tables = [FoldedTable(**{**one, "wire": tuple(one["wire"])}) for one in described]
            part = TopicRange(*ranges[partition.value])
            places = sorted({(topic, number) for topic, number, *_ in ranges})
            origin = places.index((part.topic, part.partition))
            yield from _latest(tuple(servers), part, tables, origin, _registry(self.registry))


@dataclass(frozen=True, slots=True)
class _Look:
    """Learn from a range which tables it speaks of; picklable."""

    servers: tuple[str, ...]
    registry: str | None

    def __call__(self, part: TopicRange) -> dict[WireName, SeenTable]:
        try:
            return Discovery(_registry(self.registry)).look(read_range(self.servers, part))
        except FeedError as error:
            raise SourceError(str(error)) from error
        except RecordError as error:
            raise SourceError(f"{error}. Leave its topic out, or mend what writes it.") from error


def _registry(address: str | None) -> HttpSchemaRegistry | None:
    return HttpSchemaRegistry(address) if address else None


def _latest(
    servers: tuple[str, ...],
    part: TopicRange,
    described: Sequence[FoldedTable],
    origin: int,
    registry: HttpSchemaRegistry | None,
) -> Iterator[pa.RecordBatch]:
    """Read a range and give, now and then, what it said last of each key: its cells, or None when the row is gone.

    A cell that was not sent is UNAVAILABLE where the range does not know it from before.
    """
    tables = [table.tracked() for table in described]
    numbers = {table: number for number, table in enumerate(tables)}
    emptied = {
        (number, topic, partition): offset
        for number, table in enumerate(described)
        for topic, partition, offset in table.emptied
    }
    known: dict[tuple[int, bytes], tuple[int, Row | None]] = {}
    size = 0
    try:
        for change in RowReader(tables, registry=registry, unknown_tables="ignore").read(read_range(servers, part)):
            number, offset = numbers[change.table], change.position.offset
            is_gone = offset <= emptied.get((number, part.topic, part.partition), -1)
            if is_gone or change.operation is Operation.TRUNCATE:
                continue
            key = key_of(change, change.table)
            if change.key is not None and change.key != key:
                known[number, row_key(change.key)] = offset, None
            at = number, row_key(key)
            before = known.get(at)
            if before is not None and before[1] is None and UNAVAILABLE in (change.after or ()):
                raise _not_sent(described[number], change.after or ())
            known[at] = offset, _filled(described[number], change.after, None if before is None else before[1])
            size += _size(change.after)
            if len(known) >= CHUNK_KEYS or size >= CHUNK_BYTES:
                yield _batch(known, origin)
                known.clear()
                size = 0
    except FeedError as error:
        raise SourceError(str(error)) from error
    except RecordError as error:
        raise SourceError(f"{error}. Mend it at the source, or leave the table out with --exclude.") from error
    if known:
        yield _batch(known, origin)


def _size(row: Row | None) -> int:
    return sum(len(cell) for cell in row or () if cell is not None)


def _filled(table: FoldedTable, after: Row | None, before: Sequence[str | None] | None) -> Row | None:
    """Put the cells that were not sent into a row, from the one before as far as that is known.

    Raises SourceError for a NULL behind a value that may be a cell which was not sent.
    """
    if after is None or before is None:
        return after
    if NULL_IN_DOUBT in after and (lost := lost_places(after, before)):
        raise SourceError(
            f"{'.'.join(table.wire[1:])}: a change of a row has NULL in {table.columns[lost[0]][0]!r}, where the row "
            f"had a value, and its connector also sends NULL for a large value of such a type that did not change. "
            f"Set REPLICA IDENTITY FULL, and let the connector send a snapshot again."
        )
    if UNAVAILABLE not in after:
        return after
    return tuple(old if cell == UNAVAILABLE else cell for cell, old in zip(after, before, strict=True))


def _not_sent(table: FoldedTable, row: Row) -> SourceError:
    column = table.columns[row.index(UNAVAILABLE)][0]
    return SourceError(
        f"{'.'.join(table.wire[1:])}: the value of {column!r} of a row was never sent: it did not change, and the "
        f"record before is not in the topic, or is of another key. Set REPLICA IDENTITY FULL, and let the connector "
        f"send a snapshot again."
    )


def _batch(known: Mapping[tuple[int, bytes], tuple[int, Row | None]], origin: int) -> pa.RecordBatch:
    columns = [
        [number for number, _ in known],
        [key for _, key in known],
        [origin] * len(known),
        [offset for offset, _ in known.values()],
        [None if cells is None else list(cells) for _, cells in known.values()],
    ]
    return pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, FOUND, strict=True)], schema=FOUND)


@dataclass(frozen=True, slots=True)
class _Fold:
    """Fold what ranges say of each key into its present row, and give rows in chunks; picklable."""

    tables: tuple[FoldedTable, ...]
    places: tuple[tuple[str, int], ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with telling_errors():
            rows: dict[int, list[Row]] = {}
            sizes: Counter[int] = Counter()
            for batch in batches:
                for number, parts in zip(
                    batch.column("table").to_pylist(), batch.column("parts").to_pylist(), strict=True
                ):
                    row = self._row(number, parts)
                    if row is None:
                        continue
                    rows.setdefault(number, []).append(row)
                    sizes[number] += _size(row)
                    if len(rows[number]) >= CHUNK_KEYS or sizes[number] >= CHUNK_BYTES:
                        yield self._chunk(number, rows.pop(number))
                        del sizes[number]
            for number, of_table in rows.items():
                yield self._chunk(number, of_table)

    def _row(self, number: int, parts: list[dict[str, Any]]) -> Row | None:
        table = self.tables[number]
        name = ".".join(table.wire[1:])
        origins = {part["origin"] for part in parts}
        if len(origins) > 1:
            places = " and ".join(
                f"{topic}, partition {number}" for topic, number in sorted(self.places[o] for o in origins)
            )
            raise SourceError(
                f"{name}: changes of one row are in {places}, so that nothing says which was last: the number of "
                f"partitions was changed, or the records' key is not the row's. Let the connector send a snapshot "
                f"into a new topic, and bootstrap from that."
            )
        row: Row | None = None
        for part in sorted(parts, key=lambda part: part["position"]):
            row = None if part["cells"] is None else _filled(table, tuple(part["cells"]), row)
        if row is not None and UNAVAILABLE in row:
            raise _not_sent(table, row)
        return undoubted(row) if row is not None and NULL_IN_DOUBT in row else row

    def _chunk(self, number: int, rows: list[Row]) -> pa.RecordBatch:
        names = [str(place) for place in range(len(self.tables[number].columns))]
        arrays = [pa.array(cells, pa.string()) for cells in zip(*rows, strict=True)]
        sink = pa.BufferOutputStream()
        chunk = pa.RecordBatch.from_arrays(arrays, names=names)
        with pa.ipc.new_stream(sink, chunk.schema) as writer:
            writer.write_batch(chunk)
        return pa.RecordBatch.from_arrays(
            [pa.array([number], pa.int32()), pa.array([sink.getvalue().to_pybytes()], pa.binary())],
            names=["table", "rows"],
        )


def _from_ipc(row: Any) -> tuple[int, pa.Table]:
    return row["table"], pa.ipc.open_stream(row["rows"]).read_all()

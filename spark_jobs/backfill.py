"""Own the backfill: one Spark job that reads the tuples of a table's columns, and makes them an attribute of the state.

    python -m spark_jobs.backfill --database-url URL --key '["SCHEMA", "TABLE", "a", "b"]' [--source ADDRESS]

A consumer hands the state over while the table is read, and goes on from where it stood. Tuples reach the driver by
key ranges, one after the other, merged and counted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from service.core.errors import SourceError, StateError
from service.core.foreign_keys.sides import Side
from service.core.model import DerivedAttribute, Table
from service.core.records import Deltas, Int64s, Keys
from service.core.shown_values import WHOLE, shown_of_tuple
from service.store.database import connect
from service.store.generation import NOT_READ, last_attribute_id
from service.store.key_changes import SourceFacts, read_facts
from service.store.migrate import require_current
from service.store.writer import PostgresWriter
from service.store.writer_lock import release_locks, take_bootstrap_lock
from service.usecases.key_values import KeyKind
from service.usecases.track_keys import CountedTuples, find_attribute, find_table, read_beside, track
from spark_jobs.command_line import add_engine_options, parse_job
from spark_jobs.executors import require_executors
from spark_jobs.job import run_job
from spark_jobs.kernels import Entries, Records, from_payload, merge_entries, to_payload
from spark_jobs.parallel import run_parallel, telling
from spark_jobs.progress import Display, make_display
from spark_jobs.sources import FoldedSource, Options, Source, SourceTable, Split, group_splits, open_source
from spark_jobs.tasks import CountTask, CrashPoint, telling_errors

COMMAND_NAME = "subsetd keys"
RANGE_BYTES = 64 << 20
"""Source bytes of one key range, which the driver holds at once."""
MOST_BITS = 8
PORTION = 50_000
"""Tuples that are merged into the state at once."""


@dataclass(frozen=True, slots=True)
class Tracked:
    """Tell what was tracked: the key by name, since which version, and how many rows and tuples were read for it."""

    key: str
    version: int
    rows: int = 0
    tuples: int = 0


@dataclass(frozen=True, slots=True)
class MergeTuples:
    """Merge the counted tuples of a key range; picklable. Takes payloads, gives (rows by table, entries as a payload).

    `longest`: not all attributes show their tuples.
    """

    tables: int
    longest: bool

    def __call__(self, payloads: Iterable[tuple[int, Any]]) -> Iterator[tuple[Int64s, bytes]]:
        with telling_errors():
            rows, parts = np.zeros(self.tables, np.int64), []
            for _, payload in payloads:
                if isinstance(payload, bytes):
                    parts.append(from_payload(payload))
                else:
                    rows += payload
            found = merge_entries(parts, longest=self.longest)
            cells = np.repeat(np.arange(len(found.high)), np.diff(found.starts))
            values = found.value.take(pa.array(cells))
            entries = Entries(found.high[cells], found.low[cells], found.attribute_ids, found.frequencies, values)
            yield rows, to_payload(entries)


def backfill(
    start: Callable[[], SparkSession],
    url: str,
    key: tuple[str, str, Sequence[str]],
    address: str | None,
    display: Display,
    kind: KeyKind = KeyKind.PINNED,
) -> Tracked:
    """Track columns as a key: their tuples are read and followed from now on, unless they are already.

    `key` is (schema, table, columns), `address` where the source is, if not where it was bootstrapped from. Raises
    StateError, NotFoundError or SourceError where that cannot be; then the state is as before.
    """
    require_current(url)
    schema, name, columns = key
    told = str(Side(schema, name, tuple(columns)))
    with ExitStack() as stack:
        connection = stack.enter_context(connect(url, COMMAND_NAME))
        stack.callback(release_locks, connection)
        writer = stack.enter_context(closing(PostgresWriter(url, COMMAND_NAME, display.begin)))
        take_bootstrap_lock(connection)
        stored = writer_state(writer)
        table = find_table(stored, schema, name, columns)
        known = find_attribute(table, columns)
        if known is not None:
            return Tracked(told, writer.pin(known, kind))
        facts = read_facts(connection, table.source)
        require_readable(table, facts)
        # Files are as they were when the others were read.
        beside = read_beside(stored, table, columns) if facts.kind == "postgres" else []
        attribute_id = last_attribute_id(connection) + 1
        wanted = [Wanted(attribute_id, table, columns)] + [Wanted.of(*one) for one in beside]
        options = _options([one.table for one in wanted], facts, address)
        display.begin("starting Spark")
        spark = start()  # the writer waits for it: what is read must not be older than its position
        require_executors(spark, None, [options.source])
        with closing(open_source(options)) as source:
            if isinstance(source, FoldedSource):
                raise SourceError(f"{table}: its source is a log; bootstrap it again with --replace --track-key.")
            known_rows = stored.counters[table.attributes[0].attribute_id].row_count
            reading = _Reading(spark, source, wanted, options, display, known_rows)
            version = track(
                writer, stored, table, columns, attribute_id, source.snapshot, reading.counted(), reading.rows_of, kind,
                [one.attribute_id for one in wanted[1:]],
            )  # fmt: skip
    return Tracked(told, version, reading.rows_of()[attribute_id], reading.tuples)


def writer_state(writer: PostgresWriter) -> Any:
    """Become the writer, and load the state."""
    writer.acquire()
    return writer.load()


def require_readable(table: Table, facts: SourceFacts) -> None:
    """Raise StateError for a source whose present rows cannot be told from the changes to come."""
    if facts.kind != "postgres" and facts.has_changed:
        raise StateError(
            f"{table}: changes were applied since {facts.location} was read, and it does not tell which of them it "
            f"holds. Bootstrap it again with --replace --track-key."
        )


def _options(tables: Sequence[Table], facts: SourceFacts, address: str | None) -> Options:
    options = Options(address or facts.location, tables[0].source).remembered(facts.settings, facts.insert_only, False)
    if facts.kind == "postgres":
        options = replace(options, only_tables=tuple(dict.fromkeys(".".join(_wire(one)) for one in tables)), exclude=())
    return options


def _wire(table: Table) -> tuple[str, str]:
    """Give schema and name that a table has in its source."""
    assert table.wire is not None
    return table.wire[1:]


class Wanted(NamedTuple):
    """Name an attribute of tuples by its table and columns."""

    attribute_id: int
    table: Table
    columns: Sequence[str]

    @classmethod
    def of(cls, table: Table, derived: DerivedAttribute) -> Wanted:
        columns = [table.attributes[place].name.column for place in derived.places]
        return cls(derived.attribute.attribute_id, table, columns)

    def characters(self) -> int:
        """Say how much of the tuples may be kept."""
        shown = {one.name.column: one.shown_characters for one in self.table.attributes}
        characters = shown_of_tuple(shown[column] for column in self.columns)
        return WHOLE if characters is None else characters


class _Reading:
    """Read the tuples of attributes of one source in one snapshot, the first of which is new; count on the way."""

    def __init__(
        self,
        spark: SparkSession,
        source: Source,
        wanted: Sequence[Wanted],
        options: Options,
        display: Display,
        known_rows: int,
    ) -> None:
        self.tuples = 0
        self._wanted, self._known_rows = wanted, known_rows
        self._spark, self._source, self._options, self._display = spark, source, options, display
        self._shown = np.full(max(one.attribute_id for one in wanted) + 1, WHOLE, np.int64)
        for one in wanted:
            self._shown[one.attribute_id] = one.characters()
        self._tables: list[SourceTable] = list(source.tables())
        self._ids = [[NOT_READ] * len(one.columns) for one in self._tables]
        self._places = {one.attribute_id: self._add(one) for one in wanted}
        self._rows = np.zeros(len(self._tables), np.int64)

    def _add(self, wanted: Wanted) -> int:
        """Have the tuples of a table read; give its place."""
        place = next((i for i, one in enumerate(self._tables) if (one.schema, one.name) == _wire(wanted.table)), -1)
        if place < 0:
            raise SourceError(f"{self._options.source}: there is no table {'.'.join(_wire(wanted.table))} in it.")
        found = self._tables[place]
        names = [name for name, _ in found.columns]
        missing = [column for column in wanted.columns if column not in names]
        if missing:
            raise SourceError(f"{found}: its source has no column {missing[0]!r}. It has: {', '.join(names)}.")
        parts = tuple(names.index(column) for column in wanted.columns)
        before = found.tuples if len(self._ids[place]) > len(found.columns) else ()
        self._tables[place] = replace(found, tuples=(*before, parts))
        self._ids[place].append(wanted.attribute_id)
        return place

    def rows_of(self) -> dict[int, int]:
        """Say how many rows were read for each attribute."""
        return {attribute_id: int(self._rows[place]) for attribute_id, place in self._places.items()}

    def counted(self) -> Iterator[CountedTuples]:
        """Give the tuples by ascending keys, in portions; raises SourceError when they are not of one moment.

        That of files is the bootstrap's, as no feed tells what was changed in them since.
        """
        found = self._source.splits(RANGE_BYTES, run_parallel(self._spark))
        splits: list[Split] = [split for split in found if split.table in self._places.values()]
        context = self._spark.sparkContext
        bits = min(int(np.ceil(np.log2(max(sum(split.size for split in splits) / RANGE_BYTES, 1)))), MOST_BITS)
        tasks = group_splits(splits, RANGE_BYTES)
        task = CountTask(
            self._source.reader(), self._source.kind == "postgres", tasks, self._tables, self._ids,
            self._options.null_tokens, bits, context.accumulator(0), CrashPoint(None, 0), shown=self._shown,
        )  # fmt: skip
        merging = MergeTuples(len(self._tables), bool((self._shown != WHOLE).any()))
        self._display.begin("counting tuples")
        counted = context.parallelize(range(len(tasks)), max(len(tasks), 1)).mapPartitions(task)
        merged = counted.partitionBy(1 << bits, partitionFunc=int).mapPartitions(merging)
        with telling(self._spark, self._source, splits):
            for rows, payload in merged.toLocalIterator():
                self._rows += rows
                records = merge_entries([from_payload(payload)])
                self.tuples += int(np.count_nonzero(records.attribute_ids == self._wanted[0].attribute_id))
                for start in range(0, len(records.high), PORTION):
                    yield _portion(records, start, min(start + PORTION, len(records.high)))
        self._source.confirm()
        table, rows_read = self._wanted[0].table, self.rows_of()[self._wanted[0].attribute_id]
        if self._source.kind != "postgres" and rows_read != self._known_rows:
            raise SourceError(
                f"{table}: {self._options.source} has {rows_read:,} rows of it, and the state "
                f"{self._known_rows:,}: it was changed since. Bootstrap it again with --replace --track-key."
            )


def _portion(records: Records, start: int, end: int) -> CountedTuples:
    starts = records.starts[start : end + 1]
    cells = slice(starts[0], starts[-1])
    keys = Keys(records.high[start:end], records.low[start:end])
    ids = records.attribute_ids[cells].astype(np.int64)
    counts = Deltas(keys, starts - starts[0], ids, records.frequencies[cells])
    return CountedTuples(counts, records.value[start:end].to_pylist())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job from the command line; an error is one message on standard error, and its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m spark_jobs.backfill", description="Track columns of a followed table as a key."
    )
    add_engine_options(parser)
    parser.add_argument(
        "--key", required=True, action="append", help="schema, table and columns, as a JSON array; can be repeated"
    )
    parser.add_argument("--kind", choices=list(KeyKind), default=KeyKind.PINNED, help="why they are tracked")
    parser.add_argument("--source", help="where the source is; - reads it from standard input")
    given = parse_job(parser, arguments, "source")
    keys = [(schema, table, columns) for schema, table, *columns in map(json.loads, given.key)]
    display = make_display()

    def run(start: Callable[[], SparkSession]) -> None:
        for key in keys:
            _tell(backfill(start, given.database_url, key, given.source, display, KeyKind(given.kind)))

    return run_job(given, "keys", run, lambda _: 0, display, "stopped: nothing was changed by the key it was at")


def _tell(done: Tracked) -> None:
    read = f": {done.rows:,} rows have {done.tuples:,} tuples" if done.rows else ""
    print(f"{done.key} is tracked as a key since version {done.version}{read}")


if __name__ == "__main__":
    sys.exit(main())

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
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from service.core.errors import SourceError, StateError
from service.core.foreign_keys.sides import Side
from service.core.model import Table
from service.core.records import Keys
from service.store.database import connect
from service.store.generation import NOT_READ, last_attribute_id
from service.store.key_changes import SourceFacts, read_facts
from service.store.migrate import require_current
from service.store.writer import PostgresWriter
from service.store.writer_lock import release_locks, take_bootstrap_lock
from service.usecases.key_values import KeyKind
from service.usecases.track_keys import CountedTuples, find_attribute, find_table, track
from spark_jobs.command_line import add_engine_options, parse_job
from spark_jobs.executors import require_executors
from spark_jobs.job import run_job
from spark_jobs.kernels import Entries, from_payload, merge_entries, to_payload
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
    """Merge the counted tuples of a key range; picklable. Takes payloads, gives (rows, entries as a payload)."""

    def __call__(self, payloads: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, bytes]]:
        with telling_errors():
            rows, parts = 0, []
            for _, payload in payloads:
                if isinstance(payload, bytes):
                    parts.append(from_payload(payload))
                else:
                    rows += int(payload.sum())
            found = merge_entries(parts)
            yield rows, to_payload(Entries(found.high, found.low, found.attribute_ids, found.frequencies, found.value))


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
        options = _options(table, facts, address)
        display.begin("starting Spark")
        spark = start()  # the writer waits for it: what is read must not be older than its position
        require_executors(spark, None, [options.source])
        with closing(open_source(options)) as source:
            if isinstance(source, FoldedSource):
                raise SourceError(f"{table}: its source is a log; bootstrap it again with --replace --track-key.")
            known_rows = stored.counters[table.attributes[0].attribute_id].row_count
            reading = _Reading(spark, source, table, columns, options, display, known_rows)
            version = track(
                writer, stored, table, columns, last_attribute_id(connection) + 1, source.snapshot,
                reading.counted(), lambda: reading.rows, kind,
            )  # fmt: skip
    return Tracked(told, version, reading.rows, reading.tuples)


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


def _options(table: Table, facts: SourceFacts, address: str | None) -> Options:
    assert table.wire is not None
    options = Options(address or facts.location, table.source).remembered(facts.settings, facts.insert_only, False)
    if facts.kind == "postgres":
        options = replace(options, only_tables=(f"{table.wire[1]}.{table.wire[2]}",), exclude=())
    return options


class _Reading:
    """Read the tuples of some columns of one table, and count rows and tuples on the way."""

    def __init__(
        self,
        spark: SparkSession,
        source: Source,
        table: Table,
        columns: Sequence[str],
        options: Options,
        display: Display,
        known_rows: int,
    ) -> None:
        self.rows = self.tuples = 0
        self._table, self._known_rows = table, known_rows
        self._spark, self._source, self._options, self._display = spark, source, options, display
        assert table.wire is not None
        hides = any(one.shown_characters is not None for one in table.attributes if one.name.column in columns)
        self._shown = np.zeros(1, np.int64) if hides else None
        tables = source.tables()
        self._place = next((i for i, one in enumerate(tables) if (one.schema, one.name) == table.wire[1:]), -1)
        if self._place < 0:
            raise SourceError(f"{options.source}: there is no table {table.wire[1]}.{table.wire[2]} in it.")
        found = tables[self._place]
        names = [name for name, _ in found.columns]
        missing = [column for column in columns if column not in names]
        if missing:
            raise SourceError(f"{found}: its source has no column {missing[0]!r}. It has: {', '.join(names)}.")
        wanted = replace(found, tuples=(tuple(names.index(column) for column in columns),))
        self._tables: list[SourceTable] = [wanted if one is found else one for one in tables]

    def counted(self) -> Iterator[CountedTuples]:
        """Give the tuples by ascending keys, in portions; raises SourceError when they are not of one moment.

        That of files is the bootstrap's, as no feed tells what was changed in them since.
        """
        found = self._source.splits(RANGE_BYTES, run_parallel(self._spark))
        splits: list[Split] = [split for split in found if split.table == self._place]
        context = self._spark.sparkContext
        bits = min(int(np.ceil(np.log2(max(sum(split.size for split in splits) / RANGE_BYTES, 1)))), MOST_BITS)
        ids = [[NOT_READ] * len(one.columns) + [0] * len(one.tuples) for one in self._tables]
        tasks = group_splits(splits, RANGE_BYTES)
        task = CountTask(
            self._source.reader(), self._source.kind == "postgres", tasks, self._tables, ids,
            self._options.null_tokens, bits, context.accumulator(0), CrashPoint(None, 0), shown=self._shown,
        )  # fmt: skip
        self._display.begin("counting tuples")
        counted = context.parallelize(range(len(tasks)), max(len(tasks), 1)).mapPartitions(task)
        merged = counted.partitionBy(1 << bits, partitionFunc=int).mapPartitions(MergeTuples())
        with telling(self._spark, self._source, splits):
            for rows, payload in merged.toLocalIterator():
                self.rows += rows
                entries = from_payload(payload)
                self.tuples += len(entries)
                for start in range(0, len(entries), PORTION):
                    yield _portion(entries, slice(start, start + PORTION))
        self._source.confirm()
        if self._source.kind != "postgres" and self.rows != self._known_rows:
            raise SourceError(
                f"{self._table}: {self._options.source} has {self.rows:,} rows of it, and the state "
                f"{self._known_rows:,}: it was changed since. Bootstrap it again with --replace --track-key."
            )


def _portion(entries: Entries, part: slice) -> CountedTuples:
    keys = Keys(entries.high[part], entries.low[part])
    return CountedTuples(keys, entries.count[part], entries.value[part].to_pylist())


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

"""Own the backfill: one Spark job that reads the tuples of tables' columns, and makes them attributes of the state.

    python -m spark_jobs.backfill --database-url URL --key '["SCHEMA", "TABLE", "a", "b"]' ... [--source ADDRESS]

A consumer hands the state over while tables are read, and goes on from where it stood. Tuples reach the driver by
key ranges, one after the other, merged and counted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from service.core.errors import SourceError, StateError
from service.core.foreign_keys.sides import Side
from service.core.model import Table
from service.core.records import Deltas, Int64s, Keys
from service.core.shown_values import WHOLE
from service.store.database import connect
from service.store.generation import NOT_READ, last_attribute_id
from service.store.key_changes import SourceFacts, read_facts
from service.store.migrate import require_current
from service.store.writer import PostgresWriter
from service.store.writer_lock import release_locks, take_bootstrap_lock
from service.usecases.key_values import KeyKind
from service.usecases.live_state import StoredState
from service.usecases.track_keys import CountedTuples, Wanted, find_attribute, find_table, read_beside, track
from spark_jobs.command_line import add_engine_options, parse_job
from spark_jobs.executors import require_executors
from spark_jobs.job import run_job
from spark_jobs.kernels import Entries, Records, from_payload, merge_entries, to_payload
from spark_jobs.parallel import run_parallel, telling
from spark_jobs.postgres_source import MissingTableError
from spark_jobs.progress import Display, make_display
from spark_jobs.sources import FoldedSource, Options, Source, SourceTable, Split, group_splits, open_source
from spark_jobs.tasks import CountTask, CrashPoint
from spark_jobs.telling import telling_errors

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


Key = tuple[str, str, Sequence[str]]
"""Schema, table and columns."""


def backfill(
    start: Callable[[], SparkSession],
    url: str,
    keys: Sequence[Key],
    address: str | None,
    display: Display,
    kind: KeyKind = KeyKind.PINNED,
) -> Iterator[Tracked]:
    """Track columns of tables as keys: their tuples are read and followed from now on, unless they are already.

    Those of a source are read together, and followed from one version on; what is followed already comes last, each
    with a version of its own. `address` is where the source is, if not where it was bootstrapped from. Gives each as
    soon as it is tracked. Raises StateError, NotFoundError or SourceError where that cannot be; then the state is as it
    was before those that were not given.
    """
    require_current(url)
    left = list(dict.fromkeys(Side(schema, table, tuple(columns)) for schema, table, columns in keys))
    while left:
        done = _track_some(start, url, left, address, display, kind)
        yield from done.values()
        left = [key for key in left if key not in done]


def _track_some(
    start: Callable[[], SparkSession],
    url: str,
    keys: Sequence[Side],
    address: str | None,
    display: Display,
    kind: KeyKind,
) -> dict[Side, Tracked]:
    """Track those of one source that are to be read, if any are; else one."""
    with ExitStack() as stack:
        connection = stack.enter_context(connect(url, COMMAND_NAME))
        stack.callback(release_locks, connection)
        writer = stack.enter_context(closing(PostgresWriter(url, COMMAND_NAME, display.begin)))
        take_bootstrap_lock(connection)
        stored = writer_state(writer)
        found = {key: find_table(stored, *key) for key in keys}
        known = {key: find_attribute(of_key, key.columns) for key, of_key in found.items()}
        first = next((key for key in keys if known[key] is None), keys[0])
        if (attribute_id := known[first]) is not None:  # all are followed: those that are to be read came first
            return {first: Tracked(str(first), writer.pin(attribute_id, kind))}
        table = found[first]
        chosen = {key: of_key for key, of_key in found.items() if of_key.source == table.source and known[key] is None}
        facts = read_facts(connection, table.source)
        for of_key in chosen.values():
            require_readable(of_key, facts)
        ids = count(last_attribute_id(connection) + 1)
        new = [Wanted(next(ids), of_key, key.columns) for key, of_key in chosen.items()]
        # Files are as they were when the others were read.
        beside = read_beside(stored, new) if facts.kind == "postgres" else []
        read = {".".join(_wire(one.table)): one.table for one in (*new, *beside)} if facts.kind == "postgres" else {}
        options = _options(table.source, read, facts, address)
        display.begin("starting Spark")
        spark = start()  # the writer waits for it: what is read must not be older than its position
        require_executors(spark, None, [options.source])
        with closing(_opened(options, read)) as source:
            if isinstance(source, FoldedSource):
                raise SourceError(f"{table}: its source is a log; bootstrap it again with --replace --track-key.")
            known_rows = {one.attribute_id: _known_rows(stored, one.table) for one in new}
            reading = _Reading(spark, source, [*new, *beside], options, display, known_rows)
            version = track(
                writer, stored, new, source.snapshot, reading.counted(), reading.rows_of, kind,
                [one.attribute_id for one in beside],
            )  # fmt: skip
    rows = reading.rows_of()
    return {
        key: Tracked(str(key), version, rows[one.attribute_id], reading.tuples[one.attribute_id])
        for key, one in zip(chosen, new, strict=True)
    }


def _known_rows(stored: StoredState, table: Table) -> int:
    return stored.counters[table.attributes[0].attribute_id].row_count


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


def _options(name: str, read: Mapping[str, Table], facts: SourceFacts, address: str | None) -> Options:
    options = Options(address or facts.location, name).remembered(facts.settings, facts.insert_only, False)
    return replace(options, only_tables=tuple(read), exclude=()) if read else options


def _opened(options: Options, read: Mapping[str, Table]) -> Source:
    try:
        return open_source(options)
    except MissingTableError as error:  # which no change tells
        raise SourceError(
            f"{error.table} is followed, but its source has it no longer, so that its tuples cannot be read: run "
            f"`subsetd attribute drop {read[error.table]} --force`, then the same command again."
        ) from error


def _wire(table: Table) -> tuple[str, str]:
    """Give schema and name that a table has in its source."""
    assert table.wire is not None
    return table.wire[1:]


class _Reading:
    """Read the tuples of attributes of one source in one snapshot; count on the way.

    `known_rows` says of those that are new how many rows the state has of their tables.
    """

    def __init__(
        self,
        spark: SparkSession,
        source: Source,
        wanted: Sequence[Wanted],
        options: Options,
        display: Display,
        known_rows: Mapping[int, int],
    ) -> None:
        self.tuples = dict.fromkeys(known_rows, 0)
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
            raise SourceError(f"{self._source.location}: there is no table {'.'.join(_wire(wanted.table))} in it.")
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
        tuples = Counter(self._places.values())
        size = sum(split.size * tuples[split.table] for split in splits)
        bits = min(int(np.ceil(np.log2(max(size / RANGE_BYTES, 1)))), MOST_BITS)
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
                for attribute_id in self.tuples:
                    self.tuples[attribute_id] += int(np.count_nonzero(records.attribute_ids == attribute_id))
                for start in range(0, len(records.high), PORTION):
                    yield _portion(records, start, min(start + PORTION, len(records.high)))
        self._source.confirm()
        rows_read = self.rows_of()
        for one in self._wanted if self._source.kind != "postgres" else ():
            read, known = rows_read[one.attribute_id], self._known_rows[one.attribute_id]
            if read != known:
                raise SourceError(
                    f"{one.table}: {self._source.location} has {read:,} rows of it, and the state {known:,}: it was "
                    f"changed since. Bootstrap it again with --replace --track-key."
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
        prog="python -m spark_jobs.backfill", description="Track columns of followed tables as keys."
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
        for done in backfill(start, given.database_url, keys, given.source, display, KeyKind(given.kind)):
            _tell(done)

    return run_job(given, "keys", run, lambda _: 0, display, "stopped: keys that were not told of are as they were")


def _tell(done: Tracked) -> None:
    read = f": {done.rows:,} rows have {done.tuples:,} tuples" if done.rows else ""
    print(f"{done.key} is tracked as a key since version {done.version}{read}")


if __name__ == "__main__":
    sys.exit(main())

"""Own the bootstrap: one Spark job from a source to a served generation. One room: its steps share locks and ids.

    python -m spark_jobs.bootstrap SOURCE --name NAME --database-url URL [--master local[*]] ...

Values never reach the driver: it learns clusters and counts. A job that dies leaves the served state as it was.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from service.core.clustering import derive_inds
from service.core.errors import SourceError, StateError
from service.core.model import AttributeName, slot_feed
from service.core.sketch_upkeep import SketchForm
from service.store.catch_up import Place, read_positions, told_passed
from service.store.database import connect, parse_address
from service.store.generation import (
    DRIVER_NAME,
    NOT_READ,
    Generation,
    NewAttribute,
    NewName,
    NewTable,
    ServedState,
    SourceDescription,
    assign_attribute_ids,
    clear_remains,
    create_registry,
    find_source,
    last_attribute_id,
    read_registry,
    read_row_keys,
    read_served,
    read_source,
    require_replaceable,
)
from service.store.keys import KnownTuple, read_tuples
from service.store.migrate import require_current
from service.store.publication import publish, tidy_up
from service.store.recomputation import differences, sketch_differences
from service.store.row_images import new_table_ids
from service.store.shard_dealing import move_shards
from service.store.shard_servers import ShardServer, read_servers
from service.store.shown_values import read_shown, refuse_shards
from service.store.sketch_generation import create_sketch_table, read_parts, require_form, write_whole
from service.store.sketches import read_form
from service.store.writer_lock import is_led_by_consumer, release_locks, take_bootstrap_lock, take_writer_lock
from spark_jobs.command_line import options_of, parse_arguments
from spark_jobs.job import run_job
from spark_jobs.outcome import Summary, attributes_of, cluster_sizes, describe, keys_of, references_of, told_warnings
from spark_jobs.parallel import run_parallel, telling
from spark_jobs.progress import Display, Quiet, make_display, telling_the_state, watching
from spark_jobs.row_images import ImageWriter, choose_row_images, require_told_apart, told_choice
from spark_jobs.shown_values import choose_shown, require_no_images, shown_by_id
from spark_jobs.sketches import Part, put_together
from spark_jobs.sources import FoldedSource, Options, Source, SourceTable, Split, group_splits, open_source
from spark_jobs.tasks import CountTask, CrashPoint, MergeTask, PartitionResult
from spark_jobs.tracked_keys import choose_tuples

TASK_BYTES = 96 << 20
"""Source bytes that one task counts at most: more means fewer repeated values in the shuffle, and more memory."""
PARTITION_BYTES = 64 << 20
"""Source bytes for each key range: about 750,000 values of TPC-H."""
PARTITION_RECORDS = 750_000
MOST_BITS = 8

Found = TypeVar("Found")


def run_bootstrap(
    spark: SparkSession | Callable[[], SparkSession], options: Options, display: Display | None = None
) -> Summary:
    """Read a source and make it served, or only count its clusters (`clusters_only`).

    With `check` the generation is built, held against the served state (`Summary.differences`) and dropped.

    `spark` may be a function that starts the session: it is called when source and state are found good. Raises
    SourceError for data that cannot be read and StateError for a database that cannot be written; then the served
    state is as before.
    """
    with ExitStack() as stack:
        return _Bootstrap(options, display or Quiet(), stack).run(spark)


class _Bootstrap:
    def __init__(self, options: Options, display: Display, stack: ExitStack) -> None:
        self.options = options
        self.display = display
        self.stack = stack
        self.summary = Summary()
        self.crash = CrashPoint(options.fail_at, os.getpid())
        self.sketches: SketchForm | None = None
        self.connection: Any = None
        self.has_state = False
        self.is_followed = False
        self.images_ids: dict[int, int] = {}
        self.shown: list[int | None] = []
        self.said_before: list[str] = []
        self.served = ServedState(0, 0, 0)
        self.registry = 0
        self.servers: list[ShardServer] = []

    def run(self, spark: SparkSession | Callable[[], SparkSession]) -> Summary:
        start = time.monotonic()
        with self._timed("plan"):
            stood = self._feeds_stand()
            source = self._open()
            running = spark if isinstance(spark, SparkSession) else None
            if isinstance(source, FoldedSource):
                running = self._discover(source, spark)
            tables, doubts = choose_row_images(source.tables(), self.options)
            self.summary.warnings = [*self.said_before, *source.warnings, *doubts]
            self._be_alone()  # before what is masked and tracked is read: whoever changes that takes the same lock
            tables = choose_tuples(tables, self.options, self._known_tuples(), self._schema)
            names = [
                NewName(AttributeName(self._schema(t), t.name, name), parts)
                for t in tables
                for name, _, parts in t.attributes
            ]
            self.shown = self._choose_shown(names)
            require_no_images(tables, names, self.shown)
            ids, dropped = self._prepare(names, stood)
            self._take_table_ids(tables)
            self.crash.reach("planning")
        with self._timed("start Spark"):
            if running is None:
                running = self._started(spark)
        with self._timed("split"):
            splits = source.splits(self.options.task_bytes or TASK_BYTES, run_parallel(running))
            if not splits:
                raise SourceError(f"{source.location}: there is no table to read.")
        bits = self._bits(splits)
        ids, results = self._count(running, source, tables, splits, names, ids, dropped, bits)
        with self._timed("commit"):
            self._finish(source, tables, names, ids, bits, results, stood)
        self.summary.seconds["total"] = time.monotonic() - start
        return self.summary

    @staticmethod
    def _started(spark: SparkSession | Callable[[], SparkSession]) -> SparkSession:
        return spark if isinstance(spark, SparkSession) else spark()

    def _discover(self, source: FoldedSource, spark: SparkSession | Callable[[], SparkSession]) -> SparkSession:
        """Let a log be looked through for its tables, and its feed go on where that ended."""
        running = self._started(spark)
        self.display.begin("looking for tables")
        source.discover(run_parallel(running))
        own = {place[:3] for place in source.feed_positions}
        for feed, topic, partition, _ in self.options.feed_positions:
            if (feed, topic, partition) in own:
                raise SourceError(
                    f"--feed-position {feed},{topic},{partition}: the source is read from this partition, whose feed "
                    f"goes on where that ends. Leave the position out."
                )
        positions = (*source.feed_positions, *self.options.feed_positions)
        self.options = replace(self.options, feed_positions=positions)
        return running

    def _schema(self, table: SourceTable) -> str:
        """Give the schema of a table's attributes: with `qualify` the source's name stands before it."""
        return f"{self.options.name}.{table.schema}" if self.options.qualify else table.schema

    def _feeds_stand(self) -> dict[Place, int]:
        """Read where feeds stand before the source is opened, and so read."""
        url = self.options.database_url
        if url is not None and not self.options.clusters_only:
            require_current(url)
        return self._of_state(read_positions, {})

    def _of_state(self, read: Callable[[Any], Found], otherwise: Found) -> Found:
        """Read something of the state; give another thing where it plays no part."""
        url = self.options.database_url
        if url is None or self.options.clusters_only:
            return otherwise
        with connect(url, DRIVER_NAME) as connection:
            return read(connection)

    def _known_tuples(self) -> list[KnownTuple]:
        return self._of_state(lambda connection: read_tuples(connection, self.options.name), [])

    def _choose_shown(self, names: Sequence[NewName]) -> list[int | None]:
        """Say how many characters of values are to be kept, beside names; see `choose_shown`."""
        found = self._of_state(lambda connection: read_shown(connection, self.options.name), None)
        if found is None:
            return [None] * len(names)
        said, columns = found
        if self.options.store_values is None:
            self.options = replace(self.options, store_values=said)
        return choose_shown(names, said, columns, self.options)

    def _shown_by_id(self, ids: Sequence[int]) -> NDArray[np.int64] | None:
        return None if self.options.clusters_only else shown_by_id(self.connection, ids, self.shown)

    def _open(self) -> Source:
        self.display.begin("planning")
        if self.options.check:
            assert self.options.database_url is not None
            with connect(self.options.database_url, DRIVER_NAME) as connection:
                remembered = self.options.remembered(*read_source(connection, self.options.name))
                self.options = replace(remembered, keys=tuple(read_row_keys(connection, remembered.name).items()))
        elif self.options.as_before:
            self._read_as_before()
        source = open_source(self.options)
        self.stack.callback(source.close)
        return source

    def _read_as_before(self) -> None:
        """Let what was said of the source before stand where nothing is said now, and tell of it."""
        found = self._of_state(lambda connection: find_source(connection, self.options.name), None)
        if found is not None:
            given, self.options = self.options, self.options.with_those_before(*found)
            kept = [option for option in self.options.told() if option not in given.told()]
            if kept:
                self.said_before = [f"read as before, with {' '.join(kept)}; --forget-options reads it without"]

    def _be_alone(self) -> None:
        """Become the one bootstrap."""
        if self.options.clusters_only:
            return
        assert self.options.database_url is not None
        self.connection = self.stack.enter_context(connect(self.options.database_url, DRIVER_NAME))
        self.stack.callback(release_locks, self.connection)
        take_bootstrap_lock(self.connection)

    def _prepare(self, names: Sequence[NewName], stood: Mapping[Place, int]) -> tuple[list[int], list[int]]:
        """Return (an id for each name, ids that the replaced source had).

        Where a consumer writes the state it goes on until the values are counted (`_take_state`).
        """
        if self.options.clusters_only:
            return list(range(len(names))), []
        url = self.options.database_url
        assert url is not None
        # What is refused has not failed: the state is not told of it, and goes on to tell of what did.
        require_replaceable(self.connection, self.options.name, self.options.replace or self.options.check)
        if not self.options.check:
            withholds = any(characters is not None for characters in self.shown)
            with self.connection.cursor() as cursor:  # before all is read, and once more in the last transaction
                refuse_shards(cursor, withholds=withholds)
            self.sketches = self.options.sketches
            require_form(self.connection, self.options.name, self.sketches)
            told = telling_the_state(url, self.options.name, self.display, withholds=withholds)
            self.display = self.stack.enter_context(told)
        elif self.options.sketch_only:  # those of other sources `verify` builds from their records
            with self.connection.cursor() as cursor:
                self.sketches = read_form(cursor)
        clear_remains(self.connection)
        if self.options.check or not is_led_by_consumer(self.connection):
            return self._take_state(names)
        if self.options.feed_start is None and slot_feed(self.options.name) in {place.feed for place in stood}:
            raise StateError(told_passed(self.options.name))
        self.is_followed = True
        self.served = read_served(self.connection)
        return assign_attribute_ids(self.connection, self.options.name, names, leaves_stale=self.options.check)

    def _take_table_ids(self, tables: Sequence[SourceTable]) -> None:
        """Take the ids under which rows are kept, of the tables whose rows are."""
        keeping = [place for place, table in enumerate(tables) if table.row_images]
        if keeping and not (self.options.clusters_only or self.options.check):
            self.images_ids = dict(zip(keeping, new_table_ids(self.connection, len(keeping)), strict=True))
            self.summary.images = told_choice(tables)

    def _image_writer(self, tables: Sequence[SourceTable]) -> ImageWriter | None:
        if not self.images_ids:
            return None
        assert self.options.database_url is not None
        return ImageWriter.of(self.options.database_url, tables, self.images_ids, self.options.null_tokens)

    def _take_state(self, names: Sequence[NewName]) -> tuple[list[int], list[int]]:
        """Become the state's writer, behind a consumer that hands it over; return the ids as they are from now on."""
        take_writer_lock(self.connection, None if self.options.check else self.display.begin)
        self.has_state = True
        self.served = read_served(self.connection)
        with self.connection.cursor() as cursor:
            self.servers = read_servers(cursor)
        self.connection.commit()
        found = assign_attribute_ids(self.connection, self.options.name, names, leaves_stale=self.options.check)
        if self.sketches is not None:
            create_sketch_table(self.connection, self.served.generation + 1)
        self.registry = create_registry(self.connection, self.served.generation + 1)
        return found

    def _bits(self, splits: Sequence[Split]) -> int:
        """Choose the number of key ranges, as a power of 2."""
        wanted = self.options.partitions or max(
            sum(split.size for split in splits) / PARTITION_BYTES, self.served.record_count / PARTITION_RECORDS
        )
        return min(max(round(float(np.log2(max(wanted, 1)))), 0), MOST_BITS)

    def _count(
        self,
        spark: SparkSession,
        source: Source,
        tables: Sequence[SourceTable],
        splits: Sequence[Split],
        names: Sequence[NewName],
        ids: list[int],
        dropped: Sequence[int],
        bits: int,
    ) -> tuple[list[int], list[PartitionResult]]:
        """Run the job: count, shuffle by key range, merge and store; return the attributes' ids and what was done.

        Where a consumer writes the state, the shuffle is filled first, and only then the state is taken over.
        """
        parallelism = spark.sparkContext.defaultParallelism
        total = sum(split.cost for split in splits)
        target = min(self.options.task_bytes or TASK_BYTES, max(total // (3 * parallelism), 1 << 20))
        tasks = group_splits(splits, target)
        rows = spark.sparkContext.accumulator(0)

        def count(ids: Sequence[int]) -> Any:
            widths = [len(table.attributes) for table in tables]
            by_table = [list(ids[end - width : end]) for end, width in zip(np.cumsum(widths), widths, strict=True)]
            task = CountTask(
                source.reader(), source.kind == "postgres", tasks, tables, by_table, self.options.null_tokens, bits,
                rows, self.crash, self._image_writer(tables), self.sketches if self.options.sketch_only else None,
                self._shown_by_id(ids),
            )  # fmt: skip
            # Plain RDDs: rows are payloads of megabytes, and SQL's planning takes longer than a small bootstrap.
            if isinstance(source, FoldedSource):
                payloads = source.rows(spark, tables).mapPartitions(task.count_chunks)
            else:
                payloads = spark.sparkContext.parallelize(range(len(tasks)), len(tasks)).mapPartitions(task)
            return payloads.partitionBy(1 << bits, partitionFunc=int)

        with telling(spark, source, splits):  # rows of a log are brought together here already
            shuffled = count(ids)
        stages = [("counting values", len(tasks))]
        if not (self.has_state or self.options.clusters_only):
            with telling(spark, source, splits), self._watching(spark, stages, rows):
                shuffled.foreachPartition(_leave)  # Spark keeps what a shuffle has written, for the job below
            stages = []
            counted = ids
            ids, dropped = self._take_state(names)
            if ids != counted:  # the consumer has found new columns meanwhile
                shuffled, stages = count(ids), [("counting values", len(tasks))]
        uncounted = np.zeros(max(ids, default=-1) + 1, np.bool_)
        if self.served.record_count:
            uncounted = np.zeros(max(max(ids, default=-1), last_attribute_id(self.connection)) + 1, np.bool_)
        uncounted[[attribute_id for attribute_id in ids if attribute_id != NOT_READ]] = self.options.insert_only
        merge = MergeTask(
            None if self.options.clusters_only else self.options.database_url, self.served.generation + 1,
            self.registry, bits, len(tables), self.served.record_count > 0, dropped, uncounted, self.crash,
            self.sketches, self._shown_by_id(ids), self.servers,
        )  # fmt: skip
        stages.append(("merging" if self.options.clusters_only else "storing records", 1 << bits))
        with telling(spark, source, splits), self._watching(spark, stages, rows):
            return ids, shuffled.mapPartitionsWithIndex(merge).collect()

    @contextmanager
    def _watching(self, spark: SparkSession, stages: list[tuple[str, int]], rows: Any) -> Iterator[None]:
        with watching(spark.sparkContext, self.display, stages, lambda: f"{rows.value:,} rows") as seconds:
            yield
        self.summary.seconds.update(seconds)

    def _finish(
        self,
        source: Source,
        tables: Sequence[SourceTable],
        names: Sequence[NewName],
        ids: Sequence[int],
        bits: int,
        results: Sequence[PartitionResult],
        stood: Mapping[Place, int],
    ) -> None:
        self.display.begin("putting it in place")
        source.confirm()
        row_counts = np.sum([result.row_counts for result in results], axis=0)
        if self.images_ids:
            require_told_apart(self.connection, tables, self.images_ids, row_counts)
        counters = np.sum([result.counters for result in results], axis=0)
        sizes = cluster_sizes(results)
        if self.options.clusters_only:
            clusters = {number: (ids_of, size) for number, (ids_of, size) in enumerate(sizes.items(), 1)}
        else:
            sets = read_registry(self.connection, self.served.generation + 1)
            clusters = {cluster_id: (sets[cluster_id], size) for cluster_id, size in sorted(sizes.items())}
        inds = derive_inds(clusters.values())
        self.summary.tables, self.summary.tuples = len(tables), sum(len(table.tuples) for table in tables)
        self.summary.attributes, self.summary.rows = len(names) - self.summary.tuples, int(np.sum(row_counts))
        of_tuples = {attribute_id for (_, parts), attribute_id in zip(names, ids, strict=True) if parts is not None}
        self.summary.count(clusters, inds, of_tuples)
        if self.options.clusters_only:
            return
        attributes = attributes_of(tables, names, ids, row_counts, counters, self.shown, self.options)
        if self.options.check:
            self._check(bits, attributes, inds)
            return
        generation = Generation(
            number=self.served.generation + 1,
            bits=bits,
            clusters=clusters,
            attributes=attributes,
            inds=inds,
            record_count=self.summary.rows,
            tables=self._new_tables(source, tables),
            feed_positions=self.options.feed_positions,
            # A snapshot of a slot is older than these positions, and its feed begins where it ends.
            stood=None if source.snapshot is None or self.options.snapshot is not None else stood,
            is_followed=self.is_followed,
            feed_start=self.options.feed_start,
            sketches=self.sketches,
            keys=keys_of(tables, ids),
            references=references_of(tables, ids),
        )
        self._finish_sketches()
        self.crash.reach("commit")
        self._publish(source, generation)

    def _check(self, bits: int, attributes: Sequence[NewAttribute], inds: NDArray[np.int32]) -> None:
        """Tell how the state differs from what was read, and drop what was written of that."""
        number = self.served.generation + 1
        found = differences(self.connection, self.options.name, number, bits, attributes, inds, self.servers)
        if self.sketches is not None:
            found += sketch_differences(str(self.options.database_url), self.connection, number)
        self.summary.differences = found
        clear_remains(self.connection)

    def _new_tables(self, source: Source, tables: Sequence[SourceTable]) -> list[NewTable]:
        address = parse_address(self.options.source) if source.kind == "postgres" else None
        database = None if address is None else address.database or address.username
        return [
            NewTable(
                self._schema(table),
                table.name,
                (database or table.database, table.schema, table.name),
                table.key_columns,
                table.replica_identity,
                self.images_ids.get(place),
            )
            for place, table in enumerate(tables)
        ]

    def _publish(self, source: Source, generation: Generation) -> None:
        description = SourceDescription(
            self.options.name,
            source.kind,
            source.location,
            {**source.settings, "store_values": self.options.store_values},
            self.options.insert_only,
            source.snapshot,
            self.options.sketch_only,
        )
        try:
            self.summary.version = publish(self.connection, self.served, description, generation, self.display.begin)
            tidy_up(self.connection)
            if self.servers:
                self._send_back()
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(self._told_stop()) from error

    def _told_stop(self) -> str:
        """Say how far the commit had come that was stopped; nothing where nothing was changed."""
        self.connection.rollback()
        version = read_served(self.connection).version
        if version == self.served.version:
            return ""
        told = f"stopped: the source is read and served, as version {version}; the next bootstrap tidies up"
        of_shards = ". See `subsetd shards list`: shards that are not on their servers go by `shards set` alone"
        return told + of_shards if self.servers else told

    def _send_back(self) -> None:
        """Let shards be on their servers again: the new generation is in the state's own database, whole."""
        try:
            self.summary.version = move_shards(self.connection, None, self.display.begin, self.servers)
        except StateError as error:
            raise StateError(
                f"The source is read and served, as version {self.summary.version}, and all shards are in the state's "
                f"own database now, as they cannot go back to where they were: {error} Then bring them there by "
                f"`subsetd shards set N --servers MAP`."
            ) from error

    def _finish_sketches(self) -> None:
        """Put together what the key ranges have given to sketches, attribute by attribute."""
        form = self.sketches
        if form is None:
            return
        number = self.served.generation + 1
        for attribute_id, found in read_parts(self.connection, number):
            parts = (Part.from_bytes(part, form) for part in found)
            write_whole(self.connection, number, [(attribute_id, put_together(form, parts, counts_values=True))])
        self.connection.commit()

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        self.summary.seconds[stage] = time.monotonic() - start


def _leave(_: Any) -> None:
    """Read nothing of a partition: it is there, which is all that was wanted."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job from the command line; an error is one message on standard error, and exit code 1."""
    given = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    options = options_of(given)
    display = make_display()
    return run_job(
        given,
        "bootstrap",
        lambda start: run_bootstrap(start, options, display),
        _tell,
        display,
        "stopped: nothing was changed",
    )


def _tell(summary: Summary) -> int:
    """Print what was done; exit code 1 when a check has found differences."""
    print(describe(summary))
    for line in told_warnings(summary):
        print(line, file=sys.stderr)
    for difference in summary.differences:
        print(f"differs: {difference}")
    return 1 if summary.differences else 0


if __name__ == "__main__":
    sys.exit(main())

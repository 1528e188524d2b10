"""Own the building of a corpus' index of joinable tables: what of it is read, by which tasks, and where these run.

Files that are as they were when the index was built stay where they are; the tables of all others go into a new
segment. A task codes the cells of files, these are cut by ranges of value keys, others number the values of a range and
write buckets, and with the numbers the rows are written. Tasks write by COPY, and all lands at once. What is little is
done in the driver's process, without Spark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
from pyspark import StorageLevel

from service.core.corpus import CorpusKind
from service.core.errors import SourceError, StateError
from service.core.join_layout import Layout
from service.core.posting_buckets import MOST_BITS, CrowdedError, bits_for, smallest_halves, values_estimated
from service.core.posting_ranges import ValuePlaces, code_range, crowding_tables
from service.core.records import Int64s
from service.core.row_filters import functions_for
from service.store.join_loads import NewIndex, SegmentLoad, StoredSegment, StoredTable, stored_segments
from service.store.join_merge import merge_segments, wants_merging
from service.usecases.corpora import Corpus
from spark_jobs.corpus_sources import CorpusListing, ReadingPlan, plan_reading, table_reader
from spark_jobs.corpus_tables import FaultKind, Piece, ReadingFault, packing_of
from spark_jobs.hadoop_files import HadoopSettings, hadoop_settings
from spark_jobs.join_cells import Described, Notes, Portion, cut_postings, describe, read_portions, row_blocks
from spark_jobs.many_workers import Workers
from spark_jobs.parallel import FAULTS_TOLD, telling_job
from spark_jobs.postgres_source import PostgresReader
from spark_jobs.telling import Telling, telling_errors

PORTION_BITS = 20
"""A portion is numbered by its task, and in so many bits by its place in what the task reads."""

RANGE_CELLS = 4_000_000
MOST_RANGE_BITS = 12
"""Cells that a task gathers of one range of keys, about; there are no more ranges than these bits tell apart."""

DRIVER_BYTES = 64 << 20
UNPACKED = 4
"""So many bytes of files are read in the driver's process, which takes it 1 GB. Packed ones and Parquet count more."""

READING = ("null_tokens", "delimiter", "quote", "header", "encoding", "db_schema", "max_table_bytes", "near")
"""Settings that decide what the cells of a table are."""

STAGE = "indexing cells"

CROWDED = -1
"""Stands for a portion, where tasks tell of buckets that would have too many values."""
NO_TABLES = np.zeros(0, np.int64)
CHOSEN = "too many of its values have keys that begin alike, as only values have that are chosen for it"

Done = TypeVar("Done")
Served = Mapping[str, tuple[int, int, Sequence[str]]]
"""The tables of a generation by their paths: number, rows, and names of columns."""


class Plan(NamedTuple):
    """Hold what the tables of the segment are, and where in it those of each portion are, -1: left out."""

    layout: Layout
    tables: list[StoredTable]
    places: Mapping[int, Int64s]
    bits: int
    range_bits: int

    @property
    def tasks(self) -> int:
        """Count the tasks that write."""
        return (1 << self.range_bits) + len(self.places)


@dataclass(frozen=True, slots=True)
class ReadCells:
    """Read the portions of a task, and its notes; picklable."""

    corpus: Corpus
    database: PostgresReader | None
    hadoop: HadoopSettings = field(default_factory=hadoop_settings)

    def __call__(self, task: int, groups: Iterable[Sequence[Piece]]) -> Iterator[tuple[int, Portion | Notes]]:
        corpus, settings = self.corpus, self.corpus.settings
        reader = table_reader(corpus.location, corpus.kind, settings, self.hadoop, self.database)
        portions = (
            portion
            for pieces in groups
            for portion in read_portions(reader, pieces, settings.null_tokens, settings.near)
        )
        for number, portion in enumerate(portions):
            yield task << PORTION_BITS | number, portion


@dataclass(frozen=True, slots=True)
class CutTask:
    """Cut a portion by ranges of keys."""

    plan: Plan

    def __call__(self, portion: tuple[int, Portion | Notes]) -> Iterator[tuple[int, ValuePlaces]]:
        number, cells = portion
        if isinstance(cells, Notes):
            return
        found = cut_postings(number, cells, self.plan.places[number], self.plan.layout, self.plan.range_bits)
        yield from enumerate(found)


@dataclass(frozen=True, slots=True)
class BucketTask:
    """Write the buckets of a range of keys, and send the values' numbers back to where they are.

    Where a bucket would have too many values, nothing is written, and what makes room goes to CROWDED.
    """

    plan: Plan
    load: SegmentLoad

    def __call__(self, of_range: tuple[int, Iterable[ValuePlaces]]) -> Iterator[tuple[int, tuple[Any, Int64s]]]:
        number, postings = of_range
        found = list(postings)
        try:
            buckets, numbers = code_range(found, self.plan.bits)
        except CrowdedError as error:
            tables = crowding_tables(found, self.plan.layout, MOST_BITS) if error.bits > MOST_BITS else NO_TABLES
            yield CROWDED, (error.bits, tables)
            return
        self.load.copy_buckets(number, buckets)
        for each, of_values in zip(found, numbers, strict=True):
            yield each.source, (each.codes, of_values)


@dataclass(frozen=True, slots=True)
class RowsTask:
    """Write the rows of a portion, and count them; of CROWDED give what came to it."""

    plan: Plan
    load: SegmentLoad

    def __call__(
        self, cogrouped: tuple[int, tuple[Iterable[Portion | Notes], Iterable[tuple[Any, Int64s]]]]
    ) -> int | list[tuple[int, Int64s]]:
        number, (portions, numbered) = cogrouped
        if number == CROWDED:
            return list(numbered)
        (portion,) = portions
        if isinstance(portion, Notes):
            return 0
        numbers = np.full(len(portion.keys.high), -1, np.int64)
        for codes, of_values in numbered:
            numbers[codes] = of_values
        places = self.plan.places[number]
        layout = self.plan.layout
        kept = places >= 0
        planned = layout.rows[places[kept]], layout.widths[places[kept]]
        if not np.array_equal(planned, (portion.rows[kept], portion.widths[kept])):
            raise SourceError("Files of the corpus were changed while they were read; build the index again.")
        task = (1 << self.plan.range_bits) + list(self.plan.places).index(number)
        self.load.copy_rows(task, row_blocks(portion, places, layout, numbers))
        return int(portion.rows[kept].sum())


def build_index(
    url: str,
    corpus: Corpus,
    generation: int,
    listing: CorpusListing,
    served: Served,
    workers: Workers,
) -> NewIndex:
    """Write what the index of a generation lacks, and give it: it is to be landed.

    The caller holds the index by `join_loads.building`, and closes the listing. Raises SourceError for a corpus that
    has too many values; then what is searched stays as it was.
    """
    reading = {name: value for name, value in corpus.settings.to_json().items() if name in READING}
    before = stored_segments(url, corpus.corpus_id, reading)
    with workers.stage(STAGE):
        segments, changed = _kept(corpus.kind, listing, before, served)
        reading_plan = plan_reading(corpus.kind, changed, None, workers.cores)
        written: dict[int, int] = {}
        faults: list[ReadingFault] = []
        if reading_plan.tasks:
            segment, tasks, faults = _write(url, corpus, changed, reading_plan, served, workers)
            if segment.tables:  # where none of the files can be read nothing has been written
                segments.append(segment)
                written[segment.segment_id] = tasks
        listing.confirm()
    segments = [segment for segment in segments if segment.tables]
    new = sum(len(segment.tables) for segment in segments if segment.segment_id in written)
    merged = None
    if wants_merging(segments):
        with workers.stage("merging cells"):
            merged = merge_segments(url, corpus.corpus_id, segments)
    if merged is not None:
        segments, written = [merged[0]], {merged[0].segment_id: merged[1]}
    report = _report(segments, served) | {"read": new, "merged": merged is not None, "segments": len(segments)}
    told = sorted(faults, key=lambda fault: fault.path)[:FAULTS_TOLD]
    report["faults"] = [f"{fault.path}: {fault.message}" for fault in told]
    return NewIndex(corpus.corpus_id, generation, reading, segments, written, report)


def _report(segments: Sequence[StoredSegment], served: Served) -> dict[str, Any]:
    tables = rows = cells = 0
    for segment in segments:
        live = np.fromiter(segment.tables, np.int64, len(segment.tables))
        tables += len(live)
        rows += int(segment.layout.rows[live].sum())
        cells += int((segment.layout.rows * segment.layout.widths)[live].sum())
    return {"tables": tables, "rows": rows, "cells": cells, "left_out": len(served) - tables}


def _kept(
    kind: CorpusKind, listing: CorpusListing, segments: Sequence[StoredSegment], served: Served
) -> tuple[list[StoredSegment], CorpusListing]:
    """Give segments of the tables that are as they were, and what is listed of the files of all others.

    A file is as it was when it was not changed since, and all its tables of the generation are indexed as they are in
    it. One without such tables is not read.
    """
    prints = dict(zip(listing.paths, zip(listing.sizes.tolist(), listing.modified.tolist(), strict=True), strict=True))
    wanted: defaultdict[str, set[str]] = defaultdict(set)
    for path in served:
        wanted[_file_of(kind, path)].add(path)
    indexed: defaultdict[str, set[str]] = defaultdict(set)
    for segment in segments:
        for place, table in segment.tables.items():
            file = _file_of(kind, table.path)
            fingerprint = table.file_size, table.file_modified
            described = table.number, int(segment.layout.rows[place]), list(table.names)
            if fingerprint == prints.get(file) and fingerprint[1] >= 0 and described == _described(served, table.path):
                indexed[file].add(table.path)
    same = {file for file, paths in indexed.items() if paths == wanted[file]}
    kept = [
        StoredSegment(
            segment.segment_id, segment.bits, segment.layout,
            {place: table for place, table in segment.tables.items() if _file_of(kind, table.path) in same},
        )
        for segment in segments
    ]  # fmt: skip
    read = np.array([path in wanted and path not in same for path in listing.paths], np.bool_)
    if listing.database is not None:
        return kept, listing  # a table of it has no time of change: all are read
    paths = [path for path, is_read in zip(listing.paths, read.tolist(), strict=True) if is_read]
    return kept, CorpusListing(paths, listing.sizes[read], listing.modified[read], ())


def _described(served: Served, path: str) -> tuple[int, int, list[str]]:
    number, rows, names = served.get(path, (-1, -1, []))
    return number, rows, list(names)


def _file_of(kind: CorpusKind, path: str) -> str:
    return path.rpartition("#")[0] if kind is CorpusKind.JSONL else path


def _write(
    url: str, corpus: Corpus, listing: CorpusListing, reading: ReadingPlan, served: Served, workers: Workers
) -> tuple[StoredSegment, int, list[ReadingFault]]:
    """Write a segment of the tables of files; give it, how many tasks have written it, and the faults."""
    read = ReadCells(corpus, None if listing.database is None else listing.database.reader())
    portions = _portions_of(read, reading, workers)
    try:
        found = portions.describe()
        described = [each for each in found if isinstance(each, Described)]
        notes = [each for each in found if isinstance(each, Notes)]
        left_out: list[ReadingFault] = []
        least, rows = 1, None
        while rows is None:
            plan = make_plan(described, notes, listing, served, least, {fault.path for fault in left_out})
            load = SegmentLoad.begin(url, corpus.corpus_id, plan.layout, plan.tables, plan.bits)
            try:
                rows = portions.write(plan, load)
            except CrowdedIndexError as error:
                least = max(least, error.bits)
                left_out += (ReadingFault(plan.tables[at].path, FaultKind.TOO_LARGE, CHOSEN) for at in error.tables)
    finally:
        portions.close()
    if rows != plan.layout.first_rows[-1]:
        raise StateError(f"{rows:,} of {plan.layout.first_rows[-1]:,} rows were written.")
    segment = StoredSegment(load.segment_id, plan.bits, plan.layout, dict(enumerate(plan.tables)))
    return segment, plan.tasks, [*(fault for note in notes for fault in note.faults), *left_out]


def make_plan(
    described: Sequence[Described],
    notes: Sequence[Notes],
    listing: CorpusListing,
    served: Served,
    least_bits: int = 1,
    without: Collection[str] = (),
) -> Plan:
    """Order the tables that were read by their paths, and number their rows.

    Tables that the generation has not, or not with these rows and columns, are left out, and those of `without`.
    """
    prints = dict(zip(listing.paths, zip(listing.sizes.tolist(), listing.modified.tolist(), strict=True), strict=True))
    before = _lines_before(notes)
    read = []
    for portion in described:
        for i, (file, start, line) in enumerate(
            zip(portion.files, portion.starts.tolist(), portion.lines.tolist(), strict=True)
        ):
            path = f"{file}#{before[file, start] + line}" if line else file
            number, rows, columns = _described(served, path)
            if rows == portion.rows[i] and columns == list(portion.names[i]) and path not in without:
                table = StoredTable(number, path, columns, *prints[file])
                read.append((table, portion.portion, i, rows, int(portion.widths[i]), int(portion.held[i])))
    read.sort(key=lambda each: each[0].path)  # a corpus numbers its tables as tasks have read them
    places = {portion.portion: np.full(len(portion.files), -1, np.int64) for portion in described}
    for place, (_, portion_number, i, *_) in enumerate(read):
        places[portion_number][i] = place
    heights, widths, held = (np.array([each[part] for each in read], np.int64) for part in (3, 4, 5))
    layout = Layout.of(heights, widths, functions_for(heights, held))
    smallest = [np.zeros(0, np.uint64), *(portion.smallest for portion in described)]
    try:
        bits = max(least_bits, bits_for(values_estimated(smallest_halves(np.concatenate(smallest)))))
    except ValueError as error:
        raise SourceError(f"The corpus has too many values: {error}.") from error
    range_bits = max(1, int(layout.first_cells[-1] // RANGE_CELLS).bit_length())
    return Plan(layout, [table for table, *_ in read], places, bits, min(range_bits, bits, MOST_RANGE_BITS))


def _lines_before(notes: Sequence[Notes]) -> dict[tuple[str, int], int]:
    """Say how many lines of its file are before each piece of JSON lines."""
    found: dict[tuple[str, int], int] = {}
    before, last = 0, None
    for file, start, count in sorted(each for note in notes for each in note.lines):
        before = before if file == last else 0
        found[file, start] = before
        before, last = before + count, file
    return found


class CrowdedIndexError(Exception):
    """Some buckets would have too many values: `bits` of their numbers, or leaving these tables out, makes room."""

    def __init__(self, bits: int, tables: Sequence[int]) -> None:
        super().__init__(bits, tables)
        self.bits, self.tables = bits, tables


def _rows(written: Iterable[int | list[tuple[int, Int64s]]]) -> int:
    """Count the rows that tasks have written; raise CrowdedIndexError where they could not."""
    rows, crowded = 0, []
    for each in written:
        if isinstance(each, int):
            rows += each
        else:
            crowded += each
    if not crowded:
        return rows
    tables = sorted({table for _, of_range in crowded for table in of_range.tolist()})
    raise CrowdedIndexError(max((bits for bits, _ in crowded if bits <= MOST_BITS), default=1), tables)


class PortionsHere:
    """Hold portions in this process, and run tasks on its threads."""

    def __init__(self, read: ReadCells, tasks: Sequence[Sequence[Piece]], cores: int) -> None:
        self._cores = cores
        found = self._run(lambda task: list(read(task, [tasks[task]])), range(len(tasks)))
        self.portions = [portion for of_task in found for portion in of_task]

    def describe(self) -> list[Described | Notes]:
        """Give what the driver learns."""
        return [describe(*portion) for portion in self.portions]

    def write(self, plan: Plan, load: SegmentLoad) -> int:
        """Write buckets and rows, and count the rows; CrowdedIndexError where a bucket would have too many values."""
        ranges: defaultdict[int, list[ValuePlaces]] = defaultdict(list)
        for portion in self.portions:
            for number, values in CutTask(plan)(portion):
                ranges[number].append(values)
        bucket, rows = BucketTask(plan, load), RowsTask(plan, load)
        numbered: defaultdict[int, list[tuple[Any, Int64s]]] = defaultdict(list)
        for of_sources in self._run(lambda of_range: list(bucket(of_range)), ranges.items()):
            for number, numbers in of_sources:
                numbered[number].append(numbers)
        if CROWDED in numbered:
            return _rows([rows((CROWDED, ((), numbered[CROWDED])))])
        return _rows(self._run(lambda found: rows((found[0], ([found[1]], numbered[found[0]]))), self.portions))

    def close(self) -> None:
        """Let them go."""
        self.portions.clear()

    def _run(self, task: Callable[[Any], Done], items: Iterable[Any]) -> list[Done]:
        with ThreadPoolExecutor(self._cores, "subsetd-joins") as pool:
            return list(pool.map(task, items))


class PortionsOnSpark:
    """Hold portions on the executors' disks."""

    def __init__(self, read: ReadCells, tasks: Sequence[Sequence[Piece]], workers: Workers) -> None:
        self._count = len(tasks)
        portions = workers.spark.sparkContext.parallelize(tasks, self._count).mapPartitionsWithIndex(TellingEach(read))
        self._portions = portions.persist(StorageLevel.DISK_ONLY)

    def describe(self) -> list[Described | Notes]:
        """Give what the driver learns."""
        with telling_job():
            found: list[Described | Notes] = self._portions.map(Telling(_describe)).collect()
        return found

    def write(self, plan: Plan, load: SegmentLoad) -> int:
        """Write buckets and rows, as `PortionsHere` does."""
        plan = plan._replace(tables=[])  # which no task needs
        with telling_job():
            cut = self._portions.flatMap(TellingEach(CutTask(plan))).groupByKey(1 << plan.range_bits)
            numbered = cut.flatMap(TellingEach(BucketTask(plan, load)))
            written = self._portions.cogroup(numbered, self._count).map(Telling(RowsTask(plan, load))).collect()
        return _rows(written)

    def close(self) -> None:
        """Let them go."""
        self._portions.unpersist()


class TellingEach:
    """Wrap a picklable function that yields, as `Telling` does others."""

    def __init__(self, function: Callable[..., Iterator[Any]]) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> Iterator[Any]:
        with telling_errors():
            yield from self.function(*arguments)


def _describe(portion: tuple[int, Portion | Notes]) -> Described | Notes:
    return describe(*portion)


def _portions_of(read: ReadCells, plan: ReadingPlan, workers: Workers) -> PortionsHere | PortionsOnSpark:
    is_plain = read.corpus.kind is not CorpusKind.PARQUET
    pieces = [piece for task in plan.tasks for piece in task]
    size = sum(piece.size if is_plain and packing_of(piece.path) is None else UNPACKED * piece.size for piece in pieces)
    if not workers.is_running and size <= DRIVER_BYTES:
        return PortionsHere(read, plan.tasks, workers.cores)
    return PortionsOnSpark(read, plan.tasks, workers)

"""Own the index of joinable tables of a corpus: one Spark job from its files to what searches ask.

    python -m spark_jobs.join_index --corpus NAME --database-url URL [--master local[*]] ...

Files are read once more, by the rules of refreshes; the tables are those of the served generation. Cells are coded by
tasks, their postings shuffled by value key to others that number the values and write buckets, and the numbers go back
to the rows. All is written by COPY from the executors, and lands at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from pyspark import StorageLevel
from pyspark.sql import SparkSession

from service.core.corpus import CorpusKind
from service.core.errors import SourceError, StateError
from service.core.join_layout import Layout
from service.core.posting_buckets import bits_for
from service.core.records import Int64s
from service.core.row_filters import functions_for
from service.store.corpora import PostgresCorpora
from service.store.corpus_tables import read_tables
from service.store.database import make_engine
from service.store.generation import connect
from service.store.join_loads import BUILD_NAME, SegmentLoad, building
from service.store.migrate import require_current
from service.usecases.corpora import Corpus
from service.usecases.joinable import IndexedTable
from spark_jobs.command_line import add_engine_options, read_secrets
from spark_jobs.corpus_csv_files import CsvFiles
from spark_jobs.corpus_files import corpus_root
from spark_jobs.corpus_sources import list_corpus, plan_reading
from spark_jobs.corpus_tables import Piece
from spark_jobs.hadoop_files import HadoopSettings, hadoop_settings
from spark_jobs.job import run_job
from spark_jobs.join_cells import (
    Described,
    Portion,
    Postings,
    code_range,
    cut_postings,
    describe,
    read_portions,
    row_blocks,
)
from spark_jobs.parallel import telling_job
from spark_jobs.tasks import Telling, telling_errors

PORTION_BITS = 20
"""A portion is numbered by its task, and in so many bits by its place in what the task reads."""

RANGE_CELLS = 4_000_000
MOST_RANGE_BITS = 12
"""Cells that a task gathers of one range of keys, about; there are no more ranges than these bits tell apart."""


@dataclass(frozen=True, slots=True)
class Built:
    """Say what was indexed; `left_out` are tables of the generation that cannot be read, or are not as they were."""

    generation: int
    tables: int
    rows: int
    cells: int
    left_out: int


@dataclass(frozen=True, slots=True)
class ReadCells:
    """Read the portions of a task; picklable."""

    corpus: Corpus
    hadoop: HadoopSettings = field(default_factory=hadoop_settings)

    def __call__(self, task: int, pieces: Iterable[Sequence[Piece]]) -> Iterator[tuple[int, Portion]]:
        with telling_errors():
            files = CsvFiles(*corpus_root(self.corpus.location, self.hadoop), self.corpus.settings)
            portions = (portion for group in pieces for portion in read_portions(files, group))
            for number, portion in enumerate(portions):
                yield task << PORTION_BITS | number, portion


class Plan(NamedTuple):
    """Hold what the tables of the segment are, and where in it those of each portion are, -1: left out."""

    layout: Layout
    tables: list[IndexedTable]
    places: Mapping[int, Int64s]
    bits: int
    range_bits: int


@dataclass(frozen=True, slots=True)
class CutTask:
    """Cut a portion by ranges of keys."""

    plan: Plan

    def __call__(self, portion: tuple[int, Portion]) -> Iterator[tuple[int, Postings]]:
        number, cells = portion
        with telling_errors():
            found = cut_postings(number, cells, self.plan.places[number], self.plan.layout, self.plan.range_bits)
            yield from enumerate(found)


@dataclass(frozen=True, slots=True)
class BucketTask:
    """Write the buckets of a range of keys, and send the values' numbers back to where they are."""

    plan: Plan
    load: SegmentLoad

    def __call__(self, of_range: tuple[int, Iterable[Postings]]) -> Iterator[tuple[int, tuple[Any, Int64s]]]:
        number, postings = of_range
        with telling_errors():
            found = list(postings)
            buckets, numbers = code_range(found, self.plan.bits)
            self.load.copy_buckets(number, buckets)
            for each, of_values in zip(found, numbers, strict=True):
                yield each.portion, (each.codes, of_values)


@dataclass(frozen=True, slots=True)
class RowsTask:
    """Write the rows of a portion."""

    plan: Plan
    load: SegmentLoad

    def __call__(self, cogrouped: tuple[int, tuple[Iterable[Portion], Iterable[tuple[Any, Int64s]]]]) -> int:
        number, (portions, numbered) = cogrouped
        (portion,) = portions
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


def run_build(spark: SparkSession, url: str, name: str) -> Built:
    """Build the index of a corpus and make it the one that is searched.

    Raises SourceError for a corpus whose files cannot be listed, StateError for one that was never refreshed or is
    being indexed; then what is searched stays as it was.
    """
    require_current(url)
    engine = make_engine(url, BUILD_NAME, pool_size=1, max_overflow=0)
    try:
        corpus = PostgresCorpora(engine).named(name)
    finally:
        engine.dispose()
    if corpus.generation is None:
        raise StateError(f"No refresh of the corpus {name!r} has landed yet: subsetd corpus refresh {name} --wait")
    if corpus.kind is not CorpusKind.CSV:
        raise SourceError(f"{name} is of kind {corpus.kind}: so far only corpora of CSV can be indexed for joins.")
    with building(url, corpus.corpus_id):
        return _build(spark, url, corpus, corpus.generation)


def _build(spark: SparkSession, url: str, corpus: Corpus, generation: int) -> Built:
    context = spark.sparkContext
    listing = list_corpus(corpus.location, corpus.kind, corpus.settings)
    reading = plan_reading(corpus.kind, listing, None, context.defaultParallelism)
    count = max(1, len(reading.tasks))
    portions = context.parallelize(reading.tasks, count).mapPartitionsWithIndex(ReadCells(corpus))
    portions = portions.persist(StorageLevel.DISK_ONLY)
    try:
        with telling_job():
            described = portions.map(Telling(_describe)).collect()
        plan, left_out = _plan(described, _served(url, corpus.corpus_id, generation))
        load = SegmentLoad.begin(url, corpus.corpus_id, generation, plan.layout, plan.tables, plan.bits)
        ranges = 1 << plan.range_bits
        with telling_job():
            cut = portions.flatMap(CutTask(plan)).groupByKey(ranges)
            numbered = cut.flatMap(BucketTask(plan, load))
            written = portions.cogroup(numbered, count).map(Telling(RowsTask(plan, load))).sum()
    finally:
        portions.unpersist()
    if written != plan.layout.first_rows[-1]:
        raise StateError(f"{written:,} of {plan.layout.first_rows[-1]:,} rows were written.")
    built = Built(generation, len(plan.tables), int(written), int(plan.layout.first_cells[-1]), left_out)
    report = {"tables": built.tables, "rows": built.rows, "cells": built.cells, "left_out": left_out}
    load.land(ranges + len(described) if described else 0, report)
    return built


def _describe(portion: tuple[int, Portion]) -> Described:
    return describe(*portion)


def _served(url: str, corpus_id: int, generation: int) -> dict[str, tuple[int, int, list[str]]]:
    """Give the number, rows and columns of the tables of a generation by their paths."""
    found = {}
    with connect(url, BUILD_NAME) as connection, connection.cursor() as cursor:
        for block in read_tables(cursor, corpus_id, generation):
            names = block.names.to_pylist()
            for i, path in enumerate(block.paths.to_pylist()):
                of_table = names[block.starts[i] : block.starts[i + 1]]
                found[path] = int(block.numbers[i]), int(block.rows[i]), of_table
    return found


def _plan(described: Sequence[Described], served: Mapping[str, tuple[int, int, list[str]]]) -> tuple[Plan, int]:
    """Order the tables that were read by their paths, and number their rows; count those of `served` left out."""
    read = []
    for portion in described:
        for i, (path, names) in enumerate(zip(portion.paths, portion.names, strict=True)):
            number, rows, columns = served.get(path, (-1, -1, []))
            if rows == portion.rows[i] and columns == list(names):
                of_table = int(portion.widths[i]), int(portion.held[i])
                read.append((number, portion.portion, i, path, columns, rows, *of_table))
    read.sort(key=lambda table: table[3])  # a corpus numbers its tables as tasks have read them
    places = {portion.portion: np.full(len(portion.paths), -1, np.int64) for portion in described}
    for place, (_, portion_number, i, *_) in enumerate(read):
        places[portion_number][i] = place
    heights, widths, held = (np.array([table[part] for table in read], np.int64) for part in (5, 6, 7))
    layout = Layout.of(heights, widths, functions_for(heights, held))
    range_bits = max(1, int(layout.first_cells[-1] // RANGE_CELLS).bit_length())
    try:
        bits = bits_for(sum(portion.values for portion in described))
    except ValueError as error:
        raise SourceError(f"The corpus has too many values: {error}.") from error
    range_bits = min(range_bits, bits, MOST_RANGE_BITS)
    tables = [IndexedTable(number, path, columns) for number, _, _, path, columns, *_ in read]
    return Plan(layout, tables, places, bits, range_bits), len(served) - len(read)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job from the command line. Exit code 0: landed. 1: an error, told on standard error. 130: ended."""
    parser = argparse.ArgumentParser(
        prog="python -m spark_jobs.join_index", description="Index the cells of a corpus, to search joinable tables."
    )
    add_engine_options(parser)
    parser.add_argument("--corpus", required=True, help="name of the corpus")
    given = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    read_secrets(given, "database_url")
    if not given.database_url:
        parser.error("--database-url is needed")
    stopped = "stopped: the index before is searched"
    return run_job(
        given, "join index", lambda start: run_build(start(), given.database_url, given.corpus), _tell, stopped=stopped
    )


def _tell(built: Built) -> int:
    print(f"generation {built.generation}: {built.tables:,} tables, {built.rows:,} rows, {built.cells:,} cells indexed")
    if built.left_out:
        print(f"{built.left_out:,} tables cannot be read or are not as they were: refresh the corpus, index it again")
    return 0


if __name__ == "__main__":
    sys.exit(main())

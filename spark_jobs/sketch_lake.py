"""Own the sketching of a lake: one Spark job from files to the uploaded sketches of their columns.

    python -m spark_jobs.sketch_lake FOLDER --name NAME --database-url URL [--master local[*]] ...

The data is read once, and no value leaves the task that reads it: tasks sketch the columns of what they read (BML 2018,
Algorithm 3), and only sketches are brought together.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from service.core.errors import SourceError
from service.core.sketch_upkeep import DEFAULT_FORM, FixedForm, SketchForm
from service.store.database import make_engine
from service.store.generation import DRIVER_NAME
from service.store.migrate import require_current
from service.store.sketches import FORM
from service.store.source_reader import NOTHING_STORED
from service.store.uploaded_sketches import forget_others, put
from service.usecases.sketched_columns import upload_name
from spark_jobs.bootstrap import TASK_BYTES
from spark_jobs.command_line import (
    add_form_options,
    add_job_options,
    add_reading_options,
    form_of,
    parse_job,
    reading_options,
)
from spark_jobs.job import run_job
from spark_jobs.parallel import run_parallel, telling
from spark_jobs.sketch_files import require_apart
from spark_jobs.sketches import merge_comparable
from spark_jobs.sources import FoldedSource, Options, group_splits, open_source
from spark_jobs.tasks import CountTask, CrashPoint, Payload
from spark_jobs.telling import telling_errors


@dataclass(frozen=True, slots=True)
class LakeSummary:
    """Tell what was sketched: uploaded sketches by their names, and the rows that they are of."""

    names: Sequence[str]
    rows: int
    seconds: float


def sketch_lake(spark: SparkSession, options: Options, form: SketchForm | FixedForm | None = None) -> LakeSummary:
    """Sketch every column of files and keep it as `sketch:NAME.table.column`; of a database the schema is behind NAME.

    Unless a form is given, sketches are of the one that the state's have, if it has some: so they are compared at full
    precision. With `replace` others whose names begin with `NAME.` are forgotten. A job that dies has written whole
    sketches or none. Raises SourceError for data that cannot be read and StateError for a database that cannot be
    written.
    """
    start = time.monotonic()
    url = options.database_url
    assert url is not None
    require_current(url)
    source = open_source(options)
    try:
        if isinstance(source, FoldedSource):
            raise SourceError(f"{source.location}: a lake is of files, or a database. Topics are read by `bootstrap`.")
        tables = source.tables()
        lake = f"{options.name}." if source.kind == "postgres" else ""  # of files it is the schema
        names = [upload_name(f"sketch:{lake}{table}.{column}") for table in tables for column, _ in table.columns]
        require_apart(source.location, names)
        splits = source.splits(options.task_bytes or TASK_BYTES, run_parallel(spark))
        if not splits:
            raise SourceError(f"{source.location}: there is no table to read.")
        context = spark.sparkContext
        total = sum(split.cost for split in splits)
        target = min(options.task_bytes or TASK_BYTES, max(total // (3 * context.defaultParallelism), 1 << 20))
        tasks = group_splits(splits, target)
        form = form or _form(url) or options.sketches or DEFAULT_FORM
        ids = iter(range(len(names)))
        by_table = [[next(ids) for _ in table.columns] for table in tables]
        bits = min(len(names), 2 * context.defaultParallelism).bit_length() - 1
        count = CountTask(
            source.reader(), source.kind == "postgres", tasks, tables, by_table, options.null_tokens, bits,
            context.accumulator(0), CrashPoint(None, 0), sketched=form,
        )  # fmt: skip
        with telling(spark, source, splits):
            sketched = context.parallelize(range(len(tasks)), len(tasks)).mapPartitions(count)
            write = WriteTask(url, form, names, bits)
            rows = sketched.partitionBy(1 << bits, partitionFunc=int).mapPartitionsWithIndex(write).sum()
        try:
            source.confirm()
        except SourceError as error:  # what the tasks have written is committed
            raise SourceError(str(error).replace(NOTHING_STORED, "Sketches of it may be of too little")) from error
    finally:
        source.close()
    if options.replace:
        forget_others(make_engine(url, DRIVER_NAME), f"{options.name}.", names)
    return LakeSummary(names, int(rows), time.monotonic() - start)


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Merge the partial sketches of some columns and write them, in one transaction; picklable.

    Takes a number p and what was sketched of the columns whose numbers are p in their last `bits` bits, gives rows.
    """

    database_url: str
    form: SketchForm | FixedForm
    names: Sequence[str]
    bits: int

    def __call__(self, number: int, payloads: Iterable[tuple[int, Payload]]) -> Iterator[int]:
        with telling_errors():
            rows = 0
            partial: dict[int, list[bytes]] = {}
            for _, payload in payloads:
                if isinstance(payload, tuple):
                    partial.setdefault(payload[0], []).append(payload[1])
                elif not isinstance(payload, bytes):
                    rows += int(payload.sum())
            engine = make_engine(self.database_url, "subsetd sketch task", pool_size=1, max_overflow=0)
            try:
                with engine.begin() as connection:
                    for column in range(number, len(self.names), 1 << self.bits):
                        put(connection, self.names[column], merge_comparable(self.form, partial.pop(column, ())))
            finally:
                engine.dispose()
            yield rows


def _form(url: str) -> SketchForm | None:
    engine = make_engine(url, DRIVER_NAME, pool_size=1, max_overflow=0)
    with engine.connect() as connection:
        row = connection.exec_driver_sql(FORM).one_or_none()
    engine.dispose()
    return None if row is None else SketchForm(*row)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job from the command line; an error is one message on standard error, and exit code 1."""
    parser = argparse.ArgumentParser(
        prog="python -m spark_jobs.sketch_lake",
        description="Sketch all columns of files, by one Spark job, and keep the sketches as sketch:NAME.table.column.",
    )
    add_job_options(parser)
    add_reading_options(parser)
    add_form_options(parser)
    parser.add_argument("--replace", action="store_true", help="forget other sketches whose names begin with NAME.")
    given = parse_job(parser, arguments, "source")
    options = Options(
        given.source,
        given.name,
        given.database_url,
        replace=given.replace,
        task_bytes=given.task_bytes,
        **reading_options(given),
    )

    def run(start: Callable[[], SparkSession]) -> LakeSummary:
        form = form_of(given)  # what is wrong with it is told before Spark starts
        return sketch_lake(start(), options, form)

    return run_job(given, "sketch", run, _tell)


def _tell(summary: LakeSummary) -> int:
    print(f"{len(summary.names):,} columns of {summary.rows:,} rows sketched in {summary.seconds:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

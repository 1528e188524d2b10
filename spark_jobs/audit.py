"""Own the audit: one Spark job that finds the INDs of the tracked tables anew, from all of their stored values.

    python -m spark_jobs.audit --database-url URL [--master local[*]] [--filters paper]

All tasks read one version in one snapshot, by ranges of the value keys. One of them finds the INDs, by the algorithm
that costs less; of a large state they find them where the values are (`service/core/partitioned_inds.py`). Values never
reach the driver: it learns numbers of columns.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import RDD, StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from service.core.audit import ValueFacts, account, compare
from service.core.column_filters import Filters
from service.core.column_sets import ColumnSets, group_columns
from service.core.corpus import CorpusSettings, parse_filters
from service.core.corpus_choices import Algorithm
from service.core.corpus_inds import choose_wanted, find_inds
from service.core.errors import SourceError
from service.core.group_inds import Inds
from service.core.partitioned_inds import Partition, Scope, find_inds_by, make_partition
from service.core.records import Int32s, Keys
from service.store.audits import AuditedState, Place, add_audit, audited_state, read_audited
from service.store.bulk import KeyRange
from service.store.migrate import require_current
from service.usecases.audits import Audit
from spark_jobs.command_line import add_engine_options, parse_job
from spark_jobs.job import run_job
from spark_jobs.many_discovery import ONE_PROCESS_CELLS, with_ids
from spark_jobs.progress import Display, Quiet, make_display, watching
from spark_jobs.session import task_threads
from spark_jobs.telling import telling_errors, told_error

CHOSEN_CELLS = 10_000_000
"""Distinct values of all columns, added up, that one task takes unasked: 0.7 GB. It can estimate both algorithms."""

PARTITION_RECORDS = 500_000
"""Records of one task: values of the state, each with the columns that have it."""

MOST_BITS = 10

EXAMPLES = 20
"""Differences that are kept by name, of either kind."""

Cells = tuple[Int32s, Keys]
"""Columns, each as often as it has values, and the keys of these."""

Read = tuple[ValueFacts, Any]
"""What the values of some key ranges are, and their Partition or Cells."""


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Read key ranges; picklable. Takes their numbers, gives what the values of each are, and its partition.

    It gives these once for each place that has records. With `as_cells` cells take the place of partitions.
    """

    database_url: str
    places: Sequence[Place]
    bits: int
    columns: int
    as_cells: bool = False

    def __call__(self, numbers: Iterable[int]) -> Iterator[Read]:
        everyone = np.ones(self.columns, np.bool_)
        scope = Scope(np.zeros(self.columns, np.int64), everyone, everyone)
        for number, (nth, place) in product(numbers, enumerate(self.places)):
            with telling_errors():
                found = read_audited(self.database_url, place, KeyRange(number, self.bits))
            texts = pa.LargeStringArray.from_buffers(
                len(found), pa.py_buffer(found.value_starts), pa.py_buffer(found.value_data)
            )
            facts = ValueFacts.of(found.attribute_ids, found.starts, texts, self.columns)
            owners = np.repeat(np.arange(len(found)), np.diff(found.starts))
            keys = Keys(found.high[owners], found.low[owners])
            if self.as_cells:
                yield facts, (found.attribute_ids, keys)
            else:
                yield facts, make_partition(number * len(self.places) + nth, found.attribute_ids, keys, scope)


def audit(
    spark: SparkSession | Callable[[], SparkSession],
    url: str,
    filters: Filters,
    display: Display | None = None,
    partitions: int | None = None,
    algorithm: Algorithm | None = None,
) -> Audit:
    """Hold the INDs that are served against those of the stored values, and keep what comes of it.

    `spark` may be a function that starts the session, which is called when there is something to audit. `partitions`
    is rounded to a power of 2. Signatures need all values in one process; rarest-first finds INDs where the values are.
    Without an algorithm a task has the values of a small state and takes the one that costs less; rarest-first has all
    others.
    Raises StateError for a state that cannot be read, or while a bootstrap runs, and SourceError for one that is too
    large for signatures.
    """
    require_current(url)
    start = time.monotonic()
    with audited_state(url) as state:
        running = spark if isinstance(spark, SparkSession) else spark()
        started = time.monotonic()
        try:
            facts, found, ran = _find(running, url, state, display or Quiet(), partitions, algorithm)
        except (PySparkException, Py4JError) as error:
            raise told_error(error) from None
    differences = compare(found, state.served)
    facts = replace(facts, null_only=facts.null_only & ~state.hidden, integers_only=facts.integers_only & ~state.hidden)
    told = account(found, facts.with_rows(state.rows), filters)
    report = {
        "examples": {
            "not_served": _named(state, differences.not_served),
            "not_holding": _named(state, differences.not_holding),
        },
        "filters": {(reason.name or "").lower(): asdict(one) for reason, one in told.by_reason.items()},
        "inds_left": told.inds_left,
        "sketch_only": state.sketch_only,
        "algorithm": ran.value,
        "seconds": {"start Spark": started - start, "find": time.monotonic() - started},
    }
    return add_audit(
        url, state, int(facts.distinct.sum()), len(found.dependent), len(differences.not_served),
        len(differences.not_holding), report,
    )  # fmt: skip


def _find(
    spark: SparkSession,
    url: str,
    state: AuditedState,
    display: Display,
    partitions: int | None,
    algorithm: Algorithm | None,
) -> tuple[ValueFacts, Inds, Algorithm]:
    context = spark.sparkContext
    wanted = partitions or max(state.records // PARTITION_RECORDS, context.defaultParallelism)
    bits = min(int(wanted - 1).bit_length(), MOST_BITS)
    in_one = algorithm is Algorithm.SIGNATURES or (algorithm is None and state.cells <= CHOSEN_CELLS)
    task = ReadTask(url, state.places, bits, len(state.names), in_one)
    read: RDD[Read] = context.parallelize(range(1 << bits), 1 << bits).mapPartitions(task)
    read = read.persist(StorageLevel.DISK_ONLY)
    try:
        with watching(context, display, [("reading values", 1 << bits)], str):
            facts = reduce(ValueFacts.merge, read.map(_facts).collect())
        has_values = facts.distinct > 0
        display.begin("finding INDs")
        if in_one:
            cells = int(facts.distinct.sum())
            if algorithm is not None and cells > ONE_PROCESS_CELLS:
                raise SourceError(
                    f"Signatures need all values in one process, and {cells:,} are more than {ONE_PROCESS_CELLS:,}: "
                    "audit by rarest-first, which finds INDs where the values are."
                )
            threads = task_threads(context)
            one = read.map(_part).coalesce(1).mapPartitions(lambda each: [find_in_one(each, algorithm, threads)])
            ((ran, found),) = one.collect()
            return facts, found, ran

        def each(step: Callable[[Partition], Any]) -> list[Any]:
            return read.map(lambda one: step(one[1])).collect()

        return facts, find_inds_by(each, Scope(facts.distinct, has_values, has_values)), Algorithm.RAREST_FIRST
    finally:
        read.unpersist()


def find_in_one(cells: Iterable[Cells], wanted: Algorithm | None, threads: int) -> tuple[Algorithm, Inds]:
    """Find all INDs by the wanted algorithm, or the one that costs less; signatures have MANY's own parameters."""
    parts = [(np.zeros(0, np.int32), Keys.of(())), *cells]
    owners = np.concatenate([owners for owners, _ in parts])
    order = np.argsort(owners, kind="stable")
    keys = Keys(*(np.concatenate([keys[half] for _, keys in parts])[order] for half in (0, 1)))
    parts.clear()
    column_ids, first = np.unique(owners[order], return_index=True)
    columns = ColumnSets.of_keys(np.append(first, len(owners)), keys)
    everyone = np.ones(len(column_ids), np.bool_)
    groups = group_columns(columns, everyone, everyone)
    algorithm = choose_wanted(groups, wanted).algorithm
    found = find_inds(groups, columns.keys, algorithm, threads=threads)
    blocks = [Inds(*(np.zeros(0, np.int32) for _ in range(3))), *with_ids(found, column_ids)]
    return algorithm, Inds(*(np.concatenate(side) for side in zip(*blocks, strict=True)))


def _facts(one: Read) -> ValueFacts:
    return one[0]


def _part(one: Read) -> Any:
    return one[1]


def _named(state: AuditedState, pairs: Int32s) -> list[list[str]]:
    return [[_name(state, number) for number in pair] for pair in pairs[:EXAMPLES].tolist()]


def _name(state: AuditedState, attribute_id: int) -> str:
    return str(state.names[attribute_id] or f"id:{attribute_id}, which is dropped")


def describe(found: Audit) -> str:
    """Tell what an audit found in a few lines."""
    seconds = (found.ended_at - found.started_at).total_seconds()
    lines = [
        f"version {found.version}: {found.attributes:,} columns with {found.value_count:,} distinct values, "
        f"{found.inds:,} INDs; by {found.algorithm}, {seconds:.1f} s",
        "The INDs that are served are those that hold."
        if not found.differences
        else f"{found.not_served:,} INDs hold and are not served, {found.not_holding:,} are served and do not hold:",
    ]
    for kind, said in (("not_served", "holds and is not served"), ("not_holding", "is served and does not hold")):
        lines += [f"  {a} ⊆ {b} {said}" for a, b in found.report["examples"][kind]]
    lines.append(f"{found.report['inds_left']:,} INDs are left with all of these filters on:")
    for name, one in found.report["filters"].items():
        lines.append(
            f"  {name.replace('_', ' ')}: leaves out {one['dependent_columns']:,} dependent and "
            f"{one['referenced_columns']:,} referenced columns; {one['inds']:,} INDs, {one['inds_alone']:,} of them "
            "by this filter alone"
        )
    if found.report["sketch_only"]:
        lines.append(f"{found.report['sketch_only']:,} columns have no stored values, and so no INDs.")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job from the command line; exit code 1 for an error (a message on standard error) or a difference."""
    parser = argparse.ArgumentParser(
        prog="python -m spark_jobs.audit",
        description="Find the INDs of the tracked tables anew, by one Spark job, and compare them with those served.",
    )
    add_engine_options(parser)
    parser.add_argument("--filters", default="paper", help="filters to give an account of (default: paper)")
    parser.add_argument(
        "--algorithm", choices=list(Algorithm), type=Algorithm, help="how INDs are found (default: by cost)"
    )  # fmt: skip
    parser.add_argument("--partitions", type=int, help="key ranges, rounded to a power of 2 (default: by size)")
    given = parse_job(parser, arguments)
    display = make_display()

    def run(start: Callable[[], SparkSession]) -> Audit:
        def begin() -> SparkSession:
            display.begin("starting Spark")
            return start()

        filters = CorpusSettings.from_json(parse_filters(given.filters)).filters
        return audit(begin, given.database_url, filters, display, given.partitions, given.algorithm)

    return run_job(given, "audit", run, _tell, display)


def _tell(found: Audit) -> int:
    print(describe(found))
    return 1 if found.differences else 0


if __name__ == "__main__":
    sys.exit(main())

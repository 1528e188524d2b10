"""Own the job that indexes the tables of a corpus' served generation for searches of joinable tables.

    python -m spark_jobs.join_index --corpus NAME --database-url URL [--master local[*]] ...

Files are read by the rules of refreshes, and only those that the index has not as they are.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from service.core.errors import StateError
from service.store.corpora import PostgresCorpora
from service.store.corpus_tables import read_tables
from service.store.database import connect, make_engine
from service.store.join_loads import BUILD_NAME, building
from service.store.migrate import require_current
from spark_jobs.command_line import add_engine_options, parse_job
from spark_jobs.corpus_sources import list_corpus
from spark_jobs.job import run_job
from spark_jobs.join_build import Served, build_index
from spark_jobs.many_workers import Workers, local_cores
from spark_jobs.progress import Quiet


def run_build(
    spark: SparkSession | Callable[[], SparkSession], url: str, name: str, cores: int | None = None
) -> Mapping[str, Any]:
    """Bring the index of a corpus to its served generation, and make it the one that is searched; give its report.

    `spark` and `cores` are as `many_refresh.run_refresh` takes them. Raises SourceError for a corpus whose files cannot
    be listed, StateError for one that was never refreshed or is being indexed; then what is searched stays as it was.
    """
    require_current(url)
    engine = make_engine(url, BUILD_NAME, pool_size=1, max_overflow=0)
    try:
        corpus = PostgresCorpora(engine).named(name)
    finally:
        engine.dispose()
    if corpus.generation is None:
        raise StateError(f"No refresh of the corpus {name!r} has landed yet: subsetd corpus refresh {name} --wait")
    with building(url, corpus.corpus_id):
        served = served_tables(url, corpus.corpus_id, corpus.generation)
        listing = list_corpus(corpus.location, corpus.kind, corpus.settings)
        try:
            workers = Workers(spark, Quiet(), {}, cores, [corpus.location])
            new = build_index(url, corpus, corpus.generation, listing, served, workers)
        finally:
            listing.close()
        with connect(url, BUILD_NAME) as connection, connection.cursor() as cursor:
            new.land(cursor)
            connection.commit()
    return {"generation": corpus.generation, **new.report}


def served_tables(url: str, corpus_id: int, generation: int) -> Served:
    """Give the tables of a generation."""
    found = {}
    with connect(url, BUILD_NAME) as connection, connection.cursor() as cursor:
        for block in read_tables(cursor, corpus_id, generation):
            names = block.names.to_pylist()
            for i, path in enumerate(block.paths.to_pylist()):
                of_table = names[block.starts[i] : block.starts[i + 1]]
                found[path] = int(block.numbers[i]), int(block.rows[i]), of_table
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job from the command line. Exit code 0: landed. 1: an error, told on standard error. 130: ended."""
    parser = argparse.ArgumentParser(
        prog="python -m spark_jobs.join_index", description="Index the cells of a corpus, to search joinable tables."
    )
    add_engine_options(parser)
    parser.add_argument("--corpus", required=True, help="name of the corpus")
    given = parse_job(parser, arguments)
    stopped = "stopped: the index before is searched"
    cores = local_cores(given.master)
    return run_job(
        given, "join index", lambda start: run_build(start, given.database_url, given.corpus, cores), _tell,
        stopped=stopped,
    )  # fmt: skip


def _tell(built: Mapping[str, Any]) -> int:
    counts = ", ".join(f"{built[name]:,} {name}" for name in ("tables", "rows", "cells"))
    print(f"generation {built['generation']}: {counts} indexed; {built['read']:,} tables were read")
    if built["left_out"]:
        left_out = f"{built['left_out']:,} tables cannot be read or are not as they were"
        print(f"{left_out}: refresh the corpus, index it again")
    for fault in built["faults"]:
        print(f"  {fault}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

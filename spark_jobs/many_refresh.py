"""Own the refresh of a corpus: one Spark job from its files to a served generation of its INDs.

    python -m spark_jobs.many_refresh --refresh-id N --database-url URL [--data-dir FOLDER] [--master local[*]] ...

Tables that are not as the index has them are read, and INDs looked for among their columns and all others (or among
all, where there is no index). Values never reach the driver. A job that dies leaves the served generation as it was.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from service.core.column_filters import Exclusions, exclude
from service.core.corpus_choices import Algorithm
from service.core.errors import DamagedIndexError, SourceError
from service.store.corpora import PostgresCorpora
from service.store.corpus_loads import REFRESH_NAME, Landed, Load, working_on
from service.store.database import make_engine
from service.store.join_loads import building
from service.store.migrate import require_current
from service.usecases.corpora import Corpus, Refresh, index_folder
from spark_jobs.command_line import add_engine_options, parse_job
from spark_jobs.corpus_faults import unseen_tables
from spark_jobs.corpus_index import CorpusIndex, Manifest, Part
from spark_jobs.corpus_sources import ReadingPlan, ReadResult, ReadTask, list_corpus, plan_reading, reading_settings
from spark_jobs.corpus_state import CorpusState, corpus_state
from spark_jobs.hadoop_files import absolute
from spark_jobs.job import run_job
from spark_jobs.join_build import Served, build_index
from spark_jobs.many_discovery import Search, fits_one_process
from spark_jobs.many_partitions import find_in_partitions, partition_count
from spark_jobs.many_tasks import TOLD_SECONDS, OneProcessTask, ProgressTold, StoreInds
from spark_jobs.many_workers import Workers, local_cores
from spark_jobs.parallel import FAULTS_TOLD, telling_job
from spark_jobs.progress import Display, make_display
from spark_jobs.tasks import CrashPoint

CRASH_POINTS = ("reading", "joining", "storing", "indexing", "landing")

FINDING = "finding INDs"


class ProgressRow(Display):
    """Show progress, and tell it to whoever asks for the refresh; one that is asked to end ends as by a signal."""

    def __init__(self, corpora: PostgresCorpora, refresh_id: int, shown: Display) -> None:
        self._corpora = corpora
        self._refresh_id = refresh_id
        self._shown = shown
        self._stage, self._total, self._told = "", 0, 0.0

    def begin(self, stage: str, total: int | None = None) -> None:
        self._stage, self._total = stage, total or 0
        self._shown.begin(stage, total)
        self._tell(0)

    def update(self, done: int, note: str = "") -> None:
        self._shown.update(done, note)
        if time.monotonic() - self._told > TOLD_SECONDS:
            self._tell(done)

    def close(self) -> None:
        self._shown.close()

    def _tell(self, done: int) -> None:
        self._told = time.monotonic()
        if self._corpora.progress(self._refresh_id, self._stage, done, self._total):
            os.kill(os.getpid(), signal.SIGTERM)


def run_refresh(
    spark: SparkSession | Callable[[], SparkSession],
    url: str,
    refresh_id: int,
    data_dir: Path,
    shown: Display,
    fail_at: str | None = None,
    cores: int | None = None,
) -> Landed:
    """Refresh a corpus and make what was found the served generation.

    `spark` may be a function that starts the session: it is called when there is more to do than the driver does as
    fast with `cores` threads. Raises SourceError
    when too much of the corpus cannot be read, and StateError for a database that cannot be written or a refresh that
    is not to run; then the generation before is served as it was.
    """
    require_current(url)
    engine = make_engine(url, REFRESH_NAME, pool_size=1, max_overflow=1)
    try:
        corpora = PostgresCorpora(engine)
        display = ProgressRow(corpora, refresh_id, shown)
        with ExitStack() as stack:
            corpus, asked = stack.enter_context(working_on(url, refresh_id))
            seconds: dict[str, float] = {}
            crash = CrashPoint(fail_at, os.getpid())
            database = corpora.database()
            index = CorpusIndex(absolute(index_folder(corpus, str(data_dir), database)))
            others = {one.corpus_id: one.name for one in corpora.all() if one.corpus_id != corpus.corpus_id}
            index.claim(database, corpus.corpus_id, others)
            workers = Workers(spark, display, seconds, cores, [corpus.location, f"{index.folder}/owner"])
            try:
                return _Refresh(url, corpus, asked, index, display, workers, seconds, crash, stack).run()
            except DamagedIndexError as error:
                index.keep_only(None)  # it would be found damaged each time
                raise DamagedIndexError(
                    f"{error} The index has been removed: refresh {corpus.name} again, which reads everything."
                ) from error
    finally:
        engine.dispose()


class _Refresh:
    def __init__(
        self,
        url: str,
        corpus: Corpus,
        asked: Refresh,
        index: CorpusIndex,
        display: Display,
        workers: Workers,
        seconds: dict[str, float],
        crash: CrashPoint,
        stack: ExitStack,
    ) -> None:
        self.corpus, self.asked = corpus, asked
        self.settings = corpus.settings
        self.display = display
        self.workers = workers
        self.crash = crash
        self.stack = stack
        self.load = Load.begin(url, asked.refresh_id)
        self.index = index
        self.seconds = seconds
        self.report: dict[str, Any] = {"settings": corpus.settings.to_json(), "seconds": seconds}

    def run(self) -> Landed:
        start = time.monotonic()
        if self.settings.joinable:
            self.stack.enter_context(building(self.load.url, self.corpus.corpus_id))
        with self._stage("listing"):
            listing = list_corpus(self.corpus.location, self.corpus.kind, self.settings)
            self.stack.callback(listing.close)
            previous = self._previous()
        plan = plan_reading(self.corpus.kind, listing, previous, self.workers.cores)
        generation = None if previous is None else previous.generation
        database = None if listing.database is None else listing.database.reader()
        task = ReadTask(self.corpus.location, self.corpus.kind, self.settings, self.index, generation, database)
        results = self.workers.read(plan, task)
        listing.confirm()
        self.crash.reach("reading")
        with self._stage("numbering"):
            load = self.load
            state = corpus_state(
                plan, results, self.settings, load.generation, load.served_tables(), load.next_table, load.next_column
            )
            self._require_enough(plan, results, state)
            exclusions = exclude(state.facts, self.settings.filters)
            versions = state.new_versions(exclusions)
        joins = None
        if self.settings.joinable:
            served = served_by(state.manifest)
            joins = build_index(load.url, self.corpus, load.generation, listing, served, self.workers)
            self.crash.reach("joining")
        self.report["joinable"] = joins and joins.report
        listing.close()
        files = {"read": len(plan.read), "unchanged": len(plan.kept), "gone": plan.gone, "faults": len(state.faults)}
        self._describe(state, exclusions, files)
        changed = None if self.report["full"] else state.changed
        # Written meanwhile: what is found does not change it, and nothing reads it before the generation has landed.
        pool = self.stack.enter_context(ThreadPoolExecutor(1, "subsetd-manifest"))
        saving = pool.submit(self.index.save, state.manifest)
        signed = self._find(state, self._search(state, exclusions, changed))
        manifest = state.manifest
        if signed:
            parts = [signed.get(part.name, part) for part in manifest.parts]
            manifest = replace(manifest, parts=parts)
            saving = pool.submit(self.index.save, manifest)  # behind the other: the pool has one thread
        signing = self.settings.signed_by
        self.report["signatures"] = signing and manifest.signature_counts(signing, previous)
        self.report["spark"] = self.workers.is_running
        with self._stage("indexing"):
            self.crash.reach("indexing")
            self.load.build_indexes()
            saving.result()
        with self._stage("landing"):
            self.crash.reach("landing")
            changed_columns = None if changed is None else state.column_ids[changed]
            self.seconds["total"] = time.monotonic() - start
            landed = self.load.land(versions, state.gone_tables, changed_columns, state.faults, self.report, joins)
        self.index.keep_only(manifest)
        return landed

    def _previous(self) -> Manifest | None:
        """Give the manifest of the served generation, and clear what refreshes that died have left beside it.

        Without one, everything is read and compared; the report says why.
        """
        previous = None
        if self.load.served is None:
            self.report["index"] = "There was none: it is the first generation."
        else:
            try:
                found = self.index.load(self.load.served, reading_settings(self.settings))
                if found.identity != self.load.served_index():
                    raise DamagedIndexError(f"{self.index.folder}: the index is of another history, before a restore.")
                previous = found
                self.report["index"] = "used"
            except DamagedIndexError as error:
                self.report["index"] = str(error)
        self.index.keep_only(previous)
        if self.asked.full:
            self.report["index"] = "Not used: a full refresh was asked for."
            return None
        return previous

    def _require_enough(self, plan: ReadingPlan, results: Sequence[ReadResult], state: CorpusState) -> None:
        """Raise SourceError when there is nothing to land, or too much could not be read."""
        tables, faults, unseen = len(state.manifest.tables), len(state.faults), unseen_tables(plan, results, state)
        failed = faults + unseen
        if failed <= self.settings.max_failed * (tables + failed) and tables:
            return
        self.load.put_faults(state.faults)
        told = [f"{fault.path}: {fault.message}" for fault in state.faults]
        if len(told) > FAULTS_TOLD:
            told[FAULTS_TOLD:] = [f"... and {len(told) - FAULTS_TOLD} more."]
        raise SourceError(
            "\n".join(
                [
                    f"{failed:,} of {tables + failed:,} tables of {self.corpus.name} cannot be read"
                    + (f" ({unseen:,} by the sizes of files that break off)" if unseen else "")
                    + f", and max_failed is {self.settings.max_failed}. Mend or remove them, or allow a larger share: "
                    f"subsetd corpus set {self.corpus.name} --max-failed SHARE.",
                    *told,
                ]
            )
        )

    def _describe(self, state: CorpusState, exclusions: Exclusions, files: dict[str, int]) -> None:
        manifest = state.manifest
        summary = exclusions.summary()
        self.report |= {
            "tables": len(manifest.tables),
            "columns": len(state.column_ids),
            "rows": int(np.sum(manifest.tables["rows"].to_numpy())),
            "index_identity": manifest.identity,
            "changed_columns": int(np.count_nonzero(state.changed)),
            "files": files,
            "filters": {
                side: {str(reason.name).lower(): count for reason, count in found.items()}
                for side, found in summary.items()
            },
            # The best referenced columns of a dependent are known only when all are: some may have gone.
            "full": self.report["index"] != "used" or self.settings.top is not None,
        }

    def _search(self, state: CorpusState, exclusions: Exclusions, changed: Any) -> Search:
        settings = self.settings
        return Search(
            state.column_ids, state.facts.distinct, state.sums, exclusions.dependent == 0, exclusions.referenced == 0,
            settings.filters.coverage, settings.threshold, changed,
            settings.algorithm, settings.parameters, settings.top,
        )  # fmt: skip

    def _find(self, state: CorpusState, search: Search) -> Mapping[str, Part]:
        """Find and store INDs: in one process where all values fit into it, or over partitions.

        Gives the parts that were signed anew for that, by their names.
        """
        self.report |= {"algorithm": Algorithm.RAREST_FIRST.value, "estimates": None, "partitions": 0, "stored": 0}
        if search.changed is not None and not (search.changed & search.examined).any():
            return {}
        parts = state.manifest.part_columns()
        store = StoreInds(self.load, self.crash)
        if self.settings.partitions or not fits_one_process(search):
            start = time.monotonic()
            spark = self.workers.spark
            count = self.settings.partitions or partition_count(search, spark.sparkContext.defaultParallelism)
            with telling_job():
                found = find_in_partitions(
                    spark, self.index, parts, search, count, store,
                    lambda stages: self.workers.watching([(stage, count) for stage in stages]),
                )  # fmt: skip
            self.report |= {"partitions": count, "stored": found}
            self.seconds[FINDING] = time.monotonic() - start
            return {}
        tell = ProgressTold(self.load.url, self.load.refresh_id, FINDING)
        task = OneProcessTask(self.index, parts, {part.name: part for part in state.manifest.parts}, store, tell)
        found, choice, signed = self.workers.find(task, replace(search, sums=search.sums[:0]), FINDING)
        estimates = {name: value for name, value in asdict(choice).items() if name != "algorithm"}
        self.report |= {
            "partitions": 1, "stored": found, "algorithm": choice.algorithm.value, "estimates": estimates
        }  # fmt: skip
        return signed

    @contextmanager
    def _stage(self, stage: str) -> Iterator[None]:
        self.display.begin(stage)
        start = time.monotonic()
        yield
        self.seconds[stage] = time.monotonic() - start


def served_by(manifest: Manifest) -> Served:
    """Give the tables of a generation that is not served yet."""
    columns = (manifest.tables[name].to_pylist() for name in ("path", "table_number", "rows", "names"))
    return {path: tuple(described) for path, *described in zip(*columns, strict=True)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job from the command line.

    Exit code 0: landed. 1: an error, told on standard error. 130: asked to end, by SIGTERM, SIGINT or a cancel.
    """
    parser = argparse.ArgumentParser(
        prog="python -m spark_jobs.many_refresh", description="Find the inclusion dependencies of a corpus anew."
    )
    add_engine_options(parser)
    parser.add_argument("--refresh-id", type=int, required=True, help="number of the refresh, as it was queued")
    parser.add_argument(
        "--data-dir", type=Path, default=Path(), help="where indexes of corpora are, unless they say so"
    )
    parser.add_argument("--on-spark", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--fail-at", choices=CRASH_POINTS, help=argparse.SUPPRESS)
    given = parse_job(parser, arguments)
    display = make_display()

    def run(start: Callable[[], SparkSession]) -> Landed:
        return run_refresh(
            start() if given.on_spark else start, given.database_url, given.refresh_id, given.data_dir, display,
            given.fail_at, local_cores(given.master),
        )  # fmt: skip

    return run_job(given, "refresh", run, _tell, display, "stopped: the generation before is served")


def _tell(landed: Landed) -> int:
    print(
        f"generation {landed.generation}: {landed.inds:,} inclusion dependencies, "
        f"{landed.appeared:,} appeared, {landed.went:,} went"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

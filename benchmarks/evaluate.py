"""Own the command `python -m benchmarks.evaluate FOLDER`: are the answers right on data sets with known ones?"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from time import perf_counter

from rich.console import Console

from benchmarks import fk_evaluate, table_changes
from benchmarks.context import Context
from benchmarks.corpora import column_sets, read_corpus
from benchmarks.corpus_refreshes import served_inds
from benchmarks.data_sets import GENERATED, DataSet, Part, Unavailable, described, generate, published
from benchmarks.feeds import write_feed
from benchmarks.processes import CommandFailed
from benchmarks.reference import Column, ind_hash
from benchmarks.state import Server, consume
from benchmarks.state_comparison import differences, inds, read_state
from service.core.column_sets import group_columns
from service.core.corpus import CorpusKind, CorpusSettings
from service.core.corpus_choices import Algorithm
from service.core.corpus_inds import find_inds
from service.core.errors import SubsetdError
from service.store import migrate
from service.store.corpora import PostgresCorpora
from service.store.database import make_engine
from service.store.embedded import EmbeddedPostgres
from service.usecases.corpora import NewCorpus

SEED = 7
CHANGES = 2_000
CHANGED_SETS = ("chinook", "gtfs_cairns", "mondial", "northwind", "pagila")
TEMPLATE = "evaluate_template"

Bootstrap = Callable[[Path, str, str], object]
"""Bootstrap (folder, name, database address) with '' as NULL also when quoted."""

Refresh = Callable[[Path, str, str], Sequence[tuple[Column, Column]]]
"""Refresh the same as a corpus, and give the INDs that are served then."""


@dataclass(slots=True)
class Outcome:
    """Hold a printed row: what was expected, what was found, what differs."""

    name: str
    expected: str
    found: str
    seconds: float
    faults: list[str] = field(default_factory=list)

    def line(self) -> str:
        verdict = "ok" if not self.faults else "DIFFERS: " + "; ".join(self.faults)
        return f"{self.name:34} {self.expected:>28} {self.found:>28} {self.seconds:6.1f} s  {verdict}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Evaluate all data sets and print a row for each; return 1 if any differs, 2 if there is nothing to evaluate."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evaluate", description=__doc__)
    parser.add_argument("folder", type=Path, help="data sets: folders or .tar.zst files, and stats.json")
    parser.add_argument("--only", action="append", metavar="SET", help="evaluate only this data set (repeatable)")
    parser.add_argument("--results", type=Path, help="file of results that the figures of foreign keys go into")
    options = parser.parse_args(arguments)
    if options.only and options.results:
        parser.error("--results replaces the figures of all data sets: leave --only out")
    console = Console(soft_wrap=True)
    wanted = set(options.only or [])
    work = Path(tempfile.mkdtemp(prefix="subsetd-evaluate-"))
    judged = 0
    try:
        described(options.folder)  # before a Postgres and a Spark are started for nothing
        with EmbeddedPostgres(work / "postgres", throw_away=True) as postgres, _jobs(work) as (bootstrap, refresh):
            evaluation = Evaluation(Context(console, SEED, work), Server(postgres), bootstrap, refresh)
            console.print(f"Seed {SEED}. Set, known INDs and found INDs (hashes of the sorted lists compared), seconds")
            outcomes = list(evaluation.run(options.folder, wanted))
        if not wanted:
            console.print("Foreign keys: each database by what was learnt on the others, left out in groups")
            kept = ["--results", str(options.results)] if options.results else []
            judged = fk_evaluate.main([str(options.folder), "--folds", "6", "--each", *kept])
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(work, ignore_errors=True)
    differing = [outcome.name for outcome in outcomes if outcome.faults]
    if not outcomes:
        console.print(f"no data set is named {', '.join(sorted(wanted))}")
        return 1
    console.print(f"{len(outcomes)} rows, {len(differing)} differ" + (f": {', '.join(differing)}" if differing else ""))
    return 1 if differing else judged


@dataclass(slots=True)
class Evaluation:
    """Evaluate data sets, each in a throw-away database of its own."""

    context: Context
    postgres: Server
    bootstrap: Bootstrap
    refresh: Refresh

    def run(self, folder: Path, wanted: set[str]) -> Iterator[Outcome]:
        """Yield and print the outcomes of the sets that are `wanted` (all, when none is named)."""
        migrate.upgrade(self.postgres.create(TEMPLATE))
        changed = []
        for data_set in published(folder, self.context.work / "data"):
            if not wanted or data_set.name in wanted:
                yield self._row(data_set.name, partial(self.static, data_set))
                yield self._row(f"{data_set.name} as a corpus", partial(self.corpus, data_set))
                if data_set.name in CHANGED_SETS:
                    changed.append(data_set)
        for name in GENERATED:
            if not wanted or name in wanted:
                yield self._row(name, partial(self.made, name))
        for data_set in changed:
            name = f"{data_set.name} after {CHANGES} changes"
            yield self._row(name, partial(self.live, data_set.parts[0]))

    def _row(self, name: str, evaluate: Callable[[], Outcome]) -> Outcome:
        """Evaluate and print one row; whatever goes wrong costs this row and no other."""
        try:
            outcome = evaluate()
        except (SubsetdError, Unavailable, CommandFailed) as error:
            outcome = Outcome(name, "", "-", 0, [str(error)])
        except Exception as error:  # not one of ours: the row needs its traceback
            traceback.print_exc()
            outcome = Outcome(name, "", "-", 0, [repr(error)])
        self.context.say(outcome.line())
        return outcome

    def static(self, data_set: DataSet) -> Outcome:
        """Bootstrap every database of a set and compare its INDs with the known ones."""
        started = perf_counter()
        expected, found, faults = 0, 0, []
        for part in data_set.parts:
            expected += part.inds
            with self._database() as url:
                self.bootstrap(part.tables, part.name, url)
                count, sha256 = ind_hash(inds(url, part.prefix))
            found += count
            faults += _faults(part, count, sha256)
        databases = f" ({len(data_set.parts)} databases)" if len(data_set.parts) > 1 else ""
        return Outcome(data_set.name + databases, f"{expected} INDs", f"{found} INDs", perf_counter() - started, faults)

    def corpus(self, data_set: DataSet) -> Outcome:
        """Refresh every database of a set as a corpus, and find its INDs by both algorithms; compare with the known."""
        started = perf_counter()
        expected, found, faults = 0, 0, []
        for part in data_set.parts:
            expected += part.inds
            columns = read_corpus(part.tables)
            names = [(part.prefix + file, place) for file, place in columns.names]
            sets = column_sets(*columns.texts())
            examined = sets.sizes > 0
            groups = group_columns(sets, examined, examined)
            for algorithm in Algorithm:
                blocks = find_inds(groups, sets.keys, algorithm)
                pairs = (pair for block in blocks for pair in zip(*(side.tolist() for side in block[:2]), strict=True))
                count, sha256 = ind_hash((names[a], names[b]) for a, b in pairs)
                faults += [f"{algorithm}: {fault}" for fault in _faults(part, count, sha256)]
            with self._database() as url:
                served = self.refresh(part.tables, part.name, url)
            count, sha256 = ind_hash(((part.prefix + a, i), (part.prefix + b, j)) for (a, i), (b, j) in served)
            faults += [f"refresh: {fault}" for fault in _faults(part, count, sha256)]
            found += count
        return Outcome(
            f"{data_set.name} as a corpus", f"{expected} INDs", f"{found} INDs", perf_counter() - started, faults
        )

    def made(self, name: str) -> Outcome:
        """Make a data set that is not stored, and do the same with it."""
        return self.static(generate(name, self.context.work))

    def live(self, part: Part) -> Outcome:
        """Follow random changes of a bootstrapped database; the state must equal a bootstrap of the changed tables."""
        started = perf_counter()
        work = self.context.work / f"{part.name}-changed"
        tables = table_changes.read_tables(part.tables)
        changes = table_changes.change_randomly(tables, CHANGES, Random(f"{SEED} {part.name}"))
        feed = write_feed(work / "changes.jsonl", changes, part.name, tables.columns)
        with self._database("followed") as url, self._database("anew") as other:
            self.bootstrap(part.tables, part.name, url)
            before = set(inds(url))
            consume(self.context, self.postgres, "followed", feed)
            self.bootstrap(table_changes.write_tables(tables, work / "tables"), part.name, other)
            followed, anew = read_state(url), read_state(other)
            after = set(inds(url))
        turnover = f"{followed['INDs'].total()} INDs (+{len(after - before)} -{len(before - after)})"
        return Outcome(
            f"{part.name} after {len(changes)} changes",
            f"{anew['INDs'].total()} INDs, {anew['gen_recs'].total()} recs",
            turnover,
            perf_counter() - started,
            differences(followed, anew),
        )

    @contextmanager
    def _database(self, name: str = "evaluated") -> Iterator[str]:
        with self.postgres.clone(TEMPLATE, name) as url:
            yield url


def _faults(part: Part, count: int, sha256: str) -> list[str]:
    """Say how a list of INDs differs from the known one."""
    if count != part.inds:
        return [f"{part.name}: {count} INDs, not {part.inds}"]
    return [f"{part.name}: the number is right, the hash is not"] if sha256 != part.sha256 else []


@contextmanager
def _jobs(work: Path) -> Iterator[tuple[Bootstrap, Refresh]]:
    """Start one Spark session for all jobs."""
    from spark_jobs.bootstrap import run_bootstrap
    from spark_jobs.many_refresh import run_refresh
    from spark_jobs.progress import Quiet
    from spark_jobs.session import local_session
    from spark_jobs.sources import Options

    spark = local_session()

    def bootstrap(folder: Path, name: str, url: str) -> object:
        return run_bootstrap(spark, Options(source=str(folder), name=name, database_url=url, null_tokens=("",)))

    def refresh(folder: Path, name: str, url: str) -> Sequence[tuple[Column, Column]]:
        engine = make_engine(url, "evaluation")
        try:
            corpora = PostgresCorpora(engine)
            corpora.add(NewCorpus(name, str(folder), CorpusKind.CSV, CorpusSettings(null_tokens=("",))))
            asked = corpora.request_refresh(name, requested_by="evaluation")
            run_refresh(spark, url, asked.refresh_id, work, Quiet())
            with corpora.snapshot(name) as snapshot:
                return [(dependent, referenced) for dependent, referenced, _ in served_inds(snapshot)]
        finally:
            engine.dispose()

    try:
        yield bootstrap, refresh
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())

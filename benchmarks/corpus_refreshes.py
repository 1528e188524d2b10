"""Own the refreshing of corpora by the commands that users type, and the tables that rows refresh."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import processes
from benchmarks.context import Context, subsetd
from benchmarks.corpora import is_own
from benchmarks.reference import Column
from benchmarks.state import Server, environment
from benchmarks.web_corpus import WebCorpus
from service.store.corpora import PostgresCorpora
from service.store.database import make_engine
from service.usecases.corpora_ports import CorpusSnapshot

MASTER = "local[2]"

SPARK_START = """
import sys
from spark_jobs.session import session
spark = session(sys.argv[1])
spark.sparkContext.parallelize(range(2), 2).map(abs).collect()
spark.stop()
"""


@dataclass(frozen=True, slots=True)
class Refreshed:
    """Hold a refresh: seconds from the command to its end and of its landing, peaks of memory, and its report.

    CPU and `peak_bytes` are of everything but Postgres, `workers_peak_bytes` of Spark's Python workers alone.
    """

    seconds: float
    cpu_seconds: float
    landing: float
    peak_bytes: int
    workers_peak_bytes: int
    postgres_peak_bytes: int
    report: Mapping[str, Any]

    @property
    def stored_per_second(self) -> float:
        """Give INDs by the seconds of finding, storing, indexing and landing them."""
        seconds: float = self.report["seconds"]["finding INDs"] + self.indexing + self.landing
        return self.report["stored"] / seconds

    @property
    def indexing(self) -> float:
        """Give the seconds of building indexes."""
        seconds: float = self.report["seconds"]["indexing"]
        return seconds


@dataclass(frozen=True, slots=True)
class BenchmarkedCorpus:
    """Be a corpus in a database of its own."""

    context: Context
    postgres: Server
    name: str

    def add(self, folder: Path, *options: str) -> None:
        """Register a folder."""
        self.postgres.create(self.name)
        shutil.rmtree(self._data_dir, ignore_errors=True)
        self._run("add", self.name, folder, *options)

    def refresh(self, *options: str) -> Refreshed:
        """Refresh it, start of everything included."""
        measured = self._run("refresh", self.name, "--wait", *options)
        engine = make_engine(self.postgres.url(self.name), "benchmark")
        last = PostgresCorpora(engine).refreshes(self.name, limit=1)[0]
        engine.dispose()
        assert last.report is not None
        assert last.ended_at is not None
        assert last.stage_started_at is not None  # of the landing, which is the last stage
        self.context.say(f"{self.name}: {measured.seconds:.1f} s, {json.dumps(last.report)}")
        return Refreshed(
            measured.seconds,
            measured.usage.cpu_seconds,
            (last.ended_at - last.stage_started_at).total_seconds(),
            measured.usage.peak_bytes,
            measured.usage.workers_peak_bytes,
            measured.beside["postgres"].peak_bytes,
            last.report,
        )

    def index(self) -> processes.Measured:
        """Build its join index, start of everything included."""
        return self._run("index", self.name, "--wait")

    @property
    def _data_dir(self) -> Path:
        return self.context.work / f"corpus-{self.name}"

    def _run(self, command: str, *arguments: str | Path) -> processes.Measured:
        return processes.run(
            [subsetd(), "corpus", command, *arguments],
            log=self.context.logs / f"corpus-{command}-{self.name}.log",
            environment={
                **environment(self.postgres.url(self.name)),
                **as_installed(self.context),
                "SUBSETD_SPARK_MASTER": MASTER,
                "SUBSETD_DATA_DIR": str(self._data_dir),
            },
            beside={"postgres": self.postgres.pid},
        )


def refresh_compiled(corpus: BenchmarkedCorpus, folder: Path, *options: str) -> Refreshed:
    """Refresh a folder twice, each time anew, and give the second.

    The first compiles the modules and kernels that commands and tasks load, which each installation does once: of 29 s
    in a new work folder 19.
    """
    for _ in range(2):
        corpus.add(folder, *options)
        one = corpus.refresh()
    return one


def served_columns(snapshot: CorpusSnapshot) -> dict[int, Column]:
    """Give the columns of a generation by their ids."""
    return {
        first + position: (path, position)
        for block in snapshot.stream_tables()
        for path, first, width in zip(
            block.paths.to_pylist(), block.first_columns.tolist(), np.diff(block.starts).tolist(), strict=True
        )
        for position in range(width)
    }


def served_inds(snapshot: CorpusSnapshot) -> Iterator[tuple[Column, Column, int]]:
    """Yield the INDs of a generation with the values that are in both columns."""
    columns = served_columns(snapshot)
    for block in snapshot.stream_pairs():
        for dependent, referenced, overlap in zip(*(side.tolist() for side in block), strict=True):
            yield columns[dependent], columns[referenced], overlap


def spark_start(context: Context) -> float:
    """Measure how long Spark takes to start, to run two tasks that do nothing, and to end."""
    return start_spark(context).seconds


def start_spark(context: Context) -> processes.Measured:
    """Start Spark, run two tasks that do nothing, and end it."""
    command = [sys.executable, "-c", SPARK_START, MASTER]
    return processes.run(command, log=context.logs / "spark-start.log", environment=as_installed(context))


def as_installed(context: Context) -> dict[str, str]:
    """Let commands find modules compiled, as those of an installed package are, whatever the environment says."""
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(context.work / "pycache")}


def write_copies(tables: Path, count: int, folder: Path) -> Path:
    """Write copies of a folder of CSV tables as `corpora.copies` makes them; give where they are."""
    if folder.exists():
        return folder
    for path in sorted(tables.rglob("*.csv")):
        with path.open(encoding="utf-8", newline="") as lines:
            header, *rows = csv.reader(lines)
        own = {value for row in rows for value in row if value and is_own(value)}
        for copy in range(count):
            target = folder.with_suffix(".part") / str(copy) / path.relative_to(tables)
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("w", encoding="utf-8", newline="") as out:
                writer = csv.writer(out)
                writer.writerow(header)
                writer.writerows([f"{value}~{copy}" if value in own else value for value in row] for row in rows)
    return folder.with_suffix(".part").rename(folder)


def write_json_lines(corpus: WebCorpus, folder: Path, tables_in_file: int = 1024) -> Path:
    """Write a made corpus as JSON lines, a table a line; NULLs stand behind the values of a column, as ''.

    A copy of a shorter column, which has fewer rows than its table, stands in a table of its own.
    """
    if folder.exists():
        return folder
    part = folder.with_suffix(".part")
    part.mkdir(parents=True, exist_ok=True)
    starts, rows = corpus.starts.tolist(), corpus.rows.tolist()
    for first in range(0, corpus.tables, tables_in_file):
        bounds = corpus.first_columns[first : first + tables_in_file + 1].tolist()
        begin = starts[bounds[0]]
        texts = replace(corpus, values=corpus.values[begin : starts[bounds[-1]]]).texts()
        with (part / f"{first:08}.jsonl").open("w", encoding="utf-8") as out:
            for low, high in pairwise(bounds):
                tables: dict[int, list[list[str]]] = {}
                for c in range(low, high):
                    values = texts[starts[c] - begin : starts[c + 1] - begin]
                    column = [f"c{c}", *values, *[""] * (rows[c] - len(values))]
                    tables.setdefault(rows[c], []).append(column)
                for relation in tables.values():
                    table = {"relation": relation, "hasHeader": True, "tableOrientation": "HORIZONTAL"}
                    out.write(json.dumps(table, ensure_ascii=False) + "\n")
    return part.rename(folder)


def change_tables(folder: Path, share: float, seed: int, spread: bool = False) -> int:
    """Give some of the tables of JSON lines one more row, of values that are nowhere else; give how many.

    They stand together in as few files as can be or, with `spread`, in all.
    """
    files = sorted(folder.iterdir())
    texts = [path.read_text("utf-8").splitlines() for path in files]
    every = round(1 / share)
    left = sum(map(len, texts)) // every
    changed = 0
    for path, lines in zip(files, texts, strict=True):
        chosen = range(0, len(lines), every) if spread else range(min(left - changed, len(lines)))
        for number in chosen:
            table = json.loads(lines[number])
            for place, column in enumerate(table["relation"]):
                column.append(f"new {seed} {path.name} {number} {place}")
            lines[number] = json.dumps(table, ensure_ascii=False)
        changed += len(chosen)
        if chosen:
            path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return changed


def options_for(filters: str) -> Sequence[str]:
    """Give the options under which a corpus is read as the benchmarks read it: '' is NULL."""
    return ("--null-token", "", "--filters", filters)

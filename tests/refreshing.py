"""Own what the tests of refreshes share: a corpus in a folder that is registered, refreshed, and read back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import uuid4

from hypothesis import strategies as st
from pyspark.sql import SparkSession

from benchmarks.corpus_refreshes import served_columns, served_inds
from benchmarks.reference import Column
from service.core.corpus import CorpusKind, CorpusSettings
from service.store.corpora import PostgresCorpora
from service.store.corpus_loads import Landed
from service.store.database import make_engine
from service.usecases.corpora import NewCorpus, Refresh
from spark_jobs.many_refresh import run_refresh
from spark_jobs.progress import Quiet

ROOT = Path(__file__).resolve().parents[1]

Tables = dict[str, list[list[str]]]
"""The columns of tables, by their paths."""

_TABLE = st.integers(1, 3).flatmap(
    lambda rows: st.lists(st.lists(st.sampled_from(CELLS), min_size=rows, max_size=rows), min_size=1, max_size=3)
)
CELLS = [*"abcd12", "x y"]
LAKES = st.dictionaries(st.sampled_from([f"{n % 2}/t{n}.csv" for n in range(7)]), _TABLE, min_size=2, max_size=7)


class Lake:
    """Be a corpus of CSV files in a folder, which may have an address."""

    def __init__(
        self, url: str, folder: Path, kind: CorpusKind = CorpusKind.CSV, address: str | None = None, **settings: Any
    ) -> None:
        self.url, self.folder = url, folder
        self.data_dir = folder.parent / f"data-{uuid4().hex}"
        self.corpora = PostgresCorpora(make_engine(url, "test"))
        self.name = f"lake-{uuid4().hex[:8]}"
        self.corpora.add(NewCorpus(self.name, address or str(folder), kind, CorpusSettings.from_json(settings)))

    def queue(self, *, full: bool = False) -> int:
        """Ask for a refresh; give its number."""
        return self.corpora.request_refresh(self.name, full=full, requested_by="test").refresh_id

    def refresh(self, spark: SparkSession | Callable[[], SparkSession], *, full: bool = False) -> Landed:
        """Refresh here."""
        return run_refresh(spark, self.url, self.queue(full=full), self.data_dir, Quiet())

    def change(self, settings: Mapping[str, Any]) -> None:
        """Change some settings."""
        self.corpora.change(self.name, lambda corpus: replace(corpus, settings=corpus.settings.changed(settings)))

    def last(self) -> Refresh:
        """Give the newest refresh."""
        return self.corpora.refreshes(self.name, limit=1)[0]

    @property
    def report(self) -> Mapping[str, Any]:
        """Give what the newest refresh reported."""
        report = self.last().report
        assert report is not None
        return report

    def columns(self) -> dict[int, Column]:
        """Give all served columns by their ids."""
        with self.corpora.snapshot(self.name) as snapshot:
            return served_columns(snapshot)

    def inds(self) -> dict[tuple[Column, Column], int]:
        """Give all served INDs with their overlaps; one that is there twice fails."""
        with self.corpora.snapshot(self.name) as snapshot:
            rows = [((dependent, referenced), overlap) for dependent, referenced, overlap in served_inds(snapshot)]
        assert len(dict(rows)) == len(rows)
        return dict(rows)


@contextmanager
def refreshing(
    lake: Lake,
    *arguments: str,
    master: str = "local[2]",
    refresh_id: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """Run the job as the service does, the address on its standard input."""
    process = subprocess.Popen(
        [sys.executable, "-m", "spark_jobs.many_refresh", "--refresh-id", str(refresh_id or lake.queue()),
         "--database-url", "-", "--data-dir", str(lake.data_dir), "--master", master, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env=environment,
    )  # fmt: skip
    assert process.stdin
    process.stdin.write(f"{lake.url}\n")
    process.stdin.flush()
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def expected_inds(
    columns: Mapping[Column, set[str]], threshold: Fraction = Fraction(1), coverage: Fraction = Fraction(0)
) -> dict[tuple[Column, Column], int]:
    """Compare every column with every other."""
    return {
        (a, b): len(left & right)
        for a, left in columns.items()
        for b, right in columns.items()
        if a != b and left and right
        if len(left & right) >= threshold * len(left) and len(left & right) >= coverage * len(right)
    }


def values_of(tables: Tables) -> dict[Column, set[str]]:
    """Give the values of each column, without NULLs."""
    return {(path, n): set(cells) - {""} for path, columns in tables.items() for n, cells in enumerate(columns)}


def write_tables(folder: Path, tables: Mapping[str, Sequence[Sequence[str]]]) -> None:
    """Write tables of columns as CSV, and remove all others."""
    for path in folder.rglob("*.csv"):
        if path.relative_to(folder).as_posix() not in tables:
            path.unlink()
    for name, columns in tables.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [[f"c{n}" for n in range(len(columns))], *zip(*columns, strict=True)]
        text = "".join(",".join(row) + "\n" for row in rows)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)

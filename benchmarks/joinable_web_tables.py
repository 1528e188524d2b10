"""Own 16,000 web tables and their join index in Postgres, as the commands that users type make them, and their queries.

There are 2,000 real ones; the rest are their copies, each with half of the values (by CRC-32) for itself.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

from benchmarks.context import Context
from benchmarks.corpus_refreshes import BenchmarkedCorpus, options_for, write_copies
from benchmarks.data_sets import unpack
from benchmarks.joinable_lakes import ARCHIVES
from benchmarks.rows.many_webtables import unpacked
from benchmarks.state import Server, at_revision, one
from service.store.database import make_engine
from service.store.join_index import PostgresJoinIndexes
from service.usecases.joinable import JoinableTable, JoinQuery, find_joinable

COPIES = 8

LONG, MIXED = "of one table", "of several tables"
ROWS = 100
SIZES = (2, 3)
K = 10


class Table(NamedTuple):
    """Hold a table by its path in the corpus; '' is empty."""

    path: str
    rows: list[list[str]]


class Query(NamedTuple):
    """Hold ROWS rows of key cells, and where they are from: LONG or MIXED."""

    kind: str
    rows: list[list[str]]

    @property
    def size(self) -> int:
        """Give the number of key columns."""
        return len(self.rows[0])


@dataclass(frozen=True, slots=True)
class IndexedCorpus:
    """Be a corpus of CSV files in a database of its name, which stays for the next row."""

    corpus: BenchmarkedCorpus
    folder: Path

    @property
    def url(self) -> str:
        """Give the address of its database."""
        return self.corpus.postgres.url(self.corpus.name)

    def refreshed(self) -> None:
        """See that a generation of it is served by this schema."""
        if not self._has("SELECT count(*) FROM corpus WHERE generation IS NOT NULL"):
            self.corpus.add(self.folder, *options_for("paper"))
            self.corpus.refresh()

    def indexed(self) -> None:
        """See that it has a join index, from an earlier row or made now."""
        self.refreshed()
        if not self._has("SELECT count(*) FROM join_index"):
            self.corpus.index()

    def csv_bytes(self) -> int:
        """Give the size of its files."""
        return sum(path.stat().st_size for path in self.folder.rglob("*.csv"))

    @contextmanager
    def searching(self) -> Iterator[Callable[[Query], Sequence[JoinableTable]]]:
        """Open what a service has for its searches, and give the search for K tables."""
        engine = make_engine(self.url, "benchmark", pool_size=1)
        indexes = PostgresJoinIndexes(engine)

        def search(query: Query) -> Sequence[JoinableTable]:
            with indexes.snapshot(self.corpus.name) as snapshot:
                return find_joinable(snapshot, JoinQuery(list(zip(*query.rows, strict=True))), K).tables

        try:
            yield search
        finally:
            engine.dispose()

    def _has(self, statement: str) -> bool:
        postgres, name = self.corpus.postgres, self.corpus.name
        if not at_revision(postgres, name):
            return False
        with postgres.connection(name) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return bool(one(cursor))


def read_tables(folder: Path) -> list[Table]:
    """Read the tables of a folder, by their paths."""
    files = sorted((path.relative_to(folder).as_posix(), path) for path in folder.rglob("*.csv"))
    tables = []
    for name, path in files:
        with path.open(encoding="utf-8", newline="") as lines:
            _, *rows = csv.reader(lines)
        tables.append(Table(name, rows))
    return tables


def web_tables(context: Context, postgres: Server) -> IndexedCorpus:
    """Give the web tables, whose files are written once."""
    return _copied(context, postgres, "mate_web_tables", unpacked(context.work), f"webtables-x{COPIES}")


def large_tables(context: Context, postgres: Server) -> IndexedCorpus:
    """Give copies of the tables of `lake_owid`, whose values are numbered: 8 million cells, 1,600 rows a table."""
    lake = unpack(ARCHIVES / "lakes" / "lake_owid_numbered.tar.zst", context.work) / "lake_owid"
    return _copied(context, postgres, "mate_large_tables", lake, f"owid-x{COPIES}")


def _copied(context: Context, postgres: Server, name: str, lake: Path, copies: str) -> IndexedCorpus:
    folder = write_copies(lake / "tables", COPIES, context.work / copies)
    return IndexedCorpus(BenchmarkedCorpus(context, postgres, name), folder)


def draw_queries(tables: list[Table], count: int, random: Random) -> list[Query]:
    """Draw queries of each kind and size in turn.

    LONG ones are rows of a table that has so many, MIXED ones all rows of tables that are drawn until there are enough:
    web tables have 17 rows on average.
    """
    wide = [table for table in tables if table.rows and len(table.rows[0]) >= max(SIZES)]
    drawn_from = {LONG: [table for table in wide if len(table.rows) >= ROWS], MIXED: wide}
    every = [(kind, size) for kind in drawn_from for size in SIZES]
    queries = []
    for number in range(count):
        kind, size = every[number % len(every)]
        rows: list[list[str]] = []
        while len(rows) < ROWS:
            table = random.choice(drawn_from[kind])
            columns = random.sample(range(len(table.rows[0])), size)
            chosen = random.sample(table.rows, min(len(table.rows), ROWS - len(rows)))
            rows += [[row[column] for column in columns] for row in chosen]
        queries.append(Query(kind, rows))
    return queries

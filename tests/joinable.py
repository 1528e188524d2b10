"""Own what the tests of join indexes share: building one without Spark, and the search of the same files in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count as count_from
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.joinable_lakes import read_lake
from service.core.canonical import value_key
from service.core.joinability import top_joinable
from service.core.row_filters import CountedBits
from service.store.database import connect, make_engine
from service.store.join_index import PostgresJoinIndexes
from service.store.join_loads import NewIndex, SegmentLoad, StoredSegment
from service.usecases.joinable import JoinAnswer, JoinQuery, find_joinable
from spark_jobs.corpus_sources import list_corpus, plan_reading
from spark_jobs.join_build import PortionsHere, ReadCells, make_plan
from spark_jobs.join_cells import Described
from spark_jobs.join_index import run_build, served_tables
from tests.refreshing import Lake


def no_spark() -> Any:
    """Be asked for Spark where it is not needed."""
    raise AssertionError("Spark is started")


class Build:
    """Be a build of all tables whose tasks run here, one by one."""

    def __init__(self, lake: Lake) -> None:
        corpus = lake.corpora.named(lake.name)
        assert corpus.generation is not None
        self.url, self.corpus, self.generation = lake.url, corpus, corpus.generation
        listing = list_corpus(corpus.location, corpus.kind, corpus.settings)
        # So few bytes that each file is a task.
        reading = plan_reading(corpus.kind, listing, None, 2, 1)
        self.portions = PortionsHere(ReadCells(corpus, None), reading.tasks, 2)
        described = [each for each in self.portions.describe() if isinstance(each, Described)]
        served = served_tables(lake.url, corpus.corpus_id, corpus.generation)
        self.plan = make_plan(described, [], listing, served)
        self.left_out = len(served) - len(self.plan.tables)
        self.load = SegmentLoad.begin(lake.url, corpus.corpus_id, self.plan.layout, self.plan.tables, self.plan.bits)
        self.tasks = self.plan.tasks

    def run(self) -> int:
        """Write what the tasks write; give the rows."""
        return self.portions.write(self.plan, self.load)

    def land(self) -> None:
        """Land it."""
        segment = StoredSegment(
            self.load.segment_id, self.plan.bits, self.plan.layout, dict(enumerate(self.plan.tables))
        )
        new = NewIndex(
            self.corpus.corpus_id, self.generation, {}, [segment], {segment.segment_id: self.tasks}, {}
        )  # fmt: skip
        with connect(self.url, "test") as connection, connection.cursor() as cursor:
            new.land(cursor)
            connection.commit()


def index(lake: Lake) -> Mapping[str, Any]:
    """Bring the index of a lake to its served generation, without Spark."""
    return run_build(no_spark, lake.url, lake.name, 2)


def build(lake: Lake) -> None:
    """Refresh a lake, and bring its index to that."""
    lake.refresh(no_spark)
    index(lake)


@contextmanager
def indexes_of(url: str) -> Iterator[PostgresJoinIndexes]:
    """Give the indexes of a database."""
    engine = make_engine(url, "test", pool_size=2, max_overflow=0)
    try:
        yield PostgresJoinIndexes(engine)
    finally:
        engine.dispose()


def ask(url: str, name: str, rows: Sequence[Sequence[str]], k: int, most: int | None = None) -> JoinAnswer:
    """Search the index of a corpus."""
    with indexes_of(url) as indexes:
        return find_in(indexes, name, JoinQuery(list(zip(*rows, strict=True))), k, most)


def find_in(indexes: PostgresJoinIndexes, name: str, query: JoinQuery, *asked: Any, **options: Any) -> JoinAnswer:
    """Search the index of a corpus as `find_joinable` does."""
    with indexes.snapshot(name) as snapshot:
        return find_joinable(snapshot, query, *asked, **options)


def told(answer: JoinAnswer) -> list[tuple[str, tuple[int, ...], int]]:
    """Give the tables of an answer by the names of their files."""
    return [(Path(table.table).stem, table.positions, table.matched_keys) for table in answer.tables]


def crowding(count: int, first_bits: int) -> list[str]:
    """Give texts whose keys begin with so many zeros."""
    texts = map(str, count_from(0))
    return list(islice((text for text in texts if not int(value_key(text).hex(), 16) >> 128 - first_bits), count))


class InMemory:
    """Search the tables of `folder`/tables, whose names are in one order with and without their endings."""

    def __init__(self, folder: Path) -> None:
        self._lake = read_lake(folder)
        self._ids = {text: number for number, text in enumerate(self._lake.values.to_pylist())}
        self._rows = CountedBits.of(self._lake.index, self._lake.keys())

    def top(self, rows: Sequence[Sequence[str]], k: int) -> list[tuple[str, tuple[int, ...], int]]:
        """Give the k best tables as `told` does."""
        keys = np.array([[self._ids.get(cell, -1) for cell in row] for row in rows], np.int64)
        return [(self._lake.tables[t], *found) for t, *found in top_joinable(self._lake.index, self._rows, keys, k)]

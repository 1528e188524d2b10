"""What the tests of corpora share: refreshes with given tables and INDs, without reading or discovering anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from service.core.corpus import CorpusKind, CorpusSettings
from service.core.group_inds import Inds
from service.core.records import starts_of
from service.store.corpora import PostgresCorpora
from service.store.corpus_loads import Landed, Load, working_on
from service.store.database import make_engine
from service.usecases.corpora import CorpusFault, NewCorpus, TableVersions
from tests import states

Rows = set[tuple[int, int, int]]
"""(dependent, referenced, overlap)"""


class GivenTable(NamedTuple):
    """Describe a table: its number, path, first column and names, and of each column distinct values and reasons."""

    number: int
    path: str
    first_column: int
    names: Sequence[str]
    distinct: Sequence[int] = ()
    dependent_reasons: Sequence[int] = ()
    referenced_reasons: Sequence[int] = ()
    rows: int = 10


def versions(tables: Iterable[GivenTable]) -> TableVersions:
    """Give tables as a refresh does, with 10 distinct values and no reasons where none are given."""
    found = list(tables)

    def cells(name: str, default: int) -> list[int]:
        return [cell for table in found for cell in (getattr(table, name) or [default] * len(table.names))]

    return TableVersions(
        numbers=np.array([table.number for table in found], np.int32),
        paths=pa.array([table.path for table in found], pa.large_string()),
        rows=np.array([table.rows for table in found], np.int64),
        first_columns=np.array([table.first_column for table in found], np.int32),
        starts=starts_of(np.array([len(table.names) for table in found], np.int64)),
        names=pa.array([name for table in found for name in table.names], pa.large_string()),
        distinct=np.array(cells("distinct", 10), np.int32),
        dependent_reasons=np.array(cells("dependent_reasons", 0), np.uint8),
        referenced_reasons=np.array(cells("referenced_reasons", 0), np.uint8),
    )


def inds_of(rows: Iterable[tuple[int, int, int]]) -> Inds:
    """Give INDs as a kernel does."""
    return Inds(*np.array(sorted(rows), np.int32).reshape(-1, 3).T.copy())


def rows_of(blocks: Iterable[Inds]) -> list[tuple[int, int, int]]:
    """Give INDs one by one, in their order."""
    return [row for inds in blocks for row in zip(*(side.tolist() for side in inds), strict=True)]


class GivenCorpus:
    """Be a registered corpus whose refreshes find what they are given."""

    def __init__(self, url: str, name: str = "lake", settings: CorpusSettings | None = None) -> None:
        self.url, self.name = url, name
        self.corpora = PostgresCorpora(make_engine(url, "test"))
        self.corpora.add(NewCorpus(name, "/lake", CorpusKind.CSV, settings or CorpusSettings()))

    def refresh(
        self,
        rows: Iterable[tuple[int, int, int]],
        tables: Iterable[GivenTable] = (),
        *,
        gone: Sequence[int] = (),
        changed: Iterable[int] | None = None,
        faults: Sequence[CorpusFault] = (),
        **report: Any,
    ) -> Landed:
        """Land INDs that two tasks bring, with the tables that are new or changed; see `Load.land`."""
        with working_on(self.url, self.queue()) as (_, refresh):
            load = self.load(rows, refresh.refresh_id)
            columns = None if changed is None else np.array(sorted(changed), np.int32)
            return load.land(versions(tables), np.array(gone, np.int32), columns, faults, report)

    def index(self) -> None:
        """Give it an index of joinable tables that has none of them."""
        corpus = self.corpora.named(self.name)
        states.execute(
            self.url,
            "insert into join_index (corpus_id, generation, segment_ids, reading, report) "
            f"values ({corpus.corpus_id}, {corpus.generation}, '{{}}', '{{}}', '{{}}')",
        )

    def queue(self) -> int:
        """Ask for a refresh; give its id."""
        return self.corpora.request_refresh(self.name, requested_by="test").refresh_id

    def load(self, rows: Iterable[tuple[int, int, int]], refresh_id: int | None = None) -> Load:
        """Make the load of a refresh that works on the corpus, ready to be landed."""
        load = Load.begin(self.url, refresh_id or self.corpora.running()[0][0].refresh_id)
        found = sorted(rows)
        for task in range(2):
            load.copy(task, [inds_of(found[task::2])])
        load.build_indexes()
        return load


COLUMNS = 3
"""Of each `table`."""

WHOLE = {(left, right, 10) for left in range(6) for right in range(6) if left != right and (left, right) != (5, 0)}
"""All pairs of the six columns of two tables, but for (5, 0)."""


def table(number: int, rows: int = 10) -> GivenTable:
    return GivenTable(number, f"t{number}.csv", COLUMNS * number, ["a", "b", "c"], rows=rows)


def load_tables(url: str) -> list[str]:
    found = "select relname from pg_class where relkind = 'r' and relname ~ '^corpus_ind_l' order by 1"
    return [name for (name,) in states.query(url, found)]


def served(corpus: GivenCorpus, generation: int | None = None) -> list[tuple[int, int, int]]:
    with corpus.corpora.snapshot(corpus.name, generation) as snapshot:
        return rows_of(snapshot.stream_pairs())


def whole_corpus(url: str) -> GivenCorpus:
    """Give a corpus with two tables, of which `WHOLE` is served."""
    corpus = GivenCorpus(url)
    corpus.refresh(WHOLE, [table(0), table(1)])
    return corpus


def is_locked(url: str, name: str, *, granted: bool) -> bool:
    """Say whether somebody has, or waits for, a lock on a table or of this type."""
    of_these = f"granted = {granted} and (relation = to_regclass('{name}') or locktype = '{name}')"
    return states.query(url, f"select exists (select from pg_locks where {of_these})") == [(True,)]

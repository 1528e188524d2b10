"""Own what is told of joinable tables beyond their ranks: where they lead, and what their matching rows hold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import NamedTuple, Protocol

import pyarrow as pa  # type: ignore[import-untyped]

from service.core.errors import SourceError
from service.core.joinability import MOST_PAIRS, Telling, untold
from service.core.near_matches import Near, folded
from service.usecases.corpora_ports import Corpora
from service.usecases.joinable import (
    JoinableTable,
    JoinAnswer,
    JoinIndexes,
    JoinQuery,
    JoinQuestion,
    JoinSnapshot,
    cut,
    find_joinable,
    require_askable,
)
from service.usecases.joinable_leads import lead_by_state, lead_on
from service.usecases.ports import StateSnapshot


class TooLongError(Exception):
    """A search is too long to be answered at once."""


class TableRows(NamedTuple):
    """Hold rows of a table as they are read now: cells by row, None for NULL; or the fault why they are not."""

    rows: Mapping[int, Sequence[str | None]]
    fault: str | None = None


class JoinSearch:
    """Answer questions whole: searched, with the tables that each leads to, and the rows of previews."""

    def __init__(self, indexes: JoinIndexes, tracked: TrackedTables, corpora: Corpora, read: RowReader) -> None:
        """Search the indexes of corpora, and of tracked tables."""
        self._indexes = indexes
        self._tracked = tracked
        self._corpora = corpora
        self._read = read

    def answer(
        self,
        query: JoinQuery,
        question: JoinQuestion,
        most: int | None = MOST_PAIRS,
        tell: Telling = untold,
        left: Callable[[], float] | None = None,
    ) -> JoinAnswer:
        """Answer; `left` gives the seconds for who waits, in which rows are read only if nothing is left unfinished.

        Raises NotFoundError, what `find_joinable` does, and TooLongError where the seconds left do not do for rows and
        for the tables that others lead to.
        """

        def look() -> None:
            if left is not None and left() < 0:
                raise TooLongError

        require_askable(query, question)
        if question.corpus is None:
            with self._tracked.snapshot() as state:
                found = _find(state, query, question, most, tell)
                return lead_by_state(state.state, state.names, found, question.through, look)
        with self._indexes.snapshot(question.corpus) as snapshot:
            found = _find(snapshot, query, question, most, tell)
        if left is not None and found.unfinished:
            return found
        found = lead_on(self._corpora, question.corpus, found, question.through, look)
        return show_values(self._read, question.corpus, found, left and left())

    def require_index(self, corpus: str | None, near: Collection[Near] | None) -> None:
        """Raise NotFoundError where there is no such corpus, or no index of it, or of no tracked table.

        Raises SourceError for an index whose cells are folded otherwise than by `near`.
        """
        if corpus is None:
            self._tracked.require_index()
            require_near(None, frozenset(), near)
            return
        with self._indexes.snapshot(corpus) as snapshot:
            require_near(corpus, snapshot.near, near)


def _find(
    snapshot: JoinSnapshot, query: JoinQuery, question: JoinQuestion, most: int | None, tell: Telling
) -> JoinAnswer:
    require_near(question.corpus, snapshot.near, question.near)
    return find_joinable(
        snapshot,
        query,
        question.k,
        most,
        min_share=question.min_share,
        preview=question.preview,
        near=question.near,
        tell=tell,
    )


class TrackedSnapshot(JoinSnapshot, Protocol):
    """Hold the version of the state that is searched, and schema and table of each table by the path it is told by."""

    @property
    def state(self) -> StateSnapshot: ...
    @property
    def names(self) -> Mapping[str, tuple[str, str]]: ...


class TrackedTables(Protocol):
    """Open the index of tracked tables."""

    def snapshot(self) -> AbstractContextManager[TrackedSnapshot]:
        """Open it as of the newest version; raise NotFoundError where no table is indexed."""

    def require_index(self) -> None:
        """Raise NotFoundError where no table is indexed, without looking further."""


class RowReader(Protocol):
    """Read rows of tables of a corpus, by their paths and numbers from 0.

    Raises TooLongError where it takes longer than `seconds`; without, the fault of what takes too long says so.
    """

    def __call__(
        self, corpus: str, wanted: Mapping[str, Sequence[int]], seconds: float | None = None
    ) -> Mapping[str, TableRows]: ...


def require_near(corpus: str | None, indexed: frozenset[Near], near: Collection[Near] | None) -> None:
    """Raise SourceError for a question about cells that are folded otherwise than those of the index."""
    if near is None or indexed == frozenset(near):
        return
    if corpus is None:
        others = set(near) - {Near.NUMBERS}  # which their columns of numbers are: canonical
        if others:
            raise SourceError(
                f"Tracked tables are searched with their cells as they are, and not {_told(others)}: their index is "
                "made of value keys, of which no others can be made. A corpus of the same tables can have near matches."
            )
        return
    wanted = " ".join(f"--near {one}" for one in sorted(near)) or "--unset near"
    raise SourceError(
        f"The index of {corpus} has its cells {_told(indexed)}, and not {_told(near)}. It keeps keys of cells, of "
        f"which no others can be made: `subsetd corpus set {corpus} {wanted}`, then index it again; or add the "
        f"same location as another corpus."
    )


def _told(near: Collection[Near]) -> str:
    return f"folded by {' and '.join(sorted(near))}" if near else "as they are"


def show_values(read: RowReader, corpus: str, answer: JoinAnswer, seconds: float | None) -> JoinAnswer:
    """Fill in what the rows of the previews hold.

    A file may be another one by now: a row that has not the key any more shows nothing, and the fault says so.
    """
    wanted = {
        table.table: [row.row for row in table.preview if row.row is not None]
        for table in answer.tables
        if table.preview
    }
    if not wanted:
        return answer
    found = read(corpus, wanted, seconds)
    shown = [_shown(table, found[table.table], answer.near) if table.preview else table for table in answer.tables]
    return replace(answer, tables=shown)


def _shown(table: JoinableTable, found: TableRows, near: Sequence[Near]) -> JoinableTable:
    if found.fault is not None:
        return replace(table, preview_fault=found.fault)
    fault = None
    preview = []
    for row in table.preview:
        cells = () if row.row is None else found.rows.get(row.row, ())
        width = len(table.columns) + len(table.new_columns)
        if len(cells) == width and _folded([cells[place] for place in table.positions], near) == row.key:
            others = (cell for place, cell in enumerate(cells) if place not in table.positions)
            preview.append(replace(row, values=tuple(map(cut, others))))
        else:
            preview.append(row)
            fault = "The table is not as it was when it was indexed: refresh the corpus, and index it again."
    return replace(table, preview=tuple(preview), preview_fault=fault)


def _folded(cells: Sequence[str | None], near: Sequence[Near]) -> tuple[str | None, ...]:
    return tuple(folded(pa.array(cells, pa.large_string()), near).to_pylist())

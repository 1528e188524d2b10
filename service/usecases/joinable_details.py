"""Own what is told of joinable tables beyond their ranks: where they lead, and what their matching rows hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import pyarrow as pa  # type: ignore[import-untyped]

from service.core.errors import NotFoundError
from service.core.joinability import MOST_PAIRS, Telling, untold
from service.core.near_matches import Near, folded
from service.usecases.corpora import ColumnFilter, CorpusInd
from service.usecases.corpora_ports import Corpora, CorpusSnapshot
from service.usecases.joinable import (
    JoinableTable,
    JoinAnswer,
    JoinIndexes,
    JoinQuery,
    JoinQuestion,
    LeadsTo,
    find_joinable,
)

INDS_LOOKED_AT = 1000
"""INDs of a table that are looked at for the tables it leads to, the first by the ids of their columns."""
CELL_CHARACTERS = 200
"""What is shown of a cell."""


class TableRows(NamedTuple):
    """Hold rows of a table as they are read now: cells by row, None for NULL; or the fault why they are not."""

    rows: Mapping[int, Sequence[str | None]]
    fault: str | None = None


class JoinSearch:
    """Answer questions whole: searched, with the tables that each leads to, and the rows of previews."""

    def __init__(self, indexes: JoinIndexes, corpora: Corpora, read: RowReader) -> None:
        self._indexes = indexes
        self._corpora = corpora
        self._read = read

    def answer(
        self, query: JoinQuery, question: JoinQuestion, most: int | None = MOST_PAIRS, tell: Telling = untold
    ) -> JoinAnswer:
        """Answer; raises what `find_joinable` does."""
        found = find_joinable(
            self._indexes,
            question.corpus,
            query,
            question.k,
            most,
            min_share=question.min_share,
            preview=question.preview,
            near=question.near,
            tell=tell,
        )
        found = lead_on(self._corpora, question.corpus, found, question.through)
        return show_values(self._read, question.corpus, found)

    def require_index(self, corpus: str) -> None:
        """Raise NotFoundError where there is no such corpus, or no index of it."""
        with self._indexes.snapshot(corpus):
            pass


class RowReader(Protocol):
    """Read rows of tables of a corpus, by their paths and numbers from 0."""

    def __call__(self, corpus: str, wanted: Mapping[str, Sequence[int]]) -> Mapping[str, TableRows]: ...


def lead_on(corpora: Corpora, corpus: str, answer: JoinAnswer, through: int) -> JoinAnswer:
    """Name up to `through` other tables that each table leads to, by the INDs of the generation that was indexed.

    Those whose column ours covers most come first, equals by their paths: there our table is likeliest to refer to.
    """
    if not through:
        return answer
    try:
        with corpora.snapshot(corpus, answer.generation) as snapshot:
            tables = [replace(table, leads_to=_leads_of(snapshot, table.table, through)) for table in answer.tables]
    except NotFoundError:
        return answer
    return replace(answer, tables=tables)


def _leads_of(snapshot: CorpusSnapshot, path: str, through: int) -> tuple[LeadsTo, ...]:
    best: dict[str, CorpusInd] = {}
    for ind in snapshot.inds(ColumnFilter(path), limit=INDS_LOOKED_AT):
        other = ind.referenced.table
        if other != path and (other not in best or ind.coverage > best[other].coverage):
            best[other] = ind
    ranked = sorted(best.values(), key=lambda ind: (-ind.coverage, ind.referenced.table))
    return tuple(
        LeadsTo(
            ind.referenced.table,
            ind.dependent.name,
            ind.dependent.position,
            ind.referenced.name,
            ind.referenced.position,
            ind.coverage,
        )
        for ind in ranked[:through]
    )


def show_values(read: RowReader, corpus: str, answer: JoinAnswer) -> JoinAnswer:
    """Fill in what the rows of the previews hold.

    A file may be another one by now: a row that has not the key any more shows nothing, and the fault says so.
    """
    wanted = {table.table: [row.row for row in table.preview] for table in answer.tables if table.preview}
    if not wanted:
        return answer
    found = read(corpus, wanted)
    shown = [_shown(table, found[table.table], answer.near) if table.preview else table for table in answer.tables]
    return replace(answer, tables=shown)


def _shown(table: JoinableTable, found: TableRows, near: Sequence[Near]) -> JoinableTable:
    if found.fault is not None:
        return replace(table, preview_fault=found.fault)
    fault = None
    preview = []
    for row in table.preview:
        cells = found.rows.get(row.row, ())
        width = len(table.columns) + len(table.new_columns)
        if len(cells) == width and _folded([cells[place] for place in table.positions], near) == row.key:
            others = (cell for place, cell in enumerate(cells) if place not in table.positions)
            preview.append(replace(row, values=tuple(cell and cell[:CELL_CHARACTERS] for cell in others)))
        else:
            preview.append(row)
            fault = "The table is not as it was when it was indexed: refresh the corpus, and index it again."
    return replace(table, preview=tuple(preview), preview_fault=fault)


def _folded(cells: Sequence[str | None], near: Sequence[Near]) -> tuple[str | None, ...]:
    return tuple(folded(pa.array(cells, pa.large_string()), near).to_pylist())

"""Own the routes about what a refresh found: INDs, one pair, what changed, tables, columns, and the export."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Annotated
from urllib.parse import unquote

from fastapi import APIRouter, Path, Query
from fastapi.responses import StreamingResponse

from service.api import corpus_schemas as shapes
from service.api import cursors, examples
from service.api.asking_corpora import CorpusAsked, CorpusPath
from service.api.problems import documented
from service.core.errors import SourceError
from service.usecases import corpus_answers
from service.usecases.answers import Key
from service.usecases.corpora import ColumnFilter
from service.usecases.corpus_export import ExportFormat, export

router = APIRouter(prefix="/api/v1/corpora/{corpus}", tags=["corpora"])

# The corpus, of which another may have the name by now, and the generation go before the key of its list.
INDS = cursors.Cursors("corpus-inds", "iiii")
CHANGES = cursors.Cursors("corpus-changes", "iiii")
TABLES = cursors.Cursors("corpus-tables", "iii")
COLUMNS = cursors.Cursors("corpus-columns", "iii")

CSV, PARQUET = "text/csv", "application/vnd.apache.parquet"
MEDIA_TYPES = {ExportFormat.CSV: CSV, ExportFormat.PARQUET: PARQUET}

_answered = partial(examples.answered, etag=("corpus and generation, quoted", '"1-2"'))

TablePath = Annotated[
    str,
    Path(
        description="path of a table below the corpus, percent-encoded (`/` as `%2F`)",
        openapi_examples={"a table": {"value": "2019/orders.csv"}},
    ),
]


@router.get("/inds", responses=_answered("A page of inclusion dependencies") | documented(404, 422, 500, 503))
def list_corpus_inds(
    asked: CorpusAsked, corpus: CorpusPath, question: Annotated[shapes.IndsQuestion, Query()]
) -> shapes.IndsPage:
    """List the inclusion dependencies of a corpus, or those of one side, by the ids of both columns."""
    corpus_id, generation, after = _begin(INDS, question)
    dependent = _side("dependent", question.dependent_table, question.dependent_position)
    referenced = _side("referenced", question.referenced_table, question.referenced_position)
    with asked.snapshot(corpus, generation, corpus_id) as snapshot:
        asked.stop_if_known()
        page = corpus_answers.inds(snapshot, dependent, referenced, after, question.limit)
        return shapes.IndsPage.page(snapshot, INDS, page, shapes.Ind.model_validate)


@router.get("/pair", responses=_answered("One pair") | documented(404, 422, 500, 503))
def show_corpus_pair(
    asked: CorpusAsked, corpus: CorpusPath, question: Annotated[shapes.PairQuestion, Query()]
) -> shapes.CorpusPair:
    """Say of two columns whether one is in the other, and where it is not listed, whether the pair was examined."""
    with asked.snapshot(corpus, question.generation) as snapshot:
        dependent = ColumnFilter(question.dependent_table, question.dependent_position)
        referenced = ColumnFilter(question.referenced_table, question.referenced_position)
        answer = snapshot.pair(dependent, referenced)
        asked.stop_if_known()
        return shapes.CorpusPair.of(snapshot.corpus.name, answer)


@router.get("/changes", responses=_answered("A page of changes") | documented(404, 422, 500, 503))
def list_corpus_changes(
    asked: CorpusAsked, corpus: CorpusPath, question: Annotated[shapes.GenerationPageQuestion, Query()]
) -> shapes.CorpusChangesPage:
    """List the inclusion dependencies that appeared or went between the generation before and this one."""
    corpus_id, generation, after = _begin(CHANGES, question)
    with asked.snapshot(corpus, generation, corpus_id) as snapshot:
        asked.stop_if_known()
        page = corpus_answers.changes(snapshot, after, question.limit)
        return shapes.CorpusChangesPage.page(
            snapshot, CHANGES, page, shapes.Change.model_validate, since=snapshot.generation - 1
        )


@router.get("/tables", responses=_answered("A page of tables") | documented(404, 422, 500, 503))
def list_corpus_tables(
    asked: CorpusAsked, corpus: CorpusPath, question: Annotated[shapes.GenerationPageQuestion, Query()]
) -> shapes.TablesPage:
    """List the tables of a corpus by their numbers."""
    corpus_id, generation, after = _begin(TABLES, question)
    with asked.snapshot(corpus, generation, corpus_id) as snapshot:
        asked.stop_if_known()
        page = corpus_answers.tables(snapshot, after, question.limit)
        return shapes.TablesPage.page(snapshot, TABLES, page, shapes.Table.model_validate)


@router.get("/tables/{table}/columns", responses=_answered("A page of columns") | documented(404, 422, 500, 503))
def list_corpus_columns(
    asked: CorpusAsked,
    corpus: CorpusPath,
    table: TablePath,
    question: Annotated[shapes.GenerationPageQuestion, Query()],
) -> shapes.ColumnsPage:
    """List the columns of a table, with the filters that leave them out."""
    corpus_id, generation, after = _begin(COLUMNS, question)
    with asked.snapshot(corpus, generation, corpus_id) as snapshot:
        page = corpus_answers.columns(snapshot, unquote(table), after, question.limit)
        asked.stop_if_known()
        return shapes.ColumnsPage.page(snapshot, COLUMNS, page, shapes.Column.of)


@router.get(
    "/export",
    response_class=StreamingResponse,
    responses=_answered("All inclusion dependencies", CSV, PARQUET) | documented(404, 422, 500, 503),
)
def export_corpus(
    asked: CorpusAsked, corpus: CorpusPath, question: Annotated[shapes.ExportQuestion, Query()]
) -> StreamingResponse:
    """Give all inclusion dependencies as one file: both columns of each by table and position."""
    with ExitStack() as stack:
        snapshot = stack.enter_context(asked.snapshot(corpus, question.generation))
        asked.stop_if_known()
        opened = stack.pop_all()

    def body() -> Iterator[bytes]:
        with opened:
            yield from export(snapshot, question.format)

    return StreamingResponse(body(), media_type=MEDIA_TYPES[question.format], headers=asked.headers)


def _begin(
    written: cursors.Cursors, question: shapes.GenerationPageQuestion
) -> tuple[int | None, int | None, Key | None]:
    """Give the corpus (None: the one of the name) and the generation to read, and the key behind which to begin.

    A cursor goes on in the generation of the corpus that it is from.
    """
    place, key = cursors.generation_of(written.decode(question.cursor))
    if place is None:
        return None, question.generation, None
    corpus_id, generation = place
    if question.generation not in (None, generation):
        raise cursors.CursorError(f"The cursor is of generation {generation}: leave out `generation`, or the cursor.")
    return corpus_id, generation, key


def _side(name: str, table: str | None, position: int | None) -> ColumnFilter:
    if position is not None and table is None:
        raise SourceError(f"{name}_position names a column of a table: give {name}_table as well.")
    return ColumnFilter(table, position)

"""Own the routes about inclusion coefficients: of one pair, one column against all, the largest, a matrix."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from service.api import coefficient_schemas as shapes
from service.api import cursors, examples, matrices
from service.api.asking import Asked, Asking, DependentPath, ReferencedPath, column_from_path
from service.api.problems import documented
from service.usecases import coefficients
from service.usecases.answers import AttributeFilter, UploadedSketch
from service.usecases.coefficient_table import EXACT, Method, Question
from service.usecases.ports import StateSnapshot
from service.usecases.sketched_columns import choices_of, resolve

router = APIRouter(prefix="/api/v1/coefficients", tags=["inclusion coefficients"])

COEFFICIENTS = cursors.Cursors("coefficients", "issiisfiis")
"""The place of a dependent among all columns, and of a coefficient among those of its dependent."""


@router.get(
    "",
    responses=examples.answered("A page of inclusion coefficients") | documented(404, 409, 422, 500, 503),
)
def list_coefficients(
    asked: Asked, question: Annotated[shapes.CoefficientsQuestion, Query()]
) -> shapes.CoefficientsPage:
    """List inclusion coefficients: of one pair, of one column against all, the `top` ones, or of all pairs.

    Of one pair the coefficient shows whatever it is. Of many those show that reach `min_coefficient`, for each
    dependent the largest first. The work of a page is bounded: it may be short, even empty, and still have a
    `next_cursor`. Estimates are had of 1,000 columns at most, the `top` ones of 250,000 pairs.
    """
    after = COEFFICIENTS.decode(question.cursor)
    with asked.snapshot() as snapshot:
        wanted = _question(snapshot, question, question.min_coefficient)
        _name_answer(asked, snapshot, wanted)
        if question.dependent is not None and question.referenced is not None:
            pair = resolve(snapshot, question.dependent), resolve(snapshot, question.referenced)
            page = coefficients.CoefficientPage([coefficients.pair(snapshot, *pair, wanted.method)], None, {})
            asked.stop_if_known()
        else:
            asked.stop_if_known()
            if question.top is None:
                page = coefficients.page(snapshot, wanted, after, question.limit)
            else:
                page = coefficients.top(snapshot, wanted, question.top)
    return shapes.CoefficientsPage.page(
        snapshot.head, COEFFICIENTS, page, shapes.Coefficient.of, level=question.level, left_out=len(page.left_out)
    )


@router.get(
    "/matrix",
    response_class=Response,
    responses=examples.answered("The matrix", matrices.CSV, matrices.ARROW) | documented(404, 406, 409, 422, 500, 503),
)
def get_matrix(request: Request, asked: Asked, question: Annotated[shapes.MatrixQuestion, Query()]) -> Response:
    """Give the coefficients of all pairs chosen: a row for each dependent, a column for each referenced one.

    As CSV or, with `Accept: application/vnd.apache.arrow.stream`, as an Arrow IPC stream. A cell is empty (null) where
    there is no coefficient: the dependent has no values, or a column no usable sketch. Of a column with itself it is 1.
    A matrix has 250,000 cells at most, and estimates of 1,000 columns. Its coefficients take estimated numbers of
    values for exact, its intervals (`plane`) do not; the schema of the Arrow stream says which it is.
    """
    media_type = matrices.preferred(request.headers.get("accept"))
    if media_type is None:
        raise HTTPException(406, f"A matrix is to be had as {matrices.CSV} or {matrices.ARROW}: name one in Accept.")
    with asked.snapshot() as snapshot:
        wanted = _question(snapshot, question, None)
        _name_answer(asked, snapshot, wanted)
        asked.depends_on_accept("csv" if media_type == matrices.CSV else "arrow")
        asked.stop_if_known()
        matrix = coefficients.matrix(snapshot, wanted, question.plane)
    if media_type == matrices.CSV:
        body = matrices.to_csv(matrix)
    else:
        told = {
            "version": snapshot.head.version,
            "method": question.method or "default",
            "level": question.level,
            "plane": question.plane,
            "estimated_sizes": "exact" if question.plane is coefficients.Plane.COEFFICIENT else "estimated",
        }
        body = matrices.to_arrow(matrix, {name: str(value) for name, value in told.items()})
    return Response(body, media_type=media_type, headers=dict(asked.headers))


@router.get(
    "/{dependent}/{referenced}",
    responses=examples.answered("One pair, by every method") | documented(404, 409, 422, 500, 503),
)
def compare(
    asked: Asked,
    dependent: DependentPath,
    referenced: ReferencedPath,
    question: Annotated[shapes.LevelQuestion, Query()],
) -> shapes.PairEstimates:
    """Give one pair's coefficient by every method, each with its interval, and say what the two sketches are."""
    with asked.snapshot() as snapshot:
        pair = column_from_path(snapshot, dependent), column_from_path(snapshot, referenced)
        asked.depends_on_sketches(snapshot)
        if any(isinstance(one, UploadedSketch) for one in pair):
            asked.depends_on_uploads(snapshot)
        found = coefficients.compare(snapshot, *pair, question.level)
        asked.stop_if_known()
    return shapes.PairEstimates.of(snapshot.head, question.level, found)


def _question(snapshot: StateSnapshot, asked: shapes.PairsQuestion, threshold: float | None) -> Question:
    dependents = AttributeFilter(schema=asked.dependent_schema, table=asked.dependent_table)
    referenced = AttributeFilter(schema=asked.referenced_schema, table=asked.referenced_table)
    sides = (asked.dependent, dependents), (asked.referenced, referenced)
    return Question(
        *choices_of(snapshot, *sides, asked.with_uploaded),
        Method(asked.method, asked.level),
        threshold,
        asked.min_distinct,
    )


def _name_answer(asked: Asking, snapshot: StateSnapshot, wanted: Question) -> None:
    """Name the answer after what it is made of beside the version."""
    if wanted.method.name != EXACT:
        asked.depends_on_sketches(snapshot)
    if any(one.has_uploads for one in (wanted.dependents, wanted.referenced)):
        asked.depends_on_uploads(snapshot)

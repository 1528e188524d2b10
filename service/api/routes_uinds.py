"""Own the routes about pairs of attributes: INDs, one pair, missing values, changes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from service.api import cursors, examples, schemas
from service.api.asking import Asked, DependentPath, ReferencedPath, from_path, sides
from service.api.problems import documented
from service.usecases import coefficient_history, queries
from service.usecases.answers import TransitionFilter

router = APIRouter(prefix="/api/v1", tags=["inclusion dependencies"])

UINDS = cursors.Cursors("uinds", "ii")
MISSING = cursors.Cursors("missing", "iu")
HISTORY = cursors.Cursors("history", "i")
NEWEST_CHANGES = cursors.Cursors("newest_changes", "iii")


@router.get(
    "/uinds",
    responses=examples.answered("A page of inclusion dependencies") | documented(404, 409, 422, 500, 503),
)
def list_uinds(asked: Asked, question: Annotated[schemas.UindsQuestion, Query()]) -> schemas.UindsPage:
    """List the inclusion dependencies that hold, or held at the version `as_of`, by the ids of both sides."""
    after = UINDS.decode(question.cursor)
    with asked.snapshot() as snapshot:
        dependent, referenced = sides(snapshot, question)
        queries.check_as_of(snapshot, question.as_of)
        asked.depends_on_history(snapshot)
        asked.stop_if_known()
        page = queries.uinds(snapshot, dependent, referenced, as_of=question.as_of, after=after, limit=question.limit)
    return schemas.UindsPage.page(
        snapshot.head,
        UINDS,
        page,
        schemas.Uind.of,
        as_of=snapshot.head.version if question.as_of is None else question.as_of,
    )


@router.get(
    "/uinds/{dependent}/{referenced}",
    responses=examples.answered("One pair, explained") | documented(404, 409, 422, 500, 503),
)
def explain(
    asked: Asked, dependent: DependentPath, referenced: ReferencedPath, _: Annotated[schemas.Question, Query()]
) -> schemas.Pair:
    """Explain a pair: does it hold, by how much does it fail, which values are missing, since when."""
    with asked.snapshot(with_values=True) as snapshot:
        pair = from_path(snapshot, dependent), from_path(snapshot, referenced)
        queries.refuse_trivial(*pair)
        asked.depends_on_history(snapshot)
        asked.stop_if_known()
        return schemas.Pair.of(snapshot.head, queries.explain(snapshot, *pair))


@router.get(
    "/uinds/{dependent}/{referenced}/missing",
    responses=examples.answered("A page of missing values") | documented(404, 409, 422, 500, 503),
)
def list_missing(
    asked: Asked,
    dependent: DependentPath,
    referenced: ReferencedPath,
    question: Annotated[schemas.PageQuestion, Query()],
) -> schemas.MissingPage:
    """List the values of the dependent that the referenced attribute lacks."""
    after = MISSING.decode(question.cursor)
    with asked.snapshot(with_values=True) as snapshot:
        pair = from_path(snapshot, dependent), from_path(snapshot, referenced)
        queries.refuse_trivial(*pair)
        asked.stop_if_known()
        share = queries.coefficient(snapshot, *pair)
        page = queries.missing_values(snapshot, *pair, after, question.limit)
    return schemas.MissingPage.page(
        snapshot.head,
        MISSING,
        page,
        schemas.MissingValue.model_validate,
        missing_count=share.distinct_count - share.overlap,
    )


@router.get(
    "/uinds/{dependent}/{referenced}/history",
    responses=examples.answered(
        "A page of spans", etag=("state version, first version that is kept, and the newest look, quoted", '"3-1-2"')
    )
    | documented(404, 409, 422, 500, 503),
)
def list_coefficients_over_time(
    asked: Asked,
    dependent: DependentPath,
    referenced: ReferencedPath,
    question: Annotated[schemas.PageQuestion, Query()],
) -> schemas.HistoryPage:
    """List what the coefficient of a pair was, from version to version, newest first; between spans it is not known."""
    after = HISTORY.decode(question.cursor)
    with asked.snapshot() as snapshot:
        pair = from_path(snapshot, dependent), from_path(snapshot, referenced)
        tag = snapshot.coefficient_tag(pair[0].attribute_id, pair[1].attribute_id)
        asked.name_answer(f"{snapshot.head.version}-{snapshot.head.first_version}-{tag}")
        page = coefficient_history.history(snapshot, *pair, after, question.limit)
        asked.stop_if_known()
    return schemas.HistoryPage.page(
        snapshot.head,
        HISTORY,
        page,
        schemas.CoefficientSpan.model_validate,
        look_seconds=coefficient_history.LOOK_SECONDS,
        lost_seconds=coefficient_history.LOST_SECONDS,
    )


@router.get(
    "/changes",
    responses=examples.answered("A page of transitions") | documented(404, 409, 410, 422, 500, 503),
)
def list_changes(asked: Asked, question: Annotated[schemas.ChangesQuestion, Query()]) -> schemas.ChangesPage:
    """List the inclusion dependencies that appeared or broke after the version `since`, oldest first if not said.

    To follow: go through the pages, then ask again with `since` = the `version` of the last page.
    """
    written = NEWEST_CHANGES if question.newest_first else cursors.CHANGES
    after = written.decode(question.cursor)
    with asked.snapshot() as snapshot:
        dependent, referenced = sides(snapshot, question)
        queries.check_since(snapshot, question.since)
        if question.since == 0:  # all that is kept: what ends of it would be refused behind any other version
            asked.depends_on_history(snapshot)
        asked.stop_if_known()
        chosen = TransitionFilter(question.since, question.kind, dependent, referenced, question.newest_first)
        page = queries.transitions(snapshot, chosen, after, question.limit)
    return schemas.ChangesPage.page(snapshot.head, written, page, schemas.Transition.of, since=question.since)

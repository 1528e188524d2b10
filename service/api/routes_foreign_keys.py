"""Own the routes about foreign keys: candidates with their evidence, what was decided of them, exports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from service.api import candidate_schemas as shapes
from service.api import contract_schemas, corpus_schemas, cursors, examples, schemas
from service.api.asking import Asked, Asking, who_says
from service.api.asking_contracts import ETAG, Kept, contracts_snapshot
from service.api.problems import documented
from service.api.security_headers import HEADERS
from service.core.foreign_keys.ranking import Method
from service.core.foreign_keys.sides import ForeignKey
from service.usecases import foreign_key_answers as answers
from service.usecases.distribution_picture import as_svg
from service.usecases.foreign_key_answers import ForeignKeyFinder, UnknownForeignKeyError
from service.usecases.foreign_key_export import KeyFormat, export_keys
from service.usecases.foreign_key_names import side_named
from service.usecases.kept_candidates import CandidateFilter, Refresh
from service.usecases.ports import StateSnapshot
from service.usecases.queries import page_of

router = APIRouter(prefix="/api/v1/foreign-keys", tags=["foreign keys and contracts"])

CANDIDATES = cursors.Cursors("candidates", "ii")
DECISIONS = cursors.Cursors("decisions", "i")
DECLARED = cursors.Cursors("declared_foreign_keys", "i")

MEDIA_TYPES = {
    KeyFormat.SQL: "application/sql",
    KeyFormat.DBT: "text/plain",
    KeyFormat.MERMAID: "text/vnd.mermaid",
    KeyFormat.GRAPHML: "application/graphml+xml",
    KeyFormat.CSV: "text/csv",
    KeyFormat.JSON: "application/json",
}

PICTURE_POLICY = f"{HEADERS['Content-Security-Policy']}; style-src 'unsafe-inline'"
"""A picture has its colours in it; nothing else of it is run or loaded, when a browser shows it by itself."""

_answered = partial(examples.answered, etag=ETAG)
_found = partial(examples.answered, etag=("refresh, and what was decided, quoted", '"7-3-1.1.1"'))


def _finder(request: Request) -> ForeignKeyFinder:
    finder: ForeignKeyFinder = request.app.state.foreign_keys
    return finder


@contextmanager
def _finding(asked: Asking, method: Method, *, with_values: bool = False) -> Iterator[tuple[StateSnapshot, Refresh]]:
    """Open the snapshot of an answer about candidates, and the last finding by a method."""
    with contracts_snapshot(asked, with_values=with_values) as snapshot:
        refresh = answers.last_refresh(snapshot, method)
        asked.name_answer(f"{refresh.refresh_id}-{snapshot.head.version}-{snapshot.contracts_tag()}")
        yield snapshot, refresh


@router.get("", responses=_found("A page of candidates") | documented(404, 410, 422, 500, 503))
def list_foreign_keys(
    asked: Asked, question: Annotated[shapes.CandidatesQuestion, Query()]
) -> shapes.KeyCandidatesPage:
    """List the candidates that a method found last, the likeliest first; their pages end with the next refresh."""
    after = CANDIDATES.decode(question.cursor)
    chosen = CandidateFilter(question.suggested, question.schema_, question.table)
    with _finding(asked, question.method) as (snapshot, refresh):
        if after is not None:
            answers.require_finding(refresh, int(after[0]))
        asked.stop_if_known()
        behind = -1 if after is None else int(after[1])
        found = snapshot.candidates(refresh.refresh_id, chosen, behind, question.limit + 1)
        page = page_of(found, question.limit, lambda one: (refresh.refresh_id, one.place))
    return shapes.KeyCandidatesPage.listing(
        CANDIDATES, page, shapes.KeyCandidate.of, version=refresh.version, refresh_id=refresh.refresh_id
    )


@router.get("/evidence", responses=_found("A candidate with its evidence") | documented(404, 409, 422, 500, 503))
def explain_foreign_key(asked: Asked, question: Annotated[shapes.EvidenceQuestion, Query()]) -> shapes.KeyEvidence:
    """Say of a candidate why it ranks where it does, and what speaks against it."""
    with _finding(asked, question.method, with_values=True) as (snapshot, refresh):
        sides = side_named(snapshot, question.dependent), side_named(snapshot, question.referenced)
        found = answers.candidate(snapshot, refresh, ForeignKey.of(sides[0].names, sides[1].names))
        asked.stop_if_known()
        found, read_in = answers.with_missing(snapshot, found)
    return shapes.KeyEvidence.at(refresh.version, found, read_in)


@router.get(
    "/evidence.svg",
    response_class=Response,
    responses=_found("Both distributions, drawn", "image/svg+xml") | documented(404, 409, 422, 500, 503),
)
def draw_foreign_key(asked: Asked, question: Annotated[shapes.EvidenceQuestion, Query()]) -> Response:
    """Draw how the values of both sides of a candidate lie over those of the key: an SVG for light and dark grounds."""
    with _finding(asked, question.method) as (snapshot, refresh):
        sides = side_named(snapshot, question.dependent), side_named(snapshot, question.referenced)
        found = answers.candidate(snapshot, refresh, ForeignKey.of(sides[0].names, sides[1].names))
        asked.headers["Content-Security-Policy"] = PICTURE_POLICY
        asked.stop_if_known()
    spread = found.evidence["distribution"]
    if spread is None:
        raise UnknownForeignKeyError(f"{found.foreign_key} has no picture: no randomness was measured of it.")
    drawn = as_svg(found.foreign_key, spread["dependent"], spread["referenced"], spread["distance"])
    return Response(drawn, media_type="image/svg+xml", headers=dict(asked.headers))


@router.post("/refreshes", status_code=201, responses=documented(409, 422, 500, 503))
def find_foreign_keys(
    asked: Asked, finder: Annotated[ForeignKeyFinder, Depends(_finder)], body: shapes.NewKeyRefresh
) -> shapes.KeyRefresh:
    """Find the candidates of the newest version, and answer when they are kept; of large data that takes a while.

    `refreshes/at-work` tells how far it is, and `refreshes/at-work/cancel` ends it: then the answer is 409.
    """
    finder.refresh(body.to_core())
    with asked.snapshot() as snapshot:
        return shapes.KeyRefresh.model_validate(answers.last_refresh(snapshot, body.method))


@router.get("/refreshes", responses=documented(422, 500, 503))
def list_findings(asked: Asked, _: Annotated[schemas.Question, Query()]) -> shapes.KeyRefreshes:
    """List the findings whose candidates are served; there is none before the first."""
    with asked.snapshot() as snapshot:
        return shapes.KeyRefreshes.model_validate({"items": snapshot.foreign_key_refreshes()})


@router.get("/refreshes/at-work", responses=documented(422, 500, 503))
def show_finding(
    finder: Annotated[ForeignKeyFinder, Depends(_finder)], _: Annotated[schemas.Question, Query()]
) -> shapes.KeyFindingAtWork:
    """Show how far the finding of candidates is that is at work here."""
    return shapes.KeyFindingAtWork.model_validate({"finding": finder.at_work()})


@router.post("/refreshes/at-work/cancel", status_code=202, responses=documented(422, 500, 503))
def cancel_finding(
    finder: Annotated[ForeignKeyFinder, Depends(_finder)], _: corpus_schemas.Nothing
) -> shapes.KeyFindingAtWork:
    """Let the finding at work end, by its next step; who asked for it is answered 409, and what is served stays."""
    return shapes.KeyFindingAtWork.model_validate({"finding": finder.cancel()})


@router.get(
    "/export",
    response_class=Response,
    responses=_answered("Foreign keys as a file", *MEDIA_TYPES.values()) | documented(404, 422, 500, 503),
)
def export_foreign_keys(asked: Asked, question: Annotated[shapes.ExportQuestion, Query()]) -> Response:
    """Give the foreign keys that were accepted as a file, and with a method also what it suggested last.

    JSON has their score, evidence and what was decided as well; of what the method did not find the score is null.
    """
    with contracts_snapshot(asked) as snapshot:
        refresh = None
        if question.method is not None:
            refresh = answers.last_refresh(snapshot, question.method)
            asked.name_answer(f"{refresh.refresh_id}-{snapshot.head.version}-{snapshot.contracts_tag()}")
        asked.stop_if_known()
        keys = answers.to_export(snapshot, refresh)
    return Response(
        export_keys(keys, question.format, keys),
        media_type=MEDIA_TYPES[question.format],
        headers={**asked.headers, "Content-Disposition": f'attachment; filename="foreign-keys.{question.format}"'},
    )


@router.get("/declared", responses=examples.answered("A page of declared foreign keys") | documented(422, 500, 503))
def list_declared_foreign_keys(
    asked: Asked, question: Annotated[schemas.PageQuestion, Query()]
) -> shapes.DeclaredKeysPage:
    """List the foreign keys that sources declare, as their bootstraps found them, and whether their values hold."""
    after = DECLARED.decode(question.cursor)
    with asked.snapshot() as snapshot:
        asked.stop_if_known()
        found = snapshot.declared_references(0 if after is None else int(after[0]), question.limit + 1)
        page = page_of(found, question.limit, lambda one: (one.reference_id,))
    return shapes.DeclaredKeysPage.page(snapshot.head, DECLARED, page, shapes.DeclaredKey.of)


@router.get("/decisions", responses=_answered("A page of decisions") | documented(422, 500, 503))
def list_decisions(asked: Asked, question: Annotated[schemas.PageQuestion, Query()]) -> contract_schemas.DecisionsPage:
    """List what was decided of foreign keys, newest first; of each pair the newest decision is current."""
    after = DECISIONS.decode(question.cursor)
    with contracts_snapshot(asked) as snapshot:
        asked.stop_if_known()
        found = snapshot.decisions(None if after is None else int(after[0]), question.limit + 1)
        page = page_of(found, question.limit, lambda one: (one.decision_id,))
    return contract_schemas.DecisionsPage.page(snapshot.head, DECISIONS, page, contract_schemas.Decision.of)


@router.post("/decisions", status_code=201, responses=documented(404, 409, 422, 500, 503))
def decide(request: Request, contracts: Kept, body: contract_schemas.NewDecision) -> contract_schemas.Decision:
    """Keep a decision. To accept makes a contract, unless there is one; to reject ends one that was made so."""
    by = who_says(request, body.decided_by)
    return contract_schemas.Decision.of(contracts.decide(body.to_core(), body.verdict, by, body.note, body.seen))

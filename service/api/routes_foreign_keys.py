"""Own the routes about foreign keys: what was decided of them."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query

from service.api import contract_schemas as shapes
from service.api import cursors, examples, schemas
from service.api.asking import Asked
from service.api.asking_contracts import ETAG, Kept, contracts_snapshot
from service.api.problems import documented
from service.usecases.queries import page_of

router = APIRouter(prefix="/api/v1/foreign-keys", tags=["foreign keys and contracts"])

DECISIONS = cursors.Cursors("decisions", "i")

_answered = partial(examples.answered, etag=ETAG)


@router.get("/decisions", responses=_answered("A page of decisions") | documented(422, 500, 503))
def list_decisions(asked: Asked, question: Annotated[schemas.PageQuestion, Query()]) -> shapes.DecisionsPage:
    """List what was decided of foreign keys, newest first; of each pair the newest decision is current."""
    after = DECISIONS.decode(question.cursor)
    with contracts_snapshot(asked) as snapshot:
        asked.stop_if_known()
        found = snapshot.decisions(None if after is None else int(after[0]), question.limit + 1)
        page = page_of(found, question.limit, lambda one: (one.decision_id,))
    return shapes.DecisionsPage.page(snapshot.head, DECISIONS, page, shapes.Decision.of)


@router.post("/decisions", status_code=201, responses=documented(404, 422, 500, 503))
def decide(contracts: Kept, body: shapes.NewDecision) -> shapes.Decision:
    """Keep a decision. To accept makes a contract, unless there is one; to reject ends one that was made so."""
    return shapes.Decision.of(contracts.decide(body.to_core(), body.verdict, body.decided_by, body.note))

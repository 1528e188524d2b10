"""Own the route about keys."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from service.api import cursors, examples, key_schemas
from service.api.asking import Asked
from service.api.problems import documented
from service.usecases.key_values import KeyFilter
from service.usecases.keys import keys

router = APIRouter(prefix="/api/v1", tags=["foreign keys and contracts"])

KEYS = cursors.Cursors("keys", "ssii")


@router.get("/keys", responses=examples.answered("A page of keys") | documented(409, 422, 500, 503))
def list_keys(asked: Asked, question: Annotated[key_schemas.KeysQuestion, Query()]) -> key_schemas.KeysPage:
    """List keys: columns that are unique or nearly, as their values are now, and all that are tracked."""
    after = KEYS.decode(question.cursor)
    chosen = KeyFilter(question.schema_, question.table, question.nearly, question.tracked_only)
    with asked.snapshot(with_values=question.values > 0) as snapshot:
        asked.stop_if_known()
        page = keys(snapshot, chosen, after, question.limit, question.values)
    return key_schemas.KeysPage.page(snapshot.head, KEYS, page, key_schemas.KeyAnswer.of)

"""Own the route about bootstraps that run."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query

from service.api import examples, schemas
from service.api.asking import Asked
from service.api.problems import documented

router = APIRouter(prefix="/api/v1/bootstraps", tags=["service"])

_answered = partial(examples.answered, etag=("digest of the answer, quoted", '"9f86d081884c7d65"'))


@router.get("", responses=_answered("Bootstraps that run, died or failed") | documented(422, 500, 503))
def list_bootstraps(asked: Asked, _: Annotated[schemas.Question, Query()]) -> schemas.Bootstraps:
    """List the bootstraps that run, and those that died or failed since their source was bootstrapped last."""
    with asked.snapshot() as snapshot:
        found = schemas.Bootstraps.model_validate({"items": snapshot.bootstraps()})
    asked.name_answer(hashlib.sha256(found.model_dump_json().encode()).hexdigest()[:16])
    asked.stop_if_known()
    return found

"""Own the route about audits: what they found, newest first."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from service.api import cursors, examples
from service.api.asking import Asked
from service.api.problems import documented
from service.api.schemas import Answer, Page, PageQuestion
from service.core.corpus_choices import Algorithm
from service.usecases import audits
from service.usecases.queries import page_of

router = APIRouter(prefix="/api/v1", tags=["state"])

AUDITS = cursors.Cursors("audits", "i")

_answered = partial(examples.answered, etag=("state version and newest audit, quoted", '"3-12"'))


class LeftOut(Answer):
    dependent_columns: int
    referenced_columns: int
    inds: int
    inds_alone: int = Field(description="INDs that no other filter leaves out")


class Examples(Answer):
    not_served: list[list[str]] = Field(description="dependent, referenced: full names")
    not_holding: list[list[str]]


class Audit(Answer):
    audit_id: int
    version: int = Field(description="the state version that was audited")
    started_at: datetime
    ended_at: datetime
    attributes: int = Field(description="columns whose values were looked at")
    value_count: int = Field(description="distinct values of these columns, added up")
    inds: int = Field(description="INDs that hold, by the values")
    not_served: int = Field(description="INDs that hold and were not served; should be 0")
    not_holding: int = Field(description="INDs that were served and do not hold; should be 0")
    differences: int = Field(description="both together")
    examples: Examples = Field(description="the first of the differences")
    filters: dict[str, LeftOut] = Field(description="what each filter would leave out, by its reason")
    inds_left: int = Field(description="INDs that would be left with all of these filters on")
    sketch_only: int = Field(description="columns of which no values are stored; they have no INDs")
    algorithm: Algorithm = Field(description="how the INDs were found")
    seconds: dict[str, float]

    @classmethod
    def of(cls, one: audits.Audit) -> Audit:
        counts = {name: getattr(one, name) for name in cls.model_fields if name not in one.report}
        return cls.model_validate({**counts, **one.report})


class AuditsPage(Page):
    version: int = Field(description="the state version when this was read")
    items: list[Audit]


@router.get("/audits", responses=_answered("A page of audits") | documented(422, 500, 503))
def list_audits(asked: Asked, question: Annotated[PageQuestion, Query()]) -> AuditsPage:
    """List the audits of the tracked tables, newest first; `subsetd audit` makes one, or the schedule of the settings.

    An audit finds the inclusion dependencies of one version anew, from all stored values, and holds the served ones
    against them.
    """
    after = AUDITS.decode(question.cursor)
    with asked.snapshot() as snapshot:
        newest = snapshot.audits(None, 1)
        asked.name_answer(f"{snapshot.head.version}-{newest[0].audit_id if newest else 0}")
        asked.stop_if_known()
        found = snapshot.audits(None if after is None else int(after[0]), question.limit + 1)
    page = page_of(found, question.limit, lambda one: (one.audit_id,))
    return AuditsPage.listing(AUDITS, page, Audit.of, version=snapshot.head.version)

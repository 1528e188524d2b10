"""Own the shapes of the API about joinable tables: what is asked, and what is answered."""

from __future__ import annotations

from datetime import datetime
from fractions import Fraction
from typing import Annotated, Any

from pydantic import Field, model_validator

from service.api.corpus_schemas import Text
from service.api.example_requests import IN_EXAMPLE
from service.api.schemas import Answer, Question
from service.core.near_matches import Near
from service.usecases.job_queue import JobState
from service.usecases.joinable import DEFAULT_PREVIEW, MOST_KEY_COLUMNS, MOST_TABLES, JoinQuestion, LeadReason
from service.usecases.joinable_searches import Search

MOST_SHOWN = 100
"""Rows of a preview, and tables that one leads to."""


class JoinableQuestion(Question):
    corpus: Text | None = Field(
        None,
        description="name of the corpus whose tables are searched; this or `tracked`",
        examples=["lake"],
        json_schema_extra={IN_EXAMPLE: True},
    )
    tracked: bool = Field(False, description="search the tracked tables that are indexed, as their rows are now")
    key: Annotated[list[Text], Field(min_length=1, max_length=MOST_KEY_COLUMNS)] = Field(
        description="key columns of the rows that are sent, or of the tracked table; once for each",
        examples=[["city"]],
    )
    k: Annotated[int, Field(ge=1, le=MOST_TABLES)] | None = Field(
        None, description=f"most tables of the answer: 10, or with min_share {MOST_TABLES:,}"
    )
    min_share: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="all tables that have such a share of the distinct keys, in the place of the best"
    )
    preview: int = Field(DEFAULT_PREVIEW, ge=0, le=MOST_SHOWN, description="joined rows of each table that are shown")
    through: int = Field(0, ge=0, le=MOST_SHOWN, description="tables that each table leads to")
    near: list[Near] | None = Field(
        None,
        description="what is not looked at in cells: it is settled where the corpus is indexed, and others are refused",
    )
    schema_: Text | None = Field(None, alias="schema", description="of the tracked table whose rows are asked with")
    table: Text | None = Field(None, description="the tracked table whose rows are asked with, in place of a CSV")

    @model_validator(mode="after")
    def _require_one(self) -> JoinableQuestion:
        if self.tracked == (self.corpus is not None):
            raise ValueError("name a `corpus`, or ask for `tracked` tables: one of them says what is searched")
        return self

    def to_core(self) -> JoinQuestion:
        """Give the question as the use cases know it."""
        share = None if self.min_share is None else Fraction(str(self.min_share))
        return JoinQuestion(self.corpus, self.k, share, self.preview, self.through, self.near)


class JoinedRow(Answer):
    row: int | None = Field(description="of the table, from 0; null: a tracked table's rows have no numbers")
    key: list[str] = Field(description="the key that it has, as it is compared: folded where cells are near")
    values: list[str | None] | None = Field(description="of new_columns; null: they could not be read")


class LeadsTo(Answer):
    table: str
    reason: LeadReason = Field(description="a foreign key that was accepted, or is suggested; or an IND")
    through: list[str] = Field(description="the columns of the found table that refer to it, or whose values it holds")
    through_positions: list[int]
    columns: list[str] = Field(description="its columns, side by side with those")
    positions: list[int]
    coverage: float | None = Field(
        description="share of their distinct values that the found table has; null: tuples that are not followed"
    )


class JoinableTable(Answer):
    table: str = Field(description="its path in the corpus, or schema.table of a tracked one")
    columns: list[str] = Field(description="one for each key column")
    matched_keys: int = Field(description="distinct keys that its rows have in these columns")
    share: float = Field(description="of the distinct keys that were asked")
    positions: list[int] = Field(description="of the columns, from 0")
    matched_rows: int = Field(description="rows of the query with such a key")
    row_share: float = Field(description="of all rows of the query")
    new_columns: list[str] = Field(description="what a join would add")
    preview: list[JoinedRow]
    preview_fault: str | None = Field(description="why values of the preview are missing")
    leads_to: list[LeadsTo] | None = Field(
        description="null: not asked for, or the generation that is indexed is not kept any more"
    )


class JoinAnswer(Answer):
    generation: int | None = Field(description="of the corpus, that is indexed; null: of tracked tables")
    version: int | None = Field(description="of the state, as of which tracked tables were searched; null: of a corpus")
    built_at: datetime = Field(description="when the index, or the version, came to be")
    near: list[Near] = Field(description="what was not looked at in cells")
    rows: int = Field(description="of the query")
    keys: int = Field(description="distinct ones")
    empty: int = Field(description="rows that an empty key cell leaves out")
    is_cut: bool = Field(description="whether more tables than are listed have min_share")
    tables: list[JoinableTable] = Field(description="those that join best first, equals by their paths")
    unfinished: list[str] = Field(
        description="tables whose columns were not all tried: they may join with more keys, or be missing"
    )
    not_indexed: list[str] = Field(description="tracked tables that are left out, as their rows are not indexed yet")


class JoinableSearch(Answer):
    search_id: int | None = Field(description="null: it was answered at once")
    state: JobState
    asked_at: datetime | None
    began_at: datetime | None
    ended_at: datetime | None
    message: str | None = Field(description="of one that failed, why")
    done: int | None = Field(description="tables that were looked at; null while that is not known")
    total: int | None = Field(description="tables to look at, at most")
    answer: JoinAnswer | None

    @classmethod
    def of(cls, one: Search) -> JoinableSearch:
        job = one.job
        told: dict[str, Any] = {"search_id": None, "state": JobState.DONE}
        if job is not None:
            told = {"search_id": job.job_id, "state": job.state}
        for name in ("asked_at", "began_at", "ended_at", "message"):
            told[name] = getattr(job, name, None)
        if one.answer is not None:
            told["message"] = None
        return cls.model_validate({**told, "done": one.done, "total": one.total, "answer": one.answer})

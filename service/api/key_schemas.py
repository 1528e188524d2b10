"""Own the shapes of what is asked and answered about keys."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from service.api.contract_schemas import Text as Name
from service.api.schemas import Answer, Attribute, Paged, PageQuestion, Text
from service.core.foreign_keys.sides import Side
from service.core.tuples import MOST_PARTS
from service.usecases import tracked_keys
from service.usecases.keys import NamedKey
from service.usecases.tracked_keys import TrackingState


class KeysQuestion(PageQuestion):
    schema_: Text | None = Field(None, alias="schema", description="of this schema", examples=["demo"])
    table: Text | None = Field(None, description="of tables of this name", examples=["customers"])
    nearly: float = Field(
        0.0, ge=0, le=1, description="share of the distinct values that may occur more than once", examples=[0.01]
    )
    tracked_only: bool = Field(False, description="only declared, discovered and pinned keys")
    values: int = Field(
        0, ge=0, le=100, description="most repeated values that are named; needs a walk through an attribute's values"
    )


class RepeatedValue(Answer):
    value: str | None = Field(description="canonical text, cut to at most 256 bytes; null: the column's are not shown")
    value_key: str = Field(description="first 128 bits of SHA-256 of the whole value")
    frequency: int


class KeyAnswer(Answer):
    columns: list[str] = Field(description="in the key's order")
    kind: str | None = Field(description="why it is tracked: declared, discovered, pinned; null: its values show it")
    is_primary: bool = Field(description="declared as the primary key")
    is_unique: bool | None = Field(description="no value occurs more than once; null: not counted")
    is_key: bool | None = Field(description="unique, and never NULL in any part; null: not known")
    attribute: Attribute = Field(description="the column, or the tuple of the columns, with its counters")
    repeated_values: list[RepeatedValue] = Field(description="the most frequent of those that occur more than once")

    @classmethod
    def of(cls, one: NamedKey) -> KeyAnswer:
        key = one.key
        return cls(
            columns=list(key.columns),
            kind=key.kind,
            is_primary=key.is_primary,
            is_unique=key.is_unique,
            is_key=key.is_key,
            attribute=Attribute.of(key.attribute),
            repeated_values=[RepeatedValue.model_validate(value) for value in one.repeated],
        )


class KeysPage(Paged):
    items: list[KeyAnswer]


class NewTracking(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        populate_by_name=True,
        json_schema_extra={"example": {"schema": "demo", "table": "customers", "columns": ["region", "id"]}},
    )

    schema_: Name = Field(alias="schema")
    table: Name
    columns: Annotated[list[Name], Field(min_length=1, max_length=MOST_PARTS, json_schema_extra={"uniqueItems": True})]
    source: Annotated[str, Field(max_length=4096, pattern=r"^postgres(ql)?://[^\x00-\x20]+$")] | None = Field(
        None, description="where a followed Postgres is, with its password, if the service's user needs one there"
    )

    @field_validator("columns")
    @classmethod
    def _once(cls, columns: list[str]) -> list[str]:
        if len(set(columns)) < len(columns):
            raise ValueError("a column comes twice in the key")
        return columns

    def to_core(self) -> Side:
        """Give the columns as the use cases know them."""
        return Side(self.schema_, self.table, tuple(self.columns))


class Tracking(Answer):
    tracking_id: int
    schema_: str = Field(serialization_alias="schema")
    table: str
    columns: list[str] = Field(description="in the key's order")
    state: TrackingState
    asked_at: datetime
    ended_at: datetime | None
    message: str | None = Field(description="what its job said last; of one that failed, why")

    @classmethod
    def of(cls, one: tracked_keys.Tracking) -> Tracking:
        return cls(
            tracking_id=one.tracking_id,
            schema_=one.key.schema,
            table=one.key.table,
            columns=list(one.key.columns),
            state=one.state,
            asked_at=one.asked_at,
            ended_at=one.ended_at,
            message=one.message,
        )

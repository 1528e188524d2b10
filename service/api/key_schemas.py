"""Own the shapes of what is asked and answered about keys."""

from __future__ import annotations

from pydantic import Field

from service.api.schemas import Answer, Attribute, Paged, PageQuestion, Text
from service.usecases.keys import NamedKey


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
    value: str = Field(description="canonical text, cut to at most 256 bytes")
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

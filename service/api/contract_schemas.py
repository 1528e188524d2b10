"""Own the shapes of the API about contracts and decisions: what is asked of them, and what is answered."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from service.api.schemas import FULL_NAME, Answer, ChangedRow, Paged, PageQuestion, Version
from service.core.contracts import ContractKind
from service.core.foreign_keys import sides
from service.core.model import AttributeName
from service.core.tuples import MOST_PARTS
from service.usecases import foreign_key_decisions as values
from service.usecases.foreign_key_decisions import LONGEST_NOTE, ContractState, Undecided, Verdict

Text = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$")]
Column = Annotated[list[Text], Field(min_length=3, max_length=3, description="schema, table, column")]
Columns = Annotated[
    list[Column],
    Field(min_length=1, max_length=MOST_PARTS, description="of one table, those of both sides in one order"),
]
Person = Annotated[
    str,
    Field(
        min_length=1,
        max_length=256,
        pattern=r"^[^\x00]*$",
        description="who says so; with a key it is the key's name instead",
    ),
]

COLUMNS = f"these columns alone: {FULL_NAME}; of several schema.table(a, b)"

BY_API = "api"
"""Who asks over HTTP and does not say."""

EXAMPLE: dict[str, Any] = {
    "dependent": [["demo", "orders", "customer_id"]],
    "referenced": [["demo", "customers", "id"]],
}


class GivenKey(BaseModel):
    dependent: Columns
    referenced: Columns

    def to_core(self) -> sides.ForeignKey:
        """Give it as the use cases know it; raises ForeignKeyError for sides that cannot be, or not together."""
        dependent, referenced = ([AttributeName(*one) for one in side] for side in (self.dependent, self.referenced))
        return sides.ForeignKey.of(dependent, referenced)


class NewContract(GivenKey):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "dependent": [["demo", "customers", "region"]],
                "referenced": [["demo", "regions", "id"]],
                "least_coefficient": 0.99,
            }
        },
    )

    least_coefficient: float = Field(
        1.0, gt=0, le=1, description="share of the dependent's values that have to be there"
    )
    created_by: Person = BY_API

    @property
    def least(self) -> Decimal:
        """Give the bound as it was written."""
        return Decimal(repr(self.least_coefficient))


class NewDecision(GivenKey):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {**EXAMPLE, "verdict": "accept", "decided_by": "Ada"}}
    )

    verdict: Verdict = Field(description="accept: watch it as a contract; reject: it is none; pin: keep it in sight")
    decided_by: Person = BY_API
    note: Annotated[str, Field(max_length=LONGEST_NOTE, pattern=r"^[^\x00]*$")] | None = None
    seen: Verdict | Undecided | None = Field(
        None, description="the pair's verdict when you looked: 409 where it is another meanwhile; null: whatever it is"
    )


class ContractsQuestion(PageQuestion):
    dependent: Text | None = Field(None, description=f"only those on {COLUMNS}", examples=["demo.orders.customer_id"])
    referenced: Text | None = Field(None, description=f"only those into {COLUMNS}", examples=["demo.customers.id"])


class EventsQuestion(PageQuestion):
    since: Version = Field(
        0, description="later than this state version, and of it what no change brought", examples=[2]
    )


class NamedKey(Answer):
    dependent: list[list[str]] = Field(description="schema, table, column of each")
    referenced: list[list[str]]


def named(one: sides.ForeignKey) -> dict[str, list[list[str]]]:
    """Give the columns of both sides."""
    return {field: [list(name) for name in side.names] for field, side in one._asdict().items()}


class Contract(NamedKey):
    contract_id: int
    decision_id: int | None = Field(description="of the acceptance that made it")
    least_coefficient: float
    created_by: str
    created_at: datetime
    state: ContractState = Field(description="unknown: one of its sides is not kept current")
    unknown: list[str] = Field(description="the sides that are not kept current")
    violated_since: int | None = Field(description="state version; null while it is held")
    coefficient: float | None = Field(description="null: not known, or the dependent has no values")
    overlap: int | None
    distinct_count: int | None
    missing_count: int | None = Field(description="distinct values of the dependent that the referenced lacks")

    @classmethod
    def of(cls, one: values.Contract) -> Contract:
        return cls.model_validate({**_fields(cls, one), **named(one.foreign_key)})


class ContractsPage(Paged):
    items: list[Contract]


class ContractTransition(NamedKey):
    version: int
    committed_at: datetime | None
    contract_id: int
    kind: ContractKind
    witness_value: str | None = Field(
        description="one of the values that violated or mended it; null: none is known, or it is not shown"
    )
    witness_key: str | None
    cause_count: int = Field(description="how many values did")
    position: dict[str, Any] | None = Field(
        description="of the change that brought that value; null: found by a bootstrap, or when it was added"
    )
    row: ChangedRow | None = Field(description="of that change; null: it names none")

    @classmethod
    def of(cls, one: values.ContractEvent) -> ContractTransition:
        return cls.model_validate({**_fields(cls, one), **named(one.foreign_key)})


class ContractTransitionsPage(Paged):
    since: int
    items: list[ContractTransition]


class Decision(NamedKey):
    decision_id: int
    verdict: Verdict
    decided_by: str
    decided_at: datetime
    note: str | None
    is_current: bool = Field(description="nothing was decided of this pair later")
    is_stale: bool = Field(description="one of the columns is not followed any more")

    @classmethod
    def of(cls, one: values.Decision) -> Decision:
        return cls.model_validate({**_fields(cls, one), **named(one.foreign_key)})


class DecisionsPage(Paged):
    items: list[Decision]


def _fields(shape: type[NamedKey], one: Any) -> dict[str, Any]:
    return {field: getattr(one, field) for field in shape.model_fields if field not in NamedKey.model_fields}

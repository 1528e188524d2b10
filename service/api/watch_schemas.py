"""Own the shapes of the API about watches: what is asked of them, and what is answered."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any
from urllib.parse import urlsplit
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from service.api.contract_schemas import BY_API, Person
from service.api.schemas import Answer, Page, PageQuestion
from service.core import watch_rules
from service.core.watch_rules import LONGEST_DEBOUNCE, RuleKind
from service.usecases import watches as values
from service.usecases.watch_register import LONGEST_NAME
from service.usecases.watches import AlertKind, AlertState, ChannelKind

Text = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]*$")]
Reason = Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\x00]*$")]
WatchId = Annotated[int, Field(ge=0, lt=1 << 31, description="of a watch")]


class Rule(Answer):
    model_config = ConfigDict(extra="forbid", from_attributes=True)

    kind: RuleKind
    when: str | None = Field(
        None,
        max_length=20,
        description="ind: broken or holding; contract: violated or held; coefficient: below or above; unique: lost or "
        "regained; lag: seconds or records (of a file or a slot: bytes); the first of them where nothing is said",
    )
    dependent: Text | None = Field(None, description="ind, coefficient: full name; * in it is any text (of ind)")
    referenced: Text | None = Field(None, description="as dependent")
    contract_id: Annotated[int, Field(ge=0, lt=1 << 31)] | None = Field(None, description="contract; null: any")
    attribute: Text | None = Field(None, description="unique: full name; with * all tracked keys that match")
    corpus: Text | None = Field(None, description="refresh: name; * in it is any text")
    bound: Annotated[float, Field(ge=0, le=1e15)] | None = Field(
        None, description="coefficient: from 0 to 1; lag: seconds, or records (of a file or a slot: bytes)"
    )
    margin: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="coefficient: by how much it has to come back behind the bound to be right again"
    )

    def to_core(self) -> watch_rules.Rule:
        """Give it as the use cases know it, numbers as they were written."""
        given: dict[str, Any] = self.model_dump(exclude_none=True)
        given |= {name: Decimal(repr(given[name])) for name in ("bound", "margin") if name in given}
        return watch_rules.Rule(**given)


class NewChannel(BaseModel):
    model_config = ConfigDict(extra="forbid")

    kind: ChannelKind
    url: Annotated[str, Field(max_length=2000)] | None = Field(
        None, description="webhook, slack; it is not shown again"
    )
    to: list[Annotated[str, Field(max_length=254)]] = Field([], max_length=20, description="email: addresses")
    topic: Annotated[str, Field(max_length=249)] | None = Field(None, description="kafka, at SUBSETD_ALERT_BROKER")
    secret: Annotated[SecretStr, Field(min_length=8, max_length=200)] | None = Field(
        None, description="webhook: signs what it gets; it is not shown again"
    )

    def to_core(self) -> values.Channel:
        """Give it as the use cases know it."""
        secret = None if self.secret is None else self.secret.get_secret_value()
        return values.Channel(self.kind, self.url, tuple(self.to), self.topic, secret)


class Channel(Answer):
    kind: ChannelKind
    url: str | None = Field(description="without its path, which may be a secret")
    to: list[str]
    topic: str | None
    has_secret: bool

    @classmethod
    def of(cls, one: values.Channel) -> Channel:
        url = None
        if one.url is not None:
            parts = urlsplit(one.url)
            url = f"{parts.scheme}://{parts.netloc}/…"
        return cls(kind=one.kind, url=url, to=list(one.to), topic=one.topic, has_secret=one.secret is not None)


class NewWatch(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "name": "orders have customers",
                "rule": {"kind": "ind", "dependent": "demo.orders.customer_id", "referenced": "demo.customers.id"},
                "channel": {
                    "kind": "webhook",
                    "url": "https://alerts.example/subsetd",
                    "secret": "a secret of both sides",
                },
                "debounce_seconds": 30,
            }
        },
    )

    name: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
    rule: Rule
    channel: NewChannel
    debounce_seconds: Annotated[float, Field(ge=0, le=LONGEST_DEBOUNCE)] = Field(
        30, description="what does not stand for so long is not told"
    )
    tell_resolved: bool = Field(True, description="tell as well when it is over")
    with_values: bool = Field(False, description="alerts name a value that did it")
    created_by: Person = BY_API

    def to_core(self, created_by: str) -> values.NewWatch:
        """Give it as the use cases know it."""
        return values.NewWatch(
            self.name,
            self.rule.to_core(),
            self.channel.to_core(),
            self.debounce_seconds,
            self.tell_resolved,
            self.with_values,
            created_by,
        )


class OtherWatch(NewWatch):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "name": "nearly all orders have customers",
                "rule": {
                    "kind": "coefficient",
                    "dependent": "demo.orders.customer_id",
                    "referenced": "demo.customers.id",
                    "bound": 0.99,
                    "margin": 0.005,
                },
                "channel": {"kind": "slack", "url": "https://alerts.example/slack"},
            }
        }
    )


class Watch(Answer):
    watch_id: int
    name: str
    rule: Rule
    says: str = Field(description="the rule in words")
    channel: Channel
    debounce_seconds: float
    tell_resolved: bool
    with_values: bool
    created_by: str
    created_at: datetime
    bad: int = Field(description="how much of what it speaks of was told to be so, and is not over")

    @classmethod
    def of(cls, one: values.Watch) -> Watch:
        same = ("watch_id", "name", "tell_resolved", "with_values", "created_by", "created_at", "bad")
        return cls(
            **{field: getattr(one, field) for field in same},
            rule=Rule.model_validate(one.rule),
            says=str(one.rule),
            channel=Channel.of(one.channel),
            debounce_seconds=one.debounce,
        )


class WatchesPage(Page):
    items: list[Watch]


class Alert(Answer):
    alert_id: int
    delivery_id: UUID = Field(description="by which its receiver knows it, at each attempt")
    watch_id: int | None = Field(description="null: the watch was removed")
    watch: str
    kind: AlertKind
    version: int
    created_at: datetime
    body: dict[str, Any] = Field(description="what it says: counts, and some of the subjects")
    state: AlertState
    attempts: int
    fault: str | None = Field(description="why the last attempt failed")
    ended_at: datetime | None


class AlertsQuestion(PageQuestion):
    watch_id: WatchId | None = Field(None, examples=[1])
    state: AlertState | None = Field(None, examples=["delivered"])


class AlertsPage(Page):
    items: list[Alert]


class NewSilence(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"pattern": "demo.orders.*", "until": "2999-01-01T00:00:00Z", "reason": "a known defect"}
        },
    )

    watch_id: WatchId | None = None
    pattern: Text | None = Field(None, description="of names of watches or of columns; * is any text")
    until: datetime = Field(description="with its zone")
    reason: Reason
    created_by: Person = BY_API


class Silence(Answer):
    silence_id: int
    watch_id: int | None
    pattern: str | None
    until: datetime
    reason: str
    created_by: str
    created_at: datetime
    is_active: bool


class SilencesAnswer(Answer):
    items: list[Silence] = Field(description="those in force and the last that were, newest first")


class NewLoad(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"schema": "demo", "table": "orders"}})

    schema_: Text = Field(alias="schema")
    table: Text | None = Field(None, description="null: all tables of the schema")
    until: datetime | None = Field(
        None,
        description="with its zone, at most 7 days away; null: until its source is bootstrapped, somebody says so, or "
        "24 hours",
    )
    created_by: Person = BY_API


class Load(Answer):
    model_config = ConfigDict(from_attributes=True, populate_by_name=True)

    load_id: int
    schema_: str = Field(alias="schema", validation_alias="schema")
    table: str | None
    until: datetime
    until_loaded: bool = Field(description="it ends with the bootstrap of its source")
    created_by: str
    created_at: datetime
    is_active: bool


class LoadsAnswer(Answer):
    items: list[Load] = Field(description="those that are waited for and the last that were, newest first")

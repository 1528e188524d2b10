"""Own the shapes of the API: what is asked, what is answered, and an example of each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

from service.api import cursors
from service.core.estimators.estimate import NO_VALUES
from service.core.model import TransitionKind
from service.core.shown_values import CELL_CHARACTERS, MOST_CELLS
from service.core.tuples import MOST_PARTS
from service.usecases import answers
from service.usecases.bootstrap_runs import RunState
from service.usecases.retry_dead_letters import Outcome

Text = Annotated[str, Field(max_length=4096)]
Version = Annotated[int, Field(ge=0, le=cursors.LARGEST)]
FULL_NAME = "full name `schema.table.column`, or `id:17`"
ARITY = "tuples of so many columns, as they are followed for tracked keys; 1: columns"


class Question(BaseModel):
    """Refuse unknown parameters: a filter with a slip in its name would be a wrong answer."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class PageQuestion(Question):
    limit: int = Field(100, ge=1, le=1000, description="most items of this page")
    cursor: str | None = Field(
        None, pattern=cursors.PATTERN, max_length=cursors.MAX_LENGTH, description="next_cursor of the last page"
    )


class AttributesQuestion(PageQuestion):
    schema_: Text | None = Field(None, alias="schema", description="of this schema", examples=["demo"])
    table: Text | None = Field(None, description="of tables of this name", examples=["orders"])
    attribute: Text | None = Field(None, description=FULL_NAME, examples=["demo.orders.customer_id"])
    contains: Text | None = Field(None, description="part of the full name", examples=["_id"])
    arity: int = Field(1, ge=1, le=MOST_PARTS, description=ARITY)


class ClustersQuestion(PageQuestion):
    attribute: Text | None = Field(
        None, description=f"only clusters with it: {FULL_NAME}", examples=["demo.orders.customer_id"]
    )


class SidesQuestion(Question):
    dependent: Text | None = Field(None, description=FULL_NAME, examples=["demo.orders.customer_id"])
    dependent_schema: Text | None = Field(None, examples=["demo"])
    dependent_table: Text | None = Field(None, examples=["orders"])
    referenced: Text | None = Field(None, description=FULL_NAME, examples=["demo.customers.id"])
    referenced_schema: Text | None = Field(None, examples=["demo"])
    referenced_table: Text | None = Field(None, examples=["customers"])


class PairQuestion(SidesQuestion, PageQuestion):
    arity: int | None = Field(
        None, ge=1, le=MOST_PARTS, description=f"between {ARITY}; not given: as a side that is named has, else 1"
    )


class UindsQuestion(PairQuestion):
    as_of: Version | None = Field(None, description="those that held at this state version", examples=[2])


class ChangesQuestion(PairQuestion):
    since: Version = Field(0, description="later than this state version", examples=[2])
    kind: TransitionKind | None = Field(None, examples=["broke"])
    newest_first: bool = Field(False, description="the other way round, for who looks back")


class StreamQuestion(Question):
    since: Version | None = Field(
        None, description="later than this state version; without it, and without Last-Event-ID: from now on"
    )


class DeadLettersQuestion(PageQuestion):
    feed: Text | None = Field(None, examples=["kafka:ZDhiNTQ4ZjEtMDdkYi00MQ"])


class Answer(BaseModel):
    """Be made of the use cases' values."""

    model_config = ConfigDict(from_attributes=True)


class AttributeRef(Answer):
    attribute_id: int
    name: str = Field(description="schema.table.column")
    parts: list[str] = Field(description="schema, table, column", min_length=3, max_length=3)

    @classmethod
    def of(cls, one: answers.AttributeRef) -> AttributeRef:
        return cls(attribute_id=one.attribute_id, name=str(one.name), parts=list(one.name))


class Attribute(AttributeRef):
    source: str
    ordinal: int = Field(description="0-based place in its table")
    data_type: str
    insert_only: bool
    row_count: int
    null_count: int
    sketch_only: bool = Field(description="no values are stored: its coefficients are estimated, and it has no INDs")
    distinct_count: int | None = Field(description="null: not counted, as it is sketch-only; /sketches estimates it")
    repeated_count: int | None = Field(description="values that occur more than once; null: frequencies are not kept")
    is_unique: bool | None = Field(description="no value repeats and none is NULL; null: not known")
    shown_characters: int | None = Field(
        description="first characters of its values that are kept and shown; 0: none, keys alone; null: all"
    )
    stale_since: int | None = Field(
        description="version since which it is not kept current, as its source has it no longer; null: it is current"
    )

    @classmethod
    def of(cls, one: answers.AttributeRef) -> Attribute:
        assert isinstance(one, answers.AttributeInfo)
        named = AttributeRef.of(one)
        counters = {field: getattr(one, field) for field in cls.model_fields if field not in AttributeRef.model_fields}
        return cls(attribute_id=named.attribute_id, name=named.name, parts=named.parts, **counters)


class Versioned(Answer):
    version: int = Field(description="the one state version that this answer was computed from")
    transaction_consistent: bool | None = Field(
        description="whether this version holds each of the source's transactions whole or not at all; null: not known"
    )

    @classmethod
    def at(cls, head: answers.StateHead, **more: Any) -> Self:
        """Make an answer that was computed from this version; `more` are its other fields."""
        return cls(version=head.version, transaction_consistent=head.transaction_consistent, **more)


class Page(Answer):
    next_cursor: str | None = Field(description="null on the last page")

    @classmethod
    def listing(
        cls, written: cursors.Cursors, page: answers.Page[Any], show: Callable[[Any], Answer], **more: Any
    ) -> Self:
        """Make a page: its cursor as `written` for the route, its items as `show` makes them, and `more` fields."""
        fields = {**more, "items": [show(one) for one in page.items]}
        return cls(next_cursor=written.encode(page.next_key), **fields)


class Paged(Page, Versioned):
    @classmethod
    def page(
        cls,
        head: answers.StateHead,
        written: cursors.Cursors,
        page: answers.Page[Any],
        show: Callable[[Any], Answer],
        **more: Any,
    ) -> Self:
        """Make a page that was computed from this version; see `listing`."""
        told = {"version": head.version, "transaction_consistent": head.transaction_consistent, **more}
        return cls.listing(written, page, show, **told)


class Source(Answer):
    name: str
    kind: str
    location: str
    insert_only: bool
    bootstrapped_version: int
    bootstrapped_at: datetime
    table_count: int
    attribute_count: int


class Position(Answer):
    feed: str
    topic: str
    partition: int
    next_offset: int
    source_position: dict[str, Any]
    version: int
    paused_at: datetime | None = Field(description="when the feed was paused; null while it is followed")


class Counts(Answer):
    tables: int
    attributes: int
    clusters: int
    values: int = Field(description="distinct values over all attributes")
    uinds: int
    dead_letters: int
    short_sketches: int = Field(description="sketches with too few smallest hashes left; see `needs_rescan`")


class State(Versioned):
    generation: int = Field(description="one more for each bootstrap; 0 before the first")
    first_version: int
    kind: str | None = Field(description="bootstrap, batch or schema")
    committed_at: datetime | None
    newest_source_ms: int | None = Field(description="newest ts_ms of the last batch's records")
    counts: Counts
    sources: list[Source]
    positions: list[Position]
    shards_away: list[str] = Field(
        description="servers of shards that are of no use, and why; until they are back answers stay at this version"
    )


class AttributesPage(Paged):
    items: list[Attribute]


class Cluster(Answer):
    cluster_id: int
    attribute_ids: list[int]
    value_count: int


class ClustersPage(Paged):
    items: list[Cluster]
    attributes: list[AttributeRef] = Field(description="names of the attributes of this page's clusters, by id")


class Uind(Answer):
    dependent: AttributeRef
    referenced: AttributeRef
    since_version: int
    since_at: datetime | None
    until_version: int | None = Field(description="first version at which it no longer held; null while it holds")

    @classmethod
    def of(cls, one: answers.UindInfo) -> Uind:
        return cls(
            dependent=AttributeRef.of(one.dependent),
            referenced=AttributeRef.of(one.referenced),
            since_version=one.since.version,
            since_at=one.since.committed_at,
            until_version=one.until_version,
        )


class UindsPage(Paged):
    as_of: int = Field(description="the version at which these held")
    items: list[Uind]


class MissingValue(Answer):
    value: str | None = Field(description="null: of the dependent's values none are shown")
    value_key: str = Field(description="first 128 bits of SHA-256 of the whole value")
    is_cut: bool = Field(description="value is the beginning of a longer one, or is not shown")
    frequency: int | None = Field(description="how often the dependent has it; null: frequencies are not kept")


class MissingPage(Paged):
    missing_count: int
    items: list[MissingValue]


class Bootstrap(Answer):
    source_name: str
    state: RunState = Field(description="gone: it died without a word")
    stage: str = Field(description="that it is at, or was at last")
    done: int | None
    total: int | None = Field(description="null: not known")
    started_at: datetime
    progressed_at: datetime
    expected_end: datetime | None = Field(description="of this stage, if it goes on at its pace")
    ended_at: datetime | None = Field(description="when it failed")
    fault: str | None


class Bootstraps(Answer):
    items: list[Bootstrap] = Field(description="newest first; one that has succeeded is in none")


class CoefficientSpan(Answer):
    since_version: int
    since_at: datetime | None = Field(description="when that was committed; null: it is not kept any more")
    until_version: int = Field(description="last version that is known to be so")
    until_at: datetime | None = Field(description="when the version behind it was committed; null: it is the newest")
    holds: bool = Field(
        description="true: the coefficient is 1 in each of these versions; "
        "false: it was looked at now and then, the first and the last version among them, and found the same"
    )
    coefficient: float | None = Field(description="null: the dependent has no values")
    overlap: int | None = Field(description="null: it holds")
    distinct_count: int | None = Field(description="of the dependent; null: it holds")


class HistoryPage(Paged):
    look_seconds: float = Field(description="time between two looks")
    lost_seconds: float = Field(description="where two spans are further apart, nobody looked: there is a gap")
    items: list[CoefficientSpan]


class ChangedRow(Answer):
    table: str
    key: dict[str, str | None] = Field(
        description="columns that tell the table's rows apart, none where that is not known; null: not shown"
    )
    cells: dict[str, str | None] = Field(
        default_factory=dict,
        description=f"of a row without a key, of its columns that are shown: the first {MOST_CELLS}, of each text the "
        f"first {CELL_CHARACTERS} characters; null: NULL",
    )


class Transition(Answer):
    version: int
    committed_at: datetime | None
    kind: TransitionKind
    dependent: AttributeRef
    referenced: AttributeRef
    witness_value: str | None = Field(
        description="one of the values that made or broke it; null: none is known, or it is not shown"
    )
    witness_key: str | None
    cause_count: int = Field(description="how many values did")
    position: dict[str, Any] | None = Field(
        description="in the feed, of the last change that brought or took that value; null: found by a bootstrap"
    )
    row: ChangedRow | None = Field(description="of that change; null: it names none")

    @classmethod
    def of(cls, one: answers.TransitionInfo) -> Transition:
        return cls(
            **{field: getattr(one, field) for field in cls.model_fields if field not in ("dependent", "referenced")},
            dependent=AttributeRef.of(one.dependent),
            referenced=AttributeRef.of(one.referenced),
        )


class ChangesPage(Paged):
    since: int
    items: list[Transition]


class Pair(Versioned):
    dependent: Attribute
    referenced: Attribute
    holds: bool
    coefficient: float | None
    reason: str | None
    overlap: int
    missing_count: int
    missing_values: list[MissingValue] = Field(description="the first ones; /missing lists all")
    since_version: int = Field(description="version at which the pair came to be as it is")
    since_at: datetime | None
    since_reason: str = Field(description="appeared, broke or bootstrap")
    transitions: list[Transition] = Field(description="of this pair, newest first, 100 at most; /changes lists all")

    @classmethod
    def of(cls, head: answers.StateHead, one: answers.PairAnswer) -> Pair:
        share = one.coefficient
        return cls.at(
            head,
            dependent=Attribute.of(one.dependent),
            referenced=Attribute.of(one.referenced),
            holds=one.holds,
            coefficient=share.coefficient,
            reason=NO_VALUES if share.coefficient is None else None,
            overlap=share.overlap,
            missing_count=one.missing_count,
            missing_values=[MissingValue.model_validate(value) for value in one.missing_values.items],
            since_version=one.since.version,
            since_at=one.since.committed_at,
            since_reason=one.since_reason,
            transitions=[Transition.of(event) for event in one.transitions],
        )


class DeadLetter(Answer):
    dead_letter_id: int
    feed: str
    topic: str
    partition: int
    record_offset: int
    error_class: str
    message: str
    record: str = Field(description="as received")
    is_cut: bool = Field(description="record is the beginning of a longer one")
    version: int
    created_at: datetime


class TriedDeadLetter(Answer):
    dead_letter_id: int
    outcome: Outcome = Field(
        description="applied or skipped (the state holds it already): it is none any more; set_aside: it still fails"
    )
    version: int = Field(description="the state's, after it was tried")


class DeadLettersPage(Paged):
    items: list[DeadLetter]

"""Own the values that answers are made of: what a reader finds in one version of the state."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from service.core.model import AttributeName, TransitionKind

if TYPE_CHECKING:  # few answers are estimates
    from service.core.estimators import Estimate

Item = TypeVar("Item")
Key = tuple[int | float | str, ...]
"""Where a page ended: the ordered columns of its last item. The next page begins behind it."""


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Hold one page of an ordered answer; `next_key` is None on the last page."""

    items: list[Item]
    next_key: Key | None


@dataclass(frozen=True, slots=True)
class StateHead:
    """Name the version that an answer is read from. Version 0 is a state without any bootstrap."""

    version: int
    generation: int
    first_version: int
    kind: str | None
    committed_at: datetime | None
    newest_source_ms: int | None
    transaction_consistent: bool | None


NOTHING_KNOWN = StateHead(0, 0, 0, None, None, None, None)


@dataclass(frozen=True, slots=True)
class News:
    """Tell what is new since a version that somebody knows.

    `goes_on`: it is of the same state, with the same history, in which nothing but batches came since; then
    `transitions` are all later ones of columns, in their order, and `turned_at` is the version of the last one, of
    columns or of tuples, 0 when there is none. Otherwise they tell nothing.
    """

    head: StateHead
    goes_on: bool
    transitions: list[TransitionInfo]
    turned_at: int


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """Describe a bootstrapped source; `location` carries no password."""

    name: str
    kind: str
    location: str
    insert_only: bool
    bootstrapped_version: int
    bootstrapped_at: datetime
    table_count: int
    attribute_count: int


@dataclass(frozen=True, slots=True)
class PositionInfo:
    """Tell up to where a feed's partition is applied; `version` is the batch that moved it last."""

    feed: str
    topic: str
    partition: int
    next_offset: int
    source_position: dict[str, Any]
    version: int
    paused_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class FeedInfo:
    """Tell how a feed is that was followed, or was to be; `version` is the batch that moved it last, if any has.

    `is_followed` tells whether a consumer is at work on it, in whichever process, and `fault` why it is not followed
    as it should be, as its consumer said last.
    """

    feed: str
    partitions: int
    version: int | None
    paused_at: datetime | None
    is_followed: bool
    fault: str | None
    fault_at: datetime | None


@dataclass(frozen=True, slots=True)
class StateCounts:
    """Count what the state holds: `values` distinct values over all attributes, `uinds` that hold now.

    `short_sketches` had fewer smallest hashes left than they answer with when the log was folded into them last.
    """

    tables: int
    attributes: int
    clusters: int
    values: int
    uinds: int
    dead_letters: int
    short_sketches: int


@dataclass(frozen=True, slots=True)
class StateAnswer:
    """Describe the whole state at one version."""

    head: StateHead
    counts: StateCounts
    sources: list[SourceInfo]
    positions: list[PositionInfo]


@dataclass(frozen=True, slots=True)
class AttributeRef:
    """Name an attribute with its id."""

    attribute_id: int
    name: AttributeName


@dataclass(frozen=True, slots=True)
class AttributeInfo(AttributeRef):
    """Describe an attribute with its counters; `repeated_count` is None when frequencies are not kept.

    From version `stale_since` on it is not kept current: its source has it no longer, or never sent all of it.
    Of a `sketch_only` attribute no values are stored, so that `distinct_count` is None. Of each value the first
    `shown_characters` are kept and shown, None for all. Of tuples `arity` is the number of their columns.
    """

    source: str
    ordinal: int
    data_type: str
    insert_only: bool
    row_count: int
    null_count: int
    distinct_count: int | None
    repeated_count: int | None
    bootstrapped_version: int
    stale_since: int | None = None
    sketch_only: bool = False
    shown_characters: int | None = None
    arity: int = 1

    @property
    def is_unique(self) -> bool | None:
        """Tell whether no value repeats and none is NULL; None when frequencies are not kept."""
        if self.null_count > 0:
            return False
        return None if self.repeated_count is None else self.repeated_count == 0


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """Describe a cluster: the attributes that share `value_count` values which no other attribute has."""

    cluster_id: int
    attribute_ids: list[int]
    value_count: int


@dataclass(frozen=True, slots=True)
class VersionPoint:
    """Name a version and when it was committed (None when that version's record is gone)."""

    version: int
    committed_at: datetime | None


@dataclass(frozen=True, slots=True)
class UindInfo:
    """Describe an inclusion dependency and the versions at which it held."""

    dependent: AttributeRef
    referenced: AttributeRef
    since: VersionPoint
    until_version: int | None


@dataclass(frozen=True, slots=True)
class MissingValue:
    """Describe a value of the dependent that the referenced attribute lacks.

    `frequency` is how often the dependent has it, None when that is not kept. `is_cut` tells that `value`
    is the beginning of a longer one, and None where nothing of it may be shown. `(cluster_id, value_key)` is its place
    in the order of pages.
    """

    value: str | None
    value_key: str
    is_cut: bool
    frequency: int | None
    cluster_id: int


@dataclass(frozen=True, slots=True)
class TransitionInfo:
    """Describe an inclusion dependency that appeared or broke; `position` is None for a bootstrap.

    `row` is as in `model.Cause`.
    """

    version: int
    committed_at: datetime | None
    kind: TransitionKind
    dependent: AttributeRef
    referenced: AttributeRef
    witness_value: str | None
    witness_key: str | None
    cause_count: int
    position: dict[str, Any] | None
    row: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Coefficient:
    """Hold Φ(dependent, referenced) = overlap / distinct_count, exactly as two integers.

    `coefficient` is None when the dependent has no values: a share of nothing is not defined.
    """

    dependent: AttributeRef
    referenced: AttributeRef
    overlap: int
    distinct_count: int

    @property
    def coefficient(self) -> float | None:
        """Give the share as the nearest float."""
        return self.overlap / self.distinct_count if self.distinct_count else None


@dataclass(frozen=True, slots=True)
class UploadedSketch:
    """Name a sketch that was uploaded, of a column that lives elsewhere; questions name it `sketch:` and its name."""

    name: str
    uploaded_at: datetime


@dataclass(frozen=True, slots=True)
class EstimatedCoefficient:
    """Hold what is known of Φ(dependent, referenced): by the method that was asked for, and exactly.

    Of the method `exact` the interval of `estimate` is one point. `exact` is None unless the values of both are stored.
    """

    dependent: AttributeRef | UploadedSketch
    referenced: AttributeRef | UploadedSketch
    estimate: Estimate
    exact: Coefficient | None


@dataclass(frozen=True, slots=True)
class SketchInfo:
    """Describe a sketch at a version: 2^bucket_bits buckets, k smallest hashes with `spares_left` behind them.

    `distinct_count` is exact when low = high. `is_complete`: it holds all hashes. `counts_values`: it was fed each
    distinct value once, not each cell. `needs_rescan`: fewer than k of its smallest hashes are left, so that others
    can only come from the column itself. A sketch of a fixed size, `most_bytes`, has hashes of `prefix_bits` bits, and
    neither k nor spares. `fault` says why the sketch of an attribute is not to be had; then the rest is None, but for
    what is known of the column.
    """

    column: AttributeRef | UploadedSketch
    fault: str | None = None
    bucket_bits: int | None = None
    k: int | None = None
    spares_left: int | None = None
    distinct_count: float | None = None
    low: float | None = None
    high: float | None = None
    is_complete: bool | None = None
    counts_values: bool | None = None
    needs_rescan: bool | None = None
    prefix_bits: int | None = None
    most_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PairAnswer:
    """Explain one pair: whether it holds, by how much it fails, and since when.

    `since_reason` is `appeared` or `broke` when a transition began the present state of the pair, and
    `bootstrap` when it is as the bootstrap found it.
    """

    dependent: AttributeInfo
    referenced: AttributeInfo
    holds: bool
    coefficient: Coefficient
    since: VersionPoint
    since_reason: str
    missing_values: Page[MissingValue]
    transitions: list[TransitionInfo]

    @property
    def missing_count(self) -> int:
        """Count the distinct values of the dependent that the referenced attribute lacks."""
        return self.coefficient.distinct_count - self.coefficient.overlap


@dataclass(frozen=True, slots=True)
class DeadLetterInfo:
    """Describe a record that was set aside; `record` holds at most its first characters when `is_cut`."""

    dead_letter_id: int
    feed: str
    topic: str
    partition: int
    record_offset: int
    error_class: str
    message: str
    record: str
    is_cut: bool
    version: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class AttributeFilter:
    """Choose attributes: every field given must match; `contains` is a part of the full name.

    Tuples of columns are left out unless their `arity` is asked for, or one by its id.
    """

    schema: str | None = None
    table: str | None = None
    attribute_id: int | None = None
    contains: str | None = None
    arity: int = 1


EVERY_ATTRIBUTE = AttributeFilter()


@dataclass(frozen=True, slots=True)
class TransitionFilter:
    """Choose transitions: later than `since`, of one kind, of some dependents and referenced attributes."""

    since: int = 0
    kind: TransitionKind | None = None
    dependent: AttributeFilter = field(default=EVERY_ATTRIBUTE)
    referenced: AttributeFilter = field(default=EVERY_ATTRIBUTE)
    newest_first: bool = False

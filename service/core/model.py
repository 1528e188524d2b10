"""Own the values that pass between the layers: attributes, changes, positions, records, transitions."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from service.core.errors import RecordError


class AttributeName(NamedTuple):
    """Name one column of one table; `str()` gives `schema.table.column`."""

    schema: str
    table: str
    column: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}.{self.column}"


@dataclass(frozen=True, slots=True)
class Attribute:
    """Describe one column of a tracked table, as the state knows it.

    `data_type` is the source's type name in lower case (`string` for an untyped source); it decides how
    a cell of a change becomes canonical text. Of one that is `sketch_only` no record knows a value. Of its values the
    first `shown_characters` may be kept and shown, None for all (core/shown_values.py).
    """

    attribute_id: int
    name: AttributeName
    ordinal: int
    data_type: str = "string"
    insert_only: bool = False
    sketch_only: bool = False
    shown_characters: int | None = None


@dataclass(frozen=True, slots=True)
class DerivedAttribute:
    """Describe an attribute whose values are tuples: of the columns at `places` of its table's rows, in this order.

    A row with a NULL among them has none (SQL's MATCH SIMPLE). `snapshot` is what a backfill saw of the source
    (`pg_current_snapshot()`): the tuples of these transactions are in the state already.
    """

    attribute: Attribute
    places: tuple[int, ...]
    snapshot: str | None = None


@dataclass(slots=True)
class AttributeCounters:
    """Count what one attribute holds; mutable, because a batch adds to it.

    `repeated_count` counts values with a frequency above 1; it is None for an insert-only attribute,
    whose frequencies are not kept (Incremental INDs 2017, section 6). Of a sketch-only one `distinct_count` is None as
    well: its values are counted by a sketch alone.
    """

    row_count: int = 0
    null_count: int = 0
    distinct_count: int | None = 0
    repeated_count: int | None = 0


class Since(NamedTuple):
    """Say which change first showed a column as it is now: its time at the source, and its partition.

    `is_new` says that before it rows had no such column and have NULL there, `was` are the names that it had.
    """

    ts_ms: int
    topic: str
    partition: int
    is_new: bool = False
    was: tuple[str, ...] = ()

    def is_behind(self, position: FeedPosition, ts_ms: int) -> bool:
        """Tell whether a change may be from before it: from another partition, or repeated.

        In its own partition what has the same time came behind it.
        """
        is_elsewhere = position[:2] != (self.topic, self.partition)
        return 0 < ts_ms < self.ts_ms + is_elsewhere


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Describe a tracked table, with its attributes in the order of their ordinals; equal only to itself.

    `wire` is what changes call it: database (None: any), schema, table. `key` are the places of the columns that
    tell its rows apart, none where that is not known; with `row_images` the state keeps its rows, by that key, so
    that changes without a whole before-image can be applied. `has_full_identity` says that its source sends whole
    before-images for sure (REPLICA IDENTITY FULL). `stale` names columns that are no longer kept current: an image may
    have them or not, and nobody looks at what it says of them. `derived` are attributes of tuples, which no image has.
    `null_tokens` are texts that its source was read with as NULL: in changes they are NULL as well. `since` has, of
    columns that changed since the bootstrap, which change showed it first.
    """

    schema: str
    name: str
    attributes: tuple[Attribute, ...]
    insert_only: bool = False
    table_id: int = 0
    source: str = ""
    wire: tuple[str | None, str, str] | None = None
    key: tuple[int, ...] = ()
    row_images: bool = False
    has_full_identity: bool = False
    stale: tuple[str, ...] = ()
    derived: tuple[DerivedAttribute, ...] = ()
    null_tokens: frozenset[str] = frozenset()
    since: Mapping[str, Since] = field(default_factory=dict)

    @property
    def followed(self) -> tuple[Attribute, ...]:
        """Give all of its attributes, columns first, then the derived ones."""
        return *self.attributes, *(derived.attribute for derived in self.derived)

    def nulled(self, row: Row | None) -> Row | None:
        """Give a row, or some cells of one, with NULL in the place of null tokens."""
        return row and tuple([None if text in self.null_tokens else text for text in row])

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


class Operation(StrEnum):
    """Tell what happened to a row, in Debezium's letters."""

    CREATE = "c"
    UPDATE = "u"
    DELETE = "d"
    READ = "r"
    TRUNCATE = "t"


class FeedPosition(NamedTuple):
    """Place one record in a feed: offsets of a Kafka partition, or byte offsets of a file (partition 0).

    `str()` gives it as messages name it.
    """

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"topic {self.topic}, partition {self.partition}, offset {self.offset}"


def is_place(partition: str, offset: str) -> bool:
    """Tell whether these are numbers of a partition and an offset that can be stored."""
    fits = ((partition, 31), (offset, 63))
    return all(text.isdecimal() and len(text) < 20 and int(text) < 1 << bits for text, bits in fits)


class StoredPosition(NamedTuple):
    """Say where a feed goes on in one (topic, partition), and what the state keeps of that place.

    `source_position` is what the feed or its last change said of the source there, `topic_id` the broker's own id of
    the topic, None where it has none.
    """

    next_offset: int
    source_position: Mapping[str, object] = {}
    topic_id: str | None = None


class RawRecord(NamedTuple):
    """Hold one record of a feed as received; `timestamp_ms` is 0 where the feed has no time of its own."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Sequence[tuple[str, bytes | None]] = ()

    @property
    def position(self) -> FeedPosition:
        """Give its place in its feed."""
        return FeedPosition(self.topic, self.partition, self.offset)


def slot_feed(source: str) -> str:
    """Name the feed of a source that is followed by a slot of its own."""
    return f"postgres:{source}"


def told_anew(feed: str) -> str:
    """Say how a feed that cannot go on where it stands is begun anew: beside other sources a bootstrap leaves it there.

    A slot's feed begins anew by `subsetd follow`.
    """
    forget = shlex.join(["subsetd", "unfollow", feed, "--gone"])
    return (
        f"stop its consumer, forget where it stands by `{forget}`, and bootstrap each of its sources again with "
        f"--replace"
    )


@dataclass(frozen=True, slots=True)
class FeedDescription:
    """Say where a feed is, without a password, what it is known by there, and the ids of its topics by name."""

    address: str
    identity: Mapping[str, object] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)


UNAVAILABLE: Final = "\0unavailable"
"""What stands in a row for a cell that was not sent because it did not change (TOAST); no canonical text has a NUL."""

NULL_IN_DOUBT: Final = "\0null or unavailable"
"""What stands in a row for a NULL that may be a cell which was not sent: its connector has no placeholder for it."""

Row = tuple[str | None, ...]
"""Canonical texts of a row's cells, in the order of its table's attributes; None is NULL."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """Describe one change of one row, already in canonical texts.

    `before` is None for an insert, `after` for a delete, both for a truncate. `position` names the
    record in the feed, `source_position` what the record says of its source (LSN, transaction). Of a table with row
    images `before` is None as well, `key` has the row's key before the change, and cells of `after` may be
    UNAVAILABLE or NULL_IN_DOUBT, until the images have filled them in. `moves` is the row's new key in the halves of a
    change of the key itself, which comes as a delete and a create; both have the old one as their `key`.
    """

    table: Table
    operation: Operation
    before: Row | None
    after: Row | None
    position: FeedPosition
    source_position: dict[str, object] = field(default_factory=dict)
    key: Row | None = None
    moves: Row | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """Name the change that brought or took a witness: its place in the feed, and its row's table and key.

    `row` is `{"table": "schema.table", "key": {column: text}, "cells": {}}`, with what may be shown of the texts. Where
    nothing tells the table's rows apart `key` is empty, and `cells` has the row's first columns; None for a change that
    names no row.
    """

    position: FeedPosition
    row: dict[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """Say why a record of a feed changes no row (a tombstone, a heartbeat, a transaction's end, ...)."""

    position: FeedPosition
    reason: str


NOT_FOLLOWED = "table not followed"
"""Why a change of a table that the state does not know is skipped."""


@dataclass(frozen=True, slots=True)
class TransactionMark(Skipped):
    """Say that a transaction of the source begins, or (with `counts`, of events by table) that it has ended."""

    transaction_id: str = ""
    counts: Mapping[str, int] | None = None


class SchemaDrift(RecordError):
    """A record shows columns that its table is not known to have, or lacks some that it has, or has others' types.

    `added` are pairs of a column and its data type, `missing` the known columns that are not sent any more, `retyped`
    known columns with the type that they have now, `source_position` is what the record says of its source. `filled`
    names those of the added columns of which rows that were there may hold a value (a default, of which no change
    tells); None where nothing says. `position` is the record's, where others may come later that are from before it.
    The consumer acts upon it: see design note 3.
    """

    def __init__(
        self,
        message: str,
        table: Table,
        added: Sequence[tuple[str, str]] = (),
        missing: Sequence[str] = (),
        source_position: dict[str, object] | None = None,
        filled: frozenset[str] | None = None,
        retyped: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(message, message)
        self.table = table
        self.added = tuple(added)
        self.missing = tuple(missing)
        self.source_position = source_position or {}
        self.filled = filled
        self.retyped = tuple(retyped)
        self.position: FeedPosition | None = None


Decoded = RowChange | Skipped | RecordError
"""What one record says: a change, nothing that concerns a row, or why it cannot be applied."""


class BadRecord(NamedTuple):
    """Keep a record that cannot be applied, with the error that says why."""

    record: RawRecord
    error: RecordError


class TransitionKind(StrEnum):
    """Tell whether an inclusion dependency came to hold or ceased to."""

    APPEARED = "appeared"
    BROKE = "broke"


@dataclass(frozen=True, slots=True)
class Transition:
    """Describe an inclusion dependency that appeared or broke in one batch, with its cause.

    The cause of `broke` are values that came to be in the dependent and not in the referenced, of `appeared`
    the values that no longer are; where the dependent was empty before (is empty now), the values that it
    gained (lost). `witness` is the key of one of them, `cause_count` their number.
    """

    kind: TransitionKind
    dependent_id: int
    referenced_id: int
    witness: bytes | None = None
    cause_count: int = 0

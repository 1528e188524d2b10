"""Own what is looked at before a feed is followed, and the form of what is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from service.core.sql_names import sql_name


class Level(StrEnum):
    """Say how bad a finding is: `fail` stops a feed or makes its state wrong, `warn` may."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(NamedTuple):
    """Say what was found of what, and the statement or setting that mends it."""

    level: Level
    about: str
    found: str
    way_out: str = ""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """Describe a table of a Postgres source; `identity` is full, default, index or nothing.

    `stored` and `virtual` are its generated columns.
    """

    schema: str
    name: str
    owner: str
    identity: str
    has_key: bool
    is_unlogged: bool = False
    hides_rows: bool = False
    may_read: bool = True
    types: frozenset[str] = frozenset()
    stored: tuple[str, ...] = ()
    virtual: tuple[str, ...] = ()
    is_partitioned: bool = False

    def __str__(self) -> str:
        return sql_name(self.schema, self.name)


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """Describe a replication slot; `wal_status` is Postgres' word, `held_bytes` the WAL that it holds back."""

    name: str
    database: str | None
    is_active: bool
    wal_status: str | None
    held_bytes: int | None
    catalog_xmin: int | None


@dataclass(frozen=True, slots=True)
class PublicationFacts:
    """Describe a publication; `cut` are tables of which it leaves out columns or rows.

    `tells_stored` says that it has the generated columns that are stored (from Postgres 18 on, where it is set),
    `via_root` that changes of partitions have the name of their root.
    """

    name: str
    operations: frozenset[str]
    tables: frozenset[tuple[str, str]]
    cut: frozenset[tuple[str, str]] = frozenset()
    tells_stored: bool = False
    via_root: bool = False


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """Describe a Postgres that is to be a source."""

    place: str
    location: str
    user: str
    version: int
    is_standby: bool
    wal_level: str
    may_replicate: bool
    senders: tuple[int, int]
    """(used, most)"""
    slots_used: tuple[int, int]
    keeps_any_wal: bool
    tables: Sequence[TableFacts]
    slots: Sequence[SlotFacts] = ()
    publications: Sequence[PublicationFacts] = ()
    waits_for_any_reader: bool = False
    """Whether whoever reads the log may be taken for a synchronous standby, that commits wait for."""


@dataclass(frozen=True, slots=True)
class ConnectorFacts:
    """Describe a connector of Kafka Connect."""

    name: str
    config: Mapping[str, str]
    states: Sequence[str]


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """Describe a topic; `begins` are the first offsets that are there, `ends` those of what comes next.

    `is_keyed` is None where it has no record, `compaction_lag_ms` how old a record is before a later one replaces it.
    """

    name: str
    partitions: int
    cleanup: str
    retention_ms: int
    begins: Mapping[int, int] = field(default_factory=dict)
    is_keyed: bool | None = None
    ends: Mapping[int, int] = field(default_factory=dict)
    compaction_lag_ms: int = 0


@dataclass(frozen=True, slots=True)
class FollowedTable:
    """Describe a table that the state follows, by what changes call it; `known_as` is its name in the state."""

    source: str
    database: str | None
    schema: str
    name: str
    row_images: bool
    identity: str | None
    known_as: str


@dataclass(frozen=True, slots=True)
class StateFacts:
    """Describe what the state knows: sources as (name, location, snapshot), positions, what needs a person."""

    version: int
    sources: Sequence[tuple[str, str, str | None]]
    tables: Sequence[FollowedTable]
    positions: Mapping[tuple[str, str, int], int]
    dead_letters: int = 0
    stale: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Hold what was looked at; None was not. `binary_handling` is the setting of this name."""

    state: StateFacts | None = None
    source: SourceFacts | None = None
    connectors: Sequence[ConnectorFacts] | None = None
    feed: str | None = None
    topics: Sequence[TopicFacts] | None = None
    has_registry: bool = False
    binary_handling: str = "base64"

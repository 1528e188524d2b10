"""Own what the use cases need of the outside: the Protocols that the store implements."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Literal, Protocol

from service.core.contracts import BoundContract
from service.core.foreign_keys.sides import Side
from service.core.model import (
    BadRecord,
    FeedDescription,
    RawRecord,
    RowChange,
    SchemaDrift,
    Skipped,
    StoredPosition,
    Table,
    TransitionKind,
)
from service.core.records import Keys, NewRecords, Records, UInt64s
from service.core.sketches.column import ColumnSketch
from service.core.sketches.comparable import Comparable
from service.usecases.activity import Activity
from service.usecases.answers import (
    AttributeFilter,
    AttributeInfo,
    AttributeRef,
    ClusterInfo,
    DeadLetterInfo,
    FeedInfo,
    Key,
    MissingValue,
    News,
    PositionInfo,
    SourceInfo,
    StateCounts,
    StateHead,
    TransitionFilter,
    TransitionInfo,
    UindInfo,
    UploadedSketch,
    VersionPoint,
)
from service.usecases.audits import Audit
from service.usecases.bootstrap_runs import BootstrapRun
from service.usecases.coefficient_history import CoefficientSpan
from service.usecases.foreign_key_decisions import Contract, ContractEvent, ContractState, Decision
from service.usecases.kept_candidates import Candidate, CandidateFilter, Refresh
from service.usecases.key_values import DeclaredForeignKey, KeyFilter, KeyInfo, RepeatedValue, TupleInfo
from service.usecases.live_state import BatchCommit, StoredState
from service.usecases.row_images import Images


class StateSnapshot(Protocol):
    """Read one version of the state: all methods of one snapshot see the same version, `head`.

    Lists come in a fixed order and hold at most `limit` items behind the key `after`, which is made of the
    columns of that order; it is given in each method's first line.
    """

    @property
    def head(self) -> StateHead:
        """Name the version that is read."""

    def sources(self) -> list[SourceInfo]:
        """List the sources by name."""

    def positions(self) -> list[PositionInfo]:
        """List the feeds' positions by feed, topic, partition."""

    def feeds(self) -> list[FeedInfo]:
        """List the feeds by name, and how they are now, whatever the version."""

    def counts(self) -> StateCounts:
        """Count what the state holds."""

    def goes_on(self, since: int) -> bool:
        """Tell whether all versions after one are batches: others change what is told of earlier ones."""

    def version_point(self, version: int) -> VersionPoint:
        """Give the time of a version."""

    def attributes(self, chosen: AttributeFilter, after: Key | None, limit: int) -> list[AttributeInfo]:
        """List attributes by (schema, table, ordinal, attribute_id)."""

    def attributes_named(self, full_name: str) -> list[AttributeInfo]:
        """Find the attributes whose `schema.table.column` is exactly this text; more than one is possible."""

    def attribute(self, attribute_id: int) -> AttributeInfo | None:
        """Find an attribute by its id."""

    def references(self, attribute_ids: Iterable[int]) -> dict[int, AttributeRef]:
        """Give the names of these attributes, by id."""

    def clusters(self, attribute_id: int | None, after: Key | None, limit: int) -> list[ClusterInfo]:
        """List clusters, those with one attribute or all, by (cluster_id)."""

    def uinds(
        self,
        dependent: AttributeFilter,
        referenced: AttributeFilter,
        as_of: int | None,
        *,
        after: Key | None,
        limit: int,
    ) -> list[UindInfo]:
        """List the INDs that held at version `as_of` (None: now) by (dependent_id, referenced_id)."""

    def ind_pairs(self) -> list[tuple[int, int]]:
        """Give (dependent_id, referenced_id) of all INDs that hold now, in this order."""

    def overlap(self, first_id: int, second_id: int) -> int:
        """Count the values that two attributes share."""

    def overlaps(self, attribute_id: int) -> list[tuple[int, int, int]]:
        """Give (other attribute's id, number of shared values, of shared clusters) for all that share one.

        In no order. The numbers of clusters add up to the work of the answer.
        """

    def sketches(self, attribute_ids: Sequence[int]) -> Iterator[tuple[int, ColumnSketch | str]]:
        """Give the sketches of these attributes, or why one is not to be had, by (attribute_id)."""

    def sketches_tag(self) -> str:
        """Name what a compactor has changed in sketches beside versions; an empty text when nothing is left to it."""

    def hashes(self, attribute_id: int, count: int) -> Iterator[UInt64s]:
        """Give the hashes of an attribute's `count` values, in portions and no order.

        Needs a snapshot that was opened `with_values`.
        """

    def uploaded(self) -> list[UploadedSketch]:
        """List what is uploaded by (name)."""

    def uploads(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Give the bytes of the uploaded sketches of these names, by (name)."""

    def uploads_tag(self) -> str:
        """Name what is uploaded, all of it; an empty text when nothing is."""

    def upkeep_tag(self) -> str:
        """Name what commands have changed beside versions: letters, pauses, history; an empty text when nothing is."""

    def missing_values(
        self, dependent_id: int, referenced_id: int, after: Key | None, limit: int
    ) -> list[MissingValue]:
        """List values of one attribute that another lacks by (cluster_id, value_key).

        Needs a snapshot that was opened `with_values`.
        """

    def transitions(self, chosen: TransitionFilter, after: Key | None, limit: int) -> list[TransitionInfo]:
        """List transitions by (version, dependent_id, referenced_id), or the reverse of it."""

    def activity(self) -> Activity:
        """Tell what was committed in the last half hour."""

    def last_transition(self, dependent_id: int, referenced_id: int, kind: TransitionKind) -> TransitionInfo | None:
        """Find the newest transition of one kind of a pair."""

    def coefficient_spans(
        self, dependent_id: int, referenced_id: int, before: int | None, limit: int
    ) -> list[CoefficientSpan]:
        """List what is known of a pair's coefficient by descending (since_version), those below `before`."""

    def coefficient_tag(self, dependent_id: int, referenced_id: int) -> str:
        """Name what looks have found of a pair's coefficient; they are beside all versions."""

    def audits(self, before: int | None, limit: int) -> list[Audit]:
        """List audits, newest first: by descending (audit_id), those below `before`. They are beside all versions."""

    def decisions(self, before: int | None, limit: int) -> list[Decision]:
        """List decisions about foreign keys, newest first: by descending (decision_id), those below `before`.

        They are beside all versions, as contracts are; `contracts_tag` names what there is of both.
        """

    def keys(self, chosen: KeyFilter, after: Key | None, limit: int) -> list[KeyInfo]:
        """List keys by (schema, table, ordinal, attribute_id)."""

    def tuples(self) -> list[TupleInfo]:
        """List the attributes that are tuples of columns by (attribute_id)."""

    def repeated_values(self, attribute_id: int, limit: int) -> list[RepeatedValue]:
        """List values that an attribute has more than once, the most frequent first."""

    def contracts(
        self, after: int, limit: int, dependent: Side | None = None, referenced: Side | None = None
    ) -> list[Contract]:
        """List contracts, as they stand at this version, all or those of these sides, by (contract_id)."""

    def contract(self, contract_id: int) -> Contract:
        """Find a contract; raise NotFoundError when there is none."""

    def contract_events(
        self, contract_id: int | None, after: Key, limit: int, newer_than: int = 0, since: int = 0
    ) -> list[ContractEvent]:
        """List transitions of one contract, or of all with an id above one, by (version, contract_id).

        Of version `since` and earlier those alone that no change brought, as of a contract that was added after it.
        """

    def newest_contract(self) -> int:
        """Give the id of the contract that was added last; 0 when there is none."""

    def contract_counts(self) -> dict[ContractState, int]:
        """Count contracts by how they stand."""

    def bootstraps(self) -> list[BootstrapRun]:
        """List the bootstraps that run, died or failed, newest first; they are beside all versions."""

    def declared_references(self, after: int, limit: int) -> list[DeclaredForeignKey]:
        """List the foreign keys that sources declare by (reference_id)."""

    def foreign_key_refreshes(self) -> list[Refresh]:
        """List the last finding of foreign keys by each method; it is beside all versions, and names its own."""

    def candidates(self, refresh_id: int, chosen: CandidateFilter, after: int, limit: int) -> list[Candidate]:
        """List candidates of a finding by (place)."""

    def contracts_tag(self) -> str:
        """Name what there is of contracts and decisions."""

    def dead_letters(self, feed: str | None, after: Key | None, limit: int) -> list[DeadLetterInfo]:
        """List dead letters by (dead_letter_id); long records are cut."""


class StateReader(Protocol):
    """Open snapshots of the state."""

    def snapshot(self, *, with_values: bool = False) -> AbstractContextManager[StateSnapshot]:
        """Open a snapshot of the newest version; `with_values` when generator records will be read.

        Raises `StateError` when the database is away or holds no state of this schema.
        """


class NewsReader(Protocol):
    """Read what is new on the event loop: no thread waits for it."""

    async def read(self, known: StateHead) -> News:
        """Tell what is new since a version that was the newest; raises `StateError` when the database is away."""

    def close(self) -> None:
        """Release the connection; the next question opens another one."""


class Uploads(Protocol):
    """Keep sketches that were uploaded; they are no part of a version. Every method may raise `StateError`."""

    def put(self, name: str, sketch: Comparable) -> tuple[datetime, bool]:
        """Keep a sketch under a name, in the place of one that has it; tell when, and whether the name is new."""

    def delete(self, name: str) -> None:
        """Forget a sketch; raise `NotFoundError` when no sketch has the name."""


class UnitOfWork(Protocol):
    """Write one batch in one transaction: records may be written in several portions, `commit` ends it."""

    def write_records(self, records: NewRecords, texts: Sequence[str], changed_texts: Sequence[str] = ()) -> None:
        """Write generator records: insert, update and delete.

        `texts` are those of the new ones, in their order, `changed_texts` those of the others; none where they stay.
        """

    def records_of(self, cluster_ids: Sequence[int], portion: int) -> Iterator[tuple[Keys, Records, list[str]]]:
        """Read the records of clusters as they were at the first call, in portions, with their stored texts.

        Keys are in ascending order within a portion.
        """

    def commit(self, commit: BatchCommit) -> Sequence[BoundContract] | None:
        """Write everything else of the batch and commit it; nothing is stored when this raises.

        Gives the contracts that there are, unless they are those that the batch knew.
        """

    def rollback(self) -> None:
        """Give the transaction up."""


class StateWriter(Protocol):
    """Load and write the state as its one writer. Every method may raise `StateError`."""

    def acquire(self, behind_others: threading.Event | None = None) -> bool:
        """Take the writer's lock on a connection of its own; raise `StateError` naming who has it.

        With `behind_others` wait for those to whom it was handed over, until that event is set: False then.
        """

    def is_wanted(self) -> bool:
        """Tell whether somebody waits for the writer's lock."""

    def load(self) -> StoredState:
        """Read the whole state but the generator records; raise `StateError` when nothing was bootstrapped."""

    def positions(self, feed: str) -> dict[tuple[str, int], StoredPosition]:
        """Read where a feed goes on in each (topic, partition)."""

    def catch_up(self, feed: str) -> dict[tuple[str, int], dict[str, int]]:
        """Read, by (topic, partition) of a feed, before which offset a source's data holds all records, by source."""

    def change_schema(self, drift: SchemaDrift, feed: str) -> Sequence[str]:
        """Store what a change of a table's columns means, and name those that are no longer kept current.

        Raises RecordError when it says nothing new.
        """

    def make_stale(self, attribute_ids: Sequence[int], feed: str) -> None:
        """Store that attributes are no longer kept current; they keep their values."""

    def register(self, feed: str, description: FeedDescription) -> None:
        """Remember a feed that is going to be followed; raise `StateError` when its address was another feed's."""

    def is_paused(self, feed: str) -> bool:
        """Tell whether a feed is not to be followed for now."""

    def lookup(self, keys: Keys) -> Records:
        """Read the committed records of ascending keys; NO_CLUSTER for a key that has none."""

    def read_range(self, number: int, bits: int) -> tuple[Keys, Records]:
        """Read all committed records of the keys whose first `bits` bits are `number`, by ascending key.

        On a connection of its own: another thread than the consumer's may ask.
        """

    def read_images(self, wanted: Mapping[Table, Iterable[bytes]]) -> Images:
        """Read the committed images of rows, by table and row key, those that have one."""

    def begin(self) -> UnitOfWork:
        """Begin a transaction on the writer's connection."""

    def close(self) -> None:
        """Release lock and connections."""


class SketchLog(Protocol):
    """Keep the log of what changed in sketches, each step in a transaction of its own. May raise `StateError`."""

    def backlog(self) -> tuple[int, int]:
        """Count the versions in the log, and their bytes."""

    def fold(self, most_bytes: int) -> list[str] | None:
        """Fold the oldest versions into the sketches, as many as so many bytes hold, but one at least.

        Gives what is to be told of sketches: those that cannot be true, and are kept current no more, and those of
        sketch-only sources whose smallest hashes ran short. None when somebody else is writing them.
        """

    def rescan(self) -> bool:
        """Build a sketch anew that has too few of its smallest hashes; False when there is none, or not now."""


LagUnit = Literal["records", "bytes"]


class Feed(Protocol):
    """Follow a change feed from stored positions. Every method may raise `FeedError`."""

    @property
    def lag_unit(self) -> LagUnit:
        """Name what `lag` counts."""

    @property
    def name(self) -> str:
        """Identify the feed among the stored positions."""

    def describe(self) -> FeedDescription:
        """Say where the feed is and what it is known by; its topics' ids as far as they are known by now."""

    def start(self, positions: Mapping[tuple[str, int], StoredPosition]) -> None:
        """Connect, and go on where the state stands in each (topic, partition)."""

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Sequence[RawRecord]:
        """Give the next records, none after `timeout` seconds without any."""

    def positions(self) -> dict[tuple[str, int], int]:
        """Give the next offset of each (topic, partition) after the last poll."""

    def source_positions(
        self, positions: Mapping[tuple[str, int], int]
    ) -> Mapping[tuple[str, int], Mapping[str, object]]:
        """Say what the state must keep of these positions, beside what their last changes say of the source.

        The feed gets it back at its next start, as `source_position`.
        """

    def at_end(self) -> bool:
        """Tell whether everything that was there at the start has been polled."""

    def is_whole(self, positions: Mapping[tuple[str, int], int]) -> bool | None:
        """Tell whether the source's transactions are whole in front of these positions, None when it does not say."""

    def lag(self) -> Mapping[tuple[str, int], int] | None:
        """Tell of each (topic, partition) how far behind its end the last poll was, None when that is not known."""

    def rest(self) -> None:
        """Keep the connection alive and learn where the feed's end is, reading nothing."""

    def committed(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Hear that the state stands at these positions: a hint for the feed's own tools."""

    def close(self) -> None:
        """Release connections."""


class Outbox(Protocol):
    """Remember which transitions were sent, by sink. Every method may raise `StateError`."""

    def sent(self, sink: str) -> int:
        """Give the newest version whose transitions were all sent; 0 for a sink that is new.

        Of contracts, which have a sink of their own name, the id of the newest that was there.
        """

    def advance(self, sink: str, version: int) -> None:
        """Remember that all transitions up to a version were sent; never goes back."""

    def wait(self, seconds: float) -> None:
        """Wait for a commit of the state, at most so long; commits since the last call count."""


class TransitionSink(Protocol):
    """Take transitions to the outside."""

    @property
    def name(self) -> str:
        """Identify the sink in the state."""

    def send(self, messages: Sequence[tuple[str, Mapping[str, object]]]) -> None:
        """Send messages with their keys and wait until they are safe; raise `FeedAwayError` when they are not."""


class Decoder(Protocol):
    """Turn records into row changes of the tracked tables."""

    @property
    def followed(self) -> Sequence[Table]:
        """Give the tables whose changes it reads."""

    def decode(self, record: RawRecord) -> RowChange | Skipped:
        """Decode one record; raise RecordError for one that cannot be applied.

        What is said of a record may depend on those before it: a feed's records come once each, in their order.
        """


class DeadLetterSink(Protocol):
    """Send records that were set aside to where others read them."""

    def send(self, letters: Sequence[BadRecord]) -> None:
        """Send letters and wait until they are taken; raise `FeedError` when they are not."""

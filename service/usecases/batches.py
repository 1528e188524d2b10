"""Own what a batch is: its bounds, what its records say, where it is cut, and what is told of it behind its commit."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from typing import Protocol

from service.core.errors import RecordError, SubsetdError
from service.core.model import BadRecord, Decoded, FeedPosition, RawRecord, RowChange, Skipped, Table
from service.usecases.live_state import Accesses, BatchCounts
from service.usecases.ports import Decoder, LagUnit
from service.usecases.screening import Reader, Seen
from service.usecases.transactions import TransactionKey

_PLACE = attrgetter("topic", "partition")

Positions = dict[tuple[str, int], int]


class ErrorPolicy(StrEnum):
    """Say what becomes of a record that cannot be applied (Kafka Connect's `errors.tolerance`)."""

    STOP = "none"
    SET_ASIDE = "all"


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Bound a batch by count, bytes and time; the first bound that is met ends it."""

    records: int = 10_000
    bytes: int = 32 * 1024 * 1024
    wait_seconds: float = 0.02


@dataclass(frozen=True, slots=True)
class BatchReport:
    """Tell of one committed batch: what it held, how long its steps took, how the caches did."""

    version: int
    counts: BatchCounts
    accesses: Accesses
    seconds: dict[str, float]
    lag: Positions | None
    newest_source_ms: int | None
    cache_hits: int
    cache_misses: int
    cache_entries: int
    cache_bytes: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Records that were skipped, by reason."""


@dataclass
class Totals(Accesses, BatchCounts):
    """Sum up a run's batches; `seconds` are of the steps, `elapsed` from the first record to the last commit.

    `warmed` records were read in bulk to fill ValCache, beside those that were `read` for a batch.
    """

    batches: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    warmed: int = 0
    warm_up_seconds: float = 0.0
    elapsed: float = 0.0
    version: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, report: BatchReport) -> None:
        """Count a batch that is durable."""
        self.batches += 1
        self.version = report.version
        for counted in (report.counts, report.accesses):
            for one in fields(counted):
                setattr(self, one.name, getattr(self, one.name) + getattr(counted, one.name))
        self.cache_hits += report.cache_hits
        self.cache_misses += report.cache_misses
        for step, spent in report.seconds.items():
            self.seconds[step] = self.seconds.get(step, 0.0) + spent


class Observer(Protocol):
    """Hear what the consumer does; called from its threads, must not raise."""

    def beginning(self, feed: str) -> None:
        """Hear the name of the feed that is going to be followed."""

    def following(
        self, version: int, committed_at: datetime | None, tables: int, clusters: int, positions: Positions
    ) -> None:
        """Hear that the state of so many tables and clusters is loaded, and the feed followed from these positions.

        `committed_at` is when its version was committed, by whomever.
        """

    def committed(self, report: BatchReport) -> None:
        """Hear that a batch is durable."""

    def waiting(self, lag: Positions | None) -> None:
        """Hear how far what is committed stands behind the feed's ends: at a new batch, or when there was none."""

    def schema_changed(self, table: Table, added: Sequence[tuple[str, str]], left: Sequence[str]) -> None:
        """Hear which columns came to a table or have another type now, and which are no longer kept current."""

    def retrying(self, error: SubsetdError) -> None:
        """Hear that the database (or then the feed) failed and the state will be loaded anew."""

    def shards_away(self, told: Sequence[str]) -> None:
        """Hear which shards' servers are away, so that nothing is concluded; of none, that all are there again."""


@dataclass(slots=True)
class Batch:
    """Hold a batch between decoding and commit; `decoded` and `transactions`, if any, are aligned with its records."""

    records: Sequence[RawRecord]
    decoded: Sequence[Decoded]
    before: Positions
    after: Positions
    seconds: dict[str, float]
    bad: list[BadRecord] = field(default_factory=list)
    transactions: Sequence[TransactionKey | None] = ()
    is_whole: bool | None = None
    skipped: list[Skipped] = field(default_factory=list)
    seen: dict[tuple[str, int], dict[Reader, Seen]] = field(default_factory=dict)

    def part(self, start: int, end: int, before: Positions) -> Batch:
        """Cut some records out, of which those in front are applied up to `before`; it ends before the rest."""
        after = dict(self.after)
        for record in reversed(self.records[end:]):
            after[record.topic, record.partition] = record.offset
        # The parts are told of one by one: what was spent on the whole goes to the first, once.
        records, decoded = self.records[start:end], self.decoded[start:end]
        part = Batch(records, decoded, before, after, {} if start else self.seconds)
        part.transactions = self.transactions[start:end]
        if self.is_whole is not None:
            behind = set(self.transactions[end:]) - {None}
            part.is_whole = self.is_whole and behind.isdisjoint(self.transactions[:end])
        return part


def decode_each(decoder: Decoder, records: Iterable[RawRecord]) -> list[Decoded]:
    """Decode records in their order, aligned with them; raises only what `decoder` raises beside RecordError."""
    decode = decoder.decode
    decoded: list[Decoded] = []
    for record in records:
        try:
            decoded.append(decode(record))
        except RecordError as error:
            decoded.append(error.with_traceback(None))  # which would hold this frame, and all that was decoded
    return decoded


def separate(
    records: Sequence[RawRecord], decoded: Sequence[Decoded]
) -> tuple[list[RowChange], list[Skipped], list[BadRecord]]:
    """Separate what records were decoded to: changes, skipped and bad ones, each in the order of the records."""
    changes: list[RowChange] = []
    skipped: list[Skipped] = []
    bad: list[BadRecord] = []
    for record, one in zip(records, decoded, strict=True):
        if isinstance(one, RowChange):
            changes.append(one)
        elif isinstance(one, Skipped):
            skipped.append(one)
        else:
            bad.append(BadRecord(record, one))
    return changes, skipped, bad


@contextmanager
def timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    started = time.perf_counter()
    try:
        yield
    finally:
        seconds[step] = seconds.get(step, 0.0) + time.perf_counter() - started


def with_records(
    lag: Mapping[tuple[str, int], int] | None, records: Iterable[RawRecord], by: int, unit: LagUnit
) -> Positions | None:
    """Add records to what is behind, by topic and partition (1), or take them away from it (-1), in the lag's unit."""
    if lag is None:
        return None
    if unit == "records":
        counted = Counter(map(_PLACE, records))
    else:
        counted = Counter()
        for record in records:
            counted[_PLACE(record)] += len(record.value or b"") + 1
    return {place: behind + by * counted[place] for place, behind in lag.items()}


def first_of(records: Sequence[RawRecord], places: Iterable[FeedPosition]) -> int | None:
    """Return where in `records` the first of the places is."""
    wanted = set(places)
    if not wanted:
        return None
    return next((i for i, record in enumerate(records) if record.position in wanted), None)

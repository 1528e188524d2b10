"""Own the way of a change: from the feed's records to the committed state, batch after batch.

The next batch is read, decoded, netted and applied in memory while the database writes the present one: the
core is ahead of the store by one batch at most, and whatever fails throws the memory away and loads it anew.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

import numpy as np

from service.core.clustering import NULL_KEY, Underflow
from service.core.errors import DamagedStateError, FeedAwayError, FeedError, RecordError, StateError, SubsetdError
from service.core.model import BadRecord, FeedPosition, Operation, RawRecord, RowChange, SchemaDrift, Skipped, Table
from service.core.records import Keys, NewRecords, Records, find_keys, gather
from service.usecases.live_state import BatchCommit, BatchCounts, LiveState, StateDelta
from service.usecases.netting import net, offenders
from service.usecases.ports import DeadLetterSink, Decoder, Feed, StateWriter, UnitOfWork
from service.usecases.retry_dead_letters import DeadLetterFeed
from service.usecases.row_images import Image, Images, complete, wanted_rows
from service.usecases.screening import RetryScreen, Screen, Screened, Seen, count_reasons, put_seen
from service.usecases.transactions import TransactionBuffer, TransactionKey, WaitLimits
from service.usecases.warm_up import WarmUp, WarmUpPolicy

TRUNCATE_PORTION = 20_000
LOOK_SECONDS = 1.0
"""How often the consumer looks between batches whether it is to hand over, or to pause."""

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
    values: int
    read: int
    written: int
    seconds: dict[str, float]
    lag: int | None
    newest_source_ms: int | None
    cache_hits: int
    cache_misses: int
    cache_entries: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Records that were skipped, by reason."""


@dataclass(slots=True)
class Totals(BatchCounts):
    """Sum up a run's batches; `seconds` are of the steps, `elapsed` from the first record to the last commit.

    `warmed` records were read in bulk to fill ValCache, beside those that were `read` for a batch.
    """

    batches: int = 0
    values: int = 0
    read: int = 0
    written: int = 0
    without_caches: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    warmed: int = 0
    warm_up_seconds: float = 0.0
    elapsed: float = 0.0
    version: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


class Observer(Protocol):
    """Hear what the consumer does; called from its threads, must not raise."""

    def following(self, state: LiveState, positions: Positions) -> None:
        """Hear that the state is loaded and the feed followed from these positions."""

    def committed(self, report: BatchReport) -> None:
        """Hear that a batch is durable."""

    def waiting(self, lag: int | None) -> None:
        """Hear that the feed gave nothing and all before is committed, and how far behind its end it stands."""

    def schema_changed(self, table: Table, added: Sequence[tuple[str, str]], left: Sequence[str]) -> None:
        """Hear that columns (with their types) came to a table, and that others are no longer kept current."""

    def retrying(self, error: SubsetdError) -> None:
        """Hear that the database (or then the feed) failed and the state will be loaded anew."""


@dataclass(slots=True)
class _Batch:
    """Hold a batch between decoding and commit."""

    records: Sequence[RawRecord]
    before: Positions
    after: Positions
    seconds: dict[str, float]
    bad: list[BadRecord] = field(default_factory=list)
    transactions: Sequence[TransactionKey | None] = ()
    is_whole: bool | None = None
    skipped: list[Skipped] = field(default_factory=list)
    seen: dict[tuple[str, int], dict[str, Seen]] = field(default_factory=dict)


class Consumer:
    """Follow one feed and keep the state current, as its one writer."""

    def __init__(
        self,
        writer: StateWriter,
        open_feed: Callable[[], Feed],
        make_decoder: Callable[[Sequence[Table]], Decoder],
        value_keys: Callable[[Sequence[str]], Keys],
        observer: Observer,
        *,
        limits: BatchLimits = BatchLimits(),
        on_error: ErrorPolicy = ErrorPolicy.STOP,
        cache_bytes: int = 512 * 1024 * 1024,
        warm_up: WarmUpPolicy = WarmUpPolicy.BESIDE,
        retry_seconds: float = 60.0,
        wait_limits: WaitLimits | None = None,
        dead_letter_sink: DeadLetterSink | None = None,
    ) -> None:
        self.totals = Totals()
        self._writer = writer
        self._open_feed = open_feed
        self._make_decoder = make_decoder
        self._value_keys = value_keys
        self._observer = observer
        self._limits = limits
        self._on_error = on_error
        self._cache_bytes = cache_bytes
        self._warm_up = warm_up
        self._retry_seconds = retry_seconds
        self._wait_limits = wait_limits or WaitLimits()
        self._dead_letter_sink = dead_letter_sink
        self._started: float | None = None

    def run(self, stop: threading.Event, until_end: bool = False) -> Totals:
        """Follow the feed until `stop` is set, or (`until_end`) until all that was there at the start is applied.

        The batch in hand is ended and committed first. A database that fails in mid-batch is tried again until
        nothing could be committed for `retry_seconds`: the state is loaded anew and the feed, which may be away for
        as long, goes on where it stands. Raises RecordError (with `ErrorPolicy.STOP`, everything before that record
        committed), FeedError, and StateError.
        """
        failing_since: float | None = None
        stood_at = 0
        has_followed = False
        while True:
            session = None
            try:
                if not self._writer.acquire(stop if has_followed else None):
                    return self.totals
                session = _Session(self)
                has_followed = True
                session.follow(stop, until_end)
                return self.totals
            except _BeginAnew:
                failing_since = None
            except DamagedStateError:
                raise
            except (StateError, FeedError) as error:
                now = time.monotonic()
                if not has_followed:
                    raise
                if session is not None and isinstance(error, FeedError) and not isinstance(error, FeedAwayError):
                    raise
                if failing_since is None or self.totals.version > stood_at:
                    failing_since, stood_at = now, self.totals.version
                if now - failing_since > self._retry_seconds:
                    raise
                self._observer.retrying(error)
                if stop.wait(0.5):
                    raise
            finally:
                if session is not None:
                    session.close()
                self._writer.close()


class _BeginAnew(Exception):
    """The state is to be let go and loaded anew, all before the present record is committed."""


class _Session:
    """Hold everything that a failure of the database makes void: memory, feed, the batch in flight."""

    def __init__(self, consumer: Consumer) -> None:
        self._of = consumer
        self._writer = consumer._writer
        loaded = self._writer.load()
        self._state = LiveState(loaded, consumer._cache_bytes)
        consumer.totals.version = self._state.version
        self._decoder = consumer._make_decoder(self._state.tables)
        self._feed = consumer._open_feed()
        stored = self._writer.positions(self._feed.name)
        self._positions = {place: position.next_offset for place, position in stored.items()}
        self._in_flight: Future[None] | None = None
        self._pending = NewRecords.none()
        self._pending_images: Images = {}
        self._source_positions = {place: position.source_position for place, position in stored.items()}
        self._screen: Screen | RetryScreen
        self._retried = self._feed.versions if isinstance(self._feed, DeadLetterFeed) else None
        if self._retried is None:
            catch_up = self._writer.catch_up(self._feed.name)
            self._screen = Screen(loaded.snapshots, self._source_positions, catch_up)
        else:
            self._screen = RetryScreen(loaded.snapshots, self._retried, loaded.begun)
        self._refused: dict[tuple[str, tuple[tuple[str, str], ...], tuple[str, ...]], str] = {}
        """What was said against changes of columns, behind the error's own text."""
        self._looks_at = time.monotonic() + LOOK_SECONDS
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="subsetd-store")
        values = sum(count for _, _, count in self._state.clusters)
        self._warm_up = WarmUp(self._state.cache, values, self._writer.read_range, consumer._warm_up)
        try:
            if self._retried is None:
                self._writer.register(self._feed.name, self._feed.describe())
            self._feed.start(stored)
            topics = {topic for topic, _ in self._feed.positions()}
            self._buffer = TransactionBuffer(self._state.tables, topics, consumer._wait_limits)
        except BaseException:
            self.close()
            raise
        consumer._observer.following(self._state, self._positions)

    def close(self) -> None:
        """Let go of the feed; a batch in flight ends first, its failure has been told or will be met on reloading."""
        self._warm_up.close()
        self._pool.shutdown(wait=True)
        self._feed.close()

    def follow(self, stop: threading.Event, until_end: bool) -> None:
        while not stop.is_set():
            if time.monotonic() >= self._looks_at and self._retried is None:
                self._looks_at = time.monotonic() + LOOK_SECONDS
                self._hand_over_if_wanted()
                self._rest_while_paused(stop)
            self._warm_up.take()
            self._of.totals.warmed, self._of.totals.warm_up_seconds = self._warm_up.records, self._warm_up.seconds
            seconds: dict[str, float] = {}
            with _timed(seconds, "collect"):
                records = self._collect()
            batch = self._whole(records, seconds)
            if batch.records:
                if self._of._started is None:
                    self._of._started = time.perf_counter() - seconds["collect"]
                self._take(batch)
            elif not records:
                self._settle()
                self._of._observer.waiting(self._lag())
                if until_end and self._feed.at_end() and not self._buffer.held:
                    break
        self._settle()

    def _hand_over_if_wanted(self) -> None:
        """Look whether somebody waits to write the state; then end the batch in flight and make room."""
        if self._writer.is_wanted():
            self._settle()
            raise _BeginAnew

    def _rest_while_paused(self, stop: threading.Event) -> None:
        """Look whether the feed is paused; then end the batch in flight and wait, with the lock, for its resumption."""
        while self._writer.is_paused(self._feed.name) and not stop.is_set():
            self._settle()
            self._feed.rest()
            self._of._observer.waiting(self._lag())
            stop.wait(LOOK_SECONDS)
            self._hand_over_if_wanted()

    def _whole(self, records: list[RawRecord], seconds: dict[str, float]) -> _Batch:
        """Make a batch of records, and of those held back before, without those of unfinished transactions."""
        after = self._feed.positions()
        if not self._buffer.is_needed(records):
            return _Batch(records, self._positions, after, seconds)
        with _timed(seconds, "decode"):
            changes, skipped, _ = self._decoder.decode_batch(records)
        self._buffer.add(records, changes, skipped, time.monotonic())
        taken = self._buffer.take(time.monotonic())
        after.update(((r.topic, r.partition), r.offset) for r in reversed(self._buffer.held))
        return _Batch(taken.records, self._positions, after, seconds, transactions=taken.keys, is_whole=taken.is_whole)

    def _lag(self) -> int | None:
        """Count what the feed has behind what was polled, and what was polled and is held back."""
        lag = self._feed.lag()
        return None if lag is None else lag + len(self._buffer.held)

    def _collect(self) -> list[RawRecord]:
        limits = self._of._limits
        records: list[RawRecord] = []
        size = 0
        deadline = 0.0
        # An idle poll is short while a batch is in flight: its commit is to be heard of soon.
        timeout = 0.005 if self._in_flight is not None else 0.2
        while len(records) < limits.records and size < limits.bytes:
            got = self._feed.poll(limits.records - len(records), limits.bytes - size, timeout)
            if not got:
                break
            now = time.monotonic()
            if not records:
                deadline = now + limits.wait_seconds
            records.extend(got)
            size += sum(len(record.value or b"") for record in got)
            timeout = deadline - now
            if timeout <= 0:
                break
        return records

    def _take(self, batch: _Batch) -> None:
        """Apply a batch; it is cut at a truncate, which is a batch of its own, and at a record that stops the feed."""
        with _timed(batch.seconds, "decode"):
            decoded, skipped, bad = self._decoder.decode_batch(batch.records)
        with _timed(batch.seconds, "screen"):
            screened = self._screen.screen(decoded)
            drifts = {_place(b.record): b.error for b in bad if isinstance(b.error, SchemaDrift)}
            if self._retried is not None:
                drifts = {}  # columns follow the feed, not a record from long ago
            elif drifts:
                bad = self._screen_drifts(bad, drifts, screened)
        if screened.bad:
            refused = {_place(at): error for at, error in screened.bad.items()}
            bad += [BadRecord(r, refused[_place(r)]) for r in batch.records if _place(r) in refused]
        changes = screened.changes
        stopping: dict[tuple[str, int, int], SubsetdError] = {_place(at): e for at, e in screened.rewound.items()}
        if self._of._on_error is ErrorPolicy.STOP:
            stopping |= {_place(b.record): b.error for b in bad}
        truncates = {_place(c.position): c for c in changes if c.operation is Operation.TRUNCATE}
        if not stopping and not truncates and not drifts:
            batch.bad += bad
            batch.skipped += skipped + screened.skipped
            batch.seen = screened.seen
            self._apply(batch, changes)
            return
        start, end = 0, len(batch.records)
        cutting = truncates.keys() | stopping.keys() | drifts.keys()
        for cut in [i for i, r in enumerate(batch.records) if _place(r) in cutting]:
            place = _place(batch.records[cut])
            if start < cut:
                self._take(self._part(batch, start, cut))
            if place in stopping:
                self._settle()
                raise stopping[place]
            if place in drifts:
                if cut == 0:
                    self._change_schema(drifts[place])
                # What was before it is applied now: it may be seen to repeat that, or be refused.
                self._take(self._part(batch, cut, end))
                return
            alone = self._part(batch, cut, cut + 1)
            alone.seen = self._screen.screen([truncates[place]]).seen
            self._truncate(alone, truncates[place])
            start = cut + 1
        if start < end:
            self._take(self._part(batch, start, end))

    def _screen_drifts(
        self, bad: list[BadRecord], drifts: dict[tuple[str, int, int], SchemaDrift], screened: Screened
    ) -> list[BadRecord]:
        """Take out of `drifts` those that are applied already or were refused, and give the bad records that are left.

        What is applied already goes to what was `screened`, as if it could have been decoded.
        """
        as_changes = [
            RowChange(d.table, Operation.UPDATE, None, None, FeedPosition(*place), d.source_position)
            for place, d in drifts.items()
        ]
        told = self._screen.screen(as_changes)
        screened.skipped += told.skipped
        screened.rewound |= told.rewound
        for at in [*(skipped.position for skipped in told.skipped), *told.rewound]:
            del drifts[_place(at)]
        left = [b for b in bad if not isinstance(b.error, SchemaDrift)]
        for record, error in bad:
            if isinstance(error, SchemaDrift) and _place(record) in drifts:
                refusal = self._refused.get((str(error.table), error.added, error.missing))
                if refusal is not None:
                    del drifts[_place(record)]
                    left.append(BadRecord(record, RecordError(f"{error}{refusal}")))
        return left

    def _change_schema(self, drift: SchemaDrift) -> None:
        """Store what changed of a table's columns, and begin anew with it; remember what was refused."""
        self._settle()
        try:
            self._writer.change_schema(drift, self._feed.name)
        except RecordError as error:
            self._refused[str(drift.table), drift.added, drift.missing] = str(error).removeprefix(str(drift))
        else:
            self._of._observer.schema_changed(drift.table, drift.added, drift.missing)
            raise _BeginAnew

    def _leave_stale(self, attributes: set[int]) -> None:
        """Stop keeping attributes current whose older cells were never sent, and begin anew without them."""
        self._settle()
        self._writer.make_stale(sorted(attributes), self._feed.name)
        for table in self._state.tables:
            columns = [a.name.column for a in table.attributes if a.attribute_id in attributes]
            if columns:
                self._of._observer.schema_changed(table, (), columns)
        raise _BeginAnew

    def _part(self, batch: _Batch, start: int, end: int) -> _Batch:
        """Cut some records out of a batch, of which those before are applied; its positions end before the rest."""
        after = dict(batch.after)
        for record in reversed(batch.records[end:]):
            after[record.topic, record.partition] = record.offset
        # The parts are told of one by one: what was spent on the whole goes to the first, once.
        part = _Batch(batch.records[start:end], self._positions, after, {} if start else batch.seconds)
        part.transactions = batch.transactions[start:end]
        if batch.is_whole is not None:
            behind = set(batch.transactions[end:]) - {None}
            part.is_whole = batch.is_whole and behind.isdisjoint(batch.transactions[:end])
        return part

    def _apply(self, batch: _Batch, decoded: list[RowChange]) -> None:
        state, seconds = self._state, batch.seconds
        images = self._look_up_images(decoded, seconds)
        while True:
            with _timed(seconds, "complete"):
                completed = complete(decoded, images, state.version + 1, self._retried)
            changes = completed.changes
            errors = {_place(at): error for at, error in completed.errors.items()}
            if errors:
                decoded = self._leave_out(batch, decoded, errors)
                continue
            with _timed(seconds, "net"):
                netted = net(changes, self._of._value_keys)
            with _timed(seconds, "look_up"):
                found = self._look_up(netted.deltas.keys)
            try:
                with _timed(seconds, "apply"):
                    delta = state.apply(netted, found)
                break
            except Underflow as underflow:
                # A column that was added with a default has cells that no change ever brought: nobody is to blame.
                cells = [cell for cell in underflow.cells if cell[1] not in state.late]
                if not cells:
                    self._leave_stale({attribute_id for _, attribute_id, _ in underflow.cells})
                keys = sorted({key for key, _, _ in cells if key != NULL_KEY})
                texts = dict(zip(keys, netted.texts_of(Keys.of(keys)), strict=True))
                places = sorted(offenders(changes, cells, texts))
                errors = {_place(changes[i].position): _never_inserted(changes[i], texts, cells) for i in places}
            decoded = self._leave_out(batch, decoded, errors)
        batch.skipped += completed.skipped
        counts = BatchCounts(
            len(batch.records),
            netted.inserted,
            netted.updated,
            netted.deleted - completed.displaced,
            len(batch.skipped),
            len(batch.bad),
        )
        unit = self._begin(batch)
        self._pending_images = completed.images
        self._pending = delta.records
        commit = replace(self._commit(batch, changes, counts, delta), images=completed.images)
        report = self._report(commit, batch)
        self._in_flight = self._pool.submit(self._store, unit, commit, delta, seconds, report)

    def _leave_out(
        self, batch: _Batch, changes: list[RowChange], errors: dict[tuple[str, int, int], RecordError]
    ) -> list[RowChange]:
        """Set records aside and give the changes of the others; or (STOP) apply what is before the first, and raise."""
        if self._of._on_error is ErrorPolicy.STOP:
            first = _first(batch.records, errors)
            assert first is not None
            if first:
                self._take(self._part(batch, 0, first))
            self._settle()
            raise errors[_place(batch.records[first])]
        batch.bad.extend(BadRecord(r, errors[_place(r)]) for r in batch.records if _place(r) in errors)
        return [c for c in changes if _place(c.position) not in errors]

    def _look_up_images(self, changes: Sequence[RowChange], seconds: dict[str, float]) -> Images:
        """Find the kept rows of changes: in the batch in flight, and the rest in the store."""
        with _timed(seconds, "complete"):
            found: dict[Table, dict[bytes, Image]] = {}
            missing: dict[Table, list[bytes]] = {}
            for table, keys in wanted_rows(changes).items():
                pending = self._pending_images.get(table, {})
                found[table] = {key: pending[key] for key in keys if key in pending}
                missing[table] = [key for key in keys if key not in pending]
            if missing:
                for table, images in self._writer.read_images(missing).items():
                    found[table].update(images)
            return found

    def _truncate(self, batch: _Batch, change: RowChange) -> None:
        state = self._state
        own = {attribute.attribute_id for attribute in change.table.attributes}
        cluster_ids = [cluster_id for cluster_id, attributes, _ in state.clusters if not own.isdisjoint(attributes)]
        unit = self._begin(batch)
        with _timed(batch.seconds, "store"):
            portions = unit.records_of(cluster_ids, TRUNCATE_PORTION)
            delta = state.truncate(own, portions, unit.write_records)
        counts = BatchCounts(records=len(batch.records), deleted=1)
        commit = replace(self._commit(batch, [change], counts, delta), emptied=change.table)
        report = self._report(commit, batch)
        self._in_flight = self._pool.submit(self._store, unit, commit, None, batch.seconds, report)
        self._settle()

    def _look_up(self, keys: Keys) -> Records:
        """Find the records of ascending keys: in the batch in flight, in the cache, and the rest in the store."""
        in_flight = find_keys(self._pending.keys, keys)
        pending = np.flatnonzero(in_flight >= 0)
        others = np.flatnonzero(in_flight < 0)
        is_cached, cached = self._state.cache.find(keys.take(others))
        misses = others[~is_cached]
        parts = [(others[is_cached], cached)]
        if len(pending):
            chosen = np.zeros(len(self._pending.cluster_id), np.bool_)
            chosen[in_flight[pending]] = True
            parts.append((pending, self._pending.take(chosen).records))
        if len(misses):
            parts.append((misses, self._writer.lookup(keys.take(misses))))
            self._state.accesses.read += len(misses)
        return gather(len(keys.high), parts)

    def _begin(self, batch: _Batch) -> UnitOfWork:
        with _timed(batch.seconds, "wait"):
            self._settle()
        return self._writer.begin()

    def _commit(
        self, batch: _Batch, changes: Sequence[RowChange], counts: BatchCounts, delta: StateDelta
    ) -> BatchCommit:
        self._state.version += 1
        self._positions = {**batch.before, **batch.after}
        times = [t for c in changes if isinstance(t := c.source_position.get("ts_ms"), int)]
        last = batch.records[-1]
        # A partition that had no position begins where its first record is: what was before it may be gone.
        begun = {(r.topic, r.partition): r.offset for r in reversed(batch.records)} | batch.before
        return BatchCommit(
            version=self._state.version,
            generation=self._state.generation,
            feed=self._feed.name,
            positions={
                p: (begun.get(p, after), after) for p, after in batch.after.items() if batch.before.get(p) != after
            }
            if self._retried is None
            else {},
            delta=delta,
            counts=counts,
            dead_letters=batch.bad,
            last_position=FeedPosition(last.topic, last.partition, last.offset),
            source_positions=self._say_where(batch, changes),
            newest_source_ms=max(times, default=None),
            topic_ids=self._feed.describe().topic_ids,
            transaction_consistent=None if batch.is_whole is None else batch.is_whole and not batch.bad,
            retried=None if self._retried is None else batch.records,
        )

    def _say_where(self, batch: _Batch, changes: Sequence[RowChange]) -> dict[tuple[str, int], dict[str, object]]:
        """Gather what the state keeps of the batch's end.

        That is of each partition its last change, what was seen of the sources, and what the feed says.
        """
        found = {(c.position.topic, c.position.partition): dict(c.source_position) for c in changes}
        self._screen.advance(batch.seen)
        for place, seen in batch.seen.items():
            found[place] = put_seen(found.get(place) or self._source_positions.get(place, {}), seen)
        for place, kept in self._feed.source_positions(batch.after).items():
            found[place] = {**(found.get(place) or self._source_positions.get(place, {})), **kept}
        self._source_positions.update(found)
        return found

    def _report(self, commit: BatchCommit, batch: _Batch) -> BatchReport:
        state, totals = self._state, self._of.totals
        accesses, cache = state.accesses, state.cache
        state.accesses = type(accesses)()
        hits, misses, cache.hits, cache.misses = cache.hits, cache.misses, 0, 0
        totals.values += accesses.values
        totals.read += accesses.read
        totals.written += accesses.written
        totals.without_caches += accesses.without_caches
        totals.cache_hits += hits
        totals.cache_misses += misses
        return BatchReport(
            version=commit.version,
            counts=commit.counts,
            values=accesses.values,
            read=accesses.read,
            written=accesses.written,
            seconds=batch.seconds,
            lag=self._lag(),
            newest_source_ms=commit.newest_source_ms,
            cache_hits=hits,
            cache_misses=misses,
            cache_entries=len(cache),
            skipped=count_reasons(batch.skipped),
        )

    def _store(
        self,
        unit: UnitOfWork,
        commit: BatchCommit,
        delta: StateDelta | None,
        seconds: dict[str, float],
        report: BatchReport,
    ) -> None:
        """Write and commit a batch (on the store's thread)."""
        try:
            with _timed(seconds, "store"):
                if delta is not None:
                    unit.write_records(delta.records, delta.texts)
                if commit.dead_letters and self._of._dead_letter_sink is not None and self._retried is None:
                    self._of._dead_letter_sink.send(commit.dead_letters)  # twice rather than never
                unit.commit(commit)
        except BaseException:
            with suppress(StateError):
                unit.rollback()
            raise
        totals, counts = self._of.totals, commit.counts
        totals.batches += 1
        totals.version = commit.version
        for name in ("records", "inserted", "updated", "deleted", "skipped", "dead"):
            setattr(totals, name, getattr(totals, name) + getattr(counts, name))
        totals.elapsed = time.perf_counter() - (self._of._started or 0.0)
        for step, spent in seconds.items():
            totals.seconds[step] = totals.seconds.get(step, 0.0) + spent
        self._of._observer.committed(report)

    def _settle(self) -> None:
        """Wait for the batch in flight, and tell the feed; raises what its commit raised."""
        if self._in_flight is not None:
            future, self._in_flight = self._in_flight, None
            future.result()
            self._pending, self._pending_images = NewRecords.none(), {}
            self._feed.committed(self._positions)


def _never_inserted(
    change: RowChange, texts: Mapping[bytes, str], cells: Iterable[tuple[bytes, int, int]]
) -> RecordError:
    missing = {(attribute_id, texts.get(key)) for key, attribute_id, _ in cells}
    assert change.before is not None
    for i, attribute in enumerate(change.table.attributes):
        text = change.before[i]
        if (attribute.attribute_id, text) in missing and (change.after is None or change.after[i] != text):
            at = change.position
            shown = "a NULL" if text is None else f"the value {text if len(text) <= 60 else text[:60] + '...'!r}"
            return RecordError(
                f"topic {at.topic}, partition {at.partition}, offset {at.offset}: takes {shown} out of "
                f"{attribute.name}, where it is not: the feed deletes what was never inserted, or begins before the "
                f"bootstrap; bootstrap again with --replace and the --feed-position at which the data was read, or "
                f"set such records aside with --on-error all"
            )
    raise AssertionError("an offender without a cell")


def _place(at: RawRecord | FeedPosition) -> tuple[str, int, int]:
    return at.topic, at.partition, at.offset


def _first(records: Sequence[RawRecord], places: Iterable[tuple[str, int, int]]) -> int | None:
    """Return where in `records` the first of the places is."""
    wanted = set(places)
    if not wanted:
        return None
    return next((i for i, record in enumerate(records) if _place(record) in wanted), None)


@contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    started = time.perf_counter()
    try:
        yield
    finally:
        seconds[step] = seconds.get(step, 0.0) + time.perf_counter() - started

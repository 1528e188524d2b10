"""Own a session of following: from the feed's records to the committed state, batch after batch, until something fails.

The next batch is read, decoded, netted and applied in memory while the database writes the present one: the
core is ahead of the store by one batch at most, and whatever fails throws the memory away.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from service.core.clustering import NULL_KEY, Underflow
from service.core.errors import RecordError, SubsetdError
from service.core.model import BadRecord, FeedPosition, Operation, RawRecord, RowChange, SchemaDrift
from service.core.records import Keys
from service.usecases.batch_in_flight import BatchInFlight
from service.usecases.batches import (
    Batch,
    BatchReport,
    ErrorPolicy,
    Positions,
    decode_each,
    first_of,
    separate,
    timed,
    with_records,
)
from service.usecases.causes import causes_of
from service.usecases.following import Following
from service.usecases.live_state import Accesses, BatchCommit, BatchCounts, LiveState, StateDelta
from service.usecases.netting import emptied_by, net, never_inserted, offenders
from service.usecases.ports import UnitOfWork
from service.usecases.retry_dead_letters import DeadLetterFeed, keep_unknown
from service.usecases.row_images import Completed, complete, wanted_rows
from service.usecases.screening import RetryScreen, Screen, Screened, count_reasons, put_seen, read_seen
from service.usecases.transactions import TransactionBuffer
from service.usecases.warm_up import WarmUp, WarmUpPolicy
from service.usecases.withheld import Withholding

TRUNCATE_PORTION = 20_000
LOOK_SECONDS = 1.0
"""How often the consumer looks between batches whether it is to hand over, or to pause."""


class BeginAnew(Exception):
    """The state is to be let go and loaded anew, all before the present record is committed."""


class Session:
    """Hold everything that a failure of the database makes void: memory, feed, the batch in flight."""

    def __init__(self, following: Following, *, warms_up: bool = True) -> None:
        self._of = following
        self._writer = following.writer
        loaded = self._writer.load()
        self._state = LiveState(loaded, following.cache_bytes)
        self._state.contracts.renew(loaded.contracts, self._state.overlap)
        following.totals.version = self._state.version
        self._decoder = following.make_decoder(self._state.tables)
        self._withholding = Withholding(self._state.tables, loaded.stale)
        self._screen: Screen | RetryScreen
        self._sink = following.dead_letter_sink
        self._refused: dict[tuple[object, ...], str] = {}
        """What was said against changes of columns, behind the error's own text."""
        self._behind: Positions | None = None
        """How far what was given to the store is behind the feed's ends, records in hand among it."""
        self._looks_at = time.monotonic() + LOOK_SECONDS
        self._ends: Positions | None = None
        """Where the feed stood when all had been polled that was there at the start; None before."""
        self.rested = 0.0
        """For how many seconds the database has answered when it was last looked at with nothing to be stored."""
        with ExitStack() as closing:
            self._feed = following.open_feed()
            closing.callback(self._feed.close)
            stored = self._writer.positions(self._feed.name)
            self._positions = {place: position.next_offset for place, position in stored.items()}
            self._source_positions = {place: position.source_position for place, position in stored.items()}
            self._retried = self._feed.versions if isinstance(self._feed, DeadLetterFeed) else None
            if self._retried is None:
                catch_up = self._writer.catch_up(self._feed.name)
                self._screen = Screen(loaded.snapshots, self._source_positions, catch_up)
                self._writer.register(self._feed.name, self._feed.describe())
                following.observer.beginning(self._feed.name)
            else:
                self._sink = None  # they were sent when they were set aside
                self._screen = RetryScreen(loaded.snapshots, self._retried, loaded.begun, self._source_positions)
            self._in_flight = BatchInFlight(self._writer, self._stored)
            closing.callback(self._in_flight.close)
            policy = following.warm_up if warms_up else WarmUpPolicy.OFF
            self._warm_up = WarmUp(self._state.cache, loaded.values, self._writer.read_range, policy)
            closing.callback(self._warm_up.close)
            self._feed.start(stored)
            topics = {topic for topic, _ in self._feed.positions()}
            self._buffer = following.buffer or TransactionBuffer((), (), following.wait_limits)
            following.buffer = None
            self._buffer.follow(self._decoder.followed, topics)
            state = self._state
            following.observer.following(
                state.version, loaded.committed_at, len(state.tables), len(state.clusters), self._positions
            )
            self._begun = time.monotonic()
            self._closing = closing.pop_all()

    def close(self) -> None:
        """Let go of the feed; a batch in flight ends first, its failure has been told or will be met on reloading."""
        self._closing.close()

    def follow(self, stop: threading.Event, until_end: bool) -> None:
        if self._retried is None:
            self._rest_while_paused(stop)
        while not stop.is_set():
            if time.monotonic() >= self._looks_at and self._retried is None:
                self._looks_at = time.monotonic() + LOOK_SECONDS
                self._hand_over_if_wanted()
                self._rest_while_paused(stop)
            self._warm_up.take()
            self._of.totals.warmed, self._of.totals.warm_up_seconds = self._warm_up.records, self._warm_up.seconds
            seconds: dict[str, float] = {}
            with timed(seconds, "collect"):
                records = self._collect()
            batch = self._whole(records, seconds)
            if batch.records:
                if self._of.started is None:
                    self._of.started = time.perf_counter() - seconds["collect"]
                # Whatever the batch waits for, a lock for instance, waits with what is in hand.
                self._behind = with_records(self._lag(), batch.records, 1, self._feed.lag_unit)
                self._of.observer.waiting(self._behind)
                self._take(batch)
            elif not records:
                self._settle()
                self._of.observer.waiting(self._lag())
            if until_end and self._has_ended():
                self._settle()
                self._of.observer.waiting(self._lag())
                break
            del batch, records  # the next is collected and decoded without it in memory
        self._settle()

    def _has_ended(self) -> bool:
        """Tell whether all that was there at the start is applied; a feed that is written to may never be silent."""
        if self._ends is None and self._feed.at_end():
            self._ends = self._feed.positions()
        ends = self._ends
        return ends is not None and all(r.offset >= ends.get((r.topic, r.partition), 0) for r in self._buffer.held)

    def _hand_over_if_wanted(self) -> None:
        """Look whether somebody waits to write the state; then end the batch in flight and make room."""
        if self._writer.is_wanted():
            self._settle()
            raise BeginAnew
        if not self._in_flight.is_busy and not self._buffer.held:
            self.rested = time.monotonic() - self._begun

    def _rest_while_paused(self, stop: threading.Event) -> None:
        """Look whether the feed is paused; then end the batch in flight and wait, with the lock, for its resumption."""
        while self._writer.is_paused(self._feed.name) and not stop.is_set():
            self._settle()
            self._feed.rest()
            self._of.observer.waiting(self._lag())
            stop.wait(LOOK_SECONDS)
            self._hand_over_if_wanted()

    def _whole(self, records: list[RawRecord], seconds: dict[str, float]) -> Batch:
        """Make a batch of records, and of those held back before, without those of unfinished transactions."""
        after = self._feed.positions()
        with timed(seconds, "decode"):
            decoded = decode_each(self._decoder, records)
        if not self._buffer.is_needed(records):
            return Batch(records, decoded, self._positions, after, seconds)
        self._buffer.add(records, decoded, time.monotonic())
        taken = self._buffer.take(time.monotonic())
        after.update(((r.topic, r.partition), r.offset) for r in reversed(self._buffer.held))
        batch = Batch(taken.records, taken.decoded, self._positions, after, seconds)
        batch.transactions, batch.is_whole = taken.keys, taken.is_whole
        return batch

    def _lag(self) -> Positions | None:
        """Count, by partition, what the feed has behind what was polled, and what was polled and is held back."""
        return with_records(self._feed.lag(), self._buffer.held, 1, self._feed.lag_unit)

    def _collect(self) -> list[RawRecord]:
        limits = self._of.limits
        records: list[RawRecord] = []
        size = 0
        deadline = 0.0
        # An idle poll is short while a batch is in flight: its commit is to be heard of soon.
        timeout = 0.005 if self._in_flight.is_busy else 0.2
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

    def _take(self, batch: Batch) -> None:
        """Apply a batch; it is cut at a truncate, which is a batch of its own, and at a record that stops the feed."""
        rest: Batch | None = batch
        while rest is not None:
            rest = self._take_up_to_drift(rest)

    def _take_up_to_drift(self, batch: Batch) -> Batch | None:
        """Apply a batch as far as a change of columns, and give what is to be looked at anew behind it."""
        with timed(batch.seconds, "decode"):
            decoded, skipped, bad = separate(batch.records, batch.decoded)
        with timed(batch.seconds, "screen"):
            screened, bad = self._screened(batch, decoded, bad)
            drifts = {b.record.position: b.error for b in bad if isinstance(b.error, SchemaDrift)}
            if self._retried is not None:
                drifts = {}  # columns follow the feed, not a record from long ago
                skipped, not_found = keep_unknown(skipped, batch.records)
                bad += not_found
            elif drifts:
                bad = self._screen_drifts(bad, drifts, screened)
        if screened.bad:
            bad += [BadRecord(r, screened.bad[r.position]) for r in batch.records if r.position in screened.bad]
        bad = self._withholding.letters(bad)
        changes = screened.changes
        stopping: dict[FeedPosition, SubsetdError] = dict(screened.rewound)
        if self._of.on_error is ErrorPolicy.STOP:
            stopping |= {b.record.position: b.error for b in bad}
        truncates = {c.position: c for c in changes if c.operation is Operation.TRUNCATE}
        if not stopping and not truncates and not drifts:
            batch.bad += bad
            batch.skipped += skipped + screened.skipped
            batch.seen = screened.seen
            self._apply(batch, changes)
            return None
        start, end = 0, len(batch.records)
        cutting = truncates.keys() | stopping.keys() | drifts.keys()
        for cut in [i for i, r in enumerate(batch.records) if r.position in cutting]:
            place = batch.records[cut].position
            if start < cut:
                self._take(batch.part(start, cut, self._positions))
            if place in stopping:
                self._settle()
                raise stopping[place]
            if place in drifts:
                if cut == 0:
                    self._change_schema(drifts[place], batch)
                # What was before it is applied now: it may be seen to repeat that, or be refused.
                return batch.part(cut, end, self._positions)
            alone = batch.part(cut, cut + 1, self._positions)
            alone.seen = self._screen.screen([truncates[place]]).seen
            self._truncate(alone, truncates[place])
            start = cut + 1
        return batch.part(start, end, self._positions) if start < end else None

    def _screened(
        self, batch: Batch, decoded: list[RowChange], bad: list[BadRecord]
    ) -> tuple[Screened, list[BadRecord]]:
        """Screen changes, and in their order with them those that cannot be read as far as their place can be.

        They may be part of a bootstrap, or repeated, and are seen as the others are. Gives the bad records that are
        left. A record that was set aside is another matter: it is tried again alone.
        """
        unread = {b.record.position: b.error.change for b in bad if isinstance(b.error.change, RowChange)}
        if not unread or self._retried is not None:
            return self._screen.screen(decoded), bad
        places = {record.position: place for place, record in enumerate(batch.records)}
        screened = self._screen.screen(sorted([*decoded, *unread.values()], key=lambda one: places[one.position]))
        screened.changes = [change for change in screened.changes if change.position not in unread]
        screened.bad = {at: error for at, error in screened.bad.items() if at not in unread}
        is_done = {skipped.position for skipped in screened.skipped}
        return screened, [one for one in bad if one.record.position not in is_done]

    def _screen_drifts(
        self, bad: list[BadRecord], drifts: dict[FeedPosition, SchemaDrift], screened: Screened
    ) -> list[BadRecord]:
        """Take out of `drifts` those that are applied already or were refused, and give the bad records that are left.

        What is applied already goes to what was `screened`, as if it could have been decoded.
        """
        as_changes = [
            RowChange(d.table, Operation.UPDATE, None, None, place, d.source_position) for place, d in drifts.items()
        ]
        told = self._screen.screen(as_changes)
        screened.skipped += told.skipped
        screened.rewound |= told.rewound
        for at in [*(skipped.position for skipped in told.skipped), *told.rewound]:
            del drifts[at]
        left = [b for b in bad if not isinstance(b.error, SchemaDrift)]
        for record, error in bad:
            if isinstance(error, SchemaDrift) and record.position in drifts:
                refusal = self._refused.get((str(error.table), error.added, error.missing, error.retyped))
                if refusal is not None:
                    del drifts[record.position]
                    left.append(BadRecord(record, RecordError.plain(f"{error}{refusal}")))
        return left

    def _change_schema(self, drift: SchemaDrift, rest: Batch) -> None:
        """Store what changed of a table's columns, and begin anew with the rest; remember what was refused."""
        self._settle()
        try:
            stale = self._writer.change_schema(drift, self._feed.name)
        except RecordError as error:
            refused = (str(drift.table), drift.added, drift.missing, drift.retyped)
            self._refused[refused] = str(error).removeprefix(str(drift))
        else:
            current = [(column, data_type) for column, data_type in drift.retyped if column not in stale]
            self._of.observer.schema_changed(drift.table, [*drift.added, *current], stale)
            self._buffer.take_back(zip(rest.records, rest.decoded, strict=True))
            self._of.buffer = self._buffer
            raise BeginAnew

    def _leave_stale(self, attributes: set[int]) -> None:
        """Stop keeping attributes current whose older cells were never sent, and begin anew without them."""
        self._settle()
        self._writer.make_stale(sorted(attributes), self._feed.name)
        for table in self._state.tables:
            columns = [a.name.column for a in table.followed if a.attribute_id in attributes]
            if columns:
                self._of.observer.schema_changed(table, (), columns)
        raise BeginAnew

    def _apply(self, batch: Batch, decoded: list[RowChange]) -> None:
        state, seconds = self._state, batch.seconds
        has_images = any(table.row_images for table in {change.table for change in decoded})
        with timed(seconds, "complete"):
            images = self._in_flight.look_up_images(wanted_rows(decoded)) if has_images else {}
        while True:
            completed = Completed(decoded)
            if has_images:
                with timed(seconds, "complete"):
                    completed = complete(decoded, images, state.version + 1, self._retried)
            changes = completed.changes
            errors = completed.errors
            if errors:
                decoded = self._leave_out(batch, decoded, errors)
                continue
            with timed(seconds, "net"):
                netted = net(changes, self._of.value_keys)
            with timed(seconds, "look_up"):
                found, read = self._in_flight.look_up(netted.deltas.keys, state.cache)
                state.accesses.read += read
            try:
                with timed(seconds, "apply"):
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
                errors = {changes[i].position: never_inserted(changes[i], texts, cells) for i in places}
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
        commit = replace(self._commit(batch, changes, counts, delta), images=completed.images)
        self._in_flight.write(unit, commit, self._report(commit, batch), self._sink)

    def _leave_out(
        self, batch: Batch, changes: list[RowChange], errors: dict[FeedPosition, RecordError]
    ) -> list[RowChange]:
        """Set records aside and give the changes of the others; or (STOP) apply what is before the first, and raise."""
        bad = self._withholding.letters(
            [BadRecord(r, errors[r.position]) for r in batch.records if r.position in errors]
        )
        if self._of.on_error is ErrorPolicy.STOP:
            first = first_of(batch.records, errors)
            assert first is not None
            if first:
                self._take(batch.part(0, first, self._positions))
            self._settle()
            raise bad[0].error
        batch.bad.extend(bad)
        return [c for c in changes if c.position not in errors]

    def _truncate(self, batch: Batch, change: RowChange) -> None:
        state = self._state
        own = emptied_by(change)
        unit = self._begin(batch)
        with timed(batch.seconds, "store"):
            portions = unit.records_of(state.clusters_of(own), TRUNCATE_PORTION)
            delta = state.truncate(own, portions, unit.write_records)
        counts = BatchCounts(records=len(batch.records), deleted=1)
        commit = replace(self._commit(batch, [change], counts, delta), emptied=change.table)
        self._in_flight.write(unit, commit, self._report(commit, batch), self._sink)
        self._settle()

    def _begin(self, batch: Batch) -> UnitOfWork:
        with timed(batch.seconds, "wait"):
            self._settle()
        self._of.observer.waiting(self._behind)  # the batch before may have told of less, as it came to its end
        self._behind = with_records(self._behind, batch.records, -1, self._feed.lag_unit)
        return self._writer.begin()

    def _commit(
        self, batch: Batch, changes: Sequence[RowChange], counts: BatchCounts, delta: StateDelta
    ) -> BatchCommit:
        self._state.version += 1
        self._positions = {**batch.before, **batch.after}
        times = [t for c in changes if isinstance(t := c.source_position.get("ts_ms"), int)]
        # A partition that had no position begins where its first record is: what was before it may be gone.
        begun = {(r.topic, r.partition): r.offset for r in reversed(batch.records)} | batch.before
        is_whole = self._feed.is_whole(batch.after) if batch.is_whole is None else batch.is_whole
        causes, contract_causes = causes_of(delta, changes)
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
            source_positions=self._say_where(batch, changes),
            newest_source_ms=max(times, default=None),
            topic_ids=self._feed.describe().topic_ids,
            transaction_consistent=None if is_whole is None else is_whole and not batch.bad,
            retried=None if self._retried is None else batch.records,
            causes=causes,
            contract_causes=contract_causes,
        )

    def _say_where(self, batch: Batch, changes: Sequence[RowChange]) -> dict[tuple[str, int], dict[str, object]]:
        """Gather what the state keeps of the batch's end.

        That is of each partition its last change, what was seen of the sources, and what the feed says.
        """
        last = {(c.position.topic, c.position.partition): c for c in changes}
        found = {place: dict(change.source_position) for place, change in last.items()}
        for place in found.keys() - batch.seen.keys():  # its last change says nothing of what was seen before
            found[place] = put_seen(found[place], read_seen(self._source_positions.get(place, {})))
        self._screen.advance(batch.seen)
        for place, seen in batch.seen.items():
            found[place] = put_seen(found.get(place) or self._source_positions.get(place, {}), seen)
        for place, kept in self._feed.source_positions(batch.after).items():
            found[place] = {**(found.get(place) or self._source_positions.get(place, {})), **kept}
        self._source_positions.update(found)
        return found

    def _report(self, commit: BatchCommit, batch: Batch) -> BatchReport:
        state, cache = self._state, self._state.cache
        accesses, state.accesses = state.accesses, Accesses()
        hits, misses, cache.hits, cache.misses = cache.hits, cache.misses, 0, 0
        return BatchReport(
            version=commit.version,
            counts=commit.counts,
            accesses=accesses,
            seconds=batch.seconds,
            lag=self._behind,
            newest_source_ms=commit.newest_source_ms,
            cache_hits=hits,
            cache_misses=misses,
            cache_entries=len(cache),
            cache_bytes=cache.bytes,
            skipped=count_reasons(batch.skipped),
        )

    def _stored(self, report: BatchReport) -> None:
        """Count a batch that is durable (on the store's thread)."""
        self._of.totals.add(report)
        self._of.totals.elapsed = time.perf_counter() - (self._of.started or 0.0)
        self._of.observer.committed(replace(report, lag=self._behind))  # which may have the next one in hand by now

    def _settle(self) -> None:
        """Wait for the batch in flight, and tell the feed; raises what its commit raised."""
        if self._in_flight.settle():
            if self._in_flight.contracts is not None:
                self._state.contracts.renew(self._in_flight.contracts, self._state.overlap)
            self._feed.committed(self._positions)

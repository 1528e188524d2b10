"""Own the feed from Postgres itself: pgoutput through a replication slot, numbered change by change.

A position is a dense number: how many changes the slot has given since it was made. With it the state keeps the
place of the change's transaction in the log (`txn_lsn`), the number of its first change (`first`), and up to where
the server may forget (`end_lsn`). The server is told only what the state holds: what it repeats after a break is
recognised by these, and a slot that somebody else moved, or made anew, by having been told more.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import psycopg2
import psycopg2.errors
import structlog

from service.core.errors import FeedError, first_line
from service.core.model import FeedDescription, RawRecord, StoredPosition, slot_feed
from service.stream import pgoutput
from service.stream.postgres_address import PostgresAddress, SourceAway
from service.stream.postgres_catalog import (
    DescribedRelation,
    Root,
    SlotState,
    describe_relation,
    emit_mark,
    partitions_left,
    read_roots,
    read_slot,
    source_identity,
)
from service.stream.postgres_numbering import Numbering, SetBackError
from service.stream.postgres_sameness import require_same, set_back

HEARTBEAT_SECONDS = 10.0
HEARTBEAT_BYTES = 1 << 20
"""How far the log moves on before a feed without changes lets the server forget it."""
END_SECONDS = 1.0
GAP_SECONDS = 0.002
LONGEST_POLL_SECONDS = 0.25
TRANSACTION_BYTES = 256 << 20
RETRY_PAUSE_SECONDS = 0.5
FEEDBACK_SECONDS = 10.0
"""How often psycopg2 tells the server by itself what it was told last."""

log = structlog.get_logger(__name__)
T = TypeVar("T")


class PostgresFeed:
    """Follow the publication and slot of a source that `subsetd follow` made.

    The slot is the topic, the partition 0. While the server is away `poll` returns nothing, and connects again by
    itself for at most `retry_seconds`; then, and for a slot that is gone, moved, lost or in use, it raises FeedError.
    `seen_roots` has the roots of partitions that a feed before this one has seen, and grows.
    """

    lag_unit: Final = "bytes"

    def __init__(
        self,
        address: PostgresAddress,
        *,
        start_timeout: float = 10.0,
        retry_seconds: float = 60.0,
        slot_warning_bytes: int = 1 << 30,
        transaction_records: int = 100_000,
        transaction_wait_seconds: float = 5.0,
        tell_held_back: Callable[[int], None] = lambda held_back: None,
        seen_roots: dict[int, Root] | None = None,
    ) -> None:
        self.address = address
        self.slot = address.slot
        self.name = slot_feed(address.name)
        self.start_timeout = start_timeout
        self.retry_seconds = retry_seconds
        self.slot_warning_bytes = slot_warning_bytes
        self.transaction_records = transaction_records
        self.transaction_wait_seconds = transaction_wait_seconds
        self._tell_held_back = tell_held_back
        self._sql: Any = None
        self._sender: Any = None
        self._cursor: Any = None
        self._identity: dict[str, object] = {}
        self._system: object = None
        self._relations: dict[int, DescribedRelation] = {}
        self._roots = {} if seen_roots is None else seen_roots
        self._numbers = Numbering(StoredPosition(0))
        self._handed: deque[RawRecord] = deque()
        self._told: deque[tuple[int, int]] = deque()
        self._confirmed = 0
        # What psycopg2 would confirm by itself with the next confirmation: as long as it was told of all that it has
        # received, it goes along with the server's pings.
        self._told_server = self._last_start = self._moved_by_client = 0
        self._committed = 0
        self._end_at_start: int | None = None
        self._seen_end = 0
        self._known_end = 0
        self._next_look = 0.0
        self._next_end = 0.0
        self._lost_since: float | None = None
        self._next_attempt = 0.0
        self._marked = self._reached_before = 0
        self._warned = 0

    def describe(self) -> FeedDescription:
        """Say where the source is, and name its system, database and slot."""
        if not self._identity:
            self._within_start(self._identify)
        return FeedDescription(self.address.shown, self._identity)

    def start(self, positions: Mapping[tuple[str, int], StoredPosition]) -> None:
        """Take the slot and go on behind the stored change; raise FeedError when it is not the slot it was."""
        stored = positions.get((self.slot, 0))
        if stored is None:
            raise FeedError(
                f"The state does not know where the feed {self.name} begins: run `{self.address.follow_command}`, "
                f"which reads the source and makes its slot"
            )
        self._system = stored.source_position.get("system")
        self._numbers = Numbering(stored)
        self._committed = stored.next_offset
        self._end_at_start = self._within_start(self._connect)

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Sequence[RawRecord]:
        """Return the next changes; wait up to `timeout` seconds for the first.

        More are waited for as long as they come without a gap, for a fraction of a second. Ends at `max_records`, or
        with the record that reaches `max_bytes`, or behind these with their transaction, if all are no more than
        `transaction_records` and TRANSACTION_BYTES: that is waited for until nothing more of it has come for
        `transaction_wait_seconds`.
        """
        records: list[RawRecord] = []
        size = grown = 0
        deadline = rest_deadline = time.monotonic() + timeout
        has_begun = False
        try:
            if self._cursor is None and not self._connect_again(timeout):
                return records
            read, take, handed = self._cursor.read_message, self._take, self._handed
            while (len(records) < max_records and size < max_bytes) or self._is_to_be_ended(records, size):
                if handed:
                    records.append(handed.popleft())
                    size += len(records[-1].value or b"")
                    continue
                message = read()
                if self._told_server >= self._last_start:
                    self._moved_by_client = max(self._moved_by_client, self._cursor.wal_end)
                if message is not None:
                    self._last_start = message.data_start
                    take(message.payload)
                    continue
                if not self._numbers.is_inside:
                    self._seen_end = max(self._seen_end, self._cursor.wal_end)
                now = time.monotonic()
                if records and not has_begun:  # from here on the rest is waited for, however long the first one was
                    has_begun, deadline = True, now + LONGEST_POLL_SECONDS
                remaining = deadline - now
                if records and self._is_to_be_ended(records, size):
                    if len(records) > grown:
                        grown, rest_deadline = len(records), now + self.transaction_wait_seconds
                    remaining = max(remaining, rest_deadline - now)
                elif records and not self._numbers.is_inside:
                    # A busy server sends faster than it is waited for: its next message is part of the same batch.
                    remaining = min(remaining, GAP_SECONDS)
                if remaining <= 0 or not _has_come(self._cursor, remaining):
                    break
            if not records:
                self._look_after_slot()
                records.extend(handed)
                handed.clear()
        except psycopg2.Error as error:
            self._lose(error)
        except SetBackError as error:
            raise set_back(self.address, "another log stands where this state has read it") from error
        return records

    def positions(self) -> dict[tuple[str, int], int]:
        """Give the number behind the last change that was handed over."""
        return {(self.slot, 0): self._handed[0].offset if self._handed else self._numbers.next}

    def source_positions(
        self, positions: Mapping[tuple[str, int], int]
    ) -> Mapping[tuple[str, int], Mapping[str, object]]:
        """Say which transaction a position is in, and up to where the server may forget when it is stored."""
        at = positions.get((self.slot, 0))
        if at is None:
            return {}
        kept = self._numbers.kept(at)
        self._told.append((at, self._numbers.stored_end))
        return {(self.slot, 0): {**kept, "system": self._identity.get("system")}}

    def at_end(self) -> bool:
        """Tell whether all that was committed before the start has been polled."""
        return self._end_at_start is not None and self._seen_end > self._end_at_start and not self._handed

    def is_whole(self, positions: Mapping[tuple[str, int], int]) -> bool | None:
        """Tell whether a position is between two transactions of the source."""
        at = positions.get((self.slot, 0))
        return None if at is None else self._numbers.is_whole(at)

    def lag(self) -> dict[tuple[str, int], int] | None:
        """Count the bytes of the log behind what was read; None while the server is away."""
        if self._cursor is None or self._sql is None:
            return None
        now = time.monotonic()
        if now >= self._next_end:
            self._next_end = now + END_SECONDS
            try:
                self._known_end = self._read_slot().current
            except psycopg2.Error as error:
                self._lose(error)
                return None
        return {(self.slot, 0): max(0, self._known_end - self._seen_end)}

    def rest(self) -> None:
        """Look after the slot, reading nothing."""
        if self._cursor is None:
            self._connect_again(0)
            return
        try:
            self._warn(self._read_slot())
            self._lost_since = None
        except psycopg2.Error as error:
            self._lose(error)

    def committed(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Let the server forget what the state has stored up to these positions."""
        at = positions.get((self.slot, 0), self._committed)
        self._committed = max(self._committed, at)
        end = 0
        while self._told and self._told[0][0] <= at:
            end = self._told.popleft()[1]
        if end > self._confirmed and self._cursor is not None:
            self._confirm(end)

    def close(self) -> None:
        """Leave the slot, which stays; a second call does nothing."""
        self._disconnect()

    def _confirm(self, end: int) -> None:
        if self._moved_by_client > end:
            return  # it would confirm more than the state holds: the next position that is stored will do
        try:
            # One byte less: psycopg2 would answer the server's next pings with the server's own position if all that
            # it has received were confirmed, and so confirm what the state does not hold.
            self._cursor.send_feedback(flush_lsn=end - 1, force=True)
            self._confirmed, self._told_server = end, end - 1
        except psycopg2.Error as error:
            self._lose(error)

    def _within_start(self, begin: Callable[[], T]) -> T:
        """Begin something for which the source may be away, or its slot in use, for `start_timeout` seconds."""
        deadline = time.monotonic() + self.start_timeout
        while True:
            try:
                return begin()
            except (_SlotInUse, SourceAway):
                self._disconnect()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            except psycopg2.Error as error:
                self._disconnect()
                raise FeedError(f"Cannot follow the {self.address.place}: {first_line(error)}.") from error
            except BaseException:
                self._disconnect()
                raise

    def _identify(self) -> None:
        if self._sql is None:
            self._sql = self.address.connect()
        self._identity = {**self._asking(source_identity), "slot": self.slot}

    def _connect(self) -> int:
        """Go on behind what is stored; return the place of a mark that was written into the log before."""
        self._identify()  # each time: another server may answer there now
        if self._system is not None and self._system != self._identity["system"]:
            raise FeedError(
                f"The {self.address.place} is not the database that this state has followed: its system identifier is "
                f"{self._identity['system']}, it was {self._system}. Correct the address. {self.address.way_out}"
            )
        found = self._asking(lambda cursor: read_slot(cursor, self.slot))
        require_same(self.address, found, self._numbers)
        # As long as it has received nothing psycopg2 goes along with the server's pings, and lets it forget what the
        # state does not hold. Before such a ping the server sends what is in its log: at least this mark.
        marked = self._mark_log()
        self._sender = self.address.connect_for_replication()
        cursor = self._sender.cursor()
        options = {"proto_version": "1", "publication_names": f'"{self.slot}"'}
        if self._sender.server_version >= 150000:
            options["messages"] = "true"  # older servers send transactions without changes anyway
        try:
            cursor.start_replication(self.slot, decode=False, options=options, status_interval=FEEDBACK_SECONDS)
        except psycopg2.errors.ObjectInUse as error:
            raise _SlotInUse(
                f"The slot {self.slot} of the {self.address.place} is in use by another session ({first_line(error)}): "
                f"another subsetd follows it; stop that one, or end its session: SELECT pg_terminate_backend(PID)"
            ) from error
        except psycopg2.Error as error:
            if (error.pgcode or "57")[:2] == "57":  # it went away, or is going
                raise SourceAway(f"The {self.address.place} went away: {first_line(error)}.") from error
            raise FeedError(
                f"The slot {self.slot} of the {self.address.place} cannot be read: {first_line(error)}. "
                f"{self.address.way_out}"
            ) from error
        self._cursor = cursor
        self._marked, self._reached_before = marked, self._numbers.reached
        self._numbers.begin_again()
        self._relations.clear()
        self._roots.update(self._asking(read_roots))
        return marked

    def _connect_again(self, timeout: float) -> bool:
        """Try to connect, once in a while; raise FeedError when the server was away for too long.

        It was away until a connection has brought something new, or the mark of its beginning.
        """
        now = time.monotonic()
        if self._lost_since is None:
            raise FeedError(f"feed {self.name} is not started")
        if now < self._next_attempt:
            time.sleep(min(timeout, self._next_attempt - now))
            return False
        self._next_attempt = now + RETRY_PAUSE_SECONDS
        try:
            self._connect()
        except (_SlotInUse, SourceAway, psycopg2.Error) as error:
            self._disconnect()
            if now - self._lost_since > self.retry_seconds:
                if isinstance(error, FeedError):
                    raise
                raise FeedError(f"Cannot follow the {self.address.place}: {first_line(error)}.") from error
            return False
        log.info("feed connected again", feed=self.name)
        return True

    def _lose(self, error: psycopg2.Error) -> None:
        log.warning("feed disconnected", feed=self.name, error=first_line(error))
        self._disconnect()
        now = time.monotonic()
        has_gone_on = self._seen_end > self._marked or self._numbers.reached > self._reached_before
        if self._lost_since is None or has_gone_on:
            self._lost_since = now
        elif now - self._lost_since > self.retry_seconds:
            # It lets itself be connected to, and fails at the same place each time.
            raise FeedError(f"Cannot follow the {self.address.place}: {first_line(error)}.") from error

    def _disconnect(self) -> None:
        for connection in (self._sender, self._sql):
            if connection is not None:
                connection.close()
        self._sender = self._sql = self._cursor = None
        self._confirmed = self._told_server = self._last_start = self._moved_by_client = 0

    def _is_to_be_ended(self, records: Sequence[RawRecord], size: int) -> bool:
        """Tell whether the transaction of the last record goes on, and all of it may be one batch.

        Its last numbers may be of no record: a truncate of several partitions is handed over once.
        """
        is_small = len(records) < self.transaction_records and size < TRANSACTION_BYTES
        return is_small and not self._numbers.is_whole(self.positions()[self.slot, 0])

    def _take(self, message: bytes) -> None:
        """Take one message; changes are put into `_handed`."""
        kind = message[0]
        if kind in _ROW_CHANGES:
            number = self._numbers.count()
            if number is not None:
                self._hand(number, message, self._relations[pgoutput.relation_oid(message)])
        elif kind == _BEGIN:
            self._numbers.begin(pgoutput.parse_begin(message))
        elif kind == _COMMIT:
            commit = pgoutput.parse_commit(message)
            self._numbers.end(commit)
            self._seen_end = max(self._seen_end, commit.end_lsn)
        elif kind == _RELATION:
            described = self._asking(lambda cursor: describe_relation(cursor, message, self.slot, self._roots))
            self._relations[pgoutput.relation_oid(message)] = described
        elif kind == _TRUNCATE:
            oids = pgoutput.parse_truncate(message)
            emptied = self._emptied(oids)
            for oid in oids:
                # Each has a number, given or not: today's catalog does not tell which were partitions of one table.
                number = self._numbers.count()
                if number is not None and oid in emptied:
                    self._hand(number, *emptied[oid])

    def _hand(self, number: int, value: bytes, relation: DescribedRelation) -> None:
        transaction = self._numbers.last
        headers = (*relation.headers, ("transaction", transaction.header))
        self._handed.append(RawRecord(self.slot, 0, number, None, value, transaction.committed_ms, headers))

    def _emptied(self, oids: Sequence[int]) -> dict[int, tuple[bytes, DescribedRelation]]:
        """Give what a truncate empties, by the first of its tables: a partitioned one when no partition is left."""
        found: dict[int, tuple[bytes, DescribedRelation]] = {}
        told, at = list(self._relations), self._numbers.last.transaction_id
        firsts = {self._relations[oid].root_oid: oid for oid in reversed(oids)}
        for root, oid in firsts.items():
            relation = self._relations[oid]
            is_part = root not in oids and self._asking(
                lambda cursor, root=root: partitions_left(cursor, root, oids, told, at)
            )
            found[oid] = b"P" + relation.name.encode() if is_part else b"T", relation
        return found

    def _look_after_slot(self) -> None:
        """Every few seconds without changes: let the server forget what has none for us, and warn of a full log."""
        now = time.monotonic()
        if now < self._next_look or self._numbers.is_inside:
            return
        self._next_look = now + HEARTBEAT_SECONDS
        found = self._read_slot()
        self._warn(found)
        numbers = self._numbers
        if self._committed < numbers.next:
            return
        if numbers.last.end_lsn - numbers.stored_end >= HEARTBEAT_BYTES:
            now_ms = int(time.time() * 1000)
            self._handed.append(RawRecord(self.slot, 0, numbers.beat(), None, None, now_ms))
        elif found.current - self._numbers.stored_end >= HEARTBEAT_BYTES:
            self._mark_log()
            self._next_look = now + 1.0

    def _mark_log(self) -> int:
        """Write a message into the source's log, which comes back through the slot; return its place."""
        return int(self._asking(emit_mark))

    def _warn(self, found: SlotState | None) -> None:
        """Warn of log that the slot holds back, once for each doubling."""
        if found is None:
            return
        is_short = found.wal_status in ("extended", "unreserved", "lost")
        if found.held_back < self.slot_warning_bytes and not is_short:
            self._warned = 0
        elif found.held_back >= 2 * self._warned:
            self._warned = max(found.held_back, 1)
            log.warning(
                "slot holds back log",
                feed=self.name,
                slot=self.slot,
                bytes=found.held_back,
                wal_status=found.wal_status,
            )

    def _read_slot(self) -> SlotState:
        found: SlotState | None = self._asking(lambda cursor: read_slot(cursor, self.slot))
        if found is None:
            require_same(self.address, found, self._numbers)
        assert found is not None
        self._tell_held_back(found.held_back)
        return found

    def _asking(self, question: Any) -> Any:
        with self._sql.cursor() as cursor:
            return question(cursor)


class _SlotInUse(FeedError):
    """Another session reads the slot."""


_ROW_CHANGES = frozenset(b"IUD")
_BEGIN, _COMMIT, _RELATION, _TRUNCATE = b"BCRT"


def _has_come(cursor: Any, seconds: float) -> bool:
    """Wait for something to read, at most so long; `select` takes no descriptor above 1023."""
    waiting = select.poll()
    waiting.register(cursor, select.POLLIN)
    return bool(waiting.poll(seconds * 1000))

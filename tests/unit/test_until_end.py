"""A session that is to end where its feed ended at the start ends there, though the feed is never silent."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from service.core.model import RawRecord, RowChange, Skipped, Table
from service.usecases.batches import Batch, BatchLimits, Totals
from service.usecases.feed_session import Session
from service.usecases.transactions import TransactionBuffer, WaitLimits

TABLE = Table("s", "orders", ())
PLACE = ("shop.s.orders", 0)


class BusyFeed:
    """Be a feed that has another record at each poll; the first `there` were there at the start."""

    lag_unit = "records"
    name = "busy"

    def __init__(self, there: int, stop: threading.Event) -> None:
        self.at = 0
        self._there = there
        self._stop = stop

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> list[RawRecord]:
        self.at += 1
        if self.at > 1000:
            self._stop.set()
        return [RawRecord(*PLACE, self.at - 1, None, b"{}", 0)]

    def positions(self) -> dict[tuple[str, int], int]:
        return {PLACE: self.at}

    def at_end(self) -> bool:
        return self.at >= self._there

    def lag(self) -> dict[tuple[str, int], int]:
        return {PLACE: 1}


class Taking(Session):
    """Be a session without a state, which counts what it would apply."""

    def __init__(self, feed: BusyFeed, decode: Any, buffer: TransactionBuffer) -> None:
        self.taken: list[int] = []
        told = SimpleNamespace(waiting=lambda lag: None)
        limits = BatchLimits(records=1)
        self._of: Any = SimpleNamespace(limits=limits, totals=Totals(), started=None, observer=told)
        self._feed: Any = feed
        self._retried = None
        self._looks_at = float("inf")
        self._ends = None
        self._positions = {}
        self._writer: Any = SimpleNamespace(is_paused=lambda feed: False)
        self._warm_up: Any = SimpleNamespace(take=lambda: None, records=0, seconds=0.0)
        self._in_flight: Any = SimpleNamespace(is_busy=True, settle=lambda: False)
        self._decoder: Any = SimpleNamespace(decode=decode)
        self._buffer = buffer

    def _take(self, batch: Batch) -> None:
        self.taken += [record.offset for record in batch.records]


def test_it_ends_behind_what_was_there_though_more_comes_with_each_poll() -> None:
    stop = threading.Event()
    session = Taking(BusyFeed(5, stop), lambda record: Skipped(record.position, "tombstone"), TransactionBuffer(()))
    session.follow(stop, until_end=True)
    assert not stop.is_set(), "it went on for as long as somebody wrote"
    assert session.taken == [0, 1, 2, 3, 4]


def test_what_was_there_and_waits_for_its_transaction_is_applied_before_the_end() -> None:
    stop = threading.Event()
    buffer = TransactionBuffer([TABLE], ["shop.transaction"], WaitLimits(records=7))

    def decode(record: RawRecord) -> RowChange:
        told = {"transaction_id": str(record.offset // 100), "total_order": record.offset}
        return RowChange(TABLE, "c", None, (), record.position, told)  # type: ignore[arg-type]

    session = Taking(BusyFeed(5, stop), decode, buffer)
    session.follow(stop, until_end=True)
    assert not stop.is_set()
    assert session.taken[:5] == [0, 1, 2, 3, 4]

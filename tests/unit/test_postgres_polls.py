"""What a Postgres feed waits for, without a server: the rest of a transaction, and a source that is being started."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from service import feed_wiring
from service.core.model import StoredPosition
from service.stream.postgres_address import PostgresAddress, SourceAway
from service.stream.postgres_catalog import DescribedRelation
from service.stream.postgres_feed import PostgresFeed
from service.stream.postgres_numbering import Numbering

BEGIN = b"B" + struct.pack(">QqI", 100, 0, 7)
COMMIT = b"C" + struct.pack(">BQQq", 0, 100, 140, 0)
TRUNCATE = b"T" + struct.pack(">IBII", 2, 0, 11, 12)
WAIT_SECONDS = 1.0


@pytest.fixture
def silent() -> Iterator[int]:
    reading, writing = os.pipe()
    yield reading
    os.close(reading)
    os.close(writing)


def polled(silent: int, *messages: bytes) -> tuple[PostgresFeed, int, float]:
    """Poll what a server has sent that is silent from then on; gives the number of records and the seconds."""
    feed = PostgresFeed(PostgresAddress("shop", {}), transaction_wait_seconds=WAIT_SECONDS)
    left = [SimpleNamespace(payload=message, data_start=100) for message in messages]
    cursor: Any = SimpleNamespace(read_message=lambda: left.pop(0) if left else None, wal_end=0, fileno=lambda: silent)
    feed._cursor = cursor
    feed._numbers = Numbering(StoredPosition(0, {"txn_lsn": 1, "first": 0, "end_lsn": 2}))
    feed._relations = {oid: DescribedRelation((), f"s.p{oid}", 10) for oid in (11, 12)}
    feed._asking = lambda question: False  # type: ignore[method-assign]
    begun = time.monotonic()
    return feed, len(feed.poll(100, 1 << 20, 0.01)), time.monotonic() - begun


def test_a_truncate_of_several_partitions_is_whole_with_its_one_record(silent: int) -> None:
    feed, records, seconds = polled(silent, BEGIN, TRUNCATE, COMMIT)
    assert records == 1
    assert seconds < WAIT_SECONDS, "it waited for the rest of a transaction that has ended"
    assert feed.positions() == {("subsetd_shop", 0): 2}
    assert feed.is_whole(feed.positions())


def test_a_transaction_that_has_not_ended_is_waited_for(silent: int) -> None:
    feed, records, seconds = polled(silent, BEGIN, TRUNCATE)
    assert records == 1
    assert seconds >= WAIT_SECONDS
    assert not feed.is_whole(feed.positions())


class AwayAtFirst(PostgresAddress):
    """Be the address of a source that is being started: it answers from the third attempt on."""

    attempts = 0

    def connect(self) -> Any:
        AwayAtFirst.attempts += 1
        if AwayAtFirst.attempts < 3:
            raise SourceAway("it is being started")
        told = SimpleNamespace(execute=lambda *question: None, fetchone=lambda: ("7", "shop"))
        return SimpleNamespace(cursor=lambda: nullcontext(told), close=lambda: None)


def test_a_source_may_be_away_when_it_is_asked_who_it_is() -> None:
    """It is the first that a consumer asks of it."""
    feed = PostgresFeed(AwayAtFirst("shop", {}), start_timeout=60)
    assert feed.describe().identity == {"system": "7", "database": "shop", "slot": "subsetd_shop"}


def test_a_feed_is_paused_by_its_address_though_its_source_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.wiring.reading_engine", nullcontext)
    monkeypatch.setattr("service.store.feeds.set_paused", lambda engine, feed, paused: [feed])
    address = "postgresql://me:secret@127.0.0.1:1/shop?name=the shop"
    assert feed_wiring.set_paused("state", address, True) == ["postgres:the shop"]
    assert feed_wiring.set_paused("state", "kafka://b:9092/x", True) == ["kafka://b:9092"]
    assert feed_wiring.set_paused("state", "kafka:ID", True) == ["kafka:ID"]

"""A poll of a Postgres feed waits for the rest of a transaction as long as there is one, and no longer."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from service.core.model import StoredPosition
from service.stream.postgres_address import PostgresAddress
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

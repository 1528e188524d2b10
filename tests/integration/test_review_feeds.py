"""What a review of the trusted feeds found, each kept as a lesson: wrong states and crashes that the other tests let
through."""

from __future__ import annotations

import inspect
import json
import sys
import threading
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from service.core.canonical import value_keys
from service.core.errors import StateError
from service.core.model import RawRecord, RowChange
from service.store.writer import PostgresWriter
from service.stream.envelope import Decoder
from service.stream.file_feed import FileFeed
from service.stream.postgres_address import PostgresAddress, SourceAway
from service.stream.postgres_feed import PostgresFeed
from service.usecases.batches import BatchLimits, ErrorPolicy
from service.usecases.follow_feed import Consumer
from service.usecases.screening import REPEATED, RetryScreen
from tests import kept_rows, states
from tests.events import envelope, record, tracked_table
from tests.following import COLUMNS, Stream, Watch, consume
from tests.postgres_following import begin, follow, require_equal, run
from tests.states import Tables


@pytest.fixture
def stream(tmp_path: Path, database_url: str) -> Stream:
    """Give a feed of a source whose orders are kept by their id, and whose customers are not."""
    tables = Tables(COLUMNS)
    tables.add("customers", ["1", "Ada"], ["2", "Bob"])
    tables.add("orders", ["10", "1", "newest"])
    states.store(database_url, tables)
    kept_rows.keep(database_url, tables, {"orders": ["id"]})
    path = tmp_path / "feed.jsonl"
    path.touch()
    return Stream(path, tables)


def order(*row: str | None) -> dict[str, str | None]:
    return dict(zip(COLUMNS["orders"], row, strict=True))


def marked(op: str, table: str, before: object, after: object, lsn: int, **source: object) -> bytes:
    """Make an event of Debezium's connector for Postgres that can be told from others."""
    sequence = json.dumps([str(lsn - 1), str(lsn)])
    told = {"connector": "postgresql", "lsn": lsn, "sequence": sequence, "snapshot": "false", "ts_ms": lsn, **source}
    document = json.loads(envelope(op, "s", table, before, after, **told))  # type: ignore[arg-type]
    document["transaction"] = {"id": f"{lsn}:{lsn}", "total_order": 1}
    return json.dumps(document).encode()


def test_a_row_of_a_connectors_older_snapshot_is_part_of_the_bootstrap(database_url: str, stream: Stream) -> None:
    """Its later changes are skipped as the bootstrap shows them: so it must be, or the row would be set back."""
    states.execute(database_url, "update source set kind = 'postgres', snapshot = '703:706:703'")
    told = {"connector": "postgresql", "snapshot": "true"}
    for transaction in (700, 703):  # a connector's snapshot was taken before, or was being taken
        stream.write(envelope("r", "s", "orders", None, order("10", "1", "oldest"), txId=transaction, **told))
        stream.write(envelope("r", "s", "orders", None, order("9", "1", "gone"), txId=transaction, **told))
        stream.write(envelope("r", "s", "customers", None, {"id": "1", "name": "Ada"}, txId=transaction, **told))
    stream.write(envelope("u", "s", "orders", order("10", "1", "oldest"), order("10", "1", "newest"), txId=702))
    stream.write(envelope("d", "s", "orders", order("9", "1", "gone"), txId=702))
    watch = Watch()
    consume(database_url, stream, watch=watch)
    assert watch.reports[-1].skipped == {"part of the bootstrap": 8}
    assert kept_rows.read(database_url, "orders") == kept_rows.expected(stream.tables, "orders", ["id"])
    assert states.read(database_url) == states.expected(stream.tables)


def test_a_row_of_a_snapshot_behind_the_bootstrap_is_an_upsert(database_url: str, stream: Stream) -> None:
    states.execute(database_url, "update source set kind = 'postgres', snapshot = '703:706:703'")
    stream.write(envelope("r", "s", "orders", None, order("10", "2", "later"), txId=706, snapshot="incremental"))
    stream.tables.remove("orders", ["10", "1", "newest"])
    stream.tables.add("orders", ["10", "2", "later"])
    assert consume(database_url, stream).updated == 1
    assert states.read(database_url) == states.expected(stream.tables)


def test_rows_of_a_snapshot_do_not_let_repeats_be_forgotten(database_url: str, stream: Stream) -> None:
    sent = marked("c", "customers", None, {"id": "3", "name": "Cy"}, 1000)
    stream.write(sent)
    stream.tables.add("customers", ["3", "Cy"])
    consume(database_url, stream)
    stream.write(envelope("r", "s", "orders", None, order("10", "1", "newest"), snapshot="incremental"))
    consume(database_url, stream)
    stream.write(sent)
    assert consume(database_url, stream).skipped == 1
    assert states.read(database_url) == states.expected(stream.tables)


def test_half_a_character_in_a_table_name_is_set_aside(database_url: str, stream: Stream) -> None:
    """What one reader of JSON refuses, another may take, and the database refuses it again."""
    stream.write(b'{"op": "c", "source": {"schema": "s", "table": "\\ud800"}, "after": {"id": "1"}}')
    assert consume(database_url, stream, on_error=ErrorPolicy.SET_ASIDE).dead == 1
    assert states.query(database_url, "select table_name from dead_letter") == [(None,)]


@pytest.mark.parametrize("header", [("origin", None), ("a\0b", b"1")])
def test_a_record_with_any_header_can_be_set_aside(
    database_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch, header: tuple[str, bytes]
) -> None:
    stream.write(b"no change")
    poll = FileFeed.poll

    def with_headers(*arguments: Any) -> list[RawRecord]:
        return [one._replace(headers=[header]) for one in poll(*arguments)]

    monkeypatch.setattr(FileFeed, "poll", with_headers)
    assert consume(database_url, stream, on_error=ErrorPolicy.SET_ASIDE).dead == 1


def test_a_change_that_was_set_aside_twice_is_applied_once() -> None:
    """A connector that restarts repeats also what nobody could read, so nothing was seen of it."""
    table = tracked_table("s", "customers", {"id": "string", "name": "string"})
    decode = Decoder([table]).decode
    sent = marked("c", "customers", None, {"id": "3", "name": "Cy"}, 1000)
    twice = [change for change in map(decode, (record(sent, 1), record(sent, 2))) if isinstance(change, RowChange)]
    screen = RetryScreen({}, {change.position: 2 for change in twice}, {}, {})
    for _ in range(2):  # a batch may be looked at again
        screened = screen.screen(twice)
        assert [change.position.offset for change in screened.changes] == [1]
        assert [(skipped.position.offset, skipped.reason) for skipped in screened.skipped] == [(2, REPEATED)]


def test_another_change_that_a_restarted_connector_gave_the_same_number_is_applied() -> None:
    """Of a transaction that is sent again the numbers may be lower: see `source_order.mark`."""
    table = tracked_table("s", "customers", {"id": "string", "name": "string"})
    sent = [marked("c", "customers", None, {"id": name, "name": "Cy"}, 1000) for name in ("3", "4")]
    decoded = map(Decoder([table]).decode, map(record, sent, (1, 2)))
    changes = [change for change in decoded if isinstance(change, RowChange)]
    screen = RetryScreen({}, {change.position: 2 for change in changes}, {}, {})
    assert screen.screen(changes).changes == changes
    assert [change.position.offset for change in changes] == [1, 2]


def test_a_paused_feed_is_not_followed_from_its_start_on(database_url: str, stream: Stream) -> None:
    consume(database_url, stream)
    states.execute(database_url, "update feed set paused_at = now()")
    stream.change("customers", None, ["3", "Cy"])
    watch, stop = Watch(), threading.Event()
    watch.waiting = lambda lag: stop.set()  # type: ignore[method-assign]
    consumer = Consumer(PostgresWriter(database_url), lambda: FileFeed(str(stream.path)), Decoder, value_keys, watch)
    assert consumer.run(stop).records == 0


def test_a_letter_keeps_its_place_when_its_feed_goes_back(database_url: str, stream: Stream) -> None:
    """What comes once more for a source that has joined is no newer than it was."""
    unreadable = envelope("u", "s", "orders", None, order("10", "1", "older"), ts_ms=-1)
    stream.write(unreadable)
    stream.change("orders", ["10", "1", "newest"], ["10", "2", "newest"])
    consume(database_url, stream, on_error=ErrorPolicy.SET_ASIDE)
    ((version,),) = states.query(database_url, "select version from dead_letter")
    states.execute(
        database_url,
        "insert into feed_catch_up select feed, topic, partition, source_id, next_offset from feed_position, source",
    )
    states.execute(database_url, "update feed_position set next_offset = 0")
    consume(database_url, stream, on_error=ErrorPolicy.SET_ASIDE)
    assert states.query(database_url, "select version from dead_letter") == [(version,)]
    assert states.read(database_url) == states.expected(stream.tables)


def test_a_batch_may_hold_more_refused_shapes_than_python_has_stack_frames(database_url: str, stream: Stream) -> None:
    stream.change("customers", None, ["3", "Cy"])
    consume(database_url, stream)  # what is compiled at the first call is now
    for number in range(100):  # the key is gone in all of them
        row = {"customer": "1", "note": None, f"other {number}": "x"}
        stream.write(envelope("u", "s", "orders", {"id": "10"}, row))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 150)
    try:
        assert consume(database_url, stream, on_error=ErrorPolicy.SET_ASIDE).dead == 100
    finally:
        sys.setrecursionlimit(limit)
    assert states.read(database_url) == states.expected(stream.tables)


def test_a_feed_is_closed_when_the_state_fails_before_it_is_started(
    database_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []

    class Watched(FileFeed):
        def close(self) -> None:
            closed.append(1)
            super().close()

    def fail(self: PostgresWriter, feed: str) -> None:
        raise StateError("away")

    monkeypatch.setattr(PostgresWriter, "positions", fail)
    consumer = Consumer(
        PostgresWriter(database_url), lambda: Watched(str(stream.path)), Decoder, value_keys, Watch(),
        retry_seconds=0.0, limits=BatchLimits(),
    )  # fmt: skip
    with pytest.raises(StateError, match="away"):
        consumer.run(threading.Event())
    assert closed


def test_a_source_that_vanishes_in_the_middle_of_a_poll_is_waited_for(
    database_url: str, followed_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records that had come are committed while there is no connection."""
    run(followed_url, "CREATE SCHEMA s", "CREATE TABLE s.items (id integer PRIMARY KEY)")
    run(followed_url, "ALTER TABLE s.items REPLICA IDENTITY FULL")
    begin(database_url, followed_url)
    run(followed_url, "INSERT INTO s.items SELECT generate_series(1, 10)")
    take, connect = PostgresFeed._take, PostgresAddress.connect
    taken: list[bytes] = []
    refused: list[PostgresAddress] = []

    def cut(feed: PostgresFeed, message: bytes) -> None:
        take(feed, message)
        taken.append(message[:1])
        if taken.count(b"I") == 5 and not refused:
            raise psycopg2.OperationalError("cut")

    def refuse(address: PostgresAddress) -> Any:
        if taken.count(b"I") == 5 and len(refused) < 3:
            refused.append(address)
            raise SourceAway("away")
        return connect(address)

    monkeypatch.setattr(PostgresFeed, "_take", cut)
    monkeypatch.setattr(PostgresAddress, "connect", refuse)
    assert follow(database_url, followed_url).inserted == 10
    require_equal(database_url, followed_url)


def test_a_state_without_a_record_that_was_set_aside_is_not_consistent(database_url: str, stream: Stream) -> None:
    """Its transaction is not whole, also behind the batch that set it aside."""
    stream.path = stream.path.with_name("shop.transaction")

    def commit(number: int, **change: object) -> None:
        op = "d" if "before" in change else "c"
        document = json.loads(envelope(op, "s", "customers", **change))  # type: ignore[arg-type]
        stream.write(json.dumps({**document, "transaction": {"id": str(number), "total_order": 1}}).encode())
        counts = [{"data_collection": "s.customers", "event_count": 1}]
        stream.write(json.dumps({"status": "END", "id": str(number), "data_collections": counts}).encode())
        consume(database_url, stream, on_error=ErrorPolicy.SET_ASIDE)

    commit(1, after={"id": "3", "name": "Cy"})
    commit(2, before={"id": "9", "name": "never there"})
    commit(3, after={"id": "4", "name": "Di"})
    states.execute(database_url, "delete from dead_letter")
    commit(4, after={"id": "5", "name": "Ed"})
    told = states.query(database_url, "select transaction_consistent from state_version order by version")
    assert [one for (one,) in told] == [None, True, False, False, True]

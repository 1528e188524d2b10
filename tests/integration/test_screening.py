"""What is applied already is applied once: changes in the bootstrap's snapshot, and those that a connector repeats."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry

from service.core.errors import FeedError, RecordError
from service.observe import ConsumerObserver
from service.usecases.batches import ErrorPolicy
from tests import kept_rows, states
from tests.events import envelope
from tests.following import COLUMNS, MakeStream, Stream, Watch, consume
from tests.states import Tables

ORDER = {"id": "11", "customer": "1", "note": None}


@pytest.fixture
def stream(make_stream: MakeStream, database_url: str) -> Stream:
    tables = Tables(COLUMNS)
    tables.add("customers", ["1", "Ada"], ["2", "Bob"])
    tables.add("orders", ["10", "1", "first"])
    states.store(database_url, tables)
    kept_rows.keep(database_url, tables, {})
    return make_stream(tables)


class Connector:
    """Write events as Debezium's connector for Postgres does: in the order of commits, with `sequence` and `lsn`."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.sent: list[bytes] = []
        self.last_commit, self.lsn, self.transaction, self.ts_ms = 1000, 1000, 700, 1_700_000_000_000

    def commit(self, changes: Sequence[tuple[str, Sequence[str | None] | None, Sequence[str | None] | None]]) -> None:
        """Make a transaction of changes (table, before, after), in the tables and in the feed."""
        self.transaction += 1
        self.ts_ms += 1000
        for order, (table, before, after) in enumerate(changes, 1):
            self.lsn += 10
            if before is not None:
                self.stream.tables.remove(table, before)
            if after is not None:
                self.stream.tables.add(table, after)
            self.send(self.event(table, before, after, order))
        self.lsn += 10
        self.last_commit = self.lsn

    def event(
        self, table: str, before: Sequence[str | None] | None, after: Sequence[str | None] | None, order: int = 1
    ) -> bytes:
        op = "u" if before is not None and after is not None else "c" if before is None else "d"
        named = [None if row is None else dict(zip(COLUMNS[table], row, strict=True)) for row in (before, after)]
        sequence = json.dumps([str(self.last_commit), str(self.lsn)])
        document = json.loads(
            envelope(
                op, "s", table, *named, connector="postgresql", snapshot="false", txId=self.transaction, lsn=self.lsn,
                sequence=sequence, ts_ms=self.ts_ms,
            )
        )  # fmt: skip
        document["transaction"] = {
            "id": f"{self.transaction}:{self.lsn}", "total_order": order, "data_collection_order": 1
        }  # fmt: skip
        return json.dumps(document).encode()

    def send(self, event: bytes) -> None:
        self.sent.append(event)
        self.stream.write(event)

    def repeat(self, number: int) -> None:
        """Send the last events once more, as a connector that was killed before it stored its offsets."""
        for event in self.sent[-number:]:
            self.stream.write(event)


@pytest.fixture
def connector(stream: Stream) -> Connector:
    return Connector(stream)


def test_events_that_a_connector_repeats_are_skipped(database_url: str, connector: Connector) -> None:
    connector.commit([("orders", None, ["11", "2", None]), ("customers", None, ["3", "Cy"])])
    connector.commit([("orders", ["11", "2", None], ["11", "3", None])])
    connector.repeat(3)
    connector.commit([("orders", ["11", "3", None], None)])
    watch = Watch()
    consume(database_url, connector.stream, watch=watch)
    assert watch.reports[-1].skipped == {"repeated by the connector": 3}
    assert states.read(database_url) == states.expected(connector.stream.tables)


def test_repeats_are_known_after_a_restart(database_url: str, connector: Connector) -> None:
    connector.commit([("orders", None, ["11", "2", None]), ("customers", None, ["3", "Cy"])])
    consume(database_url, connector.stream)
    connector.repeat(2)
    connector.commit([("orders", None, ["12", "3", None])])
    totals = consume(database_url, connector.stream)
    assert (totals.inserted, totals.skipped) == (1, 2)
    assert states.read(database_url) == states.expected(connector.stream.tables)


@pytest.mark.parametrize("seed", range(5))
def test_wherever_a_connector_is_killed_each_change_counts_once(
    database_url: str, connector: Connector, seed: int
) -> None:
    rng = random.Random(seed)
    repeated = 0
    for _ in range(25):
        changes: list[tuple[str, list[str | None] | None, list[str | None] | None]] = []
        for _ in range(rng.randint(1, 3)):
            table = rng.choice(list(COLUMNS))
            changes.append((table, None, [rng.choice(["1", "2", "3", None]) for _ in COLUMNS[table]]))
        if rng.random() < 0.3:
            table, _, row = changes[0]
            changes.append((table, row, None))
        connector.commit(changes)
        if rng.random() < 0.4:
            number = rng.randint(1, len(connector.sent))
            connector.repeat(number)
            repeated += number
        if rng.random() < 0.3:
            repeated -= consume(database_url, connector.stream, records=rng.choice([1, 2, 7, 100])).skipped
    repeated -= consume(database_url, connector.stream).skipped
    assert repeated == 0
    assert states.read(database_url) == states.expected(connector.stream.tables)


def test_a_record_that_was_set_aside_is_not_set_aside_again_when_it_is_repeated(
    database_url: str, connector: Connector
) -> None:
    connector.send(connector.event("orders", ["99", "9", "never there"], None))
    connector.commit([("orders", None, ["11", "2", None])])
    consume(database_url, connector.stream, on_error=ErrorPolicy.SET_ASIDE)
    connector.repeat(2)
    totals = consume(database_url, connector.stream, on_error=ErrorPolicy.SET_ASIDE)
    assert (totals.dead, totals.skipped) == (0, 2)
    assert states.query(database_url, "select count(*) from dead_letter") == [(1,)]


def test_a_source_that_was_set_back_stops_the_feed(database_url: str, connector: Connector) -> None:
    for number in range(5):
        connector.commit([("orders", None, [str(20 + number), "1", None])])
    connector.lsn, connector.last_commit = 1020, 1020  # restored from a backup
    connector.ts_ms += 60_000
    connector.send(connector.event("orders", None, ["30", "2", None]))
    for _ in range(2):
        with pytest.raises(FeedError, match=r"the source 's' was set back.*--replace"):
            consume(database_url, connector.stream, on_error=ErrorPolicy.SET_ASIDE)
        assert states.read(database_url) == states.expected(connector.stream.tables), "all before it is applied"


def test_another_server_whose_transactions_begin_anew_stops_the_feed(database_url: str, stream: Stream) -> None:
    states.execute(database_url, "update source set kind = 'postgres', snapshot = '7000:7000:'")
    now = 1_700_000_000_000
    stream.write(envelope("c", "s", "orders", None, ORDER, txId=7001, ts_ms=now))
    stream.tables.add("orders", list(ORDER.values()))
    stream.write(envelope("c", "s", "orders", None, ORDER, txId=6990, ts_ms=now - 5))
    assert consume(database_url, stream).skipped == 1
    stream.write(envelope("c", "s", "orders", None, ORDER, txId=12, ts_ms=now + 3_600_000))
    with pytest.raises(FeedError, match=r"was set back.*transaction 12\)"):
        consume(database_url, stream)
    assert states.read(database_url) == states.expected(stream.tables)


def test_changes_are_skipped_exactly_when_their_transaction_is_visible_to_the_bootstrap(
    database_url: str, connector: Connector
) -> None:
    # Of 701 to 706 the bootstrap saw all but 703, which ran, and 706, which had not begun.
    states.execute(database_url, "update source set kind = 'postgres', snapshot = '703:706:703'")
    for number in range(1, 7):
        row = [str(100 + number), "1", None]
        connector.commit([("orders", None, row)])
        if number not in (3, 6):
            connector.stream.tables.remove("orders", row)  # it is no change of what was bootstrapped
    watch = Watch()
    totals = consume(database_url, connector.stream, watch=watch)
    assert (totals.inserted, totals.skipped) == (2, 4)
    assert watch.reports[-1].skipped == {"part of the bootstrap": 4}
    assert states.read(database_url) == states.expected(connector.stream.tables)


def unreadable(connector: Connector, txid: int = 702) -> bytes:
    """Give an update that does not say what the row was, in a transaction of its own."""
    connector.transaction = txid
    connector.lsn += 10
    document = json.loads(connector.event("orders", ["10", "1", "first"], ["10", "2", "first"]))
    connector.lsn += 10
    connector.last_commit = connector.lsn
    return json.dumps({**document, "before": None}).encode()


def test_what_cannot_be_read_is_passed_over_where_the_bootstrap_has_it(database_url: str, connector: Connector) -> None:
    """As the error says: the source was made to send whole rows, and read anew; its topic begins before that."""
    states.execute(database_url, "update source set kind = 'postgres', snapshot = '703:703:'")
    connector.send(unreadable(connector))
    connector.commit([("orders", None, ["11", "2", None])])
    totals = consume(database_url, connector.stream)
    assert (totals.inserted, totals.skipped, totals.dead) == (1, 1, 0)
    assert states.read(database_url) == states.expected(connector.stream.tables)
    connector.send(unreadable(connector, 704))
    with pytest.raises(RecordError, match="without the row before"):
        consume(database_url, connector.stream)


def test_what_cannot_be_read_is_passed_over_where_its_source_has_it(database_url: str, connector: Connector) -> None:
    connector.send(unreadable(connector))
    connector.commit([("orders", None, ["11", "2", None])])
    consume(database_url, connector.stream, on_error=ErrorPolicy.SET_ASIDE)
    states.execute(
        database_url,
        "delete from dead_letter; insert into feed_catch_up select feed, topic, partition, source_id, next_offset "
        "from feed_position, source; update feed_position set next_offset = 0",
    )
    assert consume(database_url, connector.stream).skipped == 2
    assert states.read(database_url) == states.expected(connector.stream.tables)


def test_what_cannot_be_read_is_set_aside_once_though_it_is_repeated(database_url: str, connector: Connector) -> None:
    connector.send(unreadable(connector))
    connector.repeat(1)
    consume(database_url, connector.stream, on_error=ErrorPolicy.SET_ASIDE)
    connector.repeat(1)
    readable = json.loads(connector.sent[-1])
    readable["before"] = dict(zip(COLUMNS["orders"], ["10", "1", "first"], strict=True))
    connector.stream.write(json.dumps(readable).encode())  # as it is read with another setting
    totals = consume(database_url, connector.stream, on_error=ErrorPolicy.SET_ASIDE)
    assert (totals.skipped, totals.updated) == (2, 0)
    assert states.query(database_url, "select record_offset from dead_letter") == [(0,)]
    assert states.read(database_url) == states.expected(connector.stream.tables), "it is applied when it is retried"


def test_a_truncate_that_the_bootstrap_saw_empties_nothing(database_url: str, stream: Stream) -> None:
    states.execute(database_url, "update source set kind = 'postgres', snapshot = '703:706:703'")
    stream.write(envelope("t", "s", "orders", txId=702, connector="postgresql"))
    assert consume(database_url, stream).skipped == 1
    assert states.read(database_url) == states.expected(stream.tables)
    stream.write(envelope("t", "s", "orders", txId=703, connector="postgresql"))
    stream.tables.rows["orders"].clear()
    assert consume(database_url, stream).deleted == 1
    assert states.read(database_url) == states.expected(stream.tables)


def test_transactions_are_told_apart_when_their_32_bits_come_round(database_url: str, connector: Connector) -> None:
    epoch = 1 << 32
    states.execute(
        database_url, f"update source set kind = 'postgres', snapshot = '{epoch - 10}:{epoch - 5}:{epoch - 10}'"
    )
    for transaction in (epoch - 10, epoch - 1, 3, epoch // 2, epoch - 100, 5):  # always onward, twice around
        connector.transaction = transaction - 1
        connector.commit([("orders", None, [str(transaction), "1", None])])
        assert consume(database_url, connector.stream).inserted == 1
    assert states.read(database_url) == states.expected(connector.stream.tables)


def test_a_second_snapshot_is_refused_where_rows_are_not_kept(database_url: str, stream: Stream) -> None:
    stream.write(envelope("r", "s", "orders", None, {"id": "10", "customer": "1", "note": "first"}, snapshot="true"))
    with pytest.raises(RecordError, match=r"row of a snapshot .*s\.orders.*snapshot\.mode.*--row-images always"):
        consume(database_url, stream)
    totals = consume(database_url, stream, on_error=ErrorPolicy.SET_ASIDE)
    assert totals.dead == 1
    assert states.read(database_url) == states.expected(stream.tables)


def test_a_source_that_is_ahead_of_its_feed_waits_for_it(database_url: str, stream: Stream) -> None:
    stream.change("orders", None, ["11", "1", None])
    here = stream.path.stat().st_size
    stream.tables.remove("orders", ["11", "1", None])  # it is in the source's data already
    stream.change("orders", None, ["12", "1", None])
    states.execute(
        database_url,
        f"insert into feed_catch_up select 'file:{stream.path}', '{stream.path}', 0, source_id, {here} from source",
    )
    watch = Watch()
    consume(database_url, stream, watch=watch)
    assert watch.reports[-1].skipped == {"applied before": 1}
    assert states.read(database_url) == states.expected(stream.tables)


def test_skipped_records_are_counted_by_reason(database_url: str, connector: Connector) -> None:
    connector.commit([("orders", None, ["11", "2", None])])
    connector.repeat(1)
    registry = CollectorRegistry()
    consume(database_url, connector.stream, watch=ConsumerObserver(registry))
    labels = {"reason": "repeated by the connector"}
    assert registry.get_sample_value("subsetd_skipped_records_total", labels) == 1

"""Tables whose rows the state keeps: feeds without whole before-images leave the same state as those with them."""

from __future__ import annotations

import random
import threading
from collections import Counter

import pytest

from service.core.canonical import value_keys
from service.core.errors import RecordError, StateError
from service.store.schema_changes import rename
from service.store.writer import PostgresUnitOfWork, PostgresWriter
from service.stream.addresses import open_feed
from service.stream.envelope import Decoder
from service.usecases.batches import ErrorPolicy
from service.usecases.follow_feed import Consumer
from service.usecases.live_state import BatchCommit
from service.usecases.schema_changes import drop
from tests import kept_rows, states
from tests.cluster import Cluster
from tests.events import envelope, with_schema
from tests.following import COLUMNS, MakeStream, Stream, Watch, consume, shop_tables
from tests.states import Tables
from tests.waiting import BOUND_SECONDS

UNAVAILABLE = "__debezium_unavailable_value"


@pytest.fixture
def stream(make_stream: MakeStream, database_url: str) -> Stream:
    tables = shop_tables()
    states.store(database_url, tables)
    kept_rows.keep(database_url, tables, {"orders": ["id"]})
    return make_stream(tables)


def send(stream: Stream, op: str, key: str | None, after: list[str | None] | None) -> None:
    """Append a change of an order that says of the row before only its key."""
    before = None if key is None else {"id": key}
    row = None if after is None else dict(zip(COLUMNS["orders"], after, strict=True))
    stream.write(envelope(op, "s", "orders", before, row))


def put(stream: Stream, key: str, row: list[str | None] | None) -> None:
    """Make the order of this key so in the tables (None: no more), and let no other have the new key."""
    orders = stream.tables.rows["orders"]
    for present in list(+orders):
        if present[0] in (key, row and row[0]):
            orders[present] = 0
    if row is not None:
        stream.tables.add("orders", row)


def is_as_expected(url: str, stream: Stream) -> bool:
    assert kept_rows.read(url, "orders") == kept_rows.expected(stream.tables, "orders", ["id"])
    return states.read(url) == states.expected(stream.tables)


def test_an_update_without_a_row_before_replaces_the_kept_one(database_url: str, stream: Stream) -> None:
    send(stream, "u", None, ["10", "3", "first"])
    put(stream, "10", ["10", "3", "first"])
    totals = consume(database_url, stream)
    assert (totals.updated, totals.dead) == (1, 0)
    assert is_as_expected(database_url, stream)


def test_a_delete_that_holds_the_key_alone_takes_the_whole_row(database_url: str, stream: Stream) -> None:
    send(stream, "d", "10", None)
    put(stream, "10", None)
    assert consume(database_url, stream).deleted == 1
    assert is_as_expected(database_url, stream)


def test_a_row_of_a_snapshot_in_mid_stream_is_an_upsert(database_url: str, stream: Stream) -> None:
    for row in (["10", "1", "first"], ["11", "3", "changed"], ["13", "2", "new"]):
        send(stream, "r", None, list(row))
        put(stream, row[0], list(row))
    totals = consume(database_url, stream)
    assert (totals.inserted, totals.updated) == (1, 2)
    assert is_as_expected(database_url, stream)


def test_a_change_of_the_key_moves_the_row(database_url: str, stream: Stream) -> None:
    send(stream, "u", "10", ["20", "1", "first"])
    put(stream, "10", ["20", "1", "first"])
    send(stream, "d", "11", None)
    stream.write(envelope("c", "s", "orders", None, {"id": "21", "customer": "2", "note": None}))
    put(stream, "11", ["21", "2", None])
    consume(database_url, stream)
    assert is_as_expected(database_url, stream)


@pytest.mark.parametrize("is_create_first", [False, True])
def test_the_halves_of_a_change_of_the_key_leave_one_row_whichever_partition_is_read_first(
    database_url: str, stream: Stream, cluster: Cluster, is_create_first: bool
) -> None:
    topic = cluster.topic(partitions=2)
    gone = envelope("d", "s", "orders", {"id": "10", "customer": None, "note": None})
    come = envelope("c", "s", "orders", None, {"id": "20", "customer": "1", "note": UNAVAILABLE})
    halves = [(b"10", gone, ("__debezium.newkey", b"20")), (b"20", come, ("__debezium.oldkey", b"10"))]
    for partition in (1, 0) if is_create_first else (0, 1):
        key, value, (header, told) = halves[partition]
        sent = {"key": b'{"id":"%s"}' % key, "headers": [(header, b'{"id":"%s"}' % told)], "partition": partition}
        cluster.producer.send(topic, value, **sent).get(timeout=BOUND_SECONDS)
        Consumer(
            PostgresWriter(database_url),
            lambda: open_feed(f"kafka://{cluster.servers}/{topic}", group_id=None),
            Decoder,
            value_keys,
            Watch(),
        ).run(threading.Event(), until_end=True)
    put(stream, "10", ["20", "1", "first"])
    assert is_as_expected(database_url, stream)


def test_cells_that_did_not_change_and_were_not_sent_are_those_of_the_kept_row(
    database_url: str, stream: Stream
) -> None:
    send(stream, "u", None, ["10", "2", UNAVAILABLE])
    put(stream, "10", ["10", "2", "first"])
    consume(database_url, stream)
    assert is_as_expected(database_url, stream)


def test_a_row_that_was_never_sent_whole_is_refused(database_url: str, stream: Stream) -> None:
    send(stream, "u", None, ["10", "2", "before it"])
    put(stream, "10", ["10", "2", "before it"])
    send(stream, "u", None, ["99", "2", UNAVAILABLE])
    with pytest.raises(RecordError, match=r"note.*REPLICA IDENTITY FULL"):
        consume(database_url, stream)
    assert is_as_expected(database_url, stream)
    send(stream, "u", None, ["11", "3", None])
    put(stream, "11", ["11", "3", None])
    totals = consume(database_url, stream, on_error=ErrorPolicy.SET_ASIDE)
    assert (totals.updated, totals.dead) == (1, 1)
    assert is_as_expected(database_url, stream)


def test_a_delete_of_an_unknown_row_is_skipped_as_its_insert_may_be_compacted_away(
    database_url: str, stream: Stream
) -> None:
    send(stream, "d", "99", None)
    watch = Watch()
    assert consume(database_url, stream, watch=watch).skipped == 1
    assert watch.reports[-1].skipped == {"deletes a row that is not there": 1}
    assert is_as_expected(database_url, stream)


def test_a_truncate_takes_the_kept_rows_as_well(database_url: str, stream: Stream) -> None:
    stream.write(envelope("t", "s", "orders"))
    stream.tables.rows["orders"] = Counter()
    send(stream, "c", None, ["10", "2", "again"])
    put(stream, "10", ["10", "2", "again"])
    consume(database_url, stream)
    assert is_as_expected(database_url, stream)
    assert states.query(database_url, "select begun_version from tracked_table where table_name = 'orders'") == [(2,)]


def test_a_batch_sees_what_the_batch_in_flight_makes_of_its_rows(database_url: str, stream: Stream) -> None:
    for number in range(40):
        row: list[str | None] = ["10", str(number % 3), f"note {number}"]
        send(stream, "u", None, row)
        put(stream, "10", row)
    totals = consume(database_url, stream, records=1)
    assert totals.batches == 40
    assert is_as_expected(database_url, stream)


def test_a_new_column_of_a_renamed_table_does_not_take_the_place_of_a_dropped_one(
    database_url: str, stream: Stream
) -> None:
    """Kept rows keep its place, though not its cells."""
    before = kept_rows.read(database_url, "orders")
    drop(PostgresWriter(database_url), "s.orders.note", force=True)
    assert kept_rows.read(database_url, "orders") == {key: [*row[:2], None] for key, row in before.items()}
    rename(database_url, "s.orders", "s.purchases", print)
    columns = ["id", "customer", "extra"]
    for row in (["10", "1", "new"], ["12", "3", None]):
        after = dict(zip(columns, row, strict=True))
        stream.write(with_schema(columns, "u", "purchases", None, after))
    tables = Tables({"purchases": columns, "customers": COLUMNS["customers"]})
    tables.add("purchases", ["10", "1", "new"], ["11", "2", None], ["12", "3", None])
    tables.rows["customers"] = stream.tables.rows["customers"]
    consume(database_url, stream)
    current = (
        "select column_name, ordinal from attribute where table_name = 'purchases' and dropped_version is null "
        "and stale_version is null order by ordinal"
    )
    assert states.query(database_url, current) == [("id", 0), ("customer", 1), ("extra", 3)]
    found, wanted = states.read(database_url), states.expected(tables)
    assert (found.records, found.clusters, found.inds) == (wanted.records, wanted.clusters, wanted.inds)
    assert found.counters.items() >= wanted.counters.items()


def random_orders(stream: Stream, rng: random.Random, number: int) -> None:
    """Append changes of a few keys, as any operation and in every order that a feed may bring."""
    for _ in range(number):
        key = rng.choice(["10", "11", "12", "13", 'a "key"\n'])
        row = [key, rng.choice(["1", "2", "9", None]), rng.choice(["x\ty\\z\n", "é" * 200, "", '{"a",NULL}', None])]
        match rng.choice(["c", "r", "u", "u", "d", "move"]):
            case "d":
                send(stream, "d", key, None)
                put(stream, key, None)
            case "move":
                row[0] = rng.choice(["10", "14"])
                send(stream, "u", key, row)
                put(stream, key, row)
            case op:
                send(stream, op, None, row)
                put(stream, key, row)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_comes_the_last_row_of_each_key_stands(database_url: str, stream: Stream, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(3):
        random_orders(stream, rng, rng.randint(1, 40))
        totals = consume(database_url, stream, records=rng.choice([1, 3, 50]))
        assert totals.inserted + totals.updated + totals.deleted + totals.skipped == totals.records
        assert is_as_expected(database_url, stream)


class FailingOnce(PostgresWriter):
    """Lose the connection in the middle of the third commit, when the kept rows are written already."""

    commits = 0

    def begin(self) -> PostgresUnitOfWork:
        writer, unit = self, super().begin()
        commit = unit.commit

        def failing(batch: BatchCommit) -> None:
            FailingOnce.commits += 1
            if FailingOnce.commits == 3:
                with writer.writing.cursor() as cursor:
                    cursor.execute("update row_image set cells = '{lost,lost,lost}'")
                raise StateError("lost")
            commit(batch)

        unit.commit = failing  # type: ignore[method-assign]
        return unit


def test_kept_rows_are_those_of_what_was_committed(database_url: str, stream: Stream) -> None:
    FailingOnce.commits = 0
    random_orders(stream, random.Random(9), 30)
    watch = Watch()
    consume(database_url, stream, records=5, writer=FailingOnce(database_url), watch=watch, retry_seconds=5.0)
    assert [str(error) for error in watch.errors] == ["lost"]
    assert is_as_expected(database_url, stream)

"""Bootstraps from topics: events folded by key are the present rows, and the consumer goes on without a gap."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import orjson
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from service.core.canonical import value_keys
from service.core.errors import SourceError
from service.store.writer import PostgresWriter
from service.stream.addresses import open_feed
from service.stream.envelope import Decoder
from service.stream.kafka_topics import TopicRange
from service.usecases.batches import Totals
from service.usecases.follow_feed import Consumer
from spark_jobs import kafka_source
from spark_jobs.bootstrap import Summary, run_bootstrap
from spark_jobs.kafka_source import FoldedTable, KafkaSource, _Fold, _from_ipc, _latest
from spark_jobs.parallel import run_parallel
from spark_jobs.sources import Options, open_source
from tests import states
from tests.broker import KafkaBroker
from tests.cluster import Cluster
from tests.following import Watch
from tests.kafka_database import UNAVAILABLE, Database, RowOf
from tests.registry import avro_record, schema_registry
from tests.spark.oracle import count_cells, query, read_state
from tests.waiting import BOUND_SECONDS, wait_for


def bootstrap(spark: SparkSession, url: str, source: str, **options: object) -> Summary:
    return run_bootstrap(spark, Options(source, "shop", url, **options))  # type: ignore[arg-type]


def consume(url: str, feed: str) -> Totals:
    consumer = Consumer(PostgresWriter(url), lambda: open_feed(feed, group_id=None), Decoder, value_keys, Watch())
    return consumer.run(threading.Event(), until_end=True)


@pytest.fixture
def database(cluster: Cluster) -> Database:
    return Database(cluster, {"orders": 3, "customers": 1})


@pytest.fixture(params=[40, 200_000], ids=["many ranges", "one range"])
def ranges(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Read topics in ranges of so many records."""
    monkeypatch.setattr(kafka_source, "RANGE_RECORDS", request.param)
    return


@pytest.mark.usefixtures("ranges")
def test_the_newest_row_of_each_key_counts_and_deleted_ones_do_not(
    spark: SparkSession, database_url: str, database: Database
) -> None:
    rng = random.Random(1)
    for _ in range(300):
        database.change(rng)
    database.truncate("customers")
    for _ in range(40):
        database.change(rng)
    database.flush()
    summary = bootstrap(spark, database_url, database.address)
    assert read_state(database_url) == database.expected()
    assert (summary.tables, summary.rows) == (2, sum(len(rows) for rows in database.rows.values()))
    assert query(database_url, "select table_name, key_columns, row_images from tracked_table order by 1") == [
        ("customers", ["id"], True),
        ("orders", ["id"], True),
    ]
    images = query(database_url, "select count(*) from row_image")
    assert images == [(summary.rows,)]
    assert bootstrap(spark, database_url, database.address, check=True).differences == []


def test_the_consumer_goes_on_where_the_bootstrap_ended_while_writers_never_pause(
    spark: SparkSession, database_url: str, database: Database
) -> None:
    rng = random.Random(2)
    for _ in range(200):
        database.change(rng)
    database.flush()
    stop, changed = threading.Event(), [0]

    def write() -> None:
        while not stop.is_set():
            database.change(rng)
            database.flush()
            changed[0] += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        bootstrap(spark, database_url, database.address)
        seen = changed[0]
        assert seen > 0, "it wrote meanwhile"
        consume(database_url, database.address)
        wait_for(lambda: changed[0] > seen)
    finally:
        stop.set()
        writer.join()
    consume(database_url, database.address)
    state, expected = states.read(database_url), database.expected()
    assert dict(state.records.values()) == expected.records
    assert (state.clusters, state.counters, state.inds) == (expected.clusters, expected.counters, expected.inds)
    chain = query(database_url, "select count(*) from batch_position where first_offset > next_offset")
    assert chain == [(0,)]


def test_changes_of_another_database_with_a_table_of_the_same_name_are_not_followed(
    spark: SparkSession, database_url: str, cluster: Cluster
) -> None:
    mine, theirs = (Database(cluster, {"orders": 1}, name) for name in ("mine", "theirs"))
    mine.put("orders", {"id": 1, "name": "Ada"})
    mine.flush()
    bootstrap(spark, database_url, mine.address)
    for database, name in ((mine, "Bob"), (theirs, "Cleo")):
        database.put("orders", {"id": 1, "name": name})
        database.put("orders", {"id": 2, "name": name})
        database.flush()
    feed = f"{mine.address},{theirs.topic('orders')}"
    decoder = partial(Decoder, unknown_tables="ignore")
    totals = Consumer(
        PostgresWriter(database_url), lambda: open_feed(feed, group_id=None), decoder, value_keys, Watch()
    ).run(threading.Event(), until_end=True)
    state, expected = states.read(database_url), mine.expected()
    assert (totals.skipped, dict(state.records.values())) == (2, expected.records)


def test_texts_that_stand_for_null_in_the_bootstrap_do_so_in_the_feed(
    spark: SparkSession, database_url: str, database: Database
) -> None:
    """Of keys as well: 3 is one."""
    rng = random.Random(4)
    for part in range(3):
        for _ in range(150):
            database.change(rng)
        database.flush()
        if part == 0:
            bootstrap(spark, database_url, database.address, null_tokens=("Ada", "3", ""))
        else:
            consume(database_url, database.address)
    for rows in database.rows.values():
        for row in rows.values():
            row.update((column, None) for column, cell in row.items() if str(cell) in ("Ada", "3", ""))
    state, expected = states.read(database_url), database.expected()
    assert dict(state.records.values()) == expected.records
    assert (state.clusters, state.counters, state.inds) == (expected.clusters, expected.counters, expected.inds)
    assert bootstrap(spark, database_url, database.address, check=True).differences == []


def test_a_second_source_joins_from_topics_that_a_running_consumer_already_follows(
    spark: SparkSession, database_url: str, cluster: Cluster
) -> None:
    database = Database(cluster, {"orders": 2, "customers": 1})
    rng = random.Random(3)
    for _ in range(100):
        database.change(rng)
    database.flush()
    of_orders, of_customers = (f"kafka://{cluster.servers}/{database.topic(t)}" for t in ("orders", "customers"))
    bootstrap(spark, database_url, of_orders)
    stop, errors = threading.Event(), []
    watch = Watch()
    consumer = Consumer(
        PostgresWriter(database_url),
        lambda: open_feed(database.address, group_id=None),
        partial(Decoder, unknown_tables="ignore"),
        value_keys,
        watch,
    )

    def follow() -> None:
        try:
            consumer.run(stop)
        except BaseException as error:
            errors.append(error)

    def write() -> None:
        while not stop.is_set():
            database.change(rng)
            database.flush()

    threads = [threading.Thread(target=target) for target in (follow, write)]
    for thread in threads:
        thread.start()
    try:
        wait_for(lambda: watch.reports or errors)
        run_bootstrap(spark, Options(of_customers, "second", database_url))
        seen = len(watch.reports)
        wait_for(lambda: len(watch.reports) > seen + 5 or errors)
    finally:
        stop.set()
        for thread in threads:
            thread.join(BOUND_SECONDS)
    assert errors == []
    consume(database_url, database.address)
    state, expected = states.read(database_url), database.expected()
    assert dict(state.records.values()) == expected.records
    assert (state.clusters, state.counters, state.inds) == (expected.clusters, expected.counters, expected.inds)


def with_schema(fields: Mapping[str, Mapping[str, object]], event: RowOf, **place: object) -> bytes:
    """Wrap an event as Connect does, with a schema of the row's fields."""
    row = {"type": "struct", "fields": [{"field": name, **field} for name, field in fields.items()]}
    schema = {"type": "struct", "fields": [{**row, "field": "before"}, {**row, "field": "after"}]}
    source = {"db": "mine", "table": "items", "ts_ms": 1, **place}
    return orjson.dumps({"schema": schema, "payload": {**event, "source": source}})


DAY = {"type": "int32", "name": "io.debezium.time.Date"}
MOMENT = {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}


def test_types_come_from_the_newest_schema_and_columns_that_are_gone_are_left_out(
    spark: SparkSession, database_url: str, cluster: Cluster
) -> None:
    topic = cluster.topic()
    old = {"id": {"type": "int32"}, "gone": {"type": "string"}}
    new = {"id": {"type": "int32"}, "day": DAY}
    events = [
        (1, with_schema(old, {"op": "c", "before": None, "after": {"id": 1, "gone": "x"}})),
        (2, with_schema(old, {"op": "c", "before": None, "after": {"id": 2, "gone": "y"}})),
        (2, with_schema(new, {"op": "u", "before": None, "after": {"id": 2, "day": 365}})),
    ]
    for key, event in events:
        cluster.producer.send(topic, event, key=orjson.dumps({"id": key}), partition=0)
    cluster.producer.flush()
    bootstrap(spark, database_url, f"kafka://{cluster.servers}/{topic}")
    assert query(database_url, "select column_name, data_type from attribute order by ordinal") == [
        ("id", "integer"),
        ("day", "date"),
    ]
    expected = count_cells({"mine.items.id": ["1", "2"], "mine.items.day": [None, "1971-01-01"]})
    assert read_state(database_url) == expected


PRICE = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}


def bootstrap_of_two_types(
    spark: SparkSession, url: str, cluster: Cluster, was: RowOf, now: RowOf, cells: Sequence[object]
) -> Summary:
    """Bootstrap a topic in which a column had another type; the database rewrote its rows, and told none of them."""
    topic = cluster.topic()
    for number, kind, cell in zip((1, 2, 2), (was, was, now), cells, strict=True):
        row = {"id": number, "c": cell}
        event = with_schema({"id": {"type": "int32"}, "c": kind}, {"op": "c", "before": None, "after": row})
        cluster.producer.send(topic, event, key=orjson.dumps({"id": number}), partition=0)
    cluster.producer.flush()
    return bootstrap(spark, url, f"kafka://{cluster.servers}/{topic}")


def test_rows_from_before_a_change_of_type_count_where_their_texts_are_the_same(
    spark: SparkSession, database_url: str, cluster: Cluster
) -> None:
    summary = bootstrap_of_two_types(spark, database_url, cluster, {"type": "int32"}, {"type": "string"}, [1, 2, "2"])
    assert summary.warnings == []
    assert read_state(database_url) == count_cells({"mine.items.id": ["1", "2"], "mine.items.c": ["1", "2"]})


def test_rows_from_before_a_change_of_type_that_gave_them_other_texts_are_refused(
    spark: SparkSession, database_url: str, cluster: Cluster
) -> None:
    with pytest.raises(
        SourceError, match=r"offset 0: is from .* \(c is date, and timestamp\[us\] now\).*snapshot again"
    ):
        bootstrap_of_two_types(spark, database_url, cluster, DAY, MOMENT, [1, 2, 0])


def test_a_change_of_type_that_encodings_do_not_tell_for_sure_is_warned_of(
    spark: SparkSession, database_url: str, cluster: Cluster
) -> None:
    """A decimal may be sent as a float: the column may have been the same all the time."""
    summary = bootstrap_of_two_types(spark, database_url, cluster, {"type": "double"}, PRICE, [1.5, 2.5, "AQ4="])
    (warning,) = summary.warnings
    assert warning.startswith("mine.items.c was of another type (double precision) in records of before")
    assert read_state(database_url) == count_cells({"mine.items.id": ["1", "2"], "mine.items.c": ["1.5", "2.7"]})


def test_avro_is_read_with_its_registry(spark: SparkSession, database_url: str, cluster: Cluster) -> None:
    row = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "int"}, {"name": "n", "type": "string"}]}
    place = {"type": "record", "name": "Source", "fields": [{"name": f, "type": "string"} for f in ("schema", "table")]}
    envelope = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", row]},
            {"name": "after", "type": ["null", "Row"]},
            {"name": "source", "type": place},
            {"name": "op", "type": "string"},
        ],
    }
    key = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
    topic = cluster.topic()
    with schema_registry() as registry:
        registry.add(1, envelope)
        registry.add(2, key)
        for number, name in ((1, "old"), (2, "other"), (1, "new")):
            source = {"schema": "shop", "table": "items"}
            event = {"before": None, "after": {"id": number, "n": name}, "source": source, "op": "u"}
            keyed = avro_record(2, key, {"id": number})
            cluster.producer.send(topic, avro_record(1, envelope, event), key=keyed, partition=0)
        cluster.producer.flush()
        address = f"kafka://{cluster.servers}/{topic}"
        with pytest.raises(SourceError, match=r"looks like Avro.*SUBSETD_SCHEMA_REGISTRY"):
            bootstrap(spark, database_url, address)
        bootstrap(spark, database_url, address, schema_registry=registry.address)
    expected = count_cells({"shop.items.id": ["1", "2"], "shop.items.n": ["new", "other"]})
    assert read_state(database_url) == expected


def test_a_table_of_which_topics_have_deletes_alone_is_left_out(
    spark: SparkSession, database_url: str, database: Database
) -> None:
    """As behind what retention removed: nothing tells its columns."""
    database.rows["orders"][1] = {}
    database.delete("orders", 1)
    database.flush()
    source = open_source(Options(database.address, "shop"))
    assert isinstance(source, KafkaSource)
    with pytest.raises(SourceError, match="there is no row in these topics"):
        source.discover(run_parallel(spark))
    database.put("customers", {"id": 1, "name": "Ada"})
    database.flush()
    summary = bootstrap(spark, database_url, database.address)
    assert [warning.partition(":")[0] for warning in summary.warnings] == ["shop.orders is left out"]
    assert (summary.tables, summary.rows) == (1, 1)


@pytest.mark.usefixtures("ranges")
def test_a_cell_that_was_not_sent_is_that_of_the_record_before(
    spark: SparkSession, database_url: str, database: Database
) -> None:
    for table in database.rows:
        for number in range(10):
            database.put(table, {"id": number, "name": f"large {number}"})
        for number in range(5):
            database.put(table, {"id": number, "name": f"large {number}"}, name=UNAVAILABLE)
    database.flush()
    bootstrap(spark, database_url, database.address)
    assert read_state(database_url) == database.expected()


@pytest.mark.usefixtures("ranges")
def test_a_cell_that_was_never_sent_is_told(spark: SparkSession, database_url: str, database: Database) -> None:
    database.put("customers", {"id": 1, "name": "old"})
    for number in range(10):
        database.put("customers", {"id": number + 2, "name": "more"})
    database.delete("customers", 1)
    database.put("customers", {"id": 1, "name": "new"}, name=UNAVAILABLE)
    database.flush()
    with pytest.raises(SourceError, match=r"shop.customers: the value of 'name' of a row was never sent.*IDENTITY"):
        bootstrap(spark, database_url, database.address, exclude=())


@pytest.mark.parametrize("records", [1, 200_000])
def test_null_behind_a_value_of_a_type_without_placeholder_is_told(
    spark: SparkSession, database_url: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, records: int
) -> None:
    monkeypatch.setattr(kafka_source, "RANGE_RECORDS", records)
    topics = cluster.topic(), cluster.topic()
    fields: dict[str, RowOf] = {"id": {"type": "int32"}, "c": {"type": "array", "items": {"type": "float64"}}}
    for topic, first in zip(topics, (None, [1.5]), strict=True):
        for op, cell in (("c", first), ("u", None)):
            event: RowOf = {"op": op, "before": None, "after": {"id": 1, "c": cell}}
            value = with_schema(fields, event, connector="postgresql")
            cluster.producer.send(topic, value, key=b'{"id":1}', partition=0)
    cluster.producer.flush()
    bootstrap(spark, database_url, f"kafka://{cluster.servers}/{topics[0]}")
    assert read_state(database_url) == count_cells({"mine.items.id": ["1"], "mine.items.c": [None]})
    with pytest.raises(SourceError, match=r"mine.items: a change of a row has NULL in 'c', .*REPLICA IDENTITY FULL"):
        bootstrap(spark, database_url, f"kafka://{cluster.servers}/{topics[1]}", replace=True)


def test_what_retention_removed_is_warned_of_unless_the_topic_is_compacted(
    spark: SparkSession, database_url: str, cluster: Cluster
) -> None:
    from kafka import TopicPartition

    topics = [cluster.topic(), cluster.topic(**{"cleanup.policy": "compact,delete"})]
    for topic in topics:
        source = {"schema": "shop", "table": f"of_{topics.index(topic)}"}
        for number in range(4):
            event = {"op": "c", "before": None, "after": {"id": number}, "source": source}
            cluster.producer.send(topic, orjson.dumps(event), key=orjson.dumps({"id": number}), partition=0)
        cluster.producer.flush()
        cluster.admin.delete_records({TopicPartition(topic, 0): 2})
    summary = bootstrap(spark, database_url, f"kafka://{cluster.servers}/{','.join(topics)}")
    assert [warning.split("'")[1] for warning in summary.warnings] == [topics[0]]
    assert summary.rows == 4


def test_a_key_of_which_a_column_is_not_in_the_rows_is_refused_unless_another_is_given(
    spark: SparkSession, database_url: str, cluster: Cluster
) -> None:
    """As of a connector that leaves the column out of rows: by what is left of the key, rows would be one."""
    topic = cluster.topic()
    for line in (1, 2):
        row = {"order_id": 7, "item": f"item {line}"}
        event = {"op": "c", "before": None, "after": row, "source": {"schema": "shop", "table": "lines"}}
        key = {"order_id": 7, "line_no": line, "__dbz__physicalTableIdentifier": "shop.lines"}
        cluster.producer.send(topic, orjson.dumps(event), key=orjson.dumps(key), partition=0)
    cluster.producer.flush()
    address = f"kafka://{cluster.servers}/{topic}"
    with pytest.raises(SourceError, match=r"'line_no' of the key of shop\.lines is not in its rows.*--key shop\."):
        bootstrap(spark, database_url, address)
    assert bootstrap(spark, database_url, address, keys=(("lines", ("order_id", "item")),)).rows == 2
    assert query(database_url, "select key_columns from tracked_table") == [(["order_id", "item"],)]
    assert bootstrap(spark, database_url, address, check=True).differences == [], "by the same key"


def test_a_check_of_topics_of_whose_values_less_is_kept_keeps_no_rows(
    spark: SparkSession, database_url: str, database: Database
) -> None:
    database.put("customers", {"id": 1, "name": "Ada"})
    database.put("orders", {"id": 1, "name": "first"})
    database.flush()
    bootstrap(spark, database_url, database.address, row_images="never", store_values="none")
    assert bootstrap(spark, database_url, database.address, check=True).differences == []


def test_keys_that_changed_their_partition_are_refused(
    spark: SparkSession, database_url: str, cluster: Cluster
) -> None:
    topic = cluster.topic(2)
    for partition in (0, 1):
        event = {"op": "c", "before": None, "after": {"id": 1}, "source": {"schema": "shop", "table": "t"}}
        cluster.producer.send(topic, orjson.dumps(event), key=b'{"id":1}', partition=partition)
    cluster.producer.flush()
    with pytest.raises(SourceError, match=r"shop.t: changes of one row are in .*partition 0 and .*partition 1"):
        bootstrap(spark, database_url, f"kafka://{cluster.servers}/{topic}")
    assert query(database_url, "select count(*) from state_version") == [(0,)]


@pytest.mark.parametrize(
    ("value", "key", "told"),
    [
        (b"{", b'{"id":1}', r"offset 0: is not JSON"),
        (b'{"op":"c","after":{"id":1},"source":{"schema":"shop","table":"t"}}', None, r"shop\.t: .*--key shop\.t="),
        (b'{"status":"BEGIN","id":"1"}', None, r"there is no change event in these topics"),
    ],
)
def test_what_cannot_be_folded_is_told(
    spark: SparkSession, database_url: str, cluster: Cluster, value: bytes, key: bytes | None, told: str
) -> None:
    topic = cluster.topic()
    cluster.producer.send(topic, value, key=key, partition=0)
    cluster.producer.flush()
    with pytest.raises(SourceError, match=told):
        bootstrap(spark, database_url, f"kafka://{cluster.servers}/{topic}")


def test_long_rows_are_handed_on_in_small_batches(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_source, "CHUNK_BYTES", 1000)
    topic = cluster.topic()
    for number in range(20):
        event = {"op": "c", "before": None, "after": {"id": number, "text": "x" * 300}}
        event["source"] = {"schema": "shop", "table": "t"}
        cluster.producer.send(topic, orjson.dumps(event), key=orjson.dumps({"id": number}), partition=0)
    cluster.producer.flush()
    table = FoldedTable((None, "shop", "t"), (("id", "string"), ("text", "string")), ("id",), ())
    found = list(_latest((cluster.servers,), TopicRange(topic, 0, 0, 20), [table], 0, None))
    assert [batch.num_rows for batch in found] == [4] * 5
    whole = pa.Table.from_batches(found)
    parts = [[{"position": 0, "origin": 0, "cells": cells}] for cells in whole.column("cells").to_pylist()]
    together = pa.record_batch({"table": [0] * 20, "key": whole.column("key").combine_chunks(), "parts": parts})
    chunks = _Fold((table,), ((topic, 0),))(iter([together]))
    assert [_from_ipc(row)[1].num_rows for chunk in chunks for row in chunk.to_pylist()] == [4] * 5


def test_a_position_of_a_partition_that_is_read_is_refused(
    spark: SparkSession, database_url: str, database: Database
) -> None:
    database.change(random.Random(3))
    database.flush()
    bootstrap(spark, database_url, database.address)
    before = query(database_url, "select feed, topic, partition, next_offset from feed_position order by 2, 3")
    feed, topic, partition, offset = before[0]
    with pytest.raises(SourceError, match=rf"--feed-position {feed},{topic},{partition}: .*Leave the position out"):
        bootstrap(
            spark, database_url, database.address, replace=True,
            feed_positions=((feed, topic, partition, offset + 5),),
        )  # fmt: skip
    assert query(database_url, "select feed, topic, partition, next_offset from feed_position order by 2, 3") == before


def test_topics_that_are_not_there_are_told(spark: SparkSession, database_url: str, broker: KafkaBroker) -> None:
    with pytest.raises(SourceError, match="has no topic 'nothing'"):
        bootstrap(spark, database_url, f"kafka://{broker.bootstrap_servers}/nothing")

"""A consumer of a topic in Avro: its registry goes away and comes back, bad records are set aside."""

from __future__ import annotations

import struct
import threading

from service.config import load_settings
from service.core.canonical import value_keys
from service.feed_wiring import decoding
from service.store.writer import PostgresWriter
from service.stream.addresses import open_feed
from service.usecases.batches import ErrorPolicy
from service.usecases.follow_feed import Consumer
from tests import states
from tests.cluster import Cluster
from tests.following import COLUMNS, Watch
from tests.registry import StubRegistry, avro_record, schema_registry
from tests.states import Tables

VALUE = {
    "type": "record",
    "name": "Value",
    "fields": [{"name": name, "type": ["null", "string"]} for name in COLUMNS["customers"]],
}
SOURCE = {
    "type": "record",
    "name": "Source",
    "fields": [{"name": name, "type": "string"} for name in ("schema", "table")],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", VALUE]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"},
        {"name": "source", "type": SOURCE},
    ],
}


def inserted(number: int) -> bytes:
    row = {"id": str(number), "name": f"name {number}"}
    source = {"schema": "s", "table": "customers"}
    return avro_record(7, ENVELOPE, {"before": None, "after": row, "op": "c", "source": source})


class Recovering(Watch):
    """Let the registry answer again as soon as the consumer has told that it is away."""

    def __init__(self, registry: StubRegistry) -> None:
        super().__init__()
        self.registry = registry

    def retrying(self, error: Exception) -> None:  # type: ignore[override]
        super().retrying(error)  # type: ignore[arg-type]
        self.registry.status = 200


def test_a_registry_that_is_away_is_waited_for_and_bad_records_are_set_aside(
    database_url: str, cluster: Cluster
) -> None:
    tables = Tables(COLUMNS).add("customers", ["1", "Ada"]).add("orders", ["10", "1", None])
    states.store(database_url, tables)
    topic = cluster.topic()
    unknown = b"\0" + struct.pack(">I", 8) + b"x"
    cluster.send(topic, [inserted(2), inserted(3)[:-3], unknown, inserted(4)])
    with schema_registry() as registry:
        registry.add(7, ENVELOPE)
        registry.status = 503
        watch = Recovering(registry)
        consumer = Consumer(
            PostgresWriter(database_url),
            lambda: open_feed(f"kafka://{cluster.servers}/{topic}"),
            decoding(load_settings(schema_registry=registry.address)),
            value_keys,
            watch,
            on_error=ErrorPolicy.SET_ASIDE,
        )
        consumer.run(threading.Event(), until_end=True)
    assert ["answers 503" in str(error) for error in watch.errors] == [True]
    tables.add("customers", ["2", "name 2"], ["4", "name 4"])
    assert states.read(database_url) == states.expected(tables)
    letters = states.query(database_url, "select record_offset, message from dead_letter order by 1")
    assert [offset for offset, _ in letters] == [1, 2]
    assert "is no Avro record of schema 7" in letters[0][1]
    assert "does not know" in letters[1][1]

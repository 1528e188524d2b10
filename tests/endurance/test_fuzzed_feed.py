"""Damaged events through the whole consumer: each is applied, skipped or set aside, and the state stays whole."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice

import orjson

from service.core.canonical import value_keys
from service.core.model import RawRecord
from service.store.embedded import EmbeddedPostgres
from service.store.writer import PostgresWriter
from service.stream.envelope import Decoder
from service.stream.kafka_feed import KafkaFeed
from service.usecases.batches import BatchLimits, ErrorPolicy
from service.usecases.follow_feed import Consumer
from tests import states
from tests.broker import KafkaBroker
from tests.cluster import Cluster
from tests.endurance.following import broken_invariants
from tests.endurance.fuzz import TABLES, OneSchema, mutations
from tests.following import Watch
from tests.postgres import TEMPLATE, fresh_database
from tests.states import Tables
from tests.waiting import BOUND_SECONDS

PORTION = 1_000
"""Records that one state is given: damaged ones soon leave a state without columns to damage."""


def make_state(url: str) -> None:
    """Store the empty tables that the recorded events are of, as a bootstrap would."""
    states.store(url, Tables({table.name: [a.name.column for a in table.attributes] for table in TABLES}))
    for table in TABLES:
        for attribute in table.attributes:
            states.execute(
                url,
                f"update attribute set schema_name = '{table.schema}', data_type = '{attribute.data_type}' "
                f"where table_name = '{table.name}' and column_name = '{attribute.name.column}'",
            )
        key = ",".join(table.attributes[place].name.column for place in table.key)
        states.execute(
            url,
            "insert into tracked_table (source_id, schema_name, table_name, source_schema, source_table, key_columns, "
            f"row_images, begun_version) values (1, '{table.schema}', '{table.name}', '{table.schema}', "
            f"'{table.name}', '{{{key}}}', {table.row_images}, 1)",
        )


def without_order(record: RawRecord) -> RawRecord:
    """Take the place in its source's order from a record: samples come again and again, here as new ones each time.

    That a feed stops where its source was set back, and repeats are skipped, is for other tests.
    """
    try:
        document = orjson.loads(record.value or b"")
        source = document.get("payload", document)["source"]
        for name in ("sequence", "lsn", "txId"):
            source.pop(name, None)
    except (ValueError, KeyError, TypeError, AttributeError):
        return record
    return record._replace(value=orjson.dumps(document))


def send(cluster: Cluster, records: Sequence[RawRecord], prefix: str) -> list[str]:
    """Send the records to topics of their own, and name these."""
    topics: dict[str, str] = {}
    for record in records:
        if record.topic not in topics:
            topics[record.topic] = cluster.topic(name=f"{prefix}.{record.topic}")
        # The client sends no record that has neither.
        key = b"" if record.key is None and record.value is None else record.key
        cluster.producer.send(topics[record.topic], record.value, key=key, headers=list(record.headers), partition=0)
    cluster.producer.flush(timeout=BOUND_SECONDS)
    return list(topics.values())


def outcomes(url: str) -> Counter[str]:
    """Count what became of the records, as the state says; what is set aside is there to be seen."""
    sums = "sum(inserted + updated + deleted)::int, sum(skipped)::int, sum(dead)::int, sum(records)::int"
    ((applied, skipped, dead, seen),) = states.query(url, f"select {sums} from state_version")
    assert states.query(url, "select count(*) from dead_letter") == [(dead,)]
    assert applied + skipped + dead == seen
    return Counter({"applied": applied, "skipped": skipped, "set aside": dead})


def test_damaged_events_neither_stop_the_consumer_nor_change_half_a_state(
    postgres_server: EmbeddedPostgres, broker: KafkaBroker, whole: bool, tell: Callable[..., None]
) -> None:
    started = time.monotonic()
    count = 100_000 if whole else 1_000
    records, found = mutations(count, seed=5), Counter[str]()
    for portion in range(count // PORTION):
        cluster = Cluster(broker.bootstrap_servers)
        topics = send(cluster, list(map(without_order, islice(records, PORTION))), f"fuzz{portion}")
        cluster.producer.close(timeout=BOUND_SECONDS)  # it would ask for its topics for ever, once they are gone
        with fresh_database(postgres_server, TEMPLATE) as url:
            make_state(url)
            consumer = Consumer(
                PostgresWriter(url),
                lambda topics=topics: KafkaFeed([broker.bootstrap_servers], topics),
                lambda tables: Decoder(tables, registry=OneSchema()),
                value_keys,
                Watch(),
                limits=BatchLimits(records=200),
                on_error=ErrorPolicy.SET_ASIDE,
            )
            consumer.run(threading.Event(), until_end=True)
            assert broken_invariants(url) == []
            found += outcomes(url)
        cluster.admin.delete_topics(topics)
        cluster.admin.close()
    assert found.total() == count
    assert min(found.values()) > 0
    tell(**found, seconds=time.monotonic() - started)

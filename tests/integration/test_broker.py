"""The tests' own broker keeps what it took when it stops, and its jars are the ones of the manifest."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer

from service.stream.kafka_sockets import CLOSING
from tests.broker import KafkaBroker
from tests.kafka_jars import MANIFEST, difference, fetch_jars
from tests.waiting import BOUND_MS, BOUND_SECONDS


def send(broker: KafkaBroker, topic: str, value: bytes) -> None:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, proxy_url=CLOSING, bootstrap_timeout_ms=BOUND_MS
    )
    producer.send(topic, value).get(timeout=BOUND_SECONDS)
    producer.close()


def received(broker: KafkaBroker, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        proxy_url=CLOSING,
        bootstrap_timeout_ms=BOUND_MS,
        auto_offset_reset="earliest",
        consumer_timeout_ms=BOUND_MS,
    )
    try:
        return [next(consumer).value for _ in range(count)]
    finally:
        consumer.close()


@pytest.mark.parametrize("topic", [1], indirect=True)
@pytest.mark.parametrize("way", ["stop", "kill"])
def test_records_and_address_outlive_the_broker(broker: KafkaBroker, topic: str, way: str) -> None:
    address = broker.bootstrap_servers
    send(broker, topic, b"before")
    getattr(broker, way)()
    broker.start()
    assert broker.bootstrap_servers == address
    send(broker, topic, b"after")
    assert received(broker, topic, 2) == [b"before", b"after"]


def test_each_topic_is_new_and_has_the_partitions_asked_for(broker: KafkaBroker, topic: str) -> None:
    other = broker.create_topic(3, retention_ms="1000")
    assert other != topic
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, proxy_url=CLOSING, bootstrap_timeout_ms=BOUND_MS
    )
    try:
        assert consumer.partitions_for_topic(other) == {0, 1, 2}
        assert consumer.partitions_for_topic(topic) == {0}
    finally:
        consumer.close()


def test_jars_that_were_fetched_are_used_without_a_network(broker: KafkaBroker) -> None:
    assert fetch_jars() == broker.jars


@pytest.mark.parametrize("damage", ["cut", "removed", "added"])
def test_a_jar_that_differs_from_the_manifest_is_named(tmp_path: Path, broker: KafkaBroker, damage: str) -> None:
    folder = Path(shutil.copytree(broker.jars, tmp_path / "jars"))
    wanted = json.loads(MANIFEST.read_text())
    assert difference(folder, wanted) is None
    jar = folder / wanted[0]["name"]
    if damage == "cut":
        jar.write_bytes(jar.read_bytes()[:-1])
    elif damage == "removed":
        jar.unlink()
    else:
        jar = folder / "a-stranger-1.0.jar"
        jar.touch()
    found = difference(folder, wanted)
    assert found is not None
    assert found.startswith(jar.name)

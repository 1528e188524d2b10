"""Own topics and records on the tests' broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from service.stream.kafka_sockets import CLOSING
from tests.broker import KafkaBroker
from tests.waiting import BOUND_MS, BOUND_SECONDS

LARGE = 12_000_000


class Cluster:
    """Make topics and records on the tests' broker."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        options = {"bootstrap_servers": servers, "reconnect_backoff_max_ms": 500, "proxy_url": CLOSING}
        self.admin = KafkaAdminClient(bootstrap_timeout_ms=BOUND_MS, **options)
        self.producer = KafkaProducer(max_request_size=LARGE, **options)

    def topic(self, partitions: int = 1, name: str | None = None, **settings: str) -> str:
        name = name or f"feed-{uuid4().hex}"
        self.admin.create_topics([NewTopic(name, partitions, 1, topic_configs=settings)])
        self.admin.wait_for_topics([name], timeout_ms=BOUND_MS)
        return name

    def send(self, topic: str, values: Sequence[bytes | None], partition: int = 0) -> None:
        sent = [self.producer.send(topic, value, partition=partition, key=b"k") for value in values]
        self.producer.flush(timeout=BOUND_SECONDS)
        for future in sent:
            future.get(timeout=BOUND_SECONDS)

    def close(self) -> None:
        self.producer.close(timeout=5)
        self.admin.close()


@pytest.fixture
def cluster(broker: KafkaBroker) -> Iterator[Cluster]:
    made = Cluster(broker.bootstrap_servers)
    yield made
    made.close()

"""Own the tests' broker: a real Kafka (KRaft, one node) on loopback, that can be stopped, killed and started again."""

from __future__ import annotations

import itertools
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient, NewTopic

from service.stream.kafka_sockets import CLOSING
from tests.in_memory import IN_MEMORY
from tests.java_server import JavaServer
from tests.kafka_jars import fetch_jars
from tests.ports import free_ports
from tests.waiting import BOUND_MS

PROPERTIES = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller_port}
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.cleaner.dedupe.buffer.size=4194304
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
"""

SPARING = """
metadata.max.idle.interval.ms=0
num.network.threads=1
num.io.threads=2
"""
"""What lets a broker that has nothing to do cost a quarter less: each process of tests has one, mostly idle."""

_numbers = itertools.count(1)


class KafkaBroker(JavaServer):
    """Run one broker in a folder of its own; its port and its data stay the same over stop, kill and start."""

    def __init__(self, folder: Path, cluster_id: str = "subsetdAAAAAAAAAAAAAAA", settings: str = "") -> None:
        super().__init__(folder, fetch_jars(), ["kafka.Kafka", "server.properties"])
        self.port, controller_port = free_ports(2)
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        properties = PROPERTIES.format(port=self.port, controller_port=controller_port, folder=folder)
        (folder / "server.properties").write_text(properties + settings)
        format_storage = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c"]
        subprocess.run(self._command(*format_storage, "server.properties"), check=True, capture_output=True, cwd=folder)

    def is_up(self) -> bool:
        """Tell whether the broker has said that it serves."""
        return b"Kafka Server started" in self._log.read_bytes()

    def create_topic(self, partitions: int = 1, name: str | None = None, **settings: str) -> str:
        """Make a topic (with a name that no test had before) and give its name; `settings` as `retention_ms="1"`."""
        name = name or f"topic-{next(_numbers)}"
        topic = NewTopic(name, partitions, 1, topic_configs={k.replace("_", "."): v for k, v in settings.items()})
        admin = KafkaAdminClient(
            bootstrap_servers=self.bootstrap_servers, proxy_url=CLOSING, bootstrap_timeout_ms=BOUND_MS
        )
        try:
            admin.create_topics([topic])
            admin.wait_for_topics([name], timeout_ms=BOUND_MS)
        finally:
            admin.close()
        return name


@pytest.fixture(scope="session")
def running_broker() -> Iterator[KafkaBroker]:
    with tempfile.TemporaryDirectory(prefix="subsetd-broker-", dir=IN_MEMORY) as folder:
        broker = KafkaBroker(Path(folder), settings=SPARING)
        broker.start()
        try:
            yield broker
        finally:
            broker.kill()


@pytest.fixture
def broker(running_broker: KafkaBroker) -> KafkaBroker:
    """Give the session's broker, running, whatever the test before did to it."""
    running_broker.start()
    return running_broker


@pytest.fixture
def topic(broker: KafkaBroker, request: pytest.FixtureRequest) -> str:
    """Give a new topic of one partition, or of as many as the test's indirect parameter says."""
    return broker.create_topic(getattr(request, "param", 1))

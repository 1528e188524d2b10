"""Own the tests' broker: a real Kafka (KRaft, one node) on loopback, that can be stopped, killed and started again."""

from __future__ import annotations

import itertools
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient, NewTopic

from spark_jobs.java_runtime import find_java
from tests.kafka_jars import fetch_jars

START_SECONDS = 120.0
STOP_SECONDS = 60.0

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

LOGGING = """
rootLogger.level=WARN
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %c{1}: %m%n
logger.server.name=kafka.server.KafkaRaftServer
logger.server.level=INFO
"""

_numbers = itertools.count(1)


class KafkaBroker:
    """Run one broker in a folder of its own; its port and its data stay the same over stop, kill and start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jars = fetch_jars()
        self.java = find_java().java
        self.port, controller_port = _free_ports(2)
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        properties = PROPERTIES.format(port=self.port, controller_port=controller_port, folder=folder)
        (folder / "server.properties").write_text(properties)
        (folder / "log4j2.properties").write_text(LOGGING)
        self._log = folder / "broker.log"
        format_storage = ["kafka.tools.StorageTool", "format", "-t", "subsetdAAAAAAAAAAAAAAA", "-c"]
        subprocess.run(self._command(*format_storage, "server.properties"), check=True, capture_output=True, cwd=folder)

    def start(self) -> None:
        """Start the broker and wait until it serves; does nothing when it runs."""
        if self._process is not None:
            return
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", "server.properties"), cwd=self.folder, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_SECONDS
        while not re.search(rb"Kafka Server started", self._log.read_bytes()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the broker does not start:\n{self._log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Let the broker end in good order."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            finally:
                self.kill()

    def kill(self) -> None:
        """End the broker at once, as a lost machine would; what it has not written is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def create_topic(self, partitions: int = 1, name: str | None = None, **settings: str) -> str:
        """Make a topic (with a name that no test had before) and give its name; `settings` as `retention_ms="1"`."""
        name = name or f"topic-{next(_numbers)}"
        topic = NewTopic(name, partitions, 1, topic_configs={k.replace("_", "."): v for k, v in settings.items()})
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap_servers, bootstrap_timeout_ms=30_000)
        try:
            admin.create_topics([topic])
            admin.wait_for_topics([name], timeout_ms=30_000)
        finally:
            admin.close()
        return name

    def _command(self, main: str, *arguments: str) -> list[str]:
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        options.append(f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}")
        return [str(self.java), *options, "-cp", f"{self.jars}/*", main, *arguments]


def _free_ports(count: int) -> list[int]:
    """Give ports that are free now; all are held until the last is known, so that none comes twice."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


@pytest.fixture(scope="session")
def running_broker() -> Iterator[KafkaBroker]:
    with tempfile.TemporaryDirectory(prefix="subsetd-broker-") as folder:
        broker = KafkaBroker(Path(folder))
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

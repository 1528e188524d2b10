"""Own the tests' Debezium: a real Kafka Connect over a real Postgres, that can be stopped, killed and started again."""

from __future__ import annotations

import itertools
import json
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg2
import psycopg2.extensions
import pytest
from kafka.admin import KafkaAdminClient

from service.store.embedded import EmbeddedPostgres
from service.stream.kafka_sockets import CLOSING
from tests import states
from tests.broker import KafkaBroker
from tests.in_memory import IN_MEMORY
from tests.java_server import JavaServer
from tests.kafka_jars import CONNECT, fetch_jars
from tests.ports import free_ports
from tests.postgres import fresh_database
from tests.waiting import BOUND_MS, wait_for

SOURCE_SETTINGS = {"wal_level": "logical", "max_wal_senders": "20", "max_replication_slots": "20"}

WORKER = """
bootstrap.servers={servers}
listeners=http://127.0.0.1:{port}
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable={with_schema}
value.converter.schemas.enable={with_schema}
value.converter.replace.null.with.default=false
plugin.discovery=service_load
plugin.path={folder}/plugins
offset.storage.file.filename={folder}/offsets
offset.flush.interval.ms=1000
topic.creation.enable=true
producer.max.block.ms=600000
"""

_numbers = itertools.count(1)


class Connect(JavaServer):
    """Run one connector in a standalone worker; what it has read and its port stay the same over kill and start.

    The connector reads all tables of the database `source_url` (an address over TCP). Its topics begin with `prefix`,
    its replication slot and its publication have the name `prefix`. `settings` go over the connector's own.
    """

    def __init__(
        self, folder: Path, broker: KafkaBroker, source_url: str, with_schema: bool = False, **settings: str
    ) -> None:
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        super().__init__(folder, fetch_jars(jars=CONNECT), [main, "connect.properties", "connector.json"])
        self.prefix = f"src{next(_numbers)}"
        self.source_url = source_url
        self.servers = broker.bootstrap_servers
        (self.port,) = free_ports(1)
        source = psycopg2.extensions.parse_dsn(source_url)
        config = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "publication.autocreate.mode": "all_tables",
            "publication.name": self.prefix,
            "slot.name": self.prefix,
            "topic.prefix": self.prefix,
            "database.hostname": source["host"],
            "database.port": source["port"],
            "database.user": source["user"],
            "database.password": source["password"],
            "database.dbname": source["dbname"],
            "provide.transaction.metadata": "true",
            "skipped.operations": "none",
            "event.converting.failure.handling.mode": "fail",
            "poll.interval.ms": "50",
            "snapshot.mode": "no_data",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "1",
            "tasks.max": "1",
            # A session of a killed worker holds the slot until the server sees that it is gone.
            "slot.max.retries": "60",
            "slot.retry.delay.ms": "500",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        (folder / "plugins").mkdir()
        (folder / "connector.json").write_text(json.dumps({"name": self.prefix, "config": config}))
        worker = WORKER.format(
            servers=self.servers, port=self.port, folder=folder, with_schema=str(with_schema).lower()
        )
        (folder / "connect.properties").write_text(worker)

    @property
    def feed(self) -> str:
        """Give the feed's address: all its topics."""
        return f"kafka://{self.servers}/?prefix={self.topic_prefix}"

    @property
    def topic_prefix(self) -> str:
        """Give what the names of all its topics begin with, the one of transactions as well."""
        return f"{self.prefix}."

    def is_up(self) -> bool:
        """Tell whether the connector streams changes."""
        status = self.status()
        if status == "FAILED":
            raise RuntimeError("its task failed")
        return status == "RUNNING" and self.holds_slot()

    def status(self) -> str | None:
        """Give the state of the connector's task as Connect's REST interface names it, None when there is none yet."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/connectors/{self.prefix}/status") as answer:
                tasks = json.load(answer)["tasks"]
                return str(tasks[0]["state"]) if tasks else None
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    def holds_slot(self) -> bool:
        """Tell whether the connector's session reads the slot now."""
        found = states.query(
            self.source_url, f"select active from pg_replication_slots where slot_name = '{self.prefix}'"
        )
        return found == [(True,)]

    def topics(self) -> set[str]:
        """Name the topics that it has made."""
        with closing(
            KafkaAdminClient(bootstrap_servers=self.servers, proxy_url=CLOSING, bootstrap_timeout_ms=BOUND_MS)
        ) as admin:
            return {topic for topic in admin.list_topics() if topic.startswith(self.topic_prefix)}

    def make_slot(self) -> None:
        """Make slot and publication as the connector would, so that no change from now on is missed."""
        with closing(psycopg2.connect(self.source_url)) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(f"create publication {self.prefix} for all tables")
                cursor.execute(f"select pg_create_logical_replication_slot('{self.prefix}', 'pgoutput')")

    def drop_slot(self) -> None:
        """Drop the slot, as soon as no session holds it: what was not sent by then is lost."""
        wait_for(lambda: not self.holds_slot())
        states.query(self.source_url, f"select pg_drop_replication_slot('{self.prefix}')")


@contextmanager
def connecting(broker: KafkaBroker, source_url: str, with_schema: bool = False, **settings: str) -> Iterator[Connect]:
    """Give a connector over a database, not started yet; at the end it is killed and its slot dropped."""
    with tempfile.TemporaryDirectory(prefix="subsetd-connect-", dir=IN_MEMORY) as folder:
        connect = Connect(Path(folder), broker, source_url, with_schema, **settings)
        try:
            yield connect
        finally:
            connect.kill()
            if states.query(source_url, f"select 1 from pg_replication_slots where slot_name = '{connect.prefix}'"):
                connect.drop_slot()


@contextmanager
def source_server() -> Iterator[EmbeddedPostgres]:
    """Run a Postgres that tells its changes, on TCP as Java wants it; nothing of it is kept."""
    folder = Path(tempfile.mkdtemp(prefix="subsetd-source-", dir=IN_MEMORY))
    (port,) = free_ports(1)
    with EmbeddedPostgres(folder, throw_away=True, extra_settings=SOURCE_SETTINGS, port=port) as server:
        yield server


@pytest.fixture(scope="session")
def running_source() -> Iterator[EmbeddedPostgres]:
    with source_server() as server:
        yield server


@pytest.fixture
def source_url(running_source: EmbeddedPostgres) -> Iterator[str]:
    """Give the address of a fresh database of this test alone, of which changes can be read."""
    with fresh_database(running_source, "template0") as url:
        yield url

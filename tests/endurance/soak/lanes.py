"""Own the feeds of a soak: a source, its writer, how its changes come to consumers, and the states that follow it."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal

import orjson
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from service.stream.kafka_sockets import CLOSING
from tests import states
from tests.broker import KafkaBroker
from tests.endurance.soak.writers import KEYED, Change, Writer, tables
from tests.events import envelope

EPOCH = date(1970, 1, 1)
UNAVAILABLE = "__debezium_unavailable_value"
KEPT_SECONDS = 2400
"""How long topics keep records: longer than backups are apart."""

PARTITIONS = {"orders": 3, "accounts": 2}
"""Of tables whose columns stay as they are; the others have one."""

TIMEOUT = 600


class Topics:
    """Write the events of committed transactions to topics of our own, as Debezium writes them without schemas.

    `sent` has the number of records of each partition, counted when the broker has them.
    """

    def __init__(self, broker: KafkaBroker, prefix: str) -> None:
        self._broker, self._prefix = broker, prefix
        self.sent: dict[tuple[str, int], int] = {}
        self._names = [*tables(), "probe"]
        settings = {"retention.ms": str(KEPT_SECONDS * 1000), "segment.bytes": str(32 << 20)}
        with closing(
            KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers, proxy_url=CLOSING, bootstrap_timeout_ms=30_000)
        ) as admin:
            topics = [
                NewTopic(f"{prefix}{name}", PARTITIONS.get(name, 1), 1, topic_configs=settings) for name in self._names
            ]
            admin.create_topics(topics)
            admin.wait_for_topics([topic.name for topic in topics], timeout_ms=30_000)
        self._producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            acks="all",
            enable_idempotence=True,
            compression_type="lz4",
            linger_ms=5,
            delivery_timeout_ms=TIMEOUT * 1000,
            max_block_ms=TIMEOUT * 1000,
            reconnect_backoff_max_ms=500,
            proxy_url=CLOSING,
        )

    @property
    def feed(self) -> str:
        return f"kafka://{self._broker.bootstrap_servers}/{','.join(self._prefix + name for name in self._names)}"

    def __call__(self, changes: Sequence[Change]) -> None:
        """Send what a transaction did, and wait until the broker has it."""
        futures = [self._send(*event) for change in changes for event in events(change)]
        for future in futures:
            told = future.get(timeout=TIMEOUT)
            place = told.topic, told.partition
            self.sent[place] = max(self.sent.get(place, 0), told.offset + 1)

    def close(self) -> None:
        self._producer.close(timeout=5)

    def _send(self, table: str, key: bytes | None, value: bytes) -> Callable[..., object]:
        partition = zlib.crc32(key or b"") % PARTITIONS.get(table, 1)
        return self._producer.send(f"{self._prefix}{table}", value, key=key, partition=partition)


def events(change: Change) -> list[tuple[str, bytes | None, bytes]]:
    """Make the events of one change: (table, key, value); of a changed key a delete and an insert, as Debezium does."""
    if change.op == "t":
        return [(change.table, None, envelope("t", "s", change.table))]
    before, after = (
        None if row is None else {name: _cell(cell) for name, cell in zip(change.columns, row, strict=True)}
        for row in (change.before, change.after)
    )
    if before is not None and after is not None and before.get("id") != after.get("id"):
        moved = (Change("d", change.table, change.columns, change.before, None),)
        moved += (Change("c", change.table, change.columns, None, change.after),)
        return [event for one in moved for event in events(one)]
    row_id = (after or before or {}).get("id")
    key = None if row_id is None else orjson.dumps({"id": row_id})
    if change.table in KEYED and before is not None:
        if after is None:
            before = {name: cell if name == "id" else None for name, cell in before.items()}
        else:
            after = {
                name: UNAVAILABLE if name == "letter" and cell == before[name] else cell for name, cell in after.items()
            }
            before = None
    return [(change.table, key, envelope(change.op, "s", change.table, before, after))]


def _cell(cell: object) -> object:
    """Give a cell as a connector without schemas sends it: dates in days, decimals as text."""
    match cell:
        case Decimal():
            return str(cell)
        case date():
            return (cell - EPOCH).days
        case _:
            return cell


@dataclass
class Followed:
    """Hold one state that follows a feed."""

    name: str
    database: str
    url: str
    base_version: int = 0
    base_inds: frozenset[tuple[int, int]] = frozenset()
    audited: threading.Lock = field(default_factory=threading.Lock)
    """Held by whoever audits: a state refuses a second audit beside the first."""


@dataclass
class Lane:
    """Hold a source with its writer, the feed of its changes, and the states that follow it."""

    name: str
    source_url: str
    writer: Writer
    feed: str = ""
    topics: Topics | None = None
    followers: list[Followed] = field(default_factory=list)
    extras: dict[str, list[str]] = field(default_factory=dict)

    def is_applied(self, url: str, number: int) -> bool:
        """Tell whether a state has the marks of all tables, and each record that we sent."""
        marks = f"select cardinality(attribute_ids) from gen_rec where value = '-{number}'"
        if states.query(url, marks) != [(len(self.writer.tables),)]:
            return False
        beats = states.query(url, "select row_count from attribute where column_name = 'beat'")
        if beats != [(len(self.writer.beats),)]:
            return False
        if self.topics is None:
            return True
        stored = {(t, p): n for t, p, n in states.query(url, "select topic, partition, next_offset from feed_position")}
        return all(stored.get(place, 0) >= offset for place, offset in self.topics.sent.items())


def remember_base(one: Followed) -> None:
    """Remember the version and the INDs from which transitions count."""
    ((one.base_version,),) = states.query(one.url, "select max(version) from state_version")
    one.base_inds = frozenset(
        states.query(one.url, "select dependent_id, referenced_id from uind where until_version is null")
    )

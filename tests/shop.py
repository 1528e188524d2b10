"""Own a shop in tests: tables, and the topics of their changes on the tests' broker."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg2
import pytest

from tests import states
from tests.broker import KafkaBroker
from tests.cluster import Cluster
from tests.events import envelope
from tests.following import COLUMNS
from tests.states import Row, Tables
from tests.waiting import BOUND_SECONDS

PARTITIONS = {"orders": 3, "customers": 2}

NEAR_THE_END = 100
"""Records: more than what a small batch, and the one that is in hand behind it, have together."""

HOLD_LOCK = 715_517  # nobody else's
HOLD = f"""
create or replace function hold() returns trigger language plpgsql as $$ begin
  if (select coalesce(sum(records), 0) >= {{records}} from state_version) then
    perform pg_advisory_xact_lock_shared({HOLD_LOCK});
  end if;
  return new;
end $$;
create or replace trigger hold before insert on state_version for each row execute function hold()
"""


class Shop:
    """Keep tables in step with topics of their changes, as Debezium writes them."""

    def __init__(self, url: str, broker: KafkaBroker) -> None:
        self.url = url
        self.tables = Tables(COLUMNS)
        self.tables.add("customers", ["1", "Ada"], ["2", "Bob"]).add("orders", ["10", "1", None], ["11", "2", None])
        states.store(url, self.tables)
        self.broker = broker
        self.cluster = Cluster(broker.bootstrap_servers)
        self.topics = {table: self.cluster.topic(partitions) for table, partitions in PARTITIONS.items()}
        self.feed = f"kafka://{broker.bootstrap_servers}/{','.join(self.topics.values())}"
        self.sent: dict[tuple[str, int], int] = {
            (topic, partition): 0 for table, topic in self.topics.items() for partition in range(PARTITIONS[table])
        }
        self.tombstones = 0

    def change(self, table: str, before: Row | None, after: Row | None) -> None:
        """Make a change in the tables and send it: a changed key as delete, tombstone and create."""
        if before is not None:
            self.tables.remove(table, before)
        if after is not None:
            self.tables.add(table, after)
        if before is not None and after is not None and before[0] == after[0]:
            self._send(table, before[0], "u", before, after)
            return
        if before is not None:
            self._send(table, before[0], "d", before, None)
            self.write(table, before[0], None)
            self.tombstones += 1
        if after is not None:
            self._send(table, after[0], "c", None, after)

    def _send(self, table: str, key: str | None, op: str, before: Row | None, after: Row | None) -> None:
        named = [None if row is None else dict(zip(COLUMNS[table], row, strict=True)) for row in (before, after)]
        self.write(table, key, envelope(op, "s", table, *named))

    def write(self, table: str, key: str | None, value: bytes | None) -> tuple[str, int, int]:
        """Send a record to the partition of its row's key, which keeps its changes in order; give its place."""
        place = self.topics[table], zlib.crc32((key or "").encode()) % PARTITIONS[table]
        self.cluster.producer.send(place[0], value, partition=place[1], key=b"k")
        self.sent[place] += 1
        return *place, self.sent[place] - 1

    def flush(self) -> None:
        self.cluster.producer.flush(timeout=BOUND_SECONDS)

    def count(self, column: str) -> int:
        """Sum up what the batches say of themselves."""
        return int(states.query(self.url, f"select coalesce(sum({column}), 0) from state_version")[0][0])

    def is_applied(self) -> bool:
        return self.count("records") >= sum(self.sent.values())

    @contextmanager
    def held_near_the_end(self) -> Iterator[None]:
        """Let whoever follows come near the end of what was sent, and wait there amid a batch until the block ends.

        So they are under load for as long as the block lasts, however late the test looks at them.
        """
        states.execute(self.url, HOLD.format(records=sum(self.sent.values()) - NEAR_THE_END))
        with closing(psycopg2.connect(self.url)) as connection, connection.cursor() as cursor:
            cursor.execute("select pg_advisory_lock(%s)", (HOLD_LOCK,))
            yield

    def check(self) -> None:
        """Hold the state to brute force, and its positions and counts to exactly what was sent."""
        assert states.read(self.url) == states.expected(self.tables)
        stored = states.query(self.url, "select topic, partition, next_offset from feed_position")
        assert {**dict.fromkeys(self.sent, 0), **{(t, p): offset for t, p, offset in stored}} == self.sent
        assert self.count("records") == sum(self.sent.values())
        assert self.count("skipped") == self.tombstones


@pytest.fixture
def shop(database_url: str, broker: KafkaBroker) -> Iterator[Shop]:
    made = Shop(database_url, broker)
    yield made
    made.cluster.close()

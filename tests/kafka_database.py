"""Own a source in tests that is topics of a broker, with the rows that are to be read from them."""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping
from uuid import uuid4

import orjson

from tests.cluster import Cluster
from tests.spark.oracle import Expected, count_cells
from tests.waiting import BOUND_SECONDS

UNAVAILABLE = "__debezium_unavailable_value"
CELLS = ["1", "2", "3", "10", "Ada", "x\ty\\z\n", "é" * 100, "", None, '"', "{}"]
RowOf = dict[str, object]


class Database:
    """Keep tables in step with topics of their changes, as a connector without whole before-images writes them."""

    def __init__(self, cluster: Cluster, partitions: Mapping[str, int], name: str = "mine") -> None:
        self.cluster = cluster
        self.name = name
        self.prefix = f"db{uuid4().hex}"
        self.partitions = partitions
        self.rows: dict[str, dict[object, RowOf]] = {table: {} for table in partitions}
        for table, count in partitions.items():
            cluster.topic(count, name=self.topic(table))
        self.address = f"kafka://{cluster.servers}/{','.join(map(self.topic, partitions))}"

    def topic(self, table: str) -> str:
        return f"{self.prefix}.shop.{table}"

    def put(self, table: str, row: RowOf, op: str | None = None, **sent: object) -> None:
        """Insert or update a row, by its `id`; `sent` are cells that are sent in another form than they are."""
        op = op or ("u" if row["id"] in self.rows[table] else "c")
        self.rows[table][row["id"]] = row
        self.send(table, {"id": row["id"]}, {"op": op, "before": None, "after": {**row, **sent}})

    def delete(self, table: str, key: object) -> None:
        del self.rows[table][key]
        self.send(table, {"id": key}, {"op": "d", "before": {"id": key}, "after": None})
        self.send(table, {"id": key}, None)

    def truncate(self, table: str) -> None:
        self.rows[table].clear()
        self.send(table, None, {"op": "t", "before": None, "after": None})

    def send(self, table: str, key: RowOf | None, event: RowOf | None) -> None:
        value = None
        if event is not None:
            value = orjson.dumps({**event, "source": {"db": self.name, "schema": "shop", "table": table, "ts_ms": 1}})
        keyed = None if key is None else orjson.dumps(key)
        partition = zlib.crc32(keyed or b"") % self.partitions[table]
        self.cluster.producer.send(self.topic(table), value, key=keyed, partition=partition)

    def change(self, rng: random.Random) -> None:
        table = rng.choice(list(self.rows))
        key = rng.randrange(60)
        if key in self.rows[table] and rng.random() < 0.3:
            self.delete(table, key)
        else:
            self.put(table, {"id": key, "name": rng.choice(CELLS), "other": rng.randrange(20)})

    def flush(self) -> None:
        self.cluster.producer.flush(timeout=BOUND_SECONDS)

    def expected(self) -> Expected:
        columns: dict[str, list[str | None]] = {}
        for table, rows in self.rows.items():
            for column in next(iter(rows.values())):
                cells = [row[column] for row in rows.values()]
                columns[f"shop.{table}.{column}"] = [None if cell is None else str(cell) for cell in cells]
        return count_cells(columns)

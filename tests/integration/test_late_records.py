"""Records from before a change of columns may come behind it, from another partition: they are read as of then."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from itertools import count

import orjson
import pytest

from service.core.canonical import value_keys
from service.core.model import FeedPosition, RawRecord, SchemaDrift
from service.store.schema_changes import rename
from service.store.writer import PostgresWriter
from service.stream.envelope import Decoder
from service.usecases.follow_feed import Consumer
from tests import kept_rows, states
from tests.events import envelope, tracked_table
from tests.following import TwoPartitions, Watch, store_tracked
from tests.states import Tables

Cells = Mapping[str, object]
Change = tuple[int, Mapping[str, str | None] | None, Mapping[str, str | None]]


@pytest.fixture
def tables(database_url: str) -> Tables:
    tables = Tables({"orders": ["id", "total"]}).add("orders", ["1", "10"], ["2", "20"])
    store_tracked(database_url, tables)
    return tables


class Topic:
    """Make the records of a topic of two partitions, and let them be applied."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._offsets = [count(), count()]
        self._records: list[RawRecord] = []

    def add(
        self,
        partition: int,
        ts_ms: int,
        before: Cells | None,
        after: Cells | None,
        types: Mapping[str, str] | None = None,
        key: Cells | None = None,
    ) -> None:
        """Add a change; with `types` it has a schema, in which no column may be NULL."""
        op = "c" if before is None and key is None else "d" if after is None else "u"
        value = envelope(op, "s", "orders", before, after, ts_ms=ts_ms)
        if types is not None:
            row = [{"field": name, "type": kind, "optional": False} for name, kind in types.items()]
            images = [{"field": which, "type": "struct", "fields": row} for which in ("before", "after")]
            value = orjson.dumps({"schema": {"type": "struct", "fields": images}, "payload": orjson.loads(value)})
        told = None if key is None else orjson.dumps(key)
        self._records.append(RawRecord("shop", partition, next(self._offsets[partition]), told, value, 0))

    def follow(self) -> list[str]:
        """Apply the records, and name the columns that are stale then."""
        writer, records = PostgresWriter(self._url), self._records
        Consumer(writer, lambda: TwoPartitions(*records), Decoder, value_keys, Watch()).run(threading.Event(), True)
        query = "select column_name from attribute where stale_version is not null and dropped_version is null"
        return [column for (column,) in states.query(self._url, query)]


def require(url: str, tables: Tables, columns: list[str], *rows: list[str | None]) -> None:
    """Hold the state against one of rows of the orders, as they are now."""
    tables.columns["orders"] = columns
    tables.rows["orders"].clear()
    tables.add("orders", *rows)
    assert states.read(url) == states.expected(tables)


def never(_: str) -> None:
    raise AssertionError("nobody has the state, so nobody is waited for")


def test_a_record_from_before_a_new_column_has_null_there(database_url: str, tables: Tables) -> None:
    topic = Topic(database_url)
    topic.add(0, 500, None, {"id": "3", "total": "30", "note": "10"})
    topic.add(1, 400, None, {"id": "4", "total": "20"})
    topic.add(1, 450, {"id": "4", "total": "20"}, {"id": "4", "total": "10"})
    topic.add(1, 460, {"id": "1", "total": "10"}, None)
    topic.add(1, 500, None, {"id": "5", "total": "20"})
    topic.add(0, 450, None, {"id": "6", "total": "20"})  # of a connector that began anew
    topic.add(1, 510, {"id": "5", "total": "20", "note": None}, {"id": "5", "total": "20", "note": "20"})
    assert topic.follow() == []
    rows = ["2", "20", None], ["3", "30", "10"], ["4", "10", None], ["5", "20", "20"], ["6", "20", None]
    require(database_url, tables, ["id", "total", "note"], *rows)


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(("partition", "ts_ms"), [(0, 500), (0, 501), (1, 501), (1, 0)])
def test_a_new_column_that_a_later_record_lacks_is_stale(database_url: str, partition: int, ts_ms: int) -> None:
    topic = Topic(database_url)
    topic.add(0, 500, None, {"id": "3", "total": "30", "note": "10"})
    topic.add(partition, ts_ms, None, {"id": "4", "total": "20"})
    assert topic.follow() == ["note"]


@pytest.mark.usefixtures("tables")
def test_a_column_that_was_there_before_is_not_taken_for_null(database_url: str) -> None:
    topic = Topic(database_url)
    topic.add(0, 500, None, {"id": "3", "total": "30", "note": "10"})
    topic.add(1, 400, None, {"id": "4"})
    assert topic.follow() == ["total"]


def test_a_default_of_older_rows_is_not_taken_for_null(database_url: str) -> None:
    """A new column with a default is current where there are no rows; those that come late have it, untold."""
    store_tracked(database_url, Tables({"orders": ["id"]}))
    topic = Topic(database_url)
    topic.add(0, 500, None, {"id": 3, "note": 10}, {"id": "int32", "note": "int32"})
    topic.add(1, 400, None, {"id": 4}, {"id": "int32"})
    assert topic.follow() == ["note"]


def test_a_record_from_before_a_renaming_has_the_old_name(database_url: str, tables: Tables) -> None:
    rename(database_url, "s.orders.total", "s.orders.price", never)
    topic = Topic(database_url)
    topic.add(0, 500, None, {"id": "3", "price": "30"})
    topic.add(1, 400, {"id": "1", "total": "10"}, {"id": "1", "total": "20"})
    topic.add(1, 410, None, {"id": "4", "total": "z"}, {"id": "string", "total": "string"})
    topic.add(0, 510, {"id": "3", "price": "30"}, {"id": "3", "price": "20"})
    assert topic.follow() == []
    require(database_url, tables, ["id", "price"], ["1", "20"], ["2", "20"], ["3", "20"], ["4", "z"])


@pytest.mark.parametrize("seed", range(8))
def test_in_whatever_order_partitions_are_read_the_state_is_that_of_the_rows(
    database_url: str, tables: Tables, seed: int
) -> None:
    """Columns come one after another, and one is renamed; all changes of a row are in one partition."""
    rng = random.Random(seed)
    rename(database_url, "s.orders.total", "s.orders.price", never)
    rows: list[dict[str, str | None]] = [{"id": "1", "total": "10"}, {"id": "2", "total": "20"}]
    partitions: tuple[list[Change], list[Change]] = [], []
    ts_ms = 100
    for step in range(60):
        ts_ms += rng.randint(0, 1)
        if step in (15, 30):
            rows = [{**row, f"note{step}": None} for row in rows]
        if step == 45:
            rows = [{"price" if name == "total" else name: cell for name, cell in row.items()} for row in rows]
        row = rng.choice(rows)
        changed = {name: cell if name == "id" else str(rng.randint(8, 24)) for name, cell in row.items()}
        if step < 58 and rng.random() < 0.4:
            row, changed = None, {**changed, "id": str(100 + step)}
            rows.append(changed)
        else:
            rows[rows.index(row)] = changed
        partitions[int(changed["id"] or 0) % 2].append((ts_ms, row, changed))
    topic = Topic(database_url)
    while any(partitions):
        partition = rng.choice([place for place in (0, 1) if partitions[place]])
        for _ in range(min(rng.randint(1, 25), len(partitions[partition]))):
            topic.add(partition, *partitions[partition].pop(0))
    assert topic.follow() == []
    columns = ["id", "price", "note15", "note30"]
    require(database_url, tables, columns, *([row[column] for column in columns] for row in rows))


def test_so_it_has_where_the_renaming_is_told_afterwards(database_url: str, tables: Tables) -> None:
    drift = SchemaDrift("drift", tracked_table("s", "orders", {}), [("price", "string")], ["total"], {"ts_ms": 500})
    drift.position = FeedPosition("shop", 0, 0)
    writer = PostgresWriter(database_url)
    writer.acquire()
    writer.change_schema(drift, "two partitions")
    writer.close()
    rename(database_url, "s.orders.total", "s.orders.price", never)
    topic = Topic(database_url)
    topic.add(1, 400, {"id": "1", "total": "10"}, {"id": "1", "total": "20"})
    assert topic.follow() == []
    require(database_url, tables, ["id", "price"], ["1", "20"], ["2", "20"])


def test_a_record_from_before_another_type_is_read_as_what_it_was(database_url: str, tables: Tables) -> None:
    states.execute(database_url, "update attribute set data_type = 'integer'")
    topic = Topic(database_url)
    topic.add(0, 500, None, {"id": 3, "total": "thirty"}, {"id": "int32", "total": "string"})
    topic.add(1, 400, {"id": 1, "total": 10}, {"id": 1, "total": 20}, {"id": "int32", "total": "int32"})
    topic.add(0, 510, None, {"id": 4, "total": "20"}, {"id": "int32", "total": "string"})
    assert topic.follow() == []
    require(database_url, tables, ["id", "total"], ["1", "20"], ["2", "20"], ["3", "thirty"], ["4", "20"])


def test_a_kept_row_is_found_by_the_old_name_of_its_key(database_url: str) -> None:
    tables = Tables({"orders": ["id", "total"]}).add("orders", ["1", "10"], ["2", "20"])
    states.store(database_url, tables)
    kept_rows.keep(database_url, tables, {"orders": ["id"]})
    rename(database_url, "s.orders.id", "s.orders.number", never)
    topic = Topic(database_url)
    topic.add(0, 500, None, {"number": "3", "total": "30"})
    topic.add(1, 400, None, {"id": "1", "total": "20"}, key={"id": "1"})
    topic.add(1, 410, None, None, key={"id": "2"})
    assert topic.follow() == []
    require(database_url, tables, ["number", "total"], ["1", "20"], ["3", "30"])
    assert kept_rows.read(database_url, "orders") == kept_rows.expected(tables, "orders", ["number"])

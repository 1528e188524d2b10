"""Keys as they are now: unique columns, nearly unique ones with the values that repeat, and all that are tracked."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from service.cli import app
from service.store.database import make_engine
from service.store.reader import PostgresStateReader
from service.usecases.key_values import KeyFilter
from service.usecases.keys import keys
from service.usecases.queries import walk
from tests import states
from tests.following import Stream, consume
from tests.integration.serving import app_over, serving
from tests.states import Tables

COLUMNS = {"orders": ["id", "customer", "line"], "customers": ["id", "name"], "notes": ["text"]}


@pytest.fixture
def stream(tmp_path: Path, database_url: str) -> Stream:
    tables = Tables(dict(COLUMNS), tuples={"orders": [("id", "line"), ("customer", "line")]})
    tables.add("customers", *([str(n), "Ada" if n < 3 else f"name {n}"] for n in range(50)), ["50", None])
    tables.add("orders", ["1", "1", "1"], ["1", "1", "2"], ["2", "9", "1"], ["3", None, "1"])
    tables.add("notes", [None], [None])
    states.store(database_url, tables)
    states.execute(
        database_url,
        "insert into tracked_key (attribute_id, kind, is_primary, since_version) "
        "select attribute_id, 'declared', column_name = '(id, line)', 1 from attribute where parts is not null",
    )
    path = tmp_path / "feed.jsonl"
    path.touch()
    return Stream(path, tables, dict(COLUMNS))


def listed(url: str, chosen: KeyFilter, limit: int = 100) -> list[tuple]:
    engine = make_engine(url, "test")
    with PostgresStateReader(engine).snapshot(with_values=True) as snapshot:
        found = list(walk(lambda after: keys(snapshot, chosen, after, limit, values=2)))
    engine.dispose()
    return [
        (one.key.attribute.name.table, one.key.columns, one.key.kind, one.key.is_key, [tuple(v) for v in one.repeated])
        for one in found
    ]


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_keys_are_listed_as_the_values_are_now(database_url: str, stream: Stream, limit: int) -> None:
    orders = [
        ("orders", ("id", "line"), "declared", True, []),
        ("orders", ("customer", "line"), "declared", False, []),
    ]
    assert listed(database_url, KeyFilter(), limit) == [("customers", ("id",), None, True, []), *orders]
    assert listed(database_url, KeyFilter(nearly=0.05), limit) == [
        ("customers", ("id",), None, True, []),
        ("customers", ("name",), None, False, [("Ada", 3)]),
        *orders,
    ]
    assert listed(database_url, KeyFilter(table="orders", tracked_only=True), limit) == orders
    assert listed(database_url, KeyFilter(schema="t"), limit) == []
    stream.change("orders", None, ["1", "4", "2"])
    stream.change("customers", None, ["7", "Bob"])
    consume(database_url, stream)
    assert listed(database_url, KeyFilter(), limit) == [
        ("orders", ("id", "line"), "declared", False, [('["1","2"]', 2)]),
        ("orders", ("customer", "line"), "declared", False, []),
    ]


def test_keys_of_an_insert_only_source_are_known_by_their_number(database_url: str) -> None:
    tables = Tables({"t": ["a", "b"]}, insert_only=True)
    tables.add("t", ["1", "1"], ["2", "1"])
    states.store(database_url, tables)
    assert listed(database_url, KeyFilter()) == [("t", ("a",), None, True, [])]


def test_the_command_and_the_route_say_the_same(
    database_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    asked = ["keys", "list", "--nearly", "0.05", "--format"]
    said = json.loads(CliRunner().invoke(app, [*asked, "json"]).stdout)
    engine = make_engine(database_url, "test")
    with serving(app_over(engine)) as url, httpx.Client(base_url=url, timeout=60) as client:
        answer = client.get("/api/v1/keys", params={"nearly": 0.05, "values": 3, "limit": 2}).json()
        rest = client.get("/api/v1/keys", params={"nearly": 0.05, "values": 3, "cursor": answer["next_cursor"]}).json()
        assert client.get("/api/v1/keys", params={"nearly": 2}).status_code == 422
    engine.dispose()
    items = answer["items"] + rest["items"]
    assert [one["columns"] for one in items] == [one["columns"] for one in said]
    assert [one["repeated_values"] for one in items] == [one["repeated_values"] for one in said]
    assert items[1]["repeated_values"] == [{"value": "Ada", "frequency": 3}]
    assert (items[2]["kind"], items[2]["is_primary"], items[2]["attribute"]["name"]) == (
        "declared", True, "s.orders.(id, line)"
    )  # fmt: skip
    table = CliRunner().invoke(app, [*asked, "table"]).stdout.splitlines()
    assert table[0].split()[:4] == ["schema", "table", "columns", "tracked"]
    assert "'Ada' 3 times" in table[2]
    assert CliRunner().invoke(app, [*asked, "csv"]).stdout.splitlines()[3].startswith('s,orders,"id, line",primary')

"""Keys as they are now: unique columns, nearly unique ones with the values that repeat, and all that are tracked."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest
from typer.testing import CliRunner

from service.cli import app
from service.config import load_settings
from service.core.foreign_keys.sides import Side
from service.key_runner import tracking_keys
from service.store.database import make_engine
from service.store.reader import PostgresStateReader
from service.usecases.key_values import KeyFilter
from service.usecases.keys import keys
from service.usecases.queries import walk
from service.usecases.tracked_keys import TrackingState
from tests import states
from tests.asking import http_client
from tests.following import Stream, consume
from tests.integration.serving import app_over, serving
from tests.states import Tables
from tests.waiting import wait_for

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
        (
            one.key.attribute.name.table,
            one.key.columns,
            one.key.kind,
            one.key.is_key,
            [(v.value, v.frequency) for v in one.repeated],
        )
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
    with serving(app_over(engine)) as url, http_client(base_url=url, timeout=60) as client:
        answer = client.get("/api/v1/keys", params={"nearly": 0.05, "values": 3, "limit": 2}).json()
        rest = client.get("/api/v1/keys", params={"nearly": 0.05, "values": 3, "cursor": answer["next_cursor"]}).json()
        assert client.get("/api/v1/keys", params={"nearly": 2}).status_code == 422
    engine.dispose()
    items = answer["items"] + rest["items"]
    assert [one["columns"] for one in items] == [one["columns"] for one in said]
    assert [one["repeated_values"] for one in items] == [one["repeated_values"] for one in said]
    assert items[1]["repeated_values"] == [
        {"value": "Ada", "value_key": str(UUID(bytes=states.key_of("Ada"))), "frequency": 3}
    ]
    assert (items[2]["kind"], items[2]["is_primary"], items[2]["attribute"]["name"]) == (
        "declared", True, "s.orders.(id, line)"
    )  # fmt: skip
    table = CliRunner().invoke(app, [*asked, "table"]).stdout.splitlines()
    assert table[0].split()[:4] == ["schema", "table", "columns", "tracked"]
    assert "'Ada' 3 times" in table[2]
    assert CliRunner().invoke(app, [*asked, "csv"]).stdout.splitlines()[3].startswith('s,orders,"id, line",primary')


def test_a_key_is_tracked_and_dropped_over_http(database_url: str, stream: Stream) -> None:
    engine = make_engine(database_url, "test")
    app_ = app_over(engine)
    with serving(app_) as url, http_client(base_url=url, timeout=60) as client:
        asked = {"schema": "s", "table": "customers", "columns": ["id", "name"]}
        answer = client.post("/api/v1/keys", json={**asked, "source": "postgresql://ada:secret@host/shop"})
        told = answer.json()
        number = told["tracking_id"]
        assert (answer.status_code, answer.headers["Location"]) == (202, f"/api/v1/keys/trackings/{number}")
        assert {**asked, "state": "queued", "ended_at": None, "message": None}.items() <= told.items()
        assert client.post("/api/v1/keys", json=asked).json() == told, "one that waits is given again"
        assert client.get(answer.headers["Location"]).json() == told
        assert "secret" not in answer.text

        def tracked() -> dict[str, int]:
            items = client.get("/api/v1/keys", params={"tracked_only": True}).json()["items"]
            return {one["attribute"]["name"]: one["attribute"]["attribute_id"] for one in items}

        assert client.delete(f"/api/v1/keys/{tracked()['s.orders.(id, line)']}").status_code == 204
        assert list(tracked()) == ["s.orders.(customer, line)"]
    engine.dispose()
    consume(database_url, stream)


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"table": "orders", "columns": ["id", "line"]}, 409, "s.orders(id, line) is tracked as a key already"),
        ({"table": "orders", "columns": ["id", "size"]}, 404, "No attribute s.orders.size is followed"),
        ({"table": "nowhere", "columns": ["id"]}, 404, "No attribute s.nowhere.id is followed"),
        ({"table": "orders", "columns": ["id", "id"]}, 422, "a column comes twice in the key"),
        ({"table": "orders", "columns": []}, 422, "at least 1 item"),
        ({"table": "orders", "columns": [f"c{n}" for n in range(33)]}, 422, "at most 32 items"),
        ({"table": "orders", "columns": ["a\x00b"]}, 422, "should match pattern"),
        ({"table": "orders", "columns": ["id"], "source": "/etc/passwd"}, 422, "should match pattern"),
        ({"table": "orders", "columns": ["id"], "source": "postgresql://h/d\nmore"}, 422, "should match pattern"),
        ({"table": "orders", "columns": ["id"], "sauce": "x"}, 422, "Extra inputs are not permitted"),
        ({"table": "", "columns": [""]}, 404, "No attribute s.. is followed"),
        ({"table": "顧客", "columns": ["x" * 4096]}, 404, "is followed in state version 1"),
    ],
)
def test_a_key_that_cannot_be_tracked_is_refused(
    database_url: str, stream: Stream, body: dict[str, object], status: int, said: str
) -> None:
    engine = make_engine(database_url, "test")
    with serving(app_over(engine)) as url, http_client(base_url=url, timeout=60) as client:
        answer = client.post("/api/v1/keys", json={"schema": "s", **body})
        assert answer.status_code == status, answer.text
        assert said in answer.json()["detail"]
    engine.dispose()


def test_what_is_no_key_cannot_be_dropped(database_url: str, stream: Stream) -> None:
    engine = make_engine(database_url, "test")
    with serving(app_over(engine)) as url, http_client(base_url=url, timeout=60) as client:
        # As those of a foreign key that its source declares, which are no key.
        tuples = states.query(database_url, "select attribute_id from attribute where column_name = '(id, line)'")
        states.execute(database_url, f"delete from tracked_key where attribute_id = {tuples[0][0]}")
        for (attribute_id,) in [(1,), *tuples]:
            untracked = client.delete(f"/api/v1/keys/{attribute_id}")
            assert (untracked.status_code, untracked.json()["title"]) == (409, "Conflict")
            assert "It is not tracked as a key" in untracked.json()["detail"]
        assert states.query(database_url, "select from attribute where dropped_version is not null") == []
        for unknown in (77, 2**31 - 1):
            assert client.delete(f"/api/v1/keys/{unknown}").json()["title"] == "Unknown attribute"
        assert client.delete("/api/v1/keys/x").status_code == 422
        assert client.get("/api/v1/keys/trackings/9").json()["type"] == "/docs#unknown-tracking"
    engine.dispose()


def test_the_jobs_that_a_service_starts_track_keys_and_say_why_not(database_url: str, stream: Stream) -> None:
    settings = load_settings(database_url=database_url)
    with tracking_keys(database_url, settings) as tracked:
        done = tracked.track(Side("s", "customers", ("id",)), None).tracking_id
        refused = tracked.track(Side("s", "customers", ("id", "size")), "postgresql://ada:secret@host/shop").tracking_id
        wait_for(lambda: tracked.tracking(refused).ended_at is not None)
        assert tracked.tracking(done).state is TrackingState.TRACKED
        assert tracked.tracking(done).message == "s.customers.id is tracked as a key since version 2"
        failed = tracked.tracking(refused)
        assert failed.state is TrackingState.FAILED
        assert failed.message is not None
        assert failed.message.startswith("s.customers: no column 'size' of it is kept current. It has: id, name.")
    assert ("customers", ("id",), "pinned", True, []) in listed(database_url, KeyFilter(tracked_only=True))

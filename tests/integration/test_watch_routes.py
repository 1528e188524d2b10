"""Watches over HTTP: what is said of them, what never is, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from service.api.problems import Check
from service.store.database import make_engine
from tests import states
from tests.asking import http_client
from tests.integration.serving import app_over, serving
from tests.states import Tables
from tests.watching import Watching

PATH = "/api/v1/watches"
URL = "https://hooks.example:8443/T0/secret-path?token=in-the-query"
RULE = {"kind": "ind", "dependent": "s.orders.customer", "referenced": "s.customers.id"}


@pytest.fixture
def watching(database_url: str) -> Iterator[Watching]:
    tables = Tables({"orders": ["id", "customer"], "customers": ["id"]})
    states.store(database_url, tables.add("orders", ["10", "9"]).add("customers", ["1"]))
    engine = make_engine(database_url, "test-watches")
    made = Watching(engine)
    yield made
    made.looks.close()
    engine.dispose()


@pytest.fixture
def client(watching: Watching) -> Iterator[httpx.Client]:
    app = app_over(watching.engine)
    app.state.overview_checks = (lambda: Check(name="watches", ok=False, detail="1 alerts are tried again"),)
    with serving(app) as address, http_client(base_url=address, timeout=60) as client:
        yield client


def body(name: str = "w", **more: Any) -> dict[str, Any]:
    channel = {"kind": "webhook", "url": URL, "secret": "signing-secret"}
    return {"name": name, "rule": RULE, "channel": channel, "debounce_seconds": 0, **more}


def test_a_watch_is_added_told_of_without_its_secrets_and_removed(client: httpx.Client, watching: Watching) -> None:
    made = client.post(PATH, json=body(created_by="Ada"))
    assert made.status_code == 201
    assert client.get(made.headers["Location"]).json() == made.json()
    assert made.json()["channel"] == {
        "kind": "webhook",
        "url": "https://hooks.example:8443/…",
        "to": [],
        "topic": None,
        "has_secret": True,
    }
    watching.look()
    client.post(f"{PATH}/1/test")
    for path in ("", "/1", "/alerts", "/silences", "/loads"):
        answer = client.get(PATH + path)
        assert answer.is_success
        assert not any(secret in answer.text for secret in ("secret-path", "in-the-query", "signing-secret"))
        again = client.get(PATH + path, headers={"If-None-Match": answer.headers["ETag"]})
        assert again.status_code == 304
    assert client.delete(f"{PATH}/1").status_code == 204
    assert client.get(f"{PATH}/1").json()["type"] == "/docs#unknown-watch"


def test_a_watch_that_is_replaced_keeps_its_secret_for_the_same_address_alone(
    client: httpx.Client, watching: Watching
) -> None:
    client.post(PATH, json=body())
    without = {"kind": "webhook", "url": URL}
    assert client.put(f"{PATH}/1", json=body(channel=without)).json()["channel"]["has_secret"] is True
    other = {**without, "url": "https://elsewhere.example/"}
    assert client.put(f"{PATH}/1", json=body(channel=other)).json()["channel"]["has_secret"] is False
    changed = client.put(f"{PATH}/1", json=body("v", rule={**RULE, "when": "holding"}, tell_resolved=False)).json()
    assert (changed["name"], changed["says"], changed["tell_resolved"]) == (
        "v",
        "s.orders.customer ⊆ s.customers.id is holding",
        False,
    )


@pytest.mark.parametrize(
    ("change", "status", "kind", "told"),
    [
        ({"rule": {"kind": "ind", "dependent": "s.orders.customer"}}, 422, "refused-watch", "needs referenced"),
        ({"rule": {**RULE, "bound": 1}}, 422, "refused-watch", "has no bound"),
        ({"rule": {**RULE, "dependent": "s.orders.nothing"}}, 404, "unknown-watch", "no attribute s.orders.nothing"),
        ({"rule": {"kind": "contract", "contract_id": 9}}, 404, "unknown-watch", "no contract 9"),
        ({"rule": {"kind": "moon"}}, 422, "invalid-request", "kind"),
        ({"name": "a\nb"}, 422, "refused-watch", "none of them a control"),
        ({"name": ""}, 422, "invalid-request", "name"),
        ({"debounce_seconds": -1}, 422, "invalid-request", "debounce_seconds"),
        ({"channel": {"kind": "webhook", "url": "file:///etc/passwd"}}, 422, "refused-watch", "http://host/path"),
        ({"channel": {"kind": "webhook", "to": ["a@b"]}}, 422, "refused-watch", "has url, and no other"),
        ({"channel": {"kind": "email", "to": ["a@b.c"]}}, 422, "refused-watch", "set SUBSETD_SMTP"),
        ({"channel": {"kind": "kafka", "topic": "t"}}, 422, "refused-watch", "set SUBSETD_ALERT_BROKER"),
        ({"channel": {"kind": "webhook", "url": URL, "secret": "1234567\x00"}}, 422, "refused-watch", "no NUL"),
        ({"channel": {"kind": "slack", "url": URL, "secret": "12345678"}}, 422, "refused-watch", "Only a webhook"),
    ],
)
def test_what_cannot_be_is_refused_and_says_why(
    client: httpx.Client, change: dict[str, Any], status: int, kind: str, told: str
) -> None:
    answer = client.post(PATH, json={**body(), **change})
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (status, f"/docs#{kind}")
    assert told in problem["detail"]
    assert "signing-secret" not in answer.text
    assert client.get(PATH).json()["items"] == []


def test_a_name_is_taken_once(client: httpx.Client) -> None:
    client.post(PATH, json=body())
    again = client.post(PATH, json=body())
    assert (again.status_code, again.json()["type"]) == (409, "/docs#conflict")


def test_the_history_is_paged_newest_first_and_chosen(client: httpx.Client, watching: Watching) -> None:
    for name in ("a", "b"):
        client.post(PATH, json=body(name))
    assert watching.look() == [("fired", 1, 0)] * 2
    for _ in range(2):
        assert client.post(f"{PATH}/2/test").status_code == 202
    found, cursor = [], None
    while True:
        page = client.get(f"{PATH}/alerts", params={"limit": 3, **({"cursor": cursor} if cursor else {})}).json()
        found += [one["alert_id"] for one in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == [4, 3, 2, 1]
    kinds = [one["kind"] for one in client.get(f"{PATH}/alerts?watch_id=2").json()["items"]]
    assert kinds == ["test", "test", "fired"]
    assert client.get(f"{PATH}/alerts?state=delivered").json()["items"] == []


def test_silences_and_loads_are_told_and_ended(client: httpx.Client) -> None:
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    past = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    given = {"pattern": "s.*", "until": soon, "reason": "a known defect"}
    assert client.post(f"{PATH}/silences", json=given).json()["is_active"] is True
    for wrong, told in (
        ({**given, "until": past}, "is past"),
        ({**given, "until": soon[:19]}, "needs its zone"),
        ({**given, "watch_id": 1}, "of a watch, or of all"),
        ({"until": soon, "reason": "x"}, "of a watch, or of all"),
    ):
        answer = client.post(f"{PATH}/silences", json=wrong)
        assert (answer.status_code, answer.json()["type"]) == (422, "/docs#refused-watch")
        assert told in answer.json()["detail"]
    assert client.delete(f"{PATH}/silences/1").status_code == 204
    assert client.delete(f"{PATH}/silences/1").status_code == 404
    assert [one["is_active"] for one in client.get(f"{PATH}/silences").json()["items"]] == [False]
    odd = {**given, "until": "3579-10-09T19:45:22+20:12"}
    assert client.post(f"{PATH}/silences", json=odd).json()["until"] == "3579-10-08T23:33:22Z"
    last = client.post(f"{PATH}/silences", json={**given, "until": "9999-12-31T23:59:59-20:00"})
    assert (last.status_code, last.json()["type"]) == (422, "/docs#refused-watch")
    load = client.post(f"{PATH}/loads", json={"schema": "s", "table": "orders"}).json()
    assert (load["schema"], load["table"], load["until_loaded"], load["is_active"]) == ("s", "orders", True, True)
    assert client.post(f"{PATH}/loads", json={"schema": "t"}).status_code == 404
    assert client.delete(f"{PATH}/loads/1").status_code == 204
    assert [one["is_active"] for one in client.get(f"{PATH}/loads").json()["items"]] == [False]


def test_how_watches_are_is_on_the_overview_and_makes_nothing_unready(client: httpx.Client) -> None:
    checks = {one["name"]: one["ok"] for one in client.get("/api/v1/overview").json()["checks"]}
    assert checks == {"database": True, "bootstrapped": True, "watches": False}
    assert client.get("/readyz").status_code == 200

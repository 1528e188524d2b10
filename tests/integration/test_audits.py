"""Audits that are kept: listed by page, polled, measured."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.core.model import AttributeName
from service.store.audits import AuditedState, AuditTurn, add_audit
from service.store.database import make_engine
from tests import states
from tests.asking import http_client
from tests.hand_made_state import TABLE_1, HandMadeState
from tests.integration.serving import app_over, serving
from tests.waiting import wait_for

STARTED = datetime(2026, 11, 21, 2, 30, tzinfo=UTC)
REPORT = {
    "examples": {"not_served": [["s.a.x", "s.b.y"]], "not_holding": []},
    "filters": {"low_coverage": {"dependent_columns": 0, "referenced_columns": 0, "inds": 2, "inds_alone": 1}},
    "inds_left": 3,
    "sketch_only": 1,
    "algorithm": "signatures",
    "seconds": {"start Spark": 3.5, "find": 1.0},
}


def keep(url: str, number: int, not_served: int = 0) -> int:
    """Keep an audit of version `number`; give its id."""
    names = [AttributeName("s", "a", "x"), None, AttributeName("s", "b", "y")]
    none = np.zeros((0, 2), np.int32)
    state = AuditedState(
        "-",
        number,
        STARTED + timedelta(days=number),
        names,
        np.zeros(3, np.int64),
        1,
        7,
        11,
        none,
        np.zeros(3, np.bool_),
    )
    return add_audit(url, state, 11, 5, not_served, 0, REPORT).audit_id


@pytest.fixture
def client(database_url: str) -> Iterator[httpx.Client]:
    HandMadeState(database_url, TABLE_1).close()
    engine = make_engine(database_url, "test")
    with serving(app_over(engine)) as address, http_client(base_url=address, timeout=60) as client:
        yield client
    engine.dispose()


def test_audits_come_newest_first_page_by_page(client: httpx.Client, database_url: str) -> None:
    assert client.get("/api/v1/audits").json() == {"version": 1, "next_cursor": None, "items": []}
    ids = [keep(database_url, number, not_served=number) for number in range(3)]
    first = client.get("/api/v1/audits", params={"limit": 2}).json()
    assert [one["audit_id"] for one in first["items"]] == ids[:0:-1]
    newest = first["items"][0]
    assert {**REPORT, "version": 2, "not_served": 2, "not_holding": 0, "differences": 2}.items() <= newest.items()
    # One of the two columns is a sketch alone.
    assert (newest["attributes"], newest["value_count"], newest["inds"]) == (1, 11, 5)
    assert newest["started_at"] == "2026-11-23T02:30:00Z"
    second = client.get("/api/v1/audits", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert ([one["audit_id"] for one in second["items"]], second["next_cursor"]) == (ids[:1], None)


def test_an_answer_is_current_until_the_next_audit(client: httpx.Client, database_url: str) -> None:
    known = {"If-None-Match": client.get("/api/v1/audits").headers["etag"]}
    assert client.get("/api/v1/audits", headers=known).status_code == 304
    keep(database_url, 1)
    assert client.get("/api/v1/audits", headers=known).status_code == 200


def test_the_newest_audit_is_measured(client: httpx.Client, database_url: str) -> None:
    def measured() -> dict[str, float]:
        families = text_string_to_metric_families(client.get("/metrics").text)
        return {one.name: one.samples[0].value for one in families if one.name.startswith("subsetd_audit")}

    assert measured() == {}
    keep(database_url, 1, not_served=4)
    keep(database_url, 2, not_served=3)
    found = measured()
    assert (found["subsetd_audit_differences"], found["subsetd_audit_version"]) == (3, 2)
    assert abs(found["subsetd_audit_timestamp_seconds"] - datetime.now(UTC).timestamp()) < 600


def test_the_newest_audits_are_kept(client: httpx.Client, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.store.audits.KEPT_AUDITS", 2)
    ids = [keep(database_url, number) for number in range(4)]
    assert [one["audit_id"] for one in client.get("/api/v1/audits").json()["items"]] == [ids[3], ids[2]]


def test_one_service_at_a_time_has_the_turn_to_audit_until_it_gives_it_back_or_its_connection_ends(
    database_url: str,
) -> None:
    engine = make_engine(database_url, "test")
    first, second = AuditTurn(engine), AuditTurn(engine)
    try:
        assert (first.take(), second.take()) == (True, False)
        first.give_back()
        first.give_back()
        assert (second.take(), first.take()) == (True, False)
        states.execute(
            database_url,
            "select pg_terminate_backend(pid) from pg_locks join pg_database d on d.oid = database "
            "where locktype = 'advisory' and granted and datname = current_database()",
        )
        assert wait_for(first.take)
        second.give_back()
        assert not second.take()
    finally:
        first.give_back()
        second.give_back()
        engine.dispose()

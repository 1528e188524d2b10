"""The dashboard's files: small, cached by their content, shut in by their headers; the route behind its first view."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry, Gauge
from sqlalchemy import event

from service.api import routes_dashboard
from service.core.model import AttributeName
from service.store import reader
from service.store.database import make_engine
from service.usecases.corpora import RefreshState
from tests import states
from tests.asking import http_client
from tests.corpora import GivenCorpus
from tests.hand_made_state import HandMadeState
from tests.integration.serving import app_over, serving
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "service" / "api" / "dashboard"
MOST_BYTES = 300_000
A, B = AttributeName("s", "a", "x"), AttributeName("s", "b", "y")


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def client(database_url: str, registry: CollectorRegistry) -> Iterator[httpx.Client]:
    """Serve a state with one IND."""
    HandMadeState(database_url, {A: ["1"], B: ["1", "2"]}).close()
    engine = make_engine(database_url, "test-dashboard")
    with serving(app_over(engine, registry=registry)) as address, http_client(base_url=address, timeout=60) as client:
        yield client
    engine.dispose()


def overview(client: httpx.Client) -> dict[str, Any]:
    answer = client.get("/api/v1/overview")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_the_page_names_every_module_so_that_all_are_asked_for_at_once(client: httpx.Client) -> None:
    named = re.findall(r'<link rel="modulepreload" href="/dashboard/([\w.-]+\.js)">', client.get("/").text)
    assert named == sorted(one.name for one in FOLDER.glob("*.js"))


def test_every_file_is_served_shut_in_and_asked_for_by_its_content(client: httpx.Client) -> None:
    paths = ["/", *(f"/dashboard/{one.name}" for one in FOLDER.iterdir())]
    assert len(paths) > 8
    received = 0
    for path in paths:
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert answer.headers["Cache-Control"] == "no-cache"
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        # A library's first line names where it is from.
        assert not re.findall(r"https?://(?!www\.w3\.org/)", re.sub(r"^// https://d3js\.org/.*", "", answer.text)), path
        again = client.get(path, headers={"If-None-Match": answer.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["Content-Security-Policy"] == policy
        received += len(answer.content)
    assert received <= MOST_BYTES
    assert client.get("/dashboard/nothing.js").status_code == 404


def test_the_wheel_holds_every_file(tmp_path: Path) -> None:
    """What pyproject.toml forgets would be missing in it."""
    for name in ("pyproject.toml", "LICENSE"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    for folder in ("service", "service/api", "service/api/dashboard"):
        (tmp_path / folder).mkdir()
        for one in (ROOT / folder).iterdir():
            if one.is_file():
                (tmp_path / folder / one.name).write_bytes(one.read_bytes())
    (tmp_path / "wheels").mkdir()
    build = "from setuptools import build_meta; build_meta.build_wheel('wheels')"
    subprocess.run([sys.executable, "-c", build], cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = (tmp_path / "wheels").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        packed = {name.rpartition("/")[2] for name in archive.namelist() if name.startswith("service/api/dashboard/")}
    assert packed == {one.name for one in FOLDER.iterdir()} == set(routes_dashboard._files())


def test_the_overview_counts_what_was_committed_lately(client: httpx.Client, database_url: str) -> None:
    states.execute(
        database_url,
        "update state_version set committed_at = now() - interval '2 hours';"
        "insert into state_version (version, generation, kind, committed_at, inserted, updated, deleted) values"
        " (2, 1, 'batch', now() - interval '70 minutes', 1000, 0, 0),"
        " (3, 1, 'batch', now() - interval '10 minutes', 20, 3, 1),"
        " (4, 1, 'batch', now() - interval '5 minutes', 30, 5, 5);"
        "insert into ind_transition (version, dependent_id, referenced_id, kind)"
        " values (2, 0, 1, 'broke'), (3, 0, 1, 'appeared'), (4, 0, 1, 'broke')",
    )
    found = overview(client)
    assert len(found["minutes"]) == 30
    counted = [(one["changes"], one["appeared"], one["broke"]) for one in found["minutes"] if one["changes"]]
    assert counted == [(24, 1, 0), (40, 0, 1)]
    assert found["changes_per_second"] == 0
    assert [one["version"] for one in found["broken"]] == [4, 2]
    assert (found["lag_records"], found["lag_unit"], found["lag_seconds"], found["audit"]) == (None, None, None, None)


def test_the_overview_tells_the_rate_and_the_freshness_of_now(client: httpx.Client, database_url: str) -> None:
    def told() -> tuple[float, float]:
        """Commit, and ask: ten seconds later, should it take so long, it is no longer of now."""
        states.execute(
            database_url,
            "delete from state_version where version = 2;"
            "insert into state_version (version, generation, kind, committed_at, inserted, newest_source_ms) "
            "select 2, 1, 'batch', at, 40, floor(extract(epoch from at) * 1000) - 250 "
            "from date_trunc('second', now()) as at",
        )
        found = overview(client)
        return found["changes_per_second"], found["freshness_seconds"]

    wait_for(lambda: told() == (4.0, 0.25))


def test_what_was_committed_before_the_clock_was_set_back_is_not_of_now(
    client: httpx.Client, database_url: str
) -> None:
    states.execute(
        database_url,
        "insert into state_version (version, generation, kind, committed_at, inserted)"
        " select n, 1, 'batch', now() + make_interval(hours => 1, mins => n), 1000 from generate_series(2, 60) as n;"
        "insert into state_version (version, generation, kind, committed_at, inserted)"
        " values (61, 1, 'batch', now(), 20)",
    )

    def told() -> tuple[float, int]:
        states.execute(database_url, "update state_version set committed_at = now() where version = 61")
        found = overview(client)
        return found["changes_per_second"], sum(one["changes"] for one in found["minutes"])

    wait_for(lambda: told() == (2.0, 20))  # ten seconds later, should it take so long, it is no longer of now


def test_minutes_of_which_not_all_was_looked_at_are_left_out(
    client: httpx.Client, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "ACTIVITY_VERSIONS", 2)
    states.execute(
        database_url,
        "insert into state_version (version, generation, kind, committed_at, inserted) "
        "select n, 1, 'batch', now() - make_interval(mins => 20 - n), 7 from generate_series(2, 10) as n",
    )
    # The versions 9 and 10, of 11 and 10 minutes ago: of the first one's minute some may be missing.
    counted = [one["changes"] for one in overview(client)["minutes"]]
    assert (counted[0], sum(counted)) == (7, 7)


def test_the_overview_is_named_after_all_that_it_says(client: httpx.Client, registry: CollectorRegistry) -> None:
    lag = Gauge("subsetd_consumer_lag_records", "of a consumer in this process", registry=registry)
    lag.set(float("nan"))
    known = client.get("/api/v1/overview")
    assert known.json()["lag_records"] is None
    lag.set(17)
    behind = client.get("/api/v1/overview", headers={"If-None-Match": known.headers["ETag"]})
    assert (behind.status_code, behind.json()["lag_records"]) == (200, 17.0)


def test_the_overview_tells_of_corpora_and_their_faults(client: httpx.Client, database_url: str) -> None:
    lake = GivenCorpus(database_url)
    assert [(one["corpus"], one["state"]) for one in overview(client)["corpora"]] == [("lake", None)]
    lake.queue()
    assert [(one["corpus"], one["state"]) for one in overview(client)["corpora"]] == [("lake", "queued")]


def test_of_many_corpora_those_at_fault_are_told_of_first_and_all_are_asked_for_at_once(database_url: str) -> None:
    HandMadeState(database_url, {A: ["1"]}).close()
    engine = make_engine(database_url, "test-dashboard")
    asked: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "from api_key" not in statement:  # which is asked for again by the clock
            asked.append(statement)

    with serving(app_over(engine)) as address, http_client(base_url=address, timeout=60) as client:
        lake = GivenCorpus(database_url, "lake")
        overview(client)
        asked.clear()
        overview(client)
        of_one = len(asked)
        for number in range(24):
            GivenCorpus(database_url, f"pond {number:02}")
        failed = lake.queue()
        lake.corpora.claim(failed)
        lake.corpora.end(failed, RefreshState.FAILED, "no such folder")
        asked.clear()
        found = overview(client)
        assert len(asked) == of_one
        assert [one["corpus"] for one in found["corpora"]] == ["lake", *(f"pond {number:02}" for number in range(19))]
        assert (found["corpora"][0]["state"], found["corpora"][0]["fault"]) == ("failed", "no such folder")
        assert (found["corpora_beyond"], found["corpora_at_fault"]) == (5, 1)
        listed = client.get("/api/v1/corpora").json()["items"]
        assert {(one["name"], one["state"]) for one in listed if one["state"] is not None} == {("lake", "failed")}
    engine.dispose()


def test_newest_changes_come_first_page_by_page(client: httpx.Client, database_url: str) -> None:
    states.execute(
        database_url,
        "insert into state_version (version, generation, kind) select n, 1, 'batch' from generate_series(2, 6) as n;"
        "insert into ind_transition (version, dependent_id, referenced_id, kind)"
        " select n, 0, 1, case when n % 2 = 0 then 'broke' else 'appeared' end from generate_series(2, 6) as n",
    )
    seen: list[int] = []
    question: dict[str, Any] = {"newest_first": True, "kind": "broke", "limit": 2}
    while True:
        page = client.get("/api/v1/changes", params=question).json()
        seen += [one["version"] for one in page["items"]]
        if page["next_cursor"] is None:
            break
        assert client.get("/api/v1/changes", params={"cursor": page["next_cursor"]}).status_code == 422
        question["cursor"] = page["next_cursor"]
    assert seen == [6, 4, 2]

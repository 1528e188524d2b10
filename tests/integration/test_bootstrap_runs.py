"""A bootstrap that runs tells what it is at; one that failed says why, and one that died is known to have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from service.core.errors import ConflictError, SourceError, StateError
from service.store.bootstrap_runs import PROGRESS_NAME, told_bootstrap
from service.store.database import make_engine
from spark_jobs.bootstrap import run_bootstrap
from spark_jobs.progress import Quiet, telling_the_state
from spark_jobs.sources import Options
from tests import states
from tests.asking import http_client
from tests.integration.serving import app_over, serving
from tests.states import Tables
from tests.waiting import BOUND_SECONDS, wait_for

KILL = f"""
select pg_terminate_backend(pid, {BOUND_SECONDS * 1000:.0f}) from pg_stat_activity
where application_name = '{PROGRESS_NAME}'
"""


def test_what_is_told_is_served_until_the_end(database_url: str) -> None:
    engine = make_engine(database_url, "test-runs")
    with serving(app_over(engine)) as address, http_client(base_url=address, timeout=60) as client:

        def runs() -> list[dict[str, object]]:
            found: list[dict[str, object]] = client.get("/api/v1/bootstraps").json()["items"]
            return found

        assert runs() == []
        with telling_the_state(database_url, "sales", Quiet()) as display:
            (one,) = runs()
            assert (one["state"], one["stage"], one["expected_end"]) == ("running", "planning", None)
            display.begin("counting values", 40)
            display.update(10)
            wait_for(lambda: runs()[0]["done"] == 10)
            (one,) = runs()
            assert (one["stage"], one["total"], one["state"]) == ("counting values", 40, "running")
            begun = states.query(database_url, "select extract(epoch from stage_started_at)::float from bootstrap_run")
            assert one["expected_end"] is not None
            display.update(20)
            wait_for(lambda: runs()[0]["done"] == 20)
            again = states.query(database_url, "select extract(epoch from stage_started_at)::float from bootstrap_run")
            assert again == begun, "a stage begins once"
            first = client.get("/api/v1/bootstraps")
            known = {"If-None-Match": first.headers["ETag"]}
            assert client.get("/api/v1/bootstraps", headers=known).status_code == 304
        assert runs() == [], "one that succeeds takes its row away"
        with pytest.raises(SourceError), telling_the_state(database_url, "sales", Quiet()):
            raise SourceError("orders.csv: line 7 has 3 cells.\nMend it.")
        (one,) = runs()
        assert (one["state"], one["fault"]) == ("failed", "orders.csv: line 7 has 3 cells")
        assert one["ended_at"] is not None
        with pytest.raises(SourceError), telling_the_state(database_url, "sales", Quiet(), withholds=True):
            raise SourceError("The value 'HUSH' is no integer.")
        assert "may quote values" in str(runs()[0]["fault"])
        assert "HUSH" not in str(runs())
        with telling_the_state(database_url, "sales", Quiet()):
            assert [one["state"] for one in runs()] == ["running"], "the next bootstrap takes the place of a failed one"
    engine.dispose()


def test_one_that_died_is_gone_and_its_bootstrap_would_go_on_without_being_heard(database_url: str) -> None:
    engine = make_engine(database_url, "test-runs")
    with told_bootstrap(database_url, "sales") as row:
        assert states.query(database_url, KILL) == [(True,)]
        with serving(app_over(engine)) as address:
            (one,) = httpx.get(f"{address}/api/v1/bootstraps", timeout=60).json()["items"]
        assert (one["state"], one["ended_at"], one["expected_end"]) == ("gone", None, None)
        row.tell("counting values", 1, 2)
    assert states.query(database_url, "select stage from bootstrap_run") == [("planning",)]
    engine.dispose()


def begins() -> Any:
    pytest.fail("it is refused before Spark starts")


def test_what_a_state_with_shards_cannot_withhold_is_refused_before_anything_is_read(
    database_url: str, tmp_path: Path
) -> None:
    tables = Tables({"orders": ["id"]})
    tables.add("orders", ["1"], ["2"])
    states.store(database_url, tables)
    states.deal(database_url, 2)
    (tmp_path / "t.csv").write_text("id\n1\n")
    with pytest.raises(ConflictError, match="A state with shards keeps all values"):
        run_bootstrap(begins, Options(str(tmp_path), "other", database_url, store_values="none"))


def test_a_bootstrap_that_is_refused_leaves_what_is_told_of_the_one_that_failed(
    database_url: str, tmp_path: Path
) -> None:
    tables = Tables({"orders": ["id"]})
    tables.add("orders", ["1"], ["2"])
    states.store(database_url, tables)
    ((name,),) = states.query(database_url, "select name from source")
    (tmp_path / "t.csv").write_text("id\n1\n")

    def fails() -> Any:
        raise StateError("Spark is away")

    with pytest.raises(StateError, match="Spark is away"):
        run_bootstrap(fails, Options(str(tmp_path), name, database_url, replace=True))
    with pytest.raises(StateError, match="was bootstrapped already"):
        run_bootstrap(begins, Options(str(tmp_path), name, database_url))
    assert states.query(database_url, "select stage, fault from bootstrap_run") == [("planning", "Spark is away")]

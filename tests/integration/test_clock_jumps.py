"""A clock that jumps: the consumer goes on, what is told of it stays true, and the overview says what has happened."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine

from service.clock_lookout import clock_check
from service.observe import ConsumerObserver
from service.serving_wiring import consumer_check
from service.store.database import make_engine
from tests import states
from tests.asking import http_client
from tests.following import Stream, consume, shop_tables
from tests.integration.serving import app_over, serving
from tests.watching import Clock

SET_BACK = "update state_version set committed_at = committed_at + interval '1 hour'"
"""What an hour's jump back leaves: all before it was committed an hour from now."""


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = make_engine(database_url, "test-clocks")
    yield made
    made.dispose()


def checks_of(answer: httpx.Response) -> dict[str, tuple[bool, str]]:
    return {one["name"]: (one["ok"], one["detail"]) for one in answer.json()["checks"]}


def test_a_consumer_goes_on_when_the_clock_is_set_back_and_the_overview_says_so(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    tables = shop_tables()
    states.store(database_url, tables)
    stream = Stream.empty(tmp_path, tables)
    wall, passed = Clock(), Clock()
    observer = ConsumerObserver(CollectorRegistry(), wall, passed)
    app = app_over(engine, ready_checks=(lambda: consumer_check(observer, 60.0),))
    app.state.overview_checks = (partial(clock_check, engine),)
    with serving(app) as address, http_client(base_url=address, timeout=60) as client:

        def overview() -> dict[str, Any]:
            answer = client.get("/api/v1/overview")
            return {**answer.json(), "checks": checks_of(answer)}

        def follow(number: str) -> None:
            stream.change("orders", None, [number, "1", "a change"])
            consume(database_url, stream, watch=observer)
            assert states.read(database_url) == states.expected(stream.tables)

        follow("20")
        assert overview()["checks"]["clock"] == (True, "the database's is as this machine's")

        states.execute(database_url, SET_BACK)
        wall.now -= 3600
        follow("21")
        found = overview()
        is_ok, told = found["checks"]["clock"]
        assert (is_ok, "its clock was set back" in told) == (False, True)
        assert sum(one["changes"] for one in found["minutes"]) == 1
        assert client.get("/readyz").status_code == 200, "what is applied does not depend on it"

        observer.waiting({("feed", 0): 7})
        passed.now += 61
        assert client.get("/readyz").status_code == 503, "nor is it hidden that nothing is applied any more"
        assert overview()["checks"]["consumer"][0] is False

        wall.now += 7200
        follow("22")
        assert client.get("/readyz").status_code == 200, "and a jump ahead is no lag"


@pytest.mark.parametrize("seconds", [-3600, 3600])
def test_a_database_whose_clock_is_another_is_told_of_by_the_doctor_s_rule(
    database_url: str, engine: Engine, seconds: int
) -> None:
    check = clock_check(engine, lambda: time.time() - seconds)
    told = re.search(r"its clock is ([+-]\d+) s from this machine's", check.detail)
    assert not check.ok
    assert told is not None, check.detail
    assert int(told[1]) == pytest.approx(seconds, abs=60), "but for how long the question took"
    assert clock_check(engine).ok


@pytest.mark.parametrize(("slow", "is_ok"), [((-90.0, 10.0), True), ((-90.0, -60.0), False)])
def test_a_database_that_answers_late_has_no_other_clock_for_that(
    engine: Engine, slow: tuple[float, float], is_ok: bool
) -> None:
    moments = iter(slow)
    assert clock_check(engine, lambda: time.time() + next(moments)).ok is is_ok

"""Own the proof that polled answers are as current as the state: from memory or not, nobody is told what is old."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from service.api.known_answers import PATHS
from service.store.database import make_engine
from tests.asking import http_client
from tests.hand_made_state import TABLE_1, HandMadeState
from tests.integration.serving import app_over, serving


@pytest.fixture
def state(database_url: str) -> Iterator[HandMadeState]:
    state = HandMadeState(database_url, TABLE_1)
    yield state
    state.close()


@pytest.fixture
def client(state: HandMadeState, database_url: str) -> Iterator[httpx.Client]:
    engine = make_engine(database_url, "test-polling")
    with serving(app_over(engine)) as address, http_client(base_url=address, timeout=60) as client:
        yield client
    engine.dispose()


def commit(state: HandMadeState) -> int:
    """Commit a version in which other INDs hold than in the one before."""
    kept = slice(state.version % 2, None)
    return state.commit({name: cells[kept] for name, cells in TABLE_1.items()})


@pytest.mark.parametrize("path", sorted(PATHS))
def test_an_answer_is_of_the_version_that_was_committed_last(
    client: httpx.Client, state: HandMadeState, path: str
) -> None:
    for _ in range(5):
        version = commit(state)
        first, again = client.get(path), client.get(path)
        assert first.json()["version"] == version
        assert (again.content, again.headers["ETag"]) == (first.content, f'"{version}"')
        other = client.get(path, params={"limit": 999})  # another question, so that its route is asked
        assert other.json()["items"] == first.json()["items"]
        known = client.get(path, headers={"If-None-Match": first.headers["ETag"]})
        assert (known.status_code, known.content) == (304, b"")
        assert {name: known.headers[name] for name in ("ETag", "Cache-Control")} == {
            "ETag": f'"{version}"',
            "Cache-Control": "no-cache",
        }


def test_nobody_is_told_of_an_old_version_while_others_commit(client: httpx.Client, state: HandMadeState) -> None:
    """What was committed before a question is in its answer, whoever asked the same a moment before."""

    def ask(_: int) -> tuple[int, int]:
        before = state.version - 1  # the newest may be on its way
        return before, client.get("/api/v1/uinds").json()["version"]

    with ThreadPoolExecutor(4) as clients:
        answers = clients.map(ask, range(200))
        for _ in range(20):
            commit(state)
        assert all(before <= told for before, told in answers)


def test_answers_from_memory_are_counted_under_their_route(client: httpx.Client) -> None:
    for _ in range(3):
        client.get("/api/v1/uinds", headers={"If-None-Match": '"1"'})
    assert 'http_requests_total{method="GET",route="/api/v1/uinds",status="304"} 3.0' in client.get("/metrics").text


def test_a_refused_question_is_refused_each_time(client: httpx.Client) -> None:
    for _ in range(2):
        answer = client.get("/api/v1/uinds", params={"limit": 0}, headers={"If-None-Match": '"1"'})
        assert (answer.status_code, answer.headers["Content-Type"]) == (422, "application/problem+json")

"""The stream, which generated questions leave out as it has no end, answers as the OpenAPI document says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.api import transition_stream
from service.api.transition_stream import TransitionStream
from service.store.database import make_engine
from service.usecases.access import Scope
from tests import states
from tests.asking import http_client
from tests.hand_made_state import TABLE_1, HandMadeState
from tests.integration.serving import app_over, serving

PATH = "/api/v1/stream"
KEY = "a key"
VERSIONS = 5
"""Of which the first two are no longer in the history."""


@pytest.fixture
def app(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FastAPI]:
    monkeypatch.setattr(transition_stream, "PING_SECONDS", 0.05)
    state = HandMadeState(database_url, TABLE_1)
    for version in range(2, VERSIONS + 1):
        state.commit({name: cells[version % 2 :] for name, cells in TABLE_1.items()})
    state.close()
    states.execute(
        database_url, "delete from ind_transition where version < 3; delete from state_version where version < 3"
    )
    engine = make_engine(database_url, "test-stream")
    yield app_over(engine, api_key=KEY)
    engine.dispose()


class Asked:
    """Ask for the stream, and hold each answer against the document."""

    def __init__(self, address: str) -> None:
        self.client = http_client(base_url=address, timeout=60, headers={"Authorization": f"Bearer {KEY}"})
        self._document = self.client.get("/api/v1/openapi.json").json()
        self._responses = self._document["paths"][PATH]["get"]["responses"]
        self.items = 0

    def status(self, headers: dict[str, str] | None = None, params: dict[str, Any] | None = None) -> int:
        """Give the status of an answer; its type, and its problem or what comes first fit the document."""
        with self.client.stream("GET", PATH, headers=headers, params=params) as answer:
            (media_type,) = self._responses[str(answer.status_code)]["content"]
            assert answer.headers["Content-Type"].partition(";")[0] == media_type
            if answer.status_code == 200:
                first = next(line for line in answer.iter_lines() if line.startswith(("data: ", ": ping")))
                for one in json.loads(first.removeprefix("data: ")).get("items", []) if first[0] == "d" else ():
                    self._validate("Transition", one)
                    self.items += 1
            else:
                self._validate("Problem", json.loads(answer.read()))
            return answer.status_code

    def _validate(self, name: str, found: Any) -> None:
        schema = {"$ref": f"#/components/schemas/{name}", "components": self._document["components"]}
        jsonschema_rs.validator_for(schema).validate(found)


@pytest.fixture
def asked(app: FastAPI) -> Iterator[Asked]:
    with serving(app) as address:
        asked = Asked(address)
        yield asked
        asked.client.close()


@pytest.mark.parametrize(
    ("status", "parts"),
    [
        (200, {}),
        (200, {"headers": {"Last-Event-ID": "3"}}),
        (200, {"headers": {"Last-Event-ID": "3.0.1"}}),
        (200, {"headers": {"Last-Event-ID": str(VERSIONS)}}),
        (200, {"params": {"since": 3}}),
        (200, {"params": {"since": 0}, "headers": {"Last-Event-ID": "3"}}),
        (404, {"headers": {"Last-Event-ID": str(VERSIONS + 1)}}),
        (404, {"params": {"since": VERSIONS + 1}}),
        (410, {"headers": {"Last-Event-ID": "1"}}),
        (410, {"params": {"since": 1}}),
        (422, {"headers": {"Last-Event-ID": "last"}}),
        (422, {"params": {"since": "first"}}),
        (422, {"params": {"since": 1 << 63}}),
        (422, {"params": {"limit": 1}}),
        (401, {"headers": {"Authorization": ""}}),
        (401, {"headers": {"Authorization": "Bearer another"}}),
    ],
)
def test_each_answer_is_one_that_the_document_has(asked: Asked, status: int, parts: dict[str, Any]) -> None:
    assert asked.status(**parts) == status
    assert (asked.items > 0) == (status == 200 and "3" in str(parts)), "what came since is sent first"


def test_whoever_may_read_may_follow(asked: Asked) -> None:
    for scope in Scope:
        made = asked.client.post("/api/v1/api-keys", json={"name": f"for {scope}", "scope": scope}).json()
        assert asked.status({"Authorization": f"Bearer {made['key']}"}) == 200


def test_one_client_too_many_is_answered_as_the_document_says(app: FastAPI, asked: Asked) -> None:
    app.state.stream = TransitionStream(app.state.reader, most_clients=0)
    assert asked.status() == 503


@settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(
    last=st.none()
    | st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=30)
    | st.from_regex(r"[0-9]{1,16}(\.[0-9]{1,10}){0,2}", fullmatch=True),
    since=st.none() | st.integers() | st.text(max_size=10),
)
def test_whatever_is_asked_is_answered_as_the_document_says(asked: Asked, last: str | None, since: Any) -> None:
    headers = {} if last is None else {"Last-Event-ID": last}
    params = {} if since is None else {"since": since}
    assert asked.status(headers, params) in (200, 404, 410, 422)

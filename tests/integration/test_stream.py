"""The stream of transitions: each once and in order, however often a client is cut, and never more than is bounded."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from service.api import transition_stream
from service.api.transition_stream import EVENT_BYTES, Event, Place, Ring, version_event
from service.store.database import make_engine
from service.store.masking import mask
from tests import states
from tests.hand_made_state import TABLE_1, HandMadeState
from tests.integration.serving import app_over, serving
from tests.waiting import wait_for

PATH = "/api/v1/stream"
MANY = 25
"""Versions after the first, of which every third has transitions."""


@pytest.fixture
def app(database_url: str) -> Iterator[FastAPI]:
    """Make the service over the paper's example at version 1."""
    HandMadeState(database_url, TABLE_1).close()
    engine = make_engine(database_url, "test-stream")
    yield app_over(engine)
    engine.dispose()


@pytest.fixture
def address(app: FastAPI) -> Iterator[str]:
    with serving(app) as address:
        yield address


def commit(url: str, version: int, transitions: int, witness: str = "null") -> None:
    """Commit a version with so many transitions of pairs that exist, and one witness."""
    states.execute(
        url,
        f"insert into state_version (version, generation, kind) values ({version}, 1, 'batch');"
        "insert into ind_transition (version, dependent_id, referenced_id, kind, witness_key, witness_value)"
        f" select {version}, a.attribute_id, b.attribute_id, 'broke', gen_random_uuid(), {witness}"
        f" from attribute a, attribute b where a.attribute_id <> b.attribute_id order by 2, 3 limit {transitions}",
    )


@contextmanager
def following(address: str, **parts: Any) -> Iterator[Iterator[dict[str, str]]]:
    """Follow the stream; give its events as they come, each with its `event`, `id` and `data`."""
    with httpx.stream("GET", f"{address}{PATH}", timeout=60, **parts) as answer:
        assert answer.status_code == 200, answer.read()
        yield events_of(answer)


def events_of(answer: httpx.Response) -> Iterator[dict[str, str]]:
    """Read events by the standard's rules; comments and the time to wait are none."""
    event: dict[str, str] = {}
    for line in answer.iter_lines():
        name, _, value = line.partition(": ")
        if not line and "data" in event:
            yield event
        if not line:
            event = {}
        elif name:
            event[name] = value


def pairs(event: dict[str, str]) -> list[tuple[int, int, int]]:
    """Name the transitions of an event."""
    items = json.loads(event["data"]).get("items", [])
    return [(one["version"], one["dependent"]["attribute_id"], one["referenced"]["attribute_id"]) for one in items]


def all_pairs(address: str, since: int = 0) -> list[tuple[int, int, int]]:
    """List the transitions as /changes does."""
    items = httpx.get(f"{address}/api/v1/changes", params={"since": since, "limit": 1000}, timeout=60).json()["items"]
    return [(one["version"], one["dependent"]["attribute_id"], one["referenced"]["attribute_id"]) for one in items]


def test_what_a_mask_has_cut_is_not_sent_from_memory(address: str, database_url: str) -> None:
    """It was sent to one who stays, and is kept for those who come back."""
    with following(address) as events:
        assert next(events)["id"] == "1"
        commit(database_url, 2, 1, "'ada@x'")
        assert "ada@x" in next(events)["data"]
        mask(database_url, "paper.r.A", "none", print)
        assert next(events)["id"] == "3"
        with following(address, headers={"Last-Event-ID": "1"}) as late:
            (broke,) = json.loads(next(late)["data"])["items"]
            assert (broke["version"], broke["witness_value"]) == (2, None)
            assert next(late)["id"] == "3"
        commit(database_url, 4, 1)
        assert pairs(next(events)) == all_pairs(address, 3), "who stays is not cut off"


def test_who_is_new_is_told_the_version_and_then_what_happens(address: str, database_url: str) -> None:
    with following(address) as events:
        first = next(events)
        assert (first["event"], first["id"], json.loads(first["data"])) == ("version", "1", {"version": 1})
        commit(database_url, 2, 0)
        assert next(events)["id"] == "2"
        commit(database_url, 3, 2)
        broke = next(events)
        assert (broke["event"], broke["id"]) == ("transitions", "3")
        assert pairs(broke) == all_pairs(address, 2)
        told = httpx.get(f"{address}/api/v1/changes", params={"since": 2}, timeout=60).json()["items"]
        assert json.loads(broke["data"])["items"] == told


def test_nobody_between_may_change_or_keep_it(address: str) -> None:
    headers = {"Accept-Encoding": "gzip, deflate, br"}
    with httpx.stream("GET", f"{address}{PATH}", headers=headers, timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert "Content-Encoding" not in answer.headers
        assert answer.headers["Cache-Control"] == "no-store, no-transform"


@pytest.mark.parametrize("page", [1, 3, 200])
@pytest.mark.parametrize("ring_bytes", [0, 4 << 20])
def test_a_client_that_is_cut_at_random_sees_each_transition_once_and_in_order(
    app: FastAPI, database_url: str, monkeypatch: pytest.MonkeyPatch, page: int, ring_bytes: int
) -> None:
    """Also when no event is kept, so that each comes from the state, and when a version comes in parts."""
    monkeypatch.setattr(transition_stream, "PAGE", page)
    monkeypatch.setattr(transition_stream, "RING_BYTES", ring_bytes)
    monkeypatch.setattr(transition_stream, "LOOK_SECONDS", 0.01)
    chance = random.Random(page)
    seen: list[tuple[int, int, int]] = []
    last = "0"
    with serving(app) as address:
        writing = threading.Thread(
            target=lambda: [commit(database_url, v, 5 if v % 3 == 0 else 0) for v in range(2, MANY + 2)]
        )
        writing.start()
        cuts = 0
        while last != str(MANY + 1):
            with following(address, headers={"Last-Event-ID": last}) as events:
                for event in events:
                    seen += pairs(event)
                    last = event["id"]
                    if chance.random() < 0.3 or last == str(MANY + 1):
                        cuts += 1
                        break
        writing.join()
        assert seen == all_pairs(address)
    assert cuts > 3
    assert len(seen) > MANY


def test_it_pings_while_nothing_happens(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transition_stream, "PING_SECONDS", 0.05)
    with serving(app) as address, httpx.stream("GET", f"{address}{PATH}", timeout=60) as answer:
        assert ": ping" in answer.iter_lines()


def test_more_clients_than_it_bears_are_told_to_come_later(app: FastAPI) -> None:
    app.state.stream = transition_stream.TransitionStream(app.state.reader, most_clients=2)
    with serving(app) as address:
        with ExitStack() as two:
            streams = [two.enter_context(following(address)) for _ in range(2)]
            assert [next(one)["id"] for one in streams] == ["1", "1"]
            refused = httpx.get(f"{address}{PATH}", timeout=60)
            assert (refused.status_code, refused.headers["Retry-After"]) == (503, "2")
            assert refused.json()["type"] == "/docs#too-many-streams"
        # Those who left make room.
        wait_for(lambda: not app.state.stream.is_full)
        with following(address) as events:
            assert next(events)["id"] == "1"


def test_it_ends_with_the_server(app: FastAPI) -> None:
    with ExitStack() as ended, serving(app) as address:
        events = ended.enter_context(following(address))
        next(events)
        ended.callback(lambda: list(events) == [] or pytest.fail("something came after the end"))


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ({"headers": {"Last-Event-ID": "7"}}, 404),
        ({"params": {"since": 7}}, 404),
        ({"headers": {"Last-Event-ID": "1 or 2"}}, 422),
        ({"params": {"since": -1}}, 422),
        ({"params": {"from": 1}}, 422),
    ],
)
def test_a_place_that_is_none_is_refused(address: str, parts: dict[str, Any], status: int) -> None:
    assert httpx.get(f"{address}{PATH}", timeout=60, **parts).status_code == status


def test_a_state_that_was_put_back_ends_the_streams_of_the_later_one(address: str, database_url: str) -> None:
    commit(database_url, 2, 1)
    with following(address) as events:
        assert next(events)["id"] == "2"
        states.execute(
            database_url, "delete from ind_transition where version = 2; delete from state_version where version = 2"
        )
        assert list(events) == []


def test_history_that_ends_in_front_of_what_was_sent_ends_the_streams(
    app: FastAPI, address: str, database_url: str
) -> None:
    """Who comes back is told what is wrong, who is new is served, and no defect is logged."""
    with following(address) as events:
        assert next(events)["id"] == "1"
        reading = app.state.stream._reading
        states.execute(
            database_url,
            "insert into state_version (version, generation, kind) select n, 1, 'batch' from generate_series(2, 9) n;"
            "delete from state_version where version < 8",
        )
        assert list(events) == []
    wait_for(reading.done)
    assert reading.exception() is None
    gone = httpx.get(f"{address}{PATH}", headers={"Last-Event-ID": "1"}, timeout=60)
    assert (gone.status_code, gone.json()["type"]) == (410, "/docs#history-gone")
    with following(address) as events:
        assert next(events)["id"] == "9"


def test_the_ring_keeps_the_newest_of_versions_in_which_nothing_happened() -> None:
    """There are as many as batches: a service would grow by them for hours."""
    ring = Ring(Place(1))
    turned = Event(Place(5, 1, 2), Place(5), b"5")
    for version in range(2, 9):
        ring.put([turned] if version == 5 else [version_event(version)])
    assert ring.after(Place(1)) == [turned, version_event(8)]
    assert ring.after(Place(5)) == ring.after(Place(7)) == [version_event(8)]
    assert ring.after(Place(8)) == []


def test_the_ring_forgets_the_oldest_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transition_stream, "RING_BYTES", 2 * (EVENT_BYTES + 10))
    ring = Ring(Place(1))
    made = [Event(Place(v, 1, 2), Place(v), b"x" * 10) for v in (3, 5, 7)]
    ring.put(made)
    assert (ring.begin, ring.end) == (Place(3), Place(7))
    assert ring.after(Place(2)) is None
    assert ring.after(Place(4)) == made[1:]
    monkeypatch.setattr(transition_stream, "CHUNK_BYTES", 9)
    assert ring.after(Place(4)) == made[1:2]
    assert ring.after(Place(5)) == [made[2]]
    assert ring.after(Place(5, 1, 2)) is None  # inside an event
    assert ring.after(Place(7)) == ring.after(Place(9)) == []

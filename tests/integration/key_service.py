"""Own a service that wants keys, for tests: its time, a key that is made, somebody who is logged in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from service.api.access import COOKIE
from service.store.api_keys import PostgresApiKeys
from service.store.database import make_engine
from service.usecases.access import AccessControl
from tests.asking import http_client
from tests.integration.serving import app_over, serving

KEY = "a key, with / and é"
BEARER = {"Authorization": f"Bearer {KEY}".encode()}
SESSION, KEYS = "/api/v1/session", "/api/v1/api-keys"


class Clock:
    """Be the time of a service, moved by the test."""

    def __init__(self) -> None:
        self.time, self.seconds = datetime(2026, 11, 22, 12, tzinfo=UTC), 1000.0

    def pass_by(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)
        self.seconds += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@contextmanager
def served(
    url: str, clock: Clock, api_key: str | None = KEY, **options: Any
) -> Iterator[tuple[httpx.Client, AccessControl]]:
    """Serve a database, its time the clock's; give a client and what knows its keys."""
    engine = make_engine(url, "test-access")
    keys = PostgresApiKeys(engine)
    access = AccessControl(keys, api_key, timedelta(hours=1), now=lambda: clock.time, monotonic=lambda: clock.seconds)
    with (
        serving(app_over(engine, access=access, **options)) as address,
        http_client(base_url=address, timeout=60) as client,
    ):
        yield client, access
    engine.dispose()


@pytest.fixture
def client(database_url: str, clock: Clock) -> Iterator[httpx.Client]:
    """Serve an empty state with a key in the environment."""
    with served(database_url, clock) as (client, _):
        yield client


def made(client: httpx.Client, name: str, scope: str = "read", days: int | None = 90) -> dict[str, str]:
    """Have a key made, and give the header that shows it."""
    answer = client.post(KEYS, json={"name": name, "scope": scope, "days": days}, headers=BEARER)
    assert answer.status_code == 201, answer.text
    return {"Authorization": f"Bearer {answer.json()['key']}"}


def kind_of(answer: httpx.Response) -> str:
    assert answer.headers["Content-Type"] == "application/problem+json"
    found: str = answer.json()["type"]
    return found.removeprefix("/docs#")


def logged_in(client: httpx.Client, key: str = KEY) -> str:
    """Log the client in, which then has the cookie; give the token for its writes."""
    answer = client.post(SESSION, json={"key": key})
    assert answer.status_code == 200, answer.text
    token: str = answer.json()["csrf_token"]
    return token


def cookie_of(client: httpx.Client) -> str:
    """Name the cookie that a service gives for a session: it has its port, as cookies are of a host."""
    return f"{COOKIE}_{client.base_url.port}"

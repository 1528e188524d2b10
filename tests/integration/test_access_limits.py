"""Own the proof that no client takes more than its share, and that every answer is kept from other pages."""

from __future__ import annotations

import gzip
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api import access as access_module
from service.api.limits import MOST_BODY_BYTES, MOST_CLIENTS, MOST_HEADER_BYTES, MOST_TARGET_BYTES, TokenBuckets
from service.api.security_headers import HEADERS
from service.core.sketches.column import ColumnSketch
from service.store.api_keys import PostgresApiKeys
from service.store.database import make_engine
from service.usecases.access import BELIEVED_SECONDS, AccessControl, Scope
from tests.asking import http_client
from tests.integration.serving import app_over, serving
from tests.waiting import BOUND_SECONDS

KEY = "a-key"
BEARER = {"Authorization": f"Bearer {KEY}"}
CONTRACTS = "/api/v1/contracts"


@contextmanager
def served(url: str, **options: Any) -> Iterator[httpx.Client]:
    engine = make_engine(url, "test-limits")
    with (
        serving(app_over(engine, api_key=KEY, **options)) as address,
        http_client(base_url=address, timeout=60) as client,
    ):
        yield client
    engine.dispose()


@pytest.fixture
def client(database_url: str) -> Iterator[httpx.Client]:
    with served(database_url) as client:
        yield client


def sent(client: httpx.Client, *parts: bytes) -> bytes:
    """Send bytes as they are, and give all that is answered until the service ends the connection."""
    with socket.create_connection((client.base_url.host, client.base_url.port), BOUND_SECONDS) as connection:
        for part in parts:
            connection.sendall(part)
        answer = b""
        while received := connection.recv(65_536):
            answer += received
        return answer


@given(st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=60))
def test_a_bucket_gives_no_more_than_burst_and_rate(steps: list[tuple[float, bool]]) -> None:
    """In no span of time are there more than `burst` and `rate` times the span; who waits as told is let through."""
    now = 0.0
    buckets = TokenBuckets(2.0, 5.0, lambda: now)
    taken: list[float] = []
    for seconds, waits in steps:
        now += seconds
        waiting = buckets.take("a")
        if waiting and waits:
            now += waiting * 1.000001
            assert buckets.take("a") == 0
            taken.append(now)
        elif not waiting:
            taken.append(now)
    for first, begin in enumerate(taken):
        for last, end in enumerate(taken[first:], 1):
            assert last <= 5 + 2 * (end - begin) + 1e-3


def test_buckets_are_apart_and_few() -> None:
    buckets = TokenBuckets(1.0, 1.0, lambda: 0.0)
    assert buckets.take("a") == 0
    assert buckets.take("a") == 1
    assert buckets.take("b") == 0
    buckets.give_back("b")
    assert buckets.take("b") == 0
    for number in range(MOST_CLIENTS):
        buckets.take(str(number))
    assert buckets.take("a") == 0, "the one that asked before all of those is forgotten"


def test_who_asks_too_often_is_told_when_to_go_on_and_others_are_let_through(database_url: str) -> None:
    with served(database_url, requests_per_second=0.001) as client:
        engine = make_engine(database_url, "test-limits")
        _, key = AccessControl(PostgresApiKeys(engine), None, timedelta(hours=1)).create("other", Scope.READ, None)
        engine.dispose()
        for header in BEARER, {"Authorization": f"Bearer {key}"}:
            assert client.get("/api/v1/state", headers=header).status_code == 200
            refused = client.get("/api/v1/state", headers=header)
            assert (refused.status_code, refused.json()["type"]) == (429, "/docs#too-many-requests")
            assert 1 <= int(refused.headers["Retry-After"]) <= 1000
        assert client.get("/healthz").status_code == client.get("/").status_code == 200


def test_nobody_finds_a_key_by_trying(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "STRANGERS_BURST", 3.0)
    monkeypatch.setattr(access_module, "STRANGERS_RATE", 0.001)
    with served(database_url) as client:
        assert client.get("/api/v1/state").status_code == 401
        assert client.get("/api/v1/state", headers={"Authorization": "Bearer x"}).status_code == 401
        assert client.post("/api/v1/session", json={"key": "x"}).status_code == 401
        for _ in range(3):
            assert client.post("/api/v1/session", json={"key": KEY}).status_code == 429
            assert client.get("/api/v1/state", headers={"Authorization": "Bearer x"}).status_code == 429
        assert client.get("/api/v1/state", headers=BEARER).status_code == 200, "who has the key notices nothing of it"


def test_a_revoked_key_is_found_out_though_its_address_may_try_no_more(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a good one of that address goes on."""
    monkeypatch.setattr(access_module, "STRANGERS_BURST", 3.0)
    monkeypatch.setattr(access_module, "STRANGERS_RATE", 0.001)
    seconds = 1000.0
    engine = make_engine(database_url, "test-limits")
    control = AccessControl(PostgresApiKeys(engine), KEY, timedelta(hours=1), monotonic=lambda: seconds)
    elsewhere = AccessControl(PostgresApiKeys(engine), KEY, timedelta(hours=1))
    headers = [
        {"Authorization": f"Bearer {elsewhere.create(name, Scope.READ, None)[1]}"} for name in ("revoked", "good")
    ]
    with serving(app_over(engine, access=control)) as address, http_client(base_url=address, timeout=60) as client:

        def answers() -> list[int]:
            return [client.get("/api/v1/state", headers=header).status_code for header in headers]

        assert answers() == [200, 200]
        for _ in range(5):
            wrong = client.get("/api/v1/state", headers={"Authorization": "Bearer wrong"}).status_code
        assert wrong == 429
        elsewhere.revoke("revoked")
        seconds += BELIEVED_SECONDS
        assert answers() == [401, 200]
        seconds += BELIEVED_SECONDS
        assert answers() == [429, 200], "who is revoked is a stranger from then on"
    engine.dispose()


def test_many_good_keys_of_one_address_are_no_strangers(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "STRANGERS_BURST", 1.0)
    monkeypatch.setattr(access_module, "STRANGERS_RATE", 0.001)
    with served(database_url) as client:
        for number in range(5):
            made = client.post("/api/v1/api-keys", json={"name": f"k{number}"}, headers=BEARER).json()["key"]
            header = {"Authorization": f"Bearer {made}"}
            assert client.get("/api/v1/state", headers=header).status_code == 200


TAKING_JSON = [CONTRACTS, "/api/v1/session", "/api/v1/corpora", "/api/v1/joinable/1/cancel"]


@pytest.mark.parametrize("path", [*TAKING_JSON, "/healthz", "/nowhere"])
def test_a_body_that_is_too_large_is_not_read(client: httpx.Client, path: str) -> None:
    """Whether its length is said before, or not; and though nobody asks for a body here."""
    body = b"[" + b" " * MOST_BODY_BYTES
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n".encode()
    head += b"Content-Type: application/json\r\n"
    said = sent(client, head + f"Content-Length: {len(body)}\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.1 413"), said[:100]
    if path in TAKING_JSON:
        chunk = f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
        said = sent(client, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk)
        assert said.startswith(b"HTTP/1.1 413"), said[:100]


def test_a_body_that_does_not_come_ends_the_request(database_url: str) -> None:
    with served(database_url, body_seconds=0.2) as client:
        head = f"POST {CONTRACTS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n".encode()
        said = sent(client, head + b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
        assert said.startswith(b"HTTP/1.1 408"), said[:100]
        assert client.get("/api/v1/state", headers=BEARER).status_code == 200


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, identity", "x"])
@pytest.mark.parametrize(
    ("method", "path", "media_type"),
    [
        ("POST", CONTRACTS, "application/json"),
        ("PUT", "/api/v1/sketches/sketch:a", "application/octet-stream"),
        ("POST", "/api/v1/joinable", "text/csv"),
    ],
)
def test_a_packed_body_is_refused(client: httpx.Client, method: str, path: str, media_type: str, encoding: str) -> None:
    """What would unpack to a gigabyte is never unpacked."""
    headers = {**BEARER, "Content-Type": media_type, "Content-Encoding": encoding}
    refused = client.request(method, path, content=gzip.compress(b" " * 10_000_000), headers=headers)
    assert refused.status_code == 415
    assert "Content-Encoding" in refused.json()["detail"]


def test_what_is_very_long_is_refused_plainly(client: httpx.Client) -> None:
    fits = "x" * 4096
    assert client.get("/api/v1/attributes", params={"contains": fits}, headers=BEARER).status_code == 200
    long = b"x" * MOST_TARGET_BYTES
    for target in (b"/api/v1/attributes?contains=" + long, b"/api/v1/uinds/" + long + b"/y", b"/" + long):
        said = sent(client, b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 414"), said[:100]
        assert b"application/problem+json" in said
    refused = client.get("/api/v1/state", headers={**BEARER, "X-Long": "x" * MOST_HEADER_BYTES})
    assert (refused.status_code, refused.headers["Content-Type"]) == (431, "application/problem+json")
    refused = client.get("/api/v1/state", headers={"Authorization": f"Bearer subsetd_{'0' * 8}_{'x' * 20_000}"})
    assert refused.status_code == 401


ASKED = f"GET /api/v1/state HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n".encode()
CHUNKED = (
    f"POST {CONTRACTS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    "Transfer-Encoding: chunked\r\nConnection: close\r\n"
).encode()
CREDENTIALS = f"Authorization: Bearer {KEY}\r\n".encode()


@pytest.mark.parametrize(
    "begun",
    [
        b"GET /" + b"x" * 1000,
        ASKED + b"X-Long: ",
        CHUNKED + CREDENTIALS + b"\r\n1\r\n[\r\n0\r\nX-Trailer: ",
    ],
    ids=["target", "header", "trailer"],
)
def test_what_never_ends_is_not_kept(client: httpx.Client, begun: bytes) -> None:
    with socket.create_connection((client.base_url.host, client.base_url.port), BOUND_SECONDS) as connection:
        connection.sendall(begun)
        steps, enough = 0, 20
        # A service that is held up, and not one that keeps it all, may say nothing to what is enough.
        while not select.select([connection], [], [], 0.1 if steps < enough else BOUND_SECONDS)[0]:
            assert steps < enough
            with suppress(ConnectionError):  # it may have ended meanwhile, and what it said is there to be read
                connection.sendall(b"x" * 32_768)
            steps += 1
        assert connection.recv(65_536).startswith(b"HTTP/1.1 431")
        assert steps >= MOST_HEADER_BYTES // 32_768


def test_what_follows_a_body_is_no_header(client: httpx.Client) -> None:
    chunks = b"\r\n2\r\n[]\r\n0\r\n"
    assert sent(client, CHUNKED + CREDENTIALS + chunks + b"\r\n").startswith(b"HTTP/1.1 422")
    assert sent(client, CHUNKED + chunks + CREDENTIALS + b"\r\n").startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize(
    "asked",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.0\r\nHost: a\r\nHost: localhost\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: 1\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A : 1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: \x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer _\x01_\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_what_two_readers_could_take_differently_is_refused(client: httpx.Client, asked: bytes) -> None:
    """So that nothing is a request to the service that was none to a proxy before it."""
    assert sent(client, asked).startswith(b"HTTP/1.1 400")


def test_a_client_that_would_speak_something_newer_is_answered_and_may_go_on(client: httpx.Client) -> None:
    said = sent(
        client,
        ASKED + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
        ASKED + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n",
        ASKED + b"Connection: close\r\n\r\n",
    )
    assert said.count(b"HTTP/1.1 200 OK") == 3


def test_every_answer_is_shut_in(client: httpx.Client) -> None:
    answers = [
        client.get("/"),
        client.get("/dashboard/style.css"),
        client.get("/healthz"),
        client.get("/nowhere", headers=BEARER),
        client.get("/api/v1/state"),
        client.get("/docs", headers=BEARER),
        client.get("/metrics", headers=BEARER),
        client.get("/api/v1/openapi.json", headers=BEARER),
        client.put("/healthz"),
        client.post("/api/v1/contracts", content=b"{", headers=BEARER),
        client.post("/api/v1/contracts", headers={**BEARER, "Content-Encoding": "gzip"}),
        client.get("/api/v1/uinds", headers={**BEARER, "If-None-Match": "*"}),
        client.post("/api/v1/session", json={"key": KEY}),
    ]
    assert {one.status_code for one in answers} >= {200, 304, 401, 404, 405, 415, 422}
    for answer in answers:
        missing = [name for name in HEADERS if name not in answer.headers]
        assert missing == [], answer.request.url
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        is_polled = "ETag" in answer.headers
        assert answer.headers["Cache-Control"] == ("no-cache" if is_polled else "no-store")


INJECTED = [
    "<script>alert(1)</script>",
    "'; drop table contract; --",
    "a\r\nX-Injected: 1",
    "../../etc/passwd",
    "\u202e",
]


@pytest.mark.parametrize("name", INJECTED)
def test_names_and_values_stay_what_they_are(client: httpx.Client, name: str) -> None:
    """As parameters, in paths and in bodies: no answer has another type or header by them, and no statement breaks."""
    quoted = quote(name, safe="")
    octets = {**BEARER, "Content-Type": "application/octet-stream"}
    sketch = f"/api/v1/sketches/{quote('sketch:' + name, safe='')}"
    side = [["s", "t", name]]
    made = client.put(sketch, content=ColumnSketch(4, 1, 0).to_bytes(), headers=octets)
    answers = [
        made,
        client.get(sketch, headers=BEARER),
        client.get("/api/v1/sketches", headers=BEARER),
        client.get("/api/v1/attributes", params={"table": name, "contains": name}, headers=BEARER),
        client.get(f"/api/v1/uinds/{quoted}/{quoted}", headers=BEARER),
        client.get("/api/v1/graph/export", params={"format": name}, headers=BEARER),
        client.get("/api/v1/foreign-keys/export", params={"format": name}, headers=BEARER),
        client.post(CONTRACTS, json={"dependent": side, "referenced": side}, headers=BEARER),
        client.post("/api/v1/corpora", json={"name": name, "kind": "csv", "location": "/nowhere"}, headers=BEARER),
        client.get(f"/api/v1/corpora/{quoted}", headers=BEARER),
        client.get("/api/v1/corpora", headers=BEARER),
        client.post("/api/v1/api-keys", json={"name": name}, headers=BEARER),
        client.delete(f"/api/v1/api-keys/{quoted}", headers=BEARER),
        client.get("/api/v1/write-log", headers=BEARER),
    ]
    for answer in answers:
        assert answer.status_code < 500, answer.text
        assert "X-Injected" not in answer.headers
        assert "html" not in answer.headers["Content-Type"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    if made.status_code == 201:
        names = [one["column"]["name"] for one in answers[2].json()["items"]]
        assert names == [f"sketch:{name}"]
    assert client.get(CONTRACTS, headers=BEARER).json()["items"] == []

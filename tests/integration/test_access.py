"""Own the proof that a key, once set, is wanted everywhere but for health and the page that asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection

import httpx
import pytest

from service.api.access import OPEN_PATHS
from service.core.sketches.column import ColumnSketch
from service.store.database import make_engine
from tests.integration.serving import app_over, serving

KEY = "a key, with / and é"
BEARER = {"Authorization": f"Bearer {KEY}".encode()}


@pytest.fixture
def client(database_url: str) -> Iterator[httpx.Client]:
    """Serve an empty state with a key."""
    engine = make_engine(database_url, "test-access")
    with serving(app_over(engine, api_key=KEY)) as address, httpx.Client(base_url=address, timeout=60) as client:
        yield client
    engine.dispose()


def test_every_path_but_health_and_readiness_wants_the_key(client: httpx.Client) -> None:
    paths = client.get("/api/v1/openapi.json", headers=BEARER).json()["paths"]
    for path in [*paths, "/docs", "/api/v1/openapi.json", "/nowhere", "/%68ealthz", "/healthz/", "/dashboard"]:
        answer = client.get(path)
        if path in OPEN_PATHS:
            assert answer.status_code in (200, 503)
        else:
            assert answer.status_code == 401, path
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert answer.headers["Content-Type"] == "application/problem+json"
            assert answer.json()["type"] == "/docs#key-required"


def test_the_dashboard_needs_no_key_for_its_own_files_and_no_path_leads_out_of_them(client: httpx.Client) -> None:
    assert client.get("/").status_code == client.get("/dashboard/app.js").status_code == 200
    tricks = ["../api/v1/state", "..%2Fapp.py", "%2e%2e/docs", "", "/", "../dashboard/../docs", "%00", "app.js/"]
    for trick in tricks:  # as they are: httpx would tidy them up
        connection = HTTPConnection(client.base_url.host, client.base_url.port, timeout=60)
        connection.request("GET", f"/dashboard/{trick}")
        assert connection.getresponse().status == 404, trick
        connection.close()


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_nothing_is_written_without_the_key(client: httpx.Client, method: str) -> None:
    path, content = "/api/v1/sketches/sketch:a", ColumnSketch(4, 1, 0).to_bytes()
    headers = {"Content-Type": "application/octet-stream"}
    assert client.request(method, path, content=content, headers=headers).status_code == 401
    assert client.put(path, content=content, headers=headers | BEARER).status_code == 201
    assert client.request(method, path, content=content, headers=headers).status_code == 401
    assert client.get(path, headers=BEARER).content == content


@pytest.mark.parametrize(
    "header", [b"", b"Bearer", b"Bearer x", BEARER["Authorization"] + b"x", b"Basic " + KEY.encode()]
)
def test_nothing_but_the_key_will_do(client: httpx.Client, header: bytes) -> None:
    assert client.get("/api/v1/state", headers={"Authorization": header}).status_code == 401
    assert client.get("/api/v1/state", headers=BEARER).status_code == 200
    assert client.get("/api/v1/state", headers={"Authorization": b"bearer  " + KEY.encode()}).status_code == 200


def test_a_refusal_is_counted(client: httpx.Client) -> None:
    client.get("/api/v1/state")
    counted = 'http_requests_total{method="GET",route="unmatched",status="401"} 1.0'
    assert counted in client.get("/metrics", headers=BEARER).text


def test_the_document_tells_of_the_key_where_it_is_wanted(client: httpx.Client) -> None:
    document = client.get("/api/v1/openapi.json", headers=BEARER).json()
    assert document["components"]["securitySchemes"] == {"key": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert ("401" in operation["responses"]) == ("security" in operation) == (path not in OPEN_PATHS)

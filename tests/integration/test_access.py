"""Own the proof of who may ask: each route wants its scope, and only a good key or session has one."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from http.client import HTTPConnection

import httpx
import pytest
from sqlalchemy import make_url
from structlog.testing import capture_logs

from service.api.access import COOKIE, CSRF_HEADER
from service.core.sketches.column import ColumnSketch
from service.store.database import make_engine
from service.store.embedded import EmbeddedPostgres
from service.usecases.access import BELIEVED_SECONDS, OPEN_SECONDS, AccessError, Credential, Scope
from tests import states
from tests.asking import http_client
from tests.hand_made_state import TABLE_1, HandMadeState
from tests.integration.key_service import (
    BEARER,
    KEY,
    KEYS,
    SESSION,
    Clock,
    client,
    clock,
    cookie_of,
    kind_of,
    logged_in,
    made,
    served,
)
from tests.integration.serving import app_over, serving
from tests.postgres import administer

__all__ = ["client", "clock"]

OPEN_PATHS = {"/healthz", "/readyz"}

ADMIN_WRITES = {
    ("post", "/api/v1/corpora"),
    ("patch", "/api/v1/corpora/{corpus}"),
    ("delete", "/api/v1/corpora/{corpus}"),
    ("post", "/api/v1/api-keys"),
    ("delete", "/api/v1/api-keys/{name}"),
}
ADMIN_READS = {("get", "/api/v1/api-keys"), ("get", "/api/v1/write-log")}
READING_POSTS = {
    ("post", "/api/v1/joinable"),
    ("post", "/api/v1/joinable/{search_id}/cancel"),
    ("delete", "/api/v1/session"),
}


def test_each_route_wants_its_scope_and_nothing_less(client: httpx.Client) -> None:
    """Walk over all routes of the document: without a key, with each scope, and with a key that has expired."""
    paths = client.get("/api/v1/openapi.json", headers=BEARER).json()["paths"]
    by_scope = {scope: made(client, scope.value, scope.value) for scope in Scope}
    walked = 0
    for path, operations in paths.items():
        for method, operation in operations.items():
            target = re.sub(r"\{\w+\}", "1", path)
            if path in OPEN_PATHS or (method, path) == ("post", SESSION):
                assert "security" not in operation
                continue
            if (method, path) in ADMIN_WRITES | ADMIN_READS:
                needed = Scope.ADMIN
            elif method == "get" or (method, path) in READING_POSTS:
                needed = Scope.READ
            else:
                needed = Scope.WRITE
            assert operation["security"][0] == {"key": [needed.value]}, f"the document says so of {method} {path}"
            assert {"401", "403", "429"} <= operation["responses"].keys()

            refused = client.request(method, target)
            assert (refused.status_code, kind_of(refused)) == (401, "key-required"), (method, path)
            assert refused.headers["WWW-Authenticate"] == "Bearer"
            for scope, header in by_scope.items():
                if not scope.holds(needed):
                    refused = client.request(method, target, headers=header)
                    assert (refused.status_code, kind_of(refused)) == (403, "scope-required"), (method, path, scope)
                    assert f"scope {needed.value}" in refused.json()["detail"]
            if (method, path) != ("get", "/api/v1/stream"):  # has no end
                passed = client.request(method, target, headers=by_scope[needed])
                assert passed.status_code not in (401, 403), (method, path, passed.text)
            walked += 1
    assert walked > 60


def test_what_is_no_route_wants_a_key_as_well(client: httpx.Client) -> None:
    for path in ("/docs", "/api/v1/openapi.json", "/nowhere", "/%68ealthz", "/healthz/", "/dashboard", "/metrics"):
        assert client.get(path).status_code == 401, path
    assert client.get("/healthz").status_code == 200
    assert client.get("/nowhere", headers=BEARER).status_code == 404


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
    reader = made(client, "reader")
    assert client.request(method, path, content=content, headers=headers | reader).status_code == 403
    assert client.get(path, headers=reader).content == content


@pytest.mark.parametrize(
    "header",
    [
        b"", b"Bearer", b"Bearer x", BEARER["Authorization"] + b"x", b"Basic " + KEY.encode(), b"Bearer subsetd_",
        b"Bearer subsetd_00000000_x", b"Bearer \xff\xfe", b"Bearer subsetd_' or true --_x",
    ],
)  # fmt: skip
def test_nothing_but_the_key_will_do(client: httpx.Client, header: bytes) -> None:
    assert client.get("/api/v1/state", headers={"Authorization": header}).status_code == 401
    assert client.get("/api/v1/state", headers=BEARER).status_code == 200
    assert client.get("/api/v1/state", headers={"Authorization": b"bearer  " + KEY.encode()}).status_code == 200


def test_the_beginning_of_a_key_is_not_the_key(client: httpx.Client) -> None:
    whole = made(client, "reader")["Authorization"]
    assert client.get("/api/v1/state", headers={"Authorization": whole}).status_code == 200
    for cut in range(1, 43, 7):
        refused = client.get("/api/v1/state", headers={"Authorization": whole[:-cut]})
        assert (refused.status_code, kind_of(refused)) == (401, "unknown-key")


def test_only_hashes_are_kept(client: httpx.Client, database_url: str) -> None:
    key = made(client, "reader")["Authorization"].removeprefix("Bearer ")
    logged_in(client, key)
    session_id = client.cookies[cookie_of(client)]
    for table in ("api_key", "access_session", "write_log"):
        kept = repr(states.query(database_url, f"select to_jsonb(t)::text from {table} t"))
        assert key.split("_", 2)[2] not in kept
        assert session_id not in kept
        assert KEY not in kept


def test_an_expired_key_is_told_so_even_while_it_is_believed(client: httpx.Client, clock: Clock) -> None:
    header = made(client, "reader", days=1)
    assert client.get("/api/v1/state", headers=header).status_code == 200
    clock.time += timedelta(days=1)  # and no second has passed for what is believed
    refused = client.get("/api/v1/state", headers=header)
    assert (refused.status_code, kind_of(refused)) == (401, "expired-key")
    assert "'reader' has expired, at 2026-11-23 12:00 UTC" in refused.json()["detail"]
    clock.time -= timedelta(days=1)  # a clock that jumps back lets it in again: its time is not over
    assert client.get("/api/v1/state", headers=header).status_code == 200


def test_a_key_without_an_end_has_none(client: httpx.Client, clock: Clock) -> None:
    header = made(client, "reader", days=None)
    clock.pass_by(86_400 * 36_500)
    assert client.get("/api/v1/state", headers=header).status_code == 200


def test_a_revoked_key_ends_at_once_here_and_within_seconds_elsewhere(database_url: str, clock: Clock) -> None:
    with served(database_url, clock) as (here, _), served(database_url, clock) as (elsewhere, _):
        header = made(here, "reader")
        assert elsewhere.get("/api/v1/state", headers=header).status_code == 200
        assert here.get("/api/v1/state", headers=header).status_code == 200
        assert here.delete(f"{KEYS}/reader", headers=BEARER).status_code == 204
        refused = here.get("/api/v1/state", headers=header)
        assert (refused.status_code, kind_of(refused)) == (401, "revoked-key")
        clock.pass_by(BELIEVED_SECONDS)
        assert elsewhere.get("/api/v1/state", headers=header).status_code == 401
        for name in ("reader", "%00"):
            gone = here.delete(f"{KEYS}/{name}", headers=BEARER)
            assert (gone.status_code, kind_of(gone)) == (404, "unknown-api-key")
        made(here, "reader")  # its name is free


def test_what_is_withdrawn_while_it_is_looked_up_is_not_believed(
    database_url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(database_url, clock) as (_, access):
        key = access.create("reader", Scope.READ, None)[1]
        session = access.log_in(key).session_id
        withdrawals: list[tuple[Credential, Callable[[], object]]] = [
            (Credential(session.encode(), is_session=True), lambda: access.log_out(session)),
            (Credential(key.encode()), lambda: access.revoke("reader")),
        ]
        for shown, withdraw in withdrawals:
            with monkeypatch.context() as looked_up:  # what is done last of a look at the store
                looked_up.setattr(access._store, "note_use", lambda *_, withdraw=withdraw: withdraw())
                assert access.verify(shown).name == "reader"
            assert access.recall(shown) is None
            with pytest.raises(AccessError):
                access.verify(shown)


def test_a_stream_that_is_open_ends_with_its_key(database_url: str, clock: Clock) -> None:
    state = HandMadeState(database_url, TABLE_1)
    with served(database_url, clock) as (client, _):
        headers = {name: made(client, name) for name in ("revoked", "good")}
        with (
            client.stream("GET", "/api/v1/stream", headers=headers["revoked"]) as revoked,
            client.stream("GET", "/api/v1/stream", headers=headers["good"]) as good,
        ):
            assert (revoked.status_code, good.status_code) == (200, 200)
            assert client.delete(f"{KEYS}/revoked", headers=BEARER).status_code == 204
            state.commit({name: [cells[0], *cells[2:]] for name, cells in TABLE_1.items()})
            assert "id: 2" in good.iter_lines()
            assert "id: 2" not in list(revoked.iter_lines())
    state.close()


def test_a_stream_that_no_key_was_wanted_for_ends_with_the_first_key(database_url: str, clock: Clock) -> None:
    """It may be the only one who asks for anything; and it takes nobody's turn to look whether there is one."""
    state = HandMadeState(database_url, TABLE_1)
    with (
        served(database_url, clock, None) as (here, _),
        served(database_url, clock, None) as (elsewhere, _),
        elsewhere.stream("GET", "/api/v1/stream") as stream,
    ):
        assert stream.status_code == 200
        here.post(KEYS, json={"name": "first", "scope": "admin"})
        clock.pass_by(OPEN_SECONDS)
        state.commit({name: [cells[0], *cells[2:]] for name, cells in TABLE_1.items()})
        assert "id: 2" not in list(stream.iter_lines())
        assert elsewhere.get("/api/v1/state").status_code == 401
    state.close()


def test_keys_are_listed_with_their_use(client: httpx.Client, clock: Clock) -> None:
    header = made(client, "b")
    made(client, "a", "admin", None)
    first = client.get(KEYS, params={"limit": 1}, headers=BEARER).json()
    (one,) = first["items"]
    assert (one["name"], one["scope"], one["last_used_at"]) == ("b", "read", None)
    assert "digest" not in one
    assert "key" not in one
    assert header["Authorization"].startswith(f"Bearer subsetd_{one['prefix']}_")
    (two,) = client.get(KEYS, params={"cursor": first["next_cursor"]}, headers=BEARER).json()["items"]
    assert (two["name"], two["expires_at"]) == ("a", None)

    def used() -> str:
        client.get("/api/v1/state", headers=header)
        found: str = client.get(KEYS, headers=BEARER).json()["items"][0]["last_used_at"]
        return found

    noted = used()
    clock.pass_by(50)
    assert used() == noted, "it is written once a minute"
    clock.pass_by(20)
    assert used() > noted


@pytest.mark.parametrize("name", ["", "cli", "anyone", "SUBSETD_API_KEY", "a\nb", "a\r\nX: y", "é", "x" * 65, "-a"])
def test_a_name_that_cannot_be_is_refused(client: httpx.Client, name: str) -> None:
    assert client.post(KEYS, json={"name": name}, headers=BEARER).status_code == 422


def test_two_keys_cannot_have_one_name(client: httpx.Client) -> None:
    made(client, "reader")
    again = client.post(KEYS, json={"name": "reader"}, headers=BEARER)
    assert (again.status_code, kind_of(again)) == (409, "conflict")


def test_without_any_key_all_is_open_until_there_is_one(database_url: str, clock: Clock) -> None:
    with served(database_url, clock, None) as (here, _), served(database_url, clock, None) as (elsewhere, _):
        assert here.get(SESSION).json() == {
            "name": "anyone", "scope": "admin", "expires_at": None, "csrf_token": None
        }  # fmt: skip
        assert elsewhere.get("/api/v1/state").status_code == 200
        key = here.post(KEYS, json={"name": "first", "scope": "admin"}).json()["key"]
        assert here.get("/api/v1/state").status_code == 401
        clock.pass_by(OPEN_SECONDS)
        assert elsewhere.get("/api/v1/state").status_code == 401
        header = {"Authorization": f"Bearer {key}"}
        assert elsewhere.get("/api/v1/state", headers=header).status_code == 200
        assert here.delete(f"{KEYS}/first", headers=header).status_code == 204
        clock.pass_by(OPEN_SECONDS)
        assert here.get("/api/v1/state").status_code == 401, "to revoke the last key opens nothing"


def test_a_key_that_is_made_while_another_looks_for_one_is_wanted_at_once(
    database_url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(database_url, clock, None) as (client, access):
        has_keys = access._store.has_keys

        def overtaken() -> bool:
            found = has_keys()
            access.create("first", Scope.ADMIN, None)
            return found

        with monkeypatch.context() as patched:
            patched.setattr(access._store, "has_keys", overtaken)
            assert client.get("/api/v1/state").status_code == 401
        assert client.get("/api/v1/state").status_code == 401


def test_without_a_key_a_name_of_somebody_else_is_refused(database_url: str, clock: Clock) -> None:
    """The page of a host whose name is made to lead to this machine asks by that name."""
    with served(database_url, clock, None) as (client, _):
        for host in (
            "evil.example",
            "evil.example:8321",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "[::1",
            "",
        ):
            refused = client.get("/api/v1/state", headers={"Host": host})
            assert (refused.status_code, kind_of(refused)) == (421, "foreign-name"), host
        for host in ("localhost:1", "127.0.0.1", "[::1]:8321", "subsetd.localhost"):
            assert client.get("/api/v1/state", headers={"Host": host}).status_code == 200, host
    with served(database_url, clock) as (client, _):
        assert client.get("/api/v1/state", headers={**BEARER, "Host": "subsetd.example"}).status_code == 200


def test_a_key_that_is_known_goes_on_while_the_database_is_away(
    postgres_server: EmbeddedPostgres, database_url: str, clock: Clock
) -> None:
    """/metrics is to tell of it."""
    with served(database_url, clock) as (client, _):
        known, new = made(client, "known"), made(client, "new")
        assert client.get("/metrics", headers=known).status_code == 200
        name = make_url(database_url).database
        administer(postgres_server, f"alter database {name} allow_connections false")
        administer(postgres_server, f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'")
        clock.pass_by(BELIEVED_SECONDS)
        assert "subsetd_state_readable 0.0" in client.get("/metrics", headers=known).text
        assert client.get("/metrics", headers=new).status_code == 503


def test_who_finds_no_connection_is_told_so_and_what_was_done_is_answered(database_url: str, clock: Clock) -> None:
    with served(database_url, clock) as (client, _):
        new = made(client, "new")
    engine = make_engine(database_url, "test-access", pool_size=1, max_overflow=0, pool_timeout_seconds=0.01)
    app = app_over(engine, api_key=KEY)

    @app.post("/api/v1/done", status_code=201, include_in_schema=False)
    def done() -> None:
        pass

    with (
        engine.connect(),
        serving(app) as address,
        http_client(base_url=address, timeout=60) as client,
        capture_logs() as logs,
    ):
        refused = client.get("/api/v1/state", headers=new)
        assert (refused.status_code, kind_of(refused)) == (503, "unavailable")
        assert "are in use; try again later" in refused.json()["detail"]
        assert client.post("/api/v1/done", headers=BEARER).status_code == 201
    assert [one["target"] for one in logs if one["event"] == "a write could not be logged"] == ["/api/v1/done"]
    engine.dispose()


def test_a_refusal_is_counted(client: httpx.Client) -> None:
    client.get("/api/v1/state")
    counted = 'http_requests_total{method="GET",route="unmatched",status="401"} 1.0'
    assert counted in client.get("/metrics", headers=BEARER).text


def test_who_wrote_what_is_logged_and_what_was_read_is_not(client: httpx.Client) -> None:
    writer, reader = made(client, "ada", "write"), made(client, "bob")
    token = logged_in(client, writer["Authorization"].removeprefix("Bearer "))
    content, octets = ColumnSketch(4, 1, 0).to_bytes(), {"Content-Type": "application/octet-stream"}
    path = "/api/v1/sketches/sketch:a%2Fb"
    client.put(path, content=content, headers={**octets, CSRF_HEADER: token})
    client.put(path, content=content, headers={**octets, **reader})
    client.put(path, content=b"damaged", headers={**octets, **writer})
    client.get(path, headers=reader)
    client.delete("/api/v1/sketches/sketch:a%2Fb")  # a cookie without its token
    items = client.get("/api/v1/write-log", headers=BEARER).json()["items"]
    told = [(one["who"], one["method"], one["route"], one["target"], one["status"]) for one in items]
    route = "/api/v1/sketches/{column}"
    assert told == [
        ("ada", "DELETE", path, path, 403),
        ("ada", "PUT", route, path, 422),
        ("bob", "PUT", path, path, 403),
        ("ada", "PUT", route, path, 201),
        ("ada", "POST", SESSION, SESSION, 200),
        ("SUBSETD_API_KEY", "POST", KEYS, f"{KEYS}/bob", 201),
        ("SUBSETD_API_KEY", "POST", KEYS, f"{KEYS}/ada", 201),
    ]
    sessions = [one["session"] for one in items]
    assert sessions[0] == sessions[3] == sessions[4] is not None
    assert sessions[1:3] == sessions[5:] == [None, None]
    assert {one["address"] for one in items} == {"127.0.0.1"}
    pages, cursor = [], None
    while True:
        asked = {"limit": 3} | ({} if cursor is None else {"cursor": cursor})
        page = client.get("/api/v1/write-log", params=asked, headers=BEARER).json()
        pages += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert pages == items


def test_a_write_that_breaks_the_service_is_logged(database_url: str, clock: Clock) -> None:
    engine = make_engine(database_url, "test-access")
    app = app_over(engine, api_key=KEY)

    @app.post("/api/v1/defect", include_in_schema=False)
    def defect() -> None:
        raise RuntimeError("a defect")

    with serving(app) as address, http_client(base_url=address, timeout=60, headers=BEARER) as client:
        broken = client.post("/api/v1/defect")
        assert (broken.status_code, broken.headers["X-Content-Type-Options"]) == (500, "nosniff")
        (newest,) = client.get("/api/v1/write-log").json()["items"]
    assert (newest["route"], newest["status"]) == ("/api/v1/defect", 500)
    engine.dispose()


def test_the_document_names_both_ways_to_show_who_asks(client: httpx.Client) -> None:
    document = client.get("/api/v1/openapi.json", headers=BEARER).json()
    schemes = document["components"]["securitySchemes"]
    assert schemes["key"] == {"type": "http", "scheme": "bearer"}
    assert (schemes["session"]["in"], schemes["session"]["name"]) == ("cookie", COOKIE)

"""Own the proof of logins: a cookie for the dashboard, which writes nothing without its token."""

from __future__ import annotations

import httpx
import pytest

from service.api.access import CSRF_HEADER
from tests import states
from tests.asking import http_client
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

__all__ = ["client", "clock"]


def test_a_login_gives_a_cookie_that_no_script_can_read(client: httpx.Client, clock: Clock) -> None:
    key = made(client, "ada", "write")["Authorization"].removeprefix("Bearer ")
    answer = client.post(SESSION, json={"key": key})
    cookie = answer.headers["Set-Cookie"]
    assert {"HttpOnly", "Path=/", "SameSite=strict"} <= set(cookie.split("; "))
    assert "Secure" not in cookie  # this is http
    assert key not in answer.text + cookie
    assert client.get(SESSION).json() == answer.json()
    assert (answer.json()["name"], answer.json()["scope"]) == ("ada", "write")
    clock.pass_by(3600)
    refused = client.get(SESSION)
    assert (refused.status_code, kind_of(refused)) == (401, "expired-key")


def test_a_session_ends_with_its_key(client: httpx.Client, clock: Clock, database_url: str) -> None:
    header = made(client, "ada")
    client.post(SESSION, json={"key": header["Authorization"].removeprefix("Bearer ")})
    assert client.get("/api/v1/state").status_code == 200
    assert client.delete(f"{KEYS}/ada", headers=BEARER).status_code == 204
    assert client.get("/api/v1/state").status_code == 401
    assert states.query(database_url, "select count(*) from access_session") == [(0,)]


def test_a_session_of_the_environments_key_ends_when_that_is_another(database_url: str, clock: Clock) -> None:
    with served(database_url, clock) as (client, _):
        logged_in(client)
        cookie = client.cookies[cookie_of(client)]
    for key, status in (("another", 401), (None, 200), (KEY, 200)):
        with served(database_url, clock, key) as (client, _):
            client.cookies.set(cookie_of(client), cookie)
            assert client.get("/api/v1/state").status_code == status, key


def test_who_logs_out_is_out(client: httpx.Client, database_url: str) -> None:
    token = logged_in(client)
    kept = client.cookies[cookie_of(client)]
    assert client.delete(SESSION, headers={CSRF_HEADER: token}).status_code == 204
    assert not client.cookies
    refused = client.get("/api/v1/state", headers={"Cookie": f"{cookie_of(client)}={kept}"})
    assert (refused.status_code, kind_of(refused)) == (401, "unknown-key")
    assert states.query(database_url, "select count(*) from access_session") == [(0,)]


@pytest.mark.parametrize("key", ["no key", "subsetd_00000000_x", "é"])
def test_a_wrong_key_logs_nobody_in(client: httpx.Client, key: str) -> None:
    refused = client.post(SESSION, json={"key": key})
    assert (refused.status_code, kind_of(refused)) == (401, "unknown-key")
    assert "Set-Cookie" not in refused.headers


def test_a_write_with_a_cookie_wants_its_token(client: httpx.Client) -> None:
    token = logged_in(client)
    new = {"name": "by-cookie"}
    for given in ({}, {CSRF_HEADER: ""}, {CSRF_HEADER: "0" * 64}, {CSRF_HEADER: token.upper() + "x"}):
        refused = client.post(KEYS, json=new, headers=given)
        assert (refused.status_code, kind_of(refused)) == (403, "csrf-token-required")
    client.cookies.clear()
    other = logged_in(client)
    assert other != token
    assert client.post(KEYS, json=new, headers={CSRF_HEADER: token}).status_code == 403
    assert client.post(KEYS, json=new, headers={CSRF_HEADER: other}).status_code == 201


FOREIGN = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1"},
]


@pytest.mark.parametrize("given", FOREIGN)
def test_a_page_of_another_host_can_write_nothing_not_even_log_in(client: httpx.Client, given: dict[str, str]) -> None:
    token = logged_in(client)
    for headers in (given, {**given, CSRF_HEADER: token}, {**given, **BEARER}):
        refused = client.post(KEYS, json={"name": "evil"}, headers=headers)
        assert (refused.status_code, kind_of(refused)) == (403, "foreign-page")
    refused = client.post(SESSION, json={"key": KEY}, headers=given)
    assert (refused.status_code, kind_of(refused)) == (403, "foreign-page")


def test_a_page_of_another_host_can_write_nothing_where_no_key_is_wanted(database_url: str, clock: Clock) -> None:
    with served(database_url, clock, None) as (client, _):
        for given in FOREIGN:
            assert client.post(KEYS, json={"name": "evil"}, headers=given).status_code == 403
        own = f"http://{client.base_url.host}:{client.base_url.port}"
        assert client.post(KEYS, json={"name": "mine"}, headers={"Origin": own}).status_code == 201


def test_a_key_goes_before_a_cookie(client: httpx.Client) -> None:
    reader = made(client, "reader")
    logged_in(client)
    assert client.get(SESSION, headers=reader).json()["name"] == "reader"
    assert client.get(SESSION, headers={"Authorization": "Bearer wrong"}).status_code == 401


def test_behind_a_proxy_that_is_trusted_the_cookie_is_for_https_alone(database_url: str, clock: Clock) -> None:
    forwarded = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.7"}
    for trusted, is_secure, address in ((["127.0.0.1"], True, "203.0.113.7"), ([], False, "127.0.0.1")):
        with served(database_url, clock, trusted_proxies=trusted) as (client, _):
            answer = client.post(SESSION, json={"key": KEY}, headers=forwarded)
            assert ("Secure" in answer.headers["Set-Cookie"]) == is_secure
            (newest,) = client.get("/api/v1/write-log", params={"limit": 1}, headers=BEARER).json()["items"]
            assert newest["address"] == address


def test_who_logs_in_at_another_service_of_the_host_stays_logged_in_here(database_url: str, clock: Clock) -> None:
    """A browser shows a cookie to all ports of a host."""
    with (
        served(database_url, clock) as (one, _),
        served(database_url, clock, "another key") as (other, _),
        http_client() as browser,
    ):
        for client, key in ((one, KEY), (other, "another key")):
            assert browser.post(client.base_url.join(SESSION), json={"key": key}).status_code == 200
        for client in (one, other):
            assert browser.get(client.base_url.join("/api/v1/state")).status_code == 200
        token = browser.get(other.base_url.join(SESSION)).json()["csrf_token"]
        assert browser.delete(other.base_url.join(SESSION), headers={CSRF_HEADER: token}).status_code == 204
        assert [browser.get(c.base_url.join("/api/v1/state")).status_code for c in (one, other)] == [200, 401]


@pytest.mark.parametrize("host", ["shop", "shop:x", "[::1]", "shop:80, b"])
def test_a_service_without_a_port_in_its_address_has_a_cookie_without_one(client: httpx.Client, host: str) -> None:
    answer = client.post(SESSION, json={"key": KEY}, headers={"Host": host})
    assert answer.status_code in (200, 400, 421), "an address that is none may be refused"
    assert answer.status_code != 200 or answer.headers["Set-Cookie"].startswith("subsetd_session=")

"""Own the proof that the HTTP service keeps what conventions promise: versions, problems, names, pages, metrics."""

from __future__ import annotations

import errno
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import psycopg2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.api import cursors
from service.api.problems import EXPLANATIONS, Check
from service.core.model import AttributeName
from service.server import serve_until
from service.store import dead_letters, migrate
from service.store.database import make_engine
from service.store.embedded import EmbeddedPostgres
from service.store.feeds import forget, set_paused
from tests import states
from tests.asking import http_client
from tests.hand_made_state import TABLE_1, HandMadeState, value_key
from tests.in_memory import IN_MEMORY
from tests.integration.serving import app_over, serving
from tests.postgres import TEMPLATE, fresh_database

A, B, C, D = (str(name) for name in TABLE_1)
WITHOUT_SECOND_TUPLE = {name: [cells[0], *cells[2:]] for name, cells in TABLE_1.items()}


@pytest.fixture
def lag() -> dict[str, Any]:
    """Hold what the consumer's lag check says; a test changes it."""
    return {"ok": True}


@contextmanager
def served(database_url: str, **options: Any) -> Iterator[httpx.Client]:
    """Serve a database, with a route beside the real ones that fails."""
    engine = make_engine(database_url, "test-api", statement_timeout_ms=10_000)
    app = app_over(engine, **options)

    @app.get("/defect", include_in_schema=False)
    def defect() -> None:
        raise RuntimeError("secret of the inside")

    with serving(app) as address, http_client(base_url=address, timeout=60) as client:
        yield client
    engine.dispose()


@pytest.fixture
def client(database_url: str, lag: dict[str, Any]) -> Iterator[httpx.Client]:
    """Serve the test's own database, and a consumer's lag."""
    check = [lambda: Check(name="lag", ok=lag["ok"], detail="7 records behind, bound 5")]
    with served(database_url, ready_checks=check) as client:
        yield client


@pytest.fixture
def table_1(database_url: str) -> Iterator[HandMadeState]:
    """Hold the paper's running example at version 1, and without its second tuple at version 2."""
    state = HandMadeState(database_url, TABLE_1)
    state.commit(WITHOUT_SECOND_TUPLE)
    yield state
    state.close()


@pytest.fixture(scope="module")
def paper(postgres_server: EmbeddedPostgres) -> Iterator[httpx.Client]:
    """Serve the state of `table_1` to tests that only read."""
    with fresh_database(postgres_server, TEMPLATE) as url:
        state = HandMadeState(url, TABLE_1)
        state.commit(WITHOUT_SECOND_TUPLE)
        state.close()
        with served(url) as client:
            yield client


@pytest.fixture(scope="module")
def hard_names(postgres_server: EmbeddedPostgres) -> Iterator[httpx.Client]:
    """Serve attributes of hard names, each contained in the attribute `PLAIN` alone."""
    with fresh_database(postgres_server, TEMPLATE) as url:
        columns = {name: [str(number)] for number, name in enumerate(HARD_NAMES)}
        HandMadeState(url, {**columns, PLAIN: [*map(str, range(len(HARD_NAMES))), "more"]}).close()
        with served(url) as client:
            yield client


def problem(response: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    """Check that a response is a problem of this kind, and give it."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["type"] == (kind if kind == "about:blank" else f"/docs#{kind}")
    assert kind in EXPLANATIONS
    assert body["status"] == status
    assert body["detail"]
    return body


ROUTES = [
    "/api/v1/state",
    "/api/v1/attributes",
    "/api/v1/clusters",
    "/api/v1/uinds",
    f"/api/v1/uinds/{A}/{B}",
    f"/api/v1/uinds/{A}/{B}/missing",
    "/api/v1/coefficients",
    f"/api/v1/coefficients?dependent={A}",
    f"/api/v1/coefficients?dependent={A}&referenced={B}",
    f"/api/v1/coefficients/{A}/{B}",
    "/api/v1/coefficients?top=2&method=exact",
    "/api/v1/sketches",
    "/api/v1/changes?since=1",
    "/api/v1/dead_letters",
    "/api/v1/graph",
    "/api/v1/graph/components",
    "/api/v1/graph/tables",
]


def test_every_answer_names_its_version_and_is_polled_by_it(client: httpx.Client, table_1: HandMadeState) -> None:
    for path in ROUTES:
        first = client.get(path)
        assert (first.status_code, first.json()["version"], first.headers["etag"]) == (200, 2, '"2"'), path
        for known in ('"2"', 'W/"2"', '"1", "2"', "*"):
            again = client.get(path, headers={"If-None-Match": known})
            assert (again.status_code, again.content) == (304, b""), path
            assert (again.headers["etag"], again.headers["cache-control"]) == ('"2"', "no-cache")
    table_1.commit(TABLE_1)
    for path in ROUTES:
        newer = client.get(path, headers={"If-None-Match": '"2"'})
        assert (newer.status_code, newer.json()["version"], newer.headers["etag"]) == (200, 3, '"3"'), path


def test_what_commands_change_without_a_version_is_not_told_to_be_as_it_was(
    client: httpx.Client, table_1: HandMadeState, database_url: str
) -> None:
    letters, state = "/api/v1/dead_letters", "/api/v1/state"
    states.execute(
        database_url,
        "insert into dead_letter (feed, topic, partition, record_offset, error_class, message, record, version) "
        "select 'f', 't', 0, n, 'e', 'm', 'r', 2 from generate_series(1, 2) n; "
        "insert into feed (feed, address) values ('f', 'file:f'); "
        "insert into feed_position (feed, topic, partition, next_offset, version) values ('f', 't', 0, 3, 2)",
    )
    engine = make_engine(database_url, "test-api")
    tags: dict[str, str] = {}

    def asked(path: str) -> tuple[int, Any]:
        answer = client.get(path, headers={"If-None-Match": tags.get(path, "")})
        tags[path] = answer.headers["etag"]
        return answer.status_code, answer.json() if answer.content else None

    assert [asked(path)[0] for path in (letters, state)] == [200, 200]
    assert [asked(path)[0] for path in (letters, state)] == [304, 304]
    dead_letters.drop(engine, [1])
    status, body = asked(letters)
    assert (status, [one["dead_letter_id"] for one in body["items"]]) == (200, [2])
    assert asked(state)[1]["counts"]["dead_letters"] == 1
    for is_paused in (True, False):
        set_paused(engine, None, is_paused)
        assert asked(state)[0] == 200
        assert asked(state)[0] == 304
    forget(engine, "f")
    assert asked(state)[1]["positions"] == []
    engine.dispose()


def test_a_broken_ind_is_explained(paper: httpx.Client) -> None:
    body = paper.get(f"/api/v1/uinds/{A}/{B}").json()
    assert (body["holds"], body["coefficient"], body["overlap"], body["missing_count"]) == (False, 2 / 3, 2, 1)
    assert (body["since_version"], body["since_reason"]) == (2, "broke")
    assert body["missing_values"] == [{"value": "b", "value_key": value_key("b"), "is_cut": False, "frequency": 1}]
    assert [(one["version"], one["kind"]) for one in body["transitions"]] == [(2, "broke"), (1, "appeared")]
    assert body["transitions"][0]["position"] == {"topic": "t", "partition": 0, "offset": 2}


def test_as_of_shows_what_held_then(paper: httpx.Client) -> None:
    now, then = paper.get("/api/v1/uinds").json(), paper.get("/api/v1/uinds?as_of=1").json()
    assert [one["dependent"]["name"] for one in now["items"]] == [D]
    assert [one["dependent"]["name"] for one in then["items"]] == [A, D]
    assert (then["version"], then["as_of"], then["items"][0]["until_version"]) == (2, 1, 2)


def test_changes_are_followed_by_the_version_of_the_last_answer(paper: httpx.Client) -> None:
    body = paper.get("/api/v1/changes", params={"since": 1}).json()
    assert [(one["kind"], one["dependent"]["name"], one["witness_value"]) for one in body["items"]] == [
        ("broke", A, "b")
    ]
    assert paper.get("/api/v1/changes", params={"since": body["version"]}).json()["items"] == []
    assert len(paper.get("/api/v1/changes", params={"kind": "appeared"}).json()["items"]) == 2
    assert paper.get("/api/v1/changes", params={"since": 1, "dependent": D}).json()["items"] == []


def test_pages_go_through_everything_once(client: httpx.Client, database_url: str) -> None:
    names = [AttributeName("s", "t", f"c{number}") for number in range(4)]
    values = [str(number) for number in range(7)]
    HandMadeState(database_url, {name: values if at else [*values, "more"] for at, name in enumerate(names)}).close()
    pages = {"attributes": 4, "clusters": 2, "uinds": 9, "changes": 9, "coefficients": 12, "uinds/id:0/id:1/missing": 1}
    for route, size in pages.items():
        items, params = [], {"limit": 1}
        while True:
            body = client.get(f"/api/v1/{route}", params=params).json()
            items += body["items"]
            assert len(body["items"]) <= 1
            if body["next_cursor"] is None:
                break
            params = {"limit": 1, "cursor": body["next_cursor"]}
        assert len(items) == len({str(one) for one in items}) == size


HARD_NAMES = [
    AttributeName("a.b", "c/d", "e f"),
    AttributeName("%2F", "100%", "a%20b"),
    AttributeName("/", "//", "/../x/missing"),
    AttributeName('"q"', "it's", "?a=b&c#d"),
    AttributeName("😀", "日本", "é"),
    AttributeName("s", "t", "col#2"),
    AttributeName("", "", "c"),
    AttributeName("a+b", "c;d", "e\\f"),
    AttributeName("s", "t", "line\nbreak\ttab"),
    AttributeName(".", "..", "."),
]
PLAIN = AttributeName("plain", "t", "c")


@pytest.mark.parametrize("name", HARD_NAMES, ids=repr)
def test_any_name_works_in_paths_and_queries(hard_names: httpx.Client, name: AttributeName) -> None:
    segment = quote(str(name), safe="")
    left = hard_names.get(f"/api/v1/uinds/{segment}/{PLAIN}")
    assert (left.status_code, left.json()["dependent"]["parts"], left.json()["holds"]) == (200, list(name), True)
    right = hard_names.get(f"/api/v1/uinds/{PLAIN}/{segment}/missing")
    assert right.json()["missing_count"] == len(HARD_NAMES)
    for route in ("attributes?attribute", "uinds?dependent", "clusters?attribute", "coefficients?dependent"):
        assert len(hard_names.get(f"/api/v1/{route}={segment}").json()["items"]) == 1


def test_an_ambiguous_name_is_a_problem_that_names_the_candidates(client: httpx.Client, database_url: str) -> None:
    names = [AttributeName("a.b", "c", "d"), AttributeName("a", "b.c", "d")]
    HandMadeState(database_url, {names[0]: ["1"], names[1]: ["1", "2"]}).close()
    body = problem(client.get("/api/v1/uinds?dependent=a.b.c.d"), 409, "ambiguous-attribute")
    assert sorted(body["candidates"], key=str) == [
        {"attribute_id": 0, "name_parts": ["a.b", "c", "d"]},
        {"attribute_id": 1, "name_parts": ["a", "b.c", "d"]},
    ]
    assert client.get("/api/v1/uinds/id:0/id:1").json()["holds"] is True


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/api/v1/uinds/paper.r.A/nobody", 404, "unknown-attribute"),
        ("/api/v1/uinds/paper.r.A/%00", 404, "unknown-attribute"),
        ("/api/v1/uinds/paper.r.A/%ff%zz", 404, "unknown-attribute"),
        ("/api/v1/uinds/paper.r.A/paper.r.A", 422, "same-attribute"),
        ("/api/v1/uinds/paper.r.A/paper.r.A/missing", 422, "same-attribute"),
        ("/api/v1/coefficients?dependent=paper.r.A&referenced=id:0", 422, "same-attribute"),
        ("/api/v1/coefficients?top=1&cursor=x", 422, "invalid-request"),
        ("/api/v1/coefficients?method=guessed", 422, "invalid-request"),
        ("/api/v1/coefficients?level=1", 422, "invalid-request"),
        ("/api/v1/coefficients?dependent=sketch:none", 404, "unknown-attribute"),
        ("/api/v1/coefficients?dependent=paper.r.A&referenced=paper.r.B&method=bml", 409, "no-sketch"),
        ("/api/v1/coefficients/paper.r.A/id:0", 422, "same-attribute"),
        ("/api/v1/sketches/paper.r.A", 409, "no-sketch"),
        ("/api/v1/sketches/sketch:none", 404, "unknown-attribute"),
        ("/api/v1/uinds?as_of=3", 404, "unknown-version"),
        ("/api/v1/uinds?as_of=0", 404, "unknown-version"),
        ("/api/v1/changes?since=3", 404, "unknown-version"),
        ("/api/v1/uinds?as_of=99999999999999999999", 422, "invalid-request"),
        ("/api/v1/uinds?limit=0", 422, "invalid-request"),
        ("/api/v1/uinds?limit=1001", 422, "invalid-request"),
        ("/api/v1/uinds?dependant=paper.r.A", 422, "invalid-request"),
        ("/api/v1/coefficients?min_coefficient=1.5", 422, "invalid-request"),
        ("/api/v1/changes?kind=bent", 422, "invalid-request"),
        ("/api/v1/uinds?cursor=nonsense", 422, "invalid-cursor"),
        ("/api/v1/uinds?cursor=%00", 422, "invalid-request"),
        ("/api/v1/nothing", 404, "about:blank"),
        ("/api/v1/uinds/a/b/c/d", 404, "about:blank"),
        ("/defect", 500, "internal-error"),
    ],
)
def test_every_error_is_a_problem(
    client: httpx.Client, table_1: HandMadeState, path: str, status: int, kind: str
) -> None:
    body = problem(client.get(path, headers={"If-None-Match": "*"}), status, kind)
    assert "secret" not in str(body)


def test_another_method_is_a_problem_that_keeps_the_header_allow(paper: httpx.Client) -> None:
    response = paper.post("/api/v1/state")
    problem(response, 405, "about:blank")
    assert response.headers["allow"] == "GET"


def test_a_cursor_is_read_back_only_by_its_own_route() -> None:
    one, key = cursors.Cursors("one", "isu"), (3, "x/é", value_key("a"))
    cursor = one.encode(key)
    assert cursor is not None
    assert re.fullmatch(cursors.PATTERN, cursor)
    assert one.decode(cursor) == key
    forged = [
        one.encode((*key[:2], "not-a-uuid" * 4)),
        one.encode((2**70, *key[1:])),
        cursor[:-1],
    ]
    forged += [
        one.encode((True, *key[1:])),
        one.encode((3, "\x00", key[2])),
        "é",
        "W10",
        "bnVsbA",
    ]
    for wrong in forged:
        with pytest.raises(cursors.CursorError):
            one.decode(wrong)
    with pytest.raises(cursors.CursorError):
        cursors.Cursors("two", "isu").decode(cursor)


def test_dead_letters_are_listed_with_long_records_cut(
    client: httpx.Client, table_1: HandMadeState, database_url: str
) -> None:
    connection = psycopg2.connect(database_url)
    with connection, connection.cursor() as cursor:
        cursor.executemany(
            "insert into dead_letter (feed, topic, partition, record_offset, error_class, message, record, version)"
            " values (%s, 't', 0, %s, 'RecordError', 'bad', %s, 2)",
            [("one", 1, "x" * 5000), ("one", 2, "short"), ("two", 3, "y")],
        )
    connection.close()
    body = client.get("/api/v1/dead_letters", params={"feed": "one"}).json()
    assert [(len(one["record"]), one["is_cut"], one["record_offset"]) for one in body["items"]] == [
        (4096, True, 1),
        (5, False, 2),
    ]
    assert client.get("/api/v1/dead_letters?feed=%00").json()["items"] == []


def test_readiness_names_each_condition(client: httpx.Client, database_url: str, lag: dict[str, Any]) -> None:
    body = problem(client.get("/readyz"), 503, "not-ready")
    assert {one["name"]: one["ok"] for one in body["checks"]} == {"database": True, "bootstrapped": False, "lag": True}
    HandMadeState(database_url, TABLE_1).close()
    assert client.get("/readyz").json()["ready"] is True
    lag["ok"] = False
    body = problem(client.get("/readyz"), 503, "not-ready")
    assert body["detail"] == "Not ready: lag."
    assert body["checks"][-1] == {"name": "lag", "ok": False, "detail": "7 records behind, bound 5"}
    assert client.get("/healthz").json() == {"status": "ok"}


def test_metrics_count_by_route_method_and_status(client: httpx.Client, table_1: HandMadeState) -> None:
    client.get(f"/api/v1/uinds/{A}/{B}")
    client.get(f"/api/v1/uinds/{A}/{C}")
    client.get(f"/api/v1/uinds/{A}/nobody")
    client.get("/some/scanner/path")
    client.get("/defect")
    client.request("PROPFIND", "/api/v1/state")
    text = client.get("/metrics").text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    requests = {
        tuple(sample.labels[label] for label in ("route", "method", "status")): sample.value
        for sample in samples
        if sample.name == "http_requests_total"
    }
    route = "/api/v1/uinds/{dependent}/{referenced}"
    assert requests == {
        (route, "GET", "200"): 2,
        (route, "GET", "404"): 1,
        ("unmatched", "GET", "404"): 1,
        ("/defect", "GET", "500"): 1,
        ("/api/v1/state", "other", "405"): 1,
    }
    timed = [one for one in samples if one.name == "http_request_duration_seconds_count"]
    assert sum(one.value for one in timed) == 6
    found = {one.name: one.value for one in samples if not one.labels}
    names = ("subsetd_state_readable", "subsetd_state_version", "subsetd_values", "subsetd_uinds")
    assert [found[name] for name in names] == [1, 2, 5, 1]


def test_a_browser_finds_pages_that_ask_nothing_of_other_hosts(paper: httpx.Client) -> None:
    home = paper.get("/docs")
    assert "default-src 'none'" in home.headers["content-security-policy"]
    assert re.findall(r"<(?!a |h3 )[^>]*//|(?:src|href)=.?(?:https?:)?//|url\(|@import", home.text) == []
    for path in paper.get("/api/v1/openapi.json").json()["paths"]:
        assert path in home.text
    for kind in EXPLANATIONS:
        assert f"id='{kind}'" in home.text


def test_a_database_that_is_away_is_a_problem_until_it_is_back() -> None:
    # Not tmp_path, which is long: the server's socket would be elsewhere, in another folder after each start.
    with tempfile.TemporaryDirectory(prefix="subsetd-test-", dir=IN_MEMORY) as name:
        folder = Path(name) / "postgres"
        with EmbeddedPostgres(folder, extra_settings={"fsync": "off"}) as server:
            migrate.upgrade(server.url)
            HandMadeState(server.url, TABLE_1).close()
            engine = make_engine(server.url, "test-api")
        bearer = {"Authorization": "Bearer k"}  # else only the database knows whether a key is wanted
        with (
            serving(app_over(engine, api_key="k")) as address,
            http_client(base_url=address, headers=bearer, timeout=60) as client,
        ):
            for _ in range(2):
                response = client.get("/api/v1/state")
                body = problem(response, 503, "unavailable")
                assert "Cannot reach database" in body["detail"]
                assert "retry-after" in response.headers
            assert problem(client.get("/readyz"), 503, "not-ready")["checks"][0]["ok"] is False
            assert "subsetd_state_readable 0.0" in client.get("/metrics").text
            assert client.get("/healthz").status_code == 200
            with EmbeddedPostgres(folder, extra_settings={"fsync": "off"}):
                assert client.get("/api/v1/state").json()["version"] == 1
                assert client.get("/api/v1/uinds").json()["version"] == 1
            problem(client.get("/api/v1/state"), 503, "unavailable")
        engine.dispose()


@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left on device"), SystemExit(1)])
def test_what_fails_ends_the_service_also_where_its_address_cannot_be_told(
    database_url: str, fault: BaseException
) -> None:
    engine = make_engine(database_url, "test-api")
    failed = threading.Event()

    def tell(_port: int) -> None:
        failed.set()
        raise fault

    serve_until(app_over(engine), "127.0.0.1", 0, failed, tell)
    engine.dispose()

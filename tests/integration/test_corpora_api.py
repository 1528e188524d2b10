"""Corpora over HTTP: registered, refreshed, asked, compared and exported, each answer from one generation."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.core.column_filters import Reason
from service.core.corpus import CorpusSettings, parse_filters
from service.store.database import make_engine
from service.store.embedded import EmbeddedPostgres
from service.usecases import corpus_export
from service.usecases.corpora import CorpusFault
from tests.asking import http_client
from tests.corpora import GivenCorpus, GivenTable
from tests.integration.serving import app_over, serving
from tests.postgres import TEMPLATE, fresh_database

NAME = "the lake, 100 %"
HARD = 'a/b,"c"\r#\n1?.csv'
"""A table's path that is hard to write in a URL and in CSV."""
TABLES = [
    GivenTable(0, "orders.csv", 0, ["id", "customer"], [8, 5]),
    GivenTable(1, HARD, 2, ["k", "k", "Ω"], [5, 3, 10], (0, 0, 0), (0, int(Reason.NOT_UNIQUE), 0)),
    GivenTable(2, "nothing.csv", 5, []),
    GivenTable(3, "last.csv", 5, ["x"], [40], [int(Reason.INTEGER_COLUMN)], [int(Reason.INTEGER_COLUMN)]),
]
PATHS = {
    column: (table.path, place)
    for table in TABLES
    for place, column in enumerate(range(table.first_column, table.first_column + len(table.names)))
}
FIRST = {(1, 2, 5), (2, 1, 5), (3, 2, 3)}
SECOND = {(1, 2, 5), (3, 4, 3), (2, 1, 5)}
URL = f"/api/v1/corpora/{quote(NAME, safe='')}"


def landed_lake(url: str) -> GivenCorpus:
    """Land two generations: the second could not read a file, and has an IND that the first has not."""
    corpus = GivenCorpus(url, NAME, CorpusSettings.from_json(parse_filters("coverage=0.2")))
    corpus.refresh(FIRST, TABLES)
    files = {"read": 2, "unchanged": 2, "gone": 0, "faults": 1}
    faults = [CorpusFault("broken.csv", "It is empty.")]
    corpus.refresh({(3, 4, 3)}, [], changed=[3], faults=faults, files=files, inds=3)
    return corpus


@contextmanager
def served(url: str) -> Iterator[httpx.Client]:
    engine = make_engine(url, "test-corpora", statement_timeout_ms=10_000)
    with serving(app_over(engine)) as address, http_client(base_url=address, timeout=60) as client:
        yield client
    engine.dispose()


@pytest.fixture(scope="module")
def client(postgres_server: EmbeddedPostgres) -> Iterator[httpx.Client]:
    """Serve the lake to tests that change nothing."""
    with fresh_database(postgres_server, TEMPLATE) as url:
        landed_lake(url)
        with served(url) as client:
            yield client


@pytest.fixture
def lake(database_url: str) -> GivenCorpus:
    """Give a lake to change."""
    return landed_lake(database_url)


@pytest.fixture
def own(lake: GivenCorpus) -> Iterator[httpx.Client]:
    """Serve the lake that the test changes."""
    with served(lake.url) as client:
        yield client


def body(response: httpx.Response, status: int = 200) -> dict[str, Any]:
    assert response.status_code == status, response.text
    found: dict[str, Any] = response.json()
    return found


def problem(response: httpx.Response, status: int, kind: str) -> str:
    found = body(response, status)
    assert response.headers["content-type"] == "application/problem+json"
    assert found["type"] == f"/docs#{kind}", found
    return str(found["detail"])


def pages(client: httpx.Client, path: str, **query: Any) -> list[dict[str, Any]]:
    """Go through all pages of one item each."""
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        page = body(client.get(f"{URL}{path}", params={**query, "limit": 1, **cursor}))
        found += page["items"]
        if page["next_cursor"] is None:
            return found
        assert len(page["items"]) == 1
        cursor = {"cursor": page["next_cursor"]}


def places(items: list[dict[str, Any]]) -> list[tuple[tuple[str, int], tuple[str, int]]]:
    sides = ([(one[side]["table"], one[side]["position"]) for side in ("dependent", "referenced")] for one in items)
    return [(first, second) for first, second in sides]


def expected(rows: set[tuple[int, int, int]]) -> list[tuple[tuple[str, int], tuple[str, int]]]:
    return [(PATHS[dependent], PATHS[referenced]) for dependent, referenced, _ in sorted(rows)]


def test_inds_come_page_by_page_of_either_generation(client: httpx.Client) -> None:
    assert places(pages(client, "/inds")) == expected(SECOND)
    assert places(pages(client, "/inds", generation=1)) == expected(FIRST)
    first = body(client.get(f"{URL}/inds"))["items"][0]
    assert (first["overlap"], first["coefficient"], first["coverage"]) == (5, 1.0, 1.0)
    assert first["referenced"] == {"column_id": 2, "table": HARD, "position": 0, "name": "k"}


@pytest.mark.parametrize("side", ["dependent", "referenced"])
def test_inds_of_one_side(client: httpx.Client, side: str) -> None:
    place = 0 if side == "dependent" else 1
    of_table = [pair for pair in expected(SECOND) if pair[place][0] == HARD]
    assert len(of_table) == 2
    assert places(pages(client, "/inds", **{f"{side}_table": HARD})) == of_table
    of_column = [pair for pair in of_table if pair[place][1] == 0]
    assert places(pages(client, "/inds", **{f"{side}_table": HARD, f"{side}_position": 0})) == of_column
    detail = problem(client.get(f"{URL}/inds", params={f"{side}_position": 0}), 422, "refused-corpus")
    assert f"{side}_table" in detail


def asked(client: httpx.Client, dependent: int, referenced: int, **more: Any) -> httpx.Response:
    (first, left), (second, right) = PATHS[dependent], PATHS[referenced]
    query = {"dependent_table": first, "dependent_position": left}
    return client.get(f"{URL}/pair", params={**query, "referenced_table": second, "referenced_position": right, **more})


def test_a_pair_that_does_not_hold_is_told_from_one_that_was_not_examined(client: httpx.Client) -> None:
    holds = body(asked(client, 3, 4))
    assert (holds["holds"], holds["examined"], holds["overlap"], holds["coverage"]) == (True, True, 3, 0.3)
    went = body(asked(client, 3, 2))
    assert (went["holds"], went["examined"], went["reasons"]) == (False, True, [])
    assert body(asked(client, 3, 2, generation=1))["holds"] is True
    for pair, reasons in {
        (2, 3): ["not_unique"],
        (1, 5): ["integer_column", "low_coverage"],
        (5, 3): ["integer_column", "not_unique"],
        (3, 5): ["integer_column", "low_coverage"],
    }.items():
        answer = body(asked(client, *pair))
        assert (answer["holds"], answer["examined"], sorted(answer["reasons"])) == (False, False, reasons), pair


def test_a_pair_with_a_file_that_could_not_be_read_says_so(client: httpx.Client) -> None:
    query = {"dependent_table": "broken.csv", "dependent_position": 0}
    response = client.get(f"{URL}/pair", params={**query, "referenced_table": "last.csv", "referenced_position": 0})
    answer = body(response)
    assert (answer["examined"], answer["dependent"], answer["fault"]) == (False, None, "It is empty.")


def test_changes_tables_and_columns(client: httpx.Client) -> None:
    changes = pages(client, "/changes")
    kinds = {(one["kind"], *places_of(one)) for one in changes}
    assert kinds == {("went", PATHS[3], PATHS[2]), ("appeared", PATHS[3], PATHS[4])}
    assert [one["path"] for one in pages(client, "/tables")] == [table.path for table in TABLES]
    columns = pages(client, f"/tables/{quote(HARD, safe='')}/columns")
    assert [one["column"]["name"] for one in columns] == ["k", "k", "Ω"]
    assert [one["referenced_reasons"] for one in columns] == [[], ["not_unique"], []]
    assert pages(client, "/tables/nothing.csv/columns") == []
    problem(client.get(f"{URL}/tables/nowhere.csv/columns"), 404, "not-in-corpora")
    problem(client.get(f"{URL}/changes", params={"generation": 1}), 404, "not-in-corpora")


def places_of(one: dict[str, Any]) -> tuple[tuple[str, int], tuple[str, int]]:
    return places([one])[0]


def test_an_answer_is_named_after_its_generation(own: httpx.Client, lake: GivenCorpus) -> None:
    first = own.get(f"{URL}/inds")
    again = own.get(f"{URL}/inds", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.headers["etag"], again.content) == (304, first.headers["etag"], b"")
    lake.refresh(set(), [], changed=[])
    later = own.get(f"{URL}/inds", headers={"If-None-Match": first.headers["etag"]})
    assert body(later)["generation"] == body(first)["generation"] + 1
    problem(own.get(f"{URL}/inds", params={"generation": 1}), 404, "not-in-corpora")


def test_pages_go_on_in_the_generation_that_they_began_in(lake: GivenCorpus, own: httpx.Client) -> None:
    first = body(own.get(f"{URL}/inds", params={"limit": 1}))
    lake.refresh(set(), [], gone=[0, 1, 2, 3])
    assert body(own.get(f"{URL}/inds"))["items"] == []
    rest = body(own.get(f"{URL}/inds", params={"cursor": first["next_cursor"]}))
    assert rest["generation"] == first["generation"]
    assert places(first["items"] + rest["items"]) == expected(SECOND)
    other = own.get(f"{URL}/inds", params={"cursor": first["next_cursor"], "generation": 3})
    assert "generation 2" in problem(other, 422, "invalid-cursor")
    lake.refresh(set(), [])
    gone = own.get(f"{URL}/inds", params={"cursor": first["next_cursor"]})
    assert "not kept" in problem(gone, 404, "not-in-corpora")


@pytest.mark.parametrize("generation", [1, 2])
def test_the_export_names_both_columns_by_table_and_position(
    client: httpx.Client, generation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_export, "ROWS", 2)
    rows = [(*first, *second) for first, second in expected({1: FIRST, 2: SECOND}[generation])]
    text = client.get(f"{URL}/export", params={"generation": generation})
    assert text.headers["content-type"].startswith("text/csv")
    header, *found = csv.reader(io.StringIO(text.text, newline=""))
    assert header == ["dependent_table", "dependent_position", "referenced_table", "referenced_position"]
    assert [(a, int(b), c, int(d)) for a, b, c, d in found] == rows
    binary = client.get(f"{URL}/export", params={"generation": generation, "format": "parquet"})
    table = pq.read_table(pa.BufferReader(binary.content))
    assert table.column_names == header
    assert list(zip(*table.to_pydict().values(), strict=True)) == rows


def test_an_export_without_inds_is_a_file_without_rows(own: httpx.Client, lake: GivenCorpus) -> None:
    lake.refresh(set(), [], gone=[0, 1, 2, 3])
    assert own.get(f"{URL}/export").text.count("\n") == 1
    binary = own.get(f"{URL}/export", params={"format": "parquet"}).content
    assert pq.read_table(pa.BufferReader(binary)).num_rows == 0


def test_a_corpus_is_registered_refreshed_and_removed(own: httpx.Client, lake: GivenCorpus) -> None:
    new = {
        "name": "web tables",
        "location": "/data/web",
        "kind": "jsonl",
        "settings": {"null_tokens": ["", "-"], "coverage": 0.2, "integer_columns": True, "algorithm": "signatures"},
        "schedule": "30 2 * * 1-5",
        "time_limit_seconds": 3600,
        "retries": 2,
    }
    added = own.post("/api/v1/corpora", json=new)
    assert body(added, 201)["settings"] | new["settings"] == body(added, 201)["settings"] | {"coverage": 0.2}
    address = added.headers["location"]
    shown = body(own.get(address))
    assert shown["settings"]["coverage"] == "1/5"
    assert (shown["generation"], shown["counts"], shown["last_refresh"]) == (None, None, None)
    problem(own.post("/api/v1/corpora", json=new), 409, "conflict")
    problem(own.get(f"{address}/inds"), 404, "not-in-corpora")

    waiting = own.post(f"{address}/refreshes", json={})
    refresh = body(waiting, 202)
    assert (refresh["state"], refresh["full"], refresh["requested_by"]) == ("queued", False, "api")
    assert body(own.post(f"{address}/refreshes", json={"full": True}), 202)["refresh_id"] == refresh["refresh_id"]
    assert body(own.get(waiting.headers["location"]))["full"] is True
    assert body(own.post(f"{waiting.headers['location']}/cancel", json={}), 202)["state"] == "cancelled"
    problem(own.post(f"{waiting.headers['location']}/cancel", json={}), 409, "conflict")
    problem(own.get(f"{URL}/refreshes/{refresh['refresh_id']}"), 404, "not-in-corpora")

    names = [one["name"] for one in body(own.get("/api/v1/corpora"))["items"]]
    assert names == sorted([NAME, "web tables"])
    assert own.delete(address).status_code == 204
    problem(own.get(address), 404, "not-in-corpora")
    assert places(pages(own, "/inds")) == expected(SECOND), "the other is as it was"


def test_a_corpus_is_changed_in_part_and_its_generations_answer_as_they_were_found(
    own: httpx.Client, lake: GivenCorpus
) -> None:
    before = body(own.get(URL))
    changes = {"settings": {"coverage": "1/2", "null_tokens": ["-"]}, "schedule": "0 4 * * *", "retries": 3}
    changed = body(own.patch(URL, json=changes))
    settings = before["settings"] | {"coverage": "1/2", "null_tokens": ["-"]}
    assert (changed["settings"], changed["schedule"], changed["retries"]) == (settings, "0 4 * * *", 3)
    assert changed == {name: body(own.get(URL))[name] for name in changed}
    assert body(own.patch(URL, json={"schedule": None}))["schedule"] is None
    assert body(own.patch(URL, json={}))["retries"] == 3
    assert "never comes" in problem(own.patch(URL, json={"schedule": "0 0 31 2 *"}), 422, "refused-corpus")
    assert "stays where it is" in problem(own.patch(URL, json={"settings": {"index": "/x"}}), 422, "refused-corpus")
    problem(own.patch(URL, json={"location": "/x"}), 422, "invalid-request")
    problem(own.patch("/api/v1/corpora/sea", json={}), 404, "not-in-corpora")

    lake.corpora.change(lake.name, lambda _: lake.corpora.named(lake.name))  # what is given as it was stays
    lake.refresh(SECOND, settings=CorpusSettings.from_json(settings).to_json())
    body(own.patch(URL, json={"settings": {"coverage": 0}}))
    # 10 of 40 values: half of them would have been enough for nobody.
    sides = {"dependent_table": HARD, "dependent_position": 2, "referenced_table": "last.csv", "referenced_position": 0}
    answer = body(own.get(f"{URL}/pair", params=sides))
    assert "low_coverage" in answer["reasons"]


def test_refreshes_are_listed_with_their_faults(client: httpx.Client) -> None:
    found = pages(client, "/refreshes")
    assert [(one["state"], one["generation"]) for one in found] == [("landed", 2), ("landed", 1)]
    assert found[0]["report"]["files"]["faults"] == 1
    path = f"/refreshes/{found[0]['refresh_id']}/faults"
    assert pages(client, path) == [{"path": "broken.csv", "message": "It is empty."}]
    problem(client.get(f"{URL}/refreshes/999"), 404, "not-in-corpora")


def test_a_running_refresh_tells_how_far_it_is(own: httpx.Client, lake: GivenCorpus) -> None:
    asked_for = lake.queue()
    assert lake.corpora.claim(asked_for)
    assert not lake.corpora.progress(asked_for, "reading", 0, 40)
    lake.corpora.progress(asked_for, "reading", 10, 40)
    shown = body(own.get(f"{URL}/refreshes/{asked_for}"))
    assert (shown["state"], shown["stage"], shown["done"], shown["total"]) == ("running", "reading", 10, 40)
    assert shown["expected_end"] >= shown["stage_started_at"] >= shown["started_at"]
    assert body(own.get(URL))["last_refresh"] == shown
    assert places(pages(own, "/inds")) == expected(SECOND), "the generation before is served meanwhile"
    cancelled = body(own.post(f"{URL}/refreshes/{asked_for}/cancel", json={}), 202)
    assert (cancelled["state"], cancelled["cancel_requested"]) == ("running", True)
    assert lake.corpora.progress(asked_for, "reading", 11, 40), "the job hears of it"


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"name": "../up"}, "slash"),
        ({"name": ".hidden"}, "dot"),
        ({"location": "data"}, "relative"),
        ({"location": "postgresql://host/db"}, "kind"),
        ({"kind": "postgres"}, "kind"),
        ({"kind": "postgres", "location": "postgresql://user:secret@host/db"}, "passwords"),
        ({"kind": "postgres", "location": "postgresql://host/db?password=secret"}, "passwords"),
        ({"schedule": "every day"}, "five fields"),
        ({"schedule": "0 0 31 2 *"}, "never comes"),
        ({"settings": {"coverage": "a fifth"}}, "coverage"),
        ({"settings": {"coverage": 2}}, "coverage"),
        ({"settings": {"threshold": 0}}, "threshold"),
        ({"settings": {"hashes": 0}}, "hashes"),
        ({"settings": {"delimiter": ",,"}}, "delimiter"),
        ({"settings": {"encoding": "utf-9"}}, "encoding"),
        ({"settings": {"index": "here"}}, "index"),
    ],
)
def test_what_cannot_be_a_corpus_is_refused_by_name(client: httpx.Client, changed: dict[str, Any], word: str) -> None:
    new = {"name": "new", "location": "/data", "kind": "csv"}
    detail = problem(client.post("/api/v1/corpora", json={**new, **changed}), 422, "refused-corpus")
    assert word in detail
    assert "secret" not in detail
    assert len(body(client.get("/api/v1/corpora"))["items"]) == 1


def test_the_index_of_another_corpus_is_refused(own: httpx.Client) -> None:
    """Two would take each other's values for their own."""
    new = {"name": "one", "location": "/data", "kind": "csv", "settings": {"index": "/indexes/one"}}
    body(own.post("/api/v1/corpora", json=new), 201)
    again = {**new, "name": "two", "settings": {"index": "/indexes/one/"}}
    assert "the corpus one" in problem(own.post("/api/v1/corpora", json=again), 422, "refused-corpus")
    problem(own.post("/api/v1/corpora", json=new), 409, "conflict")


def test_a_page_of_another_host_cannot_change_anything(client: httpx.Client) -> None:
    """A browser sends forms and plain text to any host without asking it first, so such requests are refused."""
    for path, sent in {
        "/api/v1/corpora": '{"name": "n", "location": "/", "kind": "csv"}',
        f"{URL}/refreshes": "{}",
        f"{URL}/refreshes/1/cancel": "{}",
    }.items():
        for headers in ({}, {"content-type": "text/plain"}, {"content-type": "application/x-www-form-urlencoded"}):
            problem(client.post(path, content=sent, headers=headers), 422, "invalid-request")
        problem(client.post(path), 422, "invalid-request")


def test_metrics_tell_of_each_corpus(own: httpx.Client, lake: GivenCorpus) -> None:
    lake.corpora.cancel(lake.queue())
    text = own.get("/metrics").text
    found = {
        (sample.name, sample.labels.get("state")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("corpus") == NAME
    }
    assert found["subsetd_corpus_generation", None] == 2
    assert found["subsetd_corpus_inds", None] == 3
    assert found["subsetd_corpus_faults", None] == 1
    assert found["subsetd_corpus_refresh_seconds", None] > 0
    (refresh,) = lake.corpora.refreshes(NAME, limit=2)[1:]
    assert refresh.ended_at is not None
    assert found["subsetd_corpus_landed_timestamp_seconds", None] == pytest.approx(refresh.ended_at.timestamp())
    states = {state: value for (name, state), value in found.items() if name == "subsetd_corpus_refresh_state"}
    assert states == {"queued": 0, "running": 0, "landed": 0, "failed": 0, "cancelled": 1}

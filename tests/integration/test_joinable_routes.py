"""Joinable tables over HTTP: at once and as a job, cancelled and ended at their limit, and what is refused."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg2
import pytest

from service.config import Settings
from service.core.join_layout import Layout
from service.core.joinability import Progress
from service.core.records import Int64s
from service.core.row_key import row_key
from service.join_tracking import index_tables
from service.joinable_runner import searching_joinable
from service.store.database import make_engine
from service.store.embedded import EmbeddedPostgres
from service.store.join_tracked import add_tables
from service.usecases import joinable_searches
from tests import kept_rows, states
from tests.asking import http_client
from tests.integration.serving import app_over, serving
from tests.joinable import build
from tests.postgres import TEMPLATE, fresh_database
from tests.refreshing import Lake, write_tables
from tests.states import Tables
from tests.waiting import wait_for

PATH = "/api/v1/joinable"
MINE = "city,no,note\nberlin,1,x\nrome,2,y\nrome,2,z\noslo,,\n"
CSV = {"Content-Type": "text/csv"}


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> Lake:
    return built(database_url, tmp_path / "tables")


@pytest.fixture(scope="module")
def asked_alone(postgres_server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Give a lake that no test changes."""
    with fresh_database(postgres_server, TEMPLATE) as url:
        yield built(url, tmp_path_factory.mktemp("asked-alone") / "tables")


def built(url: str, folder: Path) -> Lake:
    write_tables(folder, {
        "a.csv": [["berlin", "rome", "oslo"], ["1", "2", ""], ["x", "y", "z"]],
        "b.csv": [["1", "2", "3"], ["berlin", "bonn", "rome"], ["p", "q", "r"]],
        "cities.csv": [["berlin", "rome", "oslo", "bonn"]],
    })  # fmt: skip
    made = Lake(url, folder)
    build(made)
    return made


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is short be answered at once on a busy machine, too."""
    monkeypatch.setattr(joinable_searches, "AT_ONCE_SECONDS", 1e9)


@contextmanager
def served(url: str, **settings: Any) -> Iterator[httpx.Client]:
    engine = make_engine(url, "test-joinable", statement_timeout_ms=10_000)
    with (
        searching_joinable(url, engine, Settings(**settings)) as searches,
        serving(app_over(engine, joinable=searches)) as address,
        http_client(base_url=address, timeout=60) as client,
    ):
        yield client
    engine.dispose()


def post(client: httpx.Client, lake: Lake, content: str | bytes = MINE, **asked: Any) -> httpx.Response:
    question = {"corpus": lake.name, "key": ["city", "no"], **asked}
    given = {name: value for name, value in question.items() if value is not None}
    return client.post(PATH, params=given, content=content, headers=CSV)


def ended(client: httpx.Client, location: str) -> dict[str, Any]:
    """Wait for the end of a search."""

    def look() -> dict[str, Any] | None:
        told: dict[str, Any] = client.get(location).json()
        return None if told["state"] in ("queued", "running") else told

    found = wait_for(look)
    assert found is not None
    return found


def test_a_short_search_is_answered_at_once(asked_alone: Lake) -> None:
    lake = asked_alone
    with served(lake.url) as client:
        answer = post(client, lake, k=1, through=1, preview=1)
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert (told["search_id"], told["state"], told["message"]) == (None, "done", None)
        found = told["answer"]
        assert (found["rows"], found["keys"], found["empty"], found["is_cut"]) == (4, 2, 1, False)
        assert found["tables"] == [
            {
                "table": "a.csv",
                "columns": ["c0", "c1"],
                "matched_keys": 2,
                "share": 1.0,
                "positions": [0, 1],
                "matched_rows": 3,
                "row_share": 0.75,
                "new_columns": ["c2"],
                "preview": [{"row": 0, "key": ["berlin", "1"], "values": ["x"]}],
                "preview_fault": None,
                "leads_to": [
                    {
                        "table": "cities.csv",
                        "reason": "ind",
                        "through": ["c0"],
                        "through_positions": [0],
                        "columns": ["c0"],
                        "positions": [0],
                        "coverage": 0.75,
                    }
                ],
            }
        ]
        shares = post(client, lake, min_share=0.5, preview=0).json()["answer"]["tables"]
        assert [(one["table"], one["share"]) for one in shares] == [("a.csv", 1.0), ("b.csv", 0.5)]
        assert [one["table"] for one in post(client, lake, min_share=0.51, preview=0).json()["answer"]["tables"]] == [
            "a.csv"
        ]


def test_a_long_search_is_a_job_with_the_same_answer(lake: Lake) -> None:
    asked = {"min_share": 0.5, "through": 2, "k": 3}
    with served(lake.url) as client:
        at_once = post(client, lake, **asked).json()["answer"]
    with served(lake.url, joinable_at_once_postings=1) as client:
        begun = post(client, lake, **asked)
        assert begun.status_code == 202, begun.text
        assert begun.headers["Location"] == f"{PATH}/{begun.json()['search_id']}"
        assert begun.json()["answer"] is None
        told = ended(client, begun.headers["Location"])
        assert (told["state"], told["answer"]) == ("done", at_once), told["message"]
        assert told["asked_at"] <= told["began_at"] <= told["ended_at"]
        refused = client.post(f"{begun.headers['Location']}/cancel", json={})
        assert (refused.status_code, refused.json()["type"]) == (409, "/docs#conflict")


@pytest.mark.parametrize("key", [["note"], ["note", "no"]], ids=["common", "common and rare"])
def test_of_a_search_with_too_many_cells_none_is_fetched_before_it_is_a_job(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: list[str]
) -> None:
    write_tables(tmp_path / "tables", {"a.csv": [["x"] * 300, [str(n) for n in range(300)]]})
    lake = Lake(database_url, tmp_path / "tables")
    build(lake)
    fetched = [0]

    def tables(self: Layout, places: Int64s) -> Int64s:
        fetched.append(len(places))
        return real(self, places)

    real = Layout.tables
    monkeypatch.setattr(Layout, "tables", tables)
    with served(lake.url, joinable_at_once_postings=200) as client:
        assert post(client, lake, key=key).status_code == 202
        assert max(fetched) == 0
    with served(lake.url, joinable_at_once_postings=301) as client:
        assert post(client, lake, key=key).status_code == 200
        assert max(fetched) >= 300


def test_a_search_that_takes_too_long_to_wait_for_is_a_job(asked_alone: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joinable_searches, "AT_ONCE_SECONDS", 0)
    with served(asked_alone.url) as client:
        assert post(client, asked_alone).status_code == 202


@contextmanager
def never_read(path: Path) -> Iterator[None]:
    """Let whoever opens a file wait until this ends, when there is none."""
    path.unlink()
    os.mkfifo(path)
    yield
    opened = os.open(path, os.O_RDWR)
    path.unlink()
    os.close(opened)


@pytest.mark.parametrize(("bound", "most"), [("AT_ONCE_SECONDS", 2.0), ("AT_ONCE_LOOKS", 4)])
def test_nobody_waits_for_rows_that_take_long_or_are_not_told(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, bound: str, most: float
) -> None:
    """An answer that leaves tables unfinished is not told: a job finds all of it."""
    monkeypatch.setattr(joinable_searches, bound, most)
    with served(lake.url) as client:
        with never_read(lake.folder / "a.csv"):
            begun = post(client, lake)
            assert begun.status_code == 202, begun.text
        told = ended(client, begun.headers["Location"])
        assert (told["state"], [one["table"] for one in told["answer"]["tables"]]) == ("done", ["a.csv", "b.csv"])


def test_a_query_of_many_rows_is_a_job(asked_alone: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joinable_searches, "AT_ONCE_ROWS", 3)
    with served(asked_alone.url) as client:
        assert post(client, asked_alone, "city,no\n" + "berlin,1\n" * 3, preview=0).status_code == 200
        assert post(client, asked_alone, "city,no\n" + "berlin,1\n" * 4).status_code == 202


@contextmanager
def locked(lake: Lake) -> Iterator[None]:
    """Let whoever searches wait for a table that somebody has locked, once it has begun."""
    with psycopg2.connect(lake.url) as connection:
        connection.cursor().execute("lock table join_bucket in access exclusive mode")
        yield


def test_a_search_that_waits_or_runs_is_cancelled(lake: Lake) -> None:
    with served(lake.url, joinable_at_once_postings=0) as client, locked(lake):
        first, second = (post(client, lake).headers["Location"] for _ in range(2))
        cancelled = client.post(f"{second}/cancel", json={}).json()
        assert (cancelled["state"], cancelled["began_at"]) == ("cancelled", None)
        wait_for(lambda: client.get(first).json()["state"] == "running")
        assert client.post(f"{first}/cancel", json={}).status_code == 202
        told = ended(client, first)
        assert (told["state"], told["message"], told["answer"]) == ("cancelled", "It was cancelled.", None)


def test_a_search_that_does_not_end_is_ended_at_its_limit(lake: Lake) -> None:
    with served(lake.url, joinable_at_once_postings=0, joinable_seconds=2) as client, locked(lake):
        told = ended(client, post(client, lake).headers["Location"])
        assert (told["state"], told["answer"]) == ("failed", None)
        assert told["message"] == "It took longer than 2 s, the most that it may take."


def test_a_search_with_too_many_postings_says_what_would_help() -> None:
    joinable_searches.require_bounded(Progress(joinable_searches.MOST_POSTINGS, 1, 0, None))
    with pytest.raises(joinable_searches.TooManyPostingsError, match=r"30,000,001 cells .* further key column"):
        joinable_searches.require_bounded(Progress(joinable_searches.MOST_POSTINGS + 1, 1, 0, None))


def test_a_tracked_table_is_asked_with_where_its_rows_are_kept(lake: Lake) -> None:
    shop = Tables({"trips": ["id", "city", "no"], "others": ["a"]})
    shop.add("trips", ["7", "berlin", "1"], ["8", "rome", "2"], ["9", "oslo", None])
    shop.add("others", ["1"])
    states.store(lake.url, shop)
    kept_rows.keep(lake.url, shop, {"trips": ["id"]})
    tracked = {"schema": "s", "table": "trips", "preview": 0}
    with served(lake.url, joinable_rows=3) as client:
        found = post(client, lake, "", **tracked)
        assert found.status_code == 200, found.text
        sent = post(client, lake, "city,no\nberlin,1\nrome,2\noslo,\n", preview=0)
        assert found.json()["answer"] == sent.json()["answer"]
        assert found.json()["answer"]["empty"] == 1
        for status, asked, message in (
            (404, {**tracked, "table": "none"}, "No table s.none is followed"),
            (404, {**tracked, "table": "a\0b"}, None),
            (422, {**tracked, "table": "others", "key": ["a"]}, "No images of the rows of s.others are kept"),
            (422, {**tracked, "key": ["town"]}, "There is no column 'town'. The columns are 'id', 'city', 'no'."),
            (422, {**tracked, "key": ["no", "no"]}, "named twice"),
            (422, {"schema": "s"}, "both `schema` and `table`"),
        ):
            refused = post(client, lake, "", **asked)
            assert refused.status_code in (status, 422), refused.text
            assert message is None or message in refused.json()["detail"]
        both = post(client, lake, **tracked)
        assert "one of the two" in both.json()["detail"]
    with served(lake.url, joinable_rows=2) as client:
        assert "more than 2 rows" in post(client, lake, "", **tracked).json()["detail"]
    for most, status in ((len("berlin1rome2oslo"), 200), (len("berlin1rome2osl"), 422)):
        with served(lake.url, joinable_upload_bytes=most) as client:
            told = post(client, lake, "", **tracked)
            assert told.status_code == status, told.text
    assert told.json()["detail"] == "The key cells of s.trips have 16 bytes; at most 15 are asked with."


def test_a_tracked_table_is_asked_with_as_far_as_it_is_kept_current(lake: Lake) -> None:
    """A row waits under another key between the two halves of a key change, when the state has it no longer."""
    shop = Tables({"trips": ["id", "city", "no"]}).add("trips", ["7", "berlin", "1"], ["8", "rome", "2"])
    states.store(lake.url, shop)
    kept_rows.keep(lake.url, shop, {"trips": ["id"]})
    lent = row_key(["9", "lent"]).hex()
    states.execute(
        lake.url, f"insert into row_image (table_id, row_key, cells) select table_id, '{lent}', '{{9,oslo,3}}' "
        "from tracked_table",
    )  # fmt: skip
    tracked = {"schema": "s", "table": "trips", "preview": 0}
    with served(lake.url) as client:
        assert post(client, lake, "", **tracked).json()["answer"]["rows"] == 2
        states.execute(lake.url, "update attribute set stale_version = 1 where column_name = 'no'")
        assert post(client, lake, "", **tracked, key=["city"]).json()["answer"]["rows"] == 2
        refused = post(client, lake, "", **tracked)
        assert (refused.status_code, refused.json()["detail"]) == (
            422,
            "There is no column 'no'. The columns are 'id', 'city'.",
        )


@pytest.mark.parametrize("at_once", [0, 1_000_000])
def test_tracked_tables_are_searched(lake: Lake, at_once: int) -> None:
    shop = Tables({"trips": ["id", "city", "no"], "visits": ["no", "city"], "cities": ["name"]})
    shop.add("trips", ["7", "berlin", "1"], ["8", "rome", "2"], ["9", "oslo", None])
    shop.add("visits", ["1", "berlin"])
    shop.add("cities", ["berlin"], ["rome"], ["oslo"])
    states.store(lake.url, shop)
    kept_rows.keep(lake.url, shop, {"trips": ["id"], "visits": ["no"], "cities": ["name"]})
    with served(lake.url, joinable_at_once_postings=at_once) as client:
        refused = post(client, lake, corpus=None, tracked=True)
        assert (refused.status_code, "subsetd join-index track" in refused.json()["detail"]) == (404, True)
        assert [one.rows for one in index_tables(lake.url, ["s.trips", "s.visits"])] == [3, 1]
        add_tables(lake.url, ["s.cities"])
        asked = post(client, lake, corpus=None, tracked=True)
        assert asked.status_code == (200 if at_once else 202), asked.text
        told = asked.json() if at_once else ended(client, asked.headers["Location"])
        found = told["answer"]
        assert (found["version"], found["generation"], found["not_indexed"]) == (1, None, ["s.cities"]), told["message"]
        trips, visits = found["tables"]
        assert (trips["table"], trips["columns"], trips["matched_keys"], trips["new_columns"]) == (
            "s.trips",
            ["city", "no"],
            2,
            ["id"],
        )
        assert {tuple(row["key"]): (row["row"], row["values"]) for row in trips["preview"]} == {
            ("berlin", "1"): (None, ["7"]),
            ("rome", "2"): (None, ["8"]),
        }
        assert (visits["table"], visits["positions"], visits["matched_keys"]) == ("s.visits", [1, 0], 1)
        of_table = {"corpus": None, "tracked": True, "schema": "s", "table": "visits", "k": 1}
        again = post(client, lake, "", **of_table)
        assert again.status_code == asked.status_code
        for status, wrong, message in (
            (422, {"tracked": True}, "one of them says what is searched"),
            (422, {"corpus": None, "tracked": True, "near": ["case"]}, "of which no others can be made"),
        ):
            refused = post(client, lake, **wrong)
            assert (refused.status_code, message in refused.json()["detail"]) == (status, True)


@pytest.mark.parametrize(
    ("content", "asked", "status", "kind", "detail"),
    [
        (MINE, {"corpus": "none"}, 404, "not-in-corpora", "There is no corpus 'none'"),
        (MINE, {"corpus": None}, 422, "invalid-request", "corpus"),
        (MINE, {"key": None}, 422, "invalid-request", "key"),
        (MINE, {"key": ["town"]}, 422, "refused-query", "There is no column 'town'"),
        (MINE, {"key": ["no", "no"]}, 422, "refused-query", "The key column 'no' is named twice"),
        (MINE, {"key": [f"c{n}" for n in range(11)]}, 422, "invalid-request", "at most 10"),
        (MINE, {"k": 0}, 422, "invalid-request", "k: "),
        (MINE, {"k": 10**30}, 422, "invalid-request", "k: "),
        (MINE, {"k": 1001}, 422, "invalid-request", "less than or equal to 1000"),
        (MINE, {"min_share": 0}, 422, "invalid-request", "min_share"),
        (MINE, {"min_share": 1.5}, 422, "invalid-request", "min_share"),
        (MINE, {"near": ["case"]}, 422, "refused-query", "has its cells as they are, and not folded by case"),
        (MINE, {"near": ["accents"]}, 422, "invalid-request", "case"),
        (MINE, {"nearly": "case"}, 422, "invalid-request", "nearly"),
        ("", {}, 422, "refused-query", "Send rows as a CSV, or name a tracked table"),
        ("\n\n", {}, 422, "refused-query", "not even a header"),
        ("berlin,1\nrome,2\n", {}, 422, "refused-query", "There is no column 'city'. The columns are 'berlin', '1'."),
        ("city,city\n1,2\n", {"key": ["city"]}, 422, "refused-query", "There are several columns 'city'"),
        ("city,no\n1\n", {}, 422, "refused-query", "Line 2: the row has 1 cells, the header 2"),
        ('city,no\n"1,2\n', {}, 422, "refused-query", "cannot be read as CSV"),
        ("city,no\na\0b,2\n", {}, 422, "refused-query", "a NUL character"),
        ("city,no\nköln,2\n".encode("latin-1"), {}, 422, "refused-query", "in UTF-8"),
        ("city,no\n" + "1,2\n" * 6, {}, 422, "refused-query", "more than 5 rows"),
        ("city,no\n" + "x" * 2_000_000, {}, 413, None, "more than 1,500,000 bytes"),
    ],
)
def test_what_cannot_be_asked_is_a_problem(
    asked_alone: Lake, content: str | bytes, asked: dict[str, Any], status: int, kind: str | None, detail: str
) -> None:
    with served(asked_alone.url, joinable_rows=5, joinable_upload_bytes=1_500_000) as client:
        refused = post(client, asked_alone, content, **asked)
        told = refused.json()
        assert (refused.status_code, refused.headers["Content-Type"]) == (status, "application/problem+json"), told
        assert told["type"] == ("about:blank" if kind is None else f"/docs#{kind}")
        assert detail in told["detail"]


@pytest.mark.parametrize(
    ("content", "keys", "empty", "tables"),
    [
        ("city,no\n", 0, 0, []),
        ("city,no\n,\n ,\n,1\n", 0, 3, []),
        ("city,no\nberlin,1\n", 1, 0, ["a.csv", "b.csv"]),
        ("city,no\n" + "x" * 1_000_000 + ",1\nberlin,1\n", 2, 0, ["a.csv", "b.csv"]),
        ("\ufeffcity,no\r\nberlin,1\r\n", 1, 0, ["a.csv", "b.csv"]),
        ("city,no\n\U0001f600,1\n\x07,2\n", 2, 0, []),
    ],
)
def test_odd_rows_are_asked_with(asked_alone: Lake, content: str, keys: int, empty: int, tables: list[str]) -> None:
    with served(asked_alone.url) as client:
        answer = post(client, asked_alone, content, preview=0)
        assert answer.status_code == 200, answer.text
        found = answer.json()["answer"]
        assert (found["keys"], found["empty"], [one["table"] for one in found["tables"]]) == (keys, empty, tables)


def test_nothing_is_unpacked_and_other_types_are_not_taken(asked_alone: Lake) -> None:
    with served(asked_alone.url) as client:
        asked = {"corpus": asked_alone.name, "key": ["city"]}
        packed = {**CSV, "Content-Encoding": "gzip"}
        for headers, content in (
            (packed, gzip.compress(b"city\n" + b"x" * 10_000_000)),
            ({"Content-Type": "application/zip"}, b"PK\3\4"),
            ({"Content-Type": "multipart/form-data; boundary=b"}, b"--b--"),
            ({}, MINE.encode()),
        ):
            refused = client.post(PATH, params=asked, content=content, headers=headers)
            assert (refused.status_code, refused.headers["Content-Type"]) == (415, "application/problem+json")
        unknown = client.get(f"{PATH}/99")
        assert (unknown.status_code, unknown.json()["type"]) == (404, "/docs#unknown-search")
        assert client.post(f"{PATH}/99/cancel", json={}).status_code == 404


def test_a_job_about_cells_that_the_index_does_not_have_is_refused(asked_alone: Lake) -> None:
    with served(asked_alone.url, joinable_at_once_postings=0) as client:
        refused = post(client, asked_alone, near=["case"])
        assert refused.status_code == 422, refused.text
        assert "has its cells as they are, and not folded by case" in refused.json()["detail"]


def test_without_an_index_the_way_out_is_told(lake: Lake) -> None:
    states.execute(lake.url, "delete from join_index")
    for settings in ({}, {"joinable_at_once_postings": 0}):
        with served(lake.url, **settings) as client:
            refused = post(client, lake)
            assert refused.status_code == 404
            assert f"subsetd corpus index {lake.name} --wait" in refused.json()["detail"]

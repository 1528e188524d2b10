"""`subsetd join-index` and `subsetd joinable --tracked` as a user types them, with a consumer in between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import kept_rows, states
from tests.e2e.test_cli import Command, subsetd
from tests.following import Stream
from tests.states import Tables

__all__ = ["subsetd"]

COLUMNS = {"orders": ["id", "customer", "year"], "customers": ["id", "name"]}


@pytest.fixture
def stream(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    monkeypatch.chdir(tmp_path)
    tables = Tables(dict(COLUMNS))
    tables.add("orders", ["10", "1", "2019"], ["11", "2", "2020"], ["12", "2", "2021"])
    tables.add("customers", ["1", "Ada"], ["2", "Bob"])
    states.store(database_url, tables)
    kept_rows.keep(database_url, tables, {"orders": ["id"]})
    Path("mine.csv").write_text("who,year\n1,2019\n2,2020\n2,2022\n")
    Path("feed.jsonl").touch()
    return Stream(Path("feed.jsonl"), tables, dict(COLUMNS))


def test_a_tracked_table_is_indexed_followed_and_searched(stream: Stream, subsetd: Command, database_url: str) -> None:
    assert subsetd("join-index", "track", "s.orders") == "s.orders: 3 rows are indexed.\n"
    asked = ("joinable", "mine.csv", "--key", "who,year", "--tracked")
    assert subsetd(*asked, "--format", "csv").splitlines()[1:] == [f's.orders,"customer, year",2,{2 / 3}']
    stream.change("orders", ["12", "2", "2021"], ["12", "2", "2022"])
    stream.change("orders", ["10", "1", "2019"], None)
    subsetd("consume", "--feed", "file:feed.jsonl", "--until-end")
    code, out, said = subsetd.ended(*asked, "--format", "json")
    (found,) = json.loads(out)
    assert (code, found["columns"], found["matched_keys"]) == (0, ["customer", "year"], 2)
    assert {tuple(one["key"]): one["values"] for one in found["preview"]} == {
        ("2", "2020"): ["11"],
        ("2", "2022"): ["12"],
    }
    assert said.startswith("as of version ")
    (listed,) = json.loads(subsetd("join-index", "list", "--format", "json"))
    assert listed == {"table": "s.orders", "built_version": 1, "rows": 3, "segments": 1, "changed": 2}
    assert subsetd("join-index", "list", "--format", "csv").splitlines()[1:] == ["s.orders,1,3,1,2"]
    assert "built_version" in subsetd("join-index", "list")
    states.execute(database_url, "update join_tracked set built_version = null")
    assert "s.orders: it is not searched, as its rows are not indexed yet" in subsetd.ended(*asked)[2]
    states.execute(database_url, "update join_tracked set built_version = 1")
    assert "of which no others can be made" in subsetd.ended(*asked, "--near", "case")[2]
    subsetd("join-index", "untrack", "s.orders")
    assert "join-index track" in subsetd.ended(*asked)[2]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("join-index", "track", "s.customers"), 1, "--row-images always"),
        (("join-index", "track", "s.none"), 1, "no table 's.none'"),
        (("joinable", "mine.csv", "--key", "who"), 2, "one of them says what is searched"),
        (("joinable", "mine.csv", "--key", "who", "--corpus", "c", "--tracked"), 2, "one of them says"),
        (("joinable", "mine.csv", "--key", "who", "--tracked"), 1, "subsetd join-index track SCHEMA.TABLE"),
    ],
)
def test_what_cannot_be_is_told(
    stream: Stream, subsetd: Command, arguments: tuple[str, ...], code: int, message: str
) -> None:
    ended, _, said = subsetd.ended(*arguments)
    assert (ended, message in " ".join(said.replace("│", "").split())) == (code, True), said

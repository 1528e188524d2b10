"""`subsetd joinable` and `subsetd corpus index` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.test_cli import Command, subsetd
from tests.joinable import build
from tests.refreshing import Lake, write_tables

__all__ = ["subsetd"]


@pytest.fixture
def lake(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Name the state, stand in a folder with a query, and give a corpus of two tables that is not indexed."""
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text('\ufeff"city, old",no\nberlin,1\nrome,2\noslo,\n')
    write_tables(tmp_path / "tables", {
        "a.csv": [["berlin", "rome"], ["1", "9"]],
        "b.csv": [["1", "2"], ["x", "y"], ["berlin", "rome"]],
    })  # fmt: skip
    return Lake(database_url, tmp_path / "tables")


def test_tables_that_join_are_listed(lake: Lake, subsetd: Command) -> None:
    build(lake)
    asked = ("joinable", "mine.csv", "--key", '"city, old",no', "--corpus", lake.name)
    best = {
        "table": "b.csv",
        "columns": ["c2", "c0"],
        "matched_keys": 2,
        "share": 1.0,
        "positions": [2, 0],
        "matched_rows": 2,
        "row_share": 2 / 3,
        "new_columns": ["c1"],
        "preview": [{"row": 0, "key": ["berlin", "1"], "values": ["x"]}],
        "preview_fault": None,
        "leads_to": [
            {
                "table": "a.csv",
                "reason": "ind",
                "through": ["c2"],
                "through_positions": [2],
                "columns": ["c0"],
                "positions": [0],
                "coverage": 1.0,
            }
        ],
    }
    code, out, said = subsetd.ended(*asked, "--format", "json", "-k", "1", "--preview", "1", "--through", "2")
    assert (code, json.loads(out)) == (0, [best])
    assert said == "1 of 3 rows have an empty key cell, which joins nothing\n"
    assert subsetd(*asked, "--format", "csv").splitlines() == [
        "table,columns,matched_keys,share",
        'b.csv,"c2, c0",2,1.0',
        'a.csv,"c0, c1",1,0.5',
    ]
    assert [
        one["table"] for one in json.loads(subsetd(*asked, "--min-share", "2/3", "--preview", "0", "--format", "json"))
    ] == ["b.csv"]
    assert "more tables have such a share" in subsetd.ended(*asked, "--min-share", "0.5", "-k", "1")[2]
    assert subsetd(*asked).splitlines()[1].split() == ["b.csv", "c2,", "c0", "2", "1"]


def test_what_cannot_be_asked_is_told(lake: Lake, subsetd: Command) -> None:
    for arguments, message in {
        ("joinable", "mine.csv", "--key", "no", "--corpus", lake.name): "has no index of joinable tables",
        ("joinable", "mine.csv", "--key", "no", "--corpus", "other"): "There is no corpus 'other'",
        ("joinable", "mine.csv", "--key", "town", "--corpus", lake.name): "mine.csv: There is no column 'town'",
        ("joinable", "none.csv", "--key", "no", "--corpus", lake.name): "none.csv cannot be read: No such file",
        ("joinable", "mine.csv", "--key", "no,", "--corpus", lake.name): "is no list of column names",
        ("joinable", "mine.csv", "--key", "no", "--corpus", lake.name, "-k", "1001"): "at most 1,000 tables",
        ("joinable", "mine.csv", "--key", "no", "--corpus", lake.name, "--min-share", "1.1"): "at most 1.",
        ("corpus", "index", lake.name): "--wait builds the index here",
    }.items():
        code, _, said = subsetd.ended(*arguments)
        assert code == 1, said
        assert message in said


@pytest.mark.parametrize("share", ["half", "1e400", "1e-999999999", "0." + "1" * 5000])
def test_a_share_that_is_none_is_told(lake: Lake, subsetd: Command, share: str) -> None:
    code, _, said = subsetd.ended("joinable", "mine.csv", "--key", "no", "--corpus", lake.name, "--min-share", share)
    assert code == 2
    assert "Invalid value for --min-share" in said

"""Keys of tables and columns as nobody would make them: listed, tracked by name, decided and exported all the same."""

from __future__ import annotations

import json

import pytest

from tests import states
from tests.e2e.test_cli import Command, subsetd
from tests.states import Tables

__all__ = ["subsetd"]

SIX = ("a", "b", "c", "d", "e", "f")
LONG = "x" * 300
ODD = ["", "2024", "größe, 顧客", 'say "hi"', "a.b", "(x)", LONG]


@pytest.fixture
def state(database_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    tables = Tables(
        {"none": ["x", "y"], "void": ["n"], "one": ["v"], "wide": list(SIX), "wider": list(SIX), "odd": ODD},
        tuples={"wide": [SIX], "wider": [SIX], "odd": [tuple(ODD)]},
    )
    tables.add("none", ["1", "1"], ["1", "1"]).add("void", [None], [None]).add("one", ["7"])
    for table in "wide", "wider":
        tables.add(table, *([str(n >> bit & 1) for bit in range(6)] for n in range(64)))
    tables.add("wide", [None, "0", "0", "0", "0", "0"])
    tables.add("odd", *([f"{n}"] * len(ODD) for n in range(3)))
    states.store(database_url, tables)
    states.execute(
        database_url,
        "insert into tracked_key (attribute_id, kind, since_version) "
        "select attribute_id, 'pinned', 1 from attribute where parts is not null",
    )
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    monkeypatch.setenv("SUBSETD_LOG_LEVEL", "error")
    return database_url


@pytest.mark.usefixtures("state")
def test_tables_without_keys_and_columns_without_values_are_no_keys(subsetd: Command) -> None:
    listed = json.loads(subsetd("keys", "list", "--format", "json"))
    keys = {(one["table"], tuple(one["columns"])): one["is_key"] for one in listed}
    assert {table for table, _ in keys} == {"one", "wide", "wider", "odd"}
    assert keys["one", ("v",)] is True
    assert keys["wide", SIX] is False, "a tuple with NULL is none"
    assert keys["wider", SIX] is True
    assert keys["odd", tuple(ODD)] is True
    assert {columns for table, columns in keys if table == "odd"} == {(one,) for one in ODD} | {tuple(ODD)}
    nearly = json.loads(subsetd("keys", "list", "--format", "json", "--nearly", "1"))
    assert {one["table"] for one in nearly} == {"none", "one", "wide", "wider", "odd"}


def test_a_key_of_six_columns_is_referred_to_decided_and_gone(state: str, subsetd: Command) -> None:
    columns = ", ".join(SIX)
    sides = f"s.wide({columns})", f"s.wider({columns})"
    listed = json.loads(subsetd("foreign-keys", "--format", "json", "--table", "wide"))
    assert [[name[1:] for name in one["referenced"]] for one in listed if len(one["dependent"]) == 6] == [
        [["wider", column] for column in SIX]
    ]
    assert "held" in subsetd("contract", "add", *sides, "--by", "Ada")
    subsetd("foreign-keys", "reject", *sides, "--by", "Ada")
    assert subsetd("attribute", "drop", "s.wider", "--force")
    (kept,) = json.loads(subsetd("foreign-keys", "decisions", "--format", "json"))
    assert (kept["dependent"], kept["referenced"], kept["stale"]) == (*sides, True)
    code, said, _ = subsetd.ended("contract", "check")
    assert (code, f"cannot be told, as {sides[1]} is not kept current" in said) == (2, True)
    code, _, fault = subsetd.ended("foreign-keys", "accept", *sides)
    assert (code, "No attribute" in fault) == (1, True)


def test_odd_names_are_typed_as_they_are_printed(state: str, subsetd: Command) -> None:
    of_odd = json.loads(subsetd("keys", "list", "--table", "odd", "--tracked", "--format", "json"))
    (columns,) = (one["columns"] for one in of_odd)
    assert columns == ODD
    for column, printed in ((ODD[0], '""'), (ODD[2], '"größe, 顧客"'), (ODD[3], '"say ""hi"""'), (LONG, LONG)):
        said = subsetd("contract", "add", f"s.odd.{printed}", "s.odd.2024", "--by", "Ada")
        assert f"s.odd.{printed} → s.odd.2024: held" in said, column
    dropped = subsetd("keys", "drop", f's.odd("", 2024, "größe, 顧客", "say ""hi""", a.b, "(x)", {LONG})')
    assert (
        dropped == f's.odd("", 2024, "größe, 顧客", "say ""hi""", a.b, "(x)", {LONG}) is not tracked since version 2.\n'
    )


@pytest.mark.usefixtures("state")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "No attribute is named ''"),
        ("s.wide", "No attribute is named 's.wide'"),
        ("s.wide()", "No attribute is named 's.wide()'"),
        ("s.wide(a, a)", "comes twice"),
        ("s.wide(a, z)", "s.wide(a, z) is not followed"),
        ("s.one.v", "It is not tracked as a key"),
        ("s." + LONG * 10 + ".v", "No attribute is named"),
    ],
)
def test_what_is_no_key_is_not_dropped(subsetd: Command, name: str, said: str) -> None:
    code, out, fault = subsetd.ended("keys", "drop", name)
    assert (code, out) == (1, "")
    assert said in fault

"""Foreign keys as a user types for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import states
from tests.e2e.test_cli import Command, subsetd
from tests.states import Tables

__all__ = ["subsetd"]


@pytest.fixture
def state(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold customers and their orders, one of which is of nobody."""
    tables = Tables({"customers": ["id", "name"], "orders": ["id", "customer_id"]})
    tables.add("customers", *([str(number), f"name {number}"] for number in range(1, 31)))
    tables.add("orders", *([str(100 + number), str(1 + number * 7 % 31)] for number in range(90)))
    states.store(database_url, tables)
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    monkeypatch.setenv("SUBSETD_LOG_LEVEL", "error")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("state")
def test_candidates_are_listed_with_their_evidence(subsetd: Command) -> None:
    (found,) = json.loads(subsetd("foreign-keys", "--format", "json", "--suggested"))
    assert found["dependent"] == [["s", "orders", "customer_id"]]
    assert found["referenced"] == [["s", "customers", "id"]]
    assert found["suggested"] is True
    assert found["implied"] is False
    assert 0.5 < found["score"] <= 1
    evidence = found["evidence"]
    assert evidence["inclusion"] == {
        "coefficient": 30 / 31, "low": 30 / 31, "high": 30 / 31, "method": "exact", "missing": 1,
        "missing_values": ["31"],
    }  # fmt: skip
    assert (evidence["cardinality"], evidence["coverage"]) == ("1:n", 1.0)
    assert sum(evidence["distribution"]["dependent"]) == pytest.approx(1)
    assert evidence["against"][0] == "1 of 31 values are missing"
    header, row = subsetd("foreign-keys", "--method", "chen").splitlines()
    assert header.split() == "dependent referenced score phi missing distance cardinality against".split()  # noqa: SIM905
    assert row.split()[:2] == ["s.orders.customer_id", "s.customers.id"]
    said = subsetd("foreign-keys", "explain", *row.split()[:2], "--method", "names").splitlines()
    assert said[0] == "s.orders.customer_id → s.customers.id"
    assert said[1].endswith("suggested by names: number 1 of 1 candidates")
    assert said[2] == "inclusion  Φ 0.967742 (exact), 1 values missing: '31'"
    (key,) = (line for line in said if line.startswith("key  "))
    assert key.split("|")[1] == "▅" * 30  # the value that is missing lies in the last cell, too
    assert "against    1 of 31 values are missing" in said
    _, _, fault = subsetd.ended("foreign-keys", "explain", "s.customers.id", "s.orders.id")
    assert "s.customers.id → s.orders.id was no candidate by combined in version 1" in fault
    assert subsetd("foreign-keys", "--min-coefficient", "1", "--format", "json") == "[]\n"
    assert subsetd("foreign-keys", "--table", "customers", "--format", "json") == "[]\n"


def test_what_a_list_with_options_shows_is_explained_with_them(
    subsetd: Command, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables({"orders": ["customer"], "customers": ["id"]})
    tables.add("customers", *([str(number)] for number in range(10)))
    tables.add("orders", *([str(number)] for number in range(4, 16)))
    states.store(database_url, tables)
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    options = ["--min-coefficient", "0.5", "--keys", "inferred", "--cells", "4", "--method", "names"]
    sides = "s.orders.customer", "s.customers.id"
    assert " ".join(sides) in " ".join(subsetd("foreign-keys", *options).split())
    assert "Φ 0.5 (exact), 6 values missing" in subsetd("foreign-keys", "explain", *sides, *options)
    _, _, fault = subsetd.ended("foreign-keys", "explain", *sides)
    assert "was no candidate" in fault


def test_several_columns_are_listed_exported_and_accepted(
    subsetd: Command, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is said to be one by its source; an attribute of tuples stands for its columns, by name and by id."""
    tables = Tables({"l": ["id", "n"], "r": ["id", "n"]}, tuples={"l": [("id", "n")], "r": [("id", "n")]})
    tables.add("l", *([str(i), str(j)] for i in range(10) for j in range(3)))
    tables.add("r", *([str(i), "1"] for i in range(10)))
    states.store(database_url, tables)
    states.execute(database_url, "insert into tracked_key values (default, 5, 'declared', true, 1)")
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    listed = json.loads(subsetd("foreign-keys", "--format", "json", "--suggested", "--table", "r"))
    both = [(one["dependent"], one["referenced"]) for one in listed if len(one["dependent"]) == 2]
    assert both == [([["s", "r", "id"], ["s", "r", "n"]], [["s", "l", "id"], ["s", "l", "n"]])]
    assert "s.r(id, n)" in subsetd("foreign-keys", "--suggested", "--table", "r"), "as it can be typed"
    statement = 'ALTER TABLE "s"."r" ADD FOREIGN KEY ("id", "n") REFERENCES "s"."l" ("id", "n") NOT VALID;\n'
    assert statement in subsetd("foreign-keys", "--format", "sql")
    said = subsetd("foreign-keys", "accept", "id:6", "s.l.(id, n)", "--by", "Ada")
    assert said == "Decision 1: accept s.r(id, n) → s.l(id, n).\n"
    assert "s.r(id, n) → s.l(id, n): held" in subsetd("contract", "check")
    _, _, fault = subsetd.ended("contract", "add", "id:6", "id:5")
    assert "Contract 1 is on s.r(id, n) → s.l(id, n) already" in fault


def test_an_export_has_one_reference_of_a_column_and_no_column_that_is_gone(
    subsetd: Command, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables({"customers": ["id"], "people": ["id"], "orders": ["customer_id"]})
    ids = [[str(number)] for number in range(1, 31)]
    tables.add("customers", *ids).add("people", *ids, ["31"]).add("orders", *ids, *ids)
    states.store(database_url, tables)
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    to_customers, to_people = (
        f'ALTER TABLE "s"."orders" ADD FOREIGN KEY ("customer_id") REFERENCES "s"."{table}" ("id") NOT VALID;'
        for table in ("customers", "people")
    )
    of_orders = ["foreign-keys", "--table", "orders", "--format", "sql"]
    assert to_customers in subsetd(*of_orders)
    subsetd("foreign-keys", "reject", "s.orders.customer_id", "s.customers.id", "--by", "Ada")
    assert subsetd(*of_orders) == to_people + "\n", "the second best is suggested in the place of what was rejected"
    subsetd("foreign-keys", "accept", "s.orders.customer_id", "s.people.id", "--by", "Ada")
    subsetd("foreign-keys", "accept", "s.customers.id", "s.people.id", "--by", "Ada")
    assert subsetd(*of_orders) == to_people + "\n"
    subsetd("foreign-keys", "reject", "s.orders.customer_id", "s.people.id", "--by", "Ada")
    assert subsetd(*of_orders) == "", "both are rejected"
    of_customers = ["foreign-keys", "--table", "customers", "--format", "sql"]
    assert "ALTER" in subsetd(*of_customers)
    states.execute(database_url, "update attribute set stale_version = 1 where table_name = 'customers'")
    assert "ALTER" not in subsetd(*of_customers)


def test_a_state_without_a_bootstrap_has_none(
    subsetd: Command, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    code, said, fault = subsetd.ended("foreign-keys", "--format", "json")
    assert (code, said) == (0, "[]\n")
    assert fault == "There is no state yet: run `subsetd bootstrap SOURCE --name NAME`.\n"


@pytest.mark.usefixtures("state")
@pytest.mark.parametrize(("option", "value"), [("--method", "guess"), ("--min-coefficient", "2"), ("--cells", "1")])
def test_what_is_no_option_is_refused(subsetd: Command, option: str, value: str) -> None:
    code, said, fault = subsetd.ended("foreign-keys", option, value)
    assert (code, said) == (2, "")
    assert option in fault

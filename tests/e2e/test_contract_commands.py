"""Contracts and decisions from the command line: what it says, and the exit codes that a pipeline goes by."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import psycopg2

from service.store.database import parse_address
from service.store.writer import PostgresWriter
from service.usecases import schema_changes
from tests import states
from tests.commands import Commands
from tests.following import COLUMNS, Stream, consume
from tests.states import Tables

SIDES = "s.orders.customer", "s.customers.id"


def made_stream(database_url: str, tmp_path: Path) -> Stream:
    tables = Tables(dict(COLUMNS))
    tables.add("customers", ["1", "Ada"], ["2", "Bob"]).add("orders", ["10", "1", "x"], ["11", "2", None])
    states.store(database_url, tables)
    stream = Stream(tmp_path / "feed.jsonl", tables)
    stream.path.touch()
    return stream


def test_a_pipeline_is_told_by_the_exit_code(database_url: str, subsetd: Commands, tmp_path: Path) -> None:
    stream = made_stream(database_url, tmp_path)
    assert subsetd.run("contract", "check") == (0, "There are no contracts.\n")
    code, said = subsetd.run("contract", "add", *SIDES, "--least", "0.5", "--by", "Ada")
    assert (code, said) == (
        0,
        "Contract 1, s.orders.customer → s.customers.id: held (Φ 1, at least 0.5).\n",
    )
    assert subsetd.run("contract", "check")[0] == 0
    for number in range(3):
        stream.change("orders", None, [f"2{number}", f"9{number}", None])
    consume(database_url, stream)
    code, said = subsetd.run("contract", "check", "1", "--format", "json")
    assert code == 1
    assert json.loads(said) == {
        "version": 2,
        "contracts": [
            {
                "contract_id": 1,
                "dependent": [["s", "orders", "customer"]],
                "referenced": [["s", "customers", "id"]],
                "state": "violated",
                "least_coefficient": 0.5,
                "coefficient": 0.4,
                "missing_count": 3,
                "violated_since": 2,
                "unknown": [],
                "row": {"table": "s.orders", "key": {}, "cells": {"id": "21", "customer": "91", "note": None}},
            }
        ],
    }
    code, said = subsetd.run("contract", "check")
    assert (code, said.replace("\n", " ")) == (
        1,
        "1  s.orders.customer → s.customers.id: violated since version 2 (Φ 0.4, at least 0.5; 3 values are missing), "
        "by row s.orders id '21', customer '91' ",
    )
    code, said = subsetd.run("contract", "list", "--format", "csv")
    assert (code, said.splitlines()) == (
        0,
        [
            "id,dependent,referenced,state,coefficient,least_coefficient,missing,violated_since",
            "1,s.orders.customer,s.customers.id,violated,0.4,0.5,3,2",
        ],
    )
    schema_changes.drop(PostgresWriter(database_url), "s.customers", force=True)
    code, said = subsetd.run("contract", "check")
    assert (code, said) == (
        2,
        "1  s.orders.customer → s.customers.id: cannot be told, as s.customers.id is not kept current\n",
    )
    for unknown in "7", "3000000000", "1" + 30 * "0":
        assert subsetd.run("contract", "check", unknown) == (
            2,
            f"cannot tell: There is no contract {unknown}; `subsetd contract list` lists those there are.\n",
        )
    assert subsetd.run("contract", "remove", "1") == (0, "Contract 1 is gone.\n")


def test_a_role_that_may_not_read_contracts_cannot_tell(database_url: str, subsetd: Commands, tmp_path: Path) -> None:
    made_stream(database_url, tmp_path)
    states.execute(database_url, "create role unentitled login")
    try:
        states.execute(database_url, "grant select on all tables in schema public to unentitled")
        address = parse_address(database_url).set(username="unentitled").render_as_string(hide_password=False)
        assert subsetd.run("contract", "check", database_url=address) == (0, "There are no contracts.\n")
        states.execute(database_url, "revoke select on contract from unentitled")
        code, said = subsetd.run("contract", "check", database_url=address)
        assert (code, said[:13]) == (2, "cannot tell: ")
        assert "permission denied for table contract" in said.replace("\n", " ")
    finally:
        states.execute(database_url, "drop owned by unentitled")
        states.execute(database_url, "drop role unentitled")


def test_what_cannot_be_a_contract_is_refused_with_the_reason(
    database_url: str, subsetd: Commands, tmp_path: Path
) -> None:
    made_stream(database_url, tmp_path)
    for arguments, reason in (
        (("s.orders.client", SIDES[1]), "No attribute is named 's.orders.client'"),
        (("s.orders(id, customer)", SIDES[1]), "are not of as many columns"),
        ((*SIDES, "--least", "NaN"), "The least coefficient NaN is no share"),
    ):
        code, said = subsetd.run("contract", "add", *arguments)
        assert code == 1
        assert reason in said


def test_a_decision_is_kept_with_who_and_why(database_url: str, subsetd: Commands, tmp_path: Path) -> None:
    made_stream(database_url, tmp_path)
    code, said = subsetd.run("foreign-keys", "accept", *SIDES, "--by", "Ada", "--note", 'seen in "code"')
    assert (code, said) == (0, "Decision 1: accept s.orders.customer → s.customers.id.\n")
    assert "held" in subsetd.run("contract", "check")[1]
    assert subsetd.run("foreign-keys", "pin", "s.orders(id, customer)", "s.customers(id, name)", "--by", "Bob")[0] == 0
    assert subsetd.run("foreign-keys", "reject", *SIDES, "--by", "Cleo")[0] == 0
    assert subsetd.run("contract", "check") == (0, "There are no contracts.\n")
    code, said = subsetd.run("foreign-keys", "decisions", "--format", "json")
    assert code == 0
    told = [(one["dependent"], one["verdict"], one["by"], one["note"], one["current"]) for one in json.loads(said)]
    assert told == [
        (SIDES[0], "reject", "Cleo", None, True),
        ("s.orders(id, customer)", "pin", "Bob", None, True),
        (SIDES[0], "accept", "Ada", 'seen in "code"', False),
    ]


def test_what_is_suggested_or_accepted_is_given_as_a_file(database_url: str, subsetd: Commands, tmp_path: Path) -> None:
    shop = Tables({"orders": ["customer_id"], "customers": ["id"], "people": ["id"]})
    for table in "customers", "people":
        shop.add(table, *([str(number)] for number in range(30)))
    states.store(database_url, shop.add("orders", *([str(number % 20)] for number in range(60))))
    code, said = subsetd.run(
        "foreign-keys", "--method", "names", "--keys", "inferred", "--table", "orders", "--format", "sql"
    )
    assert (code, said) == (
        0,
        'ALTER TABLE "s"."orders" ADD FOREIGN KEY ("customer_id") REFERENCES "s"."customers" ("id") NOT VALID;\n',
    )


def test_a_check_that_others_are_in_the_way_of_has_not_found_a_violation(
    database_url: str, subsetd: Commands, tmp_path: Path
) -> None:
    made_stream(database_url, tmp_path)
    hurried = f"{database_url}&options=-c%20lock_timeout%3D20ms"
    with closing(psycopg2.connect(database_url)) as other:
        other.cursor().execute("lock table contract in access exclusive mode")
        code, said = subsetd.run("contract", "check", database_url=hurried)
    assert (code, "Others were in the way" in said.replace("\n", " ")) == (2, True)

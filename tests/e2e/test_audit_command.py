"""Audits as a user asks for them, and as a service's schedule does, each as a Spark process of its own."""

from __future__ import annotations

import json

import pytest

from tests import states
from tests.commands import Commands
from tests.states import Tables
from tests.waiting import wait_for

AUDITS = "select audit_id, inds, not_served, not_holding from audit order by audit_id"


def store(url: str) -> None:
    """Store two tables with one IND, orders.customer ⊆ customers.id."""
    tables = Tables({"customers": ["id"], "orders": ["customer"]})
    states.store(url, tables.add("customers", ["a"], ["b"], ["c"]).add("orders", ["a"], ["b"], ["a"]))


def test_an_audit_on_request(subsetd: Commands, database_url: str) -> None:
    store(database_url)
    states.execute(database_url, "delete from uind")
    code, said = subsetd.run("audit", "--filters", "none", spark_master="local[1]")
    assert (code, "s.orders.customer ⊆ s.customers.id holds and is not served" in said) == (1, True), said
    code, said = subsetd.run("audit", "--history", "--format", "json")
    assert [(one["inds"], one["not_served"], one["not_holding"]) for one in json.loads(said)] == [(1, 1, 0)]
    assert subsetd.run("audit", "--history", "--format", "csv")[1].splitlines()[1].endswith(",rarest-first")


def test_a_schedule_audits_beside_the_service_and_makes_up_for_what_it_missed(
    subsetd: Commands, database_url: str
) -> None:
    store(database_url)
    states.execute(
        database_url,
        "insert into audit (version, started_at, attributes, value_count, inds, not_served, not_holding, report)"
        " values (1, now() - interval '3 days', 2, 5, 1, 0, 0, '{}')",
    )
    service = subsetd.start("serve", audit_schedule="0 0 * * *", audit_algorithm="signatures", spark_master="local[1]")
    wait_for(lambda: len(states.query(database_url, AUDITS)) == 2)
    wait_for(lambda: "1 INDs; by signatures, " in subsetd.said(service))
    subsetd.end(service)
    assert states.query(database_url, AUDITS)[1][1:] == (1, 0, 0)


@pytest.mark.parametrize("setting", ["audit_schedule", "foreign_key_schedule"])
def test_a_schedule_that_is_none_is_refused_at_the_start(subsetd: Commands, setting: str) -> None:
    code, said = subsetd.run("serve", **{setting: "at night"})
    assert (code, f"SUBSETD_{setting.upper()}" in said, "cron's five fields" in said) == (2, True, True), said

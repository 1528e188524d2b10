"""The audit: what it finds of states that were written by brute force, and of states that were tampered with."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from service.core.column_filters import NULL_TOKENS, PAPER, Filters
from service.core.corpus_choices import Algorithm
from service.core.errors import SourceError, StateError
from service.core.group_inds import Inds
from service.store.embedded import EmbeddedPostgres
from service.store.writer_lock import take_bootstrap_lock
from spark_jobs import audit as job
from spark_jobs.audit import audit, describe, find_in_one
from tests import states
from tests.postgres import TEMPLATE, fresh_database
from tests.states import Tables
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]

COLUMNS = {"a": ["x", "y"], "b": ["x", "y", "z"], "c": ["w"]}
CELLS = st.sampled_from([None, "1", "2", "3", "+7", "-", "?", "text"])
ROWS = st.fixed_dictionaries(
    {table: st.lists(st.tuples(*(CELLS for _ in columns)), max_size=6) for table, columns in COLUMNS.items()}
)


def shop() -> Tables:
    tables = Tables({"orders": ["id", "customer", "state"], "customers": ["id", "code"], "notes": ["state"]})
    tables.add("customers", *([str(n), f"c{n}"] for n in range(40)))
    tables.add("orders", *([str(n), str(n % 30), "-" if n % 3 else "N/A"] for n in range(90)))
    return tables.add("notes", ["-"], ["N/A"], ["?"], ["x"])


def tamper(url: str) -> None:
    """Let the state serve an IND that does not hold, and not serve one that does."""
    states.execute(
        url,
        "delete from uind where dependent_id = 2 and referenced_id = 4;"  # orders.customer ⊆ customers.id
        "insert into uind (dependent_id, referenced_id, since_version) values (5, 4, 1)",
    )


@given(
    rows=ROWS, insert_only=st.booleans(), partitions=st.sampled_from([1, 2, 7]), algorithm=st.sampled_from(Algorithm)
)
@example(rows={"a": [], "b": [], "c": []}, insert_only=False, partitions=2, algorithm=Algorithm.SIGNATURES)
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_state_that_is_right_has_no_differences(
    spark: SparkSession,
    postgres_server: EmbeddedPostgres,
    rows: dict[str, list],
    insert_only: bool,
    partitions: int,
    algorithm: Algorithm,
) -> None:
    tables = Tables(COLUMNS, insert_only=insert_only)
    for table, of_table in rows.items():
        tables.add(table, *of_table)
    expected = states.expected(tables)
    with fresh_database(postgres_server, TEMPLATE) as url:
        states.store(url, tables)
        found = audit(spark, url, PAPER, partitions=partitions, algorithm=algorithm)
    assert found.report["algorithm"] == algorithm
    assert (found.not_served, found.not_holding, found.version) == (0, 0, 1)
    assert (found.attributes, found.inds) == (6, len(expected.inds))
    assert found.value_count == sum(distinct for _, _, distinct, _ in expected.counters.values())
    cells = dict(zip([f"s.{t}.{c}" for t, c in tables.names()], tables.cells(), strict=True))
    values = {name: {value for value in counted if value is not None} for name, counted in cells.items()}

    def left(a: str, b: str) -> bool:
        either = values[a], values[b]
        is_unique = max(cells[b].values()) == 1 and not cells[b][None]
        return (
            not any(one <= set(NULL_TOKENS) or all(v.lstrip("+-").isdigit() for v in one) for one in either)
            and is_unique
            and 5 * len(values[a]) >= len(values[b])
        )

    assert found.report["inds_left"] == sum(left(a, b) for a, b in expected.inds)


@pytest.mark.parametrize("algorithm", Algorithm)
def test_what_is_served_wrongly_is_named(spark: SparkSession, database_url: str, algorithm: Algorithm) -> None:
    states.store(database_url, shop())
    tamper(database_url)
    found = audit(spark, database_url, PAPER, partitions=8, algorithm=algorithm)
    assert (found.not_served, found.not_holding, found.differences) == (1, 1, 2)
    assert found.report["examples"] == {
        "not_served": [["s.orders.customer", "s.customers.id"]], "not_holding": [["s.customers.code", "s.customers.id"]]
    }  # fmt: skip
    said = describe(found)
    assert "s.orders.customer ⊆ s.customers.id holds and is not served" in said
    assert "s.customers.code ⊆ s.customers.id is served and does not hold" in said


def test_a_state_too_large_for_signatures_is_refused(
    spark: SparkSession, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    states.store(database_url, shop())
    monkeypatch.setattr(job, "ONE_PROCESS_CELLS", 100)
    with pytest.raises(SourceError, match=r"Signatures need all values in one process.*: audit by rarest-first"):
        audit(spark, database_url, PAPER, algorithm=Algorithm.SIGNATURES)
    assert not audit(spark, database_url, PAPER).differences


@pytest.mark.parametrize("cheaper", Algorithm)
@pytest.mark.parametrize("cells", [0, 1 << 20])
def test_unasked_a_small_state_goes_by_what_costs_less_and_a_large_one_by_rarest_first(
    spark: SparkSession, database_url: str, monkeypatch: pytest.MonkeyPatch, cells: int, cheaper: Algorithm
) -> None:
    def chosen(values: Any, wanted: Algorithm | None, threads: int) -> tuple[Algorithm, Inds]:
        assert wanted is None
        return cheaper, find_in_one(values, cheaper, threads)[1]

    states.store(database_url, shop())
    tamper(database_url)
    monkeypatch.setattr(job, "CHOSEN_CELLS", cells)
    monkeypatch.setattr(job, "find_in_one", chosen)
    found = audit(spark, database_url, PAPER, partitions=4)
    assert found.algorithm == (cheaper if cells else Algorithm.RAREST_FIRST)
    assert (found.not_served, found.not_holding) == (1, 1)
    assert f"by {found.algorithm}, " in describe(found)


def test_values_that_a_dropped_column_left_behind_are_no_reason_to_fail(spark: SparkSession, database_url: str) -> None:
    states.store(database_url, shop())
    states.execute(
        database_url,
        "update attribute set dropped_version = 1 where attribute_id = 6;"  # notes.state
        "delete from uind where 6 in (dependent_id, referenced_id)",
    )
    found = audit(spark, database_url, PAPER)
    assert (found.not_served, found.not_holding, found.attributes) == (1, 0, 5)
    assert found.report["examples"]["not_served"] == [["s.orders.state", "id:6, which is dropped"]]


def test_each_filter_gives_account(spark: SparkSession, database_url: str) -> None:
    states.store(database_url, shop())
    found = audit(spark, database_url, PAPER)
    # customer ⊆ customers.id, customer and customers.id ⊆ orders.id; state of orders ⊆ that of notes.
    assert (found.inds, found.report["inds_left"]) == (4, 0)
    assert found.report["filters"] == {
        "null_column": {"dependent_columns": 1, "referenced_columns": 1, "inds": 1, "inds_alone": 1},
        "integer_column": {"dependent_columns": 3, "referenced_columns": 3, "inds": 3, "inds_alone": 3},
        "not_unique": {"dependent_columns": 0, "referenced_columns": 2, "inds": 0, "inds_alone": 0},
        "low_coverage": {"dependent_columns": 0, "referenced_columns": 0, "inds": 0, "inds_alone": 0},
    }
    unfiltered = audit(spark, database_url, Filters())
    assert (unfiltered.report["filters"], unfiltered.report["inds_left"]) == ({}, 4)


def test_all_tasks_read_the_version_that_was_opened(spark: SparkSession, database_url: str) -> None:
    states.store(database_url, shop())

    def start_late() -> SparkSession:
        states.execute(
            database_url,
            "delete from gen_rec; delete from cluster; delete from uind;"
            "insert into state_version (version, generation, kind) values (2, 1, 'batch')",
        )
        return spark

    found = audit(start_late, database_url, PAPER, partitions=4)
    assert (found.version, found.inds, found.differences) == (1, 4, 0)
    now = audit(spark, database_url, PAPER, partitions=4)
    assert (now.version, now.inds, now.value_count, now.differences) == (2, 0, 0, 0)


def test_an_audit_whose_session_ends_says_so(spark: SparkSession, database_url: str) -> None:
    states.store(database_url, shop())

    def start_late() -> SparkSession:
        states.query(
            database_url,
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'subsetd audit'",
        )
        return spark

    with pytest.raises(StateError, match=r"has lost its session on the state's database.*; audit again\."):
        audit(start_late, database_url, PAPER)


def test_no_bootstrap_runs_beside_an_audit(spark: SparkSession, database_url: str) -> None:
    states.store(database_url, shop())
    with closing(psycopg2.connect(database_url, application_name="subsetd bootstrap")) as connection:
        take_bootstrap_lock(connection)
        with pytest.raises(StateError, match=r"another writer: subsetd bootstrap"):
            audit(spark, database_url, PAPER)

        def start() -> SparkSession:
            with pytest.raises(StateError, match=r"another writer: subsetd audit"):
                take_bootstrap_lock(connection)
            return spark

        with connection, connection.cursor() as cursor:
            cursor.execute("select pg_advisory_unlock_all()")
        assert audit(start, database_url, PAPER).differences == 0
        take_bootstrap_lock(connection)  # the audit has given it back


def test_a_killed_audit_leaves_nothing_and_keeps_nobody_away(spark: SparkSession, database_url: str) -> None:
    states.store(database_url, shop())
    sessions = "select from pg_stat_activity where application_name = 'subsetd audit'"
    with closing(psycopg2.connect(database_url)) as other, other.cursor() as cursor:
        cursor.execute("lock audit in share mode")  # it is killed amid, however late: what it finds, it cannot keep
        process = subprocess.Popen(
            [sys.executable, "-m", "spark_jobs.audit", "--database-url", "-", "--master", "local[1]"],
            stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT,
        )  # fmt: skip
        assert process.stdin is not None
        with process.stdin as pipe:
            pipe.write(f"{database_url}\n")
        wait_for(
            lambda: states.query(
                database_url, f"{sessions} and (state = 'idle in transaction' or wait_event_type = 'Lock')"
            )
        )
        process.kill()
        process.wait()
    wait_for(lambda: not states.query(database_url, sessions))
    assert states.query(database_url, "select count(*) from audit") == [(0,)]
    assert audit(spark, database_url, PAPER).differences == 0


def test_a_state_without_a_version_is_refused(spark: SparkSession, database_url: str) -> None:
    with pytest.raises(StateError, match="There is no state yet"):
        audit(spark, database_url, PAPER)


def test_the_command_line(
    spark: SparkSession,
    database_url: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def joined(*_: object) -> SparkSession:
        return spark

    monkeypatch.setattr("spark_jobs.job.session", joined)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    states.store(database_url, shop())
    run: Callable[..., int] = job.main
    assert (
        run(["--database-url", database_url, "--filters", "integer-columns,min-values=3", "--algorithm", "signatures"])
        == 0
    )
    said = capfd.readouterr().out
    assert "The INDs that are served are those that hold." in said
    assert "few values: leaves out 1 dependent and 0 referenced columns; 1 INDs, 1 of them by this filter alone" in said
    tamper(database_url)
    assert run(["--database-url", database_url]) == 1
    assert run(["--database-url", database_url, "--filters", "nonsense"]) == 1
    assert "filters 'nonsense'" in capfd.readouterr().err

"""A bootstrap holds contracts against what it publishes: nobody needs to follow a feed to be told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from service.core.contracts import ContractKind
from service.core.foreign_keys.sides import ForeignKey
from service.core.model import AttributeName
from service.store import contract_upkeep
from service.store.contracts import PostgresContracts
from service.store.database import make_engine
from service.store.reader import PostgresStateReader
from service.usecases.foreign_key_decisions import EXACT, Contract, ContractState
from spark_jobs.bootstrap import run_bootstrap
from spark_jobs.sources import Options
from tests import states
from tests.spark.oracle import write_csv
from tests.waiting import wait_for


def write(folder: Path, tables: Mapping[str, Sequence[str]]) -> None:
    for name, cells in tables.items():
        write_csv(folder / f"{name}.csv", ["id"], [[cell] for cell in cells], "\n")


def test_data_that_is_read_anew_violates_and_mends_contracts(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    engine = make_engine(database_url, "test")
    folder = tmp_path / "data"
    write(folder, {"orders": ["1", "2"], "persons": ["1", "2", "3"]})
    run_bootstrap(spark, Options(str(folder), "shop", database_url))
    sides = [[AttributeName("shop", table, "id")] for table in ("orders", "persons")]
    made = PostgresContracts(engine).add(ForeignKey.of(*sides), EXACT, "Ada")
    assert made.state is ContractState.HELD
    for orders in ["1", "8", "9"], ["1", "9"], ["3"]:
        write(folder, {"orders": orders})
        run_bootstrap(spark, Options(str(folder), "shop", database_url, replace=True))
    with PostgresStateReader(engine).snapshot() as snapshot:
        found = snapshot.contract_events(made.contract_id, (0, 0), 10)
        assert snapshot.contract(made.contract_id).state is ContractState.HELD
    assert [(one.version, one.kind, one.cause_count, one.position) for one in found] == [
        (2, ContractKind.VIOLATED, 2, None),
        (4, ContractKind.MENDED, 0, None),
    ]
    assert found[0].witness_value in ("8", "9")
    engine.dispose()


def test_a_contract_that_is_added_while_a_bootstrap_publishes_is_held_against_what_it_publishes(
    spark: SparkSession, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(database_url, "test")
    folder = tmp_path / "data"
    write(folder, {"orders": ["1", "2"], "persons": ["1", "2", "3"]})
    run_bootstrap(spark, Options(str(folder), "shop", database_url))
    sides = [[AttributeName("shop", table, "id")] for table in ("orders", "persons")]
    waits = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    hold = contract_upkeep.hold
    adding: list[Future[Contract]] = []
    with ThreadPoolExecutor(1) as pool:

        def add_behind(cursor: Any, version: int) -> None:
            hold(cursor, version)
            adding.append(pool.submit(PostgresContracts(engine).add, ForeignKey.of(*sides), EXACT, "Ada"))
            wait_for(lambda: adding[0].done() or states.query(database_url, waits))

        monkeypatch.setattr(contract_upkeep, "hold", add_behind)
        write(folder, {"orders": ["1", "9"]})
        run_bootstrap(spark, Options(str(folder), "shop", database_url, replace=True))
        made = adding[0].result()
    assert (made.state, made.violated_since) == (ContractState.VIOLATED, 2)
    engine.dispose()


def test_a_contract_on_tuples_outlives_the_constraints_that_had_them_followed(
    spark: SparkSession, database_url: str, source_url: str
) -> None:
    for statement in (
        "create table parts (maker text, number integer, constraint key primary key (maker, number))",
        "create table lots (lot serial, maker text, number integer, "
        "constraint reference foreign key (maker, number) references parts)",
        "insert into parts values ('a', 1), ('b', 1)",
        "insert into lots (maker, number) values ('a', 1)",
    ):
        states.execute(source_url, statement)
    engine = make_engine(database_url, "test")
    run_bootstrap(spark, Options(source_url, "db", database_url))
    sides = [[AttributeName("public", table, column) for column in ("maker", "number")] for table in ("lots", "parts")]
    made = PostgresContracts(engine).add(ForeignKey.of(*sides), EXACT, "Ada")
    assert made.state is ContractState.HELD
    for statement in (
        "alter table lots drop constraint reference",
        "alter table parts drop constraint key, add primary key (number, maker)",
        "insert into lots (maker, number) values ('c', 1)",
    ):
        states.execute(source_url, statement)
    run_bootstrap(spark, Options(source_url, "db", database_url, replace=True))
    with PostgresStateReader(engine).snapshot() as snapshot:
        assert snapshot.contract(made.contract_id).state is ContractState.VIOLATED
    PostgresContracts(engine).remove(made.contract_id)
    run_bootstrap(spark, Options(source_url, "db", database_url, replace=True))
    followed = "select column_name from attribute where parts is not null and dropped_version is null"
    assert states.query(database_url, followed) == [("(number, maker)",)]
    engine.dispose()

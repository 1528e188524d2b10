"""A bootstrap follows the tuples of keys: declared ones of a database, named ones of files, each in its key's order."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from service.core.errors import SourceError, StateError
from service.store.checks import PostgresVerifier
from service.store.database import make_engine
from service.store.reader import PostgresStateReader
from service.usecases.verify import verify
from spark_jobs.bootstrap import run_bootstrap
from spark_jobs.command_line import options_of, parse_arguments
from spark_jobs.sources import Options
from tests import states
from tests.states import Tables

SCHEMA = (
    "create table parts (number integer, maker text, name text, unique (name, number), primary key (maker, number))",
    "create table lots (lot serial primary key, part integer, made_by text, "
    "foreign key (part, made_by) references parts (number, maker))",
    "insert into parts select i % 9, 'm' || i, 'part \"' || i % 4 || '\"' from generate_series(1, 30) i",
    "insert into lots (part, made_by) select number, maker from parts",
    "insert into lots (part, made_by) values (null, 'm1'), (3, null)",
)

KEYS = """
select table_name, column_name, kind, is_primary, since_version, distinct_count, repeated_count, null_count
from tracked_key join attribute using (attribute_id) order by key_id
"""
TUPLES = "select table_name, column_name, data_type, parts from attribute where parts is not null order by attribute_id"


def require_sound(url: str) -> None:
    engine = make_engine(url, "test")
    with PostgresVerifier(engine).checks() as checks:
        assert [found for found in verify(checks) if found.violations] == []
    engine.dispose()


def test_tuples_of_files_are_what_brute_force_says(spark: SparkSession, database_url: str, tmp_path: Path) -> None:
    orders = [("1", "Ada", 'a "b" \\'), ("1", "Ada", None), ("2", None, "é" * 200), ("2", "-", "x"), ("3", "Bob", "")]
    customers = [("1", "Ada"), ("2", "Bob"), ("3", "Bob"), ("1", "Ada")]
    for name, header, rows in (("orders", "id,customer,note", orders), ("customers", "id,name", customers)):
        lines = (",".join("" if cell is None else '"' + cell.replace('"', '""') + '"' for cell in row) for row in rows)
        (tmp_path / f"{name}.csv").write_text("\n".join([header, *lines]) + "\n")
    tracked = ["--track-key", "orders=id,customer", "--track-key", "s.customers=id,name", "--track-key", "orders=id"]
    wide = ["--track-key", "orders=note,customer,id"]
    given = [str(tmp_path), "--name", "s", "--database-url", database_url, "--null-token", "-", *tracked, *wide]
    summary = run_bootstrap(spark, options_of(parse_arguments(given)))
    nulled = [tuple(None if cell == "-" else cell for cell in row) for row in orders]
    tables = Tables({"customers": ["id", "name"], "orders": ["id", "customer", "note"]})
    tables.tuples = {"customers": [("id", "name")], "orders": [("id", "customer"), ("note", "customer", "id")]}
    tables.add("orders", *nulled).add("customers", *customers)
    assert states.read(database_url) == states.expected(tables)
    assert (summary.attributes, summary.tuples) == (5, 3)
    assert summary.inds == len([pair for pair in states.expected(tables).inds if "(" not in pair[0]])
    keys = [(table, column, kind) for table, column, kind, *_ in states.query(database_url, KEYS)]
    assert keys == [
        ("customers", "(id, name)", "pinned"),
        ("orders", "(id, customer)", "pinned"),
        ("orders", "id", "pinned"),
        ("orders", "(note, customer, id)", "pinned"),
    ]
    check = Options(str(tmp_path), "s", database_url, check=True)
    assert run_bootstrap(spark, check).differences == []
    (tmp_path / "customers.csv").write_text("id,name\n1,Ada\n1,Bob\n2,Bob\n3,Ada\n")
    assert any('["1","Bob"]' in difference for difference in run_bootstrap(spark, check).differences)
    require_sound(database_url)

    run_bootstrap(spark, Options(str(tmp_path), "s", database_url, replace=True))
    assert [column for _, column, *_ in states.query(database_url, KEYS)] == [column for _, column, _ in keys]
    tables.rows["customers"].clear()
    tables.add("orders", ("2", "-", "x")).remove("orders", ("2", None, "x"))  # no null token was given this time
    tables.add("customers", ("1", "Ada"), ("1", "Bob"), ("2", "Bob"), ("3", "Ada"))
    assert states.read(database_url) == states.expected(tables)


def declared(url: str) -> list[tuple[tuple[tuple[str, ...], tuple[str, ...]], bool | None]]:
    """List the columns of both sides of declared foreign keys, and whether they hold."""
    engine = make_engine(url, "test")
    with PostgresStateReader(engine).snapshot() as snapshot:
        found = snapshot.declared_references(0, 10)
    engine.dispose()
    assert {(one.source, one.foreign_key.dependent.table, one.foreign_key.referenced.table) for one in found} == {
        ("db", "lots", "parts")
    }
    return [((one.foreign_key.dependent.columns, one.foreign_key.referenced.columns), one.holds) for one in found]


def test_declared_keys_of_a_database_and_what_refers_to_them(
    spark: SparkSession, database_url: str, source_url: str
) -> None:
    for statement in SCHEMA:
        states.execute(source_url, statement)
    options = Options(source_url, "db", database_url)
    run_bootstrap(spark, options)
    assert states.query(database_url, TUPLES) == [
        ("lots", "(made_by, part)", "tuple", [2, 1]),  # in the order of the key, not of the foreign key
        ("parts", "(maker, number)", "tuple", [1, 0]),
        ("parts", "(name, number)", "tuple", [2, 0]),
    ]
    assert states.query(database_url, KEYS) == [
        ("lots", "lot", "declared", True, 1, 32, 0, 0),
        ("parts", "(maker, number)", "declared", True, 1, 30, 0, 0),
        ("parts", "(name, number)", "declared", False, 1, 30, 0, 0),
    ]
    held = "select d.column_name, r.column_name from uind join attribute d on d.attribute_id = dependent_id join "
    held += (
        "attribute r on r.attribute_id = referenced_id where until_version is null and d.parts is not null order by 1"
    )
    assert states.query(database_url, held) == [
        ("(made_by, part)", "(maker, number)"),
        ("(maker, number)", "(made_by, part)"),
    ]
    nulls = "select null_count, distinct_count from attribute where column_name = '(made_by, part)'"
    assert states.query(database_url, nulls) == [(2, 30)]
    require_sound(database_url)
    assert run_bootstrap(spark, Options(source_url, "db", database_url, check=True)).differences == []
    in_key_order = ("made_by", "part"), ("maker", "number")
    assert declared(database_url) == [(in_key_order, True)]

    runs = "select source_name, stage, fault from bootstrap_run"
    assert states.query(database_url, runs) == []
    with pytest.raises(StateError):
        run_bootstrap(spark, Options(source_url, "db", database_url))
    assert states.query(database_url, runs) == [], "it was refused, and did not begin"

    run_bootstrap(spark, Options(source_url, "db", database_url, replace=True, declared_keys=False))
    assert states.query(database_url, runs) == [], "it came to its end this time"
    # Its tuples are not followed any more, so nobody knows.
    assert declared(database_url) == [((("part", "made_by"), ("number", "maker")), None)]
    assert states.query(database_url, KEYS) == []
    assert states.query(database_url, TUPLES + " limit 0") == []
    assert states.query(
        database_url, "select count(*) from attribute where parts is not null and dropped_version is null"
    ) == [(0,)]
    require_sound(database_url)


def test_a_chosen_key_that_was_declared_meanwhile_is_what_it_was_chosen_as(
    spark: SparkSession, database_url: str, source_url: str
) -> None:
    for statement in ("create table t (a integer, b integer, c integer)", "insert into t values (1, 1, 1), (1, 2, 2)"):
        states.execute(source_url, statement)
    tracked = (("public.t", ("a", "b")), ("public.t", ("c",)))
    run_bootstrap(spark, Options(source_url, "db", database_url, tracked_keys=tracked))
    states.execute(database_url, "update tracked_key set kind = 'discovered' where key_id = 2")
    chosen = [("(a, b)", "pinned", False), ("c", "discovered", False)]
    kinds = "select column_name, kind, is_primary from tracked_key join attribute using (attribute_id) order by 1"
    assert states.query(database_url, kinds) == chosen

    again = Options(source_url, "db", database_url, replace=True)
    states.execute(source_url, "alter table t add primary key (a, b), add constraint u unique (c)")
    for _ in range(2):
        run_bootstrap(spark, again)
        assert states.query(database_url, kinds) == [("(a, b)", "declared", True), ("c", "declared", False)]
    states.execute(source_url, "alter table t drop constraint t_pkey, drop constraint u")
    run_bootstrap(spark, again)
    assert states.query(database_url, kinds) == chosen, "nobody has dropped them"
    states.execute(source_url, "alter table t add primary key (a, b)")
    run_bootstrap(spark, again)
    assert states.query(database_url, kinds) == [("(a, b)", "declared", True), chosen[1]]
    states.execute(database_url, "delete from tracked_key")  # as `keys drop` does
    run_bootstrap(spark, again)
    states.execute(source_url, "alter table t drop constraint t_pkey")
    run_bootstrap(spark, again)
    assert states.query(database_url, kinds) == []


@pytest.mark.parametrize(
    ("table", "columns", "said"),
    [
        ("t", ("a", "c"), r"t: the table has no column 'c'\. It has: a, b"),
        ("u", ("a", "b"), r"--track-key u: the source has no such table"),
        ("t", ("a", "a"), r"the column 'a' is named twice"),
        ("t", ("",), r"give it 1 to 32 columns"),
    ],
)
def test_a_key_that_cannot_be_tracked_is_refused(
    spark: SparkSession, database_url: str, tmp_path: Path, table: str, columns: tuple[str, ...], said: str
) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    options = Options(str(tmp_path), "s", database_url, tracked_keys=((table, columns),))
    with pytest.raises(SourceError, match=said):
        run_bootstrap(spark, options)

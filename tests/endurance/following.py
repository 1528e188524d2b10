"""Own what the proofs share: a state that follows a source through Debezium, and whether it is the source's."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import psycopg2

from service.store.checks import PostgresVerifier
from service.store.database import make_engine
from service.usecases.verify import verify
from tests import states
from tests.endurance.workload import SCHEMA, TABLES, tables_of


def broken_invariants(url: str) -> list[str]:
    """Say which of the invariants I1 to I6 do not hold, with examples."""
    engine = make_engine(url, "test")
    try:
        with PostgresVerifier(engine).checks() as checks:
            return [f"{f.invariant} {f.statement}: {f.examples}" for f in verify(checks) if not f.holds]
    finally:
        engine.dispose()


def check(url: str, source_url: str) -> None:
    """Hold a state to the source's present tables, and to its invariants."""
    found, wanted = states.read(url), states.expected(tables_of(source_url))
    gone = (
        "select concat_ws('.', schema_name, table_name, column_name) from attribute where dropped_version is not null"
    )
    dropped = {name for (name,) in states.query(url, gone)}
    counters = {name: counted for name, counted in found.counters.items() if name not in dropped}
    differences = {
        name: (counters.get(name), wanted.counters.get(name))
        for name in counters.keys() | wanted.counters.keys()
        if counters.get(name) != wanted.counters.get(name)
    }
    assert differences == {}, f"counters of attributes, found and wanted: {differences}"
    assert replace(found, counters=counters) == wanted
    assert broken_invariants(url) == []


def mark(source_url: str, number: int) -> None:
    """Put a row into each table that no other change holds: whoever has seen all has seen all before them."""
    with closing(psycopg2.connect(source_url)) as connection, connection, connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"insert into {SCHEMA}.{table} (id) values (%s)", (-number,))


def has_seen(url: str, number: int) -> bool:
    """Tell whether the state holds the mark of every table."""
    found = states.query(url, f"select cardinality(attribute_ids) from gen_rec where value = '-{number}'")
    return found == [(len(TABLES),)]

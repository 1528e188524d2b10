"""One row has one text, whichever way it came: read by a bootstrap, in a connector's snapshot, or as a change."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from itertools import zip_longest

import pytest
from pyspark.sql import SparkSession

from service.core.canonical import value_keys
from service.core.cell_decoding import WireSettings
from service.store.embedded import EmbeddedPostgres
from service.store.writer import PostgresWriter
from service.stream.addresses import open_feed
from service.stream.envelope import Decoder
from service.usecases.follow_feed import Consumer
from spark_jobs.bootstrap import run_bootstrap
from spark_jobs.sources import Options
from tests import postgres_following as direct
from tests import states
from tests.broker import KafkaBroker
from tests.connect import Connect, connecting
from tests.following import Watch
from tests.postgres import TEMPLATE, fresh_database
from tests.waiting import wait_for

KINDS = {
    "smallint": ["-3", "32767"],
    "integer": ["0", "-2147483648"],
    "bigint": ["9007199254740993", "-9223372036854775808"],
    "numeric": ["98765432109876543210.123456789", "0.00010", "-0.000", "1e20"],
    "numeric(12,3)": ["12345.678", "-0.001", "1.500"],
    "numeric(6,0)": ["100", "-7"],
    "double precision": ["0.1", "1e23", "-0", "5e-324", "NaN", "-Infinity"],
    "real": ["0.25", "33554450", "1e-45", "Infinity"],
    "boolean": ["true", "false"],
    "date": ["2026-11-21", "0001-12-31", "infinity", "-infinity"],
    "timestamp without time zone": ["2026-11-21 10:20:30.123456", "1969-12-31 23:59:59.9", "infinity"],
    "timestamp(3) without time zone": ["2026-11-21 10:20:30.123"],
    "timestamp with time zone": ["2026-11-21 10:20:30.5+02", "1969-07-20 20:17:40Z", "-infinity"],
    "time without time zone": ["10:20:30.5", "00:00:00.000001"],
    "time(3) without time zone": ["10:20:30.125"],
    "time with time zone": ["10:20:30.5+02", "23:59:59-15"],
    "interval": ["1 day 02:00:00", "-1 mon", "00:00:01.5"],
    "bytea": ["\\x00ff10", "\\x", "\\xfbefbe"],
    "uuid": ["6F9619FF-8B86-D011-B42D-00CF4FC964FF"],
    "text": ["Grüße", "", "x\ty\\z\n\"'", "12"],
    "character varying(10)": ["vc  ", "1.50"],
    "character(6)": ["ab", "  c"],
    "json": ['{"b": 1.0, "a": [true, null]}', '"text"'],
    "jsonb": ['{"a": [1, 2.50, null], "b": "x"}', "{}", "12345678901234567890.5"],
    "text[]": ['{x,NULL,"y,\\"z"}', "{}"],
    "integer[]": ["{1,NULL,-2}"],
    "numeric(12,3)[]": ["{1.500,-2}"],
    "bit(1)": ["1", "0"],
    "bit(12)": ["000000000101", "111100001111"],
    "inet": ["192.168.0.1", "10.0.0.1/8"],
    "cidr": ["10.0.0.0/8"],
    "macaddr": ["08:00:2b:01:02:03"],
    "money": ["1012.50", "-3"],
    "point": ["(1.5,-2)"],
    "int4range": ["[1,5)"],
    "mood": ["very happy"],
    "price": ["1.50", "100"],
}
"""Postgres' types, those of conventions.md and others that a connector sends, each with some of its literals."""

DEFAULTS = {"integer": "DEFAULT 7", "numeric(12,3)": "DEFAULT 1.5", "boolean": "DEFAULT true", "text": "DEFAULT 'x'"}
"""What a column holds where an insert does not name it: a NULL that is written stays one."""

MODES = {
    "schemaless": (False, {}, WireSettings()),
    "schema": (True, {}, WireSettings()),
    "texts": (
        False,
        {
            "decimal.handling.mode": "string",
            "time.precision.mode": "isostring",
            "interval.handling.mode": "string",
            "binary.handling.mode": "hex",
        },
        WireSettings("string", "hex", "isostring"),
    ),
}


@pytest.fixture
def state_urls(postgres_server: EmbeddedPostgres) -> Iterator[list[str]]:
    """Give three empty states."""
    with (
        fresh_database(postgres_server, TEMPLATE) as first,
        fresh_database(postgres_server, TEMPLATE) as second,
        fresh_database(postgres_server, TEMPLATE) as third,
    ):
        yield [first, second, third]


def insert_rows(url: str) -> None:
    """Insert rows that hold all literals, and one of NULLs."""
    names = ", ".join(f'"{kind}"' for kind in KINDS)
    rows = [*zip_longest(*KINDS.values()), (None,) * len(KINDS)]
    told = [", ".join("NULL" if c is None else "'" + c.replace("'", "''") + "'" for c in row) for row in rows]
    inserts = [f"INSERT INTO s.kinds (id, {names}) VALUES ({key}, {cells})" for key, cells in enumerate(told)]
    direct.run(url, *inserts)


def require_same(found: states.State, wanted: states.State) -> None:
    """Fail unless two states are equal; say which texts each has of which type that the other has not."""
    texts = [{(name, text) for text, names in state.records.values() for name in names} for state in (found, wanted)]
    assert (texts[0] - texts[1], texts[1] - texts[0]) == (set(), set())
    assert found == wanted


def consume(url: str, connect: Connect, wire: WireSettings) -> states.State:
    """Follow the connector's topics to their end, and read the state."""
    make_decoder = partial(Decoder, settings=wire, unknown_tables="ignore")
    feed = partial(open_feed, connect.feed, group_id=None)
    Consumer(PostgresWriter(url), feed, make_decoder, value_keys, Watch()).run(threading.Event(), until_end=True)
    return states.read(url)


@pytest.mark.parametrize("mode", MODES)
def test_the_same_rows_make_the_same_records_whichever_way_they_come(
    spark: SparkSession, source_url: str, state_urls: list[str], broker: KafkaBroker, mode: str
) -> None:
    """They are read, upserted from a snapshot, taken out by their rows before, and inserted."""
    with_schema, handling, wire = MODES[mode]
    read_url, kept_url, direct_url = state_urls
    columns = ", ".join(f'"{kind}" {kind} {DEFAULTS.get(kind, "")}' for kind in KINDS)
    direct.run(
        source_url,
        "CREATE SCHEMA s",
        "CREATE TYPE mood AS ENUM ('sad', 'very happy')",
        "CREATE DOMAIN price AS numeric(10, 2)",
        f"CREATE TABLE s.kinds (id integer PRIMARY KEY, {columns})",
        "ALTER TABLE s.kinds REPLICA IDENTITY FULL",
    )
    run_bootstrap(spark, Options(source_url, "db", kept_url, row_images="always"))
    direct.begin(direct_url, source_url)
    insert_rows(source_url)
    settings = {"snapshot.mode": "initial", **handling}
    with connecting(broker, source_url, with_schema, **settings) as connect:
        connect.start()
        run_bootstrap(spark, Options(source_url, "db", read_url))
        rows = states.read(read_url)
        number = len(rows.counters)
        wait_for(lambda: consume(kept_url, connect, wire).counters == rows.counters)
        require_same(states.read(kept_url), rows)

        direct.run(source_url, "DELETE FROM s.kinds")
        for url in (read_url, kept_url):
            wait_for(lambda url=url: consume(url, connect, wire).records == {})
            assert [counters[0] for counters in states.read(url).counters.values()] == [0] * number

        insert_rows(source_url)
        direct.follow(direct_url, source_url)
        require_same(states.read(direct_url), rows)
        for url in (read_url, kept_url):
            wait_for(lambda url=url: consume(url, connect, wire).counters == rows.counters)
            require_same(states.read(url), rows)

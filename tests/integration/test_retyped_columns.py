"""A column of another type goes on as it is where its old values have the same texts; everywhere else it is stale."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import orjson
import psycopg2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg2.extensions import connection as Connection

from service.core.canonical import cell_decoder
from service.core.errors import RecordError, StateError
from service.core.model import SchemaDrift
from service.core.retyping import is_same_type, keeps_texts, shows_other_type
from service.store.canonical_sql import SESSION_SETTINGS, canonical_expression, needs_document_walk
from service.store.embedded import EmbeddedPostgres
from service.store.schema_changes import rename
from service.store.writer import PostgresWriter
from tests import postgres_following as source
from tests import states
from tests.events import envelope, tracked_table
from tests.following import Stream, Watch, consume, store_tracked
from tests.postgres_following import begin, follow, require_equal, run
from tests.states import Tables

WORDS = st.text(st.sampled_from(" aZ0.-\u00e9\n"), max_size=6)
WHOLE = st.integers(-40_000, 40_000).map(str)
DECIMALS = st.decimals(-999, 999, places=2).map(str) | st.just("NaN")
MOMENTS = st.datetimes().map(lambda moment: f"{moment.isoformat()}+03") | st.just("infinity")
CLOCKS = st.times().map(lambda moment: f"{moment.isoformat()}+03")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from([0.5, -0.0, 1e30]) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
).map(lambda value: json.dumps(value, indent=1))
SCALARS: Mapping[str, st.SearchStrategy[str]] = {
    **dict.fromkeys(("smallint", "integer", "bigint"), WHOLE),
    **dict.fromkeys(("numeric", "numeric(10,2)", "numeric(12,2)", "numeric(12,4)", "numeric(8,0)"), DECIMALS),
    "numeric(4,-2)": WHOLE,
    **dict.fromkeys(("text", "character varying", "character varying(4)", "character varying(6)"), WORDS),
    **dict.fromkeys(("character(4)", "character(6)", "bpchar"), WORDS),
    "boolean": st.sampled_from(["t", "f"]),
    "uuid": st.uuids().map(lambda value: str(value).upper()),
    "real": st.floats(width=32).map(str),
    "double precision": st.floats().map(str),
    "date": st.dates().map(str),
    **{f"timestamp{digits} {zone} time zone": MOMENTS for digits in ("", "(3)", "(0)") for zone in ("with", "without")},
    **{f"time{digits} {zone} time zone": CLOCKS for digits in ("", "(3)") for zone in ("with", "without")},
    **dict.fromkeys(("interval", "interval(3)", "interval day to second"), st.timedeltas().map(str)),
    **dict.fromkeys(("json", "jsonb"), JSON),
    "bytea": st.binary(max_size=3).map(lambda value: f"\\x{value.hex()}"),
    "inet": st.ip_addresses().map(str),
}
PAIRS = [(old, new) for old in SCALARS for new in SCALARS if old != new and keeps_texts(old, new)]
LISTS = [(old, new) for old in SCALARS for new in SCALARS if old != new and keeps_texts(f"{old}[]", f"{new}[]")]


@pytest.fixture(scope="module")
def connection(postgres_server: EmbeddedPostgres) -> Iterator[Connection]:
    with closing(psycopg2.connect(postgres_server.url)) as connection:
        for name, value in SESSION_SETTINGS.items():
            connection.cursor().execute("select set_config(%s, %s, false)", (name, value))
        connection.commit()
        yield connection


def texts_before_and_after(
    connection: Connection, old: str, new: str, literals: Sequence[str]
) -> tuple[list[str | None], list[str | None]]:
    """Give the canonical texts of values in a table before and after its ALTER TABLE; none where that is refused."""

    def texts(data_type: str) -> list[str | None]:
        cursor.execute(f"select {canonical_expression(data_type, 'cell')} from altered order by place")
        found = [text for (text,) in cursor.fetchall()]
        return list(map(cell_decoder(data_type), found)) if needs_document_walk(data_type) else found

    with connection.cursor() as cursor:
        try:
            cursor.execute(f"create temporary table altered (place serial, cell {old}) on commit drop")
            cursor.execute(f"insert into altered (cell) select literal::{old} from unnest(%s) as literal", (literals,))
            before = texts(old)
            cursor.execute(f"alter table altered alter column cell type {new}")
            return before, texts(new)
        except (psycopg2.DataError, psycopg2.NotSupportedError):
            return [], []
        finally:
            connection.rollback()


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_every_value_has_the_same_text_in_the_new_type(connection: Connection, old: str, new: str) -> None:
    met = []

    @settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.lists(SCALARS[old], min_size=1, max_size=3))
    def check(literals: list[str]) -> None:
        before, after = texts_before_and_after(connection, old, new, literals)
        assert before == after
        met.extend(after)

    check()
    plain = {"boolean": "t", "uuid": "00000000-0000-0000-0000-00000000000A", "json": "1.50", "jsonb": "1.50"}
    moment = {"timestamp": "2026-11-21 01:02:03.456789+03", "time": "01:02:03.456789+03", "interval": "1 day 0.0015"}
    literal = next((text for start, text in (plain | moment).items() if old.startswith(start)), "12")
    if not (old == "uuid" and new == "character varying(4)") and not (old == "uuid" and new == "character varying(6)"):
        before, after = texts_before_and_after(connection, old, new, [literal])
        assert before == after != [], "and there are values for which there is such an ALTER TABLE"


@pytest.mark.parametrize(("old", "new"), LISTS)
def test_arrays_keep_the_texts_that_their_elements_keep(connection: Connection, old: str, new: str) -> None:
    literals = {"uuid": "00000000-0000-0000-0000-00000000000A", "time": "01:02:03.456+03", "interval": "1 day 0.0015"}
    literals |= {"timestamp": "2026-11-21 01:02:03.456789+03", "json": "1.50", "jsonb": "1.50"}
    literal = next((text for start, text in literals.items() if old.startswith(start)), "12")
    before, after = texts_before_and_after(connection, f"{old}[]", f"{new}[]", ["{" + literal + ",NULL}"])
    assert before == after


@pytest.mark.parametrize(
    ("old", "new", "literal"),
    [
        ("timestamp without time zone", "date", "2026-11-21 10:00"),
        ("timestamp without time zone", "timestamp(0) without time zone", "2026-11-21 10:00:00.4"),
        ("date", "timestamp without time zone", "2026-11-21"),
        ("numeric", "text", "1.00"),
        ("numeric(10,2)", "numeric(10,1)", "1.25"),
        ("numeric", "numeric(10,2)", "1.234"),
        ("numeric(10,2)", "integer", "1.5"),
        ("integer", "numeric(8,-2)", "123"),
        ("double precision", "numeric", "0.1234567890123456"),
        ("real", "double precision", "0.1"),
        ("double precision", "text", "1e20"),
        ("character varying", "character(3)", "a  "),
        ("text", "character varying(2)", "a   "),
        ("jsonb", "text", '{"a": 1}'),
        ("integer[]", "text[]", "{1}"),
        ("boolean[]", "text[]", "{t}"),
    ],
)
def test_types_in_which_a_value_has_another_text(connection: Connection, old: str, new: str, literal: str) -> None:
    before, after = texts_before_and_after(connection, old, new, [literal])
    assert before != after
    assert not keeps_texts(old, new)


def test_a_type_is_the_same_with_its_schema_and_without() -> None:
    assert is_same_type("s.mood", "mood")
    assert is_same_type('"S.x"."A.b"[]', '"A.b"[]')
    assert not is_same_type('"A.b"', '"C.b"')
    assert not is_same_type("numeric(10,2)", "numeric(10,3)")


@pytest.mark.parametrize(
    ("known", "told", "shows"),
    [
        ("integer", "bigint", True),
        ("bigint", "integer", False),
        ("integer", "numeric(10,0)", False),
        ("integer", "numeric(10,2)", True),
        ("integer", "text", True),
        ("numeric(10,2)", "numeric(12,2)", False),
        ("numeric(10,2)", "numeric(12,3)", True),
        ("numeric(10,2)", "numeric", True),
        ("numeric(10,0)", "integer", False),
        ("numeric(10,2)", "integer", True),
        ("numeric(10,2)", "text", False),
        ("numeric(10,2)", "double precision", False),
        ("timestamp(3) without time zone", "timestamp[us]", False),
        ("timestamp without time zone", "date", True),
        ("timestamp without time zone", "timestamp with time zone", True),
        ("timestamp without time zone", "text", False),
        ("time without time zone", "time64[us]", False),
        ("interval day to second", "duration[us]", False),
        ("character varying(9)", "text", False),
        ("text", "integer", True),
        ("text", "jsonb", True),
        ("integer[]", "bigint[]", True),
        ("integer[]", "integer", True),
        ("integer", "integer[]", True),
        ("string", "integer", False),
        ("mood", "integer", False),
    ],
)
def test_the_schema_of_a_record_shows_what_its_encodings_tell_apart(known: str, told: str, shows: bool) -> None:
    assert shows_other_type(known, told) is shows


# With a running consumer


def types(url: str) -> dict[str, tuple[str, bool]]:
    query = "select column_name, data_type, stale_version is not null from attribute"
    return {column: (data_type, is_stale) for column, data_type, is_stale in states.query(url, query)}


def test_columns_of_wider_types_go_on_in_a_database_that_is_followed(followed_url: str, database_url: str) -> None:
    run(
        followed_url,
        "CREATE SCHEMA s",
        "CREATE TABLE s.orders (id integer, price numeric(10,2), note varchar(9), due timestamp)",
        "ALTER TABLE s.orders REPLICA IDENTITY FULL",
        "INSERT INTO s.orders VALUES (1, 1.50, 'a', '2026-11-21 10:00'), (2, 20, 'b', NULL)",
    )
    begin(database_url, followed_url)
    run(
        followed_url,
        "UPDATE s.orders SET price = 3 WHERE id = 2",
        "ALTER TABLE s.orders ALTER id TYPE bigint, ALTER price TYPE numeric(14,4), ALTER note TYPE text",
        "UPDATE s.orders SET price = 2.125 WHERE id = 1",
        "INSERT INTO s.orders VALUES (5000000000, 1, 'longer than nine')",
        "DELETE FROM s.orders WHERE id = 2",
    )
    watch = Watch()
    follow(database_url, followed_url, watch=watch)
    require_equal(database_url, followed_url)
    assert watch.schema == [("s.orders", ("id", "price", "note"), ())], "in one version"
    assert types(database_url) == {
        "id": ("bigint", False),
        "price": ("numeric(14,4)", False),
        "note": ("text", False),
        "due": ("timestamp without time zone", False),
    }


@pytest.mark.parametrize(
    ("feed", "old", "new", "becomes"),
    [
        ("postgres:s", "timestamp without time zone", "date", None),
        ("postgres:s", "inet", "text", None),
        ("postgres:s", "integer", "bigint", "bigint"),
        ("kafka:x", "timestamp without time zone", "date", None),
        ("kafka:x", "inet", "text", "text"),  # it is sent as a text
        ("kafka:x", "date", "string", "date"),  # of a record without a schema
    ],
)
def test_a_column_that_is_renamed_afterwards_keeps_its_values_where_they_have_the_same_texts(
    database_url: str, feed: str, old: str, new: str, becomes: str | None
) -> None:
    store_tracked(database_url, Tables({"orders": ["id", "due"]}).add("orders", ["1", "2026-11-21"]))
    states.execute(database_url, f"update attribute set data_type = '{old}' where column_name = 'due'")
    writer = PostgresWriter(database_url)
    writer.acquire()
    writer.change_schema(SchemaDrift("drift", tracked_table("s", "orders", {}), [("day", new)], ["due"]), feed)
    writer.close()
    if becomes is None:
        with pytest.raises(StateError, match=f"day is {new}, and due was {old}.*--replace"):
            rename(database_url, "s.orders.due", "s.orders.day", print)
        assert types(database_url)["due"] == (old, True)
        return
    rename(database_url, "s.orders.due", "s.orders.day", print)
    current = "select data_type from attribute where column_name = 'day' and dropped_version is null"
    assert states.query(database_url, current) == [(becomes,)]
    assert types(database_url).keys() == {"id", "day"}


@pytest.mark.parametrize("identity", ["FULL", "DEFAULT"])
def test_a_column_whose_values_have_other_texts_is_stale(followed_url: str, database_url: str, identity: str) -> None:
    """Old rows come with their new texts, which were never counted; kept rows hold the old ones."""
    run(
        followed_url,
        "CREATE SCHEMA s",
        "CREATE TABLE s.orders (id integer PRIMARY KEY, due timestamp, empty text)",
        f"ALTER TABLE s.orders REPLICA IDENTITY {identity}",
    )
    begin(database_url, followed_url)
    run(
        followed_url,
        "INSERT INTO s.orders VALUES (1, '2026-11-21 10:00'), (2, '2026-11-22 10:00')",
        "ALTER TABLE s.orders ALTER due TYPE date, ALTER empty TYPE date USING empty::date",
        "UPDATE s.orders SET due = '2026-12-24' WHERE id = 1",
        "DELETE FROM s.orders WHERE id = 2",
        "INSERT INTO s.orders VALUES (3, '2026-12-25', '2026-12-26')",
    )
    watch = Watch()
    follow(database_url, followed_url, watch=watch)
    assert watch.schema == [("s.orders", ("empty",), ("due",))]
    assert types(database_url) == {
        "id": ("integer", False),
        "due": ("timestamp without time zone", True),
        "empty": ("date", False),
    }
    found, wanted = states.read(database_url).counters, states.expected(source.read_tables(followed_url)).counters
    assert {name: found[name] for name in ("s.orders.id", "s.orders.empty")} == {
        name: wanted[name] for name in ("s.orders.id", "s.orders.empty")
    }
    assert found["s.orders.due"] == (2, 0, 2, 0), "as it was"


def test_a_key_of_kept_rows_whose_values_have_other_texts_stops_the_feed(followed_url: str, database_url: str) -> None:
    run(followed_url, "CREATE SCHEMA s", "CREATE TABLE s.days (day timestamp PRIMARY KEY)")
    begin(database_url, followed_url)
    run(
        followed_url,
        "INSERT INTO s.days VALUES ('2026-11-21 10:00')",
        "ALTER TABLE s.days ALTER day TYPE date",
        "DELETE FROM s.days",
    )
    with pytest.raises(RecordError, match=r"'day' is date now: it is part of the key.*--replace"):
        follow(database_url, followed_url)


def told(op: str, before: object, after: object, **fields: Mapping[str, object]) -> bytes:
    """Make a change of s.items whose schema says what its cells are."""
    listed = [{"field": column, "optional": True, **field} for column, field in fields.items()]
    rows = [{"field": which, "type": "struct", "optional": True, "fields": listed} for which in ("before", "after")]
    payload = orjson.loads(envelope(op, "s", "items", before, after))  # type: ignore[arg-type]
    return orjson.dumps({"schema": {"type": "struct", "fields": rows}, "payload": payload})


def test_the_schema_of_debezium_s_records_shows_another_type(database_url: str, tmp_path: Path) -> None:
    tables = Tables({"items": ["id", "due"]})
    tables.add("items", ["1", "2026-11-21T10:00:00.000000"])
    states.store(database_url, tables)
    states.execute(database_url, "update attribute set data_type = 'integer' where column_name = 'id'")
    states.execute(
        database_url, "update attribute set data_type = 'timestamp without time zone' where column_name = 'due'"
    )
    stream = Stream(tmp_path / "feed.jsonl", tables, {"items": ["id", "due"]})
    moment, day = (
        {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        {
            "type": "int32",
            "name": "io.debezium.time.Date",
        },
    )
    at = 1795255200000000
    stream.write(told("c", None, {"id": 2, "due": at}, id={"type": "int32"}, due=moment))
    stream.write(told("c", None, {"id": 3, "due": at}, id={"type": "int64"}, due=moment))
    stream.write(told("u", {"id": 1, "due": 20778}, {"id": 9, "due": 1}, id={"type": "int64"}, due=day))
    watch = Watch()
    consume(database_url, stream, watch=watch)
    assert watch.schema == [("s.items", ("id",), ()), ("s.items", (), ("due",))]
    assert types(database_url) == {"id": ("bigint", False), "due": ("timestamp without time zone", True)}
    assert states.read(database_url).counters == {"s.items.id": (3, 0, 3, 0), "s.items.due": (3, 0, 1, 1)}

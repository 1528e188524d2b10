"""Tell that Postgres' expressions give the texts and keys that Python gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from decimal import Decimal

import psycopg2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg2.extensions import connection as Connection
from psycopg2.extensions import cursor as Cursor

from service.core import canonical_forms as forms
from service.core.canonical import POSTGRES_KEY_EXPRESSION, canonical_text, cell_decoder, value_keys
from service.store.canonical_sql import SESSION_SETTINGS, canonical_expression, needs_document_walk
from service.store.embedded import EmbeddedPostgres
from tests.canonical_cases import CASES, Case, texts

SEVERAL = settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def connection(postgres_server: EmbeddedPostgres) -> Iterator[Connection]:
    with closing(psycopg2.connect(postgres_server.url)) as connection:
        for name, value in SESSION_SETTINGS.items():
            connection.cursor().execute("select set_config(%s, %s, false)", (name, value))
        connection.commit()
        yield connection


@pytest.fixture
def cursor(connection: Connection) -> Iterator[Cursor]:
    """Give a cursor whose transaction is rolled back: the tests read, and create a type at most."""
    with connection.cursor() as cursor:
        yield cursor
    connection.rollback()


def texts_of(cursor: Cursor, data_type: str, literals: Sequence[str | None]) -> list[str | None]:
    """Read values, given as Postgres' input texts, back as canonical texts."""
    cursor.execute(
        f"select {canonical_expression(data_type, 'cell')} from (select literal::{data_type} as cell, place "
        "from unnest(%s::text[]) with ordinality as given (literal, place)) as cells order by place",
        (list(literals),),
    )
    found = [text for (text,) in cursor.fetchall()]
    return list(map(cell_decoder(data_type), found)) if needs_document_walk(data_type) else found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.postgres)
def test_every_type_has_the_text_that_python_gives(cursor: Cursor, case: Case) -> None:
    @SEVERAL
    @given(st.lists(case.values, min_size=1, max_size=20))
    def check(values: list[object]) -> None:
        assert texts_of(cursor, case.postgres, list(map(case.literal, values))) == list(map(case.text, values))

    check()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.postgres)
def test_null_stays_null(cursor: Cursor, case: Case) -> None:
    assert texts_of(cursor, case.postgres, [None]) == [None]


def test_days_and_moments_of_any_year(cursor: Cursor) -> None:
    first, last = forms.days_from_civil(-4712, 1, 1), forms.days_from_civil(294_276, 12, 30)

    @SEVERAL
    @given(st.lists(st.tuples(st.integers(first, last), st.integers(0, forms.MICROSECONDS_PER_DAY - 1))))
    def check(moments: list[tuple[int, int]]) -> None:
        for data_type, zoned in (("timestamp without time zone", False), ("timestamp with time zone", True)):
            cursor.execute(
                f"select {canonical_expression(data_type, 'cell')}, {canonical_expression('date', 'cell::date')} from "
                "(select ((date '1970-01-01' + day::integer)::timestamp + rest * interval '1 microsecond')"
                f"::{data_type} as cell, place from unnest(%s::bigint[], %s::bigint[]) "
                "with ordinality as given (day, rest, place)) as cells order by place",
                ([day for day, _ in moments], [microseconds for _, microseconds in moments]),
            )
            assert cursor.fetchall() == [
                (
                    forms.timestamp_text(day * forms.NANOSECONDS_PER_DAY + microseconds * 1000, zoned),
                    forms.days_text(day),
                )
                for day, microseconds in moments
            ]

    check()


@pytest.mark.parametrize(
    ("data_type", "literal", "text"),
    [
        ("timestamp without time zone", "infinity", "infinity"),
        ("timestamp with time zone", "-infinity", "-infinity"),
        ("timestamp with time zone", "0044-03-15 12:00:00+00 BC", "-0043-03-15T12:00:00.000000Z"),
        ("timestamp(3) with time zone", "2026-11-21 01:00:00.5+02", "2026-11-20T23:00:00.500000Z"),
        ("date", "infinity", "infinity"),
        ("date", "5874897-12-31", "+5874897-12-31"),
        ("date", "0001-12-31 BC", "0000-12-31"),
        ("time without time zone", "24:00:00", "24:00:00.000000"),
        ("time with time zone", "24:00:00+00", "00:00:00.000000Z"),
        ("time with time zone", "01:00:00.5+05:30:15", "19:29:45.500000Z"),
        ("interval", "1 year 2 mons -3 days +04:05:06.007", "PT36572706.007S"),
        ("interval", "infinity", "infinity"),
        ("numeric", "NaN", "NaN"),
        ("numeric", "-Infinity", "-Infinity"),
        ("numeric", "1e20", "1" + "0" * 20),
        ("money", "-1012.50", "-1012.5"),
        ("double precision", "1e23", "1" + "0" * 23),
        ("double precision", "-0", "0"),
        ("real", "33554450", "33554450"),
        ("real", "1e-45", "0." + "0" * 44 + "1"),
        ("inet", "192.168.0.1", "192.168.0.1"),
        ("inet", "192.168.0.1/24", "192.168.0.1/24"),
        ("inet", "FE80::1", "fe80::1"),
        ("cidr", "10.0.0.0/8", "10.0.0.0/8"),
        ("bit(3)", "101", "101"),
        ("bit varying(5)", "0101", "0101"),
        ("bpchar", "ab  ", "ab"),
        ("character varying(5)", "ab  ", "ab  "),
        ('"char"', "x", "x"),
        ("name", "x", "x"),
        ("int4range", "[1,5]", "[1,6)"),
        ("tstzrange", "[2026-01-01 00:00:00+02,)", '["2025-12-31 22:00:00+00",)'),
        ("json", '{"b": 1.00, "a": "\\u0000\\ud800", "b": 2}', '{"a":"\\u0000\\ud800","b":2}'),
        ("jsonb", '[1.00, 1e400, {"b": null, "aa": 1}]', "[1,1" + "0" * 400 + ',{"aa":1,"b":null}]'),
        ("jsonb[]", '{"{\\"b\\": 1.0}","\\"x\\"",null}', '[{"b":1},"x",null]'),
        ("numeric[]", "{1.50,NaN,-Infinity}", '[1.5,"NaN","-Infinity"]'),
        ("money[]", "{1012.50}", "[1012.5]"),
        ("bytea[]", '{"\\\\x00ff"}', '["00ff"]'),
        ("boolean[]", "{{t},{f}}", "[[true],[false]]"),
        ("character(3)[]", "{a}", '["a"]'),
        ("inet[]", "{192.168.0.1}", '["192.168.0.1"]'),
        ("interval[]", '{"1 day 00:00:01.5","-1 mon"}', '["PT86401.5S","PT-2629800S"]'),
        ("date[]", '{"0044-03-15 BC",10000-01-01,infinity}', '["-0043-03-15","+10000-01-01","infinity"]'),
        ("timestamp with time zone[]", '{"0044-03-15 BC"}', '["-0043-03-15T00:00:00.000000Z"]'),
        ("time with time zone[]", "{01:00:00+02}", '["23:00:00.000000Z"]'),
        ("bit(2)[]", "{01}", '["01"]'),
    ],
)
def test_what_is_special_of_postgres(cursor: Cursor, data_type: str, literal: str, text: str) -> None:
    assert texts_of(cursor, data_type, [literal]) == [text]


def test_a_type_of_one_s_own_has_its_output_whatever_its_owner_casts_it_to(cursor: Cursor) -> None:
    cursor.execute(
        "create type mood as enum ('sad', 'happy'); create type pair as (a integer, b text); "
        "create function told(mood) returns text immutable language sql as $$ select 'hidden' $$; "
        "create cast (mood as text) with function told(mood)"
    )
    assert texts_of(cursor, "public.mood", ["sad", None]) == ["sad", None]
    assert texts_of(cursor, "public.pair", ["(1,x)", "(,)", None]) == ["(1,x)", "(,)", None]


def test_an_enum_and_a_domain_are_texts(cursor: Cursor) -> None:
    cursor.execute("create type \"Mood\" as enum ('sad', 'happy')")
    assert texts_of(cursor, '"Mood"', ["happy"]) == ["happy"]
    assert texts_of(cursor, '"Mood"[]', ["{happy,NULL}"]) == ['["happy",null]']


def test_a_column_named_in_any_way_is_read(cursor: Cursor) -> None:
    cursor.execute('create table "T" ("a b" numeric(5,2))')
    cursor.execute('insert into "T" values (1.50)')
    cursor.execute(f"""select {canonical_expression("numeric(5,2)", '"T"."a b"')} from "T" """)
    assert cursor.fetchall() == [("1.5",)]


@pytest.mark.parametrize("name", ["candidate", "shorter", "x"])
def test_a_float_column_of_any_name_has_its_text(cursor: Cursor, name: str) -> None:
    cursor.execute(f"create table t ({name} double precision)")
    cursor.execute("insert into t values (9007199254740992), (1e23)")
    cursor.execute(f"select {canonical_expression('double precision', name)} from t")
    assert cursor.fetchall() == [("9007199254740992",), ("1" + "0" * 23,)]


def test_numerics_of_any_size_keep_every_digit(cursor: Cursor) -> None:
    @SEVERAL
    @given(
        st.lists(st.decimals(allow_nan=False, allow_infinity=False).filter(lambda n: -16_000 < n.adjusted() < 100_000))
    )
    def check(numbers: list[Decimal]) -> None:
        assert texts_of(cursor, "numeric", list(map(str, numbers))) == list(map(canonical_text, numbers))

    check()


def test_keys_are_those_of_python(cursor: Cursor) -> None:
    @SEVERAL
    @given(st.lists(texts))
    def check(values: list[str]) -> None:
        cursor.execute(
            f"select {POSTGRES_KEY_EXPRESSION('value')}::text from unnest(%s::text[]) "
            "with ordinality as given (value, place) order by place",
            (values,),
        )
        found = [bytes.fromhex(key.replace("-", "")) for (key,) in cursor.fetchall()]
        keys = value_keys(values)
        assert found == [keys.key(place) for place in range(len(values))]

    check()

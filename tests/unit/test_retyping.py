"""Which changes of a column's type keep its texts, and which a record's schema shows: facts of Postgres' casts."""

from __future__ import annotations

import pytest

from service.core.retyping import is_same_type, keeps_texts, shows_other_type


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("integer", "bigint"),
        ("bigint", "smallint"),
        ("smallint", "text"),
        ("integer", "character varying(20)"),
        ("bigint", "numeric"),
        ("bigint", "numeric(20,0)"),
        ("bigint", "numeric(20,2)"),
        ("numeric(10,2)", "numeric"),
        ("numeric(10,2)", "numeric(12,2)"),
        ("numeric(10,2)", "numeric(12,3)"),
        ("numeric(10)", "numeric(12,0)"),
        ("numeric(10)", "bigint"),
        ("numeric(10,0)", "text"),
        ("numeric(10,-2)", "text"),
        ("text", "character varying"),
        ("character varying(5)", "character varying(5)"),
        ("character varying(5)", "character varying(6)"),
        ("character varying(5)", "text"),
        ("character(3)", "text"),
        ("character(3)", "character(5)"),
        ("boolean", "text"),
        ("uuid", "character varying"),
        ("timestamp(3) without time zone", "timestamp without time zone"),
        ("time(2) with time zone", "time(3) with time zone"),
        ("json", "jsonb"),
        ("jsonb", "json"),
        ("integer[]", "bigint[]"),
        ("integer[]", "numeric[]"),
        ("text[]", "character varying[]"),
        ("interval day to second", "interval"),
        ("public.mood", "shop.mood"),
    ],
)
def test_a_type_whose_texts_stay(old: str, new: str) -> None:
    assert keeps_texts(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("integer", "boolean"),
        ("integer", "real"),
        ("integer", "numeric(5,-2)"),
        ("numeric", "numeric(10,2)"),
        ("numeric(10,2)", "numeric(10,1)"),
        ("numeric(10,2)", "text"),
        ("numeric(10,1)", "text"),
        ("numeric(10,2)", "bigint"),
        ("numeric", "bigint"),
        ("numeric", "text"),
        ("numeric(10)", "boolean"),
        ("text", "integer"),
        ("text", "character varying(5)"),
        ("text", "character(5)"),
        ("character varying(5)", "character varying(4)"),
        ("character(3)", "integer"),
        ("boolean", "integer"),
        ("uuid", "bytea"),
        ("timestamp without time zone", "timestamp(3) without time zone"),
        ("timestamp without time zone", "timestamp with time zone"),
        ("time without time zone", "interval"),
        ("json", "text"),
        ("integer", "integer[]"),
        ("integer[]", "integer"),
        ("integer[]", "text[]"),
        ("boolean[]", "text[]"),
        ("numeric[]", "boolean[]"),
        ("uuid[]", "boolean[]"),
        ("interval", "interval day"),
        ("interval", "interval(3)"),
        ("interval", "text"),
        ("interval_unit", "interval"),
        ("bytea", "text"),
        ("bytea", "interval"),
        ("public.mood", "text"),
    ],
)
def test_a_type_whose_texts_change_or_might(old: str, new: str) -> None:
    assert not keeps_texts(old, new)


def test_a_type_may_be_named_with_its_schema_or_without() -> None:
    assert is_same_type("public.mood", "mood")
    assert is_same_type('"a.b".mood', "mood")
    assert is_same_type('"a""b".mood', "mood")
    assert is_same_type("numeric(10,2)", "numeric(10,2)")
    assert is_same_type("decimal128(10, 2)", "decimal128(10, 2)")
    assert not is_same_type("public.mood", "public.moods")
    assert not is_same_type("numeric(10,2)", "numeric(12,2)")


@pytest.mark.parametrize(
    ("known", "told", "is_other"),
    [
        ("integer", "bigint", True),
        ("bigint", "integer", False),
        ("integer", "text", True),
        ("integer", "boolean", True),
        ("integer", "numeric(10,0)", False),
        ("integer", "numeric(10,2)", True),
        ("numeric(10,0)", "integer", False),
        ("numeric(10,2)", "integer", True),
        ("numeric(10,2)", "numeric(12,2)", False),
        ("numeric(10,2)", "numeric(10,3)", True),
        ("numeric(10,2)", "text", False),
        ("numeric(10,2)", "double precision", False),
        ("numeric(10,2)", "real", True),
        ("double precision", "numeric(5,1)", True),
        ("double precision", "text", True),
        ("real", "double precision", True),
        ("real", "text", True),
        ("uuid", "text", True),
        ("boolean", "text", True),
        ("text", "integer", True),
        ("text", "character(3)", False),
        ("jsonb", "text", False),
        ("jsonb", "json", False),
        ("bytea", "text", False),
        ("bytea", "integer", True),
        ("date", "timestamp without time zone", True),
        ("date", "text", False),
        ("timestamp(3) without time zone", "timestamp[us]", False),
        ("timestamp with time zone", "timestamp[us]", True),
        ("timestamp[ms, tz=UTC]", "timestamp with time zone", False),
        ("timestamp[ms]", "timestamp with time zone", True),
        ("time without time zone", "time64[us]", False),
        ("time(0) without time zone", "time32[ms]", False),
        ("time with time zone", "time64[us]", True),
        ("interval", "duration[us]", False),
        ("interval day to second", "interval", False),
        ("interval", "integer", True),
        ("integer", "time32[ms]", True),
        ("text", "duration[us]", True),
        ("uuid", "interval day to second", True),
        ("mood", "text", False),
        ("text", "string", False),
        ("string", "integer", False),
        ("integer[]", "integer", True),
        ("integer[]", "text", False),
        ("integer", "integer[]", True),
        ("text", "text[]", True),
        ("integer[]", "bigint[]", True),
    ],
)
def test_a_schema_shows_another_type_only_where_encodings_tell_it(known: str, told: str, is_other: bool) -> None:
    assert shows_other_type(known, told) is is_other

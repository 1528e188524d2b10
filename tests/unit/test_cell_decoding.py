"""Cells of feeds against Python's own arithmetic, at the edges of their types, and the words of what is refused."""

from __future__ import annotations

import base64
import re
from decimal import Context, Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.core import canonical_forms
from service.core.canonical import cell_decoder
from service.core.cell_decoding import WireSettings
from service.core.errors import RecordError

LIMIT = 10**30


def encoded(unscaled: int) -> str:
    """Write a decimal's digits as Debezium does: base64 of two's complement, big-endian."""
    return base64.b64encode(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)).decode()


def plain(unscaled: int, scale: int) -> str:
    text = f"{Decimal(unscaled).scaleb(-scale, Context(prec=200)):f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) if unscaled else "0"


@given(st.integers(-(10**60), 10**60) | st.integers(-2000, 2000), st.integers(-40, 40))
@example(10**30, 30)
@example(-(10**30), 31)
@example(1 - 10**30, 1)
def test_decimals_are_those_of_pythons_decimal_module(unscaled: int, scale: int) -> None:
    text = plain(unscaled, scale)
    assert cell_decoder(f"numeric(100,{scale})", "precise")(encoded(unscaled)) == text
    assert cell_decoder("numeric")({"scale": scale, "value": encoded(unscaled)}) == text


@pytest.mark.parametrize("scale", [1, 2, 29, 30])
@pytest.mark.parametrize("unscaled", [0, 7, -10, 1 - LIMIT, LIMIT - 1])
def test_decimals_of_usual_size_are_written_the_short_way(
    monkeypatch: pytest.MonkeyPatch, scale: int, unscaled: int
) -> None:
    def asked(text: str) -> str:
        raise AssertionError(f"{text} took the long way")

    monkeypatch.setattr(canonical_forms, "plain_decimal", asked)
    assert cell_decoder(f"numeric(38,{scale})", "precise")(encoded(unscaled)) == plain(unscaled, scale)


@pytest.mark.parametrize(
    ("data_type", "value", "text"),
    [
        pytest.param("integer", 10**5000, "1" + "0" * 5000, id="huge"),
        ("bigint", 2**64, "18446744073709551616"),
        *((f"{name} unsigned", 0, "0") for name in ("tinyint", "smallint", "mediumint", "int", "bigint")),
        ("tinyint unsigned", -1, "255"),
        ("smallint unsigned", -1, "65535"),
        ("mediumint unsigned", -1, "16777215"),
        ("int unsigned", -1, "4294967295"),
        ("bigint unsigned", -(2**63), "9223372036854775808"),
    ],
)
def test_integers_at_the_edges_of_their_types(data_type: str, value: object, text: str) -> None:
    assert cell_decoder(data_type)(value) == text


@pytest.mark.parametrize(
    ("data_type", "value", "text"),
    [
        ("timestamp with time zone", "2026-11-21T01:00:00z", "2026-11-21T01:00:00.000000Z"),
        ("timestamp without time zone", "2026-11-21t01:00:00z", "2026-11-21T01:00:00.000000"),
        ("time with time zone", "01:00z", "01:00:00.000000Z"),
        ("date64[ms]", "1970-01-02", "1970-01-02"),
        ("date64[ms]", -1, "1969-12-31"),
    ],
)
def test_moments_in_forms_that_are_allowed_and_rare(data_type: str, value: object, text: str) -> None:
    assert cell_decoder(data_type)(value) == text


@pytest.mark.parametrize(
    ("data_type", "value", "text"),
    [
        ("fixed_size_list<item: date32[day]>[2]", [0, 1], '["1970-01-01","1970-01-02"]'),
        ("list_view<item: date32[day]>", [0], '["1970-01-01"]'),
        ("large_list_view<item: list_view<item: date32[day] not null>>", [[0]], '[["1970-01-01"]]'),
        ("dictionary<values=date32[day], indices=int8, ordered=0>", 1, "1970-01-02"),
        ("map<string, string>", '{"x":"1"}', '{"x":"1"}'),
        ("fixed_size_binary[2]", "AP8=", "00ff"),
        ("datetimeoffset(7)", "2026-11-21T01:00:00+02:00", "2026-11-20T23:00:00.000000Z"),
        ("character(4)", "abX ", "abX"),
        ("boolean", "1", "true"),
        ("boolean", "0", "false"),
        ("money", encoded(12345), "123.45"),
        ("money", "$1,234.50", "1234.5"),
        ("smallmoney", encoded(12345), "1.2345"),
        ("geometry", {"wkb": "AP8="}, "00FF"),
        ("point", {"x": 1, "y": 2.5}, "(1,2.5)"),
        ("point", {"x": 1}, '{"x":1}'),
        ("numeric(8)", encoded(1234), "1234"),
        ("bit", True, "1"),
        ("bit(1)", False, "0"),
        ("bit(3)", "BQ==", "101"),
        ("mood(3)", "glad", "glad"),
        ("json", '{"b": 1.0, "a": null}', '{"a":null,"b":1}'),
        ("jsonb", {"b": [1], "a": "x"}, '{"a":"x","b":[1]}'),
        ("extension<arrow.json>", '{"b": 1.0, "a": null}', '{"a":null,"b":1}'),
        ("list<item: extension<arrow.json>>", '["[1.0]"]', "[[1]]"),
        ("extension<arrow.bool8>", True, "true"),
        ("extension<arrow.uuid>", "00000000-0000-0000-0000-00000000000A", "00000000-0000-0000-0000-00000000000a"),
        ("hstore", r'"a"=>"x\"y", "b"=>NULL', r'{"a":"x\"y","b":null}'),
        ("map<string, int64 ('entries')>", {"a": 1}, '{"a":1}'),
        ("map<string, time64[us] ('entries')>", {"a": 1}, '{"a":"00:00:00.000001"}'),
    ],
)
def test_types_by_their_names_in_arrow_and_other_databases(data_type: str, value: object, text: str) -> None:
    assert cell_decoder(data_type)(value) == text


def test_settings_of_a_feed_are_those_of_its_decoders() -> None:
    assert WireSettings(decimal_handling="string").decoder("numeric(8,0)")("1234") == "1234"
    assert WireSettings(decimal_handling="precise").decoder("numeric(8,0)")("1234") == "-2658824"
    assert WireSettings(binary_handling="hex").decoder("fixed_size_binary[2]")("00FF") == "00ff"
    assert WireSettings(binary_handling="hex").decoder("bytea")("00FF") == "00ff"
    nanoseconds = WireSettings(time_precision="nanoseconds").decoder("timestamp(3) without time zone")
    assert nanoseconds(1) == "1970-01-01T00:00:00.000000001"
    clock = WireSettings(time_precision="adaptive_time_microseconds").decoder("time(3) without time zone")
    assert clock(1_000_001) == "00:00:01.000001"
    inside = WireSettings(binary_handling="hex", decimal_handling="string").decoder(
        "struct<a: binary, b: numeric(8,0)>"
    )
    assert inside({"a": "00FF", "b": "1234"}) == '{"a":"00ff","b":1234}'


@pytest.mark.parametrize(("length", "told"), [(77, "x" * 77), (78, "x" * 78), (79, "x" * 76 + "...")])
def test_a_value_is_told_in_at_most_80_characters(length: int, told: str) -> None:
    quote = "'" if length < 79 else ""
    with pytest.raises(RecordError, match=re.escape(f"The value '{told}{quote} is no date")):
        cell_decoder("date")("x" * length)


NO_SCALE = (
    "it looks like the base64 of a number whose scale is not known; set decimal.handling.mode=string in the connector, "
    "or tell the column's type as numeric(precision,scale)"
)


@pytest.mark.parametrize(
    ("data_type", "value", "why"),
    [
        ("integer", True, "it is a boolean"),
        ("double precision", "1_000", "'1_000' is no number"),
        ("numeric", "BQ==", NO_SCALE),
        ("numeric", "x", "'x' is no number"),
        (
            "numeric(8,0)",
            "1234",
            "it may be a number or Debezium's base64 of one; tell which by SUBSETD_DECIMAL_HANDLING, precise or string",
        ),
        ("date", "21.11.2026", "it is no date of ISO 8601"),
        ("date", "2026-02-30", "there is no such day"),
        ("timestamp without time zone", "soon", "it is no timestamp of ISO 8601"),
        ("timestamp with time zone", "2026-11-21T00:00:00", "its time zone is missing"),
        ("timestamp without time zone", "2026-11-21T00:00:00+02", "it has a time zone and its column has none"),
        ("time without time zone", "1 o'clock", "it is no time of ISO 8601"),
        ("time without time zone", "24:00:01", "there is no such time of day"),
        ("time with time zone", "01:00:00", "its time zone is missing"),
        ("time without time zone", "01:00:00+02", "it has a time zone and its column has none"),
        ("time64[us]", 1 << 62, "there is no such time"),
        ("interval", "soon", "it is no interval of ISO 8601 or of Postgres"),
        ("boolean", 2, "it is neither true nor false"),
        ("bytea", 5, "it is no text"),
        ("bytea", "abc", "it is no base64"),
        ("bit(2)", "/w==", "it has more than 2 bits"),
        ("bit(3)", 5, "it is no text"),
        (
            "bit varying",
            "BQ==",
            "Debezium's encoding of bit varying has lost its length; leave the column out of the feed",
        ),
        ("text[]", 5, "it is no array"),
        ("bit(2)", "X1", "it is no base64"),
        ("money", encoded(10**19), NO_SCALE),
    ],
)
def test_a_refusal_names_the_value_the_type_and_why(data_type: str, value: object, why: str) -> None:
    told = f"The value {value!r} is no {data_type}: {why}. Send it in Debezium's default encoding or as plain text, "
    with pytest.raises(RecordError, match=re.escape(told + "or tell the column's true type.") + r"\Z"):
        cell_decoder(data_type)(value)


def test_base64_with_anything_between_is_no_geometry() -> None:
    with pytest.raises(RecordError, match=r"is no geometry"):
        cell_decoder("geometry")({"wkb": "AP 8="})


def test_base64_of_nothing_is_no_number() -> None:
    with pytest.raises(RecordError, match=r"is no numeric\(8,2\): it is empty\."):
        cell_decoder("numeric(8,2)", "precise")("")

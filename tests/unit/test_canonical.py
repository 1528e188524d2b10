"""Tell what one value's canonical text and key are, and that Python, Arrow and a feed agree on them."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.canonical import (
    canonical_json,
    canonical_text,
    cell_decoder,
    refuse_nul,
    stored_value,
    value_key,
    value_keys,
)
from service.core.canonical_arrow import canonical_array
from service.core.errors import RecordError
from tests.canonical_cases import CASES, Case

EVENTS = Path(__file__).parent.parent / "data" / "debezium_events"
BERLIN = timezone(timedelta(hours=2))

TEXTS = [
    (0, "0"),
    (-12, "-12"),
    (10**5000, "1" + "0" * 5000),
    (True, "true"),
    (1.0, "1"),
    (1e20, "100000000000000000000"),
    (1e-7, "0.0000001"),
    (1e23, "100000000000000000000000"),
    (-0.0, "0"),
    (float("nan"), "NaN"),
    (float("-inf"), "-Infinity"),
    (Decimal("1.00"), "1"),
    (Decimal("1E+3"), "1000"),
    (Decimal("-0.00"), "0"),
    (Decimal("-1.230E-5"), "-0.0000123"),
    (Decimal("sNaN"), "NaN"),
    (Decimal("Infinity"), "Infinity"),
    (date(44, 3, 15), "0044-03-15"),
    (datetime(2026, 11, 21, 8, 20), "2026-11-21T08:20:00.000000"),
    (datetime(2026, 11, 21, 8, 20, 30, 5, BERLIN), "2026-11-21T06:20:30.000005Z"),
    (datetime(1, 1, 1, tzinfo=BERLIN), "0000-12-31T22:00:00.000000Z"),
    (datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2))), "+10000-01-01T01:00:00.000000Z"),
    (time(10, 20, 30, 500000), "10:20:30.500000"),
    (time(1, 0, tzinfo=BERLIN), "23:00:00.000000Z"),
    (timedelta(days=1, hours=2), "PT93600S"),
    (timedelta(seconds=-1, microseconds=-500_000), "PT-1.5S"),
    (timedelta(0), "PT0S"),
    (b"\x00\xff", "00ff"),
    (UUID("6F9619FF-8B86-D011-B42D-00CF4FC964FF"), "6f9619ff-8b86-d011-b42d-00cf4fc964ff"),
    (" as it is\n", " as it is\n"),
    ("1.00", "1.00"),
    ([1, 1.50, None, "x", [True]], '[1,1.5,null,"x",[true]]'),
    ({"b": Decimal("1.0"), "a": date(2026, 1, 1)}, '{"a":"2026-01-01","b":1}'),
    ([float("nan"), float("inf")], '["NaN","Infinity"]'),
]


@pytest.mark.parametrize(("value", "text"), TEXTS, ids=[text[:30] for _, text in TEXTS])
def test_every_class_of_values_has_one_text(value: object, text: str) -> None:
    assert canonical_text(value) == text


def test_null_has_no_text() -> None:
    assert canonical_text(None) is None
    assert cell_decoder("integer")(None) is None
    assert cell_decoder("string")(None) is None


def test_a_query_parameter_is_read_as_a_cell_of_its_column() -> None:
    assert canonical_text("1.00", "numeric") == "1"
    assert canonical_text("1234", "numeric(10,2)") == "1234"
    assert canonical_text(0.1, "real") == "0.1"
    assert canonical_text("ab  ", "character(4)") == "ab"
    assert canonical_text(b"\xff", "bytea") == "ff"
    assert canonical_text([Decimal("1.0"), None], "numeric[]") == "[1,null]"


def test_a_class_without_a_text_is_refused() -> None:
    with pytest.raises(RecordError, match="class object has no canonical text"):
        canonical_text(object())


# JSON


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ('{ "b" : 1.00, "a" : 1e2 }', '{"a":100,"b":1}'),
        ("[1E-7, -0, -0.0, 12345678901234567890.123456789000]", "[0.0000001,0,0,12345678901234567890.123456789]"),
        ('{"a":1,"a":2}', '{"a":2}'),
        ('"\\u00e9\\/\\u0041\\n\\u0000\\u007f"', '"é/A\\n\\u0000\x7f"'),
        ('["\\ud83d\\ude00","\\ud83d","\\\\ud83d"]', '["😀","\\ud83d","\\\\ud83d"]'),
        ('{"\\uffff":1,"\\ud83d\\ude00":2}', '{"\uffff":1,"😀":2}'),
        ("null", "null"),
        ("1e1000000", "1e1000000"),
        ("[10e-1000001]", "[1e-1000000]"),
        ("1" + "0" * 5000, "1" + "0" * 5000),
    ],
)
def test_a_document_is_compact_sorted_and_exact(text: str, canonical: str) -> None:
    assert canonical_json(text) == canonical


@pytest.mark.parametrize("text", ["", "{", "NaN", "[Infinity]", "{'a':1}", "[1,]", "[" * 100_000])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(RecordError, match="JSON document cannot be read"):
        canonical_json(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_a_document_means_the_same_and_is_a_fixed_point(document: object) -> None:
    canonical = canonical_json(json.dumps(document))
    assert json.loads(canonical) == document
    assert canonical_json(canonical) == canonical
    canonical.encode()


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_reads_back_as_itself_without_exponent(value: float) -> None:
    text = canonical_text(value)
    assert text is not None
    assert float(text) == value
    assert not set(text) - set("-0123456789.")


# All ways agree


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.postgres)
@settings(deadline=None)  # the first call loads or compiles the kernels
@given(data=st.data())
def test_python_arrow_and_a_feed_give_one_text(case: Case, data: st.DataObject) -> None:
    values = data.draw(st.lists(case.values, min_size=1, max_size=10))
    texts = [case.text(value) for value in values]
    for event in case.events:
        decode = cell_decoder(case.postgres, decimal_handling="precise" if event is case.events[0] else "string")
        assert [decode(json.loads(json.dumps(event(value)))) for value in values] == texts
    if case.arrow is not None:
        array = pa.array([None, *values, None], case.arrow)
        assert canonical_array(array).to_pylist() == [None, *texts, None]


@pytest.mark.parametrize("case", [case for case in CASES if case.arrow is not None], ids=lambda case: str(case.arrow))
@settings(deadline=None)  # the first call loads or compiles the kernels
@given(data=st.data())
def test_a_feed_of_a_parquet_source_gives_its_texts(case: Case, data: st.DataObject) -> None:
    value = data.draw(case.values)
    decode = cell_decoder(str(case.arrow), decimal_handling="precise")
    assert decode(json.loads(json.dumps(case.events[0](value)))) == case.text(value)


def rows(file: str, **types: str) -> list[dict[str, str | None]]:
    decoders = {column: cell_decoder(data_type) for column, data_type in types.items()}
    records = [json.loads(line) for line in (EVENTS / file).read_text().splitlines()]
    values = [
        json.loads(record["value"]) for record in records if record["topic"].endswith(".allt") and record["value"]
    ]
    images = [image for value in values for image in (value["before"], value["after"]) if image]
    return [{column: decode(image[column]) for column, decode in decoders.items()} for image in images]


def test_real_events_of_both_modes_give_the_same_texts() -> None:
    types = {
        "n": "numeric(12,3)", "nn": "numeric", "tstz": "timestamp with time zone", "ts": "timestamp without time zone",
        "d": "date", "t": "time without time zone", "b": "bytea", "u": "uuid", "j": "jsonb", "bo": "boolean",
        "f8": "double precision", "f4": "real", "arr": "text[]", "i8": "bigint", "txt": "text", "iv": "interval",
    }  # fmt: skip
    by_default = rows("src.jsonl", **types)
    assert by_default == rows("strm.jsonl", **types)
    assert by_default[1] == {
        "n": "12345.678",
        "nn": "98765432109876543210.123456789",
        "tstz": "2026-11-21T08:20:30.123456Z",
        "ts": "2026-11-21T10:20:30.123456",
        "d": "2026-11-21",
        "t": "10:20:30.500000",
        "b": "00ff10",
        "u": "6f9619ff-8b86-d011-b42d-00cf4fc964ff",
        "j": '{"a":[1,2.5,null],"b":"x"}',
        "bo": "true",
        "f8": "0.1",
        "f4": "0.25",
        "arr": '["x",null,"y,\\"z"]',
        "i8": "9007199254740993",
        "txt": "Grüße",
        "iv": "PT93600S",
    }


# What a feed may hold


@pytest.mark.parametrize(
    ("data_type", "value", "text"),
    [
        ("string", "as\tit is ", "as\tit is "),
        ("string", 5, "5"),
        ("string", 1.50, "1.5"),
        ("string", True, "true"),
        ("string", {"b": 1.0, "a": []}, '{"a":[],"b":1}'),
        ('"Mood"', "happy", "happy"),
        ('public."Mood"[]', ["a", None], '["a",null]'),
        ("character varying(10)", "ab  ", "ab  "),
        ("bpchar", "ab  ", "ab"),
        ("character(3)[]", ["a  "], '["a"]'),
        ("integer", "007", "7"),
        ("integer[]", [[1], [None]], "[[1],[null]]"),
        ("integer[]", "[[1, 2], [3, 4]]", "[[1,2],[3,4]]"),
        ("numeric", "NaN", "NaN"),
        ("numeric", "NAN", "NaN"),
        ("numeric", "POSITIVE_INFINITY", "Infinity"),
        ("numeric(10,2)", "12.50", "12.5"),
        ("numeric(10,2)", 12.5, "12.5"),
        ("numeric(10,2)", "BOI=", "12.5"),
        ("numeric(4,0)", "12", "12"),
        ("numeric(5,-2)", "BA==", "400"),
        ("numeric(4,0)", "1234", "1234"),
        ("numeric(10,2)", "1234", "-26588.24"),
        ("numeric(10,2)", "12345678", "12345678"),
        ("money", "BOI=", "12.5"),
        ("money", "-$1,012.50", "-1012.5"),
        ("double precision", "Infinity", "Infinity"),
        ("double precision", 100, "100"),
        ("real", 0.1, "0.1"),
        ("boolean", "f", "false"),
        ("date", 20778, "2026-11-21"),
        ("date", "2026-11-21Z", "2026-11-21"),
        ("date", "+10000-01-01", "+10000-01-01"),
        ("date", "0044-03-15 BC", "-0043-03-15"),
        ("date", -2147472691, "-infinity"),
        ("date", -622191234, "infinity"),
        ("date", -625821272, "-infinity"),
        ("date", "+292278994-08-16Z", "infinity"),
        ("date", "+292269055-12-02Z", "-infinity"),
        ("date", -2147472692, "infinity"),
        ("date", "-5877611-06-22Z", "-infinity"),
        ("timestamp(3) without time zone", 1500, "1970-01-01T00:00:01.500000"),
        ("timestamp without time zone", 1500, "1970-01-01T00:00:00.001500"),
        ("timestamp without time zone", 9223372036825200000, "infinity"),
        ("timestamp[us]", 9223372036825200000, "infinity"),
        ("timestamp(3) without time zone", 9223372036825200, "infinity"),
        ("timestamp without time zone", "+294247-01-10T04:00:25.2Z", "infinity"),
        ("timestamp without time zone", -9223372036832400000, "-infinity"),
        ("timestamp without time zone", "2026-11-21 10:20:30", "2026-11-21T10:20:30.000000"),
        ("timestamp without time zone", "20000-01-01T00:00:00", "+20000-01-01T00:00:00.000000"),
        ("timestamp with time zone", "2026-11-21T01:00:00+02", "2026-11-20T23:00:00.000000Z"),
        ("timestamp with time zone", "0001-01-01 00:00:00+00:53:28 BC", "-0001-12-31T23:06:32.000000Z"),
        ("timestamp with time zone", "infinity", "infinity"),
        ("timestamp[ns]", 1, "1970-01-01T00:00:00.000000001"),
        ("timestamp[ns]", 2**63 - 1, "infinity"),
        ("timestamp[ns]", -(2**63), "-infinity"),
        ("timestamp[us]", 2**63 - 1, "+294247-01-10T04:00:54.775807"),
        ("timestamp[ms, tz=Europe/Berlin]", 1, "1970-01-01T00:00:00.001000Z"),
        ("time(0) without time zone", 1000, "00:00:01.000000"),
        ("time without time zone", "24:00:00", "24:00:00.000000"),
        ("time with time zone", "01:00:00+02:00", "23:00:00.000000Z"),
        ("time with time zone", "24:00:00Z", "00:00:00.000000Z"),
        ("interval", "1 year 2 mons -3 days +04:05:06.007", "PT36572706.007S"),
        ("interval", "P1Y2M-3DT4H5M6.007S", "PT36572706.007S"),
        ("interval day to second", 1, "PT0.000001S"),
        ("interval year(2) to month", "1 year", "PT31557600S"),
        ("interval_unit", "day", "day"),
        ("bytea", "-_8=", "fbff"),
        ("bit(1)", True, "1"),
        ("bit(10)", "BQI=", "1000000101"),
        ("bit(4)", "0101", "0101"),
        ("bit varying(9)", "0101", "0101"),
        ("inet", "192.168.0.1/32", "192.168.0.1"),
        ("inet", "FE80::1/64", "fe80::1/64"),
        ("jsonb", '"x"', '"x"'),
        ("json[]", ['{"b": 1.0}', "1"], '[{"b":1},1]'),
        ("hstore", '{"b":"1","a":null}', '{"a":null,"b":"1"}'),
        ("hstore", {"b": "1", "a": None}, '{"a":null,"b":"1"}'),
        ("hstore", r'"b"=>"1, \"\\", "a"=>NULL, "{"=>""', r'{"a":null,"b":"1, \"\\","{":""}'),
        ("hstore", "", "{}"),
        ("hstore[]", ['"b"=>"1"', None], '[{"b":"1"},null]'),
        ("list<item: list<item: timestamp[ms]>>", [[0]], '[["1970-01-01T00:00:00.000000"]]'),
        ("struct<b: int64, a: string>", {"b": 1, "a": None}, '{"a":null,"b":1}'),
        ("dictionary<values=int32, indices=int8, ordered=0>", 7, "7"),
        ("date64[ms]", 86_400_000, "1970-01-02"),
        ("duration[ms]", 1500, "PT1.5S"),
        ("date", "Infinity", "infinity"),
        ("interval", "-infinity", "-infinity"),
        ("interval", "-P1W1D", "PT-691200S"),
        ("interval", "P1M", "PT2629800S"),
        ("interval", "2 years -1 mons 1 day -00:00:01.5", "PT60571798.5S"),
        ("time with time zone", "00:30:00+01", "23:30:00.000000Z"),
        ("time64[us]", 86_400_000_000, "24:00:00.000000"),
        ("time64[us]", 0, "00:00:00.000000"),
        ("time64[us]", -3_600_000_001, "-01:00:00.000001"),
        ("time64[us]", 838 * 3_600_000_000, "838:00:00.000000"),
        ("time32[ms]", 90_000_000, "25:00:00.000000"),
        ("halffloat", 0.1, "0.1"),
        ("bytea", "\\x00FF", "00ff"),
        ("bit(1)", False, "0"),
        ("boolean", "T", "true"),
        ("boolean", 0, "false"),
        ("boolean", False, "false"),
        ("inet", "::1/128", "::1"),
        ("point", {"x": 1.5, "y": -2, "srid": None}, "(1.5,-2)"),
        ("point", {"y": 1, "wkb": "AQ=="}, '{"wkb":"AQ==","y":1}'),
        ("point", "(1,2)", "(1,2)"),
        ("point", {"x": 0.00005, "y": -0.0}, "(5e-05,-0)"),
        ("point", {"x": "NaN", "y": "-Infinity"}, "(NaN,-Infinity)"),
        ("numeric[]", [1.5, None, "NaN"], '[1.5,null,"NaN"]'),
        ("boolean[]", "[true, null]", "[true,null]"),
    ],
)
def test_a_cell_of_a_feed_becomes_its_type_s_text(data_type: str, value: object, text: str) -> None:
    assert cell_decoder(data_type)(value) == text


NESTED = pa.struct(
    [
        pa.field("At", pa.timestamp("us", tz="UTC"), nullable=False),
        ("n", pa.decimal128(10, 2)),
        ("b", pa.binary()),
        ("on", pa.date32()),
        ("x", pa.float64()),
        ("a (1)", pa.list_(pa.struct([("t", pa.time64("us")), ("", pa.int8())]))),
        ("m", pa.map_(pa.int16(), pa.field("v", pa.map_(pa.date32(), pa.struct([])), nullable=False))),
        ("y", pa.bool_()),
    ]
)  # fmt: skip
ROW = {
    "At": datetime(2026, 1, 1, 1, 2, tzinfo=UTC), "n": Decimal("1.50"), "b": b"\0\xff", "on": date(2026, 1, 1),
    "a (1)": [{"t": time(10, 20), "": 1}, None, {"t": None, "": None}], "m": [(7, [(date(2026, 1, 1), {})]), (8, [])],
    "x": 1e23, "y": True,
}  # fmt: skip
EVENT = {
    "y": True, "At": "2026-01-01T02:02:00+01:00", "n": "1.50", "b": "AP8=", "on": "2026-01-01", "x": 1e23,
    "a (1)": [{"t": "10:20:00", "": 1}, None, {}], "m": {"7": {"2026-01-01": {}}, "8": {}},
}  # fmt: skip


def test_structs_lists_and_maps_have_one_text_in_files_and_in_feeds() -> None:
    (text,) = canonical_array(pa.array([ROW], NESTED)).to_pylist()
    for event in (EVENT, json.dumps(EVENT), {**EVENT, "At": 1767229320000000, "on": 20454, "n": 1.5}):
        assert cell_decoder(str(NESTED))(event) == text
    (text,) = canonical_array(pa.array([[ROW, None]], pa.list_(NESTED))).to_pylist()
    assert cell_decoder(str(pa.list_(NESTED)))([EVENT, None]) == text
    (text,) = canonical_array(pa.array([{"x": float("nan")}], NESTED)).to_pylist()
    assert cell_decoder(str(NESTED))({"x": "NaN"}) == text


@pytest.mark.parametrize(
    ("data_type", "value"),
    [
        (pa.struct([("a, b: int8, c", pa.int8())]), {"a, b: int8, c": 1}),
        (pa.struct([("a", pa.int8())]), {"A": 1}),
        (pa.struct([("a", pa.int8())]), [1]),
        (pa.struct([("a", pa.timestamp("us"))]), {"a": "soon"}),
        (pa.map_(pa.string(), pa.int8()), [["a", 1]]),
        (pa.map_(pa.int8(), pa.int8()), {"a": 1}),
    ],
)
def test_a_nested_value_that_is_none_of_its_type_is_refused(data_type: pa.DataType, value: object) -> None:
    with pytest.raises(RecordError, match="is no "):
        cell_decoder(str(data_type))(value)


@pytest.mark.parametrize(
    ("data_type", "value", "way_out"),
    [
        ("numeric", "BOI=", r"decimal\.handling\.mode=string"),
        ("numeric(8,0)", "1234", "tell which by SUBSETD_DECIMAL_HANDLING"),
        ("integer", True, "boolean"),
        ("integer", "x", "no number"),
        ("boolean", 2, "neither true nor false"),
        ("date", "2026-02-30", "no such day"),
        ("timestamp with time zone", "2026-11-21T00:00:00", "time zone is missing"),
        ("timestamp without time zone", "2026-11-21T00:00:00+02", "has a time zone"),
        ("time without time zone", "24:00:01", "no such time"),
        ("interval", "soon", "no interval"),
        ("hstore", '"a"=>1', "no hstore"),
        ("bytea", "abc", "Send it in Debezium's default encoding"),
        ("bit(2)", "/w==", "more than 2 bits"),
        ("bit varying", "BQ==", "lost its length"),
        ("uuid", "x", "no uuid"),
        ("jsonb", "x", "no jsonb"),
        ("integer[]", "{1,2}", "no integer"),
        ("double precision", [1], "no number"),
        ("halffloat", 1e6, "too large"),
        ("real", 1e39, "too large"),
        ("bytea", 5, "it is no text"),
        ("bytea", "\\xfg", "hexadecimal"),
        ("bit(3)", 5, "it is no text"),
        ("bit(2)", True, "it is no text"),
        ("bit varying(3)", "012", "lost its length"),
        ("time64[us]", -839 * 3_600_000_000, "no such time"),
        ("time64[us]", 839 * 3_600_000_000, "no such time"),
        ("time without time zone", "1 o'clock", "no time of ISO 8601"),
        ("time with time zone", "01:00:00", "time zone is missing"),
        ("time without time zone", "01:00:00+02", "it has a time zone and its column has none"),
        ("interval", "1 year soon", "no interval of ISO 8601 or of Postgres"),
        ("interval", "", "no interval"),
        ("date", "21.11.2026", "no date of ISO 8601"),
        ("text[]", 5, "it is no array"),
    ],
)
def test_what_is_none_of_the_type_is_refused_with_a_way_out(data_type: str, value: object, way_out: str) -> None:
    with pytest.raises(RecordError, match=way_out):
        cell_decoder(data_type)(value)


def test_the_settings_of_a_feed_decide_what_has_two_meanings() -> None:
    assert cell_decoder("numeric(8,0)", decimal_handling="string")("1234") == "1234"
    assert cell_decoder("numeric(8,0)", decimal_handling="precise")("1234") == "-2658824"
    assert cell_decoder("bytea", binary_handling="hex")("00FF") == "00ff"
    assert cell_decoder("bytea")("00FF") == "d34145"


# Keys


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))))
def test_the_key_is_the_first_half_of_sha_256(texts: list[str]) -> None:
    keys = value_keys(texts)
    assert [keys.key(i) for i in range(len(texts))] == [hashlib.sha256(t.encode()).digest()[:16] for t in texts]


def test_what_postgres_cannot_store_has_no_key() -> None:
    with pytest.raises(RecordError, match="NUL character, which Postgres cannot store"):
        value_key("a\0b")
    with pytest.raises(RecordError, match=r"U\+D800 without its partner"):
        value_key("\ud800")
    with pytest.raises(RecordError, match="leave the column out"):
        refuse_nul("\0")
    assert refuse_nul("a") == "a"


@given(st.text(st.characters(exclude_categories=("Cs",))), st.integers(0, 20))
def test_a_stored_value_is_the_longest_beginning_that_fits(text: str, limit: int) -> None:
    stored = stored_value(text, limit)
    assert text.startswith(stored)
    assert len(stored.encode()) <= limit
    assert stored == text or len(text[: len(stored) + 1].encode()) > limit


def test_a_moment_in_utc_needs_no_zone_of_the_reader() -> None:
    assert canonical_text(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01T00:00:00.000000Z"

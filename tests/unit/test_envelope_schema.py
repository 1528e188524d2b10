"""Say how cells are read by the schema that a record carries: its semantic names go before the data types."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest

from service.core.errors import RecordError
from service.core.model import RowChange
from service.stream.envelope import Decoder
from service.stream.wire_schema import WireSchema, data_type_of
from tests.events import envelope, record, tracked_table

DECIMAL = "org.apache.kafka.connect.data.Decimal"
UNTYPED = tracked_table("shop", "cells", {"cell": "string"})


def wrapped(field: dict[str, Any], cell: object) -> bytes:
    row = {"type": "struct", "fields": [{"field": "cell", **field}], "optional": True}
    schema = {"type": "struct", "fields": [{**row, "field": "before"}, {**row, "field": "after"}]}
    payload = orjson.loads(envelope("c", "shop", "cells", after={"cell": cell}))
    return orjson.dumps({"schema": schema, "payload": payload})


def text(value: bytes, decoder: Decoder | None = None) -> str | None:
    decoded = (decoder or Decoder([UNTYPED])).decode(record(value))
    assert isinstance(decoded, RowChange)
    assert decoded.after is not None
    return decoded.after[0]


@pytest.mark.parametrize(
    ("field", "cell", "expected"),
    [
        ({"type": "int32", "name": "io.debezium.time.Date"}, 20778, "2026-11-21"),
        ({"type": "int32", "name": "org.apache.kafka.connect.data.Date"}, 20778, "2026-11-21"),
        ({"type": "string", "name": "io.debezium.time.IsoDate"}, "2026-11-21Z", "2026-11-21"),
        ({"type": "int32", "name": "io.debezium.time.Time"}, 37230500, "10:20:30.500000"),
        ({"type": "int64", "name": "io.debezium.time.MicroTime"}, 37230500000, "10:20:30.500000"),
        ({"type": "int64", "name": "io.debezium.time.NanoTime"}, 37230500000000, "10:20:30.500000"),
        ({"type": "string", "name": "io.debezium.time.IsoTime"}, "10:20:30.5Z", "10:20:30.500000"),
        ({"type": "string", "name": "io.debezium.time.ZonedTime"}, "10:20:30.5+02:00", "08:20:30.500000Z"),
        ({"type": "int64", "name": "io.debezium.time.Timestamp"}, 1795256430123, "2026-11-21T10:20:30.123000"),
        ({"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}, 0, "1970-01-01T00:00:00.000000"),
        (
            {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
            1795256430123456,
            "2026-11-21T10:20:30.123456",
        ),
        (
            {"type": "int64", "name": "io.debezium.time.NanoTimestamp"},
            1795256430123456000,
            "2026-11-21T10:20:30.123456",
        ),
        (
            {"type": "string", "name": "io.debezium.time.IsoTimestamp"},
            "2026-11-21T10:20:30.123456Z",
            "2026-11-21T10:20:30.123456",
        ),
        (
            {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
            "2026-11-21T10:20:30.123456+02:00",
            "2026-11-21T08:20:30.123456Z",
        ),
        ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, 9223372036825200000, "infinity"),
        ({"type": "string", "name": "io.debezium.data.Json"}, '{"b": 1.0, "a": []}', '{"a":[],"b":1}'),
        ({"type": "string", "name": "io.debezium.data.Enum"}, "ready", "ready"),
        ({"type": "bytes"}, "AP8Q", "00ff10"),
        ({"type": "boolean"}, True, "true"),
        ({"type": "double"}, "NaN", "NaN"),
        ({"type": "string"}, "2026-11-21Z", "2026-11-21Z"),
        ({"type": "int32", "name": "io.debezium.time.Date"}, None, None),
    ],
)
def test_the_semantic_name_decides(field: dict[str, Any], cell: object, expected: str | None) -> None:
    assert text(wrapped(field, cell)) == expected


@pytest.mark.parametrize(
    ("unscaled", "scale", "expected"),
    [
        (12345678, 3, "12345.678"),
        (-12345678, 3, "-12345.678"),
        (1500, 3, "1.5"),
        (0, 5, "0"),
        (123, 0, "123"),
        (12, -2, "1200"),
        (10**40 + 1, 40, "1." + "0" * 39 + "1"),
    ],
)
def test_a_decimal_has_its_scale_in_the_schema(unscaled: int, scale: int, expected: str) -> None:
    packed = base64.b64encode(unscaled.to_bytes(20, "big", signed=True)).decode()
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": str(scale)}}
    assert text(wrapped(decimal, packed)) == expected
    variable = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}
    assert text(wrapped(variable, {"scale": scale, "value": packed})) == expected


@pytest.mark.parametrize("parameters", [None, {}, {"scale": "three"}, {"scale": "99999999"}])
def test_a_decimal_without_a_usable_scale_is_refused(parameters: dict[str, str] | None) -> None:
    field = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters}
    with pytest.raises(RecordError, match="its schema has a Decimal"):
        text(wrapped(field, "AA=="))


@pytest.mark.parametrize(
    "schema", [1, [], {"fields": 1}, {"fields": [1]}, {"fields": [{"field": "after", "fields": 1}]}]
)
def test_a_malformed_schema_is_refused(schema: object) -> None:
    payload = orjson.loads(envelope("c", "shop", "cells", after={"cell": "x"}))
    with pytest.raises(RecordError, match="its schema is malformed"):
        text(orjson.dumps({"schema": schema, "payload": payload}))


def test_a_null_schema_is_no_schema() -> None:
    payload = orjson.loads(envelope("c", "shop", "cells", after={"cell": "x"}))
    assert text(orjson.dumps({"schema": None, "payload": payload})) == "x"


def test_a_schema_that_changes_in_mid_stream_is_followed() -> None:
    decoder = Decoder([UNTYPED])
    days, moments = {"name": "io.debezium.time.Date"}, {"name": "io.debezium.time.MicroTimestamp"}
    assert text(wrapped(days, 0), decoder) == "1970-01-01"
    assert text(wrapped(days, 1), decoder) == "1970-01-02"
    assert text(wrapped(moments, 1), decoder) == "1970-01-01T00:00:00.000001"
    assert text(wrapped(days, 1), decoder) == "1970-01-02"


def test_a_known_beginning_does_not_hide_what_comes_after_the_payload() -> None:
    decoder = Decoder([UNTYPED])
    value = wrapped({"name": "io.debezium.time.Date"}, 0)
    text(value, decoder)
    with pytest.raises(RecordError, match="is not JSON"):
        text(value + b"}", decoder)
    # A second payload wins, as in every JSON parser.
    other = orjson.dumps(orjson.loads(wrapped({"name": "io.debezium.time.Date"}, 1))["payload"])
    assert text(value[:-1] + b',"payload":' + other + b"}", decoder) == "1970-01-02"


def test_the_bytes_before_the_payload_are_remembered_where_they_are_the_schema_alone() -> None:
    value = wrapped({"type": "int64"}, 5)
    schema, begin = orjson.loads(value)["schema"], value.index(b'"payload":') + len(b'"payload":')
    known = WireSchema(schema, value)
    assert known.prefix == value[:begin]
    assert known.is_prefix_of(value)
    assert known.is_prefix_of(value[:begin] + b"{}}")
    assert not known.is_prefix_of(value + b" ")
    assert not known.is_prefix_of(wrapped({"type": "int32"}, 5))
    more = orjson.dumps({"schema": schema, "more": 1, "payload": None})
    nested = orjson.dumps({"schema": {"fields": [], "a": 1, "payload": 2}, "payload": None})
    for unproven in (b"", more, nested, b'{"payload":null}', b',"payload":null}'):
        assert WireSchema(schema, unproven).prefix == b""
    assert text(orjson.dumps({"schema": {**schema, "payload": 1}, "payload": orjson.loads(value)["payload"]})) == "5"


@pytest.mark.parametrize(
    ("field", "data_type"),
    [
        ({"type": "float"}, "real"),
        ({"type": "float32"}, "real"),
        ({"type": "double"}, "double precision"),
        ({"type": "bytes"}, "bytea"),
        ({"type": "array", "items": {"type": "float"}}, "real[]"),
        ({"type": "array", "items": {"type": "array", "items": {"type": "int16"}}}, "smallint[][]"),
        ({"type": "array"}, "string[]"),
        ({"type": "array", "items": 5}, "string[]"),
        ({"type": "map"}, "json"),
        ({"type": "struct", "name": "io.debezium.data.geometry.Point"}, "point"),
        ({"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": "10"}}, "bit(10)"),
        ({"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": "2147483647"}}, "bit varying"),
        ({"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2"}}, "numeric(1000,2)"),
        ({"type": "bytes", "name": DECIMAL, "parameters": {"scale": "-1000"}}, "numeric(1000,-1000)"),
        (
            {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "16383", "connect.decimal.precision": "9"}},
            "numeric(9,16383)",
        ),
        ({"type": "int32", "name": 5}, "integer"),
        ({"type": "string", "name": "my.own.Name"}, "text"),
        ({}, "string"),
    ],
)
def test_a_field_has_the_type_that_the_state_would_know(field: dict[str, Any], data_type: str) -> None:
    assert data_type_of(field) == data_type


@pytest.mark.parametrize(
    ("field", "fault"),
    [
        ({"name": DECIMAL, "parameters": {"scale": "-1001"}}, "^its schema has a Decimal of scale -1001$"),
        ({"name": DECIMAL, "parameters": {"scale": "16384"}}, "^its schema has a Decimal of scale 16384$"),
        ({"name": DECIMAL, "parameters": {}}, "^its schema has a Decimal without a scale$"),
        ({"name": "io.debezium.data.Bits", "parameters": {}}, "^its schema has a Bits without a length$"),
        ({"name": "io.debezium.data.Bits", "parameters": {"length": "x"}}, "^its schema has a Bits without a length$"),
    ],
)
def test_a_field_without_a_usable_parameter_is_told(field: dict[str, Any], fault: str) -> None:
    with pytest.raises(RecordError, match=fault):
        data_type_of(field)


def test_a_schema_tells_how_a_decimal_came() -> None:
    """The text 1234 is a number where the field is a string, and big-endian bytes in base64 where it is a Decimal."""
    known = Decoder([tracked_table("shop", "cells", {"cell": "numeric(8,0)"})])
    assert text(wrapped({"type": "string"}, "1234"), known) == "1234"
    decimal = {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "0"}}
    assert text(wrapped(decimal, "1234"), known) == "-2658824"
    with pytest.raises(RecordError, match="SUBSETD_DECIMAL_HANDLING"):
        text(wrapped({}, "1234"), known)


def test_a_schema_tells_how_the_decimals_of_an_array_came() -> None:
    known = Decoder([tracked_table("shop", "cells", {"cell": "numeric(8,0)[]"})])
    assert (
        text(wrapped({"type": "array", "items": {"type": "string"}}, ["12", "1234", None]), known) == "[12,1234,null]"
    )


BYTES = {"type": "bytes"}


@pytest.mark.parametrize(
    ("data_type", "field", "cell", "expected"),
    [
        ("s.address", BYTES, "KDUsIsOpLHgiKQ==", '(5,"é,x")'),
        ("s.address[]", {"type": "array", "items": BYTES}, ["KDEscSk=", None], '["(1,q)",null]'),
        ("circle", BYTES, "PCgxLjAsMi4wKSwzLjA+", "<(1,2),3>"),
        ("circle[]", {"type": "array", "items": BYTES}, ["PCgxLjAsMi4wKSwzLjA+"], '["<(1,2),3>"]'),
        ("line", BYTES, "ezEuMCwyLjAsMy4wfQ==", "{1,2,3}"),
        ("box", BYTES, "KDMuMCw0LjApLCgxLjAsMi4wKQ==", "(3,4),(1,2)"),
        ("int4multirange", BYTES, "e1sxLDMpfQ==", "{[1,3)}"),
        ("pg_lsn", BYTES, "MC8xNkIzNzQ4", "0/16B3748"),
    ],
)
def test_types_that_debezium_does_not_know_come_as_their_texts_in_bytes(
    data_type: str, field: dict[str, Any], cell: object, expected: str
) -> None:
    """As its connector for Postgres sends them with `include.unknown.datatypes`."""
    assert text(wrapped(field, cell), Decoder([tracked_table("shop", "cells", {"cell": data_type})])) == expected


@pytest.mark.parametrize(
    ("data_type", "cell"), [("s.address", "/w=="), ("sparsevec(5)", {"dimensions": 5}), ("mood", ["x"])]
)
def test_what_has_a_text_that_is_not_known_is_refused(data_type: str, cell: object) -> None:
    field = BYTES if isinstance(cell, str) else {}
    with pytest.raises(RecordError, match=r"column 'cell'|leave the column out"):
        text(wrapped(field, cell), Decoder([tracked_table("shop", "cells", {"cell": data_type})]))


def test_rows_are_found_under_after_or_before_or_alone() -> None:
    cell = {"type": "struct", "fields": [{"field": "cell", "type": "int64"}, {"type": "int32"}, {"field": 5}]}
    other = {"field": "source", "type": "struct", "fields": [{"field": "cell", "type": "boolean"}]}
    for schema in ({"fields": [other, {**cell, "field": "after"}]}, {"fields": [{**cell, "field": "before"}]}, cell):
        assert WireSchema(schema).data_type("cell") == "bigint"
        assert WireSchema(schema).data_type("source") == "string"

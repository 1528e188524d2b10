"""Say how the events of the connectors of MySQL, SQL Server and Oracle are read: names, types, places in the source."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import orjson
import pytest

from service.core.cell_decoding import BinaryHandling, WireSettings
from service.core.errors import RecordError
from service.core.model import UNAVAILABLE, Attribute, AttributeName, DerivedAttribute, RowChange, Skipped, Table
from service.stream.envelope import Decoder
from tests.events import record, tracked_table

MYSQL = {
    "version": "3.6.3.Final",
    "connector": "mysql",
    "name": "server",
    "ts_ms": 5,
    "snapshot": "false",
    "db": "shop",
    "sequence": None,
    "table": "cells",
    "server_id": 223344,
    "gtid": None,
    "file": "binlog.000003",
    "pos": 1234,
    "row": 2,
    "thread": 7,
}
SQL_SERVER = {
    "connector": "sqlserver",
    "ts_ms": 5,
    "snapshot": "false",
    "db": "erp",
    "schema": "dbo",
    "table": "cells",
    "change_lsn": "00000027:00000758:0003",
    "commit_lsn": "00000027:00000758:0005",
    "event_serial_no": 1,
}
ORACLE = {
    "connector": "oracle",
    "ts_ms": 5,
    "snapshot": "false",
    "db": "ORCLPDB1",
    "schema": "SHOP",
    "table": "CELLS",
    "txId": "6.28.807",
    "scn": "2122185",
    "commit_scn": "2122190",
    "lcr_position": None,
    "ssn": 0,
    "redo_thread": 1,
}


def event(source: dict[str, Any], cells: dict[str, object], fields: list[dict[str, Any]] | None = None) -> bytes:
    payload = {
        "before": None,
        "after": cells,
        "op": "c",
        "source": source,
        "transaction": {"id": "x", "total_order": 1},
    }
    if fields is None:
        return orjson.dumps(payload)
    row = {"type": "struct", "fields": fields}
    schema = {"type": "struct", "fields": [{**row, "field": "before"}, {**row, "field": "after"}]}
    return orjson.dumps({"schema": schema, "payload": payload})


def decode(tables: list[Table], value: bytes, **given: Any) -> RowChange:
    decoded = Decoder(tables, **given).decode(record(value))
    assert isinstance(decoded, RowChange)
    return decoded


# Names


def of_wire(wire: tuple[str | None, str, str], source: str = "one", schema: str = "s", name: str = "cells") -> Table:
    return replace(tracked_table(schema, name, {"a": "string"}), wire=wire, source=source)


@pytest.mark.parametrize(
    ("source", "wire"),
    [
        (MYSQL, (None, "shop", "cells")),
        (SQL_SERVER, (None, "dbo", "cells")),
        (SQL_SERVER, ("erp", "dbo", "cells")),
        (ORACLE, ("ORCLPDB1", "SHOP", "CELLS")),
    ],
)
def test_a_table_is_found_by_what_changes_call_it(source: dict[str, Any], wire: tuple[str | None, str, str]) -> None:
    table = of_wire(wire)
    assert decode([table], event(source, {"a": "x"})).table is table


def test_two_databases_with_tables_of_one_name_are_told_apart_by_the_database() -> None:
    tables = [of_wire((name, "dbo", "cells"), name) for name in ("crm", "erp")]
    assert decode(tables, event(SQL_SERVER, {"a": "x"})).table is tables[1]
    with pytest.raises(RecordError, match="is not tracked"):
        decode(tables[:1], event(SQL_SERVER, {"a": "x"}))


def test_where_two_sources_have_the_name_the_option_that_tells_them_apart_is_named() -> None:
    tables = [of_wire((None, "dbo", "cells"), "one"), of_wire((None, "dbo", "cells"), "two")]
    with pytest.raises(RecordError, match=r"several sources have \(one, two\).*--source NAME"):
        decode(tables, event(SQL_SERVER, {"a": "x"}))
    assert decode(tables[1:], event(SQL_SERVER, {"a": "x"})).table is tables[1]


def test_a_table_that_is_not_followed_is_refused_or_skipped_as_told() -> None:
    value = record(event(MYSQL, {"a": "x"}))
    with pytest.raises(RecordError, match="is not tracked"):
        Decoder([]).decode(value)
    skipped = Decoder([], unknown_tables="ignore").decode(value)
    assert isinstance(skipped, Skipped)
    assert skipped.reason == "table not followed"


@pytest.mark.parametrize(
    ("source", "mark"), [(MYSQL, [3, 1234, 2, 1]), (SQL_SERVER, [0x27, 0x758, 5, 1, 0]), (ORACLE, None)]
)
def test_the_place_in_the_source_is_kept(source: dict[str, Any], mark: list[int] | None) -> None:
    table = of_wire((None, source.get("schema", source["db"]), source["table"]))
    position = decode([table], event(source, {"a": "x"})).source_position
    assert position.get("mark") == mark
    assert position["ts_ms"] == 5


# Types with a schema


def packed(number: int, size: int = 9) -> str:
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


def semantic(kind: str, name: str, **parameters: str) -> dict[str, Any]:
    return {"type": kind, "name": name, "parameters": parameters}


DECIMAL = "org.apache.kafka.connect.data.Decimal"
POINT = {"x": 1.0, "y": 2.5, "wkb": "AQEAAAA=", "srid": None}


@pytest.mark.parametrize(
    ("data_type", "field", "cell", "expected"),
    [
        # MySQL
        ("tinyint(1)", {"type": "int16"}, 1, "1"),
        ("tinyint(1)", {"type": "boolean"}, True, "1"),
        ("boolean", {"type": "boolean"}, True, "true"),
        ("bigint unsigned", {"type": "int64"}, 7, "7"),
        ("bigint unsigned", {"type": "int64"}, -1, "18446744073709551615"),
        ("bigint unsigned", semantic("bytes", DECIMAL, scale="0"), packed(2**64 - 1), "18446744073709551615"),
        ("bigint(20) unsigned zerofill", {"type": "int64"}, -(2**63), "9223372036854775808"),
        ("year", semantic("int32", "io.debezium.time.Year"), 2026, "2026"),
        ("enum('a','b')", semantic("string", "io.debezium.data.Enum", allowed="a,b"), "b", "b"),
        ("set('a','b')", semantic("string", "io.debezium.data.EnumSet", allowed="a,b"), "a,b", "a,b"),
        ("bit(12)", semantic("bytes", "io.debezium.data.Bits", length="12"), "BQI=", "001000000101"),
        ("bit(1)", {"type": "boolean"}, True, "1"),
        ("string", semantic("bytes", "io.debezium.data.Bits", length="3"), "BQ==", "101"),
        ("timestamp", semantic("string", "io.debezium.time.ZonedTimestamp"), "2026-11-21T10:20:30Z",
         "2026-11-21T10:20:30.000000Z"),
        ("datetime", semantic("int64", "io.debezium.time.Timestamp"), 1795256430123, "2026-11-21T10:20:30.123000"),
        ("time(6)", semantic("int64", "io.debezium.time.MicroTime"), 37230500000, "10:20:30.500000"),
        ("json", semantic("struct", "io.debezium.data.geometry.Geometry"), {"wkb": "AQE=", "srid": 4326},
         '{"srid":4326,"wkb":"AQE="}'),
        ("geometry(Point,4326)", semantic("struct", "io.debezium.data.geometry.Geometry"), {"wkb": "Af8="}, "01FF"),
        ("point", semantic("struct", "io.debezium.data.geometry.Point"), POINT, "(1,2.5)"),
        ("float", {"type": "float"}, 0.1, "0.1"),
        ("varbinary(3)", {"type": "bytes"}, "AP8Q", "00ff10"),
        # SQL Server
        ("datetimeoffset(7)", semantic("string", "io.debezium.time.ZonedTimestamp"),
         "2026-11-21T10:20:30.1234567+02:00", "2026-11-21T08:20:30.123456700Z"),
        ("datetime2(7)", semantic("int64", "io.debezium.time.NanoTimestamp"), 1795256430123456700,
         "2026-11-21T10:20:30.123456700"),
        ("money", semantic("bytes", DECIMAL, scale="4"), packed(125_000), "12.5"),
        ("uniqueidentifier", {"type": "string"}, "6F9619FF-8B86-D011-B42D-00CF4FC964FF",
         "6f9619ff-8b86-d011-b42d-00cf4fc964ff"),
        ("xml", semantic("string", "io.debezium.data.Xml"), "<a/>", "<a/>"),
        # Oracle
        ("number(10,2)", semantic("bytes", DECIMAL, scale="2"), packed(1250), "12.5"),
        ("number", semantic("struct", "io.debezium.data.VariableScaleDecimal"), {"scale": 1, "value": packed(25)},
         "2.5"),
        ("number", {"type": "double"}, 2.5, "2.5"),
        ("number(4,-2)", semantic("bytes", DECIMAL, scale="-2"), packed(12), "1200"),
        ("interval day to second", semantic("int64", "io.debezium.time.MicroDuration"), 93_600_000_000, "PT93600S"),
        ("interval year to month", semantic("string", "io.debezium.time.Interval"), "P1Y2M0DT0H0M0S", "PT36817200S"),
        ("string", semantic("int64", "io.debezium.time.Timestamp"), 0, "1970-01-01T00:00:00.000000"),
        ("binary_float", {"type": "float"}, 0.1, "0.1"),
        # Arrays, by what the schema says of their elements
        ("string", {"type": "array", "items": semantic("int32", "io.debezium.time.Date")}, [20778], '["2026-11-21"]'),
        ("string", {"type": "array", "items": semantic("int64", "io.debezium.time.MicroTimestamp")}, [0],
         '["1970-01-01T00:00:00.000000"]'),
        ("numeric(4,1)[]", {"type": "array", "items": semantic("bytes", DECIMAL, scale="1")}, [packed(15), None],
         "[1.5,null]"),
    ],
)  # fmt: skip
def test_the_schema_says_how_a_cell_is_read(data_type: str, field: dict[str, Any], cell: object, expected: str) -> None:
    table = replace(tracked_table("shop", "cells", {"a": data_type}), wire=(None, "shop", "cells"))
    value = event(MYSQL, {"a": cell}, [{"field": "a", **field}])
    assert decode([table], value).after == (expected,)


@pytest.mark.parametrize(
    ("data_type", "field", "handling", "cell", "expected"),
    [
        ("bytea", {"type": "string"}, "hex", "deadbeef", "deadbeef"),
        ("bytea", {"type": "string"}, "base64", "deadbeef", "75e69d6de79f"),
        ("bytea", {"type": "bytes"}, "hex", "AP8Q", "00ff10"),
        ("bytea[]", {"type": "array", "items": {"type": "string"}}, "hex", ["00FF", None], '["00ff",null]'),
    ],
)
def test_binaries_that_a_schema_calls_strings_are_read_as_the_setting_says(
    data_type: str, field: dict[str, Any], handling: BinaryHandling, cell: object, expected: str
) -> None:
    table = replace(tracked_table("shop", "cells", {"a": data_type}), wire=(None, "shop", "cells"))
    value = event(MYSQL, {"a": cell}, [{"field": "a", **field}])
    assert decode([table], value, settings=WireSettings(binary_handling=handling)).after == (expected,)


# Types without a schema: by the table's own, and the settings of the feed


@pytest.mark.parametrize(
    ("data_type", "settings", "cell", "expected"),
    [
        ("tinyint(1)", WireSettings(), True, "1"),
        ("bigint unsigned", WireSettings(), -1, "18446744073709551615"),
        ("bigint unsigned", WireSettings("precise"), packed(2**64 - 1), "18446744073709551615"),
        ("numeric(10,2)", WireSettings(), packed(1250), "12.5"),
        ("numeric(10,2)", WireSettings("string"), "12.50", "12.5"),
        ("numeric(8,0)", WireSettings("string"), "1234", "1234"),
        ("numeric(8,0)", WireSettings("precise"), "1234", "-2658824"),
        ("number(10,2)", WireSettings(), 12.5, "12.5"),
        ("numeric", WireSettings(), {"scale": 1, "value": packed(25)}, "2.5"),
        ("bytea", WireSettings(binary_handling="hex"), "00FF", "00ff"),
        ("blob", WireSettings(), "AP8=", "00ff"),
        ("bit(3)", WireSettings(), "BQ==", "101"),
        ("datetime", WireSettings(), 1795256430123, "2026-11-21T10:20:30.123000"),
        ("datetime(6)", WireSettings(), 1795256430123456, "2026-11-21T10:20:30.123456"),
        ("datetime2", WireSettings(), 1795256430123456700, "2026-11-21T10:20:30.123456700"),
        ("datetime2(3)", WireSettings(time_precision="nanoseconds"), 1795256430123456700,
         "2026-11-21T10:20:30.123456700"),
        ("timestamp without time zone", WireSettings(time_precision="connect"), 1795256430123,
         "2026-11-21T10:20:30.123000"),
        ("timestamp without time zone", WireSettings(time_precision="isostring"), "2026-11-21T10:20:30.123Z",
         "2026-11-21T10:20:30.123000"),
        ("time(3) without time zone", WireSettings(), 37230500, "10:20:30.500000"),
        ("time(3) without time zone", WireSettings(time_precision="adaptive_time_microseconds"), 37230500000,
         "10:20:30.500000"),
        ("timestamp(3) without time zone", WireSettings(time_precision="microseconds"), 1795256430123456,
         "2026-11-21T10:20:30.123456"),
        ("string", WireSettings("precise", "hex"), "12.50", "12.50"),
    ],
)  # fmt: skip
def test_the_data_type_and_the_settings_of_the_feed_say_how_a_cell_is_read(
    data_type: str, settings: WireSettings, cell: object, expected: str
) -> None:
    table = replace(tracked_table("shop", "cells", {"a": data_type}), wire=(None, "shop", "cells"))
    assert decode([table], event(MYSQL, {"a": cell}), settings=settings).after == (expected,)


def test_a_decimal_whose_scale_is_not_known_names_the_setting() -> None:
    table = replace(tracked_table("shop", "cells", {"a": "numeric"}), wire=(None, "shop", "cells"))
    with pytest.raises(RecordError, match=r"decimal\.handling\.mode=string"):
        decode([table], event(MYSQL, {"a": "/0Oesg=="}))


def test_bits_of_no_fixed_length_are_refused_also_with_a_schema() -> None:
    table = replace(tracked_table("shop", "cells", {"a": "bit varying(8)"}), wire=(None, "shop", "cells"))
    field = {"field": "a", **semantic("bytes", "io.debezium.data.Bits", length="8")}
    with pytest.raises(RecordError, match="bit varying has lost its length"):
        decode([table], event(MYSQL, {"a": "BQ=="}, [field]))


def test_a_number_too_large_for_its_type_is_refused() -> None:
    table = replace(tracked_table("shop", "cells", {"a": "real"}), wire=(None, "shop", "cells"))
    assert decode([table], event(MYSQL, {"a": "Infinity"})).after == ("Infinity",)
    with pytest.raises(RecordError, match="too large"):
        decode([table], event(MYSQL, {"a": 1e308}))


# What SQL Server leaves out of its change tables


def updated(before: dict[str, object] | None, after: dict[str, object], told: dict[str, str] | None = None) -> bytes:
    payload = {"before": before, "after": after, "op": "u", "source": SQL_SERVER}
    if told is None:
        return orjson.dumps(payload)
    parameters = {f"__debezium.source.column.{name}": text for name, text in told.items()}
    fields = [{"field": "id", "type": "int32"}, {"field": "note", "type": "string", "parameters": parameters}]
    row = {"type": "struct", "fields": fields}
    schema = {"type": "struct", "fields": [{**row, "field": "before"}, {**row, "field": "after"}]}
    return orjson.dumps({"schema": schema, "payload": payload})


NOTES = replace(tracked_table("dbo", "cells", {"id": "integer", "note": "string"}), wire=("erp", "dbo", "cells"))
KEPT = replace(NOTES, key=(0,), row_images=True)
SHORT, LONG, NTEXT = (
    {"type": kind, "length": length}
    for kind, length in (("NVARCHAR", "50"), ("NVARCHAR", "2147483647"), ("NTEXT", "1073741823"))
)
NULL_IN_BOTH = {"id": 1, "note": None}, {"id": 1, "note": None}
FROM_NULL = {"id": 1, "note": None}, {"id": 1, "note": "x"}


@pytest.mark.parametrize("told", [None, {}, LONG, NTEXT])
def test_null_in_both_rows_of_sql_server_is_what_the_state_keeps(told: dict[str, str] | None) -> None:
    assert decode([KEPT], updated(*NULL_IN_BOTH, told)).after == ("1", UNAVAILABLE)
    whole = decode([NOTES], updated(*NULL_IN_BOTH, told))
    assert whole.before == whole.after == ("1", None)


def test_null_in_both_rows_is_null_where_the_column_is_short_or_no_text() -> None:
    assert decode([KEPT], updated(*NULL_IN_BOTH, SHORT)).after == ("1", None)
    numbers = replace(tracked_table("dbo", "cells", {"id": "integer", "note": "integer"}), key=(0,), row_images=True)
    assert decode([numbers], updated(*NULL_IN_BOTH)).after == ("1", None)


@pytest.mark.parametrize("told", [None, {}, LONG, NTEXT])
def test_a_text_behind_null_of_sql_server_is_refused_for_whole_rows(told: dict[str, str] | None) -> None:
    with pytest.raises(RecordError, match=r"changes 'note' from NULL.*column\.propagate\.source\.type.*--row-images"):
        decode([NOTES], updated(*FROM_NULL, told))
    assert decode([KEPT], updated(*FROM_NULL, told)).after == ("1", "x")
    assert decode([NOTES], updated(*FROM_NULL, SHORT)).before == ("1", None)
    cleared = decode([NOTES], updated(*reversed(FROM_NULL), told))
    assert (cleared.before, cleared.after) == (("1", "x"), ("1", None))
    assert decode([KEPT], updated(*reversed(FROM_NULL), told)).after == ("1", None)


def test_a_tuple_that_changes_beside_a_part_that_neither_row_tells_is_refused() -> None:
    tuples = DerivedAttribute(Attribute(3, AttributeName("dbo", "cells", "(id, note)"), 2), (0, 1))
    table = replace(NOTES, derived=(tuples,))
    moved = {"id": 1, "note": None}, {"id": 2, "note": None}
    with pytest.raises(RecordError, match=r"value of 'note'.*tuple dbo\.cells\.\(id, note\) changes.*keys drop"):
        decode([table], updated(*moved))
    assert decode([table], updated(*NULL_IN_BOTH)).after == ("1", None)
    assert decode([table], updated(*moved, SHORT)).after == ("2", None)
    placeholder = [{**row, "note": "__debezium_unavailable_value"} for row in moved]
    payload = {"before": placeholder[0], "after": placeholder[1], "op": "u", "source": {**ORACLE, "db": "erp"}}
    payload["source"] |= {"schema": "dbo", "table": "cells"}
    with pytest.raises(RecordError, match=r"value of 'note'.*tuple"):
        decode([table], orjson.dumps(payload))
    assert decode([NOTES], orjson.dumps(payload)).after == ("2", None)
    payload["after"] = {**placeholder[0], "id": None}
    payload["before"] = payload["after"]
    assert decode([table], orjson.dumps(payload)).after == (None, None)


def test_null_without_the_row_before_is_refused_of_sql_server() -> None:
    flat = {"id": 1, "note": None, "__op": "u", "__deleted": "false", "__connector": "sqlserver", "__db": "erp",
            "__schema": "dbo", "__table": "cells"}  # fmt: skip
    with pytest.raises(RecordError, match=r"no row before, and NULL in 'note'.*column\.propagate\.source\.type"):
        decode([KEPT], orjson.dumps(flat))
    assert decode([KEPT], orjson.dumps({**flat, "note": "x"})).after == ("1", "x")
    assert decode([KEPT], orjson.dumps({**flat, "__connector": "mysql"})).after == ("1", None)

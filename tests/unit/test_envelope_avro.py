"""Say how records in Avro are read: by the schema that a registry holds, to the texts that JSON would have given."""

from __future__ import annotations

import base64
import json
import struct
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import FeedAwayError, FeedError, RecordError
from service.core.model import UNAVAILABLE, RowChange, SchemaDrift
from service.stream.avro import AvroReader, _connect_field
from service.stream.envelope import Decoder
from service.stream.schema_registry import HttpSchemaRegistry
from service.stream.sqlserver_nulls import is_large
from service.stream.wire_schema import WireSchema
from tests.decoding import decode_all
from tests.events import record, tracked_table
from tests.registry import StubRegistry, avro_record, schema_registry


def named(kind: str, name: str, **parameters: object) -> dict[str, Any]:
    return {"type": kind, "connect.version": 1, "connect.name": name, **parameters}


DECIMAL = named(
    "bytes",
    "org.apache.kafka.connect.data.Decimal",
    scale=2,
    precision=10,
    logicalType="decimal",
    **{"connect.parameters": {"scale": "2", "connect.decimal.precision": "10"}},
)
VARIABLE = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    "connect.name": "io.debezium.data.VariableScaleDecimal",
}
COLUMNS: dict[str, tuple[str, Any, object, str | None]] = {
    "id": ("integer", "int", 7, "7"),
    "price": ("numeric(10,2)", DECIMAL, (-1250).to_bytes(2, "big", signed=True), "-12.5"),
    "any": ("numeric", VARIABLE, {"scale": 3, "value": b"\x04\xd2"}, "1.234"),
    "same": ("numeric", "io.debezium.data.VariableScaleDecimal", {"scale": 0, "value": b"\x05"}, "5"),
    "day": ("date", named("int", "io.debezium.time.Date"), 20778, "2026-11-21"),
    "at": (
        "timestamp without time zone",
        named("long", "org.apache.kafka.connect.data.Timestamp", logicalType="timestamp-millis"),
        1795256430123,
        "2026-11-21T10:20:30.123000",
    ),
    "span": ("interval", named("long", "io.debezium.time.MicroDuration"), 1_500_000, "PT1.5S"),
    "small": ("real", "float", 0.1, "0.1"),
    "large": ("double precision", "double", float("nan"), "NaN"),
    "raw": ("bytea", "bytes", b"\x00\xff", "00ff"),
    "where": ("circle", "bytes", b"<(1.0,-2.5),1.0E20>", "<(1,-2.5),1e+20>"),
    "many": ("int4multirange", "bytes", b"{[1,3)}", "{[1,3)}"),
    "halves": (
        "halfvec(3)",
        {"type": "array", "items": "float", "connect.name": "io.debezium.data.FloatVector"},
        [0.1, 1.0, -1e-7],
        "[0.1,1,-0.0000001]",
    ),
    "tags": ("text[]", {"type": "array", "items": ["null", "string"]}, ["a", None], '["a",null]'),
    "doc": ("jsonb", named("string", "io.debezium.data.Json"), '{"b": 1.0}', '{"b":1}'),
    "note": ("text", "string", "Grüße", "Grüße"),
    "none": ("text", "string", None, None),
}
TABLE = tracked_table("shop", "orders", {name: column[0] for name, column in COLUMNS.items()})
KEYED = replace(TABLE, key=(0,), row_images=True)
ROW = {name: column[2] for name, column in COLUMNS.items()}
TEXTS = tuple(column[3] for column in COLUMNS.values())

VALUE = {
    "type": "record",
    "name": "Value",
    "fields": [{"name": name, "type": ["null", kind], "default": None} for name, (_, kind, _, _) in COLUMNS.items()],
}
SOURCE = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.postgresql",
    "fields": [{"name": name, "type": "string"} for name in ("connector", "db", "schema", "table")]
    + [{"name": "ts_ms", "type": "long"}, {"name": "sequence", "type": ["null", "string"]}],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "server.shop.orders",
    "fields": [
        {"name": "before", "type": ["null", VALUE], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": SOURCE},
        {"name": "op", "type": "string"},
    ],
    "connect.name": "server.shop.orders.Envelope",
}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
PLACE = {"connector": "postgresql", "db": "d", "schema": "shop", "table": "orders", "ts_ms": 5, "sequence": None}


def changed(op: str, before: object = None, after: object = None) -> bytes:
    return avro_record(1, ENVELOPE, {"before": before, "after": after, "source": PLACE, "op": op})


@pytest.fixture(scope="module")
def running() -> Iterator[StubRegistry]:
    with schema_registry() as stub:
        yield stub


@pytest.fixture
def registry(running: StubRegistry) -> StubRegistry:
    running.schemas.clear()
    running.asked.clear()
    running.logins.clear()
    running.status, running.body = 200, None
    running.add(1, ENVELOPE)
    running.add(2, KEY)
    return running


def decoder(registry: StubRegistry, table: Any = TABLE) -> Decoder:
    return Decoder([table], registry=HttpSchemaRegistry(registry.address))


def decode(registry: StubRegistry, value: bytes, table: Any = TABLE, key: bytes | None = None) -> RowChange:
    decoded = decoder(registry, table).decode(record(value, key=key))
    assert isinstance(decoded, RowChange)
    return decoded


def test_every_type_gives_its_canonical_text(registry: StubRegistry) -> None:
    change = decode(registry, changed("c", after=ROW))
    assert dict(zip(COLUMNS, change.after or (), strict=True)) == dict(zip(COLUMNS, TEXTS, strict=True))
    assert change.source_position == {"ts_ms": 5}


def test_a_schema_is_asked_for_once(registry: StubRegistry) -> None:
    reading = decoder(registry)
    changes, _, bad = decode_all(reading, [record(changed("c", after=ROW), offset) for offset in range(5)])
    assert (len(changes), bad) == (5, [])
    assert registry.asked == ["/schemas/ids/1"]


def test_a_cell_that_was_not_sent_is_recognised_as_text_and_as_bytes(registry: StubRegistry) -> None:
    after = {**ROW, "note": "__debezium_unavailable_value", "raw": b"__debezium_unavailable_value"}
    kept = decode(registry, changed("u", None, after), KEYED)
    assert [kept.after and kept.after[list(COLUMNS).index(name)] for name in ("note", "raw")] == [UNAVAILABLE] * 2
    assert decode(registry, changed("u", ROW, after)).after == TEXTS


def test_a_key_in_avro_is_read_too(registry: StubRegistry) -> None:
    assert decode(registry, changed("d"), KEYED, avro_record(2, KEY, {"id": 7})).key == ("7",)


def test_a_new_column_comes_with_its_type(registry: StubRegistry) -> None:
    short = tracked_table(
        "shop", "orders", {name: COLUMNS[name][0] for name in COLUMNS if name not in ("price", "raw")}
    )
    with pytest.raises(SchemaDrift) as caught:
        decode(registry, changed("c", after=ROW), short)
    assert caught.value.added == (("price", "numeric(10,2)"), ("raw", "bytea"))
    assert caught.value.filled == frozenset()


@pytest.mark.parametrize(
    ("kind", "default", "data_type", "is_filled"),
    [
        (["null", "int"], None, "integer", False),
        (["int", "null"], 5, "integer", True),
        ("int", None, "integer", True),
        (["null", {"type": "int", "connect.type": "int16"}], None, "smallint", False),
    ],
)
def test_a_new_column_of_avro_is_filled_where_its_schema_says_so(
    kind: object, default: object, data_type: str, is_filled: bool
) -> None:
    field = {"name": "new", "type": kind, **({} if default is None else {"default": default})}
    row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "int"}, field]}
    envelope = {"type": "record", "name": "Envelope", "fields": [{"name": "after", "type": ["null", row]}]}
    schema = WireSchema(_connect_field(envelope, {}))
    assert schema.data_type("new") == data_type
    assert schema.filled(["new"]) == ({"new"} if is_filled else set())


def test_a_nul_character_is_refused(registry: StubRegistry) -> None:
    with pytest.raises(RecordError, match="NUL character in column 'note'"):
        decode(registry, changed("c", after={**ROW, "note": "a\0b"}))


def test_a_record_cut_short_or_too_long_is_refused(registry: StubRegistry) -> None:
    reading, whole = decoder(registry), changed("c", after=ROW)
    for end in range(1, len(whole)):
        with pytest.raises(RecordError, match=r"offset 0: is no Avro record"):
            reading.decode(record(whole[:end]))
    with pytest.raises(RecordError, match=": 2 bytes too many"):
        reading.decode(record(whole + b"xy"))


def test_a_schema_id_that_the_registry_does_not_know_is_a_bad_record_and_asked_for_once(registry: StubRegistry) -> None:
    reading = decoder(registry)
    unknown = b"\0" + struct.pack(">I", 99) + b"rest"
    for _ in range(3):
        with pytest.raises(RecordError, match=r"schema id 99, which the registry http://127.* does not know"):
            reading.decode(record(unknown))
    assert registry.asked == ["/schemas/ids/99"]


def test_a_schema_that_is_no_avro_is_a_bad_record(registry: StubRegistry) -> None:
    registry.add(3, {}, schemaType="PROTOBUF")
    registry.add(4, {"type": "no such type"})
    registry.schemas[5] = {"schema": "no JSON"}
    for schema_id, fault in ((3, "of the kind PROTOBUF"), (4, "is no Avro schema"), (5, "is no Avro schema")):
        with pytest.raises(RecordError, match=fault):
            decode(registry, b"\0" + struct.pack(">I", schema_id) + b"x")


def test_a_registry_that_is_away_can_be_asked_again(registry: StubRegistry) -> None:
    reading, value = decoder(registry), record(changed("c", after=ROW))
    registry.status = 503
    with pytest.raises(FeedAwayError, match="answers 503"):
        reading.decode(value)
    registry.status, registry.body = 200, b"<html>"
    with pytest.raises(FeedAwayError):
        reading.decode(value)
    registry.body = None
    assert isinstance(reading.decode(value), RowChange)
    with pytest.raises(FeedAwayError, match=r"http://127\.0\.0\.1:1 cannot be asked: .*refused"):
        Decoder([TABLE], registry=HttpSchemaRegistry("http://127.0.0.1:1")).decode(value)


def test_a_password_is_sent_and_never_told(registry: StubRegistry) -> None:
    secret = registry.address.replace("http://", "http://me:geheim@")
    Decoder([TABLE], registry=HttpSchemaRegistry(secret)).decode(record(changed("c", after=ROW)))
    assert registry.logins == ["Basic " + base64.b64encode(b"me:geheim").decode()]
    registry.status = 401
    with pytest.raises(FeedError, match="refuses to answer") as caught:
        HttpSchemaRegistry(secret).schema(1)
    assert "geheim" not in str(caught.value)
    for wrong in ("me:geheim@host", "http://me:geh/eim@host", "http://me:geheim@host:80x"):
        with pytest.raises(FeedError, match=r"address is none.* %2F") as caught:
            HttpSchemaRegistry(wrong)
        assert "geh" not in str(caught.value)


def test_a_login_is_sent_without_its_escapes(registry: StubRegistry) -> None:
    escaped = registry.address.replace("http://", "http://m%40e:geh%2Feim@")
    Decoder([TABLE], registry=HttpSchemaRegistry(escaped)).decode(record(changed("c", after=ROW)))
    assert registry.logins == ["Basic " + base64.b64encode(b"m@e:geh/eim").decode()]


def test_without_a_registry_the_setting_is_named() -> None:
    with pytest.raises(RecordError, match="SUBSETD_SCHEMA_REGISTRY"):
        Decoder([TABLE]).decode(record(changed("c", after=ROW)))


class OneSchema:
    """Hold one schema for every id."""

    def __init__(self, schema: object) -> None:
        self.text = json.dumps(schema)

    def schema(self, schema_id: int) -> str:
        return self.text


def read(schema: object, value: object) -> tuple[Any, WireSchema]:
    return AvroReader(OneSchema(schema)).read(avro_record(9, schema, value))


def row_schema(**kinds: object) -> dict[str, Any]:
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    return {"type": "record", "name": "Row", "namespace": "shop", "fields": fields}


MONEY = {
    "type": "fixed",
    "name": "Money",
    "size": 2,
    "connect.name": "org.apache.kafka.connect.data.Decimal",
    "connect.parameters": {"scale": "2", "connect.decimal.precision": "4"},
}


@pytest.mark.parametrize(
    ("kind", "value", "data_type"),
    [
        ("boolean", True, "boolean"),
        ("long", 5, "bigint"),
        ({"type": "enum", "name": "Mood", "symbols": ["sad", "glad"]}, "glad", "text"),
        (["null", "int"], 5, "integer"),
        (["null", "int", "string"], "x", "string"),
        ({"type": "array", "items": named("int", "io.debezium.time.Date")}, [5], "date[]"),
        (MONEY, b"\x00\x01", "numeric(4,2)"),
        ({"type": "fixed", "name": "Two", "size": 2}, b"ab", "string"),
    ],
)
def test_a_schema_tells_the_type_of_a_column(kind: Any, value: object, data_type: str) -> None:
    _, schema = read(row_schema(cell=kind), {"cell": value})
    assert schema.data_type("cell") == data_type


@pytest.mark.parametrize(("length", "may_be_left_out"), [("50", False), ("2147483647", True)])
def test_a_schema_tells_how_long_a_column_is_whose_type_has_no_name(length: str, may_be_left_out: bool) -> None:
    kind = {"type": "string", "connect.parameters": {"__debezium.source.column.length": length}}
    for written in (kind, ["null", kind]):
        _, schema = read(row_schema(note=written), {"note": "x"})
        assert is_large(schema.fields["note"]) == may_be_left_out


def test_a_name_is_looked_for_in_the_namespace_around_it() -> None:
    """Section Names of Avro's specification: a name without a dot is of the namespace of what it stands in."""
    day = named("long", "io.debezium.time.Date")
    cents, days = b"\x00\x01", {"at": 1}
    schema = row_schema(
        price=MONEY,
        again="Money",
        full="shop.Money",
        union=["null", "Money"],
        many={"type": "array", "items": "Money"},
        other={"type": "record", "name": "Money", "namespace": "bank", "fields": [{"name": "at", "type": day}]},
        still="Money",
        banks="bank.Money",
        dotted={"type": "enum", "name": "zoo.Mood", "symbols": ["glad"]},
    )
    row = {"price": cents, "again": cents, "full": cents, "union": cents, "many": [cents]}
    payload, told = read(schema, {**row, "other": days, "still": cents, "banks": days, "dotted": "glad"})
    assert {name: told.data_type(name) for name in ("price", "again", "full", "union", "still")} == dict.fromkeys(
        ("price", "again", "full", "union", "still"), "numeric(4,2)"
    )
    assert (told.data_type("many"), told.data_type("banks"), told.data_type("dotted")) == (
        "numeric(4,2)[]",
        "json",
        "text",
    )
    assert payload == {
        **dict.fromkeys(("price", "again", "full", "union", "still"), "AAE="), "many": ["AAE="],
        "other": days, "banks": days, "dotted": "glad",
    }  # fmt: skip


def test_names_inside_a_named_type_are_of_its_namespace() -> None:
    inner = [{"name": "one", "type": MONEY}, {"name": "two", "type": "Money"}]
    after = {"type": "record", "name": "bank.Value", "fields": inner}
    envelope = row_schema(before=["null", after], after=["null", "bank.Value"])
    _, told = read(envelope, {"before": None, "after": None})
    assert (told.data_type("one"), told.data_type("two")) == ("numeric(4,2)", "numeric(4,2)")


def test_a_record_without_fields_ends_with_the_id_of_its_schema() -> None:
    assert read({"type": "record", "name": "Nothing", "fields": []}, {})[0] == {}


def test_without_fastavro_it_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(FeedError, match=r"^Records in Avro need .*install it with `pip install 'fastavro>=1\.12'`\.$"):
        AvroReader(OneSchema("int"))


@given(data=st.data())
def test_nothing_but_a_record_error_comes_of_damaged_avro(data: st.DataObject) -> None:
    class Known:
        def schema(self, schema_id: int) -> str:
            if schema_id != 1:
                raise RecordError("unknown")
            return json.dumps(ENVELOPE)

    value = bytearray(changed("u", ROW, ROW))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(value) - 1))
        value[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    damaged = record(bytes(value))
    changes, skipped, bad = decode_all(Decoder([TABLE], registry=Known()), [damaged])
    assert len(changes) + len(skipped) + len(bad) == 1

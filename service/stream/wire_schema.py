"""Own the schema that a record carries (Kafka Connect's): its semantic names tell how a cell was encoded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from service.core.cell_decoding import WireSettings, in_bytes, is_known_by_its_text
from service.core.errors import RecordError
from service.core.model import SchemaDrift
from service.core.number_decoding import DecimalHandling
from service.core.retyping import keeps_texts, shows_other_type
from service.stream.flattened import OPERATION
from service.stream.row_images import Decoders, TableDecoder

_DECIMAL = "org.apache.kafka.connect.data.Decimal"

_SEMANTIC_TYPES = {
    "io.debezium.time.Date": "date",
    "io.debezium.time.IsoDate": "date",
    "org.apache.kafka.connect.data.Date": "date",
    "io.debezium.time.Time": "time32[ms]",
    "io.debezium.time.MicroTime": "time64[us]",
    "io.debezium.time.NanoTime": "time64[ns]",
    "io.debezium.time.IsoTime": "time64[us]",
    "org.apache.kafka.connect.data.Time": "time32[ms]",
    "io.debezium.time.ZonedTime": "time with time zone",
    "io.debezium.time.Timestamp": "timestamp[ms]",
    "io.debezium.time.MicroTimestamp": "timestamp[us]",
    "io.debezium.time.NanoTimestamp": "timestamp[ns]",
    "io.debezium.time.IsoTimestamp": "timestamp[us]",
    "org.apache.kafka.connect.data.Timestamp": "timestamp[ms]",
    "io.debezium.time.ZonedTimestamp": "timestamp with time zone",
    "io.debezium.time.MicroDuration": "duration[us]",
    "io.debezium.time.NanoDuration": "duration[ns]",
    "io.debezium.time.Interval": "interval",
    "io.debezium.time.Year": "integer",
    "io.debezium.data.Json": "jsonb",
    "io.debezium.data.Uuid": "uuid",
    "io.debezium.data.VariableScaleDecimal": "numeric",
    "io.debezium.data.geometry.Point": "point",
    "io.debezium.data.DoubleVector": "vector",
    "io.debezium.data.FloatVector": "halfvec",
}
"""The type whose decoder reads a semantic type; Arrow's names say the unit, where Postgres' names leave it open."""

_UNBOUNDED = 2**31 - 1
"""The length of Bits of a `bit varying` without one."""

_PLAIN_TYPES = {
    "int8": "smallint",
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "float64": "double precision",
    "double": "double precision",
    "boolean": "boolean",
    "string": "text",
    "struct": "json",
    "map": "json",
}
"""The data type of a new column whose field has no semantic name."""


class WireSchema:
    """Know the schema of a topic's records, and the decoders that it makes for a table.

    `schema` is that of an envelope, or of a flat row (a key, a flattened event). `prefix` is how every record with
    this schema begins, up to its payload; empty where that cannot be told. `fields` are the row's, by column.
    """

    def __init__(self, schema: object, value: bytes = b"") -> None:
        self.fields = _row_fields(schema)
        self._decoders: dict[TableDecoder, Decoders] = {}
        self._retyped: dict[TableDecoder, tuple[tuple[str, str], ...]] = {}
        self.prefix = _proven_prefix(schema, value) if value else b""

    def is_prefix_of(self, value: bytes) -> bool:
        """Tell whether a record has this schema, so that only its payload need be parsed."""
        return value.startswith(self.prefix) and value.endswith(b"}")

    def decoders(self, tracked: TableDecoder) -> Decoders:
        """Give the decoders of a table's cells: by semantic name where the schema has one, else by data type."""
        found = self._decoders.get(tracked)
        if found is None:
            found = self._decoders[tracked] = Decoders(
                self._encoding(self._name(attribute.name.column, tracked), attribute.data_type, tracked.settings)
                for attribute in tracked.table.attributes
            )
        return found

    def refuse_other_types(self, tracked: TableDecoder) -> None:
        """Raise SchemaDrift where columns have other types than the state knows, as far as encodings tell."""
        retyped = self._retyped.get(tracked)
        if retyped is None:
            retyped = self._retyped[tracked] = tuple(
                (attribute.name.column, told)
                for attribute in tracked.table.attributes
                if self.fields.get(name := self._name(attribute.name.column, tracked), {}).get("type")
                and shows_other_type(attribute.data_type, told := self.data_type(name))
                and not (attribute.name.column in tracked.late and keeps_texts(told, attribute.data_type))
            )
        if retyped:
            told_types = ", ".join(f"{column!r} is {told}" for column, told in retyped)
            raise SchemaDrift(
                f"its schema shows another type in {tracked.table}: {told_types}", tracked.table, retyped=retyped
            )

    def _name(self, column: str, tracked: TableDecoder) -> str:
        """Give the name that a column has here: an old one where records are from before its renaming."""
        if column in self.fields or column not in tracked.late:
            return column
        return next((name for name in tracked.was(column) if name in self.fields), column)

    def data_type(self, column: str) -> str:
        """Name the type of a column as the state would know it."""
        return data_type_of(self.fields.get(column, {}))

    def filled(self, columns: Iterable[str]) -> frozenset[str]:
        """Name those of new columns of which older rows may hold a value: they have a default, or may not be NULL."""
        fields = {column: self.fields.get(column, {}) for column in columns}
        return frozenset(c for c, f in fields.items() if f.get("default") is not None or f.get("optional") is not True)

    def _encoding(self, column: str, data_type: str, settings: WireSettings) -> tuple[str, WireSettings]:
        field = self.fields.get(column, {})
        semantic = _semantic_type(field)
        if semantic in ("bytea", "bytea[]") and is_known_by_its_text(data_type):
            return in_bytes(data_type), WireSettings()
        if semantic is not None and not data_type.startswith("bit varying"):  # Bits have lost its length
            return semantic, WireSettings("precise")
        # A binary that is sent as a string has no semantic name: nothing but the setting tells base64 and hex apart.
        kinds = (field.get("type"), _inner(field).get("type"))
        decimals: DecimalHandling = "string" if "string" in kinds else "auto"
        return data_type, WireSettings(decimals, settings.binary_handling)


def data_type_of(field: Mapping[str, Any]) -> str:
    """Name the data type of a field of Connect's schema, as `cell_decoder` reads it; `string` where it has no type."""
    semantic = _semantic_type(field)
    if semantic is not None:
        return semantic
    if field.get("type") == "array":
        return data_type_of(_inner(field)) + "[]"
    return _PLAIN_TYPES.get(str(field.get("type")), "string")


def _semantic_type(field: Mapping[str, Any]) -> str | None:
    """Tell the type that a field's encoding names; None where the column's own type is to decide."""
    name, kind = field.get("name"), field.get("type")
    if name == _DECIMAL:
        return _decimal_type(field.get("parameters"))
    if name == "io.debezium.data.Bits":
        length = _parameter(field.get("parameters"), "length")
        return "bit varying" if length == _UNBOUNDED else f"bit({length})"
    if type(name) is str and name in _SEMANTIC_TYPES:
        return _SEMANTIC_TYPES[name]
    if kind == "bytes":
        return "bytea"
    if kind in ("float", "float32"):
        return "real"
    if kind == "array":
        inner = _semantic_type(_inner(field))
        return None if inner is None else inner + "[]"
    return None


def _inner(field: Mapping[str, Any]) -> Mapping[str, Any]:
    items = field.get("items")
    return items if type(items) is dict else {}


def _row_fields(schema: object) -> dict[str, Mapping[str, Any]]:
    """Give the fields of a row by their names: of the after-image, else the before-image, else of a flat row."""
    fields = _fields(schema)
    images = () if any(field.get("field") == OPERATION for field in fields) else ("after", "before")
    for name in images:
        for field in fields:
            if field.get("field") == name and "fields" in field:
                return {inner["field"]: inner for inner in _fields(field) if type(inner.get("field")) is str}
    return {field["field"]: field for field in fields if type(field.get("field")) is str}


def _fields(struct: object) -> list[dict[str, Any]]:
    fields = struct.get("fields", []) if type(struct) is dict else None
    if type(fields) is not list or not all(type(field) is dict for field in fields):
        raise RecordError("its schema is malformed; expected Kafka Connect's {type, fields, name, ...}")
    return fields


def _proven_prefix(schema: object, value: bytes) -> bytes:
    end = value.find(b',"payload":')
    if end < 0:
        return b""
    prefix = value[: end + len(b',"payload":')]
    try:
        proven = orjson.loads(prefix + b"null}") == {"schema": schema, "payload": None}
    except orjson.JSONDecodeError:
        return b""
    return prefix if proven else b""


def _decimal_type(parameters: object) -> str:
    """Read Connect's Decimal: big-endian two's complement in base64, its scale in the schema."""
    scale = _parameter(parameters, "scale")
    if not -1000 <= scale <= 16_383:  # Postgres' bounds: a larger one would only make a text of zeros
        raise RecordError(f"its schema has a Decimal of scale {scale}")
    try:
        precision = _parameter(parameters, "connect.decimal.precision")
    except RecordError:
        precision = 1000
    return f"numeric({precision},{scale})"


def _parameter(parameters: object, name: str) -> int:
    try:
        return int(parameters[name])  # type: ignore[index]
    except (TypeError, KeyError, ValueError, OverflowError) as error:
        raise RecordError(f"its schema has a {'Decimal' if name != 'length' else 'Bits'} without a {name}") from error

"""Own the schema that a JSON record carries: its semantic names tell how a cell was encoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from service.core.canonical import cell_decoder
from service.core.errors import RecordError
from service.stream.row_images import CellDecoder, TableDecoder

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
    "io.debezium.data.Json": "jsonb",
    "io.debezium.data.Uuid": "uuid",
    "io.debezium.data.VariableScaleDecimal": "numeric",
}
"""The type whose decoder reads a semantic type; Arrow's names say the unit, where Postgres' names leave it open."""


class WireSchema:
    """Know the schema of a topic's records, and the decoders that it makes for a table.

    `prefix` is how every record with this schema begins, up to its payload; empty where that cannot be told.
    """

    def __init__(self, schema: object, value: bytes) -> None:
        self._fields = _row_fields(schema)
        self._decoders: dict[TableDecoder, tuple[CellDecoder, ...]] = {}
        self.prefix = _proven_prefix(schema, value)

    def is_prefix_of(self, value: bytes) -> bool:
        """Tell whether a record has this schema, so that only its payload need be parsed."""
        return value.startswith(self.prefix) and value.endswith(b"}")

    def decoders(self, tracked: TableDecoder) -> tuple[CellDecoder, ...]:
        """Give the decoders of a table's cells: by semantic name where the schema has one, else by data type."""
        found = self._decoders.get(tracked)
        if found is None:
            found = self._decoders[tracked] = tuple(
                _field_decoder(self._fields.get(attribute.name.column, {}), attribute.data_type)
                for attribute in tracked.table.attributes
            )
        return found


def _row_fields(schema: object) -> dict[str, Mapping[str, Any]]:
    """Give the fields of the after-image (or the before-image) by their names."""
    for name in ("after", "before"):
        for field in _fields(schema):
            if field.get("field") == name:
                return {inner["field"]: inner for inner in _fields(field) if type(inner.get("field")) is str}
    return {}


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


def _field_decoder(field: Mapping[str, Any], data_type: str) -> CellDecoder:
    name = field.get("name")
    if name == "org.apache.kafka.connect.data.Decimal":
        return _decimal_decoder(field.get("parameters"))
    if type(name) is str and name in _SEMANTIC_TYPES:
        return cell_decoder(_SEMANTIC_TYPES[name])
    if field.get("type") == "bytes":
        return cell_decoder("bytea")
    return cell_decoder(data_type)


def _decimal_decoder(parameters: object) -> CellDecoder:
    """Read Connect's Decimal: big-endian two's complement in base64, its scale in the schema."""
    try:
        scale = int(parameters["scale"])  # type: ignore[index]
    except (TypeError, KeyError, ValueError, OverflowError) as error:
        raise RecordError("its schema has a Decimal without a scale") from error
    if not -1000 <= scale <= 16_383:  # Postgres' bounds: a larger one would only make a text of zeros
        raise RecordError(f"its schema has a Decimal of scale {scale}")
    decode = cell_decoder("numeric")
    return lambda cell: decode({"scale": scale, "value": cell})

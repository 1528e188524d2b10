"""Own records in Avro with a schema registry (Confluent's wire format): what the JSON converter would have sent."""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Mapping
from typing import Any, Protocol

from service.core.errors import FeedError, RecordError
from service.stream.wire_schema import WireSchema

MAGIC = 0
"""The first byte of such a record; the next four are the id of its schema, big-endian."""


class SchemaRegistry(Protocol):
    """Give schemas by their ids."""

    def schema(self, schema_id: int) -> str:
        """Give the text of an Avro schema; raise RecordError for an unknown id, FeedError when it cannot be asked."""


class AvroReader:
    """Read records by their schemas, each of which is asked for once."""

    def __init__(self, registry: SchemaRegistry) -> None:
        try:
            from fastavro import parse_schema, schemaless_reader
        except ImportError as error:
            raise FeedError(
                "Records in Avro need the library fastavro: install it with `pip install 'fastavro>=1.12'`."
            ) from error
        self._registry = registry
        self._parse, self._read = parse_schema, schemaless_reader
        self._schemas: dict[int, tuple[Any, WireSchema]] = {}

    def read(self, value: bytes) -> tuple[Any, WireSchema]:
        """Give a record's payload as the JSON converter would have sent it, and its schema as Kafka Connect's.

        Raises RecordError for a record that does not fit its schema (cut short, too long), and what the registry
        raises.
        """
        if len(value) < 5:
            raise RecordError("is no Avro record of a schema registry: it ends before its schema's id")
        schema_id = struct.unpack(">I", value[1:5])[0]
        known = self._schemas.get(schema_id)
        if known is None:
            known = self._schemas[schema_id] = self._learn(schema_id)
        avro, schema = known
        body = io.BytesIO(value[5:])
        try:
            payload = _as_json(self._read(body, avro, None))
        except Exception as error:  # fastavro raises whatever its reading of damaged bytes leads to
            raise RecordError(
                f"is no Avro record of schema {schema_id}: it ends early or is damaged ({type(error).__name__})"
            ) from error
        if body.tell() != len(value) - 5:
            raise RecordError(f"is no Avro record of schema {schema_id}: {len(value) - 5 - body.tell()} bytes too many")
        return payload, schema

    def _learn(self, schema_id: int) -> tuple[Any, WireSchema]:
        text = self._registry.schema(schema_id)
        try:
            document = json.loads(text)
            names: dict[str, Any] = {}
            connect = _connect_field(document, names)
            avro = self._parse(_without_logical_types(document))
        except RecordError:
            raise
        except Exception as error:  # json and fastavro raise many kinds
            raise RecordError(f"has schema {schema_id}, which the registry holds but is no Avro schema") from error
        return avro, WireSchema(connect)


def _without_logical_types(schema: Any) -> Any:
    """Take the logical types out, so that values are read as they were written: Connect's names tell their meaning."""
    if isinstance(schema, dict):
        return {name: _without_logical_types(part) for name, part in schema.items() if name != "logicalType"}
    return [_without_logical_types(part) for part in schema] if isinstance(schema, list) else schema


_CONNECT_TYPES = {"int": "int32", "long": "int64", "record": "struct", "enum": "string"}


def _connect_field(schema: Any, names: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    """Give Kafka Connect's field of an Avro schema: type, semantic name, parameters, fields, items."""
    if isinstance(schema, list):
        parts = [part for part in schema if part != "null"]
        told = {} if len(parts) == len(schema) else {"optional": True}
        return {**_connect_field(parts[0], names, namespace), **told} if len(parts) == 1 else told
    if isinstance(schema, str):
        named = names.get(_full_name(schema, namespace))
        return named if named is not None else {"type": _CONNECT_TYPES.get(schema, schema)}
    kind = schema["type"]
    field: dict[str, Any] = {"type": schema.get("connect.type", _CONNECT_TYPES.get(kind, kind))}
    field |= {name: schema[f"connect.{name}"] for name in ("name", "parameters") if f"connect.{name}" in schema}
    if kind in ("record", "enum", "fixed"):
        full_name = _full_name(schema["name"], schema.get("namespace", namespace))
        names[full_name] = field
        namespace = full_name.rpartition(".")[0]
    if kind == "record":
        field["fields"] = [
            {**_connect_field(inner["type"], names, namespace), "field": inner["name"], "default": inner.get("default")}
            for inner in schema["fields"]
        ]
    if kind == "array":
        field["items"] = _connect_field(schema["items"], names, namespace)
    return field


def _full_name(name: str, namespace: str) -> str:
    """Put the namespace around a name before it, unless it has its own: two types may differ in it alone."""
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {name: _as_json(part) for name, part in value.items()}
    return [_as_json(part) for part in value] if isinstance(value, list) else value

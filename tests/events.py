"""Own the making of change records for tests and for the demo's recorded feed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from service.core.model import Attribute, AttributeName, RawRecord, Table


def envelope(
    op: str,
    schema: str,
    table: str,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
    **source: object,
) -> bytes:
    """Make one change in Debezium's shape, without `{schema, payload}`; `source` adds to the source block.

    `ts_ms` of the envelope is that of the source block, 0 if none is given: the same call makes the same bytes.
    """
    block = {"ts_ms": 0, **source, "schema": schema, "table": table}
    return orjson.dumps({"before": before, "after": after, "op": op, "source": block, "ts_ms": block["ts_ms"]})


def with_schema(
    columns: Sequence[str],
    op: str,
    table: str,
    before: Mapping[str, object] | None,
    after: Mapping[str, object] | None,
) -> bytes:
    """Make a change of a table of the schema s, with a schema of nullable texts."""
    told = [{"field": column, "type": "string", "optional": True} for column in columns]
    rows = [{"field": which, "type": "struct", "optional": True, "fields": told} for which in ("before", "after")]
    payload = orjson.loads(envelope(op, "s", table, before, after))
    return orjson.dumps({"schema": {"type": "struct", "fields": rows}, "payload": payload})


def tracked_table(schema: str, name: str, columns: Mapping[str, str], insert_only: bool = False) -> Table:
    """Make a table as the state knows it, of columns with their data types."""
    attributes = tuple(
        Attribute(ordinal + 1, AttributeName(schema, name, column), ordinal, data_type, insert_only)
        for ordinal, (column, data_type) in enumerate(columns.items())
    )
    return Table(schema, name, attributes, insert_only)


def record(value: bytes | None, offset: int = 0, topic: str = "shop", key: bytes | None = None) -> RawRecord:
    """Wrap a value as a feed would hand it over."""
    return RawRecord(topic, 0, offset, key, value, 0)

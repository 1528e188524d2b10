"""Own what Debezium really sent (tests/data/debezium_events): the records, and the tables that they are of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson

from service.core.model import RawRecord
from tests.events import tracked_table

EVENTS = Path(__file__).parent / "data" / "debezium_events"
CONNECTORS = ("src", "srs", "strm")

ALLT = tracked_table(
    "public",
    "allt",
    {
        "id": "integer",
        "n": "numeric(12,3)",
        "nn": "numeric",
        "tstz": "timestamp with time zone",
        "ts": "timestamp without time zone",
        "d": "date",
        "t": "time without time zone",
        "b": "bytea",
        "u": "uuid",
        "j": "jsonb",
        "bo": "boolean",
        "f8": "double precision",
        "f4": "real",
        "arr": "text[]",
        "i8": "bigint",
        "i2": "smallint",
        "txt": "text",
        "vc": "character varying(10)",
        "iv": "interval",
    },
)
PLAIN = tracked_table("public", "plain", {"id": "integer", "small": "text", "big": "text"})


def recorded(connector: str) -> list[RawRecord]:
    """Give all records of one connector, topic by topic, as the broker would."""
    with open(EVENTS / f"{connector}.jsonl", encoding="utf-8") as lines:
        return [_raw(json.loads(line)) for line in lines]


def _raw(event: dict[str, Any]) -> RawRecord:
    key = None if event["key"] is None else orjson.dumps(event["key"])
    value = None if event["value"] is None else event["value"].encode()
    return RawRecord(event["topic"], event["partition"], event["offset"], key, value, 0)

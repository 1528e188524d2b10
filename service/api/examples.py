"""Own the examples that the OpenAPI document shows, one for each answer; a test holds them to the schemas."""

from __future__ import annotations

import json
from typing import Any

from service.api import (
    access_examples,
    contract_examples,
    corpus_examples,
    graph_examples,
    joinable_examples,
    watch_examples,
)

CUSTOMER_ID = {"attribute_id": 4, "name": "demo.orders.customer_id", "parts": ["demo", "orders", "customer_id"]}
ID = {"attribute_id": 0, "name": "demo.customers.id", "parts": ["demo", "customers", "id"]}
COUNTED = {
    "source": "demo",
    "data_type": "integer",
    "insert_only": False,
    "sketch_only": False,
    "null_count": 0,
    "shown_characters": None,
    "stale_since": None,
}
ORDERS_SIDE = {
    **CUSTOMER_ID,
    **COUNTED,
    "ordinal": 1,
    "row_count": 830,
    "distinct_count": 90,
    "repeated_count": 88,
    "is_unique": False,
}
CUSTOMERS_SIDE = {
    **ID,
    **COUNTED,
    "ordinal": 0,
    "row_count": 91,
    "distinct_count": 91,
    "repeated_count": 0,
    "is_unique": True,
}
MISSING = {
    "value": "ZZTOP",
    "value_key": "5f2a11c0-8d6e-4b0a-9c1e-3d2b6c7a9e10",
    "is_cut": False,
    "frequency": 1,
}
POSITION = {"topic": "demo.orders", "partition": 0, "offset": 1041}
CHANGED_ROW = {"table": "demo.orders", "key": {"id": "831"}, "cells": {}}
BROKE = {
    "version": 3,
    "committed_at": "2026-11-21T10:46:10.125000Z",
    "kind": "broke",
    "dependent": CUSTOMER_ID,
    "referenced": ID,
    "witness_value": "ZZTOP",
    "witness_key": MISSING["value_key"],
    "cause_count": 1,
    "position": POSITION,
    "row": CHANGED_ROW,
}

STATE = {
    "version": 3,
    "transaction_consistent": True,
    "generation": 1,
    "first_version": 1,
    "kind": "batch",
    "committed_at": "2026-11-21T10:46:10.125000Z",
    "newest_source_ms": 1795257970021,
    "counts": {
        "tables": 2,
        "attributes": 6,
        "clusters": 9,
        "values": 1204,
        "uinds": 0,
        "dead_letters": 1,
        "short_sketches": 0,
    },
    "sources": [
        {
            "name": "demo",
            "kind": "csv",
            "location": "data/demo",
            "insert_only": False,
            "bootstrapped_version": 1,
            "bootstrapped_at": "2026-11-21T10:40:00Z",
            "table_count": 2,
            "attribute_count": 6,
        }
    ],
    "positions": [
        {
            "feed": "kafka:ZDhiNTQ4ZjEtMDdkYi00MQ",
            "topic": "demo.orders",
            "partition": 0,
            "next_offset": 1042,
            "source_position": {},
            "version": 3,
            "paused_at": None,
        }
    ],
    "shards_away": [],
}
ATTRIBUTES = {"version": 3, "transaction_consistent": True, "next_cursor": None, "items": [ORDERS_SIDE]}
CLUSTERS = {
    "version": 3,
    "transaction_consistent": True,
    "next_cursor": None,
    "items": [{"cluster_id": 2, "attribute_ids": [0, 4], "value_count": 89}],
    "attributes": [ID, CUSTOMER_ID],
}
UINDS = {
    "version": 3,
    "transaction_consistent": True,
    "next_cursor": None,
    "as_of": 2,
    "items": [
        {
            "dependent": CUSTOMER_ID,
            "referenced": ID,
            "since_version": 1,
            "since_at": "2026-11-21T10:40:00Z",
            "until_version": 3,
        }
    ],
}
PAIR = {
    "version": 3,
    "transaction_consistent": True,
    "dependent": ORDERS_SIDE,
    "referenced": CUSTOMERS_SIDE,
    "holds": False,
    "coefficient": 0.9888888888888889,
    "reason": None,
    "overlap": 89,
    "missing_count": 1,
    "missing_values": [MISSING],
    "since_version": 3,
    "since_at": "2026-11-21T10:46:10.125000Z",
    "since_reason": "broke",
    "transitions": [BROKE],
}
MISSING_PAGE = {
    "version": 3,
    "transaction_consistent": True,
    "next_cursor": None,
    "missing_count": 1,
    "items": [MISSING],
}
ESTIMATED = {
    "dependent": CUSTOMER_ID,
    "referenced": {"attribute_id": None, "name": "sketch:customers-elsewhere", "parts": None},
    "coefficient": 0.9471208214621371,
    "low": 0.9333333333333333,
    "high": 0.9777777777777777,
    "method": "estimated",
    "exact": None,
    "reason": None,
    "overlap": None,
    "distinct_count": None,
}
COEFFICIENTS = {
    "version": 3,
    "transaction_consistent": True,
    "next_cursor": None,
    "level": 0.95,
    "left_out": 0,
    "items": [
        {
            "dependent": CUSTOMER_ID,
            "referenced": ID,
            "coefficient": 0.9888888888888889,
            "low": 0.9888888888888889,
            "high": 0.9888888888888889,
            "method": "exact",
            "exact": 0.9888888888888889,
            "reason": None,
            "overlap": 89,
            "distinct_count": 90,
        },
        ESTIMATED,
    ],
}
SKETCH = {
    "column": CUSTOMER_ID,
    "uploaded_at": None,
    "bucket_bits": 13,
    "k": 1536,
    "spares_left": 512,
    "needs_rescan": False,
    "prefix_bits": None,
    "most_bytes": None,
    "distinct_count": 90.0,
    "low": 90.0,
    "high": 90.0,
    "is_complete": True,
    "counts_values": True,
    "fault": None,
}
UPLOADED = {
    **SKETCH,
    "column": ESTIMATED["referenced"],
    "uploaded_at": "2026-11-21T10:44:00Z",
    "spares_left": 511,
    "distinct_count": 60412.1,
    "low": 59201.9,
    "high": 61623.3,
    "is_complete": False,
    "counts_values": False,
}
SKETCHES = {"version": 3, "transaction_consistent": True, "next_cursor": None, "items": [SKETCH, UPLOADED]}
PAIR_ESTIMATES = {
    "version": 3,
    "transaction_consistent": True,
    "level": 0.95,
    "dependent": SKETCH,
    "referenced": UPLOADED,
    "coefficients": [ESTIMATED],
}
MATRIX = {
    "text/csv": "dependent,demo.customers.id,demo.orders.customer_id\ndemo.orders.customer_id,0.9888888888888889,1.0\n",
    "application/vnd.apache.arrow.stream": "(an Arrow IPC stream)",
}
CHANGES = {"version": 3, "transaction_consistent": True, "next_cursor": None, "since": 2, "items": [BROKE]}
STREAM = f"retry: 2000\n\nevent: transitions\nid: 3\ndata: {json.dumps({'version': 3, 'items': [BROKE]})}\n\n"
DEAD_LETTERS = {
    "version": 3,
    "transaction_consistent": True,
    "next_cursor": None,
    "items": [
        {
            "dead_letter_id": 1,
            "feed": "kafka:ZDhiNTQ4ZjEtMDdkYi00MQ",
            "topic": "demo.orders",
            "partition": 0,
            "record_offset": 1017,
            "error_class": "RecordError",
            "message": "demo.orders partition 0 offset 1017: the record has no `op`.",
            "record": '{"after": {"id": 7}}',
            "is_cut": False,
            "version": 2,
            "created_at": "2026-11-21T10:45:00Z",
        }
    ],
}

AUDITS = {
    "version": 3,
    "next_cursor": None,
    "items": [
        {
            "audit_id": 12,
            "version": 3,
            "started_at": "2026-11-21T02:30:06Z",
            "ended_at": "2026-11-21T02:30:31Z",
            "attributes": 6,
            "value_count": 1204,
            "inds": 2,
            "not_served": 0,
            "not_holding": 0,
            "differences": 0,
            "examples": {"not_served": [], "not_holding": []},
            "filters": {
                "integer_column": {"dependent_columns": 3, "referenced_columns": 3, "inds": 1, "inds_alone": 1}
            },
            "inds_left": 1,
            "sketch_only": 0,
            "algorithm": "rarest-first",
            "seconds": {"start Spark": 3.4, "find": 21.2},
        }
    ],
}
READINESS = {
    "ready": True,
    "checks": [
        {"name": "database", "ok": True, "detail": "answers"},
        {"name": "bootstrapped", "ok": True, "detail": "state version 3"},
        {
            "name": "consumer",
            "ok": True,
            "detail": "0 records behind the feed's end; current 0.0 s ago (bound 60 s).",
        },
    ],
}

OVERVIEW = {
    "version": 3,
    "transaction_consistent": True,
    "generation": 1,
    "committed_at": "2026-11-21T10:46:10.125000Z",
    "freshness_seconds": 0.104,
    "lag_records": 0.0,
    "lag_unit": "records",
    "lag_seconds": 0.0,
    "changes_per_second": 0.1,
    "minutes": [{"begin": "2026-11-21T10:46:00Z", "changes": 1, "appeared": 0, "broke": 1}],
    "counts": STATE["counts"],
    "contracts": {"held": 0, "violated": 1, "unknown": 0},
    "checks": READINESS["checks"],
    "feeds": [
        {
            "feed": "kafka:ZDhiNTQ4ZjEtMDdkYi00MQ",
            "partitions": 1,
            "version": 3,
            "paused_at": None,
            "is_followed": True,
            "fault": None,
            "fault_at": None,
        }
    ],
    "audit": {"audit_id": 12, "version": 3, "ended_at": "2026-11-21T02:30:31Z", "differences": 0},
    "corpora": [
        {"corpus": "lake", "generation": 2, "state": "landed", "ended_at": "2026-11-21T02:31:20Z", "fault": None}
    ],
    "corpora_beyond": 0,
    "corpora_at_fault": 0,
    "broken": [BROKE],
}

KEYS = {
    "version": 3,
    "transaction_consistent": True,
    "items": [
        {
            "columns": ["id"],
            "kind": "declared",
            "is_primary": True,
            "is_unique": True,
            "is_key": True,
            "attribute": CUSTOMERS_SIDE,
            "repeated_values": [],
        }
    ],
    "next_cursor": None,
}

BOOTSTRAPS = {
    "items": [
        {
            "source_name": "sales",
            "state": "running",
            "stage": "counting values",
            "done": 12,
            "total": 40,
            "started_at": "2026-11-21T10:50:00Z",
            "progressed_at": "2026-11-21T10:50:42Z",
            "expected_end": "2026-11-21T10:52:05Z",
            "ended_at": None,
            "fault": None,
        }
    ]
}

HISTORY = {
    "version": 3,
    "transaction_consistent": True,
    "next_cursor": None,
    "look_seconds": 60.0,
    "lost_seconds": 180.0,
    "items": [
        {
            "since_version": 3,
            "since_at": "2026-11-21T10:46:10.125000Z",
            "until_version": 3,
            "until_at": None,
            "holds": False,
            "coefficient": 0.9888888888888889,
            "overlap": 89,
            "distinct_count": 90,
        },
        {
            "since_version": 1,
            "since_at": "2026-11-21T10:40:00Z",
            "until_version": 2,
            "until_at": "2026-11-21T10:46:10.125000Z",
            "holds": True,
            "coefficient": 1.0,
            "overlap": None,
            "distinct_count": None,
        },
    ],
}

BY_PATH: dict[str, object] = {
    "/healthz": {"status": "ok"},
    "/readyz": READINESS,
    "/metrics": "subsetd_state_version 3.0\n",
    "/api/v1/state": STATE,
    "/api/v1/attributes": ATTRIBUTES,
    "/api/v1/clusters": CLUSTERS,
    "/api/v1/keys": KEYS,
    "/api/v1/dead_letters": DEAD_LETTERS,
    "/api/v1/uinds": UINDS,
    "/api/v1/uinds/{dependent}/{referenced}": PAIR,
    "/api/v1/uinds/{dependent}/{referenced}/missing": MISSING_PAGE,
    "/api/v1/uinds/{dependent}/{referenced}/history": HISTORY,
    "/api/v1/coefficients": COEFFICIENTS,
    "/api/v1/coefficients/{dependent}/{referenced}": PAIR_ESTIMATES,
    "/api/v1/sketches": SKETCHES,
    "/api/v1/sketches/bucket_bits": {"error": 0.02, "level": 0.95, "bucket_bits": 13},
    "/api/v1/sketches/{column}": "SDSK (and the rest of its bytes)",
    "/api/v1/changes": CHANGES,
    "/api/v1/stream": STREAM,
    "/api/v1/audits": AUDITS,
    "/api/v1/overview": OVERVIEW,
    "/api/v1/bootstraps": BOOTSTRAPS,
    **contract_examples.BY_PATH,
    **graph_examples.BY_PATH,
    **corpus_examples.BY_PATH,
    **joinable_examples.BY_PATH,
    **watch_examples.BY_PATH,
}
JSON = "application/json"
BY_MEDIA_TYPE: dict[str, dict[str, Any]] = {
    "/api/v1/coefficients/matrix": MATRIX,
    **contract_examples.BY_MEDIA_TYPE,
    **graph_examples.BY_MEDIA_TYPE,
    **corpus_examples.BY_MEDIA_TYPE,
}
BY_OPERATION: dict[tuple[str, str], dict[str, Any]] = {
    ("post", "/api/v1/dead_letters/{dead_letter_id}/retry"): {
        "dead_letter_id": 1,
        "outcome": "applied",
        "version": 4,
    },
    ("put", "/api/v1/sketches/{column}"): UPLOADED,
    **access_examples.BY_OPERATION,
    **contract_examples.BY_OPERATION,
    **corpus_examples.BY_OPERATION,
    **joinable_examples.BY_OPERATION,
    **watch_examples.BY_OPERATION,
}


def put_into(document: dict[str, Any]) -> None:
    """Give the answers of each route their example; FastAPI itself would drop the nulls out of it."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for status in ("200", "201", "202"):
                content = operation["responses"].get(status, {}).get("content", {})
                for media_type, shape in content.items():
                    of_type = BY_MEDIA_TYPE.get(path, {}).get(media_type)
                    shape["example"] = BY_OPERATION.get((method, path)) or of_type or BY_PATH[path]


def answered(
    description: str, *media_types: str, etag: tuple[str, str] = ("the state version, quoted", '"3"')
) -> dict[int | str, dict[str, Any]]:
    """Describe an answer that is polled with its version, for a route's `responses`; it is JSON if nothing is said.

    Among several media types JSON is a list of objects. `etag` says what its tag is, and gives an example.
    """
    headers = {
        "ETag": {"description": etag[0], "schema": {"type": "string"}, "example": etag[1]},
        "Cache-Control": {"schema": {"type": "string"}, "example": "no-cache"},
    }
    rows = {"type": "array", "items": {"type": "object"}}
    content = {one: {"schema": rows if one == JSON else {"type": "string", "format": "binary"}} for one in media_types}
    return {
        200: {"description": description, "headers": headers, **({"content": content} if media_types else {})},
        304: {"description": "The answer is still the one that If-None-Match names.", "headers": headers},
    }

"""Own the examples of answers about contracts and decisions."""

from __future__ import annotations

from typing import Any

from service.api.contract_schemas import EXAMPLE

CONTRACTS_PATH = "/api/v1/contracts"
DECISIONS_PATH = "/api/v1/foreign-keys/decisions"

VERSION = {"version": 3, "transaction_consistent": True}
CONTRACT = {
    **EXAMPLE,
    "contract_id": 1,
    "decision_id": 1,
    "least_coefficient": 1.0,
    "created_by": "Ada",
    "created_at": "2026-11-22T10:40:00Z",
    "state": "violated",
    "unknown": [],
    "violated_since": 3,
    "coefficient": 0.9888888888888889,
    "overlap": 89,
    "distinct_count": 90,
    "missing_count": 1,
}
VIOLATED = {
    **EXAMPLE,
    "version": 3,
    "committed_at": "2026-11-22T10:46:10.125000Z",
    "contract_id": 1,
    "kind": "violated",
    "witness_value": "ZZTOP",
    "witness_key": "5f2a11c0-8d6e-4b0a-9c1e-3d2b6c7a9e10",
    "cause_count": 1,
    "position": {"topic": "demo.orders", "partition": 0, "offset": 1041},
    "row": {"table": "demo.orders", "key": {}, "cells": {"customer_id": "ZZTOP", "amount": "12.50", "note": None}},
}
DECISION = {
    **EXAMPLE,
    "decision_id": 1,
    "verdict": "accept",
    "decided_by": "Ada",
    "decided_at": "2026-11-22T10:40:00Z",
    "note": None,
    "is_current": True,
    "is_stale": False,
}
CANDIDATE = {
    **EXAMPLE,
    "score": 0.97,
    "suggested": True,
    "implied": False,
    "coefficient": 0.9888888888888889,
    "missing_count": 1,
    "cardinality": "1:n",
    "against": ["1 of 90 values are missing"],
    "verdict": "accept",
}
EVIDENCE = {
    **CANDIDATE,
    "version": 3,
    "missing_values_version": None,
    "evidence": {
        "inclusion": {
            "coefficient": 0.9888888888888889,
            "low": 0.9888888888888889,
            "high": 0.9888888888888889,
            "method": "exact",
            "missing": 1,
            "missing_values": ["ZZTOP"],
        },
        "distribution": {"distance": 0.004, "error": 0.0, "dependent": [0.5, 0.5], "referenced": [0.5, 0.5]},
        "names": {"equal": False, "column": 0.5, "full": 1.0},
        "cardinality": "1:n",
        "coverage": 0.978,
        "intercept": -2.1,
        "terms": {"names_full": 2.4, "coverage": 1.1},
        "against": ["1 of 90 values are missing"],
    },
}
REFRESH = {
    "refresh_id": 7,
    "method": "names",
    "version": 3,
    "made_at": "2026-11-22T10:50:00Z",
    "seconds": 0.4,
    "left_out": [],
    "candidates": 12,
    "suggested": 1,
    "question": {"min_coefficient": 0.9, "keys": "known", "cells": 256, "tuple_cells": 16, "estimator": None},
}
AT_WORK = {
    "finding": {
        "method": "names",
        "stage": "randomness",
        "done": 12,
        "total": 40,
        "seconds": 3.5,
        "is_cancelled": False,
    }
}
FILES: dict[str, Any] = {
    "application/sql": 'ALTER TABLE "demo"."orders" ADD FOREIGN KEY ("customer_id") '
    'REFERENCES "demo"."customers" ("id") NOT VALID;\n',
    "text/plain": 'version: 2\nsources:\n  - name: "demo"\n',
    "text/vnd.mermaid": 'erDiagram\n  t0["demo.customers"]\n  t1["demo.orders"]\n  t0 ||--o{ t1 : "customer_id → id"\n',
    "application/graphml+xml": "(GraphML)",
    "text/csv": '"foreign_key","dependent_schema","dependent_table","dependent_column","referenced_schema",'
    '"referenced_table","referenced_column"\n1,"demo","orders","customer_id","demo","customers","id"\n',
    "application/json": [
        {**EXAMPLE, "score": None, "suggested": False, "implied": False, "verdict": "accept", "evidence": None}
    ],
}
TRACKING = {
    "tracking_id": 1,
    "schema": "demo",
    "table": "customers",
    "columns": ["region", "id"],
    "state": "queued",
    "asked_at": "2026-11-22T10:52:00Z",
    "ended_at": None,
    "message": None,
}
TRACKED = {
    **TRACKING,
    "state": "tracked",
    "ended_at": "2026-11-22T10:52:14Z",
    "message": "demo.customers(region, id) is tracked as a key since version 4: 91 rows have 91 tuples",
}
TRANSITIONS = {**VERSION, "next_cursor": None, "since": 2, "items": [VIOLATED]}

KEYS_PATH = "/api/v1/foreign-keys"
BY_MEDIA_TYPE = {f"{KEYS_PATH}/export": FILES, f"{KEYS_PATH}/evidence.svg": {"image/svg+xml": "(SVG)"}}
BY_PATH: dict[str, object] = {
    KEYS_PATH: {"version": 3, "refresh_id": 7, "next_cursor": None, "items": [CANDIDATE]},
    f"{KEYS_PATH}/evidence": EVIDENCE,
    f"{KEYS_PATH}/refreshes/at-work": AT_WORK,
    f"{KEYS_PATH}/refreshes/at-work/cancel": AT_WORK,
    f"{KEYS_PATH}/declared": {
        **VERSION,
        "next_cursor": None,
        "items": [{**EXAMPLE, "source": "demo", "holds": False}],
    },
    CONTRACTS_PATH: {**VERSION, "next_cursor": None, "items": [CONTRACT]},
    f"{CONTRACTS_PATH}/{{contract_id}}": CONTRACT,
    f"{CONTRACTS_PATH}/transitions": TRANSITIONS,
    f"{CONTRACTS_PATH}/{{contract_id}}/transitions": TRANSITIONS,
    "/api/v1/keys/trackings/{tracking_id}": TRACKED,
    DECISIONS_PATH: {**VERSION, "next_cursor": None, "items": [DECISION]},
}
BY_OPERATION: dict[tuple[str, str], dict[str, Any]] = {
    ("post", CONTRACTS_PATH): CONTRACT,
    ("post", DECISIONS_PATH): DECISION,
    ("post", "/api/v1/keys"): TRACKING,
    ("post", f"{KEYS_PATH}/refreshes"): REFRESH,
    ("get", f"{KEYS_PATH}/refreshes"): {"items": [REFRESH]},
}
"""Of answers to what changes something."""

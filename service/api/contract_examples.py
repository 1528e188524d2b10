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
TRANSITIONS = {**VERSION, "next_cursor": None, "since": 2, "items": [VIOLATED]}

BY_PATH: dict[str, object] = {
    CONTRACTS_PATH: {**VERSION, "next_cursor": None, "items": [CONTRACT]},
    f"{CONTRACTS_PATH}/{{contract_id}}": CONTRACT,
    f"{CONTRACTS_PATH}/transitions": TRANSITIONS,
    f"{CONTRACTS_PATH}/{{contract_id}}/transitions": TRANSITIONS,
    DECISIONS_PATH: {**VERSION, "next_cursor": None, "items": [DECISION]},
}
BY_OPERATION: dict[tuple[str, str], dict[str, Any]] = {
    ("post", CONTRACTS_PATH): CONTRACT,
    ("post", DECISIONS_PATH): DECISION,
}
"""Of answers to what changes something."""

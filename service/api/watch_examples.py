"""Own the examples of answers about watches."""

from __future__ import annotations

from typing import Any

PATH = "/api/v1/watches"

WATCH = {
    "watch_id": 1,
    "name": "orders have customers",
    "rule": {
        "kind": "ind",
        "when": "broken",
        "dependent": "demo.orders.customer_id",
        "referenced": "demo.customers.id",
        "contract_id": None,
        "attribute": None,
        "corpus": None,
        "bound": None,
        "margin": None,
    },
    "says": "demo.orders.customer_id ⊆ demo.customers.id is broken",
    "channel": {"kind": "webhook", "url": "https://alerts.example/…", "to": [], "topic": None, "has_secret": True},
    "debounce_seconds": 30.0,
    "tell_resolved": True,
    "with_values": False,
    "created_by": "Ada",
    "created_at": "2026-11-22T10:40:00Z",
    "bad": 1,
}
ALERT = {
    "alert_id": 5,
    "delivery_id": "0f2a11c0-8d6e-4b0a-9c1e-3d2b6c7a9e10",
    "watch_id": 1,
    "watch": "orders have customers",
    "kind": "fired",
    "version": 3,
    "created_at": "2026-11-22T10:46:40.125000Z",
    "body": {
        "rule": {"kind": "ind", "when": "broken", "dependent": "demo.orders.customer_id"},
        "summary": "demo.orders.customer_id ⊆ demo.customers.id is broken",
        "fired": 1,
        "resolved": 0,
        "turns": 1,
        "bad": 1,
        "subjects": [
            {
                "name": "demo.orders.customer_id ⊆ demo.customers.id",
                "is_bad": True,
                "turns": 1,
                "since_version": 3,
                "cause_count": 1,
                "position": {"topic": "demo.orders", "partition": 0, "offset": 1041},
            }
        ],
        "more": 0,
    },
    "state": "delivered",
    "attempts": 1,
    "fault": None,
    "ended_at": "2026-11-22T10:46:40.310000Z",
}
TESTED = {**ALERT, "kind": "test", "state": "pending", "attempts": 0, "ended_at": None}
SILENCE = {
    "silence_id": 1,
    "watch_id": None,
    "pattern": "demo.orders.*",
    "until": "2026-11-22T18:00:00Z",
    "reason": "a known defect",
    "created_by": "Ada",
    "created_at": "2026-11-22T10:50:00Z",
    "is_active": True,
}
LOAD = {
    "load_id": 1,
    "schema": "demo",
    "table": "orders",
    "until": "2026-11-23T10:50:00Z",
    "until_loaded": True,
    "created_by": "Ada",
    "created_at": "2026-11-22T10:50:00Z",
    "is_active": True,
}

BY_PATH: dict[str, object] = {
    PATH: {"next_cursor": None, "items": [WATCH]},
    f"{PATH}/{{watch_id}}": WATCH,
    f"{PATH}/{{watch_id}}/test": TESTED,
    f"{PATH}/alerts": {"next_cursor": None, "items": [ALERT]},
    f"{PATH}/silences": {"items": [SILENCE]},
    f"{PATH}/loads": {"items": [LOAD]},
}
BY_OPERATION: dict[tuple[str, str], dict[str, Any]] = {
    ("post", PATH): WATCH,
    ("post", f"{PATH}/silences"): SILENCE,
    ("post", f"{PATH}/loads"): LOAD,
}

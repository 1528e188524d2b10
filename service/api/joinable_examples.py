"""Own the examples of answers about joinable tables."""

from __future__ import annotations

from typing import Any

ANSWER = {
    "generation": 2,
    "version": None,
    "built_at": "2026-11-22T02:31:44Z",
    "near": [],
    "rows": 2,
    "keys": 2,
    "empty": 0,
    "is_cut": False,
    "tables": [
        {
            "table": "2019/orders.csv",
            "columns": ["town"],
            "matched_keys": 1,
            "share": 0.5,
            "positions": [1],
            "matched_rows": 1,
            "row_share": 0.5,
            "new_columns": ["id", "customer"],
            "preview": [{"row": 7, "key": ["berlin"], "values": ["1041", "ada"]}],
            "preview_fault": None,
            "leads_to": [
                {
                    "table": "customers.csv",
                    "reason": "ind",
                    "through": ["customer"],
                    "through_positions": [2],
                    "columns": ["id"],
                    "positions": [0],
                    "coverage": 0.75,
                }
            ],
        }
    ],
    "unfinished": [],
    "not_indexed": [],
}
FOUND = {
    "search_id": 1,
    "state": "done",
    "asked_at": "2026-11-22T10:52:00Z",
    "began_at": "2026-11-22T10:52:00Z",
    "ended_at": "2026-11-22T10:52:14Z",
    "message": None,
    "done": None,
    "total": None,
    "answer": ANSWER,
}
CANCELLED = {**FOUND, "state": "cancelled", "message": "It was cancelled.", "answer": None}

BY_PATH: dict[str, object] = {
    "/api/v1/joinable/{search_id}": FOUND,
    "/api/v1/joinable/{search_id}/cancel": CANCELLED,
}
BY_OPERATION: dict[tuple[str, str], dict[str, Any]] = {
    ("post", "/api/v1/joinable"): {
        **FOUND,
        "search_id": None,
        "asked_at": None,
        "began_at": None,
        "ended_at": None,
    }
}

"""Own the examples of answers about keys, sessions and the log of writes."""

from __future__ import annotations

from typing import Any

from service.api.access_schemas import EXAMPLE_KEY
from service.api.access_scopes import KEYS, SESSION, WRITES

KEY = {
    "key_id": 1,
    "name": "grafana",
    "scope": "read",
    "prefix": "1f0c9a2b",
    "created_at": "2026-11-22T10:40:00Z",
    "expires_at": "2027-02-20T10:40:00Z",
    "last_used_at": "2026-11-22T10:46:00Z",
    "revoked_at": None,
}
MADE = {**KEY, "last_used_at": None, "key": EXAMPLE_KEY}
KEY_PAGE = {"next_cursor": None, "items": [KEY]}
LOGGED_IN = {
    "name": "grafana",
    "scope": "read",
    "expires_at": "2026-11-23T10:40:00Z",
    "csrf_token": "5f2a11c08d6e4b0a9c1e3d2b6c7a9e105f2a11c08d6e4b0a9c1e3d2b6c7a9e10",
}
WRITE_PAGE = {
    "next_cursor": None,
    "items": [
        {
            "write_id": 7,
            "written_at": "2026-11-22T10:46:10Z",
            "who": "ada",
            "session": "9c1e3d2b",
            "address": "127.0.0.1",
            "method": "POST",
            "route": "/api/v1/contracts",
            "target": "/api/v1/contracts/3",
            "status": 201,
        }
    ],
}
BY_OPERATION: dict[tuple[str, str], dict[str, Any]] = {
    ("get", KEYS): KEY_PAGE,
    ("post", KEYS): MADE,
    ("get", SESSION): LOGGED_IN,
    ("post", SESSION): LOGGED_IN,
    ("get", WRITES): WRITE_PAGE,
}

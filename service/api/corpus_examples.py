"""Own the examples of answers about corpora."""

from __future__ import annotations

from typing import Any

from service.core.corpus import CorpusSettings, parse_filters

CORPUS = {
    "corpus_id": 1,
    "name": "lake",
    "location": "/data/lake",
    "kind": "csv",
    "settings": CorpusSettings.from_json({"null_tokens": ["", "-", "n/a"], **parse_filters("paper")}).to_json(),
    "schedule": "30 2 * * *",
    "time_limit_seconds": 3600,
    "retries": 2,
    "generation": 2,
    "created_at": "2026-11-20T09:00:00Z",
}
RUNNING = {
    "refresh_id": 8,
    "corpus": "lake",
    "generation": None,
    "state": "running",
    "full": False,
    "requested_by": "schedule",
    "attempt": 1,
    "queued_at": "2026-11-22T02:30:00Z",
    "not_before": None,
    "started_at": "2026-11-22T02:30:01Z",
    "ended_at": None,
    "stage": "reading",
    "done": 12,
    "total": 40,
    "stage_started_at": "2026-11-22T02:30:07Z",
    "expected_end": "2026-11-22T02:31:27Z",
    "cancel_requested": False,
    "fault": None,
    "report": None,
}
LANDED = {
    **RUNNING,
    "refresh_id": 7,
    "generation": 2,
    "state": "landed",
    "queued_at": "2026-11-21T02:30:00Z",
    "started_at": "2026-11-21T02:30:01Z",
    "ended_at": "2026-11-21T02:31:20Z",
    "stage": "landing",
    "done": 1,
    "total": 1,
    "stage_started_at": "2026-11-21T02:31:19Z",
    "expected_end": None,
    "report": {
        "tables": 1999,
        "columns": 12598,
        "inds": 375520,
        "appeared": 310,
        "went": 12,
        "files": {"read": 20, "unchanged": 1979, "gone": 0, "faults": 1},
    },
}
QUEUED = {
    **RUNNING,
    "state": "queued",
    "requested_by": "api",
    "attempt": 0,
    **dict.fromkeys(("started_at", "stage", "done", "total", "stage_started_at", "expected_end")),
}
CANCELLED = {**RUNNING, "cancel_requested": True}
GENERATION = {"corpus": "lake", "generation": 2}
PAGE = {**GENERATION, "next_cursor": None}
CUSTOMER = {"column_id": 17, "table": "2019/orders.csv", "position": 1, "name": "customer"}
ID = {"column_id": 4, "table": "customers.csv", "position": 0, "name": "id"}
IND = {"dependent": CUSTOMER, "referenced": ID, "overlap": 89, "coefficient": 1.0, "coverage": 0.978021978021978}
COLUMN = {
    "column": CUSTOMER,
    "distinct_count": 89,
    "row_count": 830,
    "dependent_reasons": [],
    "referenced_reasons": ["not_unique"],
}
OTHER_COLUMN = {"column": ID, "distinct_count": 91, "row_count": 91, "dependent_reasons": [], "referenced_reasons": []}

CORPUS_PATH = "/api/v1/corpora/{corpus}"
BY_PATH: dict[str, object] = {
    "/api/v1/corpora": {
        "next_cursor": None,
        "items": [{**CORPUS, "state": "landed", "ended_at": "2026-07-01T02:31:25Z", "fault": None}],
    },
    CORPUS_PATH: {
        **CORPUS,
        "counts": {"tables": 1999, "columns": 12598, "inds": 375520},
        "generations": [1, 2],
        "last_refresh": RUNNING,
    },
    f"{CORPUS_PATH}/refreshes": {"next_cursor": None, "items": [RUNNING, LANDED]},
    f"{CORPUS_PATH}/refreshes/{{refresh_id}}": RUNNING,
    f"{CORPUS_PATH}/refreshes/{{refresh_id}}/faults": {
        "next_cursor": None,
        "items": [{"path": "2019/broken.csv", "message": "It is empty."}],
    },
    f"{CORPUS_PATH}/inds": {**PAGE, "items": [IND]},
    f"{CORPUS_PATH}/pair": {
        **GENERATION,
        "dependent": OTHER_COLUMN,
        "referenced": COLUMN,
        "holds": False,
        "examined": False,
        "reasons": ["not_unique"],
        "beyond_top": False,
        "fault": None,
        "overlap": None,
        "coverage": None,
    },
    f"{CORPUS_PATH}/changes": {
        **PAGE,
        "since": 1,
        "items": [{"kind": "appeared", "dependent": CUSTOMER, "referenced": ID, "overlap": 89}],
    },
    f"{CORPUS_PATH}/tables": {
        **PAGE,
        "items": [{"table_number": 3, "path": "2019/orders.csv", "row_count": 830, "column_count": 5, "since": 1}],
    },
    f"{CORPUS_PATH}/tables/{{table}}/columns": {**PAGE, "items": [COLUMN]},
}
BY_MEDIA_TYPE = {
    f"{CORPUS_PATH}/export": {
        "text/csv": "dependent_table,dependent_position,referenced_table,referenced_position\n"
        '"2019/orders.csv",1,"customers.csv",0\n',
        "application/vnd.apache.parquet": "(a Parquet file)",
    }
}
BY_OPERATION: dict[tuple[str, str], dict[str, Any]] = {
    ("post", "/api/v1/corpora"): CORPUS,
    ("post", f"{CORPUS_PATH}/refreshes"): QUEUED,
    ("post", f"{CORPUS_PATH}/refreshes/{{refresh_id}}/cancel"): CANCELLED,
}
"""Of answers to what changes something."""

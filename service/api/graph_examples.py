"""Own the examples of answers about graphs of INDs."""

from __future__ import annotations

HUB = {
    "name": "demo.customers",
    "component": 0,
    "neighbours": 2,
    "references": 0,
    "referenced_by": 2,
    "inds": 3,
}
JOIN = {
    "dependent_column": "customer_id",
    "dependent_position": 1,
    "referenced_column": "id",
    "referenced_position": 0,
}
STEP = {"dependent": "demo.orders", "referenced": "demo.customers", "inds": 1, "joins": [JOIN]}
BACK = {
    "dependent": "demo.invoices",
    "referenced": "demo.customers",
    "inds": 2,
    "joins": [JOIN, {**JOIN, "dependent_column": "payer_id", "dependent_position": 4}],
}
BY_END: dict[str, object] = {
    "": {
        "version": 3,
        "tables": 3,
        "tables_outside": 2,
        "edges": 2,
        "inds": 3,
        "components": 1,
        "sizes": [{"tables": 3, "components": 1}],
    },
    "/components": {
        "version": 3,
        "next_cursor": None,
        "items": [{"component": 0, "tables": 3, "edges": 2, "inds": 3, "hub": HUB}],
    },
    "/tables": {"version": 3, "next_cursor": None, "items": [HUB]},
    "/excerpt": {
        "version": 3,
        "tables": [
            HUB,
            {**HUB, "name": "demo.orders", "neighbours": 1, "references": 1, "referenced_by": 0, "inds": 1},
        ],
        "edges": [{"dependent": 1, "referenced": 0, "inds": 1}],
        "tables_beyond": 1,
    },
    "/paths": {
        "version": 3,
        "length": 2,
        "has_more": False,
        "paths": [{"tables": ["demo.orders", "demo.customers", "demo.invoices"], "steps": [[STEP], [BACK]]}],
    },
}
EXPORTS = {
    "application/graphml+xml": '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">...</graphml>\n',
    "text/csv": '"dependent_table","referenced_table","inds","component"\n"demo.orders","demo.customers",1,0\n',
}
PREFIXES = ("/api/v1/graph", "/api/v1/corpora/{corpus}/graph")
BY_PATH = {f"{prefix}{end}": example for prefix in PREFIXES for end, example in BY_END.items()}
BY_MEDIA_TYPE = {f"{prefix}/export": EXPORTS for prefix in PREFIXES}

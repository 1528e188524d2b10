"""Own the list of rows: a name as in README and `latest.json`, and the module that measures it.

A row is a module with SEED and `run(context) -> list[Result]`.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

ROWS = {
    "bootstrap-tpch": "bootstrap_tpch",
    "live-lineitem": "live_lineitem",
    "freshness": "freshness",
    "api-load": "api_load",
    "dashboard-weight": "dashboard_weight",
    "sse": "sse",
    "consumer-memory": "consumer_memory",
    "wide-schema": "wide_schema",
    "million-clusters": "million_clusters",
    "growth": "growth",
    "many-records": "many_records",
    "decode": "decode",
    "feed-debezium": "feed_debezium",
    "feed-postgres": "feed_postgres",
    "recovery": "recovery",
    "break-even": "break_even",
    "follow-spark": "follow_spark",
    "shard-moves": "shard_moves",
    "many-webtables": "many_webtables",
    "many-growth": "many_growth",
    "many-growth-whole": "many_growth_whole",
    "many-refresh": "many_refresh",
    "estimator-error": "estimator_error",
    "estimator-coverage": "estimator_coverage",
    "estimator-speed": "estimator_speed",
    "sketch-upkeep": "sketch_upkeep",
    "sketch-build": "sketch_build",
    "key-cost": "key_cost",
    "fk-tpc": "fk_tpc",
    "fk-cost": "fk_cost",
    "mate-exact": "mate_exact",
    "mate-filter": "mate_filter",
    "mate-hash": "mate_hash",
    "mate-size": "mate_size",
    "mate-build": "mate_build",
    "mate-latency": "mate_latency",
    "mate-speed": "mate_speed",
    "mate-update": "mate_update",
}

SHORT = (
    "bootstrap-tpch",
    "live-lineitem",
    "freshness",
    "decode",
    "recovery",
    "many-webtables",
    "estimator-speed",
    "mate-hash",
    "mate-exact",
)
"""Rows of `make bench`: one or two of each thing that subsetd does, in at most a quarter of an hour together."""


def module_of(row: str) -> ModuleType:
    """Import the module that measures a row."""
    return import_module(f"benchmarks.rows.{ROWS[row]}")

"""Own the row `mate-latency`: how long a search for joinable tables takes among 16,000 web tables in Postgres, warm."""

from __future__ import annotations

from time import perf_counter, process_time

import numpy as np

from benchmarks.context import Context
from benchmarks.joinable_web_tables import LONG, MIXED, draw_queries, read_tables, web_tables
from benchmarks.results_file import Result
from benchmarks.state import server

SEED = 37
QUERIES = 400
WARM_UP = 40
"""Queries that are asked before: they compile the search, and bring the index into memory."""


def run(context: Context) -> list[Result]:
    """Ask each query once."""
    with server(context) as postgres:
        corpus = web_tables(context, postgres)
        corpus.indexed()
        tables = read_tables(corpus.folder)
        queries = draw_queries(tables, context.scaled(QUERIES), context.random("queries"))
        warm_up = draw_queries(tables, WARM_UP, context.random("warm-up"))
        with corpus.searching() as search:
            for query in warm_up:
                search(query)
            took = []
            for query in queries:
                started, cpu = perf_counter(), process_time()
                search(query)
                took.append((perf_counter() - started, process_time() - cpu))
    seconds, cpu_seconds = np.array(took).T
    results = [
        Result("a search, median", 1000 * float(np.median(seconds)), "ms", goal="value <= 50"),
        Result("99 % of searches take at most", 1000 * float(np.quantile(seconds, 0.99)), "ms", goal="value <= 500"),
        Result("CPU of a search but for Postgres, mean", 1000 * float(cpu_seconds.mean()), "ms"),
    ]
    for kind in (LONG, MIXED):
        of_kind = seconds[[query.kind == kind for query in queries]]
        results.append(Result(f"rows {kind}: median", 1000 * float(np.median(of_kind)), "ms"))
        results.append(Result(f"rows {kind}: 99 %", 1000 * float(np.quantile(of_kind, 0.99)), "ms"))
    return results

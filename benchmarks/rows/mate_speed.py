"""Own the row `mate-speed`: a search for joinable tables beside SCR and beside joins in SQL, on the same Postgres."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter

from benchmarks.context import Context
from benchmarks.joinable_sql import cell_lines, copy_cells, ready_for_joins, top_by_joins, top_by_scr
from benchmarks.joinable_web_tables import LONG, MIXED, K, Query, draw_queries, read_tables, web_tables
from benchmarks.results_file import Result
from benchmarks.state import server
from service.core.joinability import Joinable

SEED = 31
QUERIES = 100

Search = Callable[[Query], list[Joinable]]


def run(context: Context) -> list[Result]:
    """Ask the same queries in three ways, each once before it is timed, and compare the answers."""
    with server(context) as postgres:
        corpus = web_tables(context, postgres)
        corpus.indexed()
        tables = read_tables(corpus.folder)
        numbers = {table.path: number for number, table in enumerate(tables)}
        queries = draw_queries(tables, context.scaled(QUERIES), context.random("queries"))
        with (
            corpus.searching() as search,
            postgres.connection(corpus.corpus.name) as connection,
            connection.cursor() as cursor,
        ):
            copy_cells(connection, cell_lines(tables))
            ready_for_joins(connection)
            cursor.execute("SET jit = off")
            searches: dict[str, Search] = {
                "": lambda query: [
                    Joinable(numbers[one.table], one.positions, one.matched_keys) for one in search(query)
                ],
                "SCR": lambda query: top_by_scr(cursor, query.rows, K),
                "joins in SQL": lambda query: top_by_joins(cursor, query.rows, K),
            }
            answers, seconds = {}, {}
            for name, method in searches.items():
                answers[name], seconds[name] = timed(method, queries)
                context.say(f"{name or 'ours'}: {1000 * sum(seconds[name]) / len(queries):.1f} ms a query")
    results = []
    for name, goal in (("SCR", "ratio <= 0.1"), ("joins in SQL", "ratio <= 0.333")):
        equal = sum(one == other for one, other in zip(answers[""], answers[name], strict=True))
        results.append(Result(f"answers as by {name}", equal, f"of {len(queries)}", goal=f"value = {len(queries)}"))
        for kind in (None, LONG, MIXED):
            chosen = [i for i, query in enumerate(queries) if kind in (None, query.kind)]
            mean, other = (1000 * sum(seconds[which][i] for i in chosen) / len(chosen) for which in ("", name))
            metric = f"a search, beside {name}" if kind is None else f"the same, rows {kind}"
            results.append(Result(metric, mean, "ms", name, other, goal if kind is None else None))
    return results


def timed(search: Search, queries: Iterable[Query]) -> tuple[list[list[Joinable]], list[float]]:
    """Give the answers, and the seconds of each query when it is asked again at once."""
    answers, seconds = [], []
    for query in queries:
        search(query)
        started = perf_counter()
        answers.append(search(query))
        seconds.append(perf_counter() - started)
    return answers, seconds

"""Own the row `mate-exact`: are the joinable tables those of brute force, with their order and columns?"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import permutations
from time import process_time

import numpy as np

from benchmarks import data_sets
from benchmarks.context import Context
from benchmarks.joinable_filters import COUNTED, XASH, filters
from benchmarks.joinable_lakes import ARCHIVES, Lake, draw_queries, lakes, read_lake
from benchmarks.results_file import Result
from service.core.joinability import Joinable, top_joinable
from service.core.records import Int64s
from service.core.row_filters import RowFilter

SEED = 29
QUERIES = 500
"""Made ones: two columns of a web table, whose tables are asked for."""
K = 10


def run(context: Context) -> list[Result]:
    """Hold the published answers of one lake, and of made queries the brute force, to both row filters."""
    owid = read_lake(data_sets.unpack(ARCHIVES / "lakes" / "lake_owid_numbered.tar.zst", context.work) / "lake_owid")
    web_tables = lakes(context.work)[0]
    drawn = draw_queries(web_tables, context.scaled(QUERIES), context.random("queries"))
    every = pairs_of_columns(web_tables)
    expected = [by_brute_force(every, web_tables.key_values(query))[:K] for query in drawn]
    published = (ARCHIVES / "lakes" / "lake_owid_joins.jsonl").read_text("utf-8").splitlines()
    results = []
    for name in (XASH, COUNTED):
        rows = dict(filters(owid))[name]
        right = sum(answers_as_published(owid, rows, json.loads(line)) for line in published)
        results.append(Result(f"lake_owid: published answers, {name}", right, f"of {len(published)}",
                              goal=f"value = {len(published)}"))  # fmt: skip
        rows = dict(filters(web_tables))[name]
        started = process_time()
        found = [top_joinable(web_tables.index, rows, web_tables.key_values(query), K) for query in drawn]
        took = process_time() - started
        right = sum(one == other for one, other in zip(found, expected, strict=True))
        results.append(Result(f"{web_tables.name}: answers as by brute force, {name}", right, f"of {len(drawn)}",
                              goal=f"value = {len(drawn)}"))  # fmt: skip
        results.append(Result(f"{web_tables.name}: CPU of a query in memory, {name}", 1000 * took / len(drawn), "ms"))
    ties = sum(len({one.joinability for one in answer}) < len(answer) for answer in expected)
    results.append(Result(f"{web_tables.name}: answers with ties", ties, f"of {len(drawn)}"))
    return results


def answers_as_published(lake: Lake, rows: RowFilter, published: dict[str, object]) -> bool:
    """Say whether the tables that join with one of the lake, best first, are those published, and as many."""
    table = lake.tables.index(str(published["table"]))
    keys = lake.rows(table)[:, published["columns"]]
    found = top_joinable(lake.index, rows, keys, len(lake.tables))
    others = [[lake.tables[one.table], list(one.columns), one.joinability] for one in found if one.table != table]
    top = list(published["top"])  # type: ignore[call-overload]
    return others[: len(top)] == top and len(others) == published["joinable_tables"]


Columns = tuple[int, int, int]
"""A table, and two of its columns in order."""


def pairs_of_columns(lake: Lake) -> dict[tuple[int, int], set[Columns]]:
    """Give the columns that have each pair of values side by side: the index that no large corpus can have."""
    every: dict[tuple[int, int], set[Columns]] = defaultdict(set)
    for table, width in enumerate(lake.widths().tolist()):
        rows = lake.rows(table).tolist() if width else []
        for a, b in permutations(range(width), 2):
            for row in rows:
                every[row[a], row[b]].add((table, a, b))
    return every


def by_brute_force(every: dict[tuple[int, int], set[Columns]], keys: Int64s) -> list[Joinable]:
    """Count each pair of columns of each table; the first of the best of each table, the best table first."""
    counts = Counter(
        columns for a, b in np.unique(keys, axis=0).tolist() if min(a, b) >= 0 for columns in every.get((a, b), ())
    )
    best: dict[int, Joinable] = {}
    for (table, a, b), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        best.setdefault(table, Joinable(table, (a, b), count))
    return list(best.values())

"""Own the row `mate-size`: bytes of an index of joinable tables, as it is coded and in Postgres, beside its CSV."""

from __future__ import annotations

from time import process_time

import numpy as np

from benchmarks.context import Context
from benchmarks.joinable_lakes import Lake, lakes
from benchmarks.joinable_web_tables import web_tables
from benchmarks.results_file import Result
from benchmarks.state import server
from service.core.posting_buckets import Buckets, bits_for, encode_buckets, find_in_buckets
from service.core.record_kernels import take_lists
from service.core.records import Int64s, Keys, starts_of

SEED = 0
"""Nothing is drawn."""

CELL_BYTES, SUPER_KEY_BYTES = 4, 16
HEADER_BYTES = 40
"""Of a row in Postgres with its index entry, about."""

STORED = """
SELECT relname, pg_total_relation_size(oid) / 1e6 FROM pg_class
WHERE relkind = 'r' AND relname IN ('join_segment', 'join_index', 'join_table', 'join_bucket', 'join_rows') ORDER BY 1
"""
"""MB on disk, with indexes and TOAST."""


def run(context: Context) -> list[Result]:
    """Code the postings of each lake, and look every value up again; then measure a built index."""
    results = []
    for lake in lakes(context.work):
        keys = lake.keys()
        bits = bits_for(len(lake.values))
        code(lake, keys, bits)
        started = process_time()
        coded, order = code(lake, keys, bits)
        took = process_time() - started
        _require_all(lake, keys.take(order), order, coded, bits)
        index, rows = lake.index, len(lake.index.row_starts) - 1
        cells = int((index.cells >= 0).sum())
        bytes_ = (
            len(coded.data) + HEADER_BYTES * len(coded.numbers) + SUPER_KEY_BYTES * rows
            + CELL_BYTES * len(index.cells) + HEADER_BYTES * len(lake.tables)
        )  # fmt: skip
        results += [
            Result(f"{lake.name}: postings", len(coded.data) / cells, "bytes a cell"),
            Result(f"{lake.name}: index", bytes_ / 1e6, "MB", "CSV", lake.size / 1e6, "ratio <= 3"),
            Result(f"{lake.name}: coding", cells / 1e6 / took, "million cells/s"),
        ]
    return [*results, *stored(context)]


def stored(context: Context) -> list[Result]:
    """Measure the tables of the index of web tables in Postgres."""
    with server(context) as postgres:
        corpus = web_tables(context, postgres)
        corpus.indexed()
        with postgres.connection(corpus.corpus.name) as connection, connection.cursor() as cursor:
            cursor.execute(STORED)
            sizes = [(name, float(size)) for name, size in cursor]
    total, csv = sum(size for _, size in sizes), corpus.csv_bytes() / 1e6
    parts = [Result(f"16,000 web tables: {name}", size, "MB") for name, size in sizes]
    return [Result("16,000 web tables: in Postgres", total, "MB", "CSV", csv, "ratio <= 3"), *parts]


def code(lake: Lake, keys: Keys, bits: int) -> tuple[Buckets, Int64s]:
    """Code the postings of a lake by ascending key; give the order of the keys with them."""
    order, starts = keys.order(), lake.index.value_starts
    of_keys = starts_of(np.diff(starts)[order])
    places = take_lists(order, starts, lake.index.places, of_keys)
    return encode_buckets(keys.take(order), of_keys, places, bits), order


def _require_all(lake: Lake, keys: Keys, order: Int64s, coded: Buckets, bits: int) -> None:
    """Raise ValueError unless each value has its places: what cannot be read back is not small."""
    found = find_in_buckets(coded, keys, bits)
    starts = lake.index.value_starts
    expected = take_lists(order, starts, lake.index.places, starts_of(np.diff(starts)[order]))
    places = found.places(np.arange(len(order)))
    if not (np.array_equal(places, expected) and np.array_equal(found.counts, np.diff(starts)[order])):
        raise ValueError(f"{lake.name}: the buckets do not give back what was put in")

"""Own the reading of whole states by SQL, to compare them with each other and with published answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg2
import psycopg2.extensions

from benchmarks.reference import Column

ATTRIBUTES = """
SELECT attribute_id, schema_name, table_name, column_name,
    ordinal, row_count, null_count, distinct_count, repeated_count
FROM attribute
"""
CLUSTERS = "SELECT attribute_ids, value_count FROM cluster"
GEN_RECS = """
SELECT value_key::text, value, gen_rec.attribute_ids, frequencies, cluster.attribute_ids
FROM gen_rec LEFT JOIN cluster USING (cluster_id)
"""
INDS = "SELECT dependent_id, referenced_id FROM uind WHERE until_version IS NULL"
INDS_BY_PLACE = """
SELECT d.table_name, d.ordinal, r.table_name, r.ordinal
FROM uind JOIN attribute d ON d.attribute_id = dependent_id JOIN attribute r ON r.attribute_id = referenced_id
WHERE until_version IS NULL
"""

State = dict[str, Counter[Any]]
"""The rows of each part of a state, by the attributes' names: ids may differ between equal states."""


def inds(url: str, prefix: str = "") -> Iterator[tuple[Column, Column]]:
    """Yield the current INDs of a state of CSV tables, each column by its file and place."""
    for dependent, dependent_place, referenced, referenced_place in _rows(url, INDS_BY_PLACE):
        yield (f"{prefix}{dependent}.csv", dependent_place), (f"{prefix}{referenced}.csv", referenced_place)


def read_state(url: str) -> State:
    """Read attributes with their counters, clusters, gen_recs with their clusters, and the current INDs."""
    attributes = {row[0]: row[1:] for row in _rows(url, ATTRIBUTES)}
    names = {attribute_id: row[:3] for attribute_id, row in attributes.items()}

    def named(ids: Sequence[int] | None, counts: Sequence[int] | None = None) -> frozenset[Any] | None:
        if ids is None:
            return None
        return frozenset(zip((names[a] for a in ids), counts or (None,) * len(ids), strict=True))

    return {
        "attributes": Counter(attributes.values()),
        "clusters": Counter((named(ids), count) for ids, count in _rows(url, CLUSTERS)),
        "gen_recs": Counter(
            (key, value, named(ids, counts), named(cluster))
            for key, value, ids, counts, cluster in _rows(url, GEN_RECS)
        ),
        "INDs": Counter((names[dependent], names[referenced]) for dependent, referenced in _rows(url, INDS)),
    }


def differences(one: State, other: State) -> list[str]:
    """Return a line for each part in which two states differ, with an example from each."""
    lines = []
    for part, rows in one.items():
        only_here, only_there = rows - other[part], other[part] - rows
        if only_here or only_there:
            examples = " but ".join(str(next(iter(only), "nothing")) for only in (only_here, only_there))
            lines.append(f"{part}: {only_here.total()} and {only_there.total()} rows differ, such as {examples}")
    return lines


def _rows(url: str, query: str) -> list[tuple[Any, ...]]:
    connection = psycopg2.connect(url)
    try:
        with connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor)
    finally:
        connection.close()

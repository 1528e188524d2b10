"""Make small states in a database by brute force, read states back, and recompute what they must be.

Nothing of the core's clustering is used here: sets and counters of plain Python are the judge.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sqlalchemy import Connection

from service.core.sketches.column import ColumnSketch
from service.store.shard_dealing import deal as deal_out
from service.store.sketch_reading import read_sketches
from tests.postgres import kept_connection

SKETCH_FORM = (3, 4, 2)
"""Buckets (2^3), smallest hashes and spares: so few that small tables have sketches that overflow and run short."""

GEN_RECS = "select value_key::text, value, cluster_id, attribute_ids, frequencies from gen_rec"
LIVE = "select attribute_id from attribute natural join source where dropped_version is null and not sketch_only"

Row = Sequence[str | None]


@dataclass
class Tables:
    """Hold tables of one source named `s`: column names and the bag of their rows."""

    columns: dict[str, Sequence[str]]
    rows: dict[str, Counter[tuple[str | None, ...]]] = field(default_factory=dict)
    insert_only: bool = False
    tuples: dict[str, Sequence[tuple[str, ...]]] = field(default_factory=dict)
    """Columns of derived attributes, by table."""

    def add(self, table: str, *rows: Row) -> Tables:
        self.rows.setdefault(table, Counter()).update(tuple(row) for row in rows)
        return self

    def remove(self, table: str, row: Row) -> None:
        of_table = self.rows[table]
        assert of_table[tuple(row)] > 0, f"{row} is not in {table}"
        of_table[tuple(row)] -= 1

    def names(self) -> list[tuple[str, str]]:
        """Give (table, column) of each attribute, tuples last; attribute ids count from 1 in this order."""
        columns = [(table, column) for table, columns in self.columns.items() for column in columns]
        return columns + [(table, f"({', '.join(parts)})") for table, parts in self.all_tuples()]

    def all_tuples(self) -> list[tuple[str, tuple[str, ...]]]:
        return [(table, tuple(parts)) for table, tuples in self.tuples.items() for parts in tuples]

    def parts(self) -> list[list[int] | None]:
        """Give the ordinals of each attribute's parts, None of a column, in the order of names()."""
        of_tuples = [[self.columns[table].index(part) for part in parts] for table, parts in self.all_tuples()]
        return [None] * (len(self.names()) - len(of_tuples)) + of_tuples

    def cells(self) -> list[Counter[str | None]]:
        """Count the cells of each attribute, in the order of names()."""
        cells = []
        for table, columns in self.columns.items():
            for i in range(len(columns)):
                counted: Counter[str | None] = Counter()
                for row, n in self.rows.get(table, Counter()).items():
                    counted[row[i]] += n
                cells.append(+counted)
        for table, parts in self.all_tuples():
            places = [self.columns[table].index(part) for part in parts]
            counted = Counter()
            for row, n in self.rows.get(table, Counter()).items():
                found = [row[place] for place in places]
                counted[
                    None if None in found else "\0" + json.dumps(found, ensure_ascii=False, separators=(",", ":"))
                ] += n
            cells.append(+counted)
        return cells


@dataclass(frozen=True)
class State:
    """Hold a state in comparable form: no cluster ids, names instead of attribute ids."""

    records: Mapping[str, tuple[str, Mapping[str, int]]]
    clusters: Mapping[frozenset[str], int]
    counters: Mapping[str, tuple[int, int, int, int | None]]
    inds: frozenset[tuple[str, str]]


def expected(tables: Tables) -> State:
    """Recompute the state of tables from nothing."""
    names = [f"s.{table}.{column}" for table, column in tables.names()]
    cells = dict(zip(names, tables.cells(), strict=True))
    values = {name: {value for value in counted if value is not None} for name, counted in cells.items()}
    records, clusters = {}, Counter()
    for value in set().union(*values.values()):
        members = {n: 0 if tables.insert_only else cells[n][value] for n in names if value in values[n]}
        text = value.removeprefix("\0")  # what tells tuples from cells is in the key alone
        records[key_of(value).hex()] = (text.encode()[:256].decode(errors="ignore"), members)
        clusters[frozenset(members)] += 1
    counters = {
        name: (
            counted.total(),
            counted[None],
            len(values[name]),
            None if tables.insert_only else sum(1 for value in values[name] if counted[value] > 1),
        )
        for name, counted in cells.items()
    }
    inds = frozenset((a, b) for a in names for b in names if a != b and values[a] and values[a] <= values[b])
    return State(records, dict(clusters), counters, inds)


def key_of(value: str) -> bytes:
    return hashlib.sha256(value.encode()).digest()[:16]


def store(url: str, tables: Tables) -> None:
    """Write the state of tables as a bootstrap would have, as version 1, into an empty migrated database."""
    state = expected(tables)
    names = {f"s.{table}.{column}": i for i, (table, column) in enumerate(tables.names(), 1)}
    with transaction(url) as cursor:
        cursor.execute("create table gen_rec_g1_p000 partition of gen_rec for values from (minvalue) to (maxvalue)")
        cursor.execute(
            "insert into state_version (version, generation, kind, source_name) values (1, 1, 'bootstrap', 's')"
        )
        cursor.execute(
            "insert into source (name, kind, location, insert_only, bootstrapped_version) "
            "values ('s', 'csv', '-', %s, 1) returning source_id",
            (tables.insert_only,),
        )
        (source_id,) = cursor.fetchone() or (0,)
        for i, ((table, column), parts) in enumerate(zip(tables.names(), tables.parts(), strict=True), 1):
            ordinal = parts[0] if parts else tables.columns[table].index(column)
            counters = state.counters[f"s.{table}.{column}"]
            cursor.execute(
                "insert into attribute (attribute_id, source_id, schema_name, table_name, column_name, ordinal, "
                "row_count, null_count, distinct_count, repeated_count, parts) "
                "values (%s, %s, 's', %s, %s, %s, %s, %s, %s, %s, %s)",
                (i, source_id, table, column, ordinal, *counters, parts),
            )
        cluster_ids = {}
        for cluster_id, (members, count) in enumerate(state.clusters.items(), 1):
            cluster_ids[members] = cluster_id
            cursor.execute(
                "insert into cluster values (%s, %s, %s)", (cluster_id, sorted(names[m] for m in members), count)
            )
        for key, (value, frequencies) in state.records.items():
            members = sorted(frequencies, key=names.__getitem__)
            cursor.execute(
                "insert into gen_rec values (%s, %s, %s, %s, %s)",
                (
                    key,
                    value,
                    cluster_ids[frozenset(members)],
                    [names[m] for m in members],
                    None if tables.insert_only else [frequencies[m] for m in members],
                ),
            )
        for dependent, referenced in state.inds:
            cursor.execute("insert into uind values (%s, %s, 1)", (names[dependent], names[referenced]))
        cursor.execute("insert into sketch_form values (%s, %s, %s)", SKETCH_FORM)
        for name, attribute_id in names.items():
            sketch = ColumnSketch(*SKETCH_FORM)
            hashes = [int(key[:16], 16) for key, (_, frequencies) in state.records.items() if name in frequencies]
            sketch.update(np.array(hashes, np.uint64))
            cursor.execute("insert into sketch values (%s, 1, %s)", (attribute_id, sketch.to_bytes()))


def deal(url: str, shards: int) -> None:
    """Deal a state out to so many shards."""
    with transaction(url) as cursor:
        deal_out(cursor, shards, lambda _: None)


def read(url: str) -> State:
    """Read one version of the state; on the way records must agree with clusters, and sketches with records."""
    with one_version(url) as connection, connection.connection.cursor() as cursor:
        names = dict(
            rows(cursor, "select attribute_id, schema_name || '.' || table_name || '.' || column_name from attribute")
        )
        whole = {tuple(members): n for _, members, n in rows(cursor, "select * from cluster")}
        of_shards = rows(cursor, "select * from shard_cluster")
        clusters = {i: (members, n) for i, members, n in of_shards or rows(cursor, "select * from cluster")}
        together: Counter[tuple[int, ...]] = Counter()
        for members, n in clusters.values():
            together[tuple(members)] += n
        assert together == whole, "the shards' clusters do not add up to those of the whole"
        records = {}
        counted: Counter[int] = Counter()
        for key, value, cluster_id, members, frequencies in rows(cursor, GEN_RECS):
            assert clusters[cluster_id][0] == members, f"the record of {value!r} is not in its cluster"
            counted[cluster_id] += 1
            found = dict(zip((names[m] for m in members), frequencies or [0] * len(members), strict=True))
            records[key.replace("-", "")] = (value, found)
        assert counted == {i: n for i, (_, n) in clusters.items()}, "a cluster's value_count is wrong"
        counters = {
            names[i]: tuple(found)
            for i, *found in rows(
                cursor, "select attribute_id, row_count, null_count, distinct_count, repeated_count from attribute"
            )
        }
        inds = rows(cursor, "select dependent_id, referenced_id from uind where until_version is null")
        live = [i for (i,) in rows(cursor, LIVE)] if rows(cursor, "select from sketch_form") else []
        hashes = {i: {int(key[:16], 16) for key, (_, members) in records.items() if names[i] in members} for i in live}
        check_sketches(connection, hashes)
    return State(
        records,
        {frozenset(names[m] for m in members): n for members, n in whole.items()},
        counters,  # type: ignore[arg-type]
        frozenset((names[a], names[b]) for a, b in inds),
    )


@contextmanager
def transaction(url: str) -> Iterator[Any]:
    """Give a cursor whose statements are committed together in the end."""
    kept = kept_connection(url)
    with kept.in_one_transaction(), kept.raw, kept.raw.cursor() as cursor:
        yield cursor


@contextmanager
def one_version(url: str) -> Iterator[Connection]:
    """Open a transaction that sees one version."""
    kept = kept_connection(url)
    with kept.in_one_transaction(), kept.engine.connect() as connection:
        yield connection.execution_options(isolation_level="REPEATABLE READ")


def check_sketches(connection: Connection, hashes: Mapping[int, set[int]]) -> None:
    """Hold sketches against the hashes of their attributes, by plain Python after the BML paper's Definition 2."""
    found = read_sketches(connection, sorted(hashes))
    assert found.faults == {}
    assert found.by_id.keys() == hashes.keys()
    for attribute_id, sketch in found.by_id.items():
        counted = {
            (b, r + 1): n for r, row in enumerate(sketch.dense().counts.tolist()) for b, n in enumerate(row) if n
        }
        assert counted == Counter(bucket_and_rho(h, sketch.m) for h in hashes[attribute_id]), attribute_id
        held, bound = sketch.bottom.hashes.tolist(), sketch.bottom.bound
        assert held == sorted(h for h in hashes[attribute_id] if bound is None or h < bound), attribute_id


def bucket_and_rho(hashed: int, m: int) -> tuple[int, int]:
    """Give the leftmost m bits, and the place of the leftmost 1 behind them (64 - m + 1 if there is none)."""
    bits = f"{hashed:064b}"
    return int(bits[:m] or "0", 2), bits[m:].find("1") + 1 or 64 - m + 1


def rows(cursor: Any, query: str) -> list[tuple[Any, ...]]:
    cursor.execute(query)
    return list(cursor.fetchall())


def query(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Run one query."""
    with transaction(url) as cursor:
        return rows(cursor, statement)


def execute(url: str, statement: str) -> None:
    """Run one statement that returns nothing, and commit it."""
    with transaction(url) as cursor:
        cursor.execute(statement)

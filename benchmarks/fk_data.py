"""Own the databases with known foreign keys, as the evaluation of their discovery sees them."""

from __future__ import annotations

import csv
import json
import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data_sets import DATA_SETS, Unavailable, published
from benchmarks.fk_composites import Composites, in_order, read_composites
from service.core.foreign_keys.candidates import THETA, Candidate, Columns, Inclusions, single_candidates
from service.core.foreign_keys.profiles import ColumnProfile, Measured
from service.core.quantile_grids import GridHistogram, KeyHistogram
from service.core.randomness import outside, randomness
from service.core.value_order import ValueOrder, order_of

FAMILIES = {"chinook_1": "chinook", "store_1": "chinook", "world_1": "world"}
"""Databases that hold the data of another: who leaves one out leaves out all of its family."""


@dataclass(slots=True)
class Database:
    """Hold one database: columns by number, its keys, what was measured of the candidates, and what is known.

    `truth` has the foreign keys of one column with the share of values that are referenced, None where there are none;
    `parts` the pairs of columns of the composite ones, and `composites` what there is of those.
    """

    name: str
    columns: list[ColumnProfile]
    declared_keys: list[Columns]
    unique_keys: list[Columns]
    measured: dict[Candidate, Measured] = field(default_factory=dict)
    truth: dict[Candidate, float | None] = field(default_factory=dict)
    parts: set[Candidate] = field(default_factory=set)
    composites: Composites = field(default_factory=Composites)
    data_set: str = ""

    @property
    def family(self) -> str:
        """Name what is left out together with it."""
        return FAMILIES.get(self.name, self.name)

    def label(self, column: int) -> str:
        """Name a column."""
        return f"{self.columns[column].table}.{self.columns[column].name}"

    def seen(self, declared: bool) -> tuple[dict[Candidate, Measured], dict[int, ColumnProfile], list[Columns]]:
        """Give what is to be ranked, with the keys of the schema, or with what is unique and never NULL."""
        keys = self.declared_keys if declared else self.unique_keys
        columns = {
            i: column if declared else replace(column, is_primary=False) for i, column in enumerate(self.columns)
        }
        referred = set(keys)
        return {c: of for c, of in self.measured.items() if c.referenced in referred}, columns, keys


def read_databases(folder: Path, work: Path, cache: Path | None = None) -> list[Database]:
    """Read the databases of a folder of data sets that have a schema.json, or what an earlier run has measured.

    Raise Unavailable where there are none.
    """
    kept = cache / "fk-databases.pickle" if cache else None
    if kept and kept.exists():
        return list(pickle.loads(kept.read_bytes()))
    found = list(_databases(folder, work))
    if not found:
        raise Unavailable(
            f"no database of {folder} has a schema.json with its foreign keys: give a folder of {DATA_SETS}"
        )
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(pickle.dumps(found))
    return found


def _databases(folder: Path, work: Path) -> Iterator[Database]:
    for data_set in published(folder, work):
        for part in data_set.parts:
            if (part.tables / "schema.json").exists():
                database = read_database(part.tables)
                database.data_set = data_set.name
                yield database


def read_database(folder: Path) -> Database:
    """Read the tables of a database, '' as NULL, and its schema.json; measure the candidates for all its keys."""
    schema = json.loads((folder / "schema.json").read_text("utf-8"))
    columns: list[ColumnProfile] = []
    cells: list[list[str]] = []
    values: list[frozenset[str]] = []
    declared: list[Columns] = []
    for table, described in schema["tables"].items():
        with (folder / described["file"]).open(encoding="utf-8", newline="") as lines:
            rows = list(csv.reader(lines))[1:]
        keys = [described["primary_key"], *described["unique"]]
        for ordinal, column in enumerate(described["columns"]):
            cells.append([row[ordinal] for row in rows])
            counts = Counter(cells[-1])
            nulls = counts.pop("", 0)
            if counts and [column["name"]] in keys:
                declared.append((len(columns),))
            columns.append(
                _profile(
                    counts,
                    table=table,
                    name=column["name"],
                    ordinal=ordinal,
                    data_type=column["type"].split("(")[0].lower(),
                    rows=len(rows),
                    nulls=nulls,
                    is_primary=column["name"] in described["primary_key"],
                )
            )
            values.append(frozenset(counts))
    unique = [(i,) for i, column in enumerate(columns) if column.distinct == column.rows > 0]
    database = Database(schema["name"], columns, declared, unique)
    database.measured = dict(_measured(columns, values, sorted({*declared, *unique})))
    places = {(column.table, column.name): i for i, column in enumerate(columns)}
    composite: set[Candidate] = set()
    for table, described in schema["tables"].items():
        for known in described["foreign_keys"]:
            pairs = [
                Candidate((places[table, own],), (places[known["ref_table"], other],))
                for own, other in zip(known["columns"], known["ref_columns"], strict=True)
            ]
            if len(pairs) == 1:
                database.truth[pairs[0]] = known["inclusion"]
            else:
                database.parts.update(pairs)
                composite.add(in_order(pairs))
    tables = {
        table: [places[table, column["name"]] for column in of["columns"]] for table, of in schema["tables"].items()
    }
    of_schema = [
        tuple(places[table, name] for name in key)
        for table, described in schema["tables"].items()
        for key in (described["primary_key"], *described["unique"])
    ]
    database.composites = read_composites(list(tables.values()), cells, of_schema, frozenset(composite))
    return database


def _profile(values: Counter[str], **described: Any) -> ColumnProfile:
    order = order_of(values)
    ends = (min(values, key=order.key), max(values, key=order.key)) if values else (None, None)
    return ColumnProfile(
        schema="",
        distinct=len(values),
        order=order,
        least=ends[0],
        greatest=ends[1],
        mean_length=sum(map(len, values)) / len(values) if values else None,
        is_integer=order is ValueOrder.NUMERIC and all(value.removeprefix("-").isdigit() for value in values),
        **described,
    )


def _measured(
    columns: list[ColumnProfile], values: list[frozenset[str]], keys: list[Columns]
) -> Iterator[tuple[Candidate, Measured]]:
    """Measure the candidates of one column for each key, whose grid is built once."""
    overlap = _overlap(values)
    distinct = np.diagonal(overlap)
    coefficients = {
        (a, b): float(overlap[a, b] / distinct[a])
        for (b,) in keys
        for a in np.flatnonzero((overlap[:, b] >= THETA * distinct) & (distinct > 0)).tolist()
    }
    tables = {i: 0 for i, of_column in enumerate(values) if of_column}
    grids: dict[int, tuple[KeyHistogram, dict[str, int]]] = {}
    for candidate in single_candidates(Inclusions(tables, coefficients), [b for (b,) in keys]):
        (a,), (b,) = candidate
        found = Measured(coefficients[a, b], float(overlap[a, b] / distinct[b]), 1.0, 1.0)
        if columns[a].order.is_comparable_with(columns[b].order):
            if b not in grids:
                of_key = KeyHistogram.of([(value,) for value in values[b]], [columns[b].order])
                ordered = list(values[b])
                grids[b] = of_key, dict(zip(ordered, of_key.grids[0].cells_of(ordered).tolist(), strict=True))
            of_key, cells = grids[b]
            places = [cells[v] if v in cells else int(of_key.grids[0].cells_of([v])[0]) for v in values[a]]
            histogram = GridHistogram.of([len(of_key.grids[0])], [np.array(places)])
            found = replace(found, distance=randomness(histogram, of_key).distance, outside=outside(histogram, of_key))
        yield candidate, found


def _overlap(columns: list[frozenset[str]]) -> np.ndarray:
    """Count the values that each two columns share, int64[n, n]."""
    from scipy.sparse import csr_array

    numbers: dict[str, int] = {}
    values = [numbers.setdefault(value, len(numbers)) for column in columns for value in column]
    holders = np.repeat(np.arange(len(columns)), [len(column) for column in columns])
    held = csr_array((np.ones(len(values), np.int64), (values, holders)), shape=(len(numbers), len(columns)))
    return (held.T @ held).toarray()

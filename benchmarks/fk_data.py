"""Own the databases with known foreign keys, as the evaluation of their discovery sees them."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.data_sets import published
from service.core.foreign_keys.candidates import Candidate
from service.core.value_order import ValueOrder, order_of

FAMILIES = {"chinook_1": "chinook", "store_1": "chinook", "world_1": "world"}
"""Databases that hold the data of another: who leaves one out leaves out all of its family."""


@dataclass(slots=True)
class Column:
    """Hold a column: where it is, what it holds, and what its schema says of it."""

    table: int
    table_name: str
    name: str
    ordinal: int
    data_type: str
    rows: int
    nulls: int
    values: frozenset[str]
    repeated: int
    order: ValueOrder
    is_declared_key: bool
    is_in_primary_key: bool

    @property
    def is_unique(self) -> bool:
        """Tell whether the data allows it to be a key."""
        return len(self.values) == self.rows > 0


@dataclass(slots=True)
class Database:
    """Hold one database: columns by number, overlaps of their values, and the foreign keys that are known.

    `truth` has those of one column with the share of values that are referenced, None where there are none; `parts` the
    pairs of columns of the composite ones.
    """

    name: str
    tables: dict[str, list[str]]
    columns: list[Column]
    overlap: np.ndarray
    truth: dict[Candidate, float | None] = field(default_factory=dict)
    parts: set[Candidate] = field(default_factory=set)

    @property
    def family(self) -> str:
        """Name what is left out together with it."""
        return FAMILIES.get(self.name, self.name)

    def keys(self, declared: bool) -> list[int]:
        """Give the columns that may be referred to: keys of the schema, or what is unique and never NULL."""
        return [i for i, c in enumerate(self.columns) if c.values and (c.is_declared_key if declared else c.is_unique)]

    def label(self, column: int) -> str:
        """Name a column."""
        return f"{self.columns[column].table_name}.{self.columns[column].name}"


def read_databases(folder: Path, work: Path) -> Iterator[Database]:
    """Yield the databases of a folder of data sets that have a schema.json, those without foreign keys too."""
    for data_set in published(folder, work):
        for part in data_set.parts:
            if (part.tables / "schema.json").exists():
                yield read_database(part.tables)


def read_database(folder: Path) -> Database:
    """Read the tables of a database, '' as NULL, and its schema.json."""
    schema = json.loads((folder / "schema.json").read_text("utf-8"))
    columns: list[Column] = []
    for number, (table, described) in enumerate(schema["tables"].items()):
        with (folder / described["file"]).open(encoding="utf-8", newline="") as lines:
            rows = list(csv.reader(lines))[1:]
        keys = [described["primary_key"], *described["unique"]]
        for ordinal, column in enumerate(described["columns"]):
            counts = Counter(row[ordinal] for row in rows)
            nulls = counts.pop("", 0)
            columns.append(
                Column(
                    table=number,
                    table_name=table,
                    name=column["name"],
                    ordinal=ordinal,
                    data_type=column["type"].split("(")[0].lower(),
                    rows=len(rows),
                    nulls=nulls,
                    values=frozenset(counts),
                    repeated=sum(count > 1 for count in counts.values()),
                    order=order_of(counts),
                    is_declared_key=[column["name"]] in keys,
                    is_in_primary_key=column["name"] in described["primary_key"],
                )
            )
    tables = {table: [c["name"] for c in described["columns"]] for table, described in schema["tables"].items()}
    database = Database(schema["name"], tables, columns, _overlap(columns))
    places = {(column.table_name, column.name): i for i, column in enumerate(columns)}
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
    return database


def _overlap(columns: list[Column]) -> np.ndarray:
    """Count the values that each two columns share, int64[n, n]."""
    from scipy.sparse import csr_array

    numbers: dict[str, int] = {}
    values = [numbers.setdefault(value, len(numbers)) for column in columns for value in column.values]
    holders = np.repeat(np.arange(len(columns)), [len(column.values) for column in columns])
    held = csr_array((np.ones(len(values), np.int64), (values, holders)), shape=(len(numbers), len(columns)))
    return (held.T @ held).toarray()

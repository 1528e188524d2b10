"""Own the databases with known composite foreign keys: their keys, and the candidates that hold over the tuples."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path

from benchmarks.data_sets import published
from benchmarks.fk_data import Database, read_database
from service.core.foreign_keys.candidates import Candidate, Columns, Inclusions, composite_candidates
from service.core.foreign_keys.profiles import Measured

Tuples = Callable[[Columns], frozenset[tuple[str, ...]]]
"""Give the distinct tuples of columns, without those that have a NULL."""

SETS = ("f1_ergast", "mondial", "spider_dev")
"""Data sets with foreign keys of more than one column."""


NEARLY = 0.99
"""Share of distinct tuples from which columns are taken for a key: dirty data and history repeat some."""


@dataclass(frozen=True, slots=True)
class Composites:
    """Hold a database with its composite keys, the candidates that hold, how many did not, and the known ones."""

    database: Database
    keys: list[Columns]
    measured: dict[Candidate, Measured]
    tried: int
    truth: set[Candidate]


def read_composites(folder: Path, work: Path) -> Iterator[Composites]:
    """Yield the databases of SETS that have composite keys, of the schema or in the data."""
    for data_set in published(folder, work):
        for part in data_set.parts:
            if data_set.name in SETS:
                found = read_composite(part.tables)
                if found.keys or found.truth:
                    yield found


def read_composite(folder: Path) -> Composites:
    """Find the composite keys of a database, and confirm their candidates over the distinct tuples."""
    schema = json.loads((folder / "schema.json").read_text("utf-8"))
    database = read_database(folder)
    places = {(column.table, column.name): i for i, column in enumerate(database.columns)}
    cells: list[list[str]] = []
    for described in schema["tables"].values():
        with (folder / described["file"]).open(encoding="utf-8", newline="") as lines:
            rows = list(csv.reader(lines))[1:]
        cells += [[row[i] for row in rows] for i in range(len(described["columns"]))]
    sets = [frozenset(column) - {""} for column in cells]

    @cache
    def tuples(columns: Columns) -> frozenset[tuple[str, ...]]:
        return frozenset(found for found in zip(*(cells[i] for i in columns), strict=True) if "" not in found)

    keys: list[Columns] = []
    truth: set[Candidate] = set()
    for table, described in schema["tables"].items():
        of_table = [places[table, column["name"]] for column in described["columns"]]
        known = [tuple(places[table, c] for c in key) for key in (described["primary_key"], *described["unique"])]
        keys += [key for key in known if len(key) > 1]
        keys += nearly_unique(of_table, cells, tuples)
        for foreign in described["foreign_keys"]:
            if len(foreign["columns"]) > 1:
                pairs = zip(foreign["columns"], foreign["ref_columns"], strict=True)
                truth.add(in_order((places[table, a], places[foreign["ref_table"], b]) for a, b in pairs))
    keys = sorted({tuple(sorted(key)) for key in keys})
    tables = list(schema["tables"])
    parts = {b for key in keys for b in key}
    exact = {(a, b): 1.0 for b in parts for a, values in enumerate(sets) if a != b and values and values <= sets[b]}
    inclusions = Inclusions({i: tables.index(database.columns[i].table) for i, of in enumerate(sets) if of}, exact)
    measured, tried = {}, 0
    for candidate in composite_candidates(inclusions, keys, 1):
        tried += 1
        own, key = tuples(candidate.dependent), tuples(candidate.referenced)
        if own and own <= key:
            measured[candidate] = Measured(1.0, len(own) / len(key))
    return Composites(database, keys, measured, tried, truth)


def in_order(pairs: Iterator[tuple[int, int]]) -> Candidate:
    """Give a composite candidate with the key's columns ascending."""
    dependent, referenced = zip(*sorted(pairs, key=lambda pair: pair[1]), strict=True)
    return Candidate(dependent, referenced)


def nearly_unique(columns: list[int], cells: list[list[str]], tuples: Tuples) -> list[Columns]:
    """Give the pairs of columns that are never NULL and that nearly tell rows apart, where neither does so alone."""
    rows = len(cells[columns[0]])
    whole = [i for i in columns if "" not in cells[i]]
    distinct = {i: len(set(cells[i])) for i in whole}
    return [
        (a, b)
        for a, b in combinations(whole, 2)
        if max(distinct[a], distinct[b]) < NEARLY * rows <= distinct[a] * distinct[b]
        and len(tuples((a, b))) >= NEARLY * rows
    ]

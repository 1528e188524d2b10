"""Own what the evaluation knows of composite foreign keys: keys, candidates that hold over tuples, and the truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations

from service.core.foreign_keys.candidates import Candidate, Columns, Inclusions, composite_candidates
from service.core.foreign_keys.profiles import Measured

Tuples = Callable[[Columns], frozenset[tuple[str, ...]]]
"""Give the distinct tuples of columns, without those that have a NULL."""

NEARLY = 0.99
"""Share of distinct tuples from which columns are taken for a key: dirty data and history repeat some."""


@dataclass(frozen=True, slots=True)
class Composites:
    """Hold the composite keys of a database, the candidates that hold, how many were tried, and the known ones."""

    declared_keys: frozenset[Columns] = frozenset()
    found_keys: frozenset[Columns] = frozenset()
    measured: Mapping[Candidate, Measured] = field(default_factory=dict)
    tried: int = 0
    truth: frozenset[Candidate] = frozenset()

    def seen(self, declared: bool) -> dict[Candidate, Measured]:
        """Give the candidates for the keys of the schema, or for pairs of columns that nearly tell rows apart."""
        keys = self.declared_keys if declared else self.found_keys
        return {candidate: of for candidate, of in self.measured.items() if candidate.referenced in keys}


def read_composites(
    tables: Sequence[Sequence[int]],
    cells: Sequence[Sequence[str]],
    declared: Sequence[Columns],
    truth: frozenset[Candidate],
) -> Composites:
    """Find the composite keys of tables, given as their columns, and confirm their candidates over the distinct tuples.

    `cells` has the texts of each column, '' as NULL.
    """
    sets = [frozenset(column) - {""} for column in cells]

    @cache
    def tuples(columns: Columns) -> frozenset[tuple[str, ...]]:
        return frozenset(found for found in zip(*(cells[i] for i in columns), strict=True) if "" not in found)

    of_schema = frozenset(tuple(sorted(key)) for key in declared if len(key) > 1 and all(sets[i] for i in key))
    found = frozenset(key for columns in tables for key in nearly_unique(columns, cells, tuples))
    parts = {column for key in of_schema | found for column in key}
    exact = {(a, b): 1.0 for b in parts for a, values in enumerate(sets) if a != b and values and values <= sets[b]}
    table_of = {column: table for table, columns in enumerate(tables) for column in columns if sets[column]}
    measured, tried = {}, 0
    for candidate in composite_candidates(Inclusions(table_of, exact), sorted(of_schema | found), 1):
        tried += 1
        own, key = tuples(candidate.dependent), tuples(candidate.referenced)
        if own and own <= key:
            measured[candidate] = Measured(1.0, len(own) / len(key))
    return Composites(of_schema, found, measured, tried, truth)


def in_order(pairs: Sequence[Candidate]) -> Candidate:
    """Give a composite candidate of its pairs of columns, with the key's columns ascending."""
    ordered = sorted(pairs, key=lambda pair: pair.referenced)
    return Candidate(tuple(a for (a,), _ in ordered), tuple(b for _, (b,) in ordered))


def nearly_unique(columns: Sequence[int], cells: Sequence[Sequence[str]], tuples: Tuples) -> list[Columns]:
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

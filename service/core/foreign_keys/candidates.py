"""Own the candidates for foreign keys: Algorithm B.1 in both phases, over inclusion coefficients.

After Zhang et al., On Multi-Column Foreign Key Discovery (2010), section 4 and appendix B. Coefficients come in as a
value: exact ones of tracked tables, or estimates of sketches.

The paper prunes composite candidates by σ(F, P) ≤ min σ(F_i, P_i). That holds where inclusion is exact and not below
it: of the tuples (1, a), (1, b), (1, c), (2, d) three are in a key that lacks the last, so σ = 3/4, while of the first
column's two values one is in the key's, σ_1 = 1/2. So the threshold of the columns is a setting of its own here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

Columns = tuple[int, ...]
"""Attribute ids: one, or those of a composite in the order of the key's columns."""

THETA = 0.9
"""Least inclusion coefficient of a candidate, as in the paper: dirty data hides keys from an exact one."""


class Candidate(NamedTuple):
    """Name a foreign-key candidate: dependent columns, and the key's that they may refer to, side by side."""

    dependent: Columns
    referenced: Columns


@dataclass(frozen=True, slots=True)
class Inclusions:
    """Hold the inclusion coefficients Φ(dependent, referenced) of attributes; a pair that is not there has 0.

    `table_of` names the table of each attribute that has values: what has none is in no inclusion.
    """

    table_of: Mapping[int, int]
    coefficients: Mapping[tuple[int, int], float]
    _into: Mapping[int, Sequence[tuple[int, float]]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        into = defaultdict(list)
        for (dependent, referenced), phi in sorted(self.coefficients.items()):
            if dependent != referenced and dependent in self.table_of:
                into[referenced].append((dependent, phi))
        object.__setattr__(self, "_into", into)

    def contained_in(self, referenced: int, theta: float) -> list[int]:
        """Give the other attributes of which at least a share `theta` is in this one, ascending."""
        return [dependent for dependent, phi in self._into.get(referenced, ()) if phi >= theta]

    def bound(self, candidate: Candidate) -> float:
        """Give the least coefficient of a candidate's columns: the paper's bound, which 1 alone proves."""
        pairs = zip(candidate.dependent, candidate.referenced, strict=True)
        return min(1.0 if a == b else self.coefficients.get((a, b), 0.0) for a, b in pairs)


def single_candidates(inclusions: Inclusions, keys: Iterable[int], theta: float = THETA) -> Iterator[Candidate]:
    """Yield the candidates for keys of one column (phase 1), key by key."""
    for key in keys:
        for dependent in inclusions.contained_in(key, theta):
            yield Candidate((dependent,), (key,))


def composite_candidates(
    inclusions: Inclusions,
    keys: Iterable[Columns],
    theta: float = THETA,
    most: int | None = None,
    cut: list[tuple[int, Columns]] | None = None,
) -> Iterator[Candidate]:
    """Yield the candidates for composite keys (phase 2), key by key and table by table, `most` for each key and table.

    Each column of the key has a column of its own, all in one table and each contained in it by `theta`. A column of
    the key's own table may stand for itself, where another does not: a row may refer to one that shares a part with it.
    They are to be confirmed over the tuples. Tables and keys that have more than `most` are put into `cut`.
    """
    for key in keys:
        by_table: dict[int, list[list[int]]] = {}
        for place, column in enumerate(key):
            for dependent in (*inclusions.contained_in(column, theta), column):
                of_table = by_table.setdefault(inclusions.table_of[dependent], [[] for _ in key])
                of_table[place].append(dependent)
        for table in sorted(by_table):
            found = (Candidate(chosen, key) for chosen in _choices(by_table[table]) if chosen != key)
            yield from islice(found, most)
            if cut is not None and next(found, None) is not None:
                cut.append((table, key))


def _choices(columns: Sequence[Sequence[int]]) -> Iterator[Columns]:
    """Yield the ways to take one of each list, none twice, as they are asked for.

    Short lists are taken from first: those for which nothing is left are short, and what was chosen before is tried in
    all ways until that shows.
    """
    if not _are_enough(columns):
        return
    order = sorted(range(len(columns)), key=lambda place: len(columns[place]))
    places = sorted(range(len(columns)), key=order.__getitem__)
    chosen: list[int] = []
    left = [iter(columns[order[0]])]
    while left:
        column = next(left[-1], None)
        if column is None:
            left.pop()
            if chosen:
                chosen.pop()
        elif column not in chosen:
            if len(chosen) + 1 == len(columns):
                whole = (*chosen, column)
                yield tuple(whole[place] for place in places)
            else:
                chosen.append(column)
                left.append(iter(columns[order[len(chosen)]]))


def _are_enough(columns: Sequence[Sequence[int]]) -> bool:
    """Tell whether each list can have one of its own, by augmenting paths: trying all ways may never come to an end."""
    owners: dict[int, int] = {}

    def finds_one(place: int, looked_at: set[int]) -> bool:
        for column in columns[place]:
            if column not in looked_at:
                looked_at.add(column)
                if column not in owners or finds_one(owners[column], looked_at):
                    owners[column] = place
                    return True
        return False

    return all(finds_one(place, set()) for place in range(len(columns)))


def coefficient(dependent: Iterable[Sequence[str]], referenced: Iterable[Sequence[str]]) -> float:
    """Give σ(F, P) of tuples, the share of the distinct dependent ones that are referenced; 0 where there are none.

    A tuple with a NULL refers to nothing (SQL's MATCH SIMPLE) and must not be among them.
    """
    distinct = set(map(tuple, dependent))
    return len(distinct & set(map(tuple, referenced))) / len(distinct) if distinct else 0.0

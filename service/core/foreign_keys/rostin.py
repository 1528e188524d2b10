"""Own the ten features of Rostin et al., A Machine Learning Approach to Foreign Key Discovery (2009), of a candidate.

As the 2010 paper and the BML paper cite them: rules of thumb about cardinality, coverage, other inclusions, lengths,
ranges, names and sizes, for a classifier to weigh.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from service.core.foreign_keys.candidates import Candidate
from service.core.foreign_keys.names import split_name

_SUFFIXES = ("id", "key", "nr", "no")


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """Hold what the features ask of a column that has values: names, counts, and the mean length of its values."""

    table: str
    name: str
    rows: int
    distinct: int
    mean_length: float


@dataclass(frozen=True, slots=True)
class RostinFeatures:
    """Hold the features of a candidate, in the paper's names; those that count do so over all candidates.

    `column_name`: 1 where the dependent's name is the referenced column's, or table and column's, or holds one of them;
    `out_of_range`: share of referenced values outside of the dependent's least and greatest.
    """

    distinct_dependent_values: float
    coverage: float
    dependent_and_referenced: float
    multi_dependent: float
    multi_referenced: float
    column_name: float
    value_length_difference: float
    out_of_range: float
    typical_name_suffix: float
    table_size_ratio: float

    def row(self) -> list[float]:
        """Give the features in their order."""
        return [float(getattr(self, each.name)) for each in fields(self)]


def rostin_features(
    candidates: Iterable[Candidate],
    profiles: Mapping[int, ColumnProfile],
    overlaps: Mapping[tuple[int, int], int],
    out_of_range: Mapping[tuple[int, int], float],
) -> dict[Candidate, RostinFeatures]:
    """Compute the features of candidates of one column.

    `overlaps` counts the values that two columns share, `out_of_range` is as in RostinFeatures, both by (dependent,
    referenced). Raises KeyError for a candidate that they do not know.
    """
    pairs = [(candidate.dependent[0], candidate.referenced[0]) for candidate in candidates]
    dependents, referenced = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    found = {}
    for a, b in pairs:
        own, key = profiles[a], profiles[b]
        found[Candidate((a,), (b,))] = RostinFeatures(
            distinct_dependent_values=own.distinct,
            coverage=overlaps[a, b] / key.distinct,
            dependent_and_referenced=referenced[a],
            multi_dependent=dependents[a],
            multi_referenced=referenced[b],
            column_name=_says(own.name, key),
            value_length_difference=abs(own.mean_length - key.mean_length),
            out_of_range=out_of_range[a, b],
            typical_name_suffix=float(own.name.casefold().endswith(_SUFFIXES)),
            table_size_ratio=own.rows / key.rows,
        )
    return found


def _says(name: str, key: ColumnProfile) -> float:
    """Tell how far a name says what it refers to: 1 by name or table and name, 0.5 where it holds one of them."""
    own, table, column = ("".join(split_name(text)) for text in (name, key.table, key.name))
    if own and own in (column, table, table + column):
        return 1.0
    return 0.5 if any(text and text in own for text in (table, column)) else 0.0

"""Own the ten features of Rostin et al., A Machine Learning Approach to Foreign Key Discovery (2009), of a candidate.

As the 2010 paper and the BML paper cite them: rules of thumb about cardinality, coverage, other inclusions, lengths,
ranges, names and sizes, for a classifier to weigh.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from service.core.foreign_keys.names import split_name
from service.core.foreign_keys.profiles import ColumnProfile, Measured
from service.core.quantile_grids import Floats

_SUFFIXES = ("id", "key", "nr", "no")


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


def rostin_features(
    measured: Mapping[tuple[int, int], Measured], columns: Mapping[int, ColumnProfile]
) -> dict[str, Floats]:
    """Give each feature of n candidates of one column, float64[n]; NaN where it was not measured.

    Raises KeyError for a candidate with a column that `columns` has not.
    """
    dependents, referenced = Counter(a for a, _ in measured), Counter(b for _, b in measured)
    found = []
    for (a, b), of in measured.items():
        own, key = columns[a], columns[b]
        found.append(
            RostinFeatures(
                distinct_dependent_values=own.distinct,
                coverage=of.coverage,
                dependent_and_referenced=referenced[a],
                multi_dependent=dependents[a],
                multi_referenced=referenced[b],
                column_name=_says(own.name, key),
                value_length_difference=own.length_difference(key),
                out_of_range=np.nan if of.outside is None else of.outside,
                typical_name_suffix=float(own.name.casefold().endswith(_SUFFIXES)),
                table_size_ratio=own.rows / key.rows,
            )
        )
    return {
        each.name: np.array([getattr(features, each.name) for features in found], np.float64)
        for each in fields(RostinFeatures)
    }


def _says(name: str, key: ColumnProfile) -> float:
    """Tell how far a name says what it refers to: 1 by name or table and name, 0.5 where it holds one of them."""
    own, table, column = ("".join(split_name(text)) for text in (name, key.table, key.name))
    if own and own in (column, table, table + column):
        return 1.0
    return 0.5 if any(text and text in own for text in (table, column)) else 0.0

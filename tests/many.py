"""What the tests of MANY share: random corpora, and brute force over sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from service.core.column_sets import ColumnSets
from service.core.group_inds import Inds
from service.core.records import Keys, starts_of

Pairs = set[tuple[int, int, int]]
"""(dependent, referenced, values in both)"""

# Few values, small ones frequent: many equal columns and chains of inclusions.
_VALUES = st.integers(0, 11).map(lambda n: n * n // 6)
COLUMNS = st.lists(st.frozensets(_VALUES, max_size=8), max_size=90)
SHARES = st.fractions(0, 1, max_denominator=6)


def sets_of(columns: Sequence[Iterable[int]]) -> ColumnSets:
    """Make column sets whose keys differ in either half only: half a key is no proof."""
    cells = [list(column) for column in columns]
    values = np.array([value for column in cells for value in column], np.uint64)
    starts = starts_of(np.array([len(column) for column in cells], np.int64))
    return ColumnSets.of_keys(starts, Keys(values % np.uint64(3), values // np.uint64(3)))


def brute_force(
    columns: Sequence[frozenset[int]],
    dependent: Sequence[bool] | None = None,
    referenced: Sequence[bool] | None = None,
    coverage: Fraction = Fraction(0),
    threshold: Fraction = Fraction(1),
) -> Pairs:
    """Compare every column with every other."""
    return {
        (a, b, len(left & right))
        for a, left in enumerate(columns)
        for b, right in enumerate(columns)
        if a != b and left and right and (not dependent or dependent[a]) and (not referenced or referenced[b])
        if len(left & right) >= threshold * len(left) and len(left & right) >= coverage * len(right)
    }


def listed(blocks: Iterable[Inds]) -> list[tuple[int, int, int]]:
    """Give blocks as a sorted list: what comes twice is there twice."""
    return sorted(row for inds in blocks for row in zip(*(side.tolist() for side in inds), strict=True))

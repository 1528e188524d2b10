"""INDs of changed columns, from the values of changed columns alone: what discovery over all columns finds of them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.changed_inds import KnownKeys, find_changed_inds
from service.core.column_sets import ColumnSets
from service.core.corpus_choices import Algorithm, Parameters, Strategy
from service.core.records import Keys, starts_of
from tests.many import COLUMNS, SHARES, brute_force, listed


def restricted(columns: list[frozenset[int]], changed: list[bool]) -> ColumnSets:
    """Keep of unchanged columns what a changed one has."""
    cells = [value for column in columns for value in column]
    keys = Keys(np.array(cells, np.uint64) % np.uint64(3), np.array(cells, np.uint64) // np.uint64(3))
    starts = starts_of(np.array([len(column) for column in columns], np.int64))
    known = KnownKeys.of(keys.take(np.repeat(np.array(changed, bool), np.diff(starts))))
    return ColumnSets.of_keys(*known.restrict(starts, keys))


@settings(max_examples=150)
@given(
    columns=COLUMNS,
    coverage=SHARES,
    threshold=st.one_of(st.just(Fraction(1)), st.fractions(Fraction(1, 5), 1, max_denominator=7)),
    flags=st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 3)), min_size=90, max_size=90),
    wanted=st.sampled_from((None, *Algorithm)),
    strategy=st.sampled_from(Strategy),
    threads=st.sampled_from((1, 2)),
)
def test_inds_of_changed_columns_equal_brute_force(
    columns, coverage, threshold, flags, wanted, strategy, threads
) -> None:
    dependent, referenced, chosen = (list(side)[: len(columns)] for side in zip(*flags, strict=True))
    changed = [number == 0 for number in chosen]
    choice, found = find_changed_inds(
        restricted(columns, changed), np.array([len(column) for column in columns], np.int64), np.array(changed, bool),
        np.array(dependent, bool), np.array(referenced, bool),
        coverage=coverage, threshold=threshold, algorithm=wanted, parameters=Parameters(40, 2, 2, strategy),
        threads=threads,
    )  # fmt: skip
    if wanted is not None and choice.signatures is not None:
        assert choice.algorithm is wanted
    expected = brute_force(columns, dependent, referenced, coverage, threshold)
    assert listed(found) == sorted(row for row in expected if changed[row[0]] or changed[row[1]])


def test_the_values_of_unchanged_columns_are_dropped_but_their_numbers_count() -> None:
    changed = frozenset((1, 2))
    columns = [changed, frozenset((1, 2, 3, 4)), frozenset((2,)), frozenset((1, 9)), frozenset((7, 8))]
    flags = [column is changed for column in columns]
    sets = restricted(columns, flags)
    assert sets.sizes.tolist() == [2, 2, 1, 1, 0]
    everyone, sizes = np.ones(5, bool), np.array([2, 4, 1, 2, 2])
    _, whole = find_changed_inds(sets, sizes, np.array(flags), everyone, everyone)
    assert listed(whole) == [(0, 1, 2), (2, 0, 1)]
    _, covering = find_changed_inds(sets, sizes, np.array(flags), everyone, everyone, coverage=Fraction(2, 3))
    assert listed(covering) == []
    _, near = find_changed_inds(sets, sizes, np.array(flags), everyone, everyone, threshold=Fraction(1, 2))
    assert listed(near) == [(0, 1, 2), (0, 2, 1), (0, 3, 1), (1, 0, 2), (2, 0, 1), (3, 0, 1)]

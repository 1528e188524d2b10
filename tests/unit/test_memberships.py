"""Which attributes are in which clusters, held against counting one value after the other."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.core.memberships import Memberships, counts_by_cell

CELLS = 3

clusters = st.dictionaries(
    st.integers(-(10**12), 10**12),
    st.tuples(st.frozensets(st.integers(0, 9), min_size=1), st.integers(1, 10**9)),
    max_size=8,
).map(lambda found: [(i, sorted(of), count) for i, (of, count) in sorted(found.items())])


def memberships_of(found: list[tuple[int, list[int], int]]) -> Memberships:
    numbers = np.array([(i, len(members), count) for i, members, count in found], np.int64).reshape(-1, 3)
    return Memberships.of(numbers, np.array([one for _, members, _ in found for one in members], np.int64))


@given(clusters, st.integers(0, 10))
def test_overlaps_are_those_of_the_clusters_of_both(found: list[tuple[int, list[int], int]], attribute_id: int) -> None:
    values, shared = Counter[int](), Counter[int]()
    for _, members, count in found:
        for other in members:
            if attribute_id in members and other != attribute_id:
                values[other] += count
                shared[other] += 1
    assert memberships_of(found).overlaps(attribute_id) == [(i, values[i], shared[i]) for i in sorted(values)]


@given(
    clusters,
    st.lists(st.integers(0, 10), min_size=1, max_size=6, unique=True),
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, CELLS - 1), st.integers(1, 10**9)), max_size=12),
)
def test_counts_by_cell_are_those_of_each_value(
    found: list[tuple[int, list[int], int]], chosen: list[int], counted: list[tuple[int, int, int]]
) -> None:
    counted = [one for one in counted if one[0] < len(found)]
    memberships = memberships_of(found)
    owners, members = memberships.among(chosen)
    expected = np.zeros((len(chosen), CELLS), np.int64)
    for place, cell, total in counted:
        for row, attribute_id in enumerate(chosen):
            if attribute_id in found[place][1]:
                expected[row, cell] += total
    columns = [np.array([one[i] for one in counted], np.int64) for i in range(3)]
    got = counts_by_cell(owners, members, (columns[0], columns[1], columns[2]), expected.shape)
    assert (got == expected).all()


def test_of_no_clusters_there_is_nothing_to_count() -> None:
    nothing = memberships_of([])
    assert [part.dtype for part in (nothing.clusters, nothing.value_counts, nothing.owners, nothing.members)] == [
        np.int64
    ] * 4
    assert nothing.overlaps(3) == []

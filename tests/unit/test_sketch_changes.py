"""What a batch changes in sketches: its bytes come back, damaged ones do not, and versions add up."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.clustering import Clusters, ClusterSets, merge
from service.core.errors import SketchError
from service.core.records import Deltas, Keys, Records
from service.core.sketch_changes import SketchChanges, net_changes

CELLS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(-3, 3).filter(bool), st.integers(0, 9) | st.integers(0, 2**64 - 1))
)


def changes(cells: list[tuple[int, int, int]]) -> SketchChanges:
    ids, differences, hashes = zip(*cells, strict=True) if cells else ((), (), ())
    return SketchChanges.of(np.array(ids, np.int64), np.array(differences, np.int64), np.array(hashes, np.uint64))


def cells_of(found: SketchChanges) -> Counter[tuple[int, int, int]]:
    groups = zip(found.attribute_ids, found.differences, found.starts, found.starts[1:], strict=False)
    return Counter((int(a), int(d), int(h)) for a, d, start, end in groups for h in found.hashes[start:end])


@given(CELLS)
def test_changes_come_back_from_their_bytes(cells: list[tuple[int, int, int]]) -> None:
    found = SketchChanges.from_bytes(changes(cells).to_bytes())
    assert cells_of(found) == Counter(cells)
    assert found.attribute_ids.tolist() == sorted(found.attribute_ids.tolist())
    assert len({(a, d) for a, d, _ in cells}) == len(found.attribute_ids)


def test_damaged_bytes_are_refused() -> None:
    data = changes([(1, 1, 2**63), (1, -1, 7), (300, 2, 9)]).to_bytes()
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 4
        with pytest.raises(SketchError, match="sketch_change was damaged"):
            SketchChanges.from_bytes(bytes(damaged))
        with pytest.raises(SketchError, match="sketch_change was damaged"):
            SketchChanges.from_bytes(data[:at])


@given(st.lists(CELLS, max_size=4))
def test_what_versions_change_in_an_attribute_adds_up(versions: list[list[tuple[int, int, int]]]) -> None:
    for attribute_id in range(5):
        wanted: Counter[int] = Counter()
        for cells in versions:
            for one, difference, value in cells:
                wanted[value] += difference if one == attribute_id else 0
        hashes, differences = net_changes([changes(cells) for cells in versions], attribute_id)
        assert list(zip(hashes.tolist(), differences.tolist(), strict=True)) == sorted(
            (value, difference) for value, difference in wanted.items() if difference
        )


@given(CELLS, CELLS)
def test_changes_of_different_attributes_are_joined(
    some: list[tuple[int, int, int]], others: list[tuple[int, int, int]]
) -> None:
    others = [(attribute_id + 5, difference, value) for attribute_id, difference, value in others]
    joined = SketchChanges.joined([changes(others), changes(some)])
    assert cells_of(SketchChanges.from_bytes(joined.to_bytes())) == Counter(some + others)
    assert joined.attribute_ids.tolist() == sorted(joined.attribute_ids.tolist())


def test_a_frequency_that_changes_is_no_change_of_a_sketch() -> None:
    """A value that comes to an attribute which holds it only occurs once more; to another one it is new."""
    key = bytes(range(16))
    clusters = Clusters(ClusterSets.of([(1, [1, 2], 1)]))
    applied = merge(
        clusters,
        Deltas(Keys.of([key]), np.array([0, 2]), np.array([2, 3]), np.array([1, 1])),
        Records.of([(1, [1, 1])]),
    )
    assert cells_of(applied.switches) == {(3, 1, int.from_bytes(key[:8], "big")): 1}


LARGE = st.sampled_from([-(2**63), -(2**63) + 1, -(2**62), -1, 1, 2**32, 2**62, 2**63 - 1])


@given(st.lists(LARGE, min_size=1, max_size=6))
def test_differences_near_their_limit_add_up_or_are_refused_but_never_wrap(differences: list[int]) -> None:
    versions = [changes([(1, difference, 7)]) for difference in differences]
    total = sum(differences)
    if not -(2**63) <= total < 2**63:
        with pytest.raises(SketchError, match=r"more than 2\^63 times"):
            net_changes(versions, 1)
    else:
        assert net_changes(versions, 1)[1].tolist() == ([total] if total else [])

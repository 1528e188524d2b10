"""Sketches of a state: their forms; built in portions, or following changes, they are those of each column's set."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import SketchError
from service.core.records import starts_of
from service.core.sketch_changes import SketchChanges, net_changes
from service.core.sketch_upkeep import DEFAULT_FORM, FixedForm, SketchBuilder, SketchForm, apply_changes
from service.core.sketches.column import ColumnSketch
from service.core.sketches.prefixes import HashPrefixes

FORM = SketchForm.of(4, 9)
ATTRIBUTES = st.sets(st.integers(0, 4), min_size=1)
RECORDS = st.dictionaries(st.integers(0, 2**64 - 1), ATTRIBUTES, max_size=30)


def sketch_of(hashes: set[int], form: SketchForm | FixedForm = FORM) -> bytes:
    sketch = form.empty()
    sketch.update(np.array(sorted(hashes), np.uint64))
    return sketch.to_bytes()


def column(records: dict[int, set[int]], attribute: int) -> set[int]:
    return {value for value, attributes in records.items() if attribute in attributes}


def test_a_form_says_of_what_size_sketches_are() -> None:
    assert FORM == (4, 9, 3)
    assert SketchForm.of(5, 10) == (5, 10, 3)
    empty = FORM.empty(counts_values=False)
    assert (empty.m, empty.bottom.k, empty.bottom.spares, empty.counts_values) == (4, 9, 3, False)
    assert FORM.empty().counts_values
    assert DEFAULT_FORM.empty().to_bytes() == ColumnSketch().to_bytes()
    # 96 bytes are 128 registers of 6 bits, which are of m = 7.
    assert [(made.m, made.budget) for made in (FixedForm(96).empty(), FixedForm(95).empty())] == [(7, 96), (6, 95)]
    assert FixedForm(96).empty(counts_values=False).to_bytes() == HashPrefixes(7, 96).to_bytes()


@given(RECORDS, st.integers(0, 30), st.sampled_from([FORM, FixedForm(64)]))
def test_sketches_built_in_portions_are_those_of_the_columns(
    records: dict[int, set[int]], cut: int, form: SketchForm | FixedForm
) -> None:
    builder = SketchBuilder(form, [0, 2, 3])
    together = list(records.items())
    for portion in (together[cut:], together[:cut]):
        attributes = [sorted(ids) for _, ids in portion]
        builder.add(
            np.array([value for value, _ in portion], np.uint64),
            starts_of(np.array([len(ids) for ids in attributes], np.int64)),
            np.array([one for ids in attributes for one in ids], np.int64),
        )
    assert {attribute: made.to_bytes() for attribute, made in builder.sketches.items()} == {
        attribute: sketch_of(column(records, attribute), form) for attribute in (0, 2, 3)
    }


def changes_of(before: dict[int, set[int]], after: dict[int, set[int]]) -> SketchChanges:
    cells = [(a, 1, value) for value, ids in after.items() for a in ids - before.get(value, set())]
    cells += [(a, -1, value) for value, ids in before.items() for a in ids - after.get(value, set())]
    ids, ways, hashes = zip(*cells, strict=True) if cells else ((), (), ())
    return SketchChanges.of(np.array(ids, np.int64), np.array(ways, np.int64), np.array(hashes, np.uint64))


SMALL = st.dictionaries(st.integers(0, 5) | st.integers(0, 2**64 - 1), ATTRIBUTES, max_size=7)


@given(st.lists(SMALL, min_size=1, max_size=4))
def test_sketches_that_follow_versions_are_those_of_the_last_one(versions: list[dict[int, set[int]]]) -> None:
    steps = [changes_of(before, after) for before, after in pairwise(versions)]
    for attribute in range(5):
        sketch = FORM.empty()
        sketch.update(np.array(sorted(column(versions[0], attribute)), np.uint64))
        apply_changes(sketch, steps, attribute)
        assert sketch.to_bytes() == sketch_of(column(versions[-1], attribute))


def test_what_was_never_in_a_sketch_is_not_taken_from_it() -> None:
    sketch = FORM.empty()
    with pytest.raises(SketchError, match="removed more often"):
        apply_changes(sketch, [changes_of({7: {1}}, {})], 1)
    assert sketch.to_bytes() == sketch_of(set())


def test_no_change_has_no_group_and_leaves_all_as_it_is() -> None:
    none = SketchChanges.none()
    for nothing in (none, SketchChanges.from_bytes(none.to_bytes()), SketchChanges.joined([none, none])):
        assert [side.tolist() for side in nothing] == [[], [], [0], []]
        assert [side.dtype for side in nothing] == [np.int64, np.int64, np.int64, np.uint64]
    sketch = FORM.empty()
    apply_changes(sketch, [none], 1)
    assert sketch.to_bytes() == sketch_of(set())


def test_hashes_that_come_in_several_versions_are_netted_one_by_one() -> None:
    first = changes_of({}, {value: {1} for value in (9, 4, 6)})
    second = changes_of({value: {1} for value in (6, 4)}, {8: {1}, 4: {1, 2}})
    hashes, differences = net_changes([first, second, first], 1)
    assert (hashes.tolist(), differences.tolist()) == ([4, 6, 8, 9], [2, 1, 1, 2])

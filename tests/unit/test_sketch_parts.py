"""Sketches in parts: those of all ranges of keys, put together, are the sketch of the whole."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import SketchError
from service.core.sketch_upkeep import SketchForm
from service.core.sketches.column import ColumnSketch
from service.store.bulk import KeyRange
from spark_jobs.sketches import Part, merge_sketches, parts_of, put_together

FORMS = st.builds(SketchForm, st.integers(0, 6), st.integers(1, 5), st.integers(0, 3))
HASHES = st.lists(st.integers(0, (1 << 64) - 1), unique=True, max_size=60)
RECORDS = st.lists(st.tuples(st.integers(0, (1 << 64) - 1), st.sets(st.integers(0, 3))), unique_by=lambda r: r[0])


def sketch_of(form: SketchForm, hashes: Iterable[int], weights: list[int] | None = None) -> ColumnSketch:
    sketch = form.empty(counts_values=weights is None)
    sketch.update(np.array(list(hashes), np.uint64), None if weights is None else np.array(weights, np.int64))
    return sketch


@given(form=FORMS, records=RECORDS, bits=st.integers(0, 8))
def test_the_parts_of_all_ranges_are_the_sketches_of_all_records(
    form: SketchForm, records: list[tuple[int, set[int]]], bits: int
) -> None:
    gathered: dict[int, list[bytes]] = {}
    for number in range(1 << bits):
        own = sorted(record for record in records if record[0] >> (64 - bits) == number)
        ids = [attribute_id for _, members in own for attribute_id in sorted(members)]
        starts = np.cumsum([0, *(len(members) for _, members in own)])
        hashes = np.array([value for value, _ in own], np.uint64)
        for attribute_id, part in parts_of(form, KeyRange(number, bits), hashes, starts, np.array(ids, np.int32)):
            gathered.setdefault(attribute_id, []).append(part.to_bytes())
    wanted = {a: sketch_of(form, sorted(h for h, members in records if a in members)) for a in range(4)}
    assert gathered.keys() == {a for a, sketch in wanted.items() if sketch.size}
    for attribute_id, parts in gathered.items():
        found = put_together(form, (Part.from_bytes(part, form) for part in parts), counts_values=True)
        whole = wanted[attribute_id]
        assert found.agrees_with(whole)
        assert (found.size, found.hashes is None) == (whole.size, whole.hashes is None)
        assert ColumnSketch.from_bytes(found.to_bytes()).agrees_with(whole)


@given(form=FORMS, tasks=st.lists(st.lists(st.tuples(st.integers(0, 90), st.integers(1, 9)), max_size=40), min_size=1))
def test_what_tasks_sketch_of_a_column_adds_up(form: SketchForm, tasks: list[list[tuple[int, int]]]) -> None:
    """Values repeat within a task and between tasks; 90 of them spread over the whole range of hashes."""
    spread = [[(value * 0x2D8_2D82_D82D_82D8, weight) for value, weight in cells] for cells in tasks]
    partial = [sketch_of(form, [h for h, _ in cells], [w for _, w in cells]).to_bytes() for cells in spread]
    together = [cell for cells in spread for cell in cells]
    whole = sketch_of(form, [h for h, _ in together], [w for _, w in together])
    found = merge_sketches(form, partial)
    assert found.to_bytes() == whole.to_bytes()
    assert not found.counts_values


@pytest.mark.parametrize("hashes_of_a_part", [1, 2])
def test_parts_whose_counts_pass_64_bits_together_are_refused(hashes_of_a_part: int) -> None:
    """Eight hashes of one bucket and one ρ, 2^62 times each, in parts that keep all of their hashes or not."""
    form = SketchForm(2, 1, 0)
    hashes = [[(1 << 61) + part * hashes_of_a_part + i for i in range(hashes_of_a_part)] for part in range(4)]
    if hashes_of_a_part == 1:
        hashes += [[(1 << 61) + part] for part in range(4, 8)]
    parts = [sketch_of(form, own, [2**62] * len(own)).to_bytes() for own in hashes]
    assert (ColumnSketch.from_bytes(parts[0]).heaps is None) == (hashes_of_a_part == 1)
    with pytest.raises(SketchError, match="64 bits"):
        merge_sketches(form, parts)

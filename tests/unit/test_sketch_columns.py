"""Hashes, folding, the life of a column's sketch between sparse and dense, and many columns at once."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.canonical import value_key
from service.core.errors import SketchError
from service.core.records import Keys, starts_of
from service.core.sketches.bottom_k import PORTION, BottomK
from service.core.sketches.building import build_columns
from service.core.sketches.column import ColumnSketch
from service.core.sketches.hashing import bucket_of, rho_of
from service.core.sketches.heaps import HllHeaps
from service.core.sketches.hll import Hll
from tests import sketches
from tests.sketches import HASHES, array, count_cells, maxima, random_hashes

BAGS = st.lists(HASHES, max_size=40)


def test_the_hash_of_a_value_begins_its_key() -> None:
    text = "Zürich"
    digest = hashlib.sha256(text.encode()).digest()
    assert Keys.of([value_key(text)]).high.tolist() == [int.from_bytes(digest[:8], "big")]


@given(hashes=BAGS, m=st.integers(0, 18))
def test_bucket_and_rho_are_read_off_the_binary_digits(hashes: list[int], m: int) -> None:
    for value in (0, *hashes):
        assert (bucket_of(np.uint64(value), m), rho_of(np.uint64(value), m)) == sketches.bucket_and_rho(value, m)
    assert rho_of(np.uint64(0), m) == 65 - m, "all bits zero behind the bucket"


def test_the_bytes_of_the_documentation() -> None:
    """Whoever wrote a reader after docs/sketches.md goes on reading: other bytes need another version."""
    document = (Path(__file__).parents[2] / "docs" / "sketches.md").read_text()
    shown = [bytes.fromhex(block) for block in re.findall(r"(?m)(?:^    [0-9a-f ]+\n)+", document)]
    hashes = np.sort(Keys.of(map(value_key, ("ham", "eggs", "ham and eggs"))).high)
    column, heaps = ColumnSketch(13, 1536, 512), HllHeaps(2)
    for sketch in (column, heaps):
        sketch.update(hashes)
    assert shown == [column.to_bytes(), heaps.to_bytes()]


def test_figure_9_of_the_paper() -> None:
    """Bucket 1 of 8 has values with ρ = 3 and 4; each ρ has its counter, and the maximum goes when its counter is 0."""
    third, fourth, again = 0b001_001 << 58, 0b001_0001 << 57, (0b001_0001 << 57) + 5
    heaps = HllHeaps(3)
    heaps.update(array([third, fourth]))
    assert heaps.registers.tolist() == [0, 4, 0, 0, 0, 0, 0, 0]
    heaps.update(array([again]))
    heaps.remove(array([fourth]))
    assert heaps.registers[1] == 4
    heaps.remove(array([again]))
    assert heaps.registers[1] == 3
    heaps.remove(array([third]))
    assert not heaps.registers.any()


@given(hashes=BAGS, m=st.integers(0, 10), data=st.data())
def test_folded_equals_built(hashes: list[int], m: int, data: st.DataObject) -> None:
    smaller = data.draw(st.integers(0, m))
    sketch, heaps = Hll(m), HllHeaps(m)
    column = ColumnSketch(m, 4, 2)
    for each in (sketch, heaps, column):
        each.update(array(hashes))
    built = HllHeaps(smaller)
    built.update(array(hashes))
    registers = maxima(count_cells(Counter(hashes), smaller), smaller)
    assert sketch.fold(smaller).registers.tolist() == registers
    assert heaps.fold(smaller).to_bytes() == built.to_bytes()
    assert heaps.fold(smaller).size == len(hashes)
    assert column.registers(smaller).tolist() == registers


@pytest.mark.parametrize("m", [0, 9, 18])
def test_all_smaller_sketches_fold_out_of_the_largest(m: int) -> None:
    hashes = np.append(random_hashes(3000, seed=3), array([0, 1, 2**64 - 1]))
    largest, built = HllHeaps(18), HllHeaps(m)
    largest.update(hashes)
    built.update(hashes)
    assert largest.fold(m).to_bytes() == built.to_bytes()
    assert largest.hll().fold(m).to_bytes() == built.hll().to_bytes()
    assert built.fold(m).to_bytes() == built.to_bytes()


def test_nothing_folds_to_more_buckets() -> None:
    for sketch in (Hll(4), HllHeaps(4)):
        with pytest.raises(SketchError, match="m = 4 folds to a smaller m only, not to 5"):
            sketch.fold(5)


def test_counts_add_up_beyond_32_bits_when_folded() -> None:
    heaps = HllHeaps(1)
    heaps.update(array([1 << 62, 3 << 62]), np.array([2**32 - 1, 2**32 - 1]))
    assert heaps.counts.dtype == np.uint32
    assert heaps.fold(0).counts.tolist() == [[2**32 - 1], [2**32 - 1]]
    heaps.update(array([(1 << 63) + (1 << 61)]), np.array([7]))
    assert heaps.fold(0).counts.tolist() == [[2**32 + 6], [2**32 - 1], [0]]
    assert heaps.merge(heaps).size == 2 * heaps.size == 4 * (2**32 - 1) + 14


def test_a_column_between_sparse_and_dense() -> None:
    hashes = np.sort(random_hashes(40, seed=4))
    sketch = ColumnSketch(5, k=20, spares=10)
    sketch.update(hashes[::-1][:30])
    assert sketch.heaps is None
    assert sketch.hashes is not None
    assert sketch.bottom.spares_left == 10
    sketch.update(hashes[:10])
    assert sketch.heaps is not None
    assert sketch.hashes is None
    assert sketch.bottom.bound == hashes[30]
    assert sketch.estimate() == sketch.size == 40
    sketch.remove(hashes[:10])
    assert (sketch.bottom.spares_left, sketch.needs_rescan) == (0, False)
    sketch.remove(hashes[10:12])
    assert sketch.needs_rescan
    assert sketch.heaps is not None
    # Whatever was at or above the bound goes: what is held is all there is, without a rescan.
    sketch.remove(hashes[30:])
    assert sketch.heaps is None
    assert not sketch.needs_rescan
    assert sketch.hashes is not None
    assert sketch.hashes.tolist() == hashes[12:30].tolist()
    built = ColumnSketch(5, k=20, spares=10)
    built.update(hashes[12:30])
    assert sketch.to_bytes() == built.to_bytes()


def test_a_dense_column_refuses_what_its_parts_know() -> None:
    hashes = np.sort(random_hashes(40, seed=5))
    sketch = ColumnSketch(0, k=4, spares=0)
    sketch.update(hashes)
    before = sketch.to_bytes()
    for batch in (array([1]), array([*hashes.tolist(), 2**64 - 2]), array([2**64 - 2] * 37)):
        with pytest.raises(SketchError, match="left as it was"):
            sketch.remove(batch)
        assert sketch.to_bytes() == before


def test_a_dense_column_refuses_to_count_less_than_it_holds() -> None:
    held, beyond, stranger = 0b0100 << 60, 0b0110 << 60, 0b0111 << 60
    sketch = ColumnSketch(0, k=1, spares=0)
    sketch.update(array([held, beyond]))
    before = sketch.to_bytes()
    with pytest.raises(SketchError, match="left as it was"):
        sketch.remove(array([stranger, stranger]))
    assert sketch.to_bytes() == before


def test_columns_that_differ_do_not_agree() -> None:
    hashes = random_hashes(100, seed=6)
    whole, shrunk, other = ColumnSketch(4, 20, 5), ColumnSketch(4, 20, 5), ColumnSketch(4, 20, 5)
    whole.update(hashes[:60])
    shrunk.update(hashes)
    shrunk.remove(hashes[60:])
    other.update(hashes[1:61])
    assert shrunk.to_bytes() != whole.to_bytes()
    assert shrunk.agrees_with(whole)
    assert whole.agrees_with(shrunk)
    assert not whole.agrees_with(other)


def test_bottom_k_is_unbiased_also_after_removals() -> None:
    estimates, after = [], []
    for seed in range(300):
        hashes = random_hashes(2000, seed)
        sketch = BottomK(80, 20)
        sketch.update(hashes)
        estimates.append(sketch.estimate())
        sketch.remove(hashes[:1000])
        after.append(sketch.estimate())
        assert sketch.needs_rescan
    # Standard errors of a mean of 300: about n / sqrt(100 * 300), and of half as many.
    assert np.mean(estimates) == pytest.approx(2000, abs=4 * 2000 / 173)
    assert np.mean(after) == pytest.approx(1000, abs=4 * 1000 / 122)


def test_an_update_of_several_portions_is_one_update() -> None:
    hashes = random_hashes(3 * PORTION + 7, seed=7)
    whole, parts = BottomK(100, 30), BottomK(100, 30)
    weights = np.arange(1, len(hashes) + 1)
    whole.update(hashes, weights)
    for part in np.array_split(np.arange(len(hashes)), 50):
        parts.update(hashes[part], weights[part])
    assert whole.to_bytes() == parts.to_bytes()
    order = np.argsort(hashes)[:130]
    assert whole.hashes.tolist() == hashes[order].tolist()
    assert whole.counts.tolist() == weights[order].tolist()
    before = whole.to_bytes()
    hashes[-1], weights[-1] = hashes[order[0]], 2**63 - 1
    with pytest.raises(SketchError, match="limit"):
        whole.update(hashes, weights)
    assert whole.to_bytes() == before, "nor by the portions before"


def test_a_sketch_of_a_million_values_takes_little_room() -> None:
    sketch = ColumnSketch()
    sketch.update(random_hashes(10**6, seed=8))
    assert len(sketch.to_bytes()) <= 120_000


@pytest.mark.parametrize("is_weighted", [False, True], ids=["values", "occurrences"])
@settings(max_examples=40)
@given(records=st.dictionaries(HASHES, st.dictionaries(st.sampled_from([0, 3, 4, 9]), st.integers(1, 5)), max_size=40))
def test_columns_built_from_records_are_as_if_updated(is_weighted: bool, records: dict[int, dict[int, int]]) -> None:
    hashes = sorted(records)
    cells = [(attribute, count) for value in hashes for attribute, count in sorted(records[value].items())]
    weights = np.array([count for _, count in cells], np.int64) if is_weighted else None
    built = build_columns(
        ColumnSketch(3, 6, 3, counts_values=not is_weighted),
        array(hashes),
        starts_of(np.array([len(records[value]) for value in hashes], np.int64)),
        np.array([attribute for attribute, _ in cells], np.int64),
        weights,
    )
    assert sorted(built) == sorted({attribute for attribute, _ in cells})
    for attribute, sketch in built.items():
        there = [value for value in hashes if attribute in records[value]]
        expected = ColumnSketch(3, 6, 3, counts_values=not is_weighted)
        expected.update(array(there), np.array([records[v][attribute] for v in there]) if is_weighted else None)
        assert sketch.to_bytes() == expected.to_bytes()

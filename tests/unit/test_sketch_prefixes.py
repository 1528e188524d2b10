"""The sketch of a fixed size: what fits, whatever the order, and what it is reduced from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.sketches import rice
from service.core.sketches.byte_format import Reader
from service.core.sketches.column import ColumnSketch
from service.core.sketches.prefixes import PORTION, HashPrefixes, cut, entries_of
from tests.sketches import HASHES, array, random_hashes

HEADER = 52


def built(hashes: np.ndarray, m: int = 14, budget: int = 12_288) -> HashPrefixes:
    sketch = HashPrefixes(m, budget)
    sketch.update(hashes)
    return sketch


@given(numbers=st.lists(st.integers(0, 2**58) | st.integers(0, 20), max_size=60))
def test_what_rice_writes_is_read_and_no_other_width_is_shorter(numbers: list[int]) -> None:
    data = rice.write(array(numbers))
    payload = Reader(data)
    assert rice.read(payload, len(numbers)).tolist() == numbers
    payload.end()
    bits = rice.bits_of(array(numbers))
    assert bits == min(sum((n >> width) + 1 + width for n in numbers) for width in range(64))
    assert 8 * len(data) <= bits + 8 * rice.OVERHEAD


@pytest.mark.parametrize(
    ("size", "bits"), [(1000, 64), (1790, 64), (3000, 42), (5000, 30), (16_384, 18), (40_000, 16), (400_000, 15)]
)
def test_as_many_bits_as_fit_and_the_budget_holds(size: int, bits: int) -> None:
    hashes = random_hashes(size, seed=size)
    sketch = built(hashes)
    assert sketch.bits == bits
    assert len(sketch.to_bytes()) <= HEADER + 12_288
    merged = HashPrefixes()
    for part in np.array_split(hashes[::-1], 3):
        merged = merged.merge(built(part))
    assert merged.to_bytes() == sketch.to_bytes()
    assert sketch.is_size_exact == (size <= 3000)
    low, high = sketch.bounds(0.999)
    assert low <= size <= high
    if bits < 64:
        longer = HashPrefixes(14, 1 << 24)
        longer.bits, longer.entries = bits + 1, cut(np.sort(hashes), 14, bits + 1)
        assert len(longer.to_bytes()) > HEADER + 12_288 - 5, "one bit more would not have fitted"


def test_the_code_of_prefixes_is_near_their_entropy() -> None:
    """Of C(2^b, n) sets each needs log2 of that many bits."""
    n = 10_000
    sketch = built(random_hashes(n, seed=1))
    share = n / 2**sketch.bits
    entropy = 2**sketch.bits * -(share * np.log2(share) + (1 - share) * np.log2(1 - share))
    assert 8 * (len(sketch.to_bytes()) - HEADER) < 1.02 * entropy


def test_prefixes_no_longer_than_a_bucket_are_registers() -> None:
    """Crafted hashes: with the deepest ρ in all buckets nothing of more bits fits into so little."""
    hashes = np.arange(2**8, dtype=np.uint64) << np.uint64(56)
    sketch = built(hashes, 8, 60)
    assert sketch.bits < 8
    assert sketch.registers().tolist() == [65 - sketch.bits] * 2**sketch.bits


@given(hashes=st.lists(HASHES, max_size=60, unique=True))
def test_a_column_is_reduced_to_its_hashes_or_to_its_registers(hashes: list[int]) -> None:
    column = ColumnSketch(3, 20, 10)
    column.update(array(hashes))
    reduced, whole = HashPrefixes.of_column(column, 200), built(array(hashes), 3, 200)
    if column.hashes is not None:
        assert reduced.to_bytes() == whole.to_bytes()
    else:
        assert reduced.bits <= 3
        assert reduced.entries.tolist() == cut(whole.entries, 3, reduced.bits).tolist()
        assert reduced.merge(whole).to_bytes() == reduced.to_bytes(), "registers of a set hold that set"


@given(hashes=st.lists(HASHES, max_size=20), m=st.integers(0, 5))
def test_registers_as_entries(hashes: list[int], m: int) -> None:
    entries = entries_of(built(array(hashes), m, 5000).registers())
    assert entries.tolist() == cut(np.sort(array(hashes)), m, m).tolist()


def test_an_update_of_several_portions_is_one_update() -> None:
    hashes = random_hashes(2 * PORTION + 5, seed=2)
    one = built(hashes)
    for part in np.array_split(hashes, 9):
        one.update(part)
    assert one.to_bytes() == built(hashes).to_bytes()

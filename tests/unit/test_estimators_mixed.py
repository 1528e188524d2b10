"""A sketch of a fixed size beside one that a state keeps: what both tell of a pair, held against sets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import SketchError
from service.core.estimators import METHODS, Column, estimate, lacks
from service.core.estimators.prefixes import size_bounds
from service.core.records import UInt64s
from service.core.sketches.byte_format import Kind
from service.core.sketches.column import ColumnSketch
from service.core.sketches.comparable import read_comparable
from service.core.sketches.heaps import HllHeaps
from service.core.sketches.prefixes import HashPrefixes, bucket_bits_in
from service.usecases.sketched_columns import known_column
from tests.sketches import random_hashes

M, BUDGET = 7, 256
FORM = (6, 60, 20)


def of_fixed_size(hashes: UInt64s, m: int = M, budget: int = BUDGET) -> Column:
    sketch = HashPrefixes(m, budget)
    sketch.update(hashes)
    return known_column(sketch)


def kept(hashes: UInt64s, form: tuple[int, int, int] = FORM, *, counts_values: bool = True) -> Column:
    sketch = ColumnSketch(*form, counts_values=counts_values)
    sketch.update(hashes)
    return known_column(sketch)


@given(
    sizes=st.tuples(st.integers(1, 120), st.integers(1, 75)),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_cut_hashes_beside_all_hashes_of_a_small_column_are_counted(
    sizes: tuple[int, int], share: float, seed: int
) -> None:
    """Prefixes of 17 bits and more of at most 120 values: to take them for whole hashes would find none in common."""
    nx, ny = sizes
    common = round(share * min(sizes))
    hashes = random_hashes(nx + ny - common, seed)
    x, y = of_fixed_size(hashes[:nx]), kept(hashes[nx - common :])
    assert y.hashes is not None
    for found, phi in ((estimate(x, y), common / nx), (estimate(y, x), common / ny)):
        assert found.phi is not None
        # A value of one column may meet a cell of the other by chance.
        assert found.phi == pytest.approx(phi, abs=3.5 / min(sizes))
        assert (found.phi == found.low == found.high == phi) or x.prefixes is not None


@pytest.mark.parametrize("make", [of_fixed_size, partial(kept, counts_values=False)], ids=["fixed size", "kept"])
def test_what_is_contained_is_all_of_it_though_its_size_is_estimated(make: Callable[[UInt64s], Column]) -> None:
    """The ratio of sizes is rounded: to nothing above 1 nor, where a threshold is 1, just below."""
    found = []
    for seed in range(60):
        hashes = random_hashes(6000, seed)
        found.append(estimate(make(hashes[:1000]), kept(hashes)).phi or 0.0)
    assert max(found) == 1
    assert max(phi for phi in found if phi != 1) < 1 - 1e-6


@pytest.mark.parametrize("counts_values", [True, False])
@pytest.mark.parametrize(
    ("nx", "ny", "common"),
    [(60, 50, 30), (900, 50, 30), (30, 700, 20), (60, 700, 60), (900, 800, 500), (900, 800, 0), (5000, 4000, 4000)],
)
def test_intervals_of_mixed_pairs_hold_the_truth_as_often_as_they_say(
    nx: int, ny: int, common: int, counts_values: bool
) -> None:
    missed = 0
    for seed in range(40):
        hashes = random_hashes(nx + ny - common, seed)
        x, y = of_fixed_size(hashes[:nx]), kept(hashes[nx - common :], counts_values=counts_values)
        for one, other, phi in ((x, y, common / nx), (y, x, common / ny)):
            found = estimate(one, other, level=0.9)
            assert found.phi is not None
            assert found.low <= found.phi <= found.high
            missed += not found.low - 1e-9 <= phi <= found.high + 1e-9
    assert missed <= 18, "8 are expected, in 40 pairs that both directions share"


@pytest.mark.parametrize("left", [1, 2, 3])
def test_a_large_column_of_which_next_to_nothing_is_left_has_a_value_at_least(left: int) -> None:
    """Above its bound a sketch of occurrences knows that there is something, and not how much."""
    hashes = np.sort(random_hashes(300, seed=1))
    sketch = ColumnSketch(*FORM, counts_values=False)
    sketch.update(hashes)
    sketch.remove(hashes[:-left])
    x = known_column(sketch)
    assert x.hashes is None
    found = estimate(x, kept(hashes))
    assert found.phi is not None
    assert 0 <= found.low <= found.phi <= found.high <= 1
    assert size_bounds(x, 0.95)[0] >= np.count_nonzero(x.registers)


def test_every_method_but_bottom_k_has_an_answer_for_a_sketch_of_a_fixed_size() -> None:
    hashes = random_hashes(900, seed=4)
    x, y = of_fixed_size(hashes[:600]), kept(hashes[300:])
    for method in METHODS:
        reason = lacks(x, method)
        assert (reason is not None) == (method == "bottom-k")
        assert lacks(y, method) is None
        if reason is not None:
            with pytest.raises(SketchError, match="hash prefixes are not; choose another method"):
                estimate(x, y, method)
        else:
            found = estimate(x, y, method, 0.999)
            assert found.low <= 0.5 <= found.high


def test_prefixes_of_all_bits_are_the_hashes() -> None:
    hashes = random_hashes(40, seed=1)
    x, y = of_fixed_size(hashes[:25], budget=2000), kept(hashes[10:])
    for method in ("estimated", "bottom-k"):
        assert estimate(x, y, method)[:3] == (15 / 25, 15 / 25, 15 / 25)


@pytest.mark.parametrize(("budget", "m"), [(32, 5), (767, 9), (768, 10), (12_288, 14), (1 << 24, 18)])
def test_a_size_says_how_many_buckets(budget: int, m: int) -> None:
    assert bucket_bits_in(budget) == m
    assert (m == 18) or (2**m * 6 <= 8 * budget < 2 ** (m + 1) * 6)


def test_either_sketch_of_a_column_is_read_and_no_part_of_one() -> None:
    hashes = random_hashes(500, seed=2)
    for made in (HashPrefixes(M, BUDGET), ColumnSketch(*FORM)):
        made.update(hashes)
        assert read_comparable(made.to_bytes()).to_bytes() == made.to_bytes()
    part = HllHeaps(M)
    part.update(hashes)
    with pytest.raises(SketchError, match="the sketch is HEAPS, a part of one: columns are compared by COLUMN"):
        read_comparable(part.to_bytes())
    with pytest.raises(SketchError, match="checksum"):
        read_comparable(made.to_bytes()[:-1] + b"\0")
    with pytest.raises(SketchError, match="SDSK"):
        read_comparable(b"")
    assert np.frombuffer(made.to_bytes(), np.uint8)[5] == Kind.COLUMN

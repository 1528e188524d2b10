"""Many pairs at once: the same answers as pair by pair, and nothing left out that reaches a threshold."""

from __future__ import annotations

import math

import numpy as np
import pytest

from service.core.errors import SketchError
from service.core.estimators import Column, all_pairs, estimate
from service.core.estimators.all_pairs import PORTION, _can_reach, estimate_pairs, pairs_of, stack
from service.core.estimators.best import Side
from service.core.estimators.lookup import exact_load, probability
from service.core.sketches.column import ColumnSketch
from service.usecases.sketched_columns import known_column
from tests.columns import column_of, draw_pair

M = 8


def draw_columns(seed: int, n: int, most: int) -> list[Column]:
    """Draw columns that are ranges of one list of hashes, so that all kinds of overlaps come about."""
    random = np.random.default_rng(seed)
    hashes = random.integers(0, 2**64, 2 * most, np.uint64)
    sizes = np.exp(random.uniform(0, np.log(most), n)).astype(int)
    starts = [int(random.choice([0, random.integers(0, 2 * most - size)])) for size in sizes]
    return [column_of(hashes[at : at + size], M, 64) for at, size in zip(starts, sizes, strict=True)]


def test_all_pairs_are_estimated_as_each_is_alone() -> None:
    columns = [*draw_columns(1, 24, 5000), Column(np.zeros(1 << M, np.uint8), 0, True, np.zeros(0, np.uint64))]
    stacked = stack(columns)
    found = estimate_pairs(stacked, *pairs_of(stacked), level=0.9)
    assert len(found.x) == 24 * 23 / 2, "a column without values has no pairs"
    for x, y, overlap, low, high in zip(*found, strict=True):
        alone = estimate(columns[x], columns[y], level=0.9)
        assert (overlap, low, high) == pytest.approx([part * columns[x].size for part in alone[:3]])


def test_answers_do_not_depend_on_portions_and_threads() -> None:
    stacked = stack(draw_columns(2, 120, 300))
    x, y = pairs_of(stacked)
    assert len(x) > PORTION
    whole = estimate_pairs(stacked, x, y, threads=2)
    for part, first in ((slice(5, 50), 5), (slice(PORTION - 3, PORTION + 3), PORTION - 3)):
        some = estimate_pairs(stacked, x[part], y[part], threads=1)
        assert some.overlap.tolist() == whole.overlap[part].tolist(), first


def test_a_threshold_leaves_out_only_what_cannot_reach_it() -> None:
    columns = draw_columns(3, 60, 20_000)
    stacked = stack(columns)
    x, y = pairs_of(stacked)
    everything = estimate_pairs(stacked, x, y)
    kept = estimate_pairs(stacked, x, y, threshold=0.9)
    assert len(kept.x) < 0.8 * len(x)
    assert {*zip(kept.x, kept.y, kept.overlap, strict=True)} <= {*zip(x, y, everything.overlap, strict=True)}
    smaller = np.minimum(stacked.sizes[x], stacked.sizes[y])
    reaching = everything.overlap >= 0.9 * smaller
    assert {*zip(x[reaching], y[reaching], strict=True)} <= {*zip(kept.x, kept.y, strict=True)}


def test_a_threshold_leaves_out_nothing_that_just_reaches_it() -> None:
    """The registers of half of such pairs are below what is expected at the threshold."""
    stacked = stack([column for seed in range(100) for column in draw_pair(seed, 400, 2000, 200, M)])
    x = np.arange(0, 200, 2)
    assert len(estimate_pairs(stacked, x, x + 1, threshold=0.5).x) == 100


def test_columns_of_different_widths_meet_at_the_narrowest() -> None:
    random = np.random.default_rng(4)
    hashes = random.integers(0, 2**64, 900, np.uint64)
    stacked = stack([column_of(hashes, 9), column_of(hashes[:500], 6)])
    assert stacked.registers.shape == (2, 64)
    found = estimate_pairs(stacked, *pairs_of(stacked))
    assert found.low[0] <= 500 <= found.high[0]


def test_columns_with_hardly_more_values_than_smallest_hashes_are_estimated_as_each_pair_is_alone() -> None:
    """Estimated from registers, of half of such columns fewer values would be there than hashes are held."""
    columns = []
    for seed in range(20):
        hashes = np.random.default_rng(seed).integers(0, 2**64, 2163, np.uint64)
        for part in (hashes[:2060], hashes[-2060:]):
            sketch = ColumnSketch(counts_values=False)
            sketch.update(part)
            columns.append(known_column(sketch))
    x = np.arange(0, 40, 2)
    found = estimate_pairs(stack(columns), x, x + 1)
    for one, other, overlap in zip(found.x, found.y, found.overlap, strict=True):
        assert overlap / columns[one].size == pytest.approx(1957 / 2060, abs=0.01)
        assert estimate(columns[one], columns[other]).phi == pytest.approx(1957 / 2060, abs=0.01)
    assert sketch.bounds()[0] >= len(sketch.bottom.hashes) + 1


def test_no_columns_are_refused() -> None:
    with pytest.raises(SketchError, match="no columns"):
        stack([])


def test_a_few_small_columns_are_compared_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of nested ranges of hashes, with 16, 8 and 32 registers, all hashes known, some, and none; one has no values."""
    monkeypatch.setattr(all_pairs, "PORTION", 4)
    hashes = np.random.default_rng(9).integers(0, 2**64, 60, np.uint64)
    columns = [
        column_of(hashes[:60], 4, 30),
        column_of(hashes[:0], 4, 30),
        column_of(hashes[:40], 3),
        column_of(hashes[5:30], 5, 30),
        column_of(hashes[20:60], 4, 30),
    ]
    stacked = stack(columns)
    assert (stacked.registers.shape, stacked.registers.dtype, stacked.counts.shape) == ((5, 8), np.uint8, (5, 63))
    assert stacked.registers[2].tolist() == columns[2].registers.tolist()
    assert [np.bincount(row, minlength=63).tolist() for row in stacked.registers] == stacked.counts.tolist()
    assert (stacked.sizes.tolist(), stacked.sizes.dtype) == ([60, 0, 40, 25, 40], np.float64)
    assert (stacked.starts.tolist(), len(stacked.hashes)) == ([0, 30, 30, 30, 55, 85], 85)
    assert stacked.is_complete.tolist() == [False, True, False, True, False]
    x, y = pairs_of(stacked)
    assert list(zip(x.tolist(), y.tolist(), strict=True)) == [(0, 2), (0, 3), (0, 4), (2, 3), (2, 4), (3, 4)]
    found = estimate_pairs(stacked, x, y, 0.8, threads=1)
    assert (found.x.tolist(), found.y.tolist()) == (x.tolist(), y.tolist())
    narrow = [of._replace(registers=row) for of, row in zip(columns, stacked.registers, strict=True)]
    for one, other, overlap, low, high in zip(*found, strict=True):
        alone = estimate(narrow[one], narrow[other], level=0.8)
        assert (overlap, low, high) == pytest.approx([part * columns[one].size for part in alone[:3]])
    assert len(estimate_pairs(stacked, x, y, threshold=1e-9).x) == 6
    apart = [column_of(hashes[:30], 6), column_of(hashes[30:], 6), column_of(hashes, 6)]
    kept = estimate_pairs(stack(apart), *pairs_of(stack(apart)), threshold=1.0)
    assert list(zip(kept.x.tolist(), kept.y.tolist(), strict=True)) == [(0, 2), (1, 2)]


@pytest.mark.parametrize(("nx", "ny", "threshold"), [(40, 90, 0.5), (40, 90, 1), (40, 40, 0.9), (300, 2000, 0.2)])
def test_a_pair_is_ruled_out_by_six_standard_deviations(nx: int, ny: int, threshold: float) -> None:
    """Registers of which so many are 1 beside 0, the others alike: either way round the smaller column is the x."""
    law, buckets, none = exact_load(6), 64, np.zeros(0, np.uint64)
    chance = probability(threshold * nx, nx, ny, law)
    least = 64 * chance - 6 * math.sqrt(64 * chance * (1 - chance)) - 1
    assert 0 < least <= 63
    zeros = Side(np.zeros(buckets, np.uint8), none.astype(np.int64), float(ny), none, False)
    for above in range(buckets + 1):
        ones = zeros._replace(registers=(np.arange(buckets) < above).astype(np.uint8), size=float(nx))
        assert _can_reach(ones, zeros, threshold, law) == (buckets - above >= least)
        if nx < ny:
            assert _can_reach(zeros, ones, threshold, law) == (buckets - above >= least)

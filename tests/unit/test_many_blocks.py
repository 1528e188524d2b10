"""INDs of groups in blocks: what is cut goes on where it was cut, and the best of many are the first of all."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from service.core import rarest_first
from service.core.column_sets import group_columns
from service.core.group_inds import Inds, as_columns, count_columns, stream
from service.core.top_referenced import top_referenced
from tests.many import brute_force, sets_of


def int32s(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("most", [1, 2, 7])
def test_a_step_goes_on_with_the_group_that_it_did_not_reach(threads: int, most: int) -> None:
    def step(first: int, end: int) -> tuple[Inds, int]:
        reached = min(first + most, end)
        groups = np.array([group for group in range(first, reached) if group % 3], np.int32)
        return Inds(groups, groups + 1, groups * 2), reached

    blocks = list(stream(step, np.ones(200, np.int64), threads))
    assert np.concatenate([block.dependent for block in blocks]).tolist() == [g for g in range(200) if g % 3]
    assert all(len(block.dependent) for block in blocks)


# Group 0 has the columns 1, 4, 6 as dependents and 1, 2, 4, 8 as referenced ones, group 1 has 0 and 5, 9.
GROUPS = SimpleNamespace(
    dependent_starts=np.array([0, 3, 4]),
    dependents=int32s(1, 4, 6, 0),
    referenced_starts=np.array([0, 4, 6]),
    referenced=int32s(1, 2, 4, 8, 5, 9),
    sizes=int32s(2, 7),
)
BETWEEN = Inds(int32s(0, 0, 1), int32s(0, 1, 1), int32s(2, 2, 7))
WRITTEN = [
    *((a, b, 2) for a in (1, 4, 6) for b in (1, 2, 4, 8) if a != b),
    *((a, b, 2) for a in (1, 4, 6) for b in (5, 9)),
    *((0, b, 7) for b in (5, 9)),
]


@pytest.mark.parametrize("block", [1, 2, 3, 4, 5, 7, 11, 12, 13, 100])
def test_pairs_of_columns_are_written_out_in_order_wherever_blocks_are_cut(block: int) -> None:
    found = list(as_columns(GROUPS, [BETWEEN], block))
    assert [row for inds in found for row in zip(*(side.tolist() for side in inds), strict=True)] == WRITTEN
    assert all(side.dtype == np.int32 for inds in found for side in inds)


@pytest.mark.parametrize("count", [1, 2, 7, 20])
def test_the_best_of_many_equal_ones_are_those_of_the_smallest_numbers(count: int) -> None:
    """120 columns of 12 values, many of them equal: most coverages come often, on both sides of the cut."""
    random = np.random.default_rng(4)
    columns = [frozenset(random.choice(12, random.integers(1, 12), replace=False).tolist()) for _ in range(90)]
    columns += [frozenset(range(size)) for size in (1, 2, 11, 12, 12, 12) for _ in range(5)]
    every = np.ones(len(columns), np.bool_)
    groups = group_columns(sets_of(columns), every, every)
    all_of: dict[int, list[tuple[Fraction, int, int]]] = {}
    for a, b, overlap in brute_force(columns):
        all_of.setdefault(a, []).append((-Fraction(overlap, len(columns[b])), b, overlap))
    expected = {a: [best[1:] for best in sorted(found)[:count]] for a, found in all_of.items()}
    found: dict[int, list[tuple[int, int]]] = {}
    inds = list(rarest_first.find_inds(groups))
    for block in top_referenced(groups, inds, count):
        assert all(side.dtype == np.int32 for side in block)
        for a, b, overlap in zip(*(side.tolist() for side in block), strict=True):
            found.setdefault(a, []).append((b, overlap))
    assert found == expected
    assert count_columns(groups, inds) == sum(map(len, all_of.values()))

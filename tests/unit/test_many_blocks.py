"""INDs of groups in blocks, and the steps that find them: each by itself, against lists and sets of Python's."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from service.core import rarest_first
from service.core.changed_inds import KnownKeys
from service.core.column_sets import group_columns, number_keys
from service.core.group_inds import Inds, as_columns, count_columns, stream
from service.core.records import Keys
from service.core.top_referenced import top_referenced
from tests.many import brute_force, listed, sets_of


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


def test_keys_are_numbered_as_a_dictionary_numbers_them_however_many_there_are() -> None:
    random = np.random.default_rng(6)
    high, low = random.integers(0, 60, (2, 4_000)).astype(np.uint64)
    number_of: dict[tuple[int, int], int] = {}
    keys = list(zip(high.tolist(), low.tolist(), strict=True))
    ids, first = number_keys(high, low)
    assert ids.tolist() == [number_of.setdefault(key, len(number_of)) for key in keys]
    assert [keys[place] for place in first] == list(number_of)
    assert len(number_of) > 2_000, "the table of 1,024 slots has grown twice"


@pytest.mark.parametrize("count", [0, 1, 9, 400])
def test_known_keys_are_those_of_a_set_and_half_a_key_is_none(count: int) -> None:
    random = np.random.default_rng(count)
    keys, asked = (Keys(*random.integers(0, 40, (2, size)).astype(np.uint64)) for size in (count, 2_000))
    known = set(zip(keys.high.tolist(), keys.low.tolist(), strict=True))
    pairs = list(zip(asked.high.tolist(), asked.low.tolist(), strict=True))
    table = KnownKeys.of(keys)
    assert table.have(asked).tolist() == [pair in known for pair in pairs]
    starts, kept = table.restrict(np.array([0, 700, 700, 2_000]), asked)
    columns = [[pair for pair in pairs[first:end] if pair in known] for first, end in ((0, 700), (700, 2_000))]
    assert list(zip(kept.high.tolist(), kept.low.tolist(), strict=True)) == columns[0] + columns[1]
    assert starts.tolist() == [0, len(columns[0]), len(columns[0]), len(columns[0]) + len(columns[1])]


@pytest.mark.parametrize("length", [3, 64, 65, 200])
def test_missing_values_are_counted_up_to_one_more_than_may_miss(length: int) -> None:
    random = np.random.default_rng(length)
    for _ in range(20):
        others = np.sort(random.choice(300, length, replace=False)).astype(np.int32)
        values = np.sort(random.choice(300, 30, replace=False)).astype(np.int32)
        lacking = len(set(values[4:].tolist()) - set(others[1:].tolist()))
        together = np.concatenate((values, others))
        for most in (0, 3, max(lacking - 1, 0), lacking, 30):
            assert rarest_first.missing(together, 4, 30, 31, 30 + length, most) == min(lacking, most + 1)


@pytest.mark.parametrize(("columns", "referenced", "reflexive"), [
    ([{1, 2}, {1, 2}], [False, True], True),
    ([{1, 2}, {1, 2}], [True, False], False),
    ([{1, 2}, {1, 2}], [True, True], True),
    ([{1, 2}, {1, 3}], [True, True], False),
])  # fmt: skip
def test_a_group_has_an_ind_inside_when_one_column_can_refer_to_another(
    columns: list[set[int]], referenced: list[bool], reflexive: bool
) -> None:
    groups = group_columns(sets_of(columns), np.array([True, False]), np.array(referenced))
    assert groups.reflexive.any() == reflexive
    found = list(as_columns(groups, rarest_first.find_inds(groups)))
    assert listed(found) == ([(0, 1, 2)] if reflexive else [])


@pytest.mark.parametrize("threshold", [Fraction(1), Fraction(2, 3)])
def test_a_block_that_is_full_ends_before_the_group_that_has_no_room(
    monkeypatch: pytest.MonkeyPatch, threshold: Fraction
) -> None:
    """30 nested columns and 30 of any of their values: blocks have room for one answer of 61."""
    monkeypatch.setattr(rarest_first, "BLOCK", 1)
    random = np.random.default_rng(8)
    columns = [frozenset(range(size)) for size in range(1, 31)]
    columns += [frozenset({0, *random.choice(30, 9).tolist()}) for _ in range(30)]
    every = np.ones(len(columns), np.bool_)
    groups = group_columns(sets_of(columns), every, every, threshold=threshold)
    blocks, reached = [], 0
    while reached < len(groups):
        block, reached = rarest_first._step(groups, reached, len(groups))
        blocks.append(block)
    assert len(blocks) > 3
    assert all(len(block.dependent) <= len(groups) + 1 for block in blocks)
    assert listed(as_columns(groups, blocks)) == sorted(brute_force(columns, threshold=threshold))


@pytest.mark.parametrize("threshold", [Fraction(1), Fraction(19, 20)])
def test_a_block_takes_a_group_whose_answer_fills_it_to_the_last_place(
    monkeypatch: pytest.MonkeyPatch, threshold: Fraction
) -> None:
    """Twelve nested columns have 66 INDs; each group needs a place for each larger column and one for itself."""
    columns = [frozenset(range(size)) for size in range(1, 13)]
    every = np.ones(len(columns), np.bool_)
    groups = group_columns(sets_of(columns), every, every, threshold=threshold)
    for room, reached, found in ((66, 10, 65), (67, 12, 66)):
        monkeypatch.setattr(rarest_first, "BLOCK", room)
        block, end = rarest_first._step(groups, 0, len(groups))
        assert (end, len(block.dependent)) == (reached, found)


@pytest.mark.parametrize("threshold", [Fraction(1), Fraction(2, 3), Fraction(1, 3)])
def test_candidates_are_counted_at_the_rarest_values_of_which_one_more_than_may_miss(threshold: Fraction) -> None:
    random = np.random.default_rng(4)
    columns = [frozenset(random.choice(40, size, replace=False).tolist()) for size in range(1, 25)]
    every = np.ones(len(columns), np.bool_)
    groups = group_columns(sets_of(columns), np.arange(len(columns)) % 3 > 0, every, threshold=threshold)
    expected = []
    for group in range(len(groups)):
        start = groups.starts[group]
        rarest = groups.values[start : start + groups.allowance[group] + 1].tolist()
        held = [groups.postings[groups.posting_starts[v] : groups.posting_starts[v + 1]] for v in rarest]
        within = sum(((of >= groups.first[group]) & (of < groups.end[group])).sum() for of in held)
        expected.append(within if np.diff(groups.dependent_starts)[group] else 0)
    assert rarest_first.candidate_counts(groups).tolist() == expected
    assert (groups.allowance.max() > 0) == (threshold < 1)

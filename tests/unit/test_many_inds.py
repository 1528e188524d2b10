"""Both algorithms over groups of equal columns against brute force, streamed in blocks and written out as columns."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core import group_inds, rarest_first, signatures
from service.core.column_sets import group_columns, number_keys
from service.core.corpus_choices import Algorithm, Parameters, Strategy
from service.core.corpus_inds import choose, find_inds
from service.core.group_inds import as_columns, count_columns, equal_cost_parts, stream
from service.core.records import Keys
from tests.many import COLUMNS, SHARES, brute_force, listed, sets_of

ALGORITHMS = pytest.mark.parametrize(
    ("algorithm", "parameters"),
    [
        (Algorithm.RAREST_FIRST, Parameters()),
        (Algorithm.SIGNATURES, Parameters(bits=64)),
        (Algorithm.SIGNATURES, Parameters(bits=5, hashes=2, passes=3, strategy=Strategy.REF2DEPS)),
        (Algorithm.SIGNATURES, Parameters(bits=1, hashes=1, passes=1)),
    ],
    ids=["rarest-first", "dep2refs", "ref2deps", "signatures-that-tell-nothing"],
)
SIDES = st.lists(st.booleans(), min_size=90, max_size=90)


@ALGORITHMS
@given(columns=COLUMNS, dependent=SIDES, referenced=SIDES, coverage=SHARES)
def test_inds_equal_brute_force(algorithm, parameters, columns, dependent, referenced, coverage) -> None:
    sets = sets_of(columns)
    count = len(columns)
    groups = group_columns(
        sets, np.array(dependent[:count], bool), np.array(referenced[:count], bool), coverage=coverage
    )
    assert listed(find_inds(groups, sets.keys, algorithm, parameters, threads=2)) == sorted(
        brute_force(columns, dependent, referenced, coverage)
    )


@given(columns=COLUMNS, coverage=SHARES, threshold=st.fractions(Fraction(1, 5), 1, max_denominator=7))
def test_near_inds_equal_brute_force(columns, coverage, threshold) -> None:
    sets = sets_of(columns)
    everyone = np.ones(len(columns), bool)
    groups = group_columns(sets, everyone, everyone, coverage=coverage, threshold=threshold)
    found = listed(find_inds(groups, sets.keys, Algorithm.RAREST_FIRST))
    assert found == sorted(brute_force(columns, coverage=coverage, threshold=threshold))
    if groups.allowance.any():
        assert choose(groups).algorithm is Algorithm.RAREST_FIRST
        with pytest.raises(ValueError, match="rarest-first"):
            signatures.find_inds(groups, sets.keys)


@pytest.mark.parametrize("half", ["high", "low"])
def test_keys_that_differ_in_one_half_are_different_values(half) -> None:
    """So many that most meet another one's place in the table of keys."""
    numbers, same = np.arange(60_000, dtype=np.uint64), np.full(60_000, 7, np.uint64)
    keys = Keys(numbers, same) if half == "high" else Keys(same, numbers)
    ids, first = number_keys(np.tile(keys.high, 2), np.tile(keys.low, 2))
    assert ids.tolist() == [*range(60_000)] * 2
    assert first.tolist() == [*range(60_000)]


@ALGORITHMS
def test_skewed_columns_of_hundreds_of_values(algorithm, parameters) -> None:
    """A value in all columns, long columns, prefixes of each other: what small examples do not reach."""
    random = np.random.default_rng(11)
    columns = [frozenset(range(size)) for size in random.integers(1, 400, 150)]
    columns += [frozenset(random.zipf(1.3, size).clip(0, 500).tolist()) | {0} for size in random.integers(1, 60, 500)]
    columns += [frozenset((0, 1000 + n)) for n in range(300)] + [frozenset((0,))] * 50
    sets = sets_of(columns)
    everyone = np.ones(len(columns), bool)
    groups = group_columns(sets, everyone, everyone)
    assert listed(find_inds(groups, sets.keys, algorithm, parameters)) == sorted(brute_force(columns))


def test_candidates_of_a_frequent_value_are_those_of_the_rare_one_beside_it() -> None:
    """A value in 100,000 columns costs nothing where a rare one stands beside it: the candidates are counted."""
    frequent, rare = 7, 100
    sets = sets_of([{frequent, rare + n} for n in range(100_000)] + [{frequent}] * 1_000)
    everyone = np.ones(101_000, bool)
    groups = group_columns(sets, everyone, everyone)
    assert len(groups) == 100_001, "equal columns are one group"
    assert rarest_first.candidate_counts(groups).sum() == 100_000, "those of {7}, no other has one"
    found = list(rarest_first.find_inds(groups))
    assert count_columns(groups, found) == 1_000 * (100_000 + 999)
    assert sum(len(block.dependent) for block in found) == 100_001


@given(columns=COLUMNS, block=st.integers(1, 50))
def test_blocks_are_bounded_and_cover_all(columns, block) -> None:
    sets = sets_of(columns)
    everyone = np.ones(len(columns), bool)
    groups = group_columns(sets, everyone, everyone)
    found = list(rarest_first.find_inds(groups))
    blocks = list(as_columns(groups, found, block))
    assert all(len(inds.dependent) <= block for inds in blocks)
    assert listed(blocks) == sorted(brute_force(columns))
    assert count_columns(groups, found) == len(listed(blocks))


@ALGORITHMS
def test_a_full_block_goes_on_with_the_group_that_had_no_room(algorithm, parameters, monkeypatch) -> None:
    """Blocks with room for the largest answer and no more: 300 columns in a chain, 45,150 INDs between groups."""
    monkeypatch.setattr(rarest_first, "BLOCK", 1)
    monkeypatch.setattr(signatures, "BLOCK", 1)
    columns = [frozenset(range(size)) for size in range(1, 301)]
    sets = sets_of(columns)
    everyone = np.ones(300, bool)
    groups = group_columns(sets, everyone, everyone)
    blocks = list(find_inds(groups, sets.keys, algorithm, parameters, threads=3))
    assert len(blocks) > 100
    assert listed(blocks) == sorted(brute_force(columns))


@given(cost=st.lists(st.integers(0, 50), max_size=60), parts=st.integers(1, 9))
def test_parts_are_half_open_cover_all_and_cost_about_the_same(cost, parts) -> None:
    bounds = equal_cost_parts(np.array(cost, np.int64), parts).tolist()
    assert bounds[0] == 0
    assert bounds[-1] == len(cost)
    assert bounds == sorted(set(bounds))
    assert len(bounds) <= parts + 1
    costs = [one + 1 for one in cost]
    for low, high in pairwise(bounds):
        assert sum(costs[low:high]) <= sum(costs) / parts + max(costs)


def test_the_stream_is_the_same_for_any_number_of_threads() -> None:
    random = np.random.default_rng(3)
    sets = sets_of([set(random.zipf(1.5, 5).clip(0, 99).tolist()) for _ in range(400)])
    everyone = np.ones(400, bool)
    groups = group_columns(sets, everyone, everyone)
    one, three = (
        np.concatenate([np.stack(block) for block in rarest_first.find_inds(groups, threads)], axis=1)
        for threads in (1, 3)
    )
    assert one.tobytes() == three.tobytes()


def test_an_error_in_a_thread_is_the_callers() -> None:
    def fails(first: int, end: int) -> tuple[group_inds.Inds, int]:
        raise MemoryError(f"[{first}:{end})")

    with pytest.raises(MemoryError):
        list(stream(fails, np.ones(10, np.int64), threads=2))


@pytest.mark.parametrize(("coverage", "threshold"), [(0, 0), (2, 1), (Fraction(1, 2), Fraction(3, 2))])
def test_shares_out_of_range_are_refused(coverage, threshold) -> None:
    with pytest.raises(ValueError, match="threshold"):
        group_columns(
            sets_of([]), np.ones(0, bool), np.ones(0, bool), coverage=Fraction(coverage), threshold=Fraction(threshold)
        )


def test_dense_columns_choose_signatures_and_sparse_ones_the_index() -> None:
    everyone = np.ones(4_000, bool)
    random = np.random.default_rng(5)
    dense = group_columns(sets_of([set(random.integers(0, 40, 12).tolist()) for _ in range(4_000)]), everyone, everyone)
    sparse = group_columns(sets_of([{n, n + 1, 5_000 + n} for n in range(4_000)]), everyone, everyone)
    assert choose(dense).algorithm is Algorithm.SIGNATURES
    assert choose(sparse).algorithm is Algorithm.RAREST_FIRST

"""Discovery over partitions by value: the same bytes for any number of them, and what brute force finds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.group_inds import Inds
from service.core.partitioned_inds import (
    Partition,
    Scope,
    find_inds,
    make_partition,
    partition_of,
    propose,
    rarest_overall,
    rarest_values,
)
from service.core.records import Keys
from tests.many import COLUMNS, SHARES, brute_force

PARTITIONS = (1, 2, 7)


def scope_of(columns: Sequence[Iterable[int]], **more: object) -> Scope:
    everyone = np.ones(len(columns), bool)
    sizes = np.array([len(set(column)) for column in columns], np.int64)
    return Scope(**{"sizes": sizes, "dependent": everyone, "referenced": everyone, **more})


def partitions_of(columns: Sequence[Iterable[int]], count: int, scope: Scope, order: int = 0) -> list[Partition]:
    """Cut columns into partitions, their cells in a random order and some of them twice."""
    cells = [(column, value) for column, values in enumerate(columns) for value in values]
    cells += cells[::3]
    np.random.default_rng(order).shuffle(cells)
    column = np.array([cell[0] for cell in cells], np.int32)
    value = np.array([cell[1] for cell in cells], np.uint64)
    keys = Keys(value * np.uint64(0x9E3779B97F4A7C15) % np.uint64(2**40 + 15), value // np.uint64(3))
    owner = partition_of(keys, count)
    return [make_partition(n, column[owner == n], keys.take(owner == n), scope) for n in range(count)]


def listed(inds: Inds) -> list[tuple[int, int, int]]:
    return list(zip(*(side.tolist() for side in inds), strict=True))


@settings(max_examples=60)
@given(
    columns=COLUMNS,
    coverage=SHARES,
    threshold=st.one_of(st.just(Fraction(1)), st.fractions(Fraction(1, 5), 1, max_denominator=7)),
    sides=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=90, max_size=90),
)
def test_partitions_give_the_same_bytes_and_equal_brute_force(columns, coverage, threshold, sides) -> None:
    dependent, referenced = (np.array(side[: len(columns)], bool) for side in zip(*sides, strict=True))
    scope = scope_of(columns, coverage=coverage, threshold=threshold, dependent=dependent, referenced=referenced)
    found = [find_inds(partitions_of(columns, count, scope, order=count), scope) for count in PARTITIONS]
    expected = brute_force(columns, dependent.tolist(), referenced.tolist(), coverage, threshold)
    assert listed(found[0]) == sorted(expected)
    assert len({b"".join(side.tobytes() for side in inds) for inds in found}) == 1


@pytest.mark.parametrize("threshold", [Fraction(1), Fraction(4, 5)])
def test_skewed_columns(threshold: Fraction) -> None:
    random = np.random.default_rng(12)
    columns = [frozenset(random.zipf(1.3, size).clip(0, 300).tolist()) | {0} for size in random.integers(1, 60, 400)]
    columns += [frozenset((0, 1000 + n)) for n in range(200)]
    scope = scope_of(columns, threshold=threshold)
    found = [find_inds(partitions_of(columns, count, scope), scope) for count in PARTITIONS]
    assert listed(found[0]) == sorted(brute_force(columns, threshold=threshold))
    assert len({b"".join(side.tobytes() for side in inds) for inds in found}) == 1


def test_a_value_of_all_columns_is_proposed_from_only_where_nothing_is_rarer() -> None:
    frequent, columns = 3, 50_000
    cells = [{frequent, 10 + n} for n in range(columns)] + [{frequent}]
    scope = scope_of(cells)
    partitions = partitions_of(cells, 7, scope)
    rare = rarest_overall([rarest_values(partition, scope) for partition in partitions], scope)
    assert rare.column.tolist() == [columns], "a column whose rarest value occurs once is done"
    proposed = sum(len(block.referenced) for partition in partitions for block in propose(partition, rare, scope))
    assert proposed == columns
    assert len(find_inds(partitions, scope).dependent) == columns


def test_blocks_of_proposals_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.core.partitioned_inds.BLOCK", 1)
    columns = [frozenset(range(size)) for size in range(1, 120)]
    scope = scope_of(columns)
    for partition in partitions_of(columns, 2, scope):
        rare = rarest_overall([rarest_values(partition, scope)], scope)
        blocks = list(propose(partition, rare, scope))
        assert len(blocks) > 10
        assert max(len(block.referenced) for block in blocks) <= len(columns)
    assert listed(find_inds(partitions_of(columns, 2, scope), scope)) == sorted(brute_force(columns))

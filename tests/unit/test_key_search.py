"""Own the proof that keys of several columns, and their foreign keys, are those that brute force finds."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.foreign_keys.candidates import Candidate, Columns, coefficient
from service.core.key_search import (
    Chunk,
    Chunks,
    Counted,
    Share,
    _combinations,
    _Facts,
    confirm,
    distinct_tuples,
    find_keys,
    tuple_hashes,
)
from service.core.records import UInt64s

Rows = list[tuple[str | None, ...]]

ROWS = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.tuples(*[st.sampled_from(["a", "b", "c", None])] * width), max_size=25)
)


def chunks(rows: Rows, size: int = 7) -> Chunks:
    """Hash rows in chunks of some."""

    def read() -> Iterator[Chunk]:
        for first in range(0, len(rows), size):
            some = rows[first : first + size]
            yield Chunk(
                np.array([[hashed(cell) for cell in row] for row in some], np.uint64),
                np.array([[cell is None for cell in row] for row in some], np.bool_),
            )

    return read


def hashed(cell: str | None) -> int:
    return int.from_bytes(hashlib.sha256(repr(cell).encode()).digest()[:8], "big")


def minimal_keys(rows: Rows, width: int) -> list[Columns]:
    """Find minimal keys by trying all."""
    found: list[Columns] = []
    for level in range(1, width + 1):
        for columns in combinations(range(len(rows[0]) if rows else 0), level):
            tuples = [tuple(row[column] for column in columns) for row in rows]
            is_minimal = not any(set(key) <= set(columns) for key in found)
            if is_minimal and len(set(tuples)) == len(tuples) and not any(None in row for row in tuples):
                found.append(columns)
    return found


@given(ROWS, st.integers(1, 4), st.sampled_from([(2, 5), (100,)]), st.sampled_from([8, 40, 1 << 20]))
def test_keys_are_those_of_brute_force(rows: Rows, width: int, samples: tuple[int, ...], memory: int) -> None:
    """Whatever the sample has seen, and however little memory there is."""
    found = find_keys(chunks(rows), width, memory=memory, samples=samples)
    assert list(found.keys) == minimal_keys(rows, width)
    assert found.is_complete
    assert found.rows == len(rows)


def test_a_search_that_has_tried_enough_says_that_it_is_not_complete() -> None:
    rows: Rows = [tuple(str(number >> bit & 1) for bit in range(6)) for number in range(64)]
    assert not find_keys(chunks(rows), 3, most=10).keys
    limited = find_keys(chunks(rows), 6, most=40)
    assert (limited.rows, limited.keys, limited.tried, limited.is_complete) == (64, (), 40, False)
    whole = find_keys(chunks(rows), 6)
    assert (whole.keys, whole.is_complete) == (((0, 1, 2, 3, 4, 5),), True)
    # Too few values for so many rows are not even tried: of two columns with two values each none can tell 64 apart.
    assert whole.tried < sum(comb(6, level) for level in range(1, 7))


def test_combinations_that_hold_a_key_count_among_those_that_are_tried() -> None:
    """Each of 12 columns is a key with each of 12 others: nearly all combinations of three hold one."""
    rows: Rows = [(*[str(i)] * 12, *[str(j)] * 12) for i in range(30) for j in range(30)]
    pairs = comb(24, 2)
    cut = find_keys(chunks(rows, 900), 3, most=pairs + 2 * comb(12, 3) + 100)
    assert (len(cut.keys), cut.tried, cut.is_complete) == (12 * 12, pairs + 2 * comb(12, 3) + 100, False)
    whole = find_keys(chunks(rows, 900), 3)
    assert (whole.keys, whole.is_complete) == (cut.keys, True)
    # What holds a key in front of its last column is not looked at.
    assert whole.tried == pairs + 2 * comb(12, 3) + comb(12, 2) * 12


def test_columns_of_too_few_values_are_passed_over_together() -> None:
    """Two and a half billion combinations of five out of 200 flags cannot tell 2000 rows apart: none is looked at."""
    looks = 0

    class Distinct(list[float]):
        def __getitem__(self, place: Any) -> Any:
            nonlocal looks
            looks += 1
            assert looks < 1000
            return list.__getitem__(self, place)

    facts = _Facts(2000, np.zeros(200, np.int64), Distinct([2.0] * 200), np.zeros((0, 200), np.uint64))
    assert list(_combinations(range(200), 5, frozenset(), facts)) == []
    several = replace(facts, rows=30)
    assert next(_combinations(range(200), 5, frozenset(), several)) == (0, 1, 2, 3, 4)


def test_a_table_with_a_row_twice_has_no_key() -> None:
    assert find_keys(chunks([("a", "b"), ("a", "b")])).keys == ()
    assert find_keys(chunks([])).keys == ()


def test_many_combinations_are_tried_one_after_the_other() -> None:
    """None is kept that a sample refutes."""
    generator = np.random.default_rng(20261122)
    few = generator.integers(0, 20, (2000, 60)).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    found = find_keys(lambda: iter([Chunk(few, np.zeros(few.shape, np.bool_))]))
    assert (found.keys, found.is_complete) == ((), True)
    assert found.tried > 30_000


@given(ROWS, ROWS, st.sampled_from([0.25, 0.5, 0.9, 1.0]), st.sampled_from([8, 64, 1 << 20]))
def test_coefficients_of_tuples_are_those_of_sets(own: Rows, key: Rows, theta: float, memory: int) -> None:
    """Two tables: columns of the first are 0, 1, ..., those of the second 100, 101, ..."""
    widths = [len(rows[0]) if rows else 0 for rows in (own, key)]
    sides = [
        [tuple(base + column for column in columns) for columns in combinations(range(width), 2)]
        for base, width in zip((0, 100), widths, strict=True)
    ]
    candidates = [Candidate(a[::turn], b) for a in sides[0] for b in sides[1] for turn in (1, -1)]

    def tuples(wanted: Collection[Columns], share: Share) -> Mapping[Columns, UInt64s]:
        found: dict[Columns, UInt64s] = {}
        for base, rows in ((0, own), (100, key)):
            local = [tuple(c - base for c in side) for side in wanted if (side[0] >= 100) == (base == 100)]
            of_table = distinct_tuples(chunks(rows), local, share)
            found |= {tuple(c + base for c in side): of for side, of in of_table.items()}
        return found

    found = confirm(tuples, candidates, lambda side: len(own if side[0] < 100 else key), theta, memory)
    expected = {}
    for candidate in candidates:
        f = [tuple(row[c] for c in candidate.dependent) for row in own]
        p = [tuple(row[c - 100] for c in candidate.referenced) for row in key]
        whole = [[t for t in side if None not in t] for side in (f, p)]
        phi = coefficient(*whole)  # type: ignore[arg-type]
        if whole[0] and phi >= theta:
            expected[candidate] = phi
    assert {candidate: counted.coefficient for candidate, counted in found.items()} == expected


def test_a_sample_that_has_seen_much_refutes_and_one_that_has_seen_little_does_not() -> None:
    assert not Counted(100_000, 80_000).may_reach(0.9, is_all=False)
    assert Counted(10, 8).may_reach(0.9, is_all=False)
    assert not Counted(10, 8).may_reach(0.9, is_all=True)
    assert Counted(10, 9).may_reach(0.9, is_all=True)
    assert not Counted(10, 9).may_reach(1.0, is_all=False)
    assert Counted().may_reach(1.0, is_all=False)
    assert not Counted().may_reach(0.0, is_all=True)


@pytest.mark.parametrize("turned", [(1, 0), (0, 0), (0,)])
def test_the_order_of_columns_counts(turned: Columns) -> None:
    hashes = np.array([[1, 2]], np.uint64)
    assert tuple_hashes(hashes, (0, 1)) != tuple_hashes(hashes, turned)


@pytest.mark.parametrize("memory", [8, 8 * 30, 2 * 8 * 60, 1 << 20])
def test_what_a_sample_leaves_is_counted_in_shares_and_a_few_combinations_at_once(memory: int) -> None:
    """Of 60 rows memory holds one, a half, two combinations, all; two rows differ in the last column only."""
    generator = np.random.default_rng(5)
    rows: Rows = [tuple(map(str, generator.integers(0, 40, 5))) for _ in range(59)]
    rows.append((*rows[0][:4], "else"))
    found = find_keys(chunks(rows), 3, memory=memory, samples=(2,))
    assert list(found.keys) == minimal_keys(rows, 3)
    assert len(found.keys) > 2


@pytest.mark.parametrize("parts", [2, 3])
def test_shares_hold_each_distinct_tuple_once_and_none_with_a_null(parts: int) -> None:
    rows: Rows = [(str(number % 20), str(number % 3)) for number in range(90)] + [("x", None)]
    whole = distinct_tuples(chunks(rows), [(0, 1)], Share(1, 0))[0, 1]
    shares = [distinct_tuples(chunks(rows), [(0, 1)], Share(parts, part))[0, 1] for part in range(parts)]
    assert {of.dtype for of in (whole, *shares)} == {np.dtype(np.uint64)}
    assert sorted(np.concatenate(shares).tolist()) == whole.tolist()
    assert len(whole) == len(set(rows)) - 1
    assert all(len(of) for of in shares)


def test_shares_are_counted_together() -> None:
    counted = Counted()
    for dependent, referenced in (([1, 2, 5], [1, 5, 6]), ([7, 9], [9]), ([], [11])):
        counted.add(np.array(dependent, np.uint64), np.array(referenced, np.uint64))
    assert (counted.distinct, counted.shared, counted.coefficient) == (5, 3, 0.6)

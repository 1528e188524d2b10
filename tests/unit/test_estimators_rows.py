"""Rows of estimates: what each pair alone would say, from every pair that is asked for both ways estimated once."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from service.core.estimators import Column, Overlaps, Stack, all_pairs, estimate, estimate_pairs, rows, stack
from service.core.estimators.prefixes import size_bounds
from service.core.estimators.rows import NEARLY, Wanted, estimate_rows
from tests.columns import column_of

M, N, LEVEL = 8, 30, 0.9
NONE, ALL = np.zeros(N, np.bool_), np.arange(N)


def draw_columns() -> list[Column]:
    """Draw ranges of one list of hashes: of some columns all hashes are known, of some others not even the size."""
    random = np.random.default_rng(7)
    hashes = random.integers(0, 2**64, 8000, np.uint64)
    sizes = np.exp(random.uniform(0, np.log(4000), N)).astype(int)
    firsts = [int(random.choice([0, random.integers(0, 8000 - size)])) for size in sizes]
    columns = [column_of(hashes[at : at + size], M, 64) for at, size in zip(firsts, sizes, strict=True)]
    return [
        one if one.hashes is not None or place % 2 else one._replace(size=one.size * 1.04, is_size_exact=False)
        for place, one in enumerate(columns)
    ]


COLUMNS = draw_columns()
STACK = stack(COLUMNS)
IS_UNSIZED = np.array([not one.is_size_exact for one in COLUMNS])
HAS_PREFIXES = ALL % 11 == 0
IS_LEFT_OUT = ALL % 7 == 0


def is_wanted(x: int, y: int, wanted: Wanted) -> bool:
    """Say of one pair alone whether its coefficient is asked for."""
    if x == y or (wanted.is_left_out[x] and wanted.is_left_out[y]):
        return False
    if wanted.threshold is None:
        return True
    if wanted.is_final(STACK, np.array([x]), np.array([y]))[0]:
        phi = estimate(COLUMNS[x], COLUMNS[y], level=LEVEL).phi
        assert phi is not None
        return phi > 0 and phi >= wanted.threshold - 1e-12
    *_, (overlap,), _, (high,) = estimate_pairs(STACK, np.array([x]), np.array([y]), LEVEL)
    is_possible = overlap > 0 or ((HAS_PREFIXES[x] or HAS_PREFIXES[y]) and high > 0)
    return bool(is_possible and high >= NEARLY * wanted.threshold * COLUMNS[x].size)


@pytest.fixture
def estimated(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Note the pairs that the kernel is asked for."""
    asked: list[tuple[int, int]] = []

    def noting(columns: Stack, x: Any, y: Any, *rest: Any) -> Overlaps:
        asked.extend(zip(x.tolist(), y.tolist(), strict=True))
        return all_pairs.estimate_pairs(columns, x, y, *rest)

    monkeypatch.setattr(rows, "estimate_pairs", noting)
    return asked


SIDES = {
    "all": (ALL, ALL),
    "one against all": (ALL[3:4], ALL),
    "all against one": (ALL[::-1], ALL[3:4]),
    "some that are on both sides": (ALL[20:4:-1], ALL[10:]),
}


@pytest.mark.parametrize("most_kept", [0, 100, 10**6])
@pytest.mark.parametrize("block", [1, 70, 10**6])
@pytest.mark.parametrize("threshold", [None, 0.0, 0.3, 1.0])
@pytest.mark.parametrize("sides", SIDES.values(), ids=SIDES.keys())
def test_rows_are_what_each_pair_alone_says(
    monkeypatch: pytest.MonkeyPatch, sides: Any, threshold: float | None, block: int, most_kept: int
) -> None:
    monkeypatch.setattr(rows, "BLOCK", block)
    monkeypatch.setattr(rows, "MOST_KEPT", most_kept)
    dependents, referenced = sides
    wanted = Wanted(threshold, LEVEL, IS_UNSIZED, HAS_PREFIXES, IS_LEFT_OUT)
    given = list(estimate_rows(STACK, dependents, referenced, wanted))
    assert len(given) == len(dependents)
    found = {}
    for place, row in zip(dependents.tolist(), given, strict=True):
        assert set(row.x.tolist()) <= {place}
        for y, *numbers in zip(*(part.tolist() for part in row[1:]), strict=True):
            assert found.setdefault((place, y), numbers) is numbers, "no pair comes twice"
    pairs = {(x, y) for x in dependents.tolist() for y in referenced.tolist()}
    assert found.keys() == {pair for pair in pairs if is_wanted(*pair, wanted)}
    for (x, y), numbers in found.items():
        alone = estimate_pairs(STACK, np.array([x]), np.array([y]), LEVEL)
        assert numbers == pytest.approx([part[0] for part in alone[2:]])


def test_what_is_final_is_what_the_pair_alone_says_sizes_being_known_or_not() -> None:
    wanted = Wanted(None, LEVEL, IS_UNSIZED, HAS_PREFIXES, NONE)
    kinds = set()
    for row in estimate_rows(STACK, ALL, ALL, wanted):
        is_final = wanted.is_final(STACK, row.x, row.y)
        for x, y, overlap, low, high, is_one_final in zip(*row, is_final, strict=True):
            kinds.add((bool(IS_UNSIZED[x]), bool(IS_UNSIZED[y]), bool(is_one_final)))
            if is_one_final:
                alone = estimate(COLUMNS[x], COLUMNS[y], level=LEVEL)
                least, most = size_bounds(COLUMNS[x], LEVEL)
                ends = min(low / most, alone.phi), max(min(high / least, 1), alone.phi)
                assert (overlap / COLUMNS[x].size, *ends) == pytest.approx(alone[:3])
    final = {(False, False, True), (True, False, True), (False, True, True)}
    assert final <= kinds
    assert (True, True, False) in kinds
    assert (True, True, True) not in kinds


def test_a_pair_is_estimated_once_for_both_ways(
    monkeypatch: pytest.MonkeyPatch, estimated: list[tuple[int, int]]
) -> None:
    monkeypatch.setattr(rows, "BLOCK", 100)
    list(estimate_rows(STACK, ALL, ALL, Wanted(None, LEVEL, NONE, NONE, NONE)))
    assert len(estimated) == N * (N - 1) / 2
    assert {frozenset(pair) for pair in estimated} == {frozenset(pair) for pair in permutations(range(N), 2)}


def test_what_is_not_kept_is_estimated_again(monkeypatch: pytest.MonkeyPatch, estimated: list[tuple[int, int]]) -> None:
    monkeypatch.setattr(rows, "BLOCK", 100)
    monkeypatch.setattr(rows, "MOST_KEPT", 0)
    list(estimate_rows(STACK, ALL, ALL, Wanted(None, LEVEL, NONE, NONE, NONE)))
    assert N * (N - 1) / 2 < len(estimated) < N * (N - 1)


def test_no_dependents_have_no_rows() -> None:
    assert list(estimate_rows(STACK, ALL[:0], ALL, Wanted(0.5, LEVEL, NONE, NONE, NONE))) == []

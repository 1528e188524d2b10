"""Rows of estimates: what each pair alone would say, from every pair that is asked for both ways estimated once."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

from service.core.estimators import Column, Overlaps, Stack, all_pairs, estimate, estimate_pairs, rows, stack
from service.core.estimators.prefixes import size_bounds
from service.core.estimators.rows import NEARLY, THREADS, Wanted, estimate_rows
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
    return bool(is_possible and high / COLUMNS[x].size >= NEARLY * wanted.threshold)


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


@pytest.mark.parametrize(("common", "size"), [(55, 100), (7, 100), (7, 50), (14, 25)])
def test_what_just_reaches_the_threshold_is_given(common: int, size: int) -> None:
    """The threshold times the size is rounded to more than what is in common."""
    assert common / size * size > common
    hashes = np.random.default_rng(common).integers(0, 2**64, 200, np.uint64)
    x, contained = column_of(hashes[:size], M, 200), column_of(hashes[:common], M, 200)
    overlapping = column_of(hashes[size - common :], M, 200)
    wanted = Wanted(common / size, LEVEL, *(np.zeros(3, np.bool_),) * 3)
    (row,) = estimate_rows(stack([x, contained, overlapping]), ALL[:1], ALL[:3], wanted)
    assert sorted(row.y.tolist()) == [1, 2]
    assert row.overlap.tolist() == [common] * 2


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


FEW = 8


class Table:
    """Hold overlaps of a few columns that are written down, in place of the kernel."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.sizes = np.array([2, 8, 10, 40, 40, 90, 100, 400], np.float64)
        random.shuffle(self.sizes)
        most = np.minimum(self.sizes[:, None], self.sizes[None, :])
        share = np.triu(random.choice([0, 0.2, 0.28, 0.5, 0.9, 1], (FEW, FEW)))
        self.overlap = np.round((share + share.T) * most)
        more = random.integers(0, 5, FEW)
        self.high = np.minimum(self.overlap + more[:, None] + more[None, :], most)
        self.flags = random.random((4, FEW)) < 0.3
        self.flags[:2] &= seed > 0
        counts = np.zeros((FEW, 5), np.int64)
        counts[:, 0] = random.choice([0, 15, 16], FEW)  # of 16 registers
        none = np.zeros(0, np.uint64)
        starts = np.zeros(FEW + 1, np.int64)
        self.stack = Stack(np.zeros((FEW, 16), np.uint8), counts, self.sizes, none, starts, self.flags[3])
        self.asked: list[tuple[int, int]] = []
        self.threshold = 0.0

    def wanted(self, threshold: float | None, level: float) -> Wanted:
        return Wanted(threshold, level, *self.flags[:3])

    def estimate(self, columns: Stack, x: Any, y: Any, level: float, threshold: float, threads: int) -> Overlaps:
        """Answer as the kernel does, which leaves out what cannot reach the threshold either way."""
        assert (columns is self.stack, level, threads) == (True, 0.9, THREADS)
        assert threshold == pytest.approx(self.threshold)
        assert (x < y).all()
        self.asked += zip(x.tolist(), y.tolist(), strict=True)
        kept = self.high[x, y] >= threshold * np.minimum(self.sizes[x], self.sizes[y])
        x, y = x[kept], y[kept]
        return Overlaps(x, y, self.overlap[x, y], self.overlap[x, y] - 1, self.high[x, y])

    def is_final(self, x: int, y: int, level: float) -> bool:
        is_unsized, has_prefixes, _, is_complete = self.flags
        if has_prefixes[x] or has_prefixes[y]:
            return False
        if not is_unsized[x] and not is_unsized[y]:
            return True
        for few, many in ((x, y), (y, x)):
            filled = 1 - self.stack.counts[many, 0] / 16
            if is_complete[few] and 4 * self.sizes[few] < self.sizes[many]:
                return bool(self.sizes[few] * filled >= (1 - level) / 2)
        return False

    def can_reach(self, x: int, y: int, threshold: float | None) -> bool:
        nearly = NEARLY if self.flags[0, x] or self.flags[0, y] else 1.0
        return bool(self.sizes[y] >= (threshold or 0) * nearly * self.sizes[x])

    def reaches(self, x: int, y: int, threshold: float | None, level: float) -> bool:
        if threshold is None:
            return True
        if not (self.overlap[x, y] > 0 or self.flags[1, x] or self.flags[1, y]):
            return False
        if self.is_final(x, y, level):
            return bool(self.overlap[x, y] > 0 and self.overlap[x, y] >= threshold * self.sizes[x])
        return bool(self.high[x, y] > 0 and self.high[x, y] >= NEARLY * threshold * self.sizes[x])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("threshold", [None, 0.0, 0.25, 1.0])
def test_of_few_columns_whose_overlaps_are_written_down_each_row_has_what_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, seed: int, threshold: float | None
) -> None:
    table, random = Table(seed), np.random.default_rng(seed)
    monkeypatch.setattr(rows, "estimate_pairs", table.estimate)
    x, y = np.array(list(product(range(FEW), repeat=2))).T
    for level in (0.9, 0.1):
        wanted = table.wanted(threshold, level)
        found = Overlaps(x, y, table.overlap[x, y], table.overlap[x, y] - 1, table.high[x, y])
        pairs = list(zip(x.tolist(), y.tolist(), strict=True))
        assert wanted.is_final(table.stack, x, y).tolist() == [table.is_final(*pair, level) for pair in pairs]
        assert wanted.can_reach(table.stack, x, y).tolist() == [table.can_reach(*pair, threshold) for pair in pairs]
        assert wanted.reaches(table.stack, found).tolist() == [table.reaches(*p, threshold, level) for p in pairs]
    wanted = table.wanted(threshold, 0.9)
    table.threshold = (threshold or 0) * (NEARLY if table.flags[:2].any() else 1)
    left_out = table.flags[2]
    for block, most_kept, count in product((1, 13, 10**6), (0, 5, 10**6), (3, FEW)):
        monkeypatch.setattr(rows, "BLOCK", block)
        monkeypatch.setattr(rows, "MOST_KEPT", most_kept)
        table.asked.clear()
        dependents, referenced = random.permutation(FEW)[:count], random.permutation(FEW)[:6]
        given = list(estimate_rows(table.stack, dependents, referenced, wanted))
        assert len(given) == len(dependents)
        for dependent, row in zip(dependents.tolist(), given, strict=True):
            assert set(row.x.tolist()) <= {dependent}
            others = [o for o in referenced.tolist() if o != dependent and not (left_out[o] and left_out[dependent])]
            reaching = {o for o in others if table.reaches(dependent, o, threshold, 0.9)}
            sure = {o for o in reaching if table.can_reach(dependent, o, threshold)}
            assert sure <= set(row.y.tolist()) <= reaching
            assert len(set(row.y.tolist())) == len(row.y)
            assert row.overlap.tolist() == table.overlap[dependent, row.y].tolist()
            assert row.low.tolist() == (table.overlap[dependent, row.y] - 1).tolist()
            assert row.high.tolist() == table.high[dependent, row.y].tolist()
        if most_kept == 10**6:
            assert len(set(table.asked)) == len(table.asked), "each pair once, also when asked for both ways"

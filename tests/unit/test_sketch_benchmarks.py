"""What the benchmarks of estimators measure is right: made columns, overlaps, bins and their judgement, deletions."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.column_hashes import ColumnHashes, overlaps
from benchmarks.equal_memory import KEPT, K, absolute_errors, column
from benchmarks.made_columns import Pair, as_kept, draw_pair, hash_range, registers_of
from benchmarks.results_file import Result
from benchmarks.rows.estimator_coverage import Intervals
from benchmarks.rows.estimator_error import THRESHOLD, bins_of, compare, kinds
from service.core.sketches.bottom_k import BottomK
from service.core.sketches.heaps import HllHeaps


@given(st.integers(1, 300), st.integers(1, 300), st.floats(0, 1), st.integers(0, 2**63 - 1))
def test_a_made_pair_has_the_sizes_and_the_overlap_that_it_says(x: int, y: int, share: float, domain: int) -> None:
    pair = Pair(domain, x, y, round(share * min(x, y)))
    of_x, of_y = (set(hashes.tolist()) for hashes in pair.hashes())
    assert (len(of_x), len(of_y), len(of_x & of_y)) == (x, y, pair.common)
    assert pair.phi == len(of_x & of_y) / len(of_x)


def test_drawn_pairs_are_of_all_shapes() -> None:
    rng = np.random.default_rng(1)
    pairs = [draw_pair(rng, 1, 10_000) for _ in range(400)]
    assert all(1 <= size <= 10_000 for pair in pairs for size in (pair.x, pair.y))
    assert all(0 <= pair.common <= min(pair.x, pair.y) for pair in pairs)
    assert {pair.common in (0, min(pair.x, pair.y)) for pair in pairs} == {True, False}


def test_a_column_is_made_as_a_state_keeps_it() -> None:
    hashes = hash_range(7, 0, 500)
    kept, large = as_kept(hashes, 6, 500, 20), as_kept(hashes, 6, 499, 20)
    assert kept.hashes is not None
    assert kept.hashes.tolist() == sorted(hashes.tolist())
    assert large.hashes is None
    assert large.bottom is not None
    assert large.bottom.tolist() == sorted(hashes.tolist())[:20]
    assert (large.size, large.is_size_exact) == (500, True)
    alone = registers_of(large)
    assert (alone.hashes, alone.bottom, alone.is_size_exact) == (None, None, False)
    assert alone.size == pytest.approx(500, rel=0.3)


columns_of_hashes = st.lists(st.sets(st.integers(0, 30), min_size=1), min_size=1, max_size=6)


@given(columns_of_hashes)
def test_overlaps_are_those_of_sets(sets: list[set[int]]) -> None:
    found = overlaps([np.array(sorted(one), np.uint64) for one in sets])
    assert found.tolist() == [[len(one & other) for other in sets] for one in sets]


def made_body() -> ColumnHashes:
    """Make columns of two tables: ranges of one domain, two of them large."""
    ranges = [(0, 100), (0, 6000), (50, 150), (10, 30), (3000, 9000), (5000, 5100)]
    hashes = [np.sort(hash_range(1, first, last)) for first, last in ranges]
    return ColumnHashes([f"t{place // 3}.c{place}" for place in range(6)], hashes, overlaps(hashes))


def test_pairs_are_apart_by_size_and_in_the_bin_of_their_coefficient() -> None:
    body = made_body()
    found = dict(kinds(body))
    assert sum(len(x) for x, _ in found.values()) == 2 * 3 * 3, "both orders of the pairs of different tables"
    for kind, pairs in found.items():
        large = (body.sizes[pairs[0]] > THRESHOLD).astype(int) + (body.sizes[pairs[1]] > THRESHOLD)
        assert set(large.tolist()) == {{"both large": 2, "one large": 1, "none large": 0}[kind]}
        bins = list(bins_of(body, pairs, 100, np.random.default_rng(1), least=1))
        assert sum(one.total for one in bins) == sum(len(one.x) for one in bins) == len(pairs[0])
        for one in bins:
            low, high = map(float, one.name.split("-"))
            assert one.phi.tolist() == [
                len(np.intersect1d(body.hashes[a], body.hashes[b])) / len(body.hashes[a])
                for a, b in zip(one.x, one.y, strict=True)
            ]
            assert ((one.phi >= low) & ((one.phi < high) | (high == 1))).all()


def test_a_bin_gives_no_more_pairs_than_asked_and_none_when_it_has_too_few() -> None:
    body = made_body()
    pairs = dict(kinds(body))["none large"]
    (first, *_) = bins_of(body, pairs, 1, np.random.default_rng(1), least=1)
    assert (len(first.x), first.total > 4) == (4, True), "four times as many in the lowest bin"
    assert not list(bins_of(body, pairs, 1, np.random.default_rng(1), least=100))


def beside_bottom_k(ours: list[float], theirs: list[float]) -> tuple[Result, Result]:
    """Give the error in the worst bin, and where that bin begins."""
    bins = [f"0.{place}-0.{place + 1}" for place in range(len(ours))]
    errors = {"estimated": ours, "bottom-k": theirs, "bml": [1.0] * len(ours), KEPT: [0.5] * len(ours)}
    found = {(one.metric, one.baseline): one for one in compare("none large", bins, errors)}
    return (
        found["none large, worst bin: estimated", "bottom-k"],
        found["none large, worst bin: least Φ, beside bottom-k", None],
    )


def test_an_estimator_is_judged_by_the_bin_where_it_is_worst_beside_the_other() -> None:
    error, least = beside_bottom_k([0.0, 0.02, 0.03], [0.0, 0.01, 0.03])
    assert (error.ratio, error.holds, least.value) == (2, False, 0.1)
    assert beside_bottom_k([0.0, 0.0], [0.0, 0.01])[0].holds, "a bin in which neither errs says nothing"
    assert not beside_bottom_k([0.1, 0.0], [0.0, 0.01])[0].holds, "one in which only we do is lost"


def test_a_column_of_more_hashes_than_its_memory_has_is_known_by_what_fits() -> None:
    hashes = np.sort(hash_range(3, 0, 20_000))
    bottom = column("bottom-k", hashes)
    assert bottom.hashes is None
    assert bottom.bottom is not None
    assert len(bottom.bottom) == K
    assert not bottom.is_size_exact
    assert bottom.size == pytest.approx(20_000, rel=0.1)
    kept = column(KEPT, hashes)
    assert (kept.bucket_bits, kept.size, kept.is_size_exact, kept.prefixes) == (13, 20_000, True, None)
    assert kept.bottom is not None
    assert kept.bottom.tolist() == hashes[:2048].tolist()
    prefixes = column("estimated", hashes)
    assert prefixes.prefixes is not None
    pair = np.array([0]), np.array([1]), np.array([1.0])
    assert absolute_errors(KEPT, [kept, kept], *pair).tolist() == pytest.approx([0], abs=0.01)
    few = column("estimated", hashes[:K])
    assert absolute_errors("estimated", [few, few], np.array([0]), np.array([1]), np.array([1.0])).tolist() == [0.0]


def test_coverage_is_the_share_of_intervals_that_hold_the_coefficient() -> None:
    collected = Intervals()
    for is_inside, width in ((True, 0.1), (True, 0.2), (False, 0.6), (True, 0.1)):
        collected.append(is_inside, width)
    values = {result.metric: result.value for result in collected.results("one")}
    assert values == pytest.approx(
        {"one: pairs": 4, "one: covered": 0.75, "one: mean width": 0.25, "one: median width": 0.15}
    )


@pytest.fixture
def report_data(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import what the report measures, without the peers, which are not among the project's packages."""
    peers = ModuleType("datasketches")
    monkeypatch.setitem(sys.modules, "datasketches", peers)
    for name in ("benchmarks.sketch_peers", "benchmarks.sketch_report_data"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import benchmarks.sketch_report_data as module

    return module


def test_what_is_deleted_leaves_the_sketches_of_the_rest(report_data: ModuleType) -> None:
    shrinking = report_data.Shrinking(hash_range(5, 0, 6000), np.random.default_rng(2))
    shrinking.shrink_to(0.9)
    shrinking.shrink_to(0.25)
    left = shrinking.left
    assert len(left) == 1500
    heaps, bottom = HllHeaps(13), BottomK(K, 512)
    heaps.update(left)
    bottom.update(left)
    assert shrinking.heaps.to_bytes() == heaps.to_bytes()
    assert shrinking.small.hashes.tolist() == [h for h in left.tolist() if h < shrinking.small.bound]
    assert shrinking.rescanned.hashes.tolist() == bottom.hashes.tolist()
    assert shrinking.read_again > 1500
    assert shrinking.column(report_data.HEAPS).size == 1500
    assert shrinking.equal.k == shrinking.size // 8
    assert shrinking.equal.hashes.tolist() == [h for h in left.tolist() if h < shrinking.equal.bound]
    kept = shrinking.column(report_data.KEPT)
    assert (kept.size, kept.is_size_exact) == (1500, True)
    assert kept.registers.tolist() == heaps.registers.tolist()
    assert not shrinking.rescanned.needs_rescan
    assert set(shrinking.seconds) == set(report_data.FOLLOWING)
    assert min(shrinking.seconds.values()) > 0


def test_a_mean_counts_each_pair_as_often_as_it_stands_for(report_data: ModuleType) -> None:
    ones = np.ones(3, np.int64)
    measured = report_data.Measured(np.zeros(3), ones, ones, np.array([1.0, 1, 8]), {"a": np.array([1.0, 0, 0.5])}, {})
    assert measured.mean("a") == pytest.approx(0.5)
    assert measured.mean("a", np.array([True, True, False])) == 0.5
    assert np.isnan(measured.mean("a", np.zeros(3, np.bool_)))

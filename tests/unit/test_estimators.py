"""Estimates of inclusion coefficients as callers meet them: every method, every shape of pair, every refusal."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.errors import SketchError
from service.core.estimators import METHODS, Column, Estimate, estimate, joint, lacks, unsized
from service.core.estimators.bottom_k import Sample, sample_union
from service.core.estimators.curve import cut
from service.core.estimators.estimate import _ESTIMATORS, NO_VALUES
from service.core.estimators.registers import count_greater
from service.core.estimators.tails import likelihood_drop
from tests.columns import column_of, draw_pair

EACH_METHOD = pytest.mark.parametrize("method", METHODS)
EMPTY = Column(np.zeros(1 << 10, np.uint8), 0, True, np.zeros(0, np.uint64), None)


@EACH_METHOD
def test_an_empty_column_has_no_coefficient_and_contains_nothing(method: str) -> None:
    x, _ = draw_pair(1, 3000, 1, 0, 10, 64)
    undefined = estimate(EMPTY, x, method)
    assert undefined.phi is None
    assert undefined.reason is not None
    assert "no values" in undefined.reason
    assert estimate(x, EMPTY, method)[:3] == (0, 0, 0)


@EACH_METHOD
@pytest.mark.parametrize("size", [1, 40, 5000])
def test_a_column_is_in_itself(method: str, size: int) -> None:
    x, _ = draw_pair(size, size, 1, 0, 10, 64)
    found = estimate(x, x, method)
    assert found.phi == 1
    assert found.high == 1


@EACH_METHOD
@pytest.mark.parametrize("m", [0, 1, 5])
def test_few_buckets_say_little_but_never_fail(method: str, m: int) -> None:
    x, y = draw_pair(3, 2000, 3000, 500, m, 16)
    found = estimate(x, y, method)
    assert found.phi is not None
    assert 0 <= found.low <= found.phi <= found.high <= 1


@EACH_METHOD
def test_full_registers_say_nothing_but_never_fail(method: str) -> None:
    full = Column(np.full(1 << 8, 64 - 8 + 1, np.uint8), 1e6, True, None, np.arange(16, dtype=np.uint64))
    _, y = draw_pair(3, 1, 3000, 0, 8, 16)
    for found in (estimate(full, full, method), estimate(full, y, method), estimate(y, full, method)):
        assert found.phi is not None
        assert 0 <= found.low <= found.phi <= found.high <= 1


def test_columns_whose_hashes_are_all_known_are_compared_exactly() -> None:
    x, y = draw_pair(5, 50, 60, 20, 6, 64)
    assert estimate(x, y)[:3] == (20 / 50, 20 / 50, 20 / 50)
    assert estimate(y, x)[:3] == (20 / 60, 20 / 60, 20 / 60)


@pytest.mark.parametrize("held", [(40, 200), (200, 40), (40, 1000), (1000, 40)])
def test_a_sample_of_two_columns_is_the_smallest_of_their_union(held: tuple[int, int]) -> None:
    """Of columns that hold differently many, as they do after removing, the shorter says how far it goes."""
    hashes = np.random.default_rng(8).integers(0, 2**64, 900, np.uint64)
    of_x, of_y = hashes[:600], hashes[300:]
    sample = sample_union(column_of(of_x, 6, held[0]), column_of(of_y, 6, held[1]))
    smallest = {*np.sort(hashes)[:40].tolist()}
    in_x, in_y = smallest & {*of_x.tolist()}, smallest & {*of_y.tolist()}
    assert sample == Sample(len(in_x), len(in_y), len(in_x & in_y), is_complete=False)


@pytest.mark.parametrize("common", [0, 100, 1500, 2400, 2500])
def test_smallest_hashes_beside_the_registers_make_an_estimate_better(common: int) -> None:
    nx, ny, errors, missed = 2500, 3000, np.zeros(2), 0
    for seed in range(40):
        x, y = draw_pair(seed, nx, ny, common, 8, 1500)
        found = estimate(x, y)
        assert found.phi is not None
        bare = estimate(x._replace(bottom=None), y).phi
        assert bare is not None
        errors += abs(found.phi - common / nx), abs(bare - common / nx)
        missed += not found.low <= common / nx <= found.high
    assert errors[0] <= 0.8 * errors[1], "half of all buckets are known exactly"
    assert missed <= 6, "2 are expected"


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.tuples(st.integers(1, 6000), st.integers(1, 6000)),
    share=st.sampled_from([0, 0.01, 0.5, 0.99, 1]),
    ms=st.tuples(st.integers(3, 12), st.integers(3, 12)),
    method=st.sampled_from(METHODS),
    level=st.sampled_from([0.5, 0.95, 0.999]),
)
def test_every_estimate_is_in_its_interval_and_that_within_what_is_possible(
    seed: int, sizes: tuple[int, int], share: float, ms: tuple[int, int], method: str, level: float
) -> None:
    common = round(share * min(sizes))
    hashes = np.random.default_rng(seed).integers(0, 2**64, sum(sizes) - common, np.uint64)
    x, y = column_of(hashes[: sizes[0]], ms[0], 256), column_of(hashes[sizes[0] - common :], ms[1], 256)
    found, narrower = estimate(x, y, method, level), estimate(x, y, method, level / 2)
    assert found.phi is not None
    assert 0 <= found.low <= found.phi <= found.high <= 1
    assert found.high - found.low >= narrower.high - narrower.low
    if method != "bml":  # which knows sizes by its sketches alone
        assert found.high <= min(sizes) / sizes[0] + 1e-9


@pytest.mark.parametrize("method", METHODS)
def test_the_level_nearest_to_1_has_an_interval(method: str) -> None:
    x, y = draw_pair(5, 500, 600, 20, 6, 30)
    x = x._replace(is_size_exact=False)
    wide, usual = estimate(x, y, method, 1 - 2**-53), estimate(x, y, method)
    assert wide.low <= usual.low <= usual.high <= wide.high


@pytest.mark.parametrize("method", METHODS)
def test_the_level_nearest_to_0_has_an_interval(method: str) -> None:
    x, y = draw_pair(5, 500, 600, 20, 6, 30)
    x = x._replace(is_size_exact=False)
    narrow, usual = estimate(x, y, method, 5e-324), estimate(x, y, method)
    assert narrow.phi is not None
    assert usual.low <= narrow.low <= narrow.phi <= narrow.high <= usual.high


def test_what_cannot_be_estimated_is_refused_by_name() -> None:
    x, y = draw_pair(5, 500, 600, 20, 6)
    with pytest.raises(SketchError, match="unknown method 'best'; choose one of bml"):
        estimate(x, y, "best")
    with pytest.raises(SketchError, match="between 0 and 1, not 95"):
        estimate(x, y, level=95)
    with pytest.raises(SketchError, match="bottom-k needs the smallest hashes"):
        estimate(x, y, "bottom-k")
    with pytest.raises(SketchError, match=r"registers are uint8\[2\^m\], not uint8\[63\]"):
        estimate(x._replace(registers=x.registers[1:]), y)
    with pytest.raises(SketchError, match="at most 59, not 60"):
        estimate(x._replace(registers=np.full(64, 60, np.uint8)), y)
    with pytest.raises(SketchError, match="a number of values, not nan"):
        estimate(x._replace(size=float("nan")), y)


@EACH_METHOD
def test_of_a_column_without_values_all_is_said(method: str) -> None:
    x = column_of(np.arange(5, dtype=np.uint64), 10, 64)
    assert estimate(EMPTY, x, method, 0.9) == Estimate(None, 0, 0, method, 0.9, NO_VALUES)
    assert estimate(x, EMPTY, method, 0.9) == Estimate(0, 0, 0, method, 0.9)
    assert (lacks(x, method), lacks(x._replace(hashes=None), method)) == (None, None)
    assert (lacks(x._replace(hashes=None, bottom=None), method) is None) == (method != "bottom-k")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((0.5, 0.2, 0.8), (0.5, 0.2, 0.8)),
        ((0.5, -0.1, 1.7), (0.5, 0, 1)),
        ((0.5, 0.6, 0.4), (0.5, 0.5, 0.5)),
        ((1 - 1e-13, 0.2, 0.7), (1, 0.2, 1)),
        ((1 - 1e-11, 0.2, 0.7), (1 - 1e-11, 0.2, 1 - 1e-11)),
        ((1.5, 1.2, 1.7), (1, 1, 1)),
    ],
)
def test_an_estimate_is_rounded_to_1_and_its_interval_holds_it(
    monkeypatch: pytest.MonkeyPatch, given: tuple[float, float, float], said: tuple[float, float, float]
) -> None:
    monkeypatch.setitem(_ESTIMATORS, "bml", lambda x, y, level: given)
    x = column_of(np.arange(5, dtype=np.uint64), 4)
    assert estimate(x, x, "bml", 0.9) == Estimate(*said, "bml", 0.9)


@pytest.mark.parametrize("is_exact", [(True, True), (True, False), (False, True), (False, False)])
def test_the_joint_likelihood_is_cut_in_values_of_the_dependent_column(is_exact: tuple[bool, bool]) -> None:
    x, y = (
        of._replace(size=size, is_size_exact=exact)
        for of, size, exact in zip(draw_pair(4, 40, 60, 20, 6), (40.0, 60.0), is_exact, strict=True)
    )
    found, drop = estimate(x, y, "joint-mle", 0.9), likelihood_drop(0.9)
    if all(is_exact):
        curve = joint.trace(joint.pair_of(40, 60, count_greater(x.registers, y.registers), 1 / 64, 59))
        low, high = cut(curve, drop)
        ends = float(np.floor(low)) / 40, min(float(np.ceil(high)), 40) / 40
    else:
        known = [of.size if exact else 0 for of, exact in zip((x, y), is_exact, strict=True)]
        curve = unsized.trace(40.0, 60.0, unsized.observe(x.registers, y.registers, *known))
        ends = tuple(end / 40 for end in cut(curve, drop))
    assert 0 < curve.best < 40
    assert found == Estimate(curve.best / 40, *ends, "joint-mle", 0.9)

"""Intervals and medians from a dozen points of a likelihood, against the whole of it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from service.core.estimators import joint
from service.core.estimators.best import prior_of
from service.core.estimators.curve import Curve, Prior, cut, posterior_median
from service.core.estimators.model import Float64s
from service.core.estimators.registers import count_greater
from service.core.sketches.hashing import most_rho
from tests.columns import draw_pair

DROP = 1.92


def curve_of(points: Float64s, values: Float64s, largest: float) -> Curve:
    return Curve(points, np.maximum(values - values.max(), -745), float(points[values.argmax()]), largest)


def test_a_normal_likelihood_has_the_interval_and_median_of_its_formula() -> None:
    points = 400 + 10 * np.linspace(-5.3, 5.3, 13)
    curve = curve_of(points, -(((points - 400) / 10) ** 2) / 2, 1000)
    assert cut(curve, DROP) == pytest.approx((400 - 10 * math.sqrt(2 * DROP), 400 + 10 * math.sqrt(2 * DROP)))
    assert posterior_median(curve, Prior(0.5, 0.2, 0.3, 0, 0)) == pytest.approx(400, abs=0.05)


def test_an_exponential_likelihood_at_a_border_has_the_cut_of_its_formula() -> None:
    points = np.linspace(0, 15, 13)
    assert cut(curve_of(points, -points, 1000), DROP) == pytest.approx((0, DROP))
    assert cut(curve_of(1000 - points[::-1], -points[::-1], 1000), DROP) == pytest.approx((1000 - DROP, 1000))


@pytest.mark.parametrize("drop", [1e-18, 1e-13, 1e-11, 1e-9])
def test_a_narrow_cut_is_beside_a_maximum_that_is_a_little_below_the_height(drop: float) -> None:
    points = np.linspace(0, 7, 8)
    for values in (-points, -points[::-1], -np.abs(points - 3)):
        best = float(points[values.argmax()])
        low, high = cut(Curve(points, values - 5e-12, best, 7), drop)
        assert (low, high) == pytest.approx((best, best), abs=1e-6)
        assert low <= best <= high


def test_a_likelihood_that_tells_nothing_leaves_everything_possible() -> None:
    curve = curve_of(np.linspace(0, 7, 8), np.zeros(8), 7)
    assert cut(curve, DROP) == (0, 7)
    assert posterior_median(curve, Prior(0.6, 0.1, 0.1, 0.1, 0.1)) == 0
    assert posterior_median(curve, Prior(0.1, 0.6, 0.1, 0.1, 0.1)) == 7
    assert 0 < posterior_median(curve, Prior(0.3, 0.3, 0.4, 0, 0)) < 7


@pytest.mark.parametrize(
    ("nx", "ny", "common"),
    [(900, 900, 900), (900, 5000, 880), (900, 5000, 0), (900, 5000, 30), (20_000, 900, 400), (5000, 5000, 2500)],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_few_points_tell_what_the_whole_curve_tells(nx: int, ny: int, common: int, seed: int) -> None:
    m, largest = 9, float(min(nx, ny))
    x, y = draw_pair(seed, nx, ny, common, m)
    pair = joint.pair_of(nx, ny, count_greater(x.registers, y.registers), 2.0**-m, most_rho(m))
    few = joint.trace(pair)
    # The stretch between the maximum and an end is linear: take it from the curve itself.
    points = np.linspace(few.points[0], few.points[-1], 4001)
    heights = np.array([joint.evaluate(t, pair)[0] for t in points]) - joint.evaluate(few.best, pair)[0]
    at = np.array([joint.evaluate(t, pair)[0] for t in few.points]) - joint.evaluate(few.best, pair)[0]
    known = (at < -1e-9) & (few.values > -700)
    stretch = np.interp(points, few.points[known], (few.values / np.where(known, at, -1.0))[known])
    whole = curve_of(points, heights * stretch, largest)
    width = few.points[-1] - few.points[0]
    assert cut(few, DROP) == pytest.approx(cut(whole, DROP), abs=0.02 * width)
    assert posterior_median(few, prior_of(largest)) == pytest.approx(
        posterior_median(whole, prior_of(largest)), abs=0.02 * width
    )

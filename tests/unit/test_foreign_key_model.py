"""The additive ranking: steps by hand, JSON there and back, and a fit that is what was fitted."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fk_data import Database
from benchmarks.fk_learning import Pairs, fit
from service.core.foreign_keys.candidates import Candidate
from service.core.foreign_keys.features import FALLING, RISING
from service.core.foreign_keys.key_choice import CHANCES
from service.core.foreign_keys.model import AdditiveModel, KeyChoice, SecondLook, Steps, fitted

FINITE = st.floats(-1e6, 1e6)


def test_a_step_holds_up_to_its_edge() -> None:
    steps = Steps((0.0, 1.0), (-2.0, 0.5, 3.0))
    assert steps(np.array([-5, 0, 0.1, 1, 1.1])).tolist() == [-2, -2, 0.5, 0.5, 3]


@pytest.mark.parametrize("edge", [1 / 3, np.nextafter(1 / 3, 1), np.nextafter(1 / 3, 0)])
def test_the_last_bits_of_a_value_that_processors_add_up_otherwise_are_no_step(edge: float) -> None:
    steps = Steps((edge,), (-2.0, 3.0))
    assert steps(np.array([1 / 3, np.nextafter(1 / 3, 1), np.nextafter(1 / 3, 0), 0.33334])).tolist() == [-2, -2, -2, 3]


@pytest.mark.parametrize(
    ("edges", "scores"), [((1.0,), (1.0,)), ((1.0, 1.0), (1.0, 2.0, 3.0)), ((2.0, 1.0), (1, 2, 3))]
)
def test_steps_that_do_not_ascend_are_refused(edges: tuple[float, ...], scores: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="ascending edges"):
        Steps(edges, scores)


def test_a_probability_is_explained_by_its_terms() -> None:
    model = AdditiveModel(-1.0, {"name": Steps((0.5,), (-2.0, 2.0)), "coverage": Steps((0.2,), (0.0, 1.0))})
    features = {"name": np.array([0.9, 0.1]), "coverage": np.array([1.0, 0.1])}
    assert {name: terms.tolist() for name, terms in model.terms(features).items()} == {
        "name": [2, -2],
        "coverage": [1, 0],
    }
    assert model.probability(features) == pytest.approx([1 / (1 + np.exp(-2)), 1 / (1 + np.exp(3))])
    with pytest.raises(KeyError):
        model.probability({"name": np.array([1.0])})


@given(
    st.dictionaries(st.text(max_size=5), st.lists(FINITE, unique=True, max_size=5).map(sorted), max_size=4),
    FINITE,
    st.none() | st.builds(SecondLook, FINITE, FINITE, st.dictionaries(st.text(max_size=5), FINITE, max_size=3)),
    st.none() | st.builds(KeyChoice, st.dictionaries(st.text(max_size=5), FINITE, max_size=3), FINITE, FINITE),
)
def test_a_model_is_the_same_after_json(
    edges: dict[str, list[float]], intercept: float, second: SecondLook | None, choice: KeyChoice | None
) -> None:
    steps = {name: Steps(tuple(of), tuple(map(float, range(len(of) + 1)))) for name, of in edges.items()}
    model = AdditiveModel(intercept, steps, 0.3, ("shop",), second, choice)
    for served in (model, replace(model, beside=model)):
        assert AdditiveModel.from_dict(json.loads(json.dumps(served.as_dict()))) == served


@pytest.mark.parametrize("declared", [True, False])
def test_a_second_look_trusts_columns_of_one_name_and_doubts_who_is_referred_to(declared: bool) -> None:
    second = fitted("combined", declared).second
    assert second
    assert (second.weights["agreement"] > 0, second.weights["referred"] < 0, second.stretch > 0) == (True, True, True)
    assert [fitted(name, declared).second for name in ("nameless", "rostin")] == [None, None]


@pytest.mark.parametrize("text", ["{}", "[]", '{"intercept": 0, "data": [], "steps": {"a": {"edges": [1]}}}'])
def test_what_is_no_model_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no additive model"):
        AdditiveModel.from_dict(json.loads(text))


def test_a_value_that_is_not_known_says_nothing() -> None:
    assert Steps((0.0,), (-2.0, 2.0))(np.array([np.nan, 1.0])).tolist() == [0, 2]


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("name", ["combined", "nameless", "rostin"])
def test_the_fitted_models_are_monotone_and_name_their_data(name: str, declared: bool) -> None:
    model = fitted(name, declared)
    assert 0 < model.threshold < 1
    assert {"chinook", "mondial", "pokedex"} <= set(model.data)
    for feature, steps in [*model.steps.items(), *(model.beside.steps.items() if model.beside else ())]:
        rises = np.diff(steps.scores)
        assert feature not in {*RISING, *CHANCES} or (rises >= 0).all(), feature
        assert feature not in FALLING or (rises <= 0).all(), feature


def test_a_fit_is_monotone_where_it_must_be_and_finds_what_decides() -> None:
    """Four databases where the name decides and the distance is noise; the fit checks its steps against the stumps."""
    draw = np.random.default_rng(4)
    assert "evidence" in RISING
    assert "distance" in FALLING
    found = []
    for number in range(4):
        features = {name: draw.random(200) for name in ("evidence", "distance", "nulls")}
        candidates = tuple(Candidate((i,), (1000,)) for i in range(200))
        database = Database(f"made {number}", [], [], [])
        found.append(Pairs(database, candidates, features, {}, {}, features["evidence"] > 0.7))
    model = fit(found, lambda of: of.features)
    assert model.data == ("made 0", "made 1", "made 2", "made 3")
    assert list(np.diff(model.steps["evidence"].scores) >= 0) == [True] * len(model.steps["evidence"].edges)
    if "distance" in model.steps:
        assert all(np.diff(model.steps["distance"].scores) <= 0)
    of_values = np.array([0.3, 0.9])
    low, high = model.probability({"evidence": of_values, "distance": np.full(2, 0.5), "nulls": np.full(2, 0.5)})
    assert low < 0.05
    assert high > 0.95

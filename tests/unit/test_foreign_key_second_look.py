"""The second look at scored candidates: against its definition word for word, and what is learnt of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fk_data import Database
from benchmarks.fk_learning import Pairs, look_again
from service.core.foreign_keys.candidates import Candidate
from service.core.foreign_keys.features import Pair
from service.core.foreign_keys.model import AdditiveModel, SecondLook, Steps, probability
from service.core.foreign_keys.names import Tokens
from service.core.foreign_keys.second_look import Scored, among_scores, score

SCORES = st.dictionaries(
    st.tuples(st.integers(0, 9), st.integers(5, 14)).filter(lambda pair: pair[0] != pair[1]), st.floats(0, 1)
)
NAMES = st.lists(st.sampled_from([(), ("id",), ("owner", "id"), ("code",)]), min_size=15, max_size=15)


def agreement(scores: dict[Pair, float], names: list[Tokens], a: int, b: int) -> float:
    others = {x for x, _ in scores if x != a and names[x] == names[a]} if names[a] else set()
    if not others:
        return 0.0
    keys = {y for x, y in scores if x in {a, *others}}
    means = {y: sum(scores.get((x, y), 0.0) for x in others) / len(others) for y in keys}
    rival = max((of for y, of in means.items() if y != b), default=0.0)
    return (means[b] - rival) * len(others) / (len(others) + 1)


@given(SCORES, NAMES)
def test_what_scores_say_of_each_other_is_as_defined(scores: dict[Pair, float], names: list[Tokens]) -> None:
    found = among_scores(list(scores), dict(enumerate(names)), np.array(list(scores.values())))
    assert found["agreement"] == pytest.approx([agreement(scores, names, a, b) for a, b in scores], abs=1e-12)
    assert found["referred"].tolist() == [
        max((of for (_, y), of in scores.items() if y == a), default=0.0) for a, _ in scores
    ]


STEPS = {"evidence": Steps((0.5,), (-2.0, 2.0))}
PAIRS = [(1, 10), (1, 11), (2, 10), (2, 11), (3, 11)]
EVIDENCE = {"evidence": np.array([0.9, 0.1, 0.1, 0.1, 0.1])}
WORDS: dict[int, Tokens] = {1: ("owner",), 2: ("owner",), 3: ("size",)}


def test_a_score_of_the_second_look_is_explained_by_its_terms() -> None:
    model = AdditiveModel(-1.0, STEPS, second=SecondLook(0.5, 0.8, {"agreement": 3.0, "referred": -2.0}))
    scored = score(model, EVIDENCE, PAIRS, lambda: WORDS)
    assert set(scored.terms) == {"evidence", "agreement", "referred"}
    assert set(scored.features) == {"evidence", "agreement", "referred"}
    assert scored.intercept == pytest.approx(0.5 - 0.8)
    assert scored.probability == pytest.approx(probability(scored.intercept + sum(scored.terms.values())))
    own, other = (scored.probability[PAIRS.index(pair)] for pair in ((2, 10), (2, 11)))
    assert own > other, "the other owner refers to 10"


def test_without_a_second_look_no_names_are_asked_for() -> None:
    def unasked() -> dict[int, Tokens]:
        raise AssertionError

    model = AdditiveModel(-1.0, STEPS)
    scored = score(model, EVIDENCE, PAIRS, unasked)
    assert scored.probability.tolist() == model.probability(EVIDENCE).tolist()
    assert (scored.intercept, set(scored.terms)) == (-1.0, {"evidence"})


def test_what_a_model_beside_says_is_added_to_terms_of_one_name_before_the_second_look() -> None:
    model = AdditiveModel(-1.0, STEPS, second=SecondLook(0.5, 0.8, {"agreement": 3.0, "referred": -2.0}))
    alone = score(model, EVIDENCE, PAIRS, lambda: WORDS)
    said = {"evidence": np.full(5, 0.25), "behind": np.array([0.0, -3.0, 0.0, -3.0, 0.0])}
    beside = Scored(0.5, said, {"evidence": np.zeros(5), "behind": np.zeros(5)}, np.full(5, 0.5))
    scored = score(model, EVIDENCE, PAIRS, lambda: WORDS, beside)
    assert scored.intercept == pytest.approx(0.5 + 0.8 * (-1.0 + 0.5))
    assert scored.terms["evidence"] == pytest.approx(alone.terms["evidence"] + 0.8 * 0.25)
    assert scored.terms["behind"] == pytest.approx(0.8 * said["behind"])
    assert scored.features["evidence"].tolist() == EVIDENCE["evidence"].tolist(), "the pair's own, not the likeliest's"
    assert scored.probability == pytest.approx(probability(scored.log_odds))
    among = among_scores(PAIRS, WORDS, probability(model.log_odds(EVIDENCE) + 0.5 + said["evidence"] + said["behind"]))
    assert scored.terms["agreement"] == pytest.approx(3.0 * among["agreement"])


def test_what_is_learnt_of_a_second_look_is_what_columns_of_one_name_have_in_common() -> None:
    """In each database three columns of one name refer to one key; of the third the first score cannot tell which."""
    candidates = tuple(Candidate((a,), (b,)) for a in (1, 2, 3) for b in (10, 11))
    log_odds = np.array([2.0, -2.0, 2.0, -2.0, 0.0, 0.0])
    is_right = np.array([True, False] * 3)
    names: dict[int, Tokens] = dict.fromkeys((1, 2, 3), ("owner",))
    found = [Pairs(Database(f"made {i}", [], [], []), candidates, {}, {}, {}, is_right, names=names) for i in range(20)]
    second, after = look_again(found, [log_odds] * 20)
    assert second.weights["agreement"] > 0
    for of in after:
        assert ((of > 0) == is_right).all()
        assert of[4] - of[5] > 1

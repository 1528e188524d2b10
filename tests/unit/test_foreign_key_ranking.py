"""The ranking of foreign keys: a small shop by every method, and what is odd, empty or not measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from service.core.foreign_keys.candidates import Candidate
from service.core.foreign_keys.model import fitted, probability
from service.core.foreign_keys.profiles import ColumnProfile, Measured
from service.core.foreign_keys.ranking import Method, rank
from service.core.value_order import ValueOrder


def column(table: str, name: str, ordinal: int, rows: int, distinct: int) -> ColumnProfile:
    return ColumnProfile(
        schema="shop",
        table=table,
        name=name,
        ordinal=ordinal,
        data_type="integer",
        rows=rows,
        nulls=0,
        distinct=distinct,
        order=ValueOrder.NUMERIC,
        least="1",
        greatest=str(distinct),
        mean_length=2.0,
        is_integer=True,
    )


COLUMNS = {
    10: column("customers", "id", 0, 200, 200),
    20: column("orders", "id", 0, 500, 500),
    21: column("orders", "customer_id", 1, 500, 190),
    22: column("orders", "amount", 2, 500, 100),
}
KEYS = [(10,), (20,)]
RIGHT = Candidate((21,), (10,))
MEASURED = {
    Candidate((10,), (20,)): Measured(1.0, 0.4, 0.3, 0.6),
    RIGHT: Measured(1.0, 0.95, 0.004, 0.0),
    Candidate((21,), (20,)): Measured(1.0, 0.38, 0.31, 0.6),
    Candidate((22,), (10,)): Measured(1.0, 0.5, 0.25, 0.5),
    Candidate((22,), (20,)): Measured(1.0, 0.2, 0.4, 0.8),
}


@pytest.mark.parametrize("method", Method)
def test_each_method_suggests_the_foreign_key_for_its_column(method: Method) -> None:
    ranked = rank(MEASURED, COLUMNS, KEYS, method)
    best = next(of for of in ranked if of.candidate.dependent == RIGHT.dependent)
    assert (best.candidate, best.suggested) == (RIGHT, True)
    assert {of.candidate for of in ranked} == set(MEASURED)
    assert all(0 <= of.score <= 1 for of in ranked)
    assert [of.score for of in ranked] == sorted((of.score for of in ranked), reverse=True)


@pytest.mark.parametrize("method", [Method.COMBINED, Method.ROSTIN])
def test_terms_add_up_to_the_score(method: Method) -> None:
    for of in rank(MEASURED, COLUMNS, KEYS, method):
        log_odds = of.intercept + sum(of.terms.values())
        assert of.score == pytest.approx(float(probability(np.array(log_odds))))
        assert list(map(abs, of.terms.values())) == sorted(map(abs, of.terms.values()), reverse=True)
        assert set(of.terms) <= set(of.features)


def test_the_reverse_of_a_foreign_key_is_implied() -> None:
    back = Candidate((10,), (21,))
    found = rank(MEASURED | {back: Measured(0.95, 1.0, 0.004, 0.0)}, COLUMNS, [*KEYS, (21,)])
    assert {of.candidate: (of.suggested, of.implied) for of in found}[back] == (False, True)


def test_the_order_of_the_input_does_not_matter() -> None:
    backwards = dict(reversed(MEASURED.items())), dict(reversed(COLUMNS.items())), KEYS[::-1]
    ours, theirs = rank(MEASURED, COLUMNS, KEYS), rank(*backwards)
    assert [of.candidate for of in ours] == [of.candidate for of in theirs]
    assert [of.score for of in ours] == pytest.approx([of.score for of in theirs])


@pytest.mark.parametrize("method", Method)
def test_what_was_not_measured_says_nothing(method: Method) -> None:
    """As of sketches: no values, so no ends, no lengths and no distance."""
    columns = {
        i: replace(of, least=None, greatest=None, mean_length=None, is_integer=False) for i, of in COLUMNS.items()
    }
    ranked = rank({c: Measured(of.phi, of.coverage) for c, of in MEASURED.items()}, columns, KEYS, method)
    assert all(0 <= of.score <= 1 for of in ranked)
    if method is Method.COMBINED:
        assert ranked[0].candidate == RIGHT
        assert all(of.terms["distance"] == 0 for of in ranked if "distance" in fitted("combined").steps)


@pytest.mark.parametrize("method", Method)
@pytest.mark.parametrize("names", ["", "7", "x" * 5_000, "顧客"])
def test_names_that_tell_nothing_are_ranked_by_what_is_left(method: Method, names: str) -> None:
    columns = {i: replace(of, name=names, table=names + str(of.rows)) for i, of in COLUMNS.items()}
    assert len(rank(MEASURED, columns, KEYS, method)) == len(MEASURED)


@pytest.mark.parametrize("method", Method)
def test_nothing_to_rank_is_ranked(method: Method) -> None:
    assert rank({}, COLUMNS, KEYS, method) == []

"""The choice of a key for columns without names: what size, place and kind say, and that scores are still sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import comb, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fk_data import Database
from benchmarks.fk_learning import Pairs, fit_choice, fit_rivals
from service.core.foreign_keys.candidates import Candidate
from service.core.foreign_keys.features import Pair
from service.core.foreign_keys.key_choice import (
    AGAINST_A_KEY,
    FOR_A_KEY,
    MOST_TIGHTNESS,
    NAMED_AGAINST_A_KEY,
    NAMED_FOR_A_KEY,
    choice_features,
    likeliest_keys,
    score_by_choice,
)
from service.core.foreign_keys.model import AdditiveModel, KeyChoice, Steps, fitted, probability
from service.core.foreign_keys.plain_columns import measure, with_values
from service.core.foreign_keys.profiles import ColumnProfile
from service.core.foreign_keys.ranking import rank
from service.core.value_order import ValueOrder


def made(tables: dict[str, list[list[str]]]) -> tuple[list[ColumnProfile], list[frozenset[str]]]:
    """Give the columns of tables without names for them, and their values."""
    profiles, values = [], []
    for table, columns in tables.items():
        for ordinal, cells in enumerate(columns):
            known = ColumnProfile(
                "shop", table, f"c{ordinal}", ordinal, "text", len(cells), 0, 0, ValueOrder.LEXICOGRAPHIC
            )
            values.append(frozenset(cells))
            profiles.append(with_values(known, values[-1]))
    return profiles, values


def counted(*numbers: int) -> list[str]:
    return [str(number) for number in numbers]


def texts(table: str, rows: int) -> list[str]:
    return [f"{table} {row}" for row in range(rows)]


SPOKEN = {"item": 40, "move": 60, "berry": 30, "region": 25}
"""How many rows each table has."""

LANGUAGES = {"item": [2, 9], "move": [1, 5, 12], "berry": [3, 9], "region": [1, 2, 4, 6, 7, 8, 9, 10, 11, 12]}
"""Of the twelve languages those in which there are names of each."""


def translated(more: Sequence[list[str]] = ()) -> tuple[list[ColumnProfile], list[frozenset[str]]]:
    """Give tables of things, with their names in languages, and three other small keys; one has `more` columns."""
    tables = {
        "language": [counted(*range(1, 13)), texts("language", 12)],
        "colour": [counted(*range(1, 10)), texts("colour", 9)],
        "shape": [counted(*range(1, 13)), texts("shape", 12)],
        "size": [counted(*range(1, 16)), texts("size", 15)],
    }
    for table, rows in SPOKEN.items():
        tables[table] = [counted(*range(1, rows + 1)), texts(table, rows)]
        spoken = [(row, language) for row in range(1, rows + 1) for language in LANGUAGES[table]]
        tables[f"{table}_names"] = [
            counted(*(row for row, _ in spoken)),
            counted(*(language for _, language in spoken)),
            [f"{table} {row} in {language}" for row, language in spoken],
            *(more if table == "move" else ()),
        ]
    return made(tables)


def told_of(pairs: list[Pair], profiles: list[ColumnProfile], values: list[frozenset[str]]) -> dict[str, np.ndarray]:
    """Give the features that the choice among the first two columns as keys is made by."""
    measured = measure(profiles, values, [0, 1])
    return {
        name: np.array([getattr(measured[Candidate((a,), (b,))], name) for a, b in pairs])
        for name in ("coverage", "outside")
    }


def test_a_key_says_by_its_size_how_likely_its_subset_is() -> None:
    profiles, values = made(
        {"small": [counted(*range(1, 6))], "large": [counted(*range(1, 21))], "own": [counted(1, 2, 4)]}
    )
    pairs = [(2, 0), (2, 1)]
    features = told_of(pairs, profiles, values)
    found, kinds = choice_features(features, pairs, dict(enumerate(profiles)), {0, 1})
    assert found["ends"] == pytest.approx([log(comb(4, 3) / comb(5, 3)), log(comb(4, 3) / comb(20, 3))])
    assert found["tightness"] == pytest.approx(np.array([1, -1]) * log(comb(20, 3) / comb(5, 3)))
    assert (found["owner"].tolist(), list(kinds)) == ([0, 0], [])
    unknown = {"coverage": features["coverage"], "outside": np.full(2, np.nan)}
    assert np.isnan(choice_features(unknown, pairs, dict(enumerate(profiles)), {0, 1})[0]["ends"]).all()


@pytest.mark.parametrize(("own", "of_small", "of_large"), [((2,), 1, 1), ((*range(1, 10), 17), 9, 10)])
def test_a_key_is_likelier_by_what_is_in_it_of_a_column(own: tuple[int, ...], of_small: int, of_large: int) -> None:
    profiles, values = made(
        {"small": [counted(*range(1, 13))], "large": [counted(*range(1, 21))], "own": [counted(*own)]}
    )
    pairs = [(2, 0), (2, 1)]
    found, _ = choice_features(told_of(pairs, profiles, values), pairs, dict(enumerate(profiles)), {0, 1})
    likelier = log(comb(20, of_large) / comb(12, of_small))
    assert found["tightness"].tolist() == pytest.approx([likelier, -likelier])


def test_how_much_likelier_a_key_is_is_bounded_on_both_sides() -> None:
    profiles, values = made(
        {"small": [counted(*range(1, 6))], "large": [counted(*range(1, 2001))], "own": [counted(1, 2, 3, 5)]}
    )
    pairs = [(2, 0), (2, 1)]
    features = told_of(pairs, profiles, values)
    found, _ = choice_features(features, pairs, dict(enumerate(profiles)), {0, 1})
    assert log(comb(2000, 4) / comb(5, 4)) > MOST_TIGHTNESS
    assert found["tightness"].tolist() == [MOST_TIGHTNESS, -MOST_TIGHTNESS]


def owners_and_kinds(
    profiles: Sequence[ColumnProfile], values: Sequence[frozenset[str]]
) -> tuple[list[Pair], list[float], list[list[int]]]:
    """Give the candidates for the first columns that are keys, which of them say whose a table is, and the kinds."""
    keys = [i for i, of in enumerate(profiles) if of.distinct == of.rows and of.ordinal == 0]
    pairs = [(a, b) for ((a,), (b,)) in measure(profiles, values, keys)]
    coverage = np.array([profiles[a].distinct / profiles[b].distinct for a, b in pairs])
    features = {"coverage": coverage, "outside": np.zeros(len(pairs))}
    found, kinds = choice_features(features, pairs, dict(enumerate(profiles)), frozenset(keys))
    return pairs, found["owner"].tolist(), [list(kind) for kind in kinds]


@pytest.mark.parametrize("more", [(), ([], texts("more", 180), texts("another", 180))])
def test_tables_alike_have_an_owner_and_columns_of_one_kind(more: Sequence[list[str]]) -> None:
    profiles, values = translated(more)
    pairs, owner, kinds = owners_and_kinds(profiles, values)
    name = {i: f"{of.table}.{of.ordinal}" for i, of in enumerate(profiles)}
    owners = {(name[a], name[b]) for (a, b), is_owner in zip(pairs, owner, strict=True) if is_owner}
    assert owners == {(f"{table}_names.0", f"{table}.0") for table in SPOKEN}
    assert [[name[a] for a in kind] for kind in kinds] == [
        ["region_names.1", "move_names.1", "item_names.1", "berry_names.1"]
    ]


def test_associations_are_of_no_kind() -> None:
    """All columns of the tables with names refer, so that nothing says that one of them is the table's own."""
    profiles, values = translated()
    kept = [i for i, of in enumerate(profiles) if not (of.table.endswith("_names") and of.ordinal == 2)]
    profiles, values = [profiles[i] for i in kept], [values[i] for i in kept]
    _, owner, kinds = owners_and_kinds(profiles, values)
    assert np.count_nonzero(owner) == len(SPOKEN)
    assert kinds == []


def test_columns_of_one_kind_refer_to_one_key_and_are_believed_as_the_one_with_most_values() -> None:
    pairs = [(1, 10), (1, 11), (2, 10), (2, 11), (3, 10), (3, 11)]
    features = {"phi": np.array([1.0, 0.0, 1.0, 0.0, 0.0, 0.5]), "of": np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])}
    spoken, behind, likeliest = likeliest_keys({"phi": 2.0}, features, pairs, [])
    assert [pairs[place] for place in likeliest] == [(1, 10), (2, 10), (3, 11)]
    assert spoken["of"].tolist() == [1, 1, 3, 3, 6, 6]
    assert behind.tolist() == pytest.approx([0, -2, 0, -2, -1, 0])
    spoken, behind, likeliest = likeliest_keys({"phi": 2.0}, features, pairs, [[3, 1, 2]])
    assert [pairs[place] for place in likeliest] == [(1, 10), (2, 10), (3, 10)]
    assert spoken["of"].tolist() == [5] * 6
    assert behind.tolist() == pytest.approx([0, -3] * 3)


PHIS = st.dictionaries(
    st.tuples(st.integers(0, 5), st.integers(6, 9)), st.floats(0, 1, width=16), min_size=1, max_size=20
)


@given(PHIS, st.lists(st.integers(0, 5), unique=True, max_size=4))
def test_the_score_of_a_choice_is_a_sum_and_falls_behind_the_likeliest(
    phis: dict[Pair, float], kind: list[int]
) -> None:
    pairs = list(phis)
    kinds = [[a for a in kind if any(a == own for own, _ in pairs)]]
    choice = KeyChoice({"phi": 3.0}, rival=-0.5, behind=0.7)
    model = AdditiveModel(
        -1.0, {"phi": Steps((0.5,), (-2.0, 2.0)), "chance": Steps((-1.0,), (-1.0, 1.0))}, choice=choice
    )
    scored = score_by_choice(model, {"phi": np.array(list(phis.values()))}, pairs, kinds)
    assert scored.probability == pytest.approx(probability(-1.0 + sum(scored.terms.values())))
    for a in {a for a, _ in pairs}:
        places = [place for place, (own, _) in enumerate(pairs) if own == a]
        less = scored.terms["behind"][places]
        assert sorted(less.tolist())[-1] == 0
        assert (less == 0).sum() == 1
        assert scored.probability[places].max() == scored.probability[places][less == 0]


def test_a_language_is_found_where_one_column_alone_would_not_tell() -> None:
    """`item_names` has 2 and 9 of 12 languages, and there are 9 colours; `region_names` has more of both."""
    profiles, values = translated()
    columns = dict(enumerate(profiles))
    keys = [i for i, of in columns.items() if of.distinct == of.rows and of.ordinal == 0]
    ranked = rank(measure(profiles, values, keys), columns, [(key,) for key in keys])
    best: dict[int, str] = {}
    for one in ranked:
        best.setdefault(one.candidate.dependent[0], columns[one.candidate.referenced[0]].table)
        assert one.score == pytest.approx(float(probability(np.array(one.intercept + sum(one.terms.values())))))
    own = {of.table: best[i] for i, of in columns.items() if of.table.endswith("_names") and of.ordinal == 0}
    assert own == {f"{table}_names": table for table in SPOKEN}
    languages = {best[i] for i, of in columns.items() if of.table.endswith("_names") and of.ordinal == 1}
    assert len(languages) == 1
    assert languages <= {"language", "shape"}, "both are 1 to 12: nothing tells which is meant"


@pytest.mark.parametrize("declared", [True, False])
def test_the_served_choices_believe_what_speaks_for_a_key(declared: bool) -> None:
    beside = fitted("combined", declared).beside
    assert beside
    for choice, rising, falling in (
        (fitted("nameless", declared).choice, FOR_A_KEY, AGAINST_A_KEY),
        (beside.choice, NAMED_FOR_A_KEY, NAMED_AGAINST_A_KEY),
    ):
        assert choice
        assert choice.weights.keys() == {*rising, *falling}
        assert all(choice.weights[name] >= 0 for name in rising)
        assert all(choice.weights[name] <= 0 for name in falling)
        assert choice.rival <= 0 <= choice.behind
    assert [fitted(name, declared).choice for name in ("combined", "rostin")] == [None, None]
    assert [fitted(name, declared).beside for name in ("nameless", "rostin")] == [None, None]


def test_the_choice_of_a_key_is_learnt_from_what_its_columns_have_in_common() -> None:
    """The key with an owner is right, in 20 databases; the distance is noise, and may not speak for a key."""
    draw = np.random.default_rng(3)
    candidates = tuple(Candidate((a,), (b,)) for a in range(5) for b in (10, 11, 12))
    found = []
    for number in range(20):
        choice = {name: draw.random(15) for name in (*FOR_A_KEY, *AGAINST_A_KEY)}
        is_right = np.zeros(15, np.bool_)
        is_right[[3 * a + int(np.argmax(choice["owner"][3 * a : 3 * a + 3])) for a in range(5)]] = True
        found.append(Pairs(Database(f"made {number}", [], [], []), candidates, {}, {}, {}, is_right, choice=choice))
    weights = fit_choice(found)
    assert weights["owner"] == max(weights.values())
    assert all(weights[name] <= 0 for name in AGAINST_A_KEY)
    heads, others = replace(found[0], nameless={"nulls": np.zeros(15)}).by_chance(weights)
    assert (len(heads.candidates), len(others.candidates)) == (5, 10)
    assert heads.is_right.mean() > 0.5
    assert set(heads.nameless) == {"nulls", "chance", "lead_chance", "behind"}
    assert (others.nameless["behind"] <= 0).all()


def test_what_rivals_lose_makes_their_scores_probabilities() -> None:
    draw = np.random.default_rng(5)
    log_odds, behind = draw.normal(size=20_000), -draw.exponential(size=20_000)
    is_right = draw.random(20_000) < probability(log_odds - 1.5 + 0.6 * behind)
    assert fit_rivals(log_odds, behind, is_right) == pytest.approx((-1.5, 0.6), abs=0.1)


def test_with_names_what_the_other_keys_of_a_column_lose_is_among_the_terms() -> None:
    profiles, values = translated()
    columns = {i: replace(of, name=("id", "language_id", "title")[of.ordinal]) for i, of in enumerate(profiles)}
    keys = [i for i, of in columns.items() if of.distinct == of.rows and of.ordinal == 0]
    lost: dict[int, list[float]] = {}
    for one in rank(measure(list(columns.values()), values, keys), columns, [(key,) for key in keys]):
        lost.setdefault(one.candidate.dependent[0], []).append(one.terms["behind"])
        assert one.score == pytest.approx(float(probability(np.array(one.intercept + sum(one.terms.values())))))
    assert any(len(of) > 1 for of in lost.values())
    for of in lost.values():
        assert sorted(of)[-1] == 0
        assert all(less < 0 for less in sorted(of)[:-1])

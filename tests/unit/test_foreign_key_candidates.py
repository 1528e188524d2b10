"""Foreign-key candidates and the choice among them: against brute force, and where the paper's pruning errs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.foreign_keys.candidates import (
    Candidate,
    Inclusions,
    _choices,
    coefficient,
    composite_candidates,
    single_candidates,
)
from service.core.foreign_keys.choice import choose, implied

Rows = list[tuple[int, ...]]


def inclusions_of(tables: list[Rows]) -> Inclusions:
    """Compute all coefficients of tables whose columns are numbered through."""
    columns = [(table, {row[i] for row in rows}) for table, rows in enumerate(tables) for i in range(len(rows[0]))]
    pairs = {
        (a, b): len(x & y) / len(x) for a, (_, x) in enumerate(columns) for b, (_, y) in enumerate(columns) if a != b
    }
    return Inclusions({i: table for i, (table, _) in enumerate(columns)}, pairs)


def tables(width: int) -> st.SearchStrategy[list[Rows]]:
    row = st.tuples(*[st.integers(0, 3)] * width)
    return st.lists(st.lists(row, min_size=1, max_size=6), min_size=1, max_size=3)


def test_candidates_for_a_key_are_the_columns_that_it_contains_by_theta() -> None:
    inclusions = Inclusions({0: 0, 1: 1, 2: 1}, {(1, 0): 0.9, (2, 0): 0.89, (0, 1): 1.0, (9, 0): 1.0})
    assert list(single_candidates(inclusions, [0])) == [Candidate((1,), (0,))]
    assert list(single_candidates(inclusions, [0], 0.8)) == [Candidate((1,), (0,)), Candidate((2,), (0,))]
    assert list(single_candidates(inclusions, [1, 0], 1)) == [Candidate((0,), (1,))]


@given(tables(3), st.integers(1, 3))
def test_no_composite_foreign_key_that_holds_is_missing(found: list[Rows], width: int) -> None:
    """All choices of columns, tested on the tuples themselves, against the candidates for the first table's columns."""
    inclusions, key = inclusions_of(found), tuple(range(width))
    candidates = set(composite_candidates(inclusions, [key], 1))
    referenced = {row[:width] for row in found[0]}
    for table, rows in enumerate(found):
        for places in permutations(range(3), width):
            columns = tuple(3 * table + place for place in places)
            holds = {tuple(row[place] for place in places) for row in rows} <= referenced
            if columns != key and holds:
                assert Candidate(columns, key) in candidates
    for candidate in candidates:
        assert len(set(candidate.dependent)) == width
        assert len({inclusions.table_of[column] for column in candidate.dependent}) == 1
        assert inclusions.bound(candidate) == 1


def test_below_exact_inclusion_columns_do_not_bound_their_composite() -> None:
    """The paper's σ(F, P) ≤ min σ(F_i, P_i) counts distinct values, of which a column has fewer than tuples."""
    key = [(1, 1), (1, 2), (1, 3)]
    foreign = [*key, (2, 4)]
    composite = coefficient([tuple(map(str, row)) for row in foreign], [tuple(map(str, row)) for row in key])
    inclusions = inclusions_of([key, foreign])
    assert composite == 0.75
    assert inclusions.bound(Candidate((2, 3), (0, 1))) == 0.5
    assert Candidate((2, 3), (0, 1)) not in set(composite_candidates(inclusions, [(0, 1)], 0.75))
    assert Candidate((2, 3), (0, 1)) in set(composite_candidates(inclusions, [(0, 1)], 0.5))


def test_a_million_candidates_come_one_by_one() -> None:
    """Ten columns of one domain, a key of six: 151,200 choices in a table, of which as many are made as are taken."""
    columns = range(6, 16)
    inclusions = Inclusions(
        {**dict.fromkeys(range(6), 0), **dict.fromkeys(columns, 1)}, dict.fromkeys(product(columns, range(6)), 1.0)
    )
    key = tuple(range(6))
    assert len(list(islice(composite_candidates(inclusions, [key]), 5))) == 5
    assert len(list(composite_candidates(inclusions, [key], most=100))) == 100
    assert sum(1 for _ in composite_candidates(inclusions, [key])) == 10 * 9 * 8 * 7 * 6 * 5


def test_columns_that_fit_one_place_alone_are_given_away_first() -> None:
    """Sixty columns fit four places, and one alone the last two: of 11,703,240 beginnings none can be ended.

    Neither can one of the 479,001,600 ways to give twelve columns to the first twelve of thirteen places.
    """
    looks = 0

    class Fitting(list[int]):
        def __iter__(self) -> Iterator[int]:
            nonlocal looks
            for column in list.__iter__(self):
                looks += 1
                assert looks < 1000
                yield column

    places = [Fitting(range(60)) for _ in range(4)]
    assert list(_choices([*places, Fitting([60]), Fitting([60])])) == []
    assert next(_choices([*places, Fitting([60]), Fitting([61])])) == (0, 1, 2, 3, 60, 61)
    assert list(_choices([Fitting(range(12)) for _ in range(13)])) == []


def test_a_coefficient_without_tuples_is_none_that_holds() -> None:
    assert coefficient([], [("a",)]) == 0


A, B, C, D = ((i,) for i in range(4))


def test_a_column_has_one_reference_and_none_that_refers_back() -> None:
    scores = {
        Candidate(A, B): 0.9,
        Candidate(A, C): 0.8,
        Candidate(B, A): 0.85,
        Candidate(D, B): 0.7,
        Candidate(C, D): 0.5,
    }
    choice = choose(scores, 0.6)
    assert choice.chosen == (Candidate(A, B), Candidate(D, B))
    assert choice.ruled_out == {Candidate(A, C): Candidate(A, B), Candidate(B, A): Candidate(A, B)}


@given(st.dictionaries(st.tuples(st.integers(0, 6), st.integers(0, 6)), st.integers(0, 10)))
def test_a_choice_is_free_of_conflict_and_nothing_better_was_passed_by(scores: dict[tuple[int, int], int]) -> None:
    scored = {Candidate((a,), (b,)): score / 10 for (a, b), score in scores.items() if a != b}
    choice = choose(scored, 0.3)
    assert len({candidate.dependent for candidate in choice.chosen}) == len(choice.chosen)
    assert not {Candidate(c.referenced, c.dependent) for c in choice.chosen} & set(choice.chosen)
    assert set(choice.chosen) | set(choice.ruled_out) == {c for c, score in scored.items() if score >= 0.3}
    for candidate, by in choice.ruled_out.items():
        assert by in choice.chosen
        assert scored[by] >= scored[candidate]


def test_chains_and_symmetric_pairs_are_implied() -> None:
    """TPC-E's false positives (section 5.2): A → B → C implies A → C, and each of them its reverse."""
    chosen = [Candidate(A, B), Candidate(B, C)]
    assert implied(chosen) == {Candidate(A, C), Candidate(B, A), Candidate(C, B), Candidate(C, A)}
    assert implied([Candidate(A, B)]) == {Candidate(B, A)}
    assert implied([]) == set()


@pytest.mark.parametrize("length", [2, 50])
def test_a_circle_of_foreign_keys_implies_every_pair_once(length: int) -> None:
    circle = [Candidate((i,), ((i + 1) % length,)) for i in range(length)]
    assert len(implied(circle)) == length * (length - 1) - length

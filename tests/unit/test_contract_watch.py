"""Contracts in the writer's memory: after each batch those that turned are those that comparing all values finds."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.clustering import ClusterSets
from service.core.contracts import BoundContract, ContractKind, ContractTransition, ContractWatch
from service.core.overlap import Overlap, make_overlap
from tests.clusterings import A, B, C, D, State, as_deltas, histories, key_of, netted, table_1

LEAST = st.sampled_from([Fraction(1), Fraction(2, 3), Fraction(1, 2), Fraction(1, 7)])
SIDES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), LEAST), min_size=1, max_size=12)


def matrix_of(state: State) -> Overlap:
    return make_overlap(8, ClusterSets.of(state.clusters), 3000)


@settings(max_examples=60)
@given(history=histories(), sides=SIDES)
def test_after_every_batch_those_that_turned_are_told_with_what_turned_them(
    history: list,  # type: ignore[type-arg]
    sides: list[tuple[int, int, Fraction]],
) -> None:
    state, cells, watch = State(), Counter(), ContractWatch()
    matrix = matrix_of(state)
    watch.renew([BoundContract(100 + i, a, b, least, False) for i, (a, b, least) in enumerate(sides)], matrix)
    assert watch.known == {100 + i for i in range(len(sides))}, "without values each contract is kept"
    violated: set[int] = set()
    for batch in history:
        before = {a: {k for (b, k), n in cells.items() if b == a and n > 0} for a in range(8)}
        change = netted(batch)
        moves = state.apply(as_deltas(change)).moves
        matrix.apply(moves)
        found = {one.contract_id: one for one in watch.apply(moves, matrix)}
        cells.update(change)
        values = {a: {k for (b, k), n in cells.items() if b == a and n > 0} for a in range(8)}
        now = {100 + i for i, (a, b, least) in enumerate(sides) if len(values[a] & values[b]) < least * len(values[a])}
        assert found.keys() == now ^ violated
        for number, one in found.items():
            a, b, _ = sides[number - 100]
            against_before, against = before[a] - before[b], values[a] - values[b]
            lost, gained = (before[a] & before[b]) - values[a], (values[a] & values[b]) - before[a]
            if number in now:
                kind, cause = ContractKind.VIOLATED, against - against_before or lost
            else:
                kind, cause = ContractKind.MENDED, against_before - against or gained
            assert one == ContractTransition(number, a, b, kind, one.witness, len(cause))
            assert one.witness in cause
        violated = now


def test_what_was_missing_neither_violates_by_leaving_nor_mends_by_coming() -> None:
    """Of A = abcdefgh B has all but g and h; without a to d and g two of efh are left: less than three in four."""
    state, watch = State(), ContractWatch()
    state.apply({key_of(value): dict.fromkeys([A] if value in "gh" else [A, B], 1) for value in "abcdefgh"})
    matrix = matrix_of(state)
    watch.renew([BoundContract(1, A, B, Fraction(3, 4), False)], matrix)
    for count, kind in ((-1, ContractKind.VIOLATED), (1, ContractKind.MENDED)):
        moves = state.apply(
            {key_of(value): dict.fromkeys([A] if value == "g" else [A, B], count) for value in "abcdg"}
        ).moves
        matrix.apply(moves)
        (found,) = watch.apply(moves, matrix)
        assert (found.kind, found.cause_count) == (kind, 4)
        assert found.witness in map(key_of, "abcd")


def test_a_contract_that_is_kept_exactly_is_not_violated() -> None:
    matrix = matrix_of(table_1())
    assert not BoundContract(1, B, A, Fraction(3, 4), False).is_violated_by(matrix)
    assert BoundContract(1, B, A, Fraction(3, 4) + Fraction(1, 10**30), False).is_violated_by(matrix)
    assert not BoundContract(1, 7, A, Fraction(1), False).is_violated_by(matrix), "nothing is missing where nothing is"


@pytest.mark.parametrize("unbound", [(None, B), (A, None), (None, None)])
def test_a_contract_of_no_attribute_is_known_and_never_turns(unbound: tuple[int | None, int | None]) -> None:
    state, watch = table_1(), ContractWatch()
    matrix = matrix_of(state)
    watch.renew([BoundContract(7, *unbound, Fraction(1), False)], matrix)
    assert watch.known == {7}
    moves = state.delete("bbea").moves
    matrix.apply(moves)
    assert watch.apply(moves, matrix) == []


def test_a_new_contract_is_watched_once_the_store_and_the_overlaps_agree() -> None:
    """A ⊆ B holds, as the store says of contract 1; of contract 2 it still says what was."""
    state, watch = table_1(), ContractWatch()
    matrix = matrix_of(state)
    assert watch.known == set()
    agreed, older = BoundContract(1, A, B, Fraction(1), False), BoundContract(2, A, B, Fraction(1), True)
    watch.renew([older, agreed], matrix)
    assert watch.known == {1}
    moves = state.delete("bbea").moves
    matrix.apply(moves)
    broken = ContractTransition(1, A, B, ContractKind.VIOLATED, key_of("b"), 1)
    assert watch.apply(moves, matrix) == [broken]
    # What it found itself is newer than what the store says of a contract that it watches.
    watch.renew([older, agreed], matrix)
    assert watch.known == {1, 2}
    moves = state.insert("bbea").moves
    matrix.apply(moves)
    mended = [ContractTransition(one, A, B, ContractKind.MENDED, key_of("b"), 1) for one in (1, 2)]
    assert sorted(watch.apply(moves, matrix), key=lambda found: found.contract_id) == mended
    watch.renew([], matrix)
    assert watch.known == set()
    assert watch.apply(state.delete("bbea").moves, matrix) == []


def test_a_batch_that_touches_neither_side_is_passed_over_and_one_that_moves_nothing_too() -> None:
    state, watch = table_1(), ContractWatch()
    matrix = matrix_of(state)
    watch.renew([BoundContract(1, C, D, Fraction(1, 9), True), BoundContract(2, A, B, Fraction(1), False)], matrix)
    for change in ({}, {key_of("z"): {5: 1}}):
        moves = state.apply(change).moves
        matrix.apply(moves)
        assert watch.apply(moves, matrix) == []
    moves = state.delete("bbea").moves
    matrix.apply(moves)
    assert [found.contract_id for found in watch.apply(moves, matrix)] == [2]

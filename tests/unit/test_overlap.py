"""The overlap matrix, dense and sparse: exact coefficients, and transitions with their causes."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings

import service.core.overlap
from service.core.clustering import ClusterSets
from service.core.model import Transition, TransitionKind
from service.core.overlap import DenseOverlap, Overlap, SparseOverlap, coefficient, make_overlap
from tests.clusterings import A, B, C, D, State, as_deltas, brute_force, histories, key_of, netted, pairs, table_1

KINDS = pytest.mark.parametrize("dense_limit", [3000, 0], ids=["dense", "sparse"])


def matrix_of(state: State, dense_limit: int, size: int = 8) -> Overlap:
    matrix = make_overlap(size, ClusterSets.of(state.clusters), dense_limit)
    assert isinstance(matrix, DenseOverlap if dense_limit else SparseOverlap)
    return matrix


@KINDS
def test_coefficients_of_table_1(dense_limit: int) -> None:
    matrix = matrix_of(table_1(), dense_limit)
    assert pairs(matrix.inds()) == {(A, B), (D, B)}
    assert coefficient(matrix, A, B) == 1
    assert coefficient(matrix, B, A) == 3 / 4
    assert coefficient(matrix, C, A) == 0
    assert coefficient(matrix, 7, A) is None, "an attribute without values has no coefficient"


@KINDS
def test_example_1_1_as_transitions_with_the_values_that_caused_them(dense_limit: int) -> None:
    state = table_1()
    matrix = matrix_of(state, dense_limit)
    assert matrix.apply(state.delete("bbea").moves) == [Transition(TransitionKind.BROKE, A, B, key_of("b"), 1)]
    state.insert("bbea")
    state = table_1()
    matrix = matrix_of(state, dense_limit)
    assert matrix.apply(state.insert("ccee").moves) == [
        Transition(TransitionKind.APPEARED, B, A, key_of("c"), 1),
        Transition(TransitionKind.BROKE, D, B, key_of("e"), 1),
    ]


@KINDS
def test_an_attribute_that_gets_its_first_or_loses_its_last_value(dense_limit: int) -> None:
    state = State()
    state.insert(".a..")
    matrix = matrix_of(state, dense_limit)
    assert matrix.apply(state.insert("a...").moves) == [
        Transition(TransitionKind.APPEARED, A, B, key_of("a"), 1),
        Transition(TransitionKind.APPEARED, B, A, key_of("a"), 1),
    ]
    assert matrix.apply(state.delete("a...").moves) == [
        Transition(TransitionKind.BROKE, A, B, key_of("a"), 1),
        Transition(TransitionKind.BROKE, B, A, key_of("a"), 1),
    ]
    assert matrix.apply(state.apply({}).moves) == []


@KINDS
@settings(max_examples=60)
@given(history=histories())
def test_after_every_batch_all_equals_recomputing(dense_limit: int, history: list) -> None:  # type: ignore[type-arg]
    state, cells = State(), Counter()
    matrix = matrix_of(state, dense_limit)
    known: set[tuple[int, int]] = set()
    for batch in history:
        values_before = {a: {k for (b, k), n in cells.items() if b == a and n > 0} for a in range(8)}
        change = netted(batch)
        transitions = matrix.apply(state.apply(as_deltas(change)).moves)
        cells.update(change)
        _, inds = brute_force(cells)
        values = {a: {k for (b, k), n in cells.items() if b == a and n > 0} for a in range(8)}
        for a in range(8):
            for b in range(8):
                assert matrix.overlap(a, b) == len(values[a] & values[b])
        assert pairs(matrix.inds()) == inds
        kinds = {(t.dependent_id, t.referenced_id): t.kind for t in transitions}
        assert kinds == {
            **dict.fromkeys(inds - known, TransitionKind.APPEARED),
            **dict.fromkeys(known - inds, TransitionKind.BROKE),
        }
        for t in transitions:
            a, b = t.dependent_id, t.referenced_id
            against_before, against = values_before[a] - values_before[b], values[a] - values[b]
            if t.kind is TransitionKind.BROKE:
                cause = against - against_before or values_before[a] - values[a]
            else:
                cause = against_before - against or values[a] - values_before[a]
            assert t.witness in cause
            assert t.cause_count == len(cause)
        known = inds


@KINDS
@pytest.mark.parametrize("cells", [1, 7, 10**6])
def test_changes_in_small_portions_are_those_in_one(
    monkeypatch: pytest.MonkeyPatch, dense_limit: int, cells: int
) -> None:
    monkeypatch.setattr(service.core.overlap, "PORTION_CELLS", cells)
    random, state, present = Random(cells), table_1(), Counter[tuple[int, bytes]]()
    matrix = matrix_of(state, dense_limit)
    for _ in range(12):
        change = Counter((random.randint(1, 7), key_of(value)) for value in random.choices("uvwxyz", k=12))
        for cell in random.sample(sorted(present), len(present) // 2):
            change[cell] -= present[cell]
        matrix.apply(state.apply(as_deltas(change)).moves)
        present.update(change)
        anew = matrix_of(state, dense_limit)
        assert [[matrix.overlap(a, b) for b in range(8)] for a in range(8)] == [
            [anew.overlap(a, b) for b in range(8)] for a in range(8)
        ]
        assert matrix.inds().tolist() == anew.inds().tolist() == sorted(map(list, state.inds()))
        assert matrix.inds().dtype == np.int32


@settings(max_examples=60)
@given(history=histories())
def test_a_batch_marks_what_it_changes_and_reserves_at_most_twice_its_cells(history: list) -> None:  # type: ignore[type-arg]
    state, values = State(), Counter[tuple[int, bytes]]()
    for batch in history:
        change = netted(batch)
        before = {cell for cell, count in values.items() if count > 0}
        values.update(change)
        moves = state.apply(as_deltas(change)).moves
        if not len(moves.values):
            continue
        marked, portions = service.core.overlap._portions(moves, 8)
        turned = before ^ {cell for cell, count in values.items() if count > 0}
        assert marked.tolist() == sorted({attribute for attribute, _ in turned})
        for cells in portions:
            assert len(cells) <= len(cells.base) <= 2 * len(cells)

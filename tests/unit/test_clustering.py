"""The attribute clustering: the paper's examples, and the laws that any sequence of batches keeps."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.clustering import ClusterCounts, ClusterSets, Moves, Underflow, occurrences
from service.core.records import starts_of
from tests.clusterings import (
    A,
    B,
    C,
    Cells,
    D,
    State,
    as_deltas,
    brute_force,
    cells_of,
    histories,
    key_of,
    netted,
    table_1,
    tuples,
)


def test_table_2_is_the_clustering_of_table_1_with_cluster_1_corrected() -> None:
    state = table_1()
    assert state.clustering() == {frozenset({A, B, D}), frozenset({A, B}), frozenset({B, D}), frozenset({C})}
    assert state.frequencies() == {
        key_of("a"): {A: 1, B: 1, D: 2},
        key_of("b"): {A: 2, B: 1},
        key_of("c"): {B: 1, D: 2},
        key_of("d"): {A: 1, B: 1},
        key_of("e"): {C: 1},
        key_of("f"): {C: 3},
    }
    assert {attributes: count for _, attributes, count in state.clusters} == {
        (A, B, D): 1,
        (A, B): 2,
        (B, D): 1,
        (C,): 2,
    }


def test_example_1_1_a_delete_breaks_and_an_insert_makes_and_breaks() -> None:
    assert table_1().inds() == {(A, B), (D, B)}
    deleted = table_1()
    deleted.delete("bbea")
    assert deleted.inds() == {(D, B)}
    inserted = table_1()
    inserted.insert("ccee")
    assert inserted.inds() == {(A, B), (B, A)}


def test_example_4_3_the_attribute_clustering_of_a_tuple() -> None:
    assert cells_of("ccee") == {key_of("c"): {A: 1, B: 1}, key_of("e"): {C: 1, D: 1}}


def test_example_4_6_merge() -> None:
    state = table_1()
    state.insert("ccee")
    assert state.clustering() == {frozenset({A, B, D}), frozenset({A, B}), frozenset({C, D}), frozenset({C})}


def test_example_4_10_extract() -> None:
    state = table_1()
    state.delete("bbea")
    expected = [{A, B, D}, {A, B}, {B, D}, {A}, {C}]
    assert state.clustering() == {frozenset(cluster) for cluster in expected}


def test_example_4_11_an_update_is_the_delete_and_the_insert_of_the_cells_that_differ() -> None:
    by_cells, by_tuples = table_1(), table_1()
    by_cells.delete(".c.c")
    by_cells.insert(".g.g")
    by_tuples.delete("bcfc")
    by_tuples.insert("bgfg")
    assert by_cells.frequencies() == by_tuples.frequencies()
    assert by_cells.clustering() == by_tuples.clustering()


def test_counters_follow_the_frequencies() -> None:
    state = table_1()
    applied = state.insert("bbbb")
    assert applied.distinct == {C: 1, D: 1}
    assert applied.repeated == {B: 1}
    applied = state.delete("bbbb")
    assert applied.distinct == {C: -1, D: -1}
    assert applied.repeated == {B: -1}


def test_taking_away_what_was_never_there_changes_nothing_and_names_the_cells() -> None:
    state = table_1()
    before = state.frequencies(), list(state.clusters)
    with pytest.raises(Underflow) as underflow:
        state.apply({key_of("a"): {A: -2, C: 1}, key_of("x"): {D: -1}, key_of("y"): {A: 1}})
    assert sorted(underflow.value.cells) == [(key_of("a"), A, 1), (key_of("x"), D, 1)]
    assert (state.frequencies(), list(state.clusters)) == before


def test_an_insert_only_attribute_has_members_and_no_frequencies() -> None:
    state = State()
    applied = state.apply({key_of("a"): {A: 3, B: 1}}, uncounted={A})
    assert state.frequencies() == {key_of("a"): {A: 0, B: 1}}
    assert applied.distinct == {A: 1, B: 1}
    assert applied.repeated == {}
    assert state.apply({key_of("a"): {A: 2}}, uncounted={A}).records.cluster_id.size == 0, (
        "a known member changes nothing"
    )


def test_a_cluster_without_values_goes_and_its_id_serves_the_next() -> None:
    state = State()
    state.insert("a...")
    (first,) = [cluster_id for cluster_id, _, _ in state.clusters]
    applied = state.delete("a...")
    assert applied.dropped.tolist() == [first]
    assert len(state.clusters) == 0
    state.insert(".a..")
    assert [(cluster_id, attributes) for cluster_id, attributes, _ in state.clusters] == [(first, (B,))]


def check(state: State, cells: Cells) -> None:
    clusters, inds = brute_force(cells)
    assert {frozenset(attributes): count for _, attributes, count in state.clusters} == clusters
    assert state.inds() == inds
    assert {(a, key): n for key, found in state.frequencies().items() for a, n in found.items()} == +cells


@given(tuples, tuples)
def test_merge_then_extract_is_the_identity(
    present: list[tuple[int, bytes]], inserted: list[tuple[int, bytes]]
) -> None:
    state = State()
    state.merge(occurrences(present))
    before = state.frequencies(), {attributes: count for _, attributes, count in state.clusters}
    state.merge(occurrences(inserted))
    state.extract(occurrences(inserted))
    assert (state.frequencies(), {attributes: count for _, attributes, count in state.clusters}) == before


@given(histories())
def test_any_sequence_of_batches_equals_recomputing(history: list[list[tuple[int, list[tuple[int, bytes]]]]]) -> None:
    state, cells = State(), Counter()
    for batch in history:
        change = netted(batch)
        state.apply(as_deltas(change))
        cells.update(change)
        check(state, cells)


@given(histories())
def test_a_netted_batch_equals_its_tuples_one_by_one(history: list[list[tuple[int, list[tuple[int, bytes]]]]]) -> None:
    by_batch, by_tuple = State(), State()
    for batch in history:
        by_batch.apply(as_deltas(netted(batch)))
        for sign, row in batch:
            (by_tuple.merge if sign > 0 else by_tuple.extract)(occurrences(row))
        assert by_batch.frequencies() == by_tuple.frequencies()
        assert by_batch.clustering() == by_tuple.clustering()


@given(histories(), st.randoms(use_true_random=False))
def test_the_order_inside_a_batch_does_not_matter(history: list, random) -> None:  # type: ignore[no-untyped-def,type-arg]
    straight, shuffled = State(), State()
    for batch in history:
        straight.apply(as_deltas(netted(batch)))
        deltas = list(as_deltas(netted(batch)).items())
        random.shuffle(deltas)
        shuffled.apply({key: dict(sorted(delta.items(), key=lambda _: random.random())) for key, delta in deltas})
        assert straight.frequencies() == shuffled.frequencies()
        assert straight.clustering() == shuffled.clustering()


def counts_of(*clusters: tuple[int, tuple[int, ...], int, bool], gone: tuple[int, ...] = ()) -> ClusterCounts:
    lengths = np.array([len(attributes) for _, attributes, _, _ in clusters], np.int64)
    return ClusterCounts(
        np.array([cluster_id for cluster_id, _, _, _ in clusters], np.int64),
        np.array([a for _, attributes, _, _ in clusters for a in attributes], np.int64),
        starts_of(lengths),
        np.array([values for _, _, values, _ in clusters], np.int64),
        np.array([is_new for _, _, _, is_new in clusters], np.bool_),
        np.array(gone, np.int64),
    )


def arrays_of(clusters: ClusterSets) -> tuple[np.ndarray, ...]:
    return clusters.cluster_id, clusters.starts, clusters.attribute_ids, clusters.values


def same(found: tuple[np.ndarray, ...], expected: tuple[np.ndarray, ...]) -> bool:
    return [(part.dtype, part.tolist()) for part in found] == [(part.dtype, part.tolist()) for part in expected]


def test_what_changed_of_clusters_is_put_together_and_chosen_from() -> None:
    first, second = counts_of((3, (A, B), 5, True), (4, (C,), 1, False), gone=(9,)), counts_of((8, (B, C, D), 2, True))
    both = counts_of((3, (A, B), 5, True), (4, (C,), 1, False), (8, (B, C, D), 2, True), gone=(9,))
    assert same(ClusterCounts.none(), counts_of())
    assert same(ClusterCounts.joined([first, ClusterCounts.none(), second]), both)
    assert same(both.only(lambda ids: ids >= 4), counts_of((4, (C,), 1, False), (8, (B, C, D), 2, True), gone=(9,)))
    assert same(both.only(lambda ids: ids < 4), counts_of((3, (A, B), 5, True)))


def test_clusters_and_moves_are_put_behind_each_other() -> None:
    first, second = ClusterSets.of([(3, (A, B), 5)]), ClusterSets.of([(4, (C,), 1), (8, (B, C, D), 2)])
    both = ClusterSets.of([(3, (A, B), 5), (4, (C,), 1), (8, (B, C, D), 2)])
    assert same(arrays_of(ClusterSets.joined([first, second])), arrays_of(both))
    assert same(arrays_of(both.only(np.array([False, True, True]))), arrays_of(second))
    nowhere = Moves.joined([])
    assert [(part.dtype, part.tolist()) for part in nowhere[:5]] == [(np.int64, of) for of in ([], [0], [], [0], [])]
    assert [(part.dtype, len(part)) for part in nowhere.witnesses] == [(np.uint64, 0)] * 2

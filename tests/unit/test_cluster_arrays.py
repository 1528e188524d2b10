"""The arrays that hold clusters and records grow, give room back and find sets again, as a dictionary would."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

from service.core.clustering import (
    NULL_KEY,
    ClusterCounts,
    Clusters,
    ClusterSets,
    Moves,
    Underflow,
    apply_deltas,
    derive_inds,
)
from service.core.records import NO_CLUSTER, Deltas, Keys, NewRecords, Records, find_keys, gather, starts_of
from service.usecases.live_state import accesses_of
from tests.clusterings import A, B, C, State, key_of

Sets = list[tuple[int, ...]]


def laid_out(sets: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    ids = np.array([a for one in sets for a in one], np.int64)
    return starts_of(np.array([len(one) for one in sets], np.int64)), ids


def cut(values: np.ndarray, starts: np.ndarray) -> Sets:
    return [tuple(values[starts[i] : starts[i + 1]].tolist()) for i in range(len(starts) - 1)]


def ids_of(found: Sequence[int]) -> np.ndarray:
    return np.array(found, np.int64)


@pytest.mark.parametrize("seed", range(4))
def test_clusters_grow_and_shrink_as_a_dictionary_does(seed: int) -> None:
    random, clusters, known = Random(seed), Clusters(), dict[tuple[int, ...], tuple[int, int]]()
    for step in range(16):
        drawn = {tuple(sorted(random.sample(range(1, 40), random.randint(0, 5)))) for _ in range(30)}
        sets = [*drawn, *random.sample(sorted(known), min(3, len(known)))]
        sets += sets[:2]
        found = clusters.assign(*laid_out(sets)).tolist()
        ids = {cluster_id for cluster_id, _ in known.values()}
        for one, cluster_id in zip(sets, found, strict=True):
            if not one:
                assert cluster_id == NO_CLUSTER
            elif one in known:
                assert cluster_id == known[one][0]
            else:
                assert cluster_id > 0
                assert cluster_id not in ids
                known[one] = cluster_id, 0
                ids.add(cluster_id)
        for one in filter(None, sets):
            known[one] = known[one][0], known[one][1] + 2
        clusters.move(ids_of([NO_CLUSTER] * len(sets)), ids_of(found), ids_of([2] * len(sets)))
        leaving = random.sample(sorted(known), len(known) * 2 // 3 if step % 4 == 3 else 5)
        taken = [random.choice([1, known[one][1]]) for one in leaving]
        places = ids_of([known[one][0] for one in leaving])
        touched, dropped = clusters.move(places, ids_of([NO_CLUSTER] * len(places)), ids_of(taken))
        gone = [one for one, number in zip(leaving, taken, strict=True) if number == known[one][1]]
        assert sorted(dropped.tolist()) == sorted(known[one][0] for one in gone)
        assert sorted(touched.tolist()) == sorted(known[one][0] for one in set(leaving) - set(gone))
        for one, number in zip(leaving, taken, strict=True):
            known[one] = known[one][0], known[one][1] - number
        for one in gone:
            assert not clusters.has(ids_of([known[one][0]])).any()
            del known[one]
        assert {one: (cluster_id, count) for cluster_id, one, count in clusters} == known
        assert len(clusters) == len(known)
    live = ids_of([cluster_id for cluster_id, _ in known.values()])
    assert cut(*clusters.sets(live)) == list(known)
    assert clusters.counts(live).tolist() == [count for _, count in known.values()]
    assert clusters.has(live).all()
    assert not clusters.has(ids_of([NO_CLUSTER])).any()
    assert all(type(a) is int for cluster_id in live.tolist() for a in clusters.attributes(cluster_id))


def test_clusters_with_gaps_give_the_lowest_free_ids_first() -> None:
    many = [(100 + n, (n, n + 1, 500), 1) for n in range(1, 80)]
    clusters = Clusters(ClusterSets.of([(5, (1, 2), 3), (2, (4,), 1), *many]))
    assert sorted(clusters) == sorted([(5, (1, 2), 3), (2, (4,), 1), *many])
    assert clusters.attributes(NO_CLUSTER) == clusters.attributes(3) == ()
    assert [type(a) for a in clusters.attributes(5)] == [int, int]
    found = clusters.assign(*laid_out([(1, 2), (4,), (7, 8), (), (9,), (4, 7), (79, 80, 500)])).tolist()
    assert found == [5, 2, 1, NO_CLUSTER, 3, 4, 179]
    assert Clusters(ClusterSets.of([(2, (4,), 1)])).assign(*laid_out([(8,), (9,)])).tolist() == [1, 3]


def test_moves_lie_behind_each_other() -> None:
    state = State()
    parts = [
        state.apply(deltas).moves
        for deltas in ({key_of("x"): {A: 1, B: 1}}, {key_of("y"): {C: 1}, key_of("z"): {C: 1}}, {key_of("x"): {B: -1}})
    ]
    joined = Moves.joined(parts)
    assert cut(joined.old, joined.old_starts) == [(), (), (A, B)]
    assert cut(joined.new, joined.new_starts) == [(A, B), (C,), (A,)]
    assert joined.values.tolist() == [1, 2, 1]
    assert [joined.witnesses.key(i) for i in range(3)] == [key_of("x"), key_of("y"), key_of("x")]
    none = Moves.joined([])
    assert [part.tolist() for part in none[:5]] == [[], [0], [], [0], []]
    kinds = [part.dtype for part in (*none[:5], *none.witnesses)]
    assert (
        kinds
        == [part.dtype for part in (*joined[:5], *joined.witnesses)]
        == [np.dtype(np.int64)] * 5 + [np.dtype(np.uint64)] * 2
    )


def test_a_batch_counts_all_its_values_in_whole_numbers() -> None:
    state = State()
    deltas = {key_of("x"): {A: 2, B: 1}, key_of("y"): {A: 3}, key_of("z"): {A: 1}}
    merged = state.clusters.merge(Deltas.of(deltas), state.present(deltas), np.zeros(8, np.bool_))
    assert [part.dtype for part in merged] == [np.dtype(np.uint8)] + [np.dtype(np.int64)] * 7
    applied = state.apply(deltas)
    assert (applied.distinct, applied.repeated) == ({A: 3, B: 1}, {A: 2})
    assert [applied.records.records.record(i)[1] for i in range(3)] == [(2, 1), (3,), (1,)]
    applied = state.apply({key_of("x"): {A: -1}, key_of("y"): {A: -2}, key_of("z"): {A: -1}})
    assert (applied.distinct, applied.repeated) == ({A: -1}, {A: -2})


def test_nulls_that_are_missing_are_told_with_the_cells() -> None:
    state = State()
    deltas, records = Deltas.of({key_of("x"): {B: -2}}), state.present({key_of("x"): {}})
    with pytest.raises(Underflow, match=r"^2 cells would have a negative frequency$") as told:
        apply_deltas(state.clusters, deltas, records, np.zeros(8, np.bool_), {A: 3})
    assert told.value.cells == [(NULL_KEY, A, 3), (key_of("x"), B, 2)]


def test_inds_are_ascending_pairs_of_32_bits() -> None:
    inds = derive_inds([((3, 1), 1), ((1, 2, 3), 4), ((2,), 0)])
    assert inds.dtype == np.int32
    assert inds.tolist() == [[1, 3], [2, 1], [2, 3], [3, 1]]
    assert derive_inds([]).shape == (0, 2)


@pytest.mark.parametrize("seed", range(4))
def test_records_are_gathered_taken_and_found_as_in_a_list(seed: int) -> None:
    random = Random(seed)
    records = [(random.randint(1, 9), tuple(random.choices(range(5), k=random.randint(0, 4)))) for _ in range(9)]
    places = random.sample(range(12), 9)
    wanted = [(NO_CLUSTER, ())] * 12
    for place, record in zip(places, records, strict=True):
        wanted[place] = record
    halves = [(ids_of(places[:4]), Records.of(records[:4])), (ids_of(places[4:]), Records.of(records[4:]))]
    gathered = gather(12, halves)
    assert [gathered.record(place) for place in range(12)] == wanted
    assert {part.dtype for part in gathered} == {np.dtype(np.int64)}
    joined = Records.joined([Records.of(records[:4]), Records.of([]), Records.of(records[4:])])
    assert [joined.record(place) for place in range(len(joined.cluster_id))] == records
    keys = sorted({bytes(random.choices(b"\0\1", k=16)) for _ in range(20)})
    asked = sorted([*keys[::3], *(bytes(random.choices(b"\0\1", k=16)) for _ in range(9))])
    assert find_keys(Keys.of(keys), Keys.of(asked)).tolist() == [keys.index(k) if k in keys else -1 for k in asked]
    shuffled = random.sample(keys, len(keys))
    assert [shuffled[place] for place in Keys.of(shuffled).order()] == keys
    repeated = random.choices(keys, k=40)
    then = [random.randint(1, 9) for _ in repeated]
    in_order = Keys.of(repeated).order(np.array(then))
    assert [(repeated[place], then[place]) for place in in_order] == sorted(zip(repeated, then, strict=True))
    counted = Records.of(records)
    new = NewRecords(
        Keys.of(keys[:9]),
        np.arange(9) % 2 == 0,
        counted.cluster_id,
        counted.starts,
        counted.frequencies + 7,
        counted.frequencies,
    )
    for chosen in ([0, 3, 8], [], [7, 1]):
        taken = new.take(ids_of(chosen))
        assert [taken.keys.key(i) for i in range(len(chosen))] == [keys[place] for place in chosen]
        assert [taken.records.record(i) for i in range(len(chosen))] == [records[place] for place in chosen]
        left = counted.take(ids_of(chosen))
        assert [left.record(i) for i in range(len(chosen))] == [records[place] for place in chosen]
        assert (taken.attribute_ids - 7).tolist() == taken.frequencies.tolist()
        assert taken.is_new.tolist() == [place % 2 == 0 for place in chosen]
    assert new.take(new.is_new).keys.key(1) == keys[2]
    assert [len(part) for part in NewRecords.none()[1:]] == [0, 0, 1, 0, 0]
    kinds = [part.dtype for part in (*NewRecords.none().keys, *NewRecords.none()[1:])]
    assert kinds == [part.dtype for part in (*new.keys, *new[1:])]
    assert gathered.cluster_id.dtype == Records.of([]).frequencies.dtype == np.dtype(np.int64)
    assert Deltas.of({b"k" * 16: {2: 1, 1: -1}, b"a" * 16: {3: 5}}).size == 2


@pytest.mark.parametrize("seed", range(4))
def test_differences_of_the_same_values_add_up(seed: int) -> None:
    random, keys = Random(seed), sorted(key_of(text) for text in "abcde")
    sides = [{key: {a: random.choice((-1, 1)) for a in random.sample((A, B, C), 2)} for key in keys} for _ in range(2)]
    sides[1][keys[1]] = {a: -n for a, n in sides[0][keys[1]].items()}
    sides[1][keys[2]] = {}
    added = Deltas.of(sides[0]).plus(Deltas.of(sides[1]))
    wanted = {
        key: {a: n for a in (A, B, C) if (n := sides[0][key].get(a, 0) + sides[1][key].get(a, 0))} for key in keys
    }
    for part, expected in zip(added[1:], Deltas.of(wanted)[1:], strict=True):
        assert (part.tolist(), part.dtype) == (expected.tolist(), np.int64)
    assert added.values().tolist() == [place for place, key in enumerate(keys) for _ in wanted[key]]


def test_accesses_count_each_value_that_is_taken_away_somewhere_once() -> None:
    """Of values whose differences add up to nothing, in their midst and behind them, none is."""
    first, none, both, last = keys = sorted(key_of(text) for text in "abcd")
    deltas = Deltas.of({first: {A: 1}, none: {}, both: {A: -1, B: -1}, last: {}})
    clusters = Clusters(ClusterSets.of([(1, (A, B), 1), (2, (C,), 2)]))
    records = Records.of([(NO_CLUSTER, ()), (2, (1,)), (1, (1, 1)), (2, (1,))])
    counted = accesses_of(deltas, apply_deltas(clusters, deltas, records, np.zeros(C + 1, np.bool_)))
    assert (counted.values, counted.written) == (len(keys), 2)
    taken, left = 1, 1
    assert counted.without_caches == len(keys) + 2 + taken + left


@pytest.mark.parametrize("seed", range(4))
def test_what_is_told_of_clusters_lets_a_store_follow_them(seed: int) -> None:
    """However many moves lie between, ids that serve anew among them, each row is inserted, counted or deleted once."""
    random = Random(seed)
    clusters = Clusters(ClusterSets.of([(3, (1, 2), 4), (7, (5,), 1)]))
    store = {3: ((1, 2), 4), 7: ((5,), 1)}
    was_reused = 0
    for _ in range(40):
        touched = [ids_of([])]
        for _ in range(random.randint(1, 3)):
            leaving = [one for one in clusters if random.random() < 0.5]
            came = [(a,) for a in random.sample(range(1, 9), 3)]
            entered = clusters.assign(*laid_out(came)).tolist()
            moves = [(cluster_id, NO_CLUSTER, random.choice([1, count])) for cluster_id, _, count in leaving]
            moves += [(NO_CLUSTER, cluster_id, random.randint(1, 3)) for cluster_id in entered]
            touched += clusters.move(*map(ids_of, zip(*moves, strict=True)))
        ids = np.unique(np.concatenate(touched))
        is_live = clusters.has(ids)
        told = ClusterCounts.take(clusters, ids[is_live], ids[~is_live])
        for cluster_id in told.gone.tolist():
            del store[cluster_id]
            was_reused += cluster_id in told.cluster_id
        sets = cut(told.attribute_ids, told.starts)
        for cluster_id, one, count, is_new in zip(
            told.cluster_id.tolist(), sets, told.values.tolist(), told.is_new.tolist(), strict=True
        ):
            assert is_new == (cluster_id not in store)
            store[cluster_id] = (one if is_new else store[cluster_id][0], count)
        assert store == {cluster_id: (one, count) for cluster_id, one, count in clusters}
    assert was_reused

"""A state dealt out to shards says what the whole says, in one process or each shard by itself, and goes back."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.clustering import Clusters, ClusterSets, Underflow, apply_deltas
from service.core.model import Attribute, AttributeCounters, AttributeName, Table
from service.core.records import NO_CLUSTER, Deltas, Keys, NewRecords, Records
from service.core.shards import ID_BITS, ShardedClusters, cuts, part_of_deltas, shard_bounds, stored_ids
from service.core.sketch_changes import SketchChanges
from service.core.sketch_upkeep import DEFAULT_FORM
from service.usecases.live_state import LiveState, StateDelta, StoredState, accesses_of
from service.usecases.netting import Netted
from service.usecases.shards import Before, ShardBatch, ShardSummary, conclude
from tests.clusterings import Cells, as_deltas, brute_force, histories, netted

ATTRIBUTES = [Attribute(i, AttributeName("s", "t", f"c{i}"), i, "text", insert_only=i == 6) for i in range(1, 7)]
NO_FLAGS = np.isin(np.arange(7), [6])


def spread(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()[:16]


def batches_of(history: Sequence[Sequence[tuple[int, list[tuple[int, bytes]]]]]) -> list[dict[bytes, dict[int, int]]]:
    """Net each batch; the attribute that is not counted only gains values, as its source only inserts."""
    found = []
    for batch in history:
        cells = netted(batch)
        found.append(as_deltas(Counter({(a, spread(key)): n for (a, key), n in cells.items() if a != 6 or n > 0})))
    return found


def state_of(shards: int) -> LiveState:
    stored = StoredState(
        1,
        1,
        (Table("s", "t", tuple(ATTRIBUTES), False),),
        {a.attribute_id: AttributeCounters(distinct_count=0, repeated_count=0) for a in ATTRIBUTES},
        ClusterSets.of(),
        sketches=DEFAULT_FORM,
        shards=shards,
    )
    return LiveState(stored, 1 << 20)


def netted_of(deltas: Deltas, nulls: Mapping[int, int] | None = None) -> Netted:
    texts = [deltas.keys.key(place).hex() for place in range(deltas.size)]
    places = np.arange(deltas.size)
    return Netted(deltas, texts, places, {1: 1}, dict(nulls or {}), 0, 0, 0, SketchChanges.none())


class Stored:
    """Keep records by key as the store does."""

    def __init__(self) -> None:
        self.records: dict[bytes, tuple[int, tuple[int, ...]]] = {}

    def present(self, keys: Keys) -> Records:
        return Records.of([self.records.get(keys.key(i), (NO_CLUSTER, ())) for i in range(len(keys.high))])

    def put(self, new: object) -> None:
        for place in range(len(new.cluster_id)):  # type: ignore[attr-defined]
            key = new.keys.key(place)  # type: ignore[attr-defined]
            assert new.is_new[place] == (key not in self.records)  # type: ignore[attr-defined]
            self.records.pop(key, None)
            if new.cluster_id[place] != NO_CLUSTER:  # type: ignore[attr-defined]
                self.records[key] = new.records.record(place)  # type: ignore[attr-defined]


class Shard(Stored):
    """Be a shard on a machine of its own, which keeps bytes alone of what it did."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number, self.clusters, self.kept = number, Clusters(), (b"", b"")

    def apply(self, deltas: Deltas) -> ShardSummary:
        batch = ShardBatch(1, 0, 0, deltas, netted_of(deltas).texts, NO_FLAGS)
        present = self.present(deltas.keys)
        sets = self.clusters.sets(present.cluster_id)
        applied = apply_deltas(self.clusters, deltas, present, NO_FLAGS)
        self.put(applied.records)
        summary = ShardSummary.of(self.number, batch, applied, accesses_of(deltas, applied))
        self.kept = summary.to_bytes(), Before.of(batch, present, sets, applied).to_bytes()
        return ShardSummary.from_bytes(self.kept[0])

    def undo(self) -> None:
        before = Before.from_bytes(self.kept[1])
        records, _, _ = before.back(self.clusters, ShardSummary.from_bytes(self.kept[0]).moves)
        assert list(before.texts) == [records.keys.key(i).hex() for i in np.flatnonzero(records.is_new)]
        self.put(records)

    def holds(self) -> object:
        sets = {key: (self.clusters.attributes(i), counted) for key, (i, counted) in self.records.items()}
        return sets, {attributes: count for _, attributes, count in self.clusters}


def said(delta: StateDelta, state: LiveState) -> object:
    """Give what a batch makes of the state, without the numbers of clusters and which witness stands for many."""
    turned = {(t.kind, t.dependent_id, t.referenced_id, t.cause_count) for t in delta.transitions}
    came = {i: (sorted(one.came), sorted(one.gone)) for i, one in delta.values.of(range(7)).items()}
    parts = zip(delta.switches.attribute_ids, delta.switches.differences, delta.switches.starts, strict=False)
    hashes = [
        (int(a), int(n), sorted(delta.switches.hashes[start:end].tolist()))
        for (a, n, start), end in zip(parts, delta.switches.starts[1:], strict=True)
    ]
    clusters = {attributes: count for _, attributes, count in state.clusters}
    return turned, came, hashes, delta.counters, clusters, {tuple(pair) for pair in state.overlap.inds().tolist()}


def told(records: NewRecords) -> object:
    """Give records without the numbers of their clusters."""
    parts = (records.keys.high, records.keys.low, records.is_new, records.starts, records.attribute_ids)
    return [part.tolist() for part in (*parts, records.frequencies)]


def test_shares_are_equal_and_each_key_is_in_one_of_them() -> None:
    assert [int(bound) >> 60 for bound in shard_bounds(4)] == [4, 8, 12]
    keys = Keys.of(sorted(spread(str(i).encode()) for i in range(3000)))
    sizes = np.diff(cuts(keys, 3))
    assert sizes.sum() == 3000
    assert (abs(sizes - 1000) < 120).all()
    first = Keys(shard_bounds(3), np.zeros(2, np.uint64))
    assert cuts(first, 3) == [0, 0, 1, 2], "a bound is the first key behind it"


@settings(max_examples=40)
@given(histories(), st.integers(2, 9))
def test_any_batches_over_any_number_of_shards_are_those_of_the_whole(history: list, of: int) -> None:
    whole, sharded, head = state_of(1), state_of(of), state_of(of)
    stored, dealt, shards = Stored(), Stored(), [Shard(number) for number in range(of)]
    cells: Cells = Counter()
    for found in batches_of(history):
        deltas = Deltas.of(found)
        expected = whole.apply(netted_of(deltas), stored.present(deltas.keys))
        stored.put(expected.records)
        delta = sharded.apply(netted_of(deltas), dealt.present(deltas.keys))
        dealt.put(delta.records)
        assert told(delta.records) == told(expected.records)
        at = cuts(deltas.keys, of)
        parts = [part_of_deltas(deltas, start, end) for start, end in pairwise(at)]
        for shard, part in zip(shards, parts, strict=True):  # done, undone and done again is done
            before = shard.holds()
            shard.apply(part)
            shard.undo()
            assert shard.holds() == before
        summaries = [shard.apply(part) for shard, part in zip(shards, parts, strict=True)]
        by_shards = conclude(head, summaries, {1: 1}, {}, SketchChanges.none())
        assert said(delta, sharded) == said(expected, whole)
        assert said(by_shards, head) == said(expected, whole)
        for one in (delta, by_shards):
            assert all(text == key.hex() for key, text in one.witnesses.items())
        for key, differences in found.items():
            for attribute_id, n in differences.items():
                cells[attribute_id, key] = 1 if attribute_id == 6 else cells[attribute_id, key] + n
    clusters, inds = brute_force(cells)
    assert {frozenset(a): n for _, a, n in sharded.clusters} == clusters
    assert {tuple(pair) for pair in head.overlap.inds().tolist()} == inds
    assert {k: c for k, (_, c) in dealt.records.items()} == {k: c for k, (_, c) in stored.records.items()}
    by_one = {key: stored_id for shard in shards for key, (stored_id, _) in shard.records.items()}
    assert by_one.keys() == stored.records.keys()


def test_clusters_of_all_shards_are_told_apart_by_what_they_are_stored_as() -> None:
    clusters, stored = ShardedClusters(4, ClusterSets.of()), Stored()
    held = {spread(str(i).encode()): {1: 1} if i % 3 else {1: 1, 2: 2} for i in range(40)}
    deltas = Deltas.of(held)
    applied = clusters.apply(deltas, Records.of([(NO_CLUSTER, ())] * len(held)), NO_FLAGS, {})
    assert [part.dtype for part in (applied.clusters, applied.dropped)] == [np.int64, np.int64]
    assert [len(part) for part in (applied.clusters, applied.dropped)] == [0, 0]
    stored.put(applied.records)
    of_keys = [stored.records[key][0] for key in sorted(held)]
    assert {stored_id >> ID_BITS for stored_id in of_keys} == {0, 1, 2, 3}
    assert {stored_id: count for stored_id, _, count in clusters} == Counter(of_keys)
    attribute_ids, starts = clusters.sets(deltas.keys, np.array(of_keys))
    found = [attribute_ids[start:end].tolist() for start, end in pairwise(starts)]
    assert found == [sorted(held[key]) for key in sorted(held)]


def test_a_cell_that_misses_in_one_shard_leaves_all_as_they_were() -> None:
    state, low, high = state_of(2), bytes(16), b"\xff" * 16
    state.apply(netted_of(Deltas.of({low: {1: 1}})), Records.of([(NO_CLUSTER, ())]))
    present = Records.of([(NO_CLUSTER, ()), (NO_CLUSTER, ())])
    with pytest.raises(Underflow) as refused:
        state.apply(netted_of(Deltas.of({low[:-1] + b"\1": {1: 1}, high: {2: -1}})), present)
    assert refused.value.cells == [(high, 2, 1)]
    with pytest.raises(Underflow) as refused:
        conclude(state, [Shard(0).apply(Deltas.of({low: {3: 1}}))], {}, {1: -1}, SketchChanges.none())
    assert refused.value.cells == [(b"", 1, 1)]
    assert list(state.clusters) == [(1, (1,), 1)]


def test_stored_ids_tell_shards_apart_and_no_cluster_is_none() -> None:
    assert stored_ids(np.array([0, 5]), 3).tolist() == [0, (3 << ID_BITS) + 5]

"""Own what a shard is: an equal share of the key space with clusters of its own, and a batch dealt out to all of them.

Shard s of n has the keys whose first 64 bits are at least s / n of their range and below (s + 1) / n of it: whoever
has a key knows its shard, and ascending keys are ascending shards. A shard numbers its clusters itself; beside other
shards' ids its own are told apart by the shard in their upper half (`stored id`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from service.core.clustering import (
    Applied,
    AttributeIds,
    ClusterCounts,
    Clusters,
    ClusterSets,
    Moves,
    missing_of,
    require_cells,
    settle,
)
from service.core.records import (
    NO_CLUSTER,
    Deltas,
    Flags,
    Int64s,
    Keys,
    NewRecords,
    Records,
    UInt64s,
    distinct_of,
    starts_of,
)
from service.core.sketch_changes import SketchChanges

MOST_SHARDS = 1024
ID_BITS = 32
_ID_MASK = (1 << ID_BITS) - 1


def shard_bounds(of: int) -> UInt64s:
    """Give the first 64 bits of the first key of each shard but the first: uint64[of - 1]."""
    return np.array([-(-(shard << 64) // of) for shard in range(1, of)], np.uint64)


def cuts(keys: Keys, of: int) -> list[int]:
    """Give where ascending keys go over from one shard to the next: of + 1 places, from 0 to their number."""
    return [0, *np.searchsorted(keys.high, shard_bounds(of), "left").tolist(), len(keys.high)]


def local_ids(stored_ids: Int64s) -> Int64s:
    """Give the ids that shards' own clusters have in memory."""
    return stored_ids & _ID_MASK


def stored_ids(local: Int64s, shard: int) -> Int64s:
    """Give the ids that clusters of a shard have in the store; NO_CLUSTER is that of all."""
    return np.where(local == NO_CLUSTER, NO_CLUSTER, local | shard << ID_BITS)


def clusters_of_shard(known: ClusterSets) -> Clusters:
    """Give the clusters of one shard, which come with stored ids, as it has them in memory."""
    return Clusters(replace(known, cluster_id=local_ids(known.cluster_id)))


def part_of_deltas(deltas: Deltas, start: int, end: int) -> Deltas:
    """Cut the values from `start` up to `end` out."""
    cells = slice(deltas.starts[start], deltas.starts[end])
    starts = deltas.starts[start : end + 1] - deltas.starts[start]
    return Deltas(deltas.keys.take(slice(start, end)), starts, deltas.attribute_ids[cells], deltas.differences[cells])


def joined_switches(parts: Sequence[SketchChanges]) -> SketchChanges:
    """Put what changes in the shards' values together; quick where nothing does."""
    return SketchChanges.merged([part for part in parts if len(part.hashes)] or [SketchChanges.none()])


class ShardedClusters:
    """Keep the clusters of n shards, and apply batches to all of them or, where a cell is missing, to none.

    Records come and go with stored ids. What a batch changed in the shards' clusters stays noted until it is taken.
    """

    __slots__ = ("_parts", "_touched")

    def __init__(self, of: int, known: ClusterSets) -> None:
        """Take each shard's clusters, by their stored ids."""
        shard_of = known.cluster_id >> ID_BITS
        self._parts = [clusters_of_shard(known.only(shard_of == shard)) for shard in range(of)]
        self._touched: list[list[Int64s]] = [[] for _ in range(of)]

    def __iter__(self) -> Iterator[tuple[int, AttributeIds, int]]:
        """Give `(stored cluster id, attributes, value count)` of every cluster of every shard."""
        for shard, clusters in enumerate(self._parts):
            for cluster_id, attributes, count in clusters:
                yield cluster_id | shard << ID_BITS, attributes, count

    def apply(self, deltas: Deltas, records: Records, uncounted: Flags, missing_nulls: Mapping[int, int]) -> Applied:
        """Apply a batch as `clustering.apply_deltas` does; `clusters` and `dropped` of what it gives are empty.

        Raises Underflow, with nothing changed in any shard.
        """
        own = []
        for clusters, (start, end) in zip(self._parts, pairwise(cuts(deltas.keys, len(self._parts))), strict=True):
            of_shard, present = part_of_deltas(deltas, start, end), _part_of_records(records, start, end)
            own.append((clusters, of_shard, present, clusters.merge(of_shard, present, uncounted)))
        missing = [cell for _, of_shard, _, merged in own for cell in missing_of(of_shard, merged)]
        require_cells(missing, missing_nulls)
        applied = []
        for shard, (clusters, of_shard, present, merged) in enumerate(own):
            one = settle(clusters, of_shard, present, merged)
            self._touched[shard] += [one.clusters, one.dropped]
            new = one.records._replace(cluster_id=stored_ids(one.records.cluster_id, shard))
            applied.append(replace(one, records=new))
        none = np.zeros(0, np.int64)
        return Applied(
            _joined_records([one.records for one in applied]),
            Moves.joined([one.moves for one in applied]),
            summed([one.distinct for one in applied]),
            summed([one.repeated for one in applied]),
            none,
            none,
            joined_switches([one.switches for one in applied]),
        )

    def sets(self, keys: Keys, cluster_ids: Int64s) -> tuple[Int64s, Int64s]:
        """Give the attributes of the clusters of ascending keys end to end, as (attribute ids, starts)."""
        at = cuts(keys, len(self._parts))
        found = [
            clusters.sets(local_ids(cluster_ids[start:end]))
            for clusters, (start, end) in zip(self._parts, pairwise(at), strict=True)
        ]
        lengths = np.concatenate([np.diff(starts) for _, starts in found])
        return np.concatenate([attribute_ids for attribute_ids, _ in found]), starts_of(lengths)

    def take_changes(self) -> ClusterCounts:
        """Give, by stored id, the clusters that changed since the last call."""
        parts = []
        for shard, (clusters, touched) in enumerate(zip(self._parts, self._touched, strict=True)):
            ids = distinct_of(np.concatenate([np.zeros(0, np.int64), *touched]))
            is_live = clusters.has(ids)
            parts.append(of_shard(ClusterCounts.take(clusters, ids[is_live], ids[~is_live]), shard))
            touched.clear()
        return ClusterCounts.joined(parts)


def of_shard(counts: ClusterCounts, shard: int) -> ClusterCounts:
    """Give clusters of a shard the ids that they have in the store."""
    return counts._replace(cluster_id=stored_ids(counts.cluster_id, shard), gone=stored_ids(counts.gone, shard))


def follow_moves(clusters: Clusters, moves: Moves) -> tuple[Int64s, Int64s]:
    """Let the clusters of the whole follow the moves of shards; gives the ids that changed and those that went."""
    from_ids = clusters.assign(moves.old_starts, moves.old)
    return clusters.move(from_ids, clusters.assign(moves.new_starts, moves.new), moves.values)


def summed(parts: Sequence[Mapping[int, int]]) -> dict[int, int]:
    """Add differences up by attribute; those that come to 0 are left out."""
    found: dict[int, int] = {}
    for part in parts:
        for attribute_id, difference in part.items():
            found[attribute_id] = found.get(attribute_id, 0) + difference
    return {attribute_id: difference for attribute_id, difference in found.items() if difference}


def _part_of_records(records: Records, start: int, end: int) -> Records:
    """Cut the records from `start` up to `end` out, with the ids of their own shard."""
    starts = records.starts[start : end + 1] - records.starts[start]
    cells = slice(records.starts[start], records.starts[end])
    return Records(local_ids(records.cluster_id[start:end]), starts, records.frequencies[cells])


def _joined_records(parts: Sequence[NewRecords]) -> NewRecords:
    return NewRecords(
        Keys(np.concatenate([p.keys.high for p in parts]), np.concatenate([p.keys.low for p in parts])),
        np.concatenate([p.is_new for p in parts]),
        np.concatenate([p.cluster_id for p in parts]),
        starts_of(np.concatenate([np.diff(p.starts) for p in parts])),
        np.concatenate([p.attribute_ids for p in parts]),
        np.concatenate([p.frequencies for p in parts]),
    )

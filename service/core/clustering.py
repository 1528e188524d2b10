"""Own the attribute clustering: its clusters, the merge and extract operators, and Lemma 4.2.

After Shaabani and Meinel, Incremental Discovery of Inclusion Dependencies (2017), sections 4 and 5. Where the
paper takes one tuple and one value at a time, `apply_deltas` takes the netted changes of a whole batch; a
single tuple is the batch of size one. Two things differ from the paper on purpose: an attribute leaves a
value's cluster when its frequency reaches 0 (the paper's F = 1 test is the one-tuple case), and the value
counts of the clusters are complete, so that no count is ever asked of the generator records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core import clustering_kernels as kernels
from service.core.record_kernels import take_lists
from service.core.records import NO_CLUSTER, Deltas, Flags, Int64s, Keys, NewRecords, Records, starts_of
from service.core.sketch_changes import SketchChanges

AttributeIds = tuple[int, ...]
"""An attribute set in canonical form: ascending ids, no repetition."""


_NOT_STORED, _STORED, _OLDER = range(3)
"""What the store has under an id: nothing, the set that it stands for, one that is gone."""


@dataclass(frozen=True, slots=True, eq=False)
class ClusterSets:
    """Hold n clusters as a store gives them: their ids, their attributes end to end, and how many values each has.

    `cluster_id` and `values` are int64[n], `starts` int64[n + 1], `attribute_ids` ascend within each cluster.
    """

    cluster_id: Int64s
    starts: Int64s
    attribute_ids: Int64s
    values: Int64s

    @staticmethod
    def of(clusters: Iterable[tuple[int, Sequence[int], int]] = ()) -> ClusterSets:
        """Take `(cluster id, ascending attribute ids, value count)` of each."""
        known = list(clusters)
        return ClusterSets(
            np.array([cluster_id for cluster_id, _, _ in known], np.int64),
            starts_of(np.array([len(attributes) for _, attributes, _ in known], np.int64)),
            np.array([a for _, attributes, _ in known for a in attributes], np.int64),
            np.array([count for _, _, count in known], np.int64),
        )

    @staticmethod
    def joined(parts: Sequence[ClusterSets]) -> ClusterSets:
        """Put those of several parts, of which there is at least one, behind each other."""
        return ClusterSets(
            np.concatenate([part.cluster_id for part in parts]),
            starts_of(np.concatenate([np.diff(part.starts) for part in parts])),
            np.concatenate([part.attribute_ids for part in parts]),
            np.concatenate([part.values for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.cluster_id)

    def only(self, chosen: Flags) -> ClusterSets:
        """Give those that are marked."""
        lengths = np.diff(self.starts)
        return ClusterSets(
            self.cluster_id[chosen],
            starts_of(lengths[chosen]),
            self.attribute_ids[np.repeat(chosen, lengths)],
            self.values[chosen],
        )


class Clusters:
    """Keep ACRecs and CountCache: clusters by id, ids by cluster, and how many values each has (section 5.1).

    Arrays are indexed by cluster id, of which a cluster that is gone gives its own back; sets lie end to end in
    `_ids`, and `_table` finds a set by its hash. `_stored` says what the store has under an id.
    """

    __slots__ = (
        "_counts",
        "_free",
        "_free_count",
        "_ids",
        "_next_id",
        "_sizes",
        "_starts",
        "_stored",
        "_table",
        "_used",
    )

    def __init__(self, known: ClusterSets | None = None) -> None:
        """Take the clusters that have values; None for none."""
        known = ClusterSets.of() if known is None else known
        ids = known.cluster_id
        self._next_id = int(ids.max(initial=NO_CLUSTER)) + 1
        self._used = len(known.attribute_ids)
        self._starts, self._sizes, self._counts = np.zeros((3, max(2 * self._next_id, 64)), np.int64)
        self._ids = np.zeros(max(2 * self._used, 64), np.int64)
        self._ids[: self._used] = known.attribute_ids
        self._starts[ids] = known.starts[:-1]
        self._sizes[ids] = np.diff(known.starts)
        self._counts[ids] = known.values
        self._stored = np.full(len(self._sizes), _NOT_STORED, np.uint8)
        self._stored[ids] = _STORED
        gaps = np.flatnonzero(self._sizes[: self._next_id] == 0)[:0:-1]
        self._free = np.zeros(len(self._sizes), np.int64)
        self._free[: len(gaps)] = gaps
        self._free_count = len(gaps)
        self._table = np.zeros(0, np.int64)
        self._index(len(known))

    def __len__(self) -> int:
        return int(np.count_nonzero(self._sizes[: self._next_id]))

    def __iter__(self) -> Iterator[tuple[int, AttributeIds, int]]:
        """Give `(cluster_id, attributes, value count)` of every cluster."""
        for cluster_id in np.flatnonzero(self._sizes[: self._next_id]).tolist():
            yield cluster_id, self.attributes(cluster_id), self.count(cluster_id)

    def attributes(self, cluster_id: int) -> AttributeIds:
        """Return the attributes of a cluster; the empty set for NO_CLUSTER and for an id that no cluster has."""
        start = self._starts[cluster_id]
        return tuple(self._ids[start : start + self._sizes[cluster_id]].tolist())

    def count(self, cluster_id: int) -> int:
        """Return how many values the cluster has, 0 for one that is not (or no longer) there."""
        return int(self._counts[cluster_id])

    def counts(self, cluster_ids: Int64s) -> Int64s:
        """Return how many values each of the clusters has."""
        return self._counts[cluster_ids]

    def has(self, cluster_ids: Int64s) -> Flags:
        """Tell of each id whether a cluster has it."""
        return self._sizes[cluster_ids] > 0

    def sets(self, cluster_ids: Int64s) -> tuple[Int64s, Int64s]:
        """Give the attributes of clusters end to end as (attribute ids, starts)."""
        starts = starts_of(self._sizes[cluster_ids])
        return kernels.copy_sets(cluster_ids, self._starts, self._sizes, self._ids, starts), starts

    def merge(self, deltas: Deltas, records: Records, uncounted: Flags) -> kernels.Merged:
        """Find what becomes of each value: its attributes with their frequencies. Nothing is changed."""
        most = int(self._sizes[records.cluster_id].sum()) + len(deltas.attribute_ids)
        return kernels.merge(
            deltas.starts, deltas.attribute_ids, deltas.differences, records.cluster_id, records.starts,
            records.frequencies, self._starts, self._sizes, self._ids, uncounted, most,
        )  # fmt: skip

    def assign(self, starts: Int64s, attribute_ids: Int64s) -> Int64s:
        """Return the id of each attribute set, a new one for a set not seen before; NO_CLUSTER for the empty set."""
        wanted = len(starts) - 1
        self._make_room(wanted, len(attribute_ids))
        ids, self._next_id, self._used, self._free_count = kernels.assign(
            starts, attribute_ids, self._starts, self._sizes, self._ids, self._table, self._free,
            self._next_id, self._used, self._free_count,
        )  # fmt: skip
        found: Int64s = ids
        return found

    def move(self, old_ids: Int64s, new_ids: Int64s, values: Int64s) -> tuple[Int64s, Int64s]:
        """Count values out of clusters and into others; NO_CLUSTER on a side is nowhere.

        Clusters that no value is in any more are removed (Algorithm 5); their ids may serve again. Returns the ids of
        the other clusters whose counts changed, and those of the removed ones.
        """
        np.subtract.at(self._counts, old_ids, values)
        np.add.at(self._counts, new_ids, values)
        self._counts[NO_CLUSTER] = 0
        is_touched = np.zeros(self._next_id, np.bool_)
        is_touched[old_ids] = is_touched[new_ids] = True
        is_touched[NO_CLUSTER] = False
        touched = np.flatnonzero(is_touched)
        is_empty = self._counts[touched] == 0
        dropped = touched[is_empty]
        kernels.forget(dropped, self._starts, self._sizes, self._ids, self._table)
        self._stored[dropped[self._stored[dropped] == _STORED]] = _OLDER
        self._free[self._free_count : self._free_count + len(dropped)] = dropped
        self._free_count += len(dropped)
        return touched[~is_empty], dropped

    def take_changes(self, kept: Int64s, dropped: Int64s) -> tuple[Flags, Int64s]:
        """Tell what the store lacks of the ids that `move` gave since the last call: which of `kept` are new to it.

        And what it has to delete before: the ids of both whose sets, as it has them, are gone.
        """
        is_new = self._stored[kept] != _STORED
        both = np.concatenate([kept, dropped])
        gone = both[self._stored[both] == _OLDER]
        self._stored[kept], self._stored[dropped] = _STORED, _NOT_STORED
        return is_new, gone

    def _make_room(self, clusters: int, attributes: int) -> None:
        """Let arrays have room for so many more clusters and attributes in them."""
        if self._next_id + clusters > len(self._sizes):
            more = 2 * (self._next_id + clusters)
            for name in ("_starts", "_sizes", "_counts", "_free", "_stored"):
                known = getattr(self, name)
                setattr(self, name, np.concatenate([known, np.zeros(more - len(known), known.dtype)]))
        if self._used + attributes > len(self._ids):
            # Sets that are gone leave their room behind: what is kept moves together first.
            live = np.flatnonzero(self._sizes[: self._next_id])
            kept, starts = self.sets(live)
            self._starts[live] = starts[:-1]
            self._used = len(kept)
            self._ids = np.zeros(2 * (self._used + attributes), np.int64)
            self._ids[: self._used] = kept
        self._index(clusters)

    def _index(self, clusters: int) -> None:
        """Build the table anew when so many more clusters could fill more than half of it."""
        if 2 * (np.count_nonzero(self._table) + clusters) >= len(self._table):
            live = np.flatnonzero(self._sizes[: self._next_id])
            size = 1 << int(4 * (len(live) + clusters) + 64).bit_length()
            self._table = kernels.index(live, self._starts, self._sizes, self._ids, size)


class ClusterCounts(NamedTuple):
    """Hold clusters with their attributes, which lie end to end, and how many values each has.

    `is_new` marks those that the store has not; of the others it has all but the count. `gone` are ids of clusters
    that it has and that are to be deleted before.
    """

    cluster_id: Int64s
    attribute_ids: Int64s
    starts: Int64s
    values: Int64s
    is_new: Flags
    gone: Int64s

    @staticmethod
    def take(clusters: Clusters, kept: Int64s, dropped: Int64s) -> ClusterCounts:
        """Take what changed of clusters, given all ids that `Clusters.move` gave since the last time."""
        return ClusterCounts(kept, *clusters.sets(kept), clusters.counts(kept), *clusters.take_changes(kept, dropped))

    @staticmethod
    def none() -> ClusterCounts:
        """Give no cluster."""
        nothing = np.zeros(0, np.int64)
        return ClusterCounts(nothing, nothing, np.zeros(1, np.int64), nothing, np.zeros(0, np.bool_), nothing)

    def only(self, choose: Callable[[Int64s], Flags]) -> ClusterCounts:
        """Give those whose ids are chosen, of those that are gone as well."""
        chosen, lengths = choose(self.cluster_id), np.diff(self.starts)
        return ClusterCounts(
            self.cluster_id[chosen],
            self.attribute_ids[np.repeat(chosen, lengths)],
            starts_of(lengths[chosen]),
            self.values[chosen],
            self.is_new[chosen],
            self.gone[choose(self.gone)],
        )

    @staticmethod
    def joined(parts: Sequence[ClusterCounts]) -> ClusterCounts:
        """Put those of several parts, of which there is at least one, behind each other."""
        starts = starts_of(np.concatenate([np.diff(part.starts) for part in parts]))
        ids, attribute_ids, _, *others = (np.concatenate(column) for column in zip(*parts, strict=True))
        return ClusterCounts(ids, attribute_ids, starts, *others)


class Moves(NamedTuple):
    """Say how many values went from one attribute set to another in a batch, each with the key of one as witness.

    The sets of both sides lie end to end.
    """

    old: Int64s
    old_starts: Int64s
    new: Int64s
    new_starts: Int64s
    values: Int64s
    witnesses: Keys

    @staticmethod
    def joined(parts: Sequence[Moves]) -> Moves:
        """Put moves behind each other."""
        return Moves(
            np.concatenate([p.old for p in parts] or [np.zeros(0, np.int64)]),
            starts_of(np.concatenate([np.diff(p.old_starts) for p in parts] or [np.zeros(0, np.int64)])),
            np.concatenate([p.new for p in parts] or [np.zeros(0, np.int64)]),
            starts_of(np.concatenate([np.diff(p.new_starts) for p in parts] or [np.zeros(0, np.int64)])),
            np.concatenate([p.values for p in parts] or [np.zeros(0, np.int64)]),
            Keys(
                np.concatenate([p.witnesses.high for p in parts] or [np.zeros(0, np.uint64)]),
                np.concatenate([p.witnesses.low for p in parts] or [np.zeros(0, np.uint64)]),
            ),
        )


NULL_KEY = b""
"""The key that stands for NULL, which is no value and has none, where cells are told of that are missing."""


class Underflow(Exception):
    """Say that the deltas take away what was never there; `cells` are the `(key, attribute_id, missing)`."""

    def __init__(self, cells: list[tuple[bytes, int, int]]) -> None:
        super().__init__(f"{len(cells)} cells would have a negative frequency")
        self.cells = cells


@dataclass(frozen=True, slots=True)
class Applied:
    """Hold what a batch does to the state, for the store to write.

    `records` has the new record of every value that changed. `distinct` and `repeated` are differences for each
    attribute. `clusters` are the ids whose count changed or is new, `dropped` the ids that are gone.
    """

    records: NewRecords
    moves: Moves
    distinct: dict[int, int]
    repeated: dict[int, int]
    clusters: Int64s
    dropped: Int64s
    switches: SketchChanges


def apply_deltas(
    clusters: Clusters,
    deltas: Deltas,
    records: Records,
    uncounted: Flags,
    missing_nulls: Mapping[int, int] | None = None,
) -> Applied:
    """Apply merge and extract for the netted deltas of a batch, and return what changes.

    `records` are the present records of the values of `deltas`. `uncounted` marks, for every attribute id, those of
    insert-only sources: a positive delta makes the value a member, nothing is counted. `missing_nulls` says of which
    attributes the batch takes away more NULLs than there are, and how many more. `clusters` is changed in place.

    Raises Underflow, with nothing changed, when a frequency or a number of NULLs would fall below 0: the feed deletes
    what was never inserted (the paper's Algorithm 6 clamps there in silence).
    """
    merged = clusters.merge(deltas, records, uncounted)
    require_cells(missing_of(deltas, merged), missing_nulls)
    return settle(clusters, deltas, records, merged)


def missing_of(deltas: Deltas, merged: kernels.Merged) -> list[tuple[bytes, int, int]]:
    """Give the `(key, attribute_id, missing)` of the cells whose frequency would fall below 0."""
    return [(deltas.keys.key(place), a, count) for place, a, count in merged.missing.tolist()]


def require_cells(cells: list[tuple[bytes, int, int]], missing_nulls: Mapping[int, int] | None) -> None:
    """Raise Underflow when cells or NULLs are missing."""
    missing = [(NULL_KEY, attribute_id, count) for attribute_id, count in (missing_nulls or {}).items()] + cells
    if missing:
        raise Underflow(missing)


def settle(clusters: Clusters, deltas: Deltas, records: Records, merged: kernels.Merged) -> Applied:
    """Let clusters follow what `merge` found, in which no cell is missing, and return what changes."""
    changed = np.flatnonzero(merged.changes)
    lengths = np.diff(merged.starts)[changed]
    starts = starts_of(lengths)
    attribute_ids = take_lists(changed, merged.starts, merged.attribute_ids, starts)
    frequencies = take_lists(changed, merged.starts, merged.frequencies, starts)
    old_ids = records.cluster_id[changed]
    has_moved = merged.changes[changed] == kernels.MOVED
    new_ids = old_ids.copy()
    moved = np.flatnonzero(has_moved)
    moved_starts = starts_of(lengths[moved])
    new_ids[moved] = clusters.assign(moved_starts, take_lists(moved, starts, attribute_ids, moved_starts))
    keys = deltas.keys.take(changed)
    new = NewRecords(keys, old_ids == NO_CLUSTER, new_ids, starts, attribute_ids, frequencies)

    pairs = old_ids[moved] << 32 | new_ids[moved]
    found, first, values = np.unique(pairs, return_index=True, return_counts=True)
    from_ids, to_ids = found >> 32, found & 0xFFFFFFFF
    moves = Moves(*clusters.sets(from_ids), *clusters.sets(to_ids), values, keys.take(moved[first]))
    kept, dropped = clusters.move(from_ids, to_ids, values)
    places, switched, ways = merged.switched.T
    switches = SketchChanges.of(switched, ways, deltas.keys.high[places])
    return Applied(new, moves, _non_zero(merged.distinct), _non_zero(merged.repeated), kept, dropped, switches)


def _non_zero(differences: Int64s) -> dict[int, int]:
    places = np.flatnonzero(differences)
    return dict(zip(places.tolist(), differences[places].tolist(), strict=True))


def occurrences(row: Iterable[tuple[int, bytes]]) -> dict[bytes, dict[int, int]]:
    """Return the attribute clustering of one tuple, given as `(attribute id, value key)` cells (Example 4.3)."""
    found: dict[bytes, dict[int, int]] = {}
    for attribute_id, key in row:
        of_value = found.setdefault(key, {})
        of_value[attribute_id] = of_value.get(attribute_id, 0) + 1
    return found


def merge(clusters: Clusters, inserted: Deltas, records: Records) -> Applied:
    """Merge the attribute clustering of inserted tuples (Definition 4.4): `apply_deltas` with what they add."""
    uncounted = np.zeros(int(inserted.attribute_ids.max(initial=0)) + 1, np.bool_)
    return apply_deltas(clusters, inserted, records, uncounted)


def extract(clusters: Clusters, deleted: Deltas, records: Records) -> Applied:
    """Extract the attribute clustering of deleted tuples (Definition 4.8): `apply_deltas` with what they take away."""
    return merge(clusters, deleted._replace(differences=-deleted.differences), records)


def derive_inds(clusters: Iterable[tuple[Sequence[int], int]]) -> NDArray[np.int32]:
    """Derive the INDs from `(attribute ids, value count)` of all clusters (Lemma 4.2).

    A ⊆ B holds exactly when B is in every cluster that A is in. The clusters of A are met smallest first and the
    intersection stops as soon as A alone is left. Returns int32[n, 2], rows (dependent, referenced), ascending.
    """
    sets = sorted({frozenset(attributes) for attributes, count in clusters if count}, key=len)
    candidates: dict[int, frozenset[int]] = {}
    for cluster in sets:
        for attribute_id in cluster:
            known = candidates.get(attribute_id)
            if known is None:
                candidates[attribute_id] = cluster
            elif len(known) > 1:
                candidates[attribute_id] = known & cluster
    pairs = [(a, b) for a, found in candidates.items() if len(found) > 1 for b in found if b != a]
    return np.array(sorted(pairs), dtype=np.int32).reshape(-1, 2)

"""Own the attribute clustering: its clusters, the merge and extract operators, and Lemma 4.2.

After Shaabani and Meinel, Incremental Discovery of Inclusion Dependencies (2017), sections 4 and 5. Where the
paper takes one tuple and one value at a time, `apply_deltas` takes the netted changes of a whole batch; a
single tuple is the batch of size one. Two things differ from the paper on purpose: an attribute leaves a
value's cluster when its frequency reaches 0 (the paper's F = 1 test is the one-tuple case), and the value
counts of the clusters are complete, so that no count is ever asked of the generator records.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

AttributeIds = tuple[int, ...]
"""An attribute set in canonical form: ascending ids, no repetition."""

NO_CLUSTER = 0
"""The id that stands for "no record": cluster ids begin at 1."""


class GenRec(NamedTuple):
    """Hold what is known of one value: its cluster, and its frequencies beside the cluster's attributes.

    A frequency of 0 belongs to an attribute of an insert-only source: the value is in it, uncounted.
    """

    cluster_id: int
    frequencies: tuple[int, ...]


class Clusters:
    """Keep ACRecs and CountCache: clusters by id, ids by cluster, and how many values each has (section 5.1)."""

    __slots__ = ("_attributes", "_counts", "_ids", "_next_id")

    def __init__(self, records: Iterable[tuple[int, Sequence[int], int]] = ()) -> None:
        """Take `(cluster_id, ascending attribute ids, value count)` for each cluster that has values."""
        self._attributes: dict[int, AttributeIds] = {}
        self._ids: dict[AttributeIds, int] = {}
        self._counts: dict[int, int] = {}
        for cluster_id, attribute_ids, count in records:
            attributes = tuple(attribute_ids)
            self._attributes[cluster_id] = attributes
            self._ids[attributes] = cluster_id
            self._counts[cluster_id] = count
        self._next_id = max(self._attributes, default=NO_CLUSTER) + 1

    def __len__(self) -> int:
        return len(self._attributes)

    def __iter__(self) -> Iterator[tuple[int, AttributeIds, int]]:
        """Give `(cluster_id, attributes, value count)` of every cluster."""
        for cluster_id, attributes in self._attributes.items():
            yield cluster_id, attributes, self._counts[cluster_id]

    def attributes(self, cluster_id: int) -> AttributeIds:
        """Return the attributes of a cluster; the empty set for NO_CLUSTER. Raise KeyError for an unknown id."""
        return () if cluster_id == NO_CLUSTER else self._attributes[cluster_id]

    def count(self, cluster_id: int) -> int:
        """Return how many values the cluster has, 0 for one that is not (or no longer) there."""
        return self._counts.get(cluster_id, 0)

    def cluster_id(self, attributes: AttributeIds) -> int:
        """Return the id of a cluster, giving a new one to a set not seen before; NO_CLUSTER for the empty set."""
        if not attributes:
            return NO_CLUSTER
        found = self._ids.get(attributes)
        if found is None:
            found = self._next_id
            self._next_id += 1
            self._ids[attributes] = found
            self._attributes[found] = attributes
            self._counts[found] = 0
        return found

    def move(self, old_id: int, new_id: int, values: int = 1) -> None:
        """Count `values` out of one cluster and into another; NO_CLUSTER on a side is nowhere."""
        if old_id != NO_CLUSTER:
            self._counts[old_id] -= values
        if new_id != NO_CLUSTER:
            self._counts[new_id] += values

    def drop_empty(self, cluster_ids: Iterable[int]) -> list[int]:
        """Remove those of the clusters that no value has (Algorithm 5), and return their ids."""
        dropped = []
        for cluster_id in cluster_ids:
            if self._counts.get(cluster_id) == 0:
                del self._ids[self._attributes.pop(cluster_id)], self._counts[cluster_id]
                dropped.append(cluster_id)
        return dropped


class Move(NamedTuple):
    """Say that `values` values went from one attribute set to another in a batch; `witness` is the key of one."""

    old: AttributeIds
    new: AttributeIds
    values: int
    witness: bytes


NULL_KEY = b""
"""The key that stands for NULL, which is no value and has none, where cells are told of that are missing."""


class Underflow(Exception):
    """Say that the deltas take away what was never there; `cells` are the `(key, attribute_id, missing)`."""

    def __init__(self, cells: list[tuple[bytes, int, int]]) -> None:
        super().__init__(f"{len(cells)} cells would have a negative frequency")
        self.cells = cells


@dataclass(slots=True)
class Applied:
    """Hold what a batch does to the state, for the store to write.

    `records` has the new record of every value that changed, None where the value is gone; `inserted` the
    keys among them that had no record. `distinct` and `repeated` are differences for each attribute.
    `clusters` are the ids whose count changed or is new, `dropped` the ids that are gone.
    """

    records: dict[bytes, GenRec | None] = field(default_factory=dict)
    inserted: set[bytes] = field(default_factory=set)
    moves: list[Move] = field(default_factory=list)
    distinct: dict[int, int] = field(default_factory=dict)
    repeated: dict[int, int] = field(default_factory=dict)
    clusters: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)


def apply_deltas(
    clusters: Clusters,
    records: Mapping[bytes, GenRec],
    deltas: Mapping[bytes, Mapping[int, int]],
    uncounted: Collection[int] = (),
    missing_nulls: Mapping[int, int] | None = None,
) -> Applied:
    """Apply merge and extract for the netted deltas of a batch, and return what changes.

    `records` holds the present record of every key of `deltas` that has one; `deltas` the non-zero difference
    of the frequency for each attribute. `uncounted` are the attributes of insert-only sources: a positive delta
    makes the value a member, nothing is counted. `missing_nulls` says of which attributes the batch takes away more
    NULLs than there are, and how many more. `clusters` is changed in place.

    Raises Underflow, with nothing changed, when a frequency or a number of NULLs would fall below 0: the feed deletes
    what was never inserted (the paper's Algorithm 6 clamps there in silence).
    """
    applied = Applied()
    outcomes: list[tuple[bytes, GenRec | None, AttributeIds, AttributeIds, tuple[int, ...]]] = []
    missing = [(NULL_KEY, attribute_id, count) for attribute_id, count in (missing_nulls or {}).items()]
    distinct, repeated = applied.distinct, applied.repeated
    for key, delta in deltas.items():
        record = records.get(key)
        old: AttributeIds
        counted: tuple[int, ...]
        if record is None:
            old = counted = ()
        else:
            old, counted = clusters.attributes(record.cluster_id), record.frequencies
        new = old
        for attribute_id, difference in delta.items():
            at = bisect_left(new, attribute_id)
            is_member = at < len(new) and new[at] == attribute_id
            if uncounted and attribute_id in uncounted:
                had = now = 0
                stays = True
            else:
                had = counted[at] if is_member else 0
                now = had + difference
                stays = now > 0
                if now < 0:
                    missing.append((key, attribute_id, -now))
                    continue
                if (had > 1) != (now > 1):
                    repeated[attribute_id] = repeated.get(attribute_id, 0) + (1 if now > 1 else -1)
            if is_member and stays:
                counted = (*counted[:at], now, *counted[at + 1 :])
            elif stays:
                new = (*new[:at], attribute_id, *new[at:])
                counted = (*counted[:at], now, *counted[at:])
                distinct[attribute_id] = distinct.get(attribute_id, 0) + 1
            elif is_member:
                new = new[:at] + new[at + 1 :]
                counted = counted[:at] + counted[at + 1 :]
                distinct[attribute_id] = distinct.get(attribute_id, 0) - 1
        if new != old or record is None or counted != record.frequencies:
            outcomes.append((key, record, old, new, counted))
    if missing:
        raise Underflow(missing)

    moved: dict[tuple[int, int], Move] = {}
    for key, record, old, new, counted in outcomes:
        old_id = NO_CLUSTER if record is None else record.cluster_id
        new_id = old_id if new == old else clusters.cluster_id(new)
        applied.records[key] = GenRec(new_id, counted) if new else None
        if record is None:
            applied.inserted.add(key)
        if new_id != old_id:
            pair = (old_id, new_id)
            known = moved.get(pair)
            moved[pair] = Move(old, new, 1, key) if known is None else known._replace(values=known.values + 1)
    touched: dict[int, None] = {}
    for (old_id, new_id), move in moved.items():
        clusters.move(old_id, new_id, move.values)
        touched[old_id] = touched[new_id] = None
    touched.pop(NO_CLUSTER, None)
    applied.moves = list(moved.values())
    applied.dropped = clusters.drop_empty(touched)
    gone = set(applied.dropped)
    applied.clusters = [cluster_id for cluster_id in touched if cluster_id not in gone]
    return applied


def occurrences(row: Iterable[tuple[int, bytes]]) -> dict[bytes, dict[int, int]]:
    """Return the attribute clustering of one tuple, given as `(attribute id, value key)` cells (Example 4.3)."""
    found: dict[bytes, dict[int, int]] = {}
    for attribute_id, key in row:
        of_value = found.setdefault(key, {})
        of_value[attribute_id] = of_value.get(attribute_id, 0) + 1
    return found


def merge(clusters: Clusters, records: Mapping[bytes, GenRec], inserted: Mapping[bytes, Mapping[int, int]]) -> Applied:
    """Merge the attribute clustering of an inserted tuple (Definition 4.4): `apply_deltas` with what it adds."""
    return apply_deltas(clusters, records, inserted)


def extract(clusters: Clusters, records: Mapping[bytes, GenRec], deleted: Mapping[bytes, Mapping[int, int]]) -> Applied:
    """Extract the attribute clustering of a deleted tuple (Definition 4.8): `apply_deltas` with what it takes away."""
    return apply_deltas(clusters, records, {key: {a: -n for a, n in delta.items()} for key, delta in deleted.items()})


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

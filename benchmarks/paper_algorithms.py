"""Own Algorithms 1 to 6 of "Incremental Discovery of Inclusion Dependencies" (SSDBM 2017), one value at a time.

This is the second opinion of the tests and a baseline of the benchmarks; what the service runs is
`clustering.py`. Names and order of the steps are the paper's. Where the text cannot be run as it stands:

* Algorithm 2 sets an existing CountCache entry to 1 (line 6). Together with Algorithm 5, which does not store
  the count that it fetched for an entry of 0, an entry can fall to -1, and then an empty cluster stays. The
  text of section 5.1 says that vcount counts the values retrieved, so here line 6 counts one more.
  `as_printed=True` keeps the printed line.
* Algorithm 6 has no branch for an unknown value (cid = null) and takes a frequency of 0 for 1. Both mean that
  something is deleted that was never inserted: RecordError, and the value's state is as it was.
* Algorithm 6, line 20, increases an entry of CountCache that need not exist: it then becomes 1.
* Section 5.4 says that without the caches a value always takes 3 (insert) or 4 (delete) accesses. These are the
  most that it takes: a value that keeps its cluster needs no count, a new value leaves none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Generic, Protocol, TypeVar

from service.core.errors import RecordError

A = TypeVar("A", bound=Hashable)
V = TypeVar("V", bound=Hashable)
V_contra = TypeVar("V_contra", bound=Hashable, contravariant=True)


class GenRecs(Protocol[A, V_contra]):
    """Be the generator (section 5.1): a record (value, frequencies, cluster id) for every value."""

    def get_cid(self, value: V_contra) -> int | None:
        """Return the id of the value's cluster, None for an unknown value."""

    def add(self, value: V_contra, cid: int, attributes: frozenset[A]) -> None:
        """Add a record with frequency 1 in `attributes` (formula 1)."""

    def i_update(self, value: V_contra, attributes: frozenset[A], cid: int | None = None) -> None:
        """Add 1 to the frequencies of `attributes` (formula 2) and set the cluster, unless it is None."""

    def d_update(self, value: V_contra, attributes: frozenset[A], cid: int | None = None) -> None:
        """Take 1 from the frequencies of `attributes` (formula 3) and set the cluster, unless it is None."""

    def get_freqs(self, value: V_contra, attributes: frozenset[A]) -> dict[A, int]:
        """Return the frequency of the value in each of `attributes`."""

    def get_count(self, cid: int) -> int:
        """Count the values of a cluster."""

    def remove(self, value: V_contra) -> None:
        """Remove the value's record."""


class MemoryGenRecs(Generic[A, V]):
    """Keep the generator in dictionaries, for tests."""

    def __init__(self) -> None:
        self.cids: dict[V, int] = {}
        self.frequencies: dict[V, Counter[A]] = {}

    def get_cid(self, value: V) -> int | None:
        return self.cids.get(value)

    def add(self, value: V, cid: int, attributes: frozenset[A]) -> None:
        self.cids[value] = cid
        self.frequencies[value] = Counter(attributes)

    def i_update(self, value: V, attributes: frozenset[A], cid: int | None = None) -> None:
        self.cids[value] = self.cids[value] if cid is None else cid
        self.frequencies[value].update(attributes)

    def d_update(self, value: V, attributes: frozenset[A], cid: int | None = None) -> None:
        self.cids[value] = self.cids[value] if cid is None else cid
        self.frequencies[value].subtract(attributes)

    def get_freqs(self, value: V, attributes: frozenset[A]) -> dict[A, int]:
        return {attribute: self.frequencies[value][attribute] for attribute in attributes}

    def get_count(self, cid: int) -> int:
        return sum(1 for other in self.cids.values() if other == cid)

    def remove(self, value: V) -> None:
        del self.cids[value], self.frequencies[value]


class PaperClustering(Generic[A, V]):
    """Keep the attribute clustering of a dataset over a generator, tuple by tuple.

    `clusters` are the ACRecs of a generator that is not empty. `accesses` counts the calls of the generator
    by name, as section 5.4 and Table 4 do. `use_caches=False` works without ValCache and CountCache;
    `insert_only=True` keeps no frequencies and refuses deletes (section 6, "only-insert").
    """

    def __init__(
        self,
        gen_recs: GenRecs[A, V],
        clusters: Mapping[int, Collection[A]] | None = None,
        *,
        use_caches: bool = True,
        insert_only: bool = False,
        as_printed: bool = False,
    ) -> None:
        self.accesses: Counter[str] = Counter()
        self._gen_recs = gen_recs
        self._clusters: dict[int, frozenset[A]] = {cid: frozenset(c) for cid, c in (clusters or {}).items()}
        self._ids: dict[frozenset[A], int] = {cluster: cid for cid, cluster in self._clusters.items()}
        self._next_id = max(self._clusters, default=0) + 1
        self._use_caches, self._insert_only, self._as_printed = use_caches, insert_only, as_printed
        self._val_cache: dict[V, int] = {}
        self._count_cache: dict[int, int] = {}

    def insert_tuple(self, row: Mapping[A, V | None]) -> None:
        """Merge the clustering of one inserted tuple (Definition 4.4); None is NULL, which is no value."""
        for value, attributes in tuple_clustering(row).items():
            self.handle_insert(value, attributes)

    def delete_tuple(self, row: Mapping[A, V | None]) -> None:
        """Extract the clustering of one deleted tuple (Definition 4.8); values before a refused one stay applied."""
        for value, attributes in tuple_clustering(row).items():
            self.handle_delete(value, attributes)

    def clusters(self) -> dict[frozenset[A], int]:
        """Return every cluster with its number of values, counted in the generator (no counted access)."""
        return {cluster: self._gen_recs.get_count(cid) for cid, cluster in self._clusters.items()}

    def inds(self) -> set[tuple[A, A]]:
        """Return the pairs (dependent, referenced) of Lemma 4.2."""
        return derive_inds(self._clusters.values())

    def handle_insert(self, value: V, attributes: Collection[A]) -> None:
        """Run Algorithm 1: the value came once into each of `attributes`."""
        delta = frozenset(attributes)
        cid = self._get_cluster_id(value)
        if cid is None:
            self._handle_inserting_new_value(value, delta)
        else:
            self._handle_inserting_existing_value(value, delta, cid)

    def handle_delete(self, value: V, attributes: Collection[A]) -> None:
        """Run Algorithm 6: the value left each of `attributes` once. Raise RecordError if it was not there."""
        if self._insert_only:
            raise RecordError(f"value {value!r} cannot be deleted: an insert-only state keeps no frequencies")
        delta = frozenset(attributes)
        cid = self._get_cluster_id(value)
        if cid is None:
            raise RecordError(f"value {value!r} cannot be deleted from {_names(delta)}: it was never inserted")
        cluster = self._clusters[cid]
        frequencies = self._get_freqs(value, delta)
        absent = [attribute for attribute in delta if frequencies[attribute] < 1]
        if absent:
            raise RecordError(f"value {value!r} cannot be deleted from {_names(absent)}: it does not occur there")
        new_cluster = cluster - {attribute for attribute in delta if frequencies[attribute] <= 1}
        if new_cluster == cluster:
            self._d_update(value, delta)
            return
        if not new_cluster:
            self._remove(value)
            self._val_cache.pop(value, None)
        else:
            new_cid = self._cluster_id(new_cluster)
            self._count_one_more(new_cid)
            self._remember(value, new_cid)
            self._d_update(value, delta, new_cid)
        self._count_one_less(cid)
        self._handle_deleting_cluster(cid)

    def _get_cluster_id(self, value: V) -> int | None:
        """Run Algorithm 2."""
        cid = self._val_cache.get(value)
        if cid is None:
            cid = self._get_cid(value)
            if cid is not None:
                self._remember(value, cid)
                if self._as_printed and self._use_caches:
                    self._count_cache[cid] = 1
                else:
                    self._count_one_more(cid)
        return cid

    def _handle_inserting_new_value(self, value: V, delta: frozenset[A]) -> None:
        """Run Algorithm 3."""
        cid = self._cluster_id(delta)
        self._count_one_more(cid)
        self._remember(value, cid)
        self._add(value, cid, delta)

    def _handle_inserting_existing_value(self, value: V, delta: frozenset[A], cid: int) -> None:
        """Run Algorithm 4; the insert-only variant has nothing to write for a value that keeps its cluster."""
        cluster = self._clusters[cid]
        new_cluster = cluster | delta
        if new_cluster == cluster:
            if not self._insert_only:
                self._i_update(value, delta)
            return
        new_cid = self._cluster_id(new_cluster)
        self._count_one_more(new_cid)
        self._i_update(value, delta, new_cid)
        self._remember(value, new_cid)
        self._count_one_less(cid)
        self._handle_deleting_cluster(cid)

    def _handle_deleting_cluster(self, cid: int) -> None:
        """Run Algorithm 5."""
        count = self._count_cache.get(cid, 0)
        if count == 0:
            count = self._get_count(cid)
        if count == 0:
            del self._ids[self._clusters.pop(cid)]
            self._count_cache.pop(cid, None)
        elif cid not in self._count_cache and self._use_caches:
            self._count_cache[cid] = count

    # ACRecs, ValCache and CountCache (section 5.1)

    def _cluster_id(self, cluster: frozenset[A]) -> int:
        cid = self._ids.get(cluster)
        if cid is None:
            cid = self._ids[cluster] = self._next_id
            self._clusters[cid] = cluster
            self._next_id += 1
        return cid

    def _remember(self, value: V, cid: int) -> None:
        if self._use_caches:
            self._val_cache[value] = cid

    def _count_one_more(self, cid: int) -> None:
        if self._use_caches:
            self._count_cache[cid] = self._count_cache.get(cid, 0) + 1

    def _count_one_less(self, cid: int) -> None:
        if cid in self._count_cache:
            self._count_cache[cid] -= 1

    # GenRecs: each call is one access

    def _get_cid(self, value: V) -> int | None:
        self.accesses["get_cid"] += 1
        return self._gen_recs.get_cid(value)

    def _add(self, value: V, cid: int, attributes: frozenset[A]) -> None:
        self.accesses["add"] += 1
        self._gen_recs.add(value, cid, frozenset() if self._insert_only else attributes)

    def _i_update(self, value: V, attributes: frozenset[A], cid: int | None = None) -> None:
        self.accesses["i_update"] += 1
        self._gen_recs.i_update(value, frozenset() if self._insert_only else attributes, cid)

    def _d_update(self, value: V, attributes: frozenset[A], cid: int | None = None) -> None:
        self.accesses["d_update"] += 1
        self._gen_recs.d_update(value, attributes, cid)

    def _get_freqs(self, value: V, attributes: frozenset[A]) -> dict[A, int]:
        self.accesses["get_freqs"] += 1
        return self._gen_recs.get_freqs(value, attributes)

    def _get_count(self, cid: int) -> int:
        self.accesses["get_count"] += 1
        return self._gen_recs.get_count(cid)

    def _remove(self, value: V) -> None:
        self.accesses["remove"] += 1
        self._gen_recs.remove(value)


def tuple_clustering(row: Mapping[A, V | None]) -> dict[V, frozenset[A]]:
    """Return the generator of one tuple (Example 4.3): each value with the attributes that hold it."""
    attributes: dict[V, set[A]] = {}
    for attribute, value in row.items():
        if value is not None:
            attributes.setdefault(value, set()).add(attribute)
    return {value: frozenset(held_by) for value, held_by in attributes.items()}


def derive_inds(clusters: Iterable[frozenset[A]]) -> set[tuple[A, A]]:
    """Return (dependent, referenced) for each A ⊆ B: B is in every cluster that holds A (Lemma 4.2)."""
    referenced: dict[A, frozenset[A]] = {}
    for cluster in clusters:
        for attribute in cluster:
            referenced[attribute] = referenced.get(attribute, cluster) & cluster
    return {(dependent, other) for dependent, others in referenced.items() for other in others if other != dependent}


def _names(attributes: Iterable[A]) -> str:
    return ", ".join(sorted(str(attribute) for attribute in attributes))

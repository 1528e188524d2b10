"""Own the shapes of a batch: value keys, records and deltas as arrays, for a batch has a hundred thousand of each.

A value key is 128 bits, held as two halves: uint64[n] `high` and `low`. Lists of different lengths lie end to end:
those of value i are at [starts[i]:starts[i + 1]].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]
Flags = NDArray[np.bool_]
Whole = TypeVar("Whole", bound=np.integer[Any])

NO_CLUSTER = 0
"""The id that stands for "no record": cluster ids begin at 1."""


class Keys(NamedTuple):
    """Hold n value keys."""

    high: UInt64s
    low: UInt64s

    @staticmethod
    def of(keys: Iterable[bytes]) -> Keys:
        """Take keys of 16 bytes each."""
        halves = np.frombuffer(b"".join(keys), ">u8").astype(np.uint64)
        return Keys(halves[::2].copy(), halves[1::2].copy())

    def key(self, place: int) -> bytes:
        """Give one key as bytes."""
        return int(self.high[place]).to_bytes(8, "big") + int(self.low[place]).to_bytes(8, "big")

    def take(self, places: Int64s | Flags | slice) -> Keys:
        """Give some of the keys."""
        return Keys(self.high[places], self.low[places])

    def order(self, then: Int64s | None = None) -> Int64s:
        """Give the places of the keys in ascending order, those of equal keys by what `then` has at them."""
        order = np.argsort(self.high)
        high = self.high[order]
        is_tied = np.append(high[1:] == high[:-1], False)
        if is_tied.any():
            ties = is_tied | np.roll(is_tied, 1)
            tied = order[ties]
            by = (self.low, self.high) if then is None else (then, self.low, self.high)
            order[ties] = tied[np.lexsort([part[tied] for part in by])]
        return order


class Records(NamedTuple):
    """Hold the records of n values: their clusters, and their frequencies beside the clusters' attributes.

    A value without a record has NO_CLUSTER and no frequencies. A frequency of 0 belongs to an attribute of an
    insert-only source: the value is in it, uncounted.
    """

    cluster_id: Int64s
    starts: Int64s
    frequencies: Int64s

    @staticmethod
    def of(records: Sequence[tuple[int, Sequence[int]]]) -> Records:
        """Take (cluster id, frequencies) of each value."""
        counts = [n for _, counted in records for n in counted]
        return Records(
            np.array([cluster_id for cluster_id, _ in records], np.int64),
            starts_of(np.array([len(counted) for _, counted in records], np.int64)),
            np.array(counts, np.int64),
        )

    @staticmethod
    def joined(parts: Sequence[Records]) -> Records:
        """Put the records of several parts, of which there is at least one, behind each other."""
        return Records(
            np.concatenate([part.cluster_id for part in parts]),
            starts_of(np.concatenate([np.diff(part.starts) for part in parts])),
            np.concatenate([part.frequencies for part in parts]),
        )

    def take(self, places: Int64s) -> Records:
        """Give those at some places."""
        from service.core.record_kernels import take_lists

        starts = starts_of(np.diff(self.starts)[places])
        return Records(self.cluster_id[places], starts, take_lists(places, self.starts, self.frequencies, starts))

    def record(self, place: int) -> tuple[int, tuple[int, ...]]:
        """Give one record as (cluster id, frequencies)."""
        counted = self.frequencies[self.starts[place] : self.starts[place + 1]]
        return int(self.cluster_id[place]), tuple(counted.tolist())


class Deltas(NamedTuple):
    """Hold the netted differences of n values, by ascending key: non-zero, by ascending attribute id."""

    keys: Keys
    starts: Int64s
    attribute_ids: Int64s
    differences: Int64s

    @property
    def size(self) -> int:
        """Tell how many values there are."""
        return len(self.starts) - 1

    def values(self) -> Int64s:
        """Give the place of the value of each difference."""
        return np.repeat(np.arange(self.size), np.diff(self.starts))

    def plus(self, others: Deltas) -> Deltas:
        """Add differences of the same values, of which there is at least one that differs in either."""
        value = np.concatenate([self.values(), others.values()])
        ids = np.concatenate([self.attribute_ids, others.attribute_ids])
        order = np.lexsort((ids, value))
        value, ids = value[order], ids[order]
        firsts = np.flatnonzero(np.append(True, (value[1:] != value[:-1]) | (ids[1:] != ids[:-1])))
        added = np.add.reduceat(np.concatenate([self.differences, others.differences])[order], firsts)
        firsts, added = firsts[added != 0], added[added != 0]
        return Deltas(self.keys, starts_of(np.bincount(value[firsts], minlength=self.size)), ids[firsts], added)

    @staticmethod
    def of(deltas: Mapping[bytes, Mapping[int, int]]) -> Deltas:
        """Take the difference of each attribute of each value key."""
        cells = [(key, a, n) for key in sorted(deltas) for a, n in sorted(deltas[key].items())]
        return Deltas(
            Keys.of(sorted(deltas)),
            starts_of(np.array([len(deltas[key]) for key in sorted(deltas)], np.int64)),
            np.array([a for _, a, _ in cells], np.int64),
            np.array([n for _, _, n in cells], np.int64),
        )


class NewRecords(NamedTuple):
    """Hold the records of n values as a batch leaves them, by ascending key; a value that is gone has NO_CLUSTER.

    `attribute_ids` and `frequencies` lie beside each other. `is_new` marks values that had no record.
    """

    keys: Keys
    is_new: Flags
    cluster_id: Int64s
    starts: Int64s
    attribute_ids: Int64s
    frequencies: Int64s

    @staticmethod
    def none() -> NewRecords:
        """Give the records of no value."""
        none = np.zeros(0, np.int64)
        return NewRecords(Keys.of(()), np.zeros(0, np.bool_), none, starts_of(none), none, none)

    def take(self, chosen: Flags | Int64s) -> NewRecords:
        """Give some of the records: those that are marked, or those at these places."""
        from service.core.record_kernels import take_lists

        places = np.arange(len(self.cluster_id))[chosen]
        starts = starts_of(np.diff(self.starts)[places])
        cells = (take_lists(places, self.starts, cell, starts) for cell in (self.attribute_ids, self.frequencies))
        return NewRecords(self.keys.take(places), self.is_new[places], self.cluster_id[places], starts, *cells)

    @property
    def records(self) -> Records:
        """Give what is known of the values beside their attributes."""
        return Records(self.cluster_id, self.starts, self.frequencies)


def starts_of(lengths: Int64s) -> Int64s:
    """Give the starts of lists that lie end to end: int64[n + 1]."""
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def distinct_of(values: NDArray[Whole]) -> NDArray[Whole]:
    """Give the distinct of some whole numbers, of any shape, ascending.

    NumPy's `unique` hashes them first, which takes sixty times of a sort where millions of them are distinct.
    """
    ordered = np.sort(values, axis=None)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def gather(count: int, parts: Sequence[tuple[Int64s, Records]]) -> Records:
    """Put the records of `count` values together from parts, each with its values' places; the rest has none."""
    from service.core.record_kernels import scatter

    cluster_id, lengths = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for places, records in parts:
        cluster_id[places] = records.cluster_id
        lengths[places] = np.diff(records.starts)
    starts = starts_of(lengths)
    frequencies = np.empty(starts[-1], np.int64)
    for places, records in parts:
        scatter(places, records.starts, records.frequencies, starts, frequencies)
    return Records(cluster_id, starts, frequencies)


def find_keys(among: Keys, wanted: Keys) -> Int64s:
    """Give for each wanted key its place among ascending keys, -1 for one that is not there. Both are ascending."""
    from service.core.record_kernels import find_places

    places: Int64s = find_places(among.high, among.low, wanted.high, wanted.low)
    return places

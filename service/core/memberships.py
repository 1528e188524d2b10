"""Own which attributes are in which clusters, as arrays: overlaps and counts by cell for many attributes at once.

A statement that unnests clusters does so for each question anew; whoever asks of hundreds of attributes reads the
clusters once. They are as many as the consumer holds, and take 40 bytes for each membership.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from service.core.compiled import kernel
from service.core.records import Int64s


@dataclass(frozen=True, eq=False)
class Memberships:
    """Hold n clusters by id, int64[n], with their numbers of values; `owners` and `members` pair places of clusters,
    ascending, with the ids of their attributes, int64[memberships] each.
    """

    clusters: Int64s
    value_counts: Int64s
    owners: Int64s
    members: Int64s

    @staticmethod
    def of(numbers: Int64s, members: Int64s) -> Memberships:
        """Take (cluster_id, number of attributes, of values), int64[n, 3], and the ids of the attributes end to end."""
        clusters, sizes, value_counts = np.ascontiguousarray(numbers.T)
        return Memberships(clusters, value_counts, np.repeat(np.arange(len(clusters)), sizes), members)

    def overlaps(self, attribute_id: int) -> list[tuple[int, int, int]]:
        """Give (other attribute's id, number of shared values, of shared clusters) for all that share one."""
        ids, codes = self._coded
        low, high = np.searchsorted(self._ascending, (attribute_id, attribute_id + 1))
        places = self.owners[self._by_attribute[low:high]]
        values, clusters = _count_among(places, self._starts, codes, self.value_counts, len(ids))
        others = np.flatnonzero((clusters > 0) & (ids != attribute_id))
        return list(zip(*(of[others].tolist() for of in (ids, values, clusters)), strict=True))

    def among(self, attribute_ids: Sequence[int]) -> tuple[Int64s, Int64s]:
        """Give the memberships of these attributes: places of clusters, ascending, and of attributes in the list."""
        ids, codes = self._coded
        places = {attribute_id: place for place, attribute_id in enumerate(attribute_ids)}
        of_ids = np.array([places.get(one, -1) for one in ids.tolist()], np.int64)
        found = of_ids[codes]
        chosen = np.flatnonzero(found >= 0)
        return self.owners[chosen], found[chosen]

    @cached_property
    def _coded(self) -> tuple[Int64s, Int64s]:
        """Give the ids of all attributes, ascending, and of each membership the place of its attribute there."""
        is_new = np.diff(self._ascending, prepend=self._ascending[:1] - 1) != 0
        codes = np.empty(len(self.members), np.int64)
        codes[self._by_attribute] = np.cumsum(is_new) - 1
        return self._ascending[is_new], codes

    @cached_property
    def _starts(self) -> Int64s:
        """Give where each cluster's memberships begin, and behind all where they end."""
        return np.searchsorted(self.owners, np.arange(len(self.clusters) + 1))

    @cached_property
    def _by_attribute(self) -> Int64s:
        return np.argsort(self.members, kind="stable")

    @cached_property
    def _ascending(self) -> Int64s:
        return self.members[self._by_attribute]


@kernel
def _count_among(
    places: Int64s, starts: Int64s, codes: Int64s, value_counts: Int64s, width: int
) -> tuple[Int64s, Int64s]:
    """Add up values, and clusters, of the clusters at some places, by the code of each of their attributes."""
    values, clusters = np.zeros(width, np.int64), np.zeros(width, np.int64)
    for place in places:
        for pair in range(starts[place], starts[place + 1]):
            values[codes[pair]] += value_counts[place]
            clusters[codes[pair]] += 1
    return values, clusters


def counts_by_cell(
    owners: Int64s, members: Int64s, counted: tuple[Int64s, Int64s, Int64s], shape: tuple[int, int]
) -> Int64s:
    """Add up values by attribute and cell, int64[shape]; `owners` ascend and have `members`, as of `Memberships.among`.

    `counted` has places of clusters, cells, and how many values of the cluster are in the cell.
    """
    places, cells, totals = counted
    lows, highs = np.searchsorted(owners, (places, places + 1))
    pairs, repeats = _ranges(lows, highs), highs - lows
    found = np.bincount(
        members[pairs] * shape[1] + np.repeat(cells, repeats), np.repeat(totals, repeats), shape[0] * shape[1]
    )
    counts: Int64s = found.astype(np.int64).reshape(shape)
    return counts


def _ranges(lows: Int64s, highs: Int64s) -> Int64s:
    """Join the numbers from each low up to its high, which is not among them."""
    sizes = highs - lows
    before = np.cumsum(sizes) - sizes
    numbers: Int64s = np.arange(sizes.sum()) + np.repeat(lows - before, sizes)
    return numbers

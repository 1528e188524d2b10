"""Own the discovery of INDs where no process has all values: the five steps of `partitioned_inds` over Spark's RDDs.

Values are brought together by partition, dependents by their number modulo the number of partitions. The driver learns
numbers of columns, never values. All that is spread is made anew by Spark where an executor is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pyspark import RDD, Broadcast, StorageLevel
from pyspark.sql import SparkSession

from service.core.changed_inds import KnownKeys, changed_sides
from service.core.column_sets import Sides, number_keys
from service.core.corpus_choices import allowances
from service.core.group_inds import Inds, as_columns
from service.core.partitioned_inds import (
    Candidates,
    Partition,
    Rare,
    Scope,
    count_hits,
    decide,
    make_partition,
    partition_of,
    propose,
    rarest_overall,
    rarest_values,
    union,
)
from service.core.records import Flags, Int32s, Int64s, Keys
from service.core.top_referenced import top_referenced
from spark_jobs.corpus_index import CorpusIndex, PartColumns
from spark_jobs.many_discovery import Search
from spark_jobs.telling import telling_errors

PARTITION_CELLS = 4_000_000
"""Values that a partition has, about: a task takes some 60 bytes for each."""

STAGES = ("rarest values", "rarest of all", "proposing", "narrowing", "counting", "storing")

Store = Callable[[int, Iterator[Inds]], int]
"""Take the INDs of a numbered task, the same for the same number, and give how many they are."""

Watch = Callable[[Sequence[str]], AbstractContextManager[object]]
"""Show the stages of the job that runs inside."""

Item = TypeVar("Item")
Numbered = tuple[int, Item]

_NO_CANDIDATES = Candidates(*(np.zeros(count, kind) for count, kind in ((0, "i4"), (1, "i8"), (0, "i4"), (0, "i4"))))
_NONE_RARE = Rare(*(np.zeros(0, kind) for kind in ("i4", "i8", "i4", "i4")))


@dataclass(frozen=True, slots=True)
class ColumnGroups:
    """Hold groups of equal columns: an example of each by its place, its size; and each column's group, -1 for none."""

    examples: Int64s
    sizes: Int64s
    group_of: Int32s

    @staticmethod
    def of(search: Search) -> ColumnGroups:
        """Group the examined columns of equal size and sums."""
        examined = np.flatnonzero(search.examined)
        sizes, sums = search.sizes[examined], search.sums[examined]
        by_sums, _ = number_keys(np.ascontiguousarray(sums[:, 0]), np.ascontiguousarray(sums[:, 1]))
        groups, first = number_keys(by_sums.astype(np.uint64), sizes.astype(np.uint64))
        group_of = np.full(len(search.sizes), -1, np.int32)
        group_of[examined] = groups
        return ColumnGroups(examined[first], sizes[first], group_of)

    def marked(self, columns: Flags) -> Flags:
        """Mark the groups that have such a column."""
        marked = np.zeros(len(self.sizes), np.bool_)
        marked[self.group_of[columns & (self.group_of >= 0)]] = True
        return marked


@dataclass(frozen=True, slots=True)
class Asked:
    """Hold one search as tasks need it: what counts, which columns are on the sides of groups, how many of the best."""

    scope: Scope
    sides: Sides
    top: int | None

    @staticmethod
    def of(search: Search, groups: ColumnGroups, dependent: Flags, referenced: Flags) -> Asked:
        """Ask for some of the columns of a search on either side."""
        columns = np.flatnonzero(groups.group_of >= 0)
        sides = Sides.of(
            groups.sizes, search.column_ids[columns], groups.group_of[columns], dependent[columns], referenced[columns]
        )
        is_dependent, is_referenced = (
            np.diff(starts) > 0 for starts in (sides.dependent_starts, sides.referenced_starts)
        )
        scope = Scope(groups.sizes, is_dependent, is_referenced, search.coverage, search.threshold)
        return Asked(scope, sides, search.top)


def partition_count(search: Search, parallelism: int) -> int:
    """Choose how many partitions values are spread over."""
    return max(2 * parallelism, -(-search.cells // PARTITION_CELLS))


def find_in_partitions(
    spark: SparkSession,
    index: CorpusIndex,
    parts: Sequence[PartColumns],
    search: Search,
    count: int,
    store: Store,
    watch: Watch,
) -> int:
    """Spread values over `count` partitions, find the INDs by column ids and store them in tasks; give their number.

    The same rows are stored for any number of partitions.
    """
    context = spark.sparkContext
    groups = ColumnGroups.of(search)
    examples = np.zeros(len(search.sizes), np.bool_)
    examples[groups.examples] = True
    named = context.broadcast((search.column_ids, groups.group_of))

    def spread(chosen: Flags, marks: Broadcast[NDArray[np.uint8]] | None) -> RDD[Numbered[Any]]:
        tasks = [[part] for part in search.of_parts(parts, chosen)]
        return context.parallelize(tasks, max(len(tasks), 1)).mapPartitions(SpreadTask(index, named, count, marks))

    if search.changed is None:
        cells = _brought(spread(examples, None), count, GatherTask(None))
        return _find(cells, Asked.of(search, groups, search.dependent, search.referenced), count, 0, store, watch)

    is_changed = groups.marked(search.changed)
    of_changed = examples & np.append(is_changed, False)[groups.group_of]
    with watch(["marking values"]):
        task = MarkTask(_mark_bits(int(groups.sizes[is_changed].sum())))
        marks = spread(of_changed, None).mapPartitions(task).treeReduce(np.bitwise_or, 2)
    both = spread(of_changed, None).union(spread(examples & ~of_changed, context.broadcast(marks)))
    cells = _brought(both, count, GatherTask(context.broadcast(is_changed))).persist(StorageLevel.DISK_ONLY)
    try:
        first, second = changed_sides(search.changed, search.dependent, search.referenced)
        found = _find(cells, Asked.of(search, groups, *first), count, 0, store, watch)
        # Whoever lacks too many values among those of changed columns is in none of them.
        held = np.zeros(len(groups.sizes), np.int64)
        for numbers, counts in cells.map(_held).collect():
            held[numbers] += counts
        enough = held >= groups.sizes - allowances(groups.sizes, search.threshold)
        can_be = second[0] & np.append(enough, False)[groups.group_of]
        return found + _find(cells, Asked.of(search, groups, can_be, second[1]), count, count, store, watch)
    finally:
        cells.unpersist()


def _find(cells: RDD[Numbered[Any]], asked: Asked, count: int, first_task: int, store: Store, watch: Watch) -> int:
    """Do the five steps; tasks that store are numbered from `first_task`."""
    told = cells.context.broadcast(asked)
    partitions = _kept(cells, MakeTask(told)).persist(StorageLevel.DISK_ONLY)
    try:
        by_dependent = _brought(partitions.mapPartitions(RarestTask(told, count)), count)
        rarest = _brought(by_dependent.mapPartitions(OverallTask(told)), count)
        proposed = _brought(_beside(partitions, rarest).mapPartitions(ProposeTask(told, count)), count)
        candidates = _brought(_beside(by_dependent, proposed).mapPartitions(route), count)
        counted = _brought(_beside(partitions, candidates).mapPartitions(CountTask(told, count)), count)
        with watch(STAGES):
            return sum(counted.mapPartitionsWithIndex(StoreTask(told, count, first_task, store)).collect())
    finally:
        partitions.unpersist()
        told.destroy()


def _brought(
    items: RDD[Numbered[Any]], count: int, gather: Callable[[int, Iterable[Any]], Iterable[Any]] | None = None
) -> RDD[Numbered[Any]]:
    """Bring what has the same number together."""
    brought = items.partitionBy(count, partitionFunc=int)
    # Also where nothing is to be done: a union needs both sides in the same form.
    return brought.mapPartitionsWithIndex(gather or _as_they_are, preservesPartitioning=True)


def _kept(items: RDD[Numbered[Any]], task: Callable[[Iterable[Any]], Iterable[Any]]) -> RDD[Numbered[Any]]:
    return items.mapPartitions(task, preservesPartitioning=True)


def _beside(first: RDD[Numbered[Any]], second: RDD[Numbered[Any]]) -> RDD[Numbered[Any]]:
    """Put the partitions of the same number beside each other, without moving them."""
    both = first.union(second)
    if both.getNumPartitions() != first.getNumPartitions():
        raise AssertionError("Spark put partitions one after the other that are spread by the same function")
    return both


def _as_they_are(_: int, items: Iterable[Item]) -> Iterable[Item]:
    return items


def _mark_bits(values: int) -> int:
    """Choose how many bits of a key say where its mark is: 16 marks or more for a value, and at most 8 MB of them."""
    return min(max((16 * values).bit_length(), 10), 26)


def _mark(keys: Keys, bits: int) -> Int64s:
    return (keys.low >> np.uint64(64 - bits)).astype(np.int64)


def _held(item: Numbered[tuple[Int32s, Keys]]) -> tuple[Int32s, Int64s]:
    """Count the values here of each group that has some."""
    numbers, counts = np.unique(item[1][0], return_counts=True)
    return numbers, counts.astype(np.int64)


def _cut(owners: Int32s, count: int) -> Iterator[tuple[int, Int64s]]:
    """Give the places of each owner, modulo the number of partitions."""
    numbers = owners % count
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(count + 1))
    for number in range(count):
        if bounds[number] < bounds[number + 1]:
            yield number, order[bounds[number] : bounds[number + 1]]


def _take(candidates: Candidates, places: Int64s) -> Candidates:
    """Keep the candidates of some dependents."""
    lengths = np.diff(candidates.starts)[places]
    starts = np.append(0, np.cumsum(lengths))
    at = np.repeat(candidates.starts[:-1][places] - starts[:-1], lengths) + np.arange(starts[-1])
    return Candidates(candidates.dependents[places], starts, candidates.referenced[at], candidates.hits[at])


def _cut_candidates(candidates: Candidates, count: int) -> Iterator[Numbered[Candidates]]:
    for number, places in _cut(candidates.dependents, count):
        yield number, _take(candidates, places)


def _cut_rare(rare: Rare, owners: Int32s, count: int) -> Iterator[Numbered[Rare]]:
    for number, places in _cut(owners, count):
        yield number, Rare._make(side[places] for side in rare)


@dataclass(frozen=True, slots=True)
class SpreadTask:
    """Read parts and give their cells, (groups, keys), by partition; with `marks` only those whose keys are marked."""

    index: CorpusIndex
    named: Broadcast[tuple[Int32s, Int32s]]
    count: int
    marks: Broadcast[NDArray[np.uint8]] | None

    def __call__(self, tasks: Iterable[Sequence[PartColumns]]) -> Iterator[Numbered[tuple[Int32s, Keys]]]:
        column_ids, group_of = self.named.value
        marked = None if self.marks is None else np.unpackbits(self.marks.value).view(np.bool_)
        bits = 0 if marked is None else len(marked).bit_length() - 1
        with telling_errors():
            for parts in tasks:
                for part in parts:
                    for owners, cells in self.index.blocks(part):
                        kept = slice(None) if marked is None else marked[_mark(cells, bits)]
                        groups, keys = group_of[np.searchsorted(column_ids, owners[kept])], cells.take(kept)
                        for number, places in _cut(partition_of(keys, self.count), self.count):
                            yield number, (groups[places], keys.take(places))


@dataclass(frozen=True, slots=True)
class MarkTask:
    """Mark keys by some of their bits, a bit for each: what is not marked is none of them."""

    bits: int

    def __call__(self, items: Iterable[Numbered[tuple[Int32s, Keys]]]) -> Iterator[NDArray[np.uint8]]:
        marks = np.zeros(1 << self.bits, np.bool_)
        for _, (_, keys) in items:
            marks[_mark(keys, self.bits)] = True
        yield np.packbits(marks)


@dataclass(frozen=True, slots=True)
class GatherTask:
    """Put the cells of a partition together; of some groups only what the changed ones have, where these are given."""

    changed: Broadcast[Flags] | None

    def __call__(
        self, number: int, items: Iterable[Numbered[tuple[Int32s, Keys]]]
    ) -> Iterator[Numbered[tuple[Int32s, Keys]]]:
        blocks = [block for _, block in items] or [(np.zeros(0, np.int32), Keys.of(()))]
        groups = np.concatenate([block[0] for block in blocks])
        keys = Keys(*(np.concatenate([block[1][half] for block in blocks]) for half in (0, 1)))
        if self.changed is not None:
            kept = KnownKeys.of(keys.take(self.changed.value[groups])).have(keys)
            groups, keys = groups[kept], keys.take(kept)
        yield number, (groups, keys)


@dataclass(frozen=True, slots=True)
class MakeTask:
    """Make partitions of their cells."""

    asked: Broadcast[Asked]

    def __call__(self, items: Iterable[Numbered[tuple[Int32s, Keys]]]) -> Iterator[Numbered[Partition]]:
        for number, (groups, keys) in items:
            yield number, make_partition(number, groups, keys, self.asked.value.scope)


@dataclass(frozen=True, slots=True)
class RarestTask:
    """Do step 1; rare values go to their dependent."""

    asked: Broadcast[Asked]
    count: int

    def __call__(self, items: Iterable[Numbered[Partition]]) -> Iterator[Numbered[Rare]]:
        for _, partition in items:
            rare = rarest_values(partition, self.asked.value.scope)
            yield from _cut_rare(rare, rare.column, self.count)


@dataclass(frozen=True, slots=True)
class OverallTask:
    """Do step 2; the rarest values go to their partition."""

    asked: Broadcast[Asked]

    def __call__(self, items: Iterable[Numbered[Rare]]) -> Iterator[Numbered[Rare]]:
        rare = rarest_overall([_NONE_RARE, *(part for _, part in items)], self.asked.value.scope)
        yield from _cut_rare(rare, rare.partition, int(rare.partition.max(initial=0)) + 1)


@dataclass(frozen=True, slots=True)
class ProposeTask:
    """Do step 3; candidates go to their dependent."""

    asked: Broadcast[Asked]
    count: int

    def __call__(self, items: Iterable[Numbered[Partition | Rare]]) -> Iterator[Numbered[Candidates]]:
        partition, rare = _beside_partition(items)
        wanted = Rare._make(np.concatenate(side) for side in zip(_NONE_RARE, *rare, strict=True))
        for block in propose(partition, wanted, self.asked.value.scope):
            yield from _cut_candidates(block, self.count)


def route(items: Iterable[Numbered[Rare | Candidates]]) -> Iterator[Numbered[Candidates]]:
    """Send candidates to the partitions that have values of their dependent: those that told its rare values."""
    told = [item for _, item in items]
    candidates = union([_NO_CANDIDATES, *(item for item in told if isinstance(item, Candidates))])
    for rare in told:
        if isinstance(rare, Rare):
            places = np.flatnonzero(np.isin(candidates.dependents, rare.column))
            if len(places):
                yield int(rare.partition[0]), _take(candidates, places)


@dataclass(frozen=True, slots=True)
class CountTask:
    """Do step 4; hits go to their dependent."""

    asked: Broadcast[Asked]
    count: int

    def __call__(self, items: Iterable[Numbered[Partition | Candidates]]) -> Iterator[Numbered[Candidates]]:
        partition, blocks = _beside_partition(items)
        for block in blocks:
            yield from _cut_candidates(count_hits(partition, block, self.asked.value.scope), self.count)


@dataclass(frozen=True, slots=True)
class StoreTask:
    """Do step 5, write INDs out as columns, and store them; gives their number."""

    asked: Broadcast[Asked]
    count: int
    first_task: int
    store: Store

    def __call__(self, number: int, items: Iterable[Numbered[Candidates]]) -> Iterator[int]:
        asked = self.asked.value
        found = decide([_NO_CANDIDATES, *(part for _, part in items)], asked.scope)
        own = np.flatnonzero(asked.sides.reflexive).astype(np.int32)
        own = own[own % self.count == number]
        pairs = Inds(*(np.concatenate(side) for side in zip(found, (own, own, asked.sides.sizes[own]), strict=True)))
        order = np.lexsort((pairs.referenced, pairs.dependent))
        blocks = [Inds(*(side[order] for side in pairs))]
        written = top_referenced(asked.sides, blocks, asked.top) if asked.top else as_columns(asked.sides, blocks)
        with telling_errors():
            yield self.store(self.first_task + number, written)


def _beside_partition(items: Iterable[Numbered[Any]]) -> tuple[Partition, Iterator[Any]]:
    """Take a partition, which comes first, and what is beside it."""
    rest = iter(items)
    _, partition = next(rest)
    return partition, (item for _, item in rest)

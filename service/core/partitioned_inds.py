"""Own IND discovery, rarest value first, where the values lie in partitions and none of them has a whole column.

Five steps, each a function of arrays; between them an engine only has to bring together what has the same partition or
the same dependent column:

1. `rarest_values`: each partition tells of each dependent its rarest values there, with their frequencies.
2. `rarest_overall`: of those of one dependent from all partitions, the rarest ones; without another holder it is done.
3. `propose`: the partition that owns such a value gives its columns as candidates, narrowed by what else it has.
4. `count_hits`: each partition with values of the dependent narrows the candidates (`union` of all proposals) and
   counts how many of its values each has.
5. `decide`: the hits of one dependent from all partitions, added up, are the overlaps.

A frequent value is one list in one partition, which candidates are looked up in; it is proposed from only where a
dependent has no rarer value. Columns may be given as one for each set of equal columns (`column_sets`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from service.core.column_sets import gather, number_keys, transpose, without_repeats
from service.core.compiled import kernel
from service.core.corpus_choices import EXACT, allowances
from service.core.group_inds import BLOCK, Inds
from service.core.rarest_first import search
from service.core.records import Flags, Int32s, Int64s, Keys, starts_of


@dataclass(frozen=True, slots=True)
class Scope:
    """Hold of all n columns what every partition needs: distinct values, who can be which side, what counts.

    Raises as `allowances` does.
    """

    sizes: Int64s
    dependent: Flags
    referenced: Flags
    coverage: Fraction = Fraction(0)
    threshold: Fraction = EXACT

    def __post_init__(self) -> None:
        allowances(self.sizes[:0], self.threshold, self.coverage)

    def allowance(self, columns: Int32s) -> Int64s:
        """Give how many of their values some columns may miss."""
        return allowances(self.sizes[columns], self.threshold)

    def largest(self, columns: Int32s) -> Int64s:
        """Give how many values a column may have of which some columns cover enough."""
        if not self.coverage:
            return np.full(len(columns), np.iinfo(np.int64).max)
        return self.sizes[columns] * self.coverage.denominator // self.coverage.numerator


@dataclass(frozen=True, slots=True)
class Partition:
    """Hold the values of one partition, numbered by (frequency among referenced columns, key), so that 0 is the rarest.

    Column columns[i] has values[value_starts[i]:value_starts[i + 1]], ascending; value v is in the referenced columns
    postings[posting_starts[v]:posting_starts[v + 1]], ascending.
    """

    number: int
    columns: Int32s
    value_starts: Int64s
    values: Int32s
    posting_starts: Int64s
    postings: Int32s


class Rare(NamedTuple):
    """Hold n rare values of dependents: frequency among referenced columns, partition, the value's number there."""

    column: Int32s
    frequency: Int64s
    partition: Int32s
    value: Int32s


class Candidates(NamedTuple):
    """Hold candidates by dependent (ascending): of dependents[i] they are at [starts[i]:starts[i + 1]], ascending.

    `hits` says how many of the dependent's values a candidate is known to have.
    """

    dependents: Int32s
    starts: Int64s
    referenced: Int32s
    hits: Int32s

    def owners(self) -> Int32s:
        """Give the dependent of each candidate."""
        return np.repeat(self.dependents, np.diff(self.starts))


def partition_of(keys: Keys, partitions: int) -> Int32s:
    """Give the partition of each key, int32[n]."""
    return (keys.high % np.uint64(partitions)).astype(np.int32)


def make_partition(number: int, columns: Int32s, keys: Keys, scope: Scope) -> Partition:
    """Build a partition from its cells, in any order and as often as they occur: columns[i] has the value keys[i]."""
    order = np.argsort(columns, kind="stable")
    columns, keys = columns[order], keys.take(order)
    begins = np.flatnonzero(np.diff(columns, prepend=-1))
    held = columns[begins]
    ids, first = number_keys(keys.high, keys.low)
    starts, places = without_repeats(*transpose(np.append(begins, len(columns)), ids, len(first)))
    counted = scope.referenced[held][places]
    frequency = np.diff(np.concatenate(([0], np.cumsum(counted)))[starts])
    distinct = keys.take(first)
    by_rank = np.lexsort((distinct.low, distinct.high, frequency))
    ranked = starts_of(np.diff(starts)[by_rank])
    places = gather(starts, places, by_rank.astype(np.int32), ranked)
    value_starts, values = transpose(ranked, places, len(held))
    postings = held[places[scope.referenced[held][places]]]
    return Partition(number, held, value_starts, values, starts_of(frequency[by_rank]), postings)


def rarest_values(partition: Partition, scope: Scope) -> Rare:
    """Step 1: give the rarest values here of each dependent, one more than it may miss."""
    asked = np.flatnonzero(scope.dependent[partition.columns])
    columns, starts = partition.columns[asked], partition.value_starts[asked]
    count = np.minimum(partition.value_starts[asked + 1] - starts, scope.allowance(columns) + 1)
    ends = np.cumsum(count)
    values = partition.values[np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + count, count)]
    frequency = np.diff(partition.posting_starts)[values]
    return Rare(np.repeat(columns, count), frequency, np.full(len(values), partition.number, np.int32), values)


def rarest_overall(parts: Sequence[Rare], scope: Scope) -> Rare:
    """Step 2: keep the rarest values of each dependent, one more than it may miss, that have another holder.

    `parts` are those of all partitions, of any dependents, each with all of its values.
    """
    column, frequency, partition, value = (np.concatenate(side) for side in zip(*parts, strict=True))
    order = np.lexsort((value, partition, frequency, column))
    column, frequency = column[order], frequency[order]
    place = np.arange(len(column)) - np.searchsorted(column, column)
    kept = (place <= scope.allowance(column)) & (frequency > scope.referenced[column])
    return Rare(column[kept], frequency[kept], partition[order[kept]], value[order[kept]])


def propose(partition: Partition, rare: Rare, scope: Scope) -> Iterator[Candidates]:
    """Step 3: yield the candidates that rare values of this partition give, in blocks; their hits are 0.

    Those are left out that miss too many of the dependent's values in this partition, or have too few or too many.
    """
    mine = rare.partition == partition.number
    order = np.lexsort((rare.value[mine], rare.column[mine]))
    column, value = rare.column[mine][order], rare.value[mine][order]
    places = np.searchsorted(partition.columns, column)
    frequency = np.diff(partition.posting_starts)[value]
    room = max(BLOCK, int(frequency.max(initial=0)))
    allowance, largest = scope.allowance(column), scope.largest(column)
    first = 0
    while first < len(column):
        starts, referenced, reached = _propose(
            first, room, column, value, places, partition.value_starts, partition.values, partition.posting_starts,
            partition.postings, scope.sizes, scope.sizes[column] - allowance, largest, allowance,
        )  # fmt: skip
        yield union([Candidates(column[first:reached], starts, referenced, np.zeros(len(referenced), np.int32))])
        first = reached


def union(parts: Sequence[Candidates]) -> Candidates:
    """Bring candidates together by dependent, each pair once; its hits are added up."""
    owners = np.concatenate([part.owners() for part in parts])
    referenced = np.concatenate([part.referenced for part in parts])
    pairs = owners.astype(np.int64) << 32 | referenced
    order = np.argsort(pairs, kind="stable")
    begins = np.flatnonzero(np.diff(pairs[order], prepend=-1))
    hits = np.concatenate([part.hits for part in parts])[order]
    total = np.add.reduceat(hits, begins, dtype=np.int32) if len(begins) else hits
    first = order[begins]
    dependents, starts = np.unique(owners[first], return_index=True)
    return Candidates(dependents, np.append(starts, len(first)), referenced[first], total)


def count_hits(partition: Partition, candidates: Candidates, scope: Scope) -> Candidates:
    """Step 4: count the dependents' values of this partition that each candidate has, where it does not miss too many.

    Dependents without values here are left out: nothing is known of them.
    """
    places = np.searchsorted(partition.columns, candidates.dependents)
    here = places < len(partition.columns)
    here[here] = partition.columns[places[here]] == candidates.dependents[here]
    starts, referenced, hits = _count_hits(
        np.flatnonzero(here), places, candidates.starts, candidates.referenced, partition.value_starts,
        partition.values, partition.posting_starts, partition.postings, scope.allowance(candidates.dependents),
    )  # fmt: skip
    return Candidates(candidates.dependents[here], starts, referenced, hits)


def decide(parts: Sequence[Candidates], scope: Scope) -> Inds:
    """Step 5: add up the hits of all partitions; give the INDs by (dependent, referenced)."""
    counted = union(parts)
    dependent, overlap = counted.owners(), counted.hits.astype(np.int64)
    covered = overlap * scope.coverage.denominator >= scope.coverage.numerator * scope.sizes[counted.referenced]
    holds = (overlap >= scope.sizes[dependent] - scope.allowance(dependent)) & covered
    return Inds(dependent[holds], counted.referenced[holds], counted.hits[holds])


Each = Callable[[Callable[[Partition], Any]], list[Any]]
"""Apply a function, which can be pickled, to every partition, and give what comes."""


def find_inds(partitions: Sequence[Partition], scope: Scope) -> Inds:
    """Do the five steps here, for all partitions one after the other."""
    return find_inds_by(lambda step: [step(partition) for partition in partitions], scope)


def find_inds_by(each: Each, scope: Scope) -> Inds:
    """Do the five steps wherever partitions are, and bring together here what they tell of columns: for few columns."""
    rare = rarest_overall(each(partial(rarest_values, scope=scope)), scope)
    proposed = [block for blocks in each(partial(_proposals, rare=rare, scope=scope)) for block in blocks]
    if not proposed:
        return Inds(*(np.empty(0, np.int32) for _ in Inds._fields))
    return decide(each(partial(count_hits, candidates=union(proposed), scope=scope)), scope)


def _proposals(partition: Partition, rare: Rare, scope: Scope) -> list[Candidates]:
    return list(propose(partition, rare, scope))


@kernel
def _narrow(
    candidates: Int32s,
    missed: Int32s,
    count: int,
    values: Int32s,
    start: int,
    end: int,
    posting_starts: Int64s,
    postings: Int32s,
    allowed: int,
) -> int:
    """Keep the candidates that miss at most `allowed` of values[start:end], and add up in `missed` what they miss."""
    for place in range(start, end):
        at, stop = posting_starts[values[place]], posting_starts[values[place] + 1]
        kept = 0
        for i in range(count):
            at = search(postings, at, stop, candidates[i])
            misses = missed[i] + (at == stop or postings[at] != candidates[i])
            candidates[kept], missed[kept] = candidates[i], misses
            kept += misses <= allowed
        count = kept
    return count


@kernel
def _propose(
    first: int,
    room: int,
    column: Int32s,
    value: Int32s,
    places: Int64s,
    value_starts: Int64s,
    values: Int32s,
    posting_starts: Int64s,
    postings: Int32s,
    sizes: Int64s,
    smallest: Int64s,
    largest: Int64s,
    allowance: Int64s,
) -> tuple[Int64s, Int32s, int]:
    """Propose from rare values [first:...) while `room` candidates have room for the next posting."""
    out, missed = np.empty(room, np.int32), np.empty(room, np.int32)
    starts = np.zeros(len(column) - first + 1, np.int64)
    written, at = 0, first
    while at < len(column):
        low, high = posting_starts[value[at]], posting_starts[value[at] + 1]
        if written + high - low > room:
            break
        count = 0
        for k in range(low, high):
            size = sizes[postings[k]]
            if smallest[at] <= size <= largest[at] and postings[k] != column[at]:
                out[written + count], missed[written + count] = postings[k], 0
                count += 1
        own, own_end = value_starts[places[at]], value_starts[places[at] + 1]
        written += _narrow(
            out[written : written + count], missed[written : written + count], count, values, own, own_end,
            posting_starts, postings, allowance[at],
        )  # fmt: skip
        at += 1
        starts[at - first] = written
    return starts[: at - first + 1], out[:written].copy(), at


@kernel
def _count_hits(
    dependents: Int64s,
    places: Int64s,
    starts: Int64s,
    referenced: Int32s,
    value_starts: Int64s,
    values: Int32s,
    posting_starts: Int64s,
    postings: Int32s,
    allowance: Int64s,
) -> tuple[Int64s, Int32s, Int32s]:
    """Narrow the candidates of some dependents, with the columns of this partition at `places`."""
    out_starts = np.zeros(len(dependents) + 1, np.int64)
    out, hits = referenced.copy(), np.zeros(len(referenced), np.int32)
    written = 0
    for i in range(len(dependents)):
        dependent = dependents[i]
        start, count = starts[dependent], starts[dependent + 1] - starts[dependent]
        out[written : written + count] = referenced[start : start + count]
        hits[written : written + count] = 0
        own, own_end = value_starts[places[dependent]], value_starts[places[dependent] + 1]
        kept = _narrow(
            out[written : written + count], hits[written : written + count], count, values, own, own_end,
            posting_starts, postings, allowance[dependent],
        )  # fmt: skip
        for k in range(written, written + kept):
            hits[k] = own_end - own - hits[k]
        written += kept
        out_starts[i + 1] = written
    return out_starts, out[:written].copy(), hits[:written].copy()

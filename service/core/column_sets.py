"""Own the columns of a corpus as sets of value ids, and the groups of equal columns that discovery runs on.

Lists of different lengths lie end to end: those of column c are at [starts[c]:starts[c + 1]]. Web tables have very
many equal columns; equal columns have the same dependents and the same referenced columns, so that each set is looked
at once, however many columns have it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from service.core.compiled import kernel
from service.core.corpus_choices import EXACT, allowances
from service.core.records import Flags, Int32s, Int64s, Keys, UInt64s, starts_of


@dataclass(frozen=True, slots=True)
class ColumnSets:
    """Hold n columns: `values` are the ids of their values, ascending and each once; `keys` are those of the ids."""

    starts: Int64s
    values: Int32s
    keys: Keys

    @staticmethod
    def of_keys(starts: Int64s, keys: Keys) -> ColumnSets:
        """Take the value keys of each column, end to end, in any order and as often as they occur.

        Equal ids mean equal keys, all 128 bits of them.
        """
        ids, first = number_keys(keys.high, keys.low)
        by_value = transpose(starts, ids, len(first))
        starts, values = without_repeats(*transpose(*by_value, len(starts) - 1))
        return ColumnSets(starts, values, keys.take(first))

    @property
    def sizes(self) -> Int64s:
        """Give the number of distinct values of each column."""
        return np.diff(self.starts)


@dataclass(frozen=True, slots=True)
class Sides:
    """Hold the sizes of g groups, and which columns of each can be dependent and which referenced, ascending.

    Those of group i are at [starts[i]:starts[i + 1]]; `reflexive` says whether it has an IND inside.
    """

    sizes: Int32s
    dependent_starts: Int64s
    dependents: Int32s
    referenced_starts: Int64s
    referenced: Int32s
    reflexive: Flags

    @staticmethod
    def of(sizes: Int64s, columns: Int32s, group_of: Int32s, dependent: Flags, referenced: Flags) -> Sides:
        """Take n columns, ascending, with the group of each and whether it can be dependent or referenced."""
        groups = len(sizes)
        dependents = _members(columns, group_of, dependent, groups)
        references = _members(columns, group_of, referenced, groups)
        both = np.bincount(group_of[dependent & referenced], minlength=groups)
        return Sides(
            sizes.astype(np.int32), *dependents, *references, np.diff(dependents[0]) * np.diff(references[0]) > both
        )


@dataclass(frozen=True, slots=True)
class Groups:
    """Hold g groups of equal columns by ascending size, and who can be a candidate of whom.

    Group i has sizes[i] values, and at [starts[i]:starts[i + 1]] the ranks of those that are here (all, as a rule),
    ascending: rank 0 is the rarest value among referenced columns, so a group's rarest value stands first.
    `value_ids` gives the id of each rank. The groups that hold a value and can be referenced are in `postings` by
    rank, ascending. The candidates of group i are in [first[i]:end[i]] by their sizes, i itself apart: `reflexive`
    says whether i has an IND inside. A dependent may miss `allowance` of its values that are here. Columns are at
    `dependents` and `referenced` by group, ascending.
    """

    sizes: Int32s
    starts: Int64s
    values: Int32s
    value_ids: Int32s
    posting_starts: Int64s
    postings: Int32s
    first: Int32s
    end: Int32s
    allowance: Int32s
    reflexive: Flags
    dependent_starts: Int64s
    dependents: Int32s
    referenced_starts: Int64s
    referenced: Int32s
    coverage: Fraction

    def __len__(self) -> int:
        return len(self.sizes)


def group_columns(
    columns: ColumnSets,
    dependent: Flags,
    referenced: Flags,
    *,
    coverage: Fraction = Fraction(0),
    threshold: Fraction = EXACT,
    sizes: Int64s | None = None,
) -> Groups:
    """Group equal columns; `dependent` and `referenced` say which columns can be which, bool[n].

    A ⊆ B counts when |A ∩ B| ≥ threshold · |A| and |A ∩ B| ≥ coverage · |B|. Columns without values are left out.
    Where columns are given with some of their values, `sizes` are the numbers of all of them, int64[n]: a dependent
    misses those that are not given, and INDs are right for pairs of which one column is given whole.
    Raises as `allowances` does.
    """
    held = columns.sizes
    sizes = held if sizes is None else sizes
    allowed = allowances(sizes, threshold, coverage)
    allowance = allowed - (sizes - held)
    dependent = dependent & (allowance >= 0)
    wanted = np.flatnonzero((dependent | referenced) & (held > 0)).astype(np.int32)
    group_of, examples = _equal_sets(columns.starts, columns.values, sizes, wanted)
    by_size = np.argsort(sizes[examples], kind="stable")
    number = np.empty(len(examples), np.int32)
    number[by_size] = np.arange(len(examples), dtype=np.int32)
    examples, group_of = examples[by_size], number[group_of]
    sides = Sides.of(sizes[examples], wanted, group_of, dependent[wanted], referenced[wanted])

    starts = starts_of(held[examples])
    id_starts, holders = transpose(
        starts, gather(columns.starts, columns.values, examples, starts), len(columns.keys.high)
    )
    can_be_referenced = np.diff(sides.referenced_starts) > 0
    frequency = np.add.reduceat(np.append(can_be_referenced[holders], False), id_starts[:-1], dtype=np.int64)
    frequency[id_starts[:-1] == id_starts[1:]] = 0  # reduceat gives an empty list its successor
    value_ids = np.argsort(frequency, kind="stable").astype(np.int32)
    by_rank = starts_of(np.diff(id_starts)[value_ids])
    holders = gather(id_starts, holders, value_ids, by_rank)
    values = transpose(by_rank, holders, len(examples))[1]
    postings = holders[can_be_referenced[holders]]

    sizes, allowed = sizes[examples], allowed[examples]
    smallest = np.where(allowed > 0, sizes - allowed, sizes + 1)
    end = np.full(len(sizes), len(sizes))
    if coverage:
        end = np.searchsorted(sizes, sizes * coverage.denominator // coverage.numerator, "right")
    return Groups(
        sizes=sides.sizes,
        starts=starts,
        values=values,
        value_ids=value_ids,
        posting_starts=starts_of(frequency[value_ids]),
        postings=postings,
        first=np.searchsorted(sizes, smallest).astype(np.int32),
        end=end.astype(np.int32),
        allowance=np.maximum(allowance[examples], 0).astype(np.int32),
        reflexive=sides.reflexive,
        dependent_starts=sides.dependent_starts,
        dependents=sides.dependents,
        referenced_starts=sides.referenced_starts,
        referenced=sides.referenced,
        coverage=coverage,
    )


def _members(columns: Int32s, group_of: Int32s, allowed: Flags, groups: int) -> tuple[Int64s, Int32s]:
    """Give the allowed columns of each group, ascending."""
    group_of, columns = group_of[allowed], columns[allowed]
    order = np.argsort(group_of, kind="stable")
    return starts_of(np.bincount(group_of, minlength=groups)), columns[order]


@kernel
def _mixed(high: np.uint64, low: np.uint64) -> np.uint64:
    mixed = (high ^ (low * np.uint64(0x9E3779B97F4A7C15))) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(32))


@kernel
def slot_of(high: np.uint64, low: np.uint64, slots: int) -> np.int64:
    """Give the slot where a key is looked for first in a table of `slots`, a power of 2."""
    return np.int64(_mixed(high, low) & np.uint64(slots - 1))


@kernel
def number_keys(high: UInt64s, low: UInt64s) -> tuple[Int32s, Int64s]:
    """Number keys from 0 by first occurrence; give the id of each key and the place where each id occurs first."""
    ids = np.empty(len(high), np.int32)
    first = np.empty(len(high), np.int64)
    table = np.full(1024, -1, np.int32)
    count = 0
    for i in range(len(high)):
        slot = slot_of(high[i], low[i], len(table))
        while table[slot] >= 0 and (high[first[table[slot]]] != high[i] or low[first[table[slot]]] != low[i]):
            slot = (slot + 1) & (len(table) - 1)
        if table[slot] < 0:
            table[slot] = count
            first[count] = i
            count += 1
        ids[i] = table[slot]
        if 2 * count > len(table):
            table = np.full(4 * len(table), -1, np.int32)
            for known in range(count):
                slot = slot_of(high[first[known]], low[first[known]], len(table))
                while table[slot] >= 0:
                    slot = (slot + 1) & (len(table) - 1)
                table[slot] = known
    return ids, first[:count].copy()


@kernel
def transpose(starts: Int64s, items: Int32s, item_count: int) -> tuple[Int64s, Int32s]:
    """Give, for each item, the lists that have it, ascending (a counting sort)."""
    out_starts = np.zeros(item_count + 1, np.int64)
    for i in range(len(items)):
        out_starts[items[i] + 1] += 1
    for item in range(item_count):
        out_starts[item + 1] += out_starts[item]
    at = out_starts[:-1].copy()
    lists = np.empty(len(items), np.int32)
    for i in range(len(starts) - 1):
        for place in range(starts[i], starts[i + 1]):
            lists[at[items[place]]] = i
            at[items[place]] += 1
    return out_starts, lists


@kernel
def without_repeats(starts: Int64s, items: Int32s) -> tuple[Int64s, Int32s]:
    """Keep each item of an ascending list once."""
    out_starts, out = np.zeros_like(starts), np.empty_like(items)
    kept = 0
    for i in range(len(starts) - 1):
        for place in range(starts[i], starts[i + 1]):
            if place == starts[i] or items[place] != items[place - 1]:
                out[kept] = items[place]
                kept += 1
        out_starts[i + 1] = kept
    return out_starts, out[:kept].copy()


@kernel
def gather(starts: Int64s, items: Int32s, lists: Int32s, out_starts: Int64s) -> Int32s:
    """Copy some of the lists, in their new order."""
    out = np.empty(out_starts[-1], np.int32)
    for i in range(len(lists)):
        start, at = starts[lists[i]], out_starts[i]
        for k in range(out_starts[i + 1] - at):
            out[at + k] = items[start + k]
    return out


@kernel
def _equal_sets(starts: Int64s, values: Int32s, sizes: Int64s, columns: Int32s) -> tuple[Int32s, Int32s]:
    """Number the (set, size) of some columns by first occurrence; give each column's number and examples of each."""
    group_of = np.empty(len(columns), np.int32)
    examples = np.empty(len(columns), np.int32)
    size = 16
    while size < 2 * len(columns):
        size *= 2
    table = np.full(size, -1, np.int32)
    count = 0
    for i in range(len(columns)):
        start, end = starts[columns[i]], starts[columns[i] + 1]
        hashed = np.uint64(sizes[columns[i]])
        for place in range(start, end):
            hashed = _mixed(hashed, np.uint64(values[place] + 1))
        slot = np.int64(hashed & np.uint64(size - 1))
        while table[slot] >= 0:
            example = examples[table[slot]]
            other = starts[example]
            same = sizes[example] == sizes[columns[i]] and starts[example + 1] - other == end - start
            place = start
            while same and place < end:
                same = values[place] == values[other + place - start]
                place += 1
            if same:
                break
            slot = (slot + 1) & (size - 1)
        if table[slot] < 0:
            table[slot] = count
            examples[count] = columns[i]
            count += 1
        group_of[i] = table[slot]
    return group_of, examples[:count].copy()

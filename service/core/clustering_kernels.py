"""Own the compiled loops of the attribute clustering: merging deltas into records, finding attribute sets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.compiled import kernel
from service.core.records import Flags, Int64s

SAME, COUNTED, MOVED = 0, 1, 2
"""What a batch does to a record: nothing, other frequencies, another attribute set."""

_GONE = -1
"""Stands in the table of sets where a set was: what lies behind it is still to be found."""


class Merged(NamedTuple):
    """Hold what becomes of n values: `changes` says how each changes, its cells are at [starts[i]:starts[i + 1]].

    `distinct` and `repeated` are differences by attribute id; rows of `missing` are (place, attribute id, how many), of
    `switched` (place, attribute id, 1 where the value came to the attribute and -1 where it left).
    """

    changes: NDArray[np.uint8]
    starts: Int64s
    attribute_ids: Int64s
    frequencies: Int64s
    distinct: Int64s
    repeated: Int64s
    missing: Int64s
    switched: Int64s


@kernel
def merge(
    delta_starts: Int64s,
    delta_ids: Int64s,
    differences: Int64s,
    cluster_id: Int64s,
    record_starts: Int64s,
    frequencies: Int64s,
    set_starts: Int64s,
    set_sizes: Int64s,
    set_ids: Int64s,
    uncounted: Flags,
    most: int,
) -> Merged:
    """Merge each value's deltas into its record; both are by ascending attribute id. `most` bounds the cells."""
    values = len(cluster_id)
    changes = np.zeros(values, np.uint8)
    starts = np.zeros(values + 1, np.int64)
    out_ids, out = np.empty(most, np.int64), np.empty(most, np.int64)
    distinct, repeated = np.zeros(len(uncounted), np.int64), np.zeros(len(uncounted), np.int64)
    missing = np.empty((len(delta_ids), 3), np.int64)
    switched = np.empty((len(delta_ids), 3), np.int64)
    n_missing = n_switched = at = 0
    for v in range(values):
        i, counted = set_starts[cluster_id[v]], record_starts[v]
        i_end = i + set_sizes[cluster_id[v]]
        change = SAME
        for d in range(delta_starts[v], delta_starts[v + 1]):
            attribute, difference = delta_ids[d], differences[d]
            while i < i_end and set_ids[i] < attribute:
                out_ids[at], out[at] = set_ids[i], frequencies[counted]
                at, i, counted = at + 1, i + 1, counted + 1
            is_member = i < i_end and set_ids[i] == attribute
            had = frequencies[counted] if is_member else 0
            if is_member:
                i, counted = i + 1, counted + 1
            now = had + difference
            stays = now > 0
            if uncounted[attribute]:
                had = now = 0
                stays = True
            elif now < 0:
                missing[n_missing, 0], missing[n_missing, 1], missing[n_missing, 2] = v, attribute, -now
                n_missing += 1
            if (had > 1) != (now > 1):
                repeated[attribute] += 1 if now > 1 else -1
            if stays:
                out_ids[at], out[at] = attribute, now
                at += 1
            if stays != is_member:
                way = 1 if stays else -1
                distinct[attribute] += way
                switched[n_switched, 0], switched[n_switched, 1], switched[n_switched, 2] = v, attribute, way
                n_switched += 1
                change = MOVED
            elif now != had and change == SAME:
                change = COUNTED
        while i < i_end:
            out_ids[at], out[at] = set_ids[i], frequencies[counted]
            at, i, counted = at + 1, i + 1, counted + 1
        changes[v] = change
        starts[v + 1] = at
    return Merged(
        changes, starts, out_ids[:at], out[:at], distinct, repeated, missing[:n_missing], switched[:n_switched]
    )


@kernel
def copy_sets(
    cluster_ids: Int64s, set_starts: Int64s, set_sizes: Int64s, set_ids: Int64s, out_starts: Int64s
) -> Int64s:
    """Copy the sets of clusters end to end."""
    out = np.empty(out_starts[-1], np.int64)
    for n in range(len(cluster_ids)):
        at, start = out_starts[n], set_starts[cluster_ids[n]]
        for i in range(set_sizes[cluster_ids[n]]):
            out[at + i] = set_ids[start + i]
    return out


@kernel
def _hash(ids: Int64s, start: int, end: int) -> int:
    """Mix a set's ids as splitmix64 does."""
    mixed = np.uint64(end - start)
    for i in range(start, end):
        mixed = (mixed ^ np.uint64(ids[i])) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(32)
    return np.int64(mixed & np.uint64(0x7FFFFFFFFFFFFFFF))  # type: ignore[return-value]


@kernel
def index(live: Int64s, set_starts: Int64s, set_sizes: Int64s, set_ids: Int64s, size: int) -> Int64s:
    """Build the table of sets with `size` places, a power of two: cluster ids by their sets' hash."""
    table = np.zeros(size, np.int64)
    for n in range(len(live)):
        start = set_starts[live[n]]
        slot = _hash(set_ids, start, start + set_sizes[live[n]]) & (size - 1)
        while table[slot] != 0:
            slot = (slot + 1) & (size - 1)
        table[slot] = live[n]
    return table


@kernel
def assign(
    starts: Int64s,
    ids: Int64s,
    set_starts: Int64s,
    set_sizes: Int64s,
    set_ids: Int64s,
    table: Int64s,
    free: Int64s,
    next_id: int,
    used: int,
    free_count: int,
) -> tuple[Int64s, int, int, int]:
    """Find the cluster of each set, or make it; the arrays have room. Returns (ids, next_id, used, free_count)."""
    found = np.zeros(len(starts) - 1, np.int64)
    for n in range(len(found)):
        start, end = starts[n], starts[n + 1]
        if start == end:
            continue
        slot = _hash(ids, start, end) & (len(table) - 1)
        while table[slot] != 0:
            known = table[slot]
            if known != _GONE and set_sizes[known] == end - start:
                same = True
                for i in range(end - start):
                    if set_ids[set_starts[known] + i] != ids[start + i]:
                        same = False
                        break
                if same:
                    break
            slot = (slot + 1) & (len(table) - 1)
        if table[slot] == 0:
            if free_count > 0:
                free_count -= 1
                new_id = free[free_count]
            else:
                new_id = next_id
                next_id += 1
            set_starts[new_id], set_sizes[new_id] = used, end - start
            for i in range(start, end):
                set_ids[used] = ids[i]
                used += 1
            table[slot] = new_id
        found[n] = table[slot]
    return found, next_id, used, free_count


@kernel
def forget(dropped: Int64s, set_starts: Int64s, set_sizes: Int64s, set_ids: Int64s, table: Int64s) -> None:
    """Take clusters out of the table."""
    for n in range(len(dropped)):
        start = set_starts[dropped[n]]
        slot = _hash(set_ids, start, start + set_sizes[dropped[n]]) & (len(table) - 1)
        while table[slot] != dropped[n]:
            slot = (slot + 1) & (len(table) - 1)
        table[slot] = _GONE
        set_sizes[dropped[n]] = 0

"""Own ValCache: what is known of values' records, bounded in bytes (Incremental INDs 2017, section 5.1).

Arrays of about 30 bytes a value instead of objects of 300, so that the records of a whole state of ten million values
fit into a service's memory. It is cut into segments by the first bits of the key, which is a hash. A segment that was
loaded whole and has forgotten nothing since knows of every value of its range, also of those that have no record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.compiled import kernel
from service.core.records import NO_CLUSTER, Int64s, Keys, Records, UInt64s, starts_of

SEGMENT_BITS = 5
SLOT_BYTES = 25
FREQUENCY_BYTES = 8
MOST_FILLED = 0.85
"""Linear probing gets slow when fuller."""

SMALLEST = 256

LOADED_BYTES = 36
"""About what a value takes of a segment that is loaded, with room for a tenth more."""

Int32s = NDArray[np.int32]
Ages = NDArray[np.uint8]

_ABSENT = -1
"""The cluster of a value that is known to have no record, in a segment that does not know of all."""


class Segment(NamedTuple):
    """Hold the slots of one key range: `cluster` is 0 in an empty one, `age` 1 in one that was met again of late.

    `counted` is the frequency of a record that has one; of others, where their frequencies are in the segment's pool
    behind their number, as -1 - place.
    """

    high: UInt64s
    low: UInt64s
    cluster: Int32s
    counted: Int32s
    age: Ages

    @staticmethod
    def empty(slots: int) -> Segment:
        return Segment(
            np.zeros(slots, np.uint64),
            np.zeros(slots, np.uint64),
            np.zeros(slots, np.int32),
            np.zeros(slots, np.int32),
            np.zeros(slots, np.uint8),
        )


class ValCache:
    """Know the records of as many values as fit into `max_bytes`.

    A segment that is full and may not grow forgets what was not met again since it came or since it forgot last.
    Keys are given in ascending order, always.
    """

    def __init__(self, max_bytes: int, expected: int = 0) -> None:
        """Make room at once for as many of the `expected` values as fit; memory is taken as it fills."""
        self.max_bytes = max_bytes
        self.hits = 0
        self.misses = 0
        segments = 1 << SEGMENT_BITS
        slots = min(_slots_for(expected / segments), int(0.8 * max_bytes) // (SLOT_BYTES * segments)) if expected else 0
        self._segments = [Segment.empty(slots) for _ in range(segments)]
        self._pools = [np.zeros(0, np.int64)] * len(self._segments)
        self._pool_used = np.zeros(len(self._segments), np.int64)
        self._filled = np.zeros(len(self._segments), np.int64)
        self._is_complete = np.zeros(len(self._segments), np.bool_)
        self._forgotten = np.zeros(len(self._segments), np.int64)

    def __len__(self) -> int:
        return int(self._filled.sum())

    @property
    def bytes(self) -> int:
        """Tell how much memory the slots and pools take."""
        slots = sum(len(segment.cluster) for segment in self._segments)
        return SLOT_BYTES * slots + FREQUENCY_BYTES * sum(map(len, self._pools))

    def find(self, keys: Keys) -> tuple[NDArray[np.bool_], Records]:
        """Tell of each value whether the cache knows of it, and give the records of those that it knows of, in order.

        A value that is known to have no record has NO_CLUSTER.
        """
        count = len(keys.high)
        is_known = np.zeros(count, np.bool_)
        cluster_id, lengths = np.zeros(count, np.int64), np.zeros(count, np.int64)
        slots = np.empty(count, np.int64)
        parts = list(self._parts(keys))
        for number, part in parts:
            segment = self._segments[number]
            _find(
                *segment, self._pools[number], keys.high[part], keys.low[part], slots[part], cluster_id[part],
                lengths[part],
            )  # fmt: skip
            is_known[part] = (slots[part] >= 0) | self._is_complete[number]
        starts = starts_of(lengths)
        frequencies = np.empty(starts[-1], np.int64)
        for number, part in parts:
            segment = self._segments[number]
            _read(
                segment.counted,
                self._pools[number],
                slots[part],
                starts[part.start : part.stop],
                lengths[part],
                frequencies,
            )
        known = int(np.count_nonzero(is_known))
        self.hits += known
        self.misses += count - known
        return is_known, Records(cluster_id[is_known], starts_of(lengths[is_known]), frequencies)

    def put(self, keys: Keys, records: Records) -> None:
        """Remember what became of values; NO_CLUSTER: they have no record any more."""
        if self.max_bytes > 0:
            for number, part in self._parts(keys):
                self._put(number, keys.take(part), records, part.start, replace=True)

    def segments(self) -> range:
        """Give the numbers of the segments; segment n is of the keys whose first SEGMENT_BITS bits are n."""
        return range(len(self._segments))

    def forgotten(self, number: int) -> int:
        """Tell how often a segment has forgotten something: what is read meanwhile must not be loaded."""
        return int(self._forgotten[number])

    def load(self, number: int, keys: Keys, records: Records, forgotten: int) -> bool:
        """Take all records of a segment, as they were read; what the cache knows already is newer and stays.

        Returns whether the segment now knows of every value of its range: not when it may not grow so large, or has
        forgotten something since `forgotten` was told.
        """
        room = _slots_for(len(keys.high) + self._filled[number])
        lengths = np.diff(records.starts)
        pooled = int((lengths[lengths > 1] + 1).sum())
        fits = self._resize(number, max(room, len(self._segments[number].cluster)), pooled)
        if not fits or self._forgotten[number] != forgotten:
            return False
        self._put(number, keys, records, 0, replace=False)
        self._is_complete[number] = self._forgotten[number] == forgotten
        return bool(self._is_complete[number])

    def _parts(self, keys: Keys) -> Sequence[tuple[int, slice]]:
        """Cut ascending keys at the segments' ends."""
        bounds = np.arange(1, len(self._segments), dtype=np.uint64) << np.uint64(64 - SEGMENT_BITS)
        ends = [0, *np.searchsorted(keys.high, bounds).tolist(), len(keys.high)]
        return [(n, slice(ends[n], ends[n + 1])) for n in self.segments() if ends[n] < ends[n + 1]]

    def _put(self, number: int, keys: Keys, records: Records, first: int, replace: bool) -> None:
        done = 0
        while True:
            segment = self._segments[number]
            done, self._filled[number], self._pool_used[number] = _put(
                *segment, self._pools[number], int(self._filled[number]), int(self._pool_used[number]), keys.high,
                keys.low, records.cluster_id, records.starts, records.frequencies, first, done, replace,
                bool(self._is_complete[number]), MOST_FILLED,
            )  # fmt: skip
            if done == len(keys.high):
                return
            if self._make_room(number, _pooled_places(records, first + done)):
                continue
            # Not even alone: nothing old may be said of it either.
            self._rebuild(number, np.zeros(len(segment.cluster), np.bool_), len(segment.cluster), 0)
            done += 1
            if not len(segment.cluster):
                return

    def _make_room(self, number: int, pooled: int) -> bool:
        """Let a segment have room for one more record, and so much of the pool; forget, when it may not grow."""
        slots, pool = len(self._segments[number].cluster), len(self._pools[number])
        is_full = self._filled[number] + 1 > MOST_FILLED * slots
        more = max(slots * 3 // 2, SMALLEST) if is_full else slots
        if self._resize(number, more, pooled):
            return True
        is_young = self._segments[number].age == 1
        if np.count_nonzero(is_young) > MOST_FILLED / 2 * slots:
            is_young[:] = False  # all of it was met of late: begin anew
        self._is_complete[number] = False
        self._forgotten[number] += 1
        self._rebuild(number, is_young, slots, 0)
        self._segments[number].age[:] = 0
        return bool(self._filled[number] + 1 <= MOST_FILLED * slots and self._pool_used[number] + pooled <= pool)

    def _resize(self, number: int, slots: int, frequencies: int) -> bool:
        """Let a segment have so many slots, and room for so many more frequencies, unless that is too much memory."""
        segment, pool = self._segments[number], self._pools[number]
        live = _live(segment.counted, segment.cluster, pool)
        room = len(pool)
        if self._pool_used[number] + frequencies > room:
            room = max(int(1.25 * (live + frequencies)), SMALLEST)
        added = SLOT_BYTES * (slots - len(segment.cluster)) + FREQUENCY_BYTES * (room - len(pool))
        if added > 0 and self.bytes + added > self.max_bytes:
            return False
        if slots != len(segment.cluster) or self._pool_used[number] + frequencies > len(pool):
            self._rebuild(number, np.ones(len(segment.cluster), np.bool_), slots, room)
        return True

    def _rebuild(self, number: int, is_kept: NDArray[np.bool_], slots: int, pool_room: int) -> None:
        """Move what is kept of a segment into another one, and its frequencies together."""
        old, old_pool = self._segments[number], self._pools[number]
        pool = np.zeros(max(pool_room, len(old_pool)), np.int64)
        new = Segment.empty(slots)
        self._filled[number], self._pool_used[number] = _move(
            *old, old_pool, is_kept, *new, pool, bool(self._is_complete[number])
        )
        self._segments[number], self._pools[number] = new, pool


def _slots_for(values: float) -> int:
    return int(values * 1.1 / MOST_FILLED) + SMALLEST


def _pooled_places(records: Records, place: int) -> int:
    """Tell how many places of the pool a record takes: none, when it has one small frequency."""
    _, frequencies = records.record(place)
    return 0 if not frequencies or (len(frequencies) == 1 and frequencies[0] < 2**31) else len(frequencies) + 1


@kernel
def _home(high: np.uint64, slots: int) -> int:
    """Give the slot that a key would have: ascending with the key, so that ascending keys walk through the memory."""
    within = np.uint64(high << np.uint64(SEGMENT_BITS)) >> np.uint64(32)
    return np.int64((within * np.uint64(slots)) >> np.uint64(32))  # type: ignore[return-value]


@kernel
def _slot(high: UInt64s, low: UInt64s, cluster: Int32s, h: np.uint64, l: np.uint64) -> int:  # noqa: E741
    """Give the slot of a key, or the empty one where it would be."""
    at = _home(h, len(cluster))
    while cluster[at] != 0 and not (high[at] == h and low[at] == l):
        at += 1
        if at == len(cluster):
            at = 0
    return at


@kernel
def _find(
    high: UInt64s,
    low: UInt64s,
    cluster: Int32s,
    counted: Int32s,
    age: Ages,
    pool: Int64s,
    wanted_high: UInt64s,
    wanted_low: UInt64s,
    slots: Int64s,
    cluster_id: Int64s,
    lengths: Int64s,
) -> None:
    for i in range(len(wanted_high)):
        slots[i] = -1
        if len(cluster) == 0:
            continue
        at = _slot(high, low, cluster, wanted_high[i], wanted_low[i])
        if cluster[at] == 0:
            continue
        slots[i] = at
        age[at] = 1
        if cluster[at] != _ABSENT:
            cluster_id[i] = cluster[at]
            lengths[i] = 1 if counted[at] >= 0 else pool[-1 - counted[at]]


@kernel
def _read(counted: Int32s, pool: Int64s, slots: Int64s, starts: Int64s, lengths: Int64s, out: Int64s) -> None:
    for i in range(len(slots)):
        if lengths[i] == 0:
            continue
        at = counted[slots[i]]
        if at >= 0:
            out[starts[i]] = at
        else:
            for j in range(lengths[i]):
                out[starts[i] + j] = pool[-at + j]


@kernel
def _put(
    high: UInt64s,
    low: UInt64s,
    cluster: Int32s,
    counted: Int32s,
    age: Ages,
    pool: Int64s,
    filled: int,
    pool_used: int,
    new_high: UInt64s,
    new_low: UInt64s,
    cluster_id: Int64s,
    starts: Int64s,
    frequencies: Int64s,
    first: int,
    done: int,
    replace: bool,
    is_complete: bool,
    most_filled: float,
) -> tuple[int, int, int]:
    """Put records in, from `done` on, until there is no room: (how far it came, slots filled, pool used)."""
    if len(cluster) == 0:
        return done, filled, pool_used
    for i in range(done, len(new_high)):
        at = _slot(high, low, cluster, new_high[i], new_low[i])
        is_there = cluster[at] != 0
        if is_there and not replace:
            continue
        new_id = cluster_id[first + i]
        if new_id == NO_CLUSTER and is_complete:
            if is_there:
                _remove(high, low, cluster, counted, age, at)
                filled -= 1
            continue
        start = starts[first + i]
        width = starts[first + i + 1] - start
        is_small = width == 0 or (width == 1 and frequencies[start] < 2**31)
        has_block = is_there and counted[at] < 0 and pool[-1 - counted[at]] == width
        if (not is_there and filled + 1 > most_filled * len(cluster)) or (
            not is_small and not has_block and pool_used + width + 1 > len(pool)
        ):
            return i, filled, pool_used
        if not is_there:
            high[at], low[at] = new_high[i], new_low[i]
            filled += 1
        cluster[at] = _ABSENT if new_id == NO_CLUSTER else new_id
        age[at] = is_there
        if is_small:
            counted[at] = frequencies[start] if width else 0
            continue
        if not has_block:
            counted[at] = -1 - pool_used
            pool[pool_used] = width
            pool_used += width + 1
        block = -counted[at]
        for j in range(width):
            pool[block + j] = frequencies[start + j]
    return len(new_high), filled, pool_used


@kernel
def _remove(high: UInt64s, low: UInt64s, cluster: Int32s, counted: Int32s, age: Ages, at: int) -> None:
    """Empty a slot, and move those behind it up that could not be found any more."""
    slots = len(cluster)
    hole = at
    while True:
        at += 1
        if at == slots:
            at = 0
        if cluster[at] == 0:
            break
        home = _home(high[at], slots)
        # Whether its home lies in the circle behind the hole, up to where it is: then it stays.
        stays = hole < home <= at if hole < at else (home > hole or home <= at)
        if not stays:
            high[hole], low[hole], cluster[hole] = high[at], low[at], cluster[at]
            counted[hole], age[hole] = counted[at], age[at]
            hole = at
    cluster[hole] = 0


@kernel
def _live(counted: Int32s, cluster: Int32s, pool: Int64s) -> int:
    """Count the pool's places that are in use."""
    live = 0
    for at in range(len(cluster)):
        if cluster[at] != 0 and counted[at] < 0:
            live += pool[-1 - counted[at]] + 1
    return live


@kernel
def _move(
    high: UInt64s,
    low: UInt64s,
    cluster: Int32s,
    counted: Int32s,
    age: Ages,
    pool: Int64s,
    is_kept: NDArray[np.bool_],
    new_high: UInt64s,
    new_low: UInt64s,
    new_cluster: Int32s,
    new_counted: Int32s,
    new_age: Ages,
    new_pool: Int64s,
    is_complete: bool,
) -> tuple[int, int]:
    filled = used = 0
    for old in range(len(cluster)):
        if cluster[old] == 0 or not is_kept[old] or (is_complete and cluster[old] == _ABSENT):
            continue
        at = _slot(new_high, new_low, new_cluster, high[old], low[old])
        new_high[at], new_low[at], new_cluster[at] = high[old], low[old], cluster[old]
        new_counted[at], new_age[at] = counted[old], age[old]
        filled += 1
        if counted[old] < 0:
            block = -1 - counted[old]
            new_counted[at] = -1 - used
            for j in range(pool[block] + 1):
                new_pool[used + j] = pool[block + j]
            used += pool[block] + 1
    return filled, used

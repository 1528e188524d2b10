"""Own the search for keys of several columns, and for their foreign keys, over tables that are read again and again.

Minimal unique column combinations level by level: one that holds a key is no minimal one, and one whose columns have
too few values together cannot be one; samples of the rows, then of the tuples, refute nearly all others, and what is
left is counted exactly. Tuples are compared by hashes of 64 bits: in n rows two different ones meet with a chance
below n² / 2^65. Then a key is missed, never made up; and a coefficient is off by one value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby, islice
from math import ceil, log, prod, sqrt
from typing import NamedTuple

import numpy as np

from service.core.compiled import kernel
from service.core.foreign_keys.candidates import Candidate, Columns
from service.core.records import Flags, UInt64s, distinct_of
from service.core.sketches.hll import Hll
from service.core.text_hashes import mixed

WIDTH = 3
"""Most columns of a key that is searched for."""

MOST_COMBINATIONS = 1_000_000
"""Combinations of a table that are tried at most; a search that ends there says so."""

MEMORY = 256 << 20
"""Bytes of hashes that are held at once."""

SAMPLES = (256, 2048, 16_384, 131_072)
"""Rows that combinations are tried on, one after the other: most fail on the first. Of wide tables as many as fit."""

TUPLE_SAMPLE = 64
"""One in so many tuples is looked at before all are: rows that share a tuple are in such a sample together, which they
seldom are in one of rows."""

_BUCKET_BITS = 12
_LEVEL = 1 - 1e-9


class Chunk(NamedTuple):
    """Hold some rows of a table: hashes of their cells, uint64[rows, columns], and where they are NULL, bool of it.

    Columns are best laid end to end (Fortran's order): combinations read a few of them.
    """

    hashes: UInt64s
    nulls: Flags


Chunks = Callable[[], Iterator[Chunk]]
"""Read a table, as often as it is called: the same rows each time. `find_keys` calls it for each combination."""


@dataclass(frozen=True, slots=True)
class FoundKeys:
    """Hold a table's minimal keys, narrow ones first, by the places of their columns; no cell of them is NULL.

    `tried` counts the combinations that were looked at; `is_complete` that these were all up to the width.
    """

    rows: int
    keys: tuple[Columns, ...]
    tried: int
    is_complete: bool


def find_keys(
    read: Chunks,
    width: int = WIDTH,
    most: int = MOST_COMBINATIONS,
    memory: int = MEMORY,
    samples: Sequence[int] = SAMPLES,
) -> FoundKeys:
    """Find the minimal unique column combinations of up to `width` columns; a table without rows has none."""
    facts = _facts(read, samples[-1], memory)
    keys: list[Columns] = []
    tried = 0
    columns = [place for place, nulls in enumerate(facts.nulls.tolist()) if not nulls] if facts.rows else []
    for level in range(1, min(width, len(columns)) + 1):
        known = frozenset(keys)
        wanted = _combinations(columns, level, known, facts)
        left = []
        for prefix, group in groupby(islice(wanted, most - tried), lambda combination: combination[:-1]):
            last = [combination[-1] for combination in group]
            tried += len(last)
            last = [column for column in last if not _holds_key((*prefix, column), known)]
            left += [tuple(sorted((*prefix, column))) for column in _left(facts.sample, prefix, last, samples)]
        if len(facts.sample) < facts.rows:
            left = [combination for combination in left if _is_key(read, combination, facts.rows, memory)]
        keys += sorted(left)
        if next(wanted, None) is not None:
            return FoundKeys(facts.rows, tuple(keys), tried, False)
    return FoundKeys(facts.rows, tuple(keys), tried, True)


@dataclass(frozen=True, slots=True, eq=False)
class _Facts:
    """Hold rows and NULLs by column, the most distinct values of each as far as is known, and a sample of rows."""

    rows: int
    nulls: np.ndarray
    most_distinct: Sequence[float]
    sample: UInt64s


def _facts(read: Chunks, sample_rows: int, memory: int) -> _Facts:
    rows, nulls, sketches = 0, np.zeros(0, np.int64), list[Hll]()
    sample, ranks, most = np.zeros((0, 0), np.uint64), np.zeros(0, np.uint64), sample_rows
    for hashes, is_null in read():
        count, columns = hashes.shape
        if not rows:
            nulls, sketches = np.zeros(columns, np.int64), [Hll(_BUCKET_BITS) for _ in range(columns)]
            sample, most = np.zeros((0, columns), np.uint64), min(sample_rows, max(memory // (8 * columns), 1))
        rows += count
        nulls += is_null.sum(axis=0)
        for sketch, column in zip(sketches, hashes.T, strict=True):
            sketch.update(np.ascontiguousarray(column))
        # The rows of the smallest hashes are a random sample, and rows that are equal come into it together.
        of_chunk = tuple_hashes(hashes, range(columns))
        low = np.flatnonzero(of_chunk <= ranks[-1]) if len(ranks) == most else np.arange(count)
        ranks, sample = np.concatenate((ranks, of_chunk[low])), np.concatenate((sample, hashes[low]))
        kept = np.argsort(ranks, kind="stable")[:most]
        ranks, sample = ranks[kept], sample[kept]
    return _Facts(rows, nulls, [sketch.bounds(_LEVEL)[1] for sketch in sketches], np.asfortranarray(sample))


def _combinations(columns: Sequence[int], level: int, keys: Collection[Columns], facts: _Facts) -> Iterator[Columns]:
    """Yield the combinations of so many columns that have values enough for a key, as they are asked for.

    Columns of many values come first: where those that come next have too few for the rows, all others have. What is in
    front of the last column holds no key; the whole may.
    """
    ordered = sorted((column for column in columns if (column,) not in keys), key=lambda c: -facts.most_distinct[c])

    def behind(prefix: Columns, first: int) -> Iterator[Columns]:
        left = level - len(prefix)
        for place in range(first, len(ordered) - left + 1):
            most = prod(facts.most_distinct[column] for column in (*prefix, *ordered[place : place + left]))
            if most < facts.rows:
                return
            combination = (*prefix, ordered[place])
            if left == 1:
                yield combination
            elif not _holds_key(combination, keys):
                yield from behind(combination, place + 1)

    return behind((), 0)


def _holds_key(combination: Columns, keys: Collection[Columns]) -> bool:
    """Tell whether these columns or some of them are a key: looked up, as there may be as many keys as combinations."""
    ascending = sorted(combination)
    return any(part in keys for size in range(1, len(ascending) + 1) for part in combinations(ascending, size))


def _left(sample: UInt64s, prefix: Columns, last: list[int], samples: Sequence[int]) -> list[int]:
    """Keep those of the last columns that tell the rows of each sample apart behind a prefix, all of them at once."""
    for size in samples:
        if last:
            rows = sample[:size]
            tuples = np.sort(mixed(tuple_hashes(rows, prefix), rows.T[last]), axis=1)
            repeats = (tuples[:, 1:] == tuples[:, :-1]).any(axis=1)
            last = [column for column, is_repeated in zip(last, repeats.tolist(), strict=True) if not is_repeated]
        if size >= len(sample):
            break
    return last


def tuple_hashes(hashes: UInt64s, columns: Iterable[int]) -> UInt64s:
    """Give the hash of each row's tuple of these columns, in this order: uint64[rows]."""
    found = np.zeros(len(hashes), np.uint64)
    for column in columns:
        found = mixed(found, hashes[:, column])
    return found


def _is_key(read: Chunks, columns: Columns, rows: int, memory: int) -> bool:
    """Tell whether no two rows have a tuple in common: first among a sample of the tuples, then as many as fit."""
    parts = max(1, ceil(8 * rows / memory))
    shares = [Share(max(TUPLE_SAMPLE, parts), 0), *(Share(parts, part) for part in range(parts))]
    return all(_is_unique(_tuples(read, [columns], share)[columns]) for share in shares)


def _is_unique(hashes: UInt64s) -> bool:
    ordered = np.sort(hashes)
    return not bool((ordered[1:] == ordered[:-1]).any())


class Share(NamedTuple):
    """Choose a share of all tuples by their hashes: `ranges` of `parts` equal ranges of them, from `part` on."""

    parts: int
    part: int
    ranges: int = 1

    def of(self, hashes: UInt64s) -> UInt64s:
        """Give those hashes that are in it."""
        low, high = ((edge << 64) // self.parts for edge in (self.part, self.part + self.ranges))
        if low:
            hashes = hashes[hashes >= np.uint64(low)]
        return hashes if high == 1 << 64 else hashes[hashes < np.uint64(high)]


def _tuples(read: Chunks, wanted: Collection[Columns], share: Share) -> dict[Columns, UInt64s]:
    """Give the hashes of the tuples of a share, of rows without NULL in them, as often as they come."""
    held: dict[Columns, list[UInt64s]] = {columns: [] for columns in wanted}
    for chunk in read() if wanted else ():
        for columns, pieces in held.items():
            is_null = chunk.nulls[:, list(columns)].any(axis=1)
            found = tuple_hashes(chunk.hashes, columns)
            pieces.append(share.of(found[~is_null] if is_null.any() else found))
    return {columns: np.concatenate([np.zeros(0, np.uint64), *pieces]) for columns, pieces in held.items()}


def distinct_tuples(read: Chunks, wanted: Collection[Columns], share: Share) -> dict[Columns, UInt64s]:
    """Give the hashes of the distinct tuples of a share, ascending: SQL's MATCH SIMPLE, one with a NULL is none."""
    return {columns: distinct_of(found) for columns, found in _tuples(read, wanted, share).items()}


@kernel
def _count_shared(one: UInt64s, other: UInt64s) -> int:
    """Count what two ascending arrays have in common, each of them nothing twice."""
    shared = i = j = 0
    while i < len(one) and j < len(other):
        a, b = one[i], other[j]
        shared += a == b
        i += a <= b
        j += b <= a
    return shared


@dataclass(slots=True)
class Counted:
    """Count a candidate's distinct dependent tuples, and those of them that are referenced."""

    distinct: int = 0
    shared: int = 0

    @property
    def coefficient(self) -> float:
        """Give σ(F, P), 0 where there are no tuples."""
        return self.shared / self.distinct if self.distinct else 0.0

    def add(self, dependent: UInt64s, referenced: UInt64s) -> None:
        """Count one more share, of distinct hashes in ascending order."""
        self.distinct += len(dependent)
        self.shared += _count_shared(dependent, referenced)

    def may_reach(self, theta: float, is_all: bool) -> bool:
        """Tell whether σ can still be `theta`, by what was counted so far; surely, but for one in 10^9 below 1."""
        if is_all or not self.distinct:
            return not is_all or self.coefficient >= theta > 0 or (theta == 0 and self.distinct > 0)
        if theta == 1:
            return self.shared == self.distinct
        return self.coefficient >= theta - sqrt(log(1e9) / (2 * self.distinct))


Tuples = Callable[[Collection[Columns], Share], Mapping[Columns, UInt64s]]
"""Give `distinct_tuples` of columns of any tables, each side of one table."""


def confirm(
    tuples: Tuples,
    candidates: Collection[Candidate],
    rows_of: Callable[[Columns], int],
    theta: float,
    memory: int = MEMORY,
) -> dict[Candidate, Counted]:
    """Count candidates over their tuples, and keep those with σ of at least `theta`.

    Where not all tuples fit, shares of them are read one after the other; the first is a small sample.
    """
    left = {candidate: Counted() for candidate in candidates}

    def size() -> int:
        return sum(8 * rows_of(side) for side in {side for candidate in left for side in candidate})

    needed = ceil(size() / memory)
    parts, part = needed * TUPLE_SAMPLE if needed > 1 else 1, 0
    while left and part < parts:
        # A small share refutes most; of what it leaves as much is read as fits.
        ranges = min(max(memory * parts // max(size(), 1), 1), parts - part) if part else 1
        found = tuples({side for candidate in left for side in candidate}, Share(parts, part, ranges))
        for candidate, counted in left.items():
            counted.add(found[candidate.dependent], found[candidate.referenced])
        part += ranges
        is_all = part == parts
        left = {candidate: counted for candidate, counted in left.items() if counted.may_reach(theta, is_all)}
    return left

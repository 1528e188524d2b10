"""Own the row filters that searches for joinable tables are compared by, and what each lets through (MATE, Table 3)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import log

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from benchmarks.joinable_lakes import Lake, LakeQuery
from service.core.canonical_arrow import text_buffers
from service.core.joinability import Initial, prepare
from service.core.records import Int64s, Keys, UInt64s
from service.core.row_filters import CountedBits, RowFilter, ValueHashes
from service.core.signatures import positions
from service.core.xash import Xash, character_counts, ones_for, rarest_first

BITS = 128
BLOOM = "Bloom filter"
XASH = "XASH"
MEASURED = "XASH, measured rarity"
XASH_6 = "XASH, 6 ones"
BLOOM_6 = "Bloom filter, 6 functions"
COUNTED = "counted bits"


@dataclass(slots=True)
class Passed:
    """Count pairs of a key and a row that has its initial value: joining, let through though not, and filtered out."""

    joining: int = 0
    false_positives: int = 0
    filtered: int = 0
    rates: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Give the share of all pairs that do not join which is let through, in percent."""
        return percent(self.false_positives, self.filtered)

    @property
    def mean_rate(self) -> float:
        """Give the mean of the queries' shares: of queries that have pairs which do not join."""
        return float(np.mean(self.rates or [0.0]))

    @property
    def precision(self) -> float:
        """Give the share of the pairs let through that join."""
        return self.joining / max(1, self.joining + self.false_positives)


def bloom_functions(lake: Lake, bits: int = BITS) -> int:
    """Give the paper's H = |a| / V · ln 2, where V is the mean number of columns of the lake's tables (7.1.2)."""
    widths = lake.widths()
    return max(1, round(bits / widths[widths > 0].mean() * log(2)))


def filters(lake: Lake) -> Iterator[tuple[str, RowFilter]]:
    """Yield all filters of 128 bits, one at a time; XASH with the ones of Equation 5.

    Bloom filters hash value keys, where the paper takes Murmur; MD5 stands for CityHash and Murmur
    too, which also set half of their bits evenly.
    """
    keys = lake.keys()
    ones = ones_for(len(lake.values), BITS)
    measured = rarest_first(character_counts(lake.values).tolist())
    for name, hashes in (
        (BLOOM, lambda: bloom(keys, bloom_functions(lake))),
        (BLOOM_6, lambda: bloom(keys, 6)),
        ("LHBF", lambda: bloom(keys, 2)),
        ("hash table", lambda: bloom(keys, 1)),
        ("MD5", lambda: md5(lake.values.to_pylist())),
        ("SimHash", lambda: simhash(lake.values)),
        (XASH, lambda: Xash(BITS, ones).hashes(lake.values)),
        (XASH_6, lambda: Xash(BITS, 6).hashes(lake.values)),
        (MEASURED, lambda: Xash(BITS, ones, measured).hashes(lake.values)),
    ):
        yield name, ValueHashes.of(lake.index, hashes())
    yield COUNTED, CountedBits.of(lake.index, keys)


def bloom(keys: Keys, functions: int, bits: int = BITS) -> UInt64s:
    """Set the bits of so many hash functions."""
    return _set(positions(keys, bits, functions), np.zeros((len(keys.high), bits // 64), np.uint64))


def md5(texts: list[str]) -> UInt64s:
    """Take all bits of MD5."""
    digests = b"".join(hashlib.md5(text.encode(), usedforsecurity=False).digest() for text in texts)
    return np.frombuffer(digests, np.uint64).reshape(-1, 2)


def simhash(texts: pa.Array, bits: int = BITS) -> UInt64s:
    """Set the bits that more than half of a text's three-byte pieces have in their hashes (Charikar, 2002)."""
    return _simhash(*text_buffers(texts), bits)


def let_through(lake: Lake, rows: RowFilter, queries: list[LakeQuery], initial: Initial = Initial.POSTINGS) -> Passed:
    """Look at every pair of a key and a row of another table that has its initial value, as without table filters.

    Raises ValueError when the filter loses a pair that joins.
    """
    passed = Passed()
    for asked in queries:
        query = prepare(lake.index, lake.key_values(asked), initial)
        found = lake.index.postings(query.values)
        other = found.tables != asked.table
        counts = _let_through(
            found.values[other], found.rows[other], rows.classes[found.tables[other]], query.starts, query.keys,
            rows.of_keys(query.keys), rows.rows, lake.index.cells, lake.index.row_starts,
        )  # fmt: skip
        if counts[3]:
            raise ValueError(f"{lake.name}: a filter loses {counts[3]} pairs that join")
        joining, false_positives, filtered, _ = counts.tolist()
        passed.joining += joining
        passed.false_positives += false_positives
        passed.filtered += filtered
        if false_positives + filtered:
            passed.rates.append(percent(false_positives, filtered))
    return passed


def percent(false_positives: int, filtered: int) -> float:
    """Give the share of pairs that do not join which is let through."""
    return 100 * false_positives / max(1, false_positives + filtered)


@njit(cache=True)
def _set(bits: Int64s, hashes: UInt64s) -> UInt64s:
    for i in range(len(bits)):
        for bit in bits[i]:
            hashes[i, bit // 64] |= np.uint64(1) << np.uint64(bit % 64)
    return hashes


@njit(cache=True)
def _simhash(offsets: Int64s, data: NDArray[np.uint8], bits: int) -> UInt64s:
    out = np.zeros((len(offsets) - 1, bits // 64), np.uint64)
    for i in range(len(out)):
        votes = np.zeros(bits, np.int64)
        for at in range(offsets[i], max(offsets[i] + 1, offsets[i + 1] - 2)):
            piece = np.uint64(0)
            for byte in data[at : min(at + 3, offsets[i + 1])]:
                piece = piece * np.uint64(256) + np.uint64(byte) + np.uint64(1)
            for bit in range(bits):
                if bit % 64 == 0:
                    piece = (piece ^ (piece >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                    piece = (piece ^ (piece >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                    piece ^= piece >> np.uint64(31)
                votes[bit] += 1 if piece >> np.uint64(bit % 64) & np.uint64(1) else -1
        for bit in range(bits):
            if votes[bit] > 0:
                out[i, bit // 64] |= np.uint64(1) << np.uint64(bit % 64)
    return out


@njit(cache=True)
def _let_through(
    values: Int64s, rows: Int64s, classes: Int64s, starts: Int64s, keys: Int64s, of_keys: UInt64s, of_rows: UInt64s,
    cells: Int64s, row_starts: Int64s,
) -> Int64s:  # fmt: skip
    """Count pairs: joining, false positives, filtered out, lost."""
    counts = np.zeros(4, np.int64)
    for at in range(len(values)):
        row = rows[at]
        for key in range(starts[values[at]], starts[values[at] + 1]):
            joins = True
            for value in keys[key]:
                lacking = 0
                for other in keys[key]:
                    lacking += other == value
                for place in range(row_starts[row], row_starts[row + 1]):
                    lacking -= cells[place] == value
                joins = joins and lacking <= 0
            passes = True
            for word in range(of_rows.shape[1]):
                passes = passes and of_keys[classes[at], key, word] & ~of_rows[row, word] == 0
            counts[(0 if passes else 3) if joins else (1 if passes else 2)] += 1
    return counts

"""Own the sketch of a fixed size: the hashes of a column, each cut to as many bits as there is room for.

HyperLogLog++ (Heule et al. 2013, section 5.3) has hash prefixes of one length, and leaves them for registers. Here
the length follows from the room, and nothing is left: cut to m bits, with the rho behind them, they are registers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from service.core.compiled import kernel
from service.core.errors import SketchError
from service.core.records import Flags, Int64s, UInt64s
from service.core.sketches import cardinality, rice
from service.core.sketches.byte_format import Kind, Parameters, Reader, require, seal, unseal
from service.core.sketches.column import ColumnSketch
from service.core.sketches.hashing import HASH_BITS, MOST_BUCKET_BITS, UInt8s, check_bucket_bits
from service.core.sketches.hll import Hll, require_same

BUCKET_BITS = 14
BUDGET = (1 << BUCKET_BITS) * 6 // 8
"""What 2^14 registers of 6 bits take: the memory of the BML paper (section 5.1)."""

LEAST_BUDGET, MOST_BUDGET = 32, 1 << 24
PORTION = 1 << 15
"""Hashes are taken in by so many: the first of them leave fewer bits to the others."""

_HEAD = 5


def bucket_bits_in(budget: int) -> int:
    """Give the m that a sketch of so many bytes is made with: its registers would fill it with 6 bits each."""
    return min(max((budget * 8 // 6).bit_length() - 1, 0), MOST_BUCKET_BITS)


class Cells(NamedTuple):
    """Count cells of width 2^-b: `registers` int64[66 - b] by ρ, and of those with one bit the ones and the zeros."""

    registers: Int64s
    ones: int
    zeros: int


class HashPrefixes:
    """Hold hashes cut to their first `bits` b: `entries` uint64[n], ascending, one for each of 2^b cells that is met.

    Where the bits between m and b are all zero, the leading 1 behind them is kept as well, in the entry with the
    greatest ρ; so the registers of every m' up to m follow, and at b up to m nothing but registers is held. b is the
    largest for which the payload fits into `budget` bytes, whatever the order in which hashes came. With all 64 bits
    the sketch is the set. Nothing can be removed.
    """

    def __init__(self, m: int = BUCKET_BITS, budget: int = BUDGET) -> None:
        """Hold nothing yet."""
        self.m = check_bucket_bits(m)
        if not LEAST_BUDGET <= budget <= MOST_BUDGET:
            raise SketchError(f"a sketch of a fixed size has from {LEAST_BUDGET} to {MOST_BUDGET} bytes: {budget}")
        self.budget = budget
        self.bits = HASH_BITS
        self.entries: UInt64s = np.zeros(0, np.uint64)

    @staticmethod
    def of_column(column: ColumnSketch, budget: int = BUDGET) -> HashPrefixes:
        """Reduce a column's sketch: that of its values while it holds all hashes, else that of its registers."""
        sketch = HashPrefixes(column.m, budget)
        if column.hashes is None:
            sketch.bits = column.m
        sketch.update(entries_of(column.registers()) if column.hashes is None else column.hashes)
        return sketch

    @property
    def is_complete(self) -> bool:
        """Tell whether all hashes are held, with all bits."""
        return self.bits == HASH_BITS

    def update(self, hashes: UInt64s, weights: Int64s | None = None) -> None:
        """Take in hashes, in any order and any number of times: `weights` make no difference to a set."""
        for first in range(0, len(hashes), PORTION):
            self._take_in(hashes[first : first + PORTION])

    def remove(self, hashes: UInt64s) -> None:
        """Refuse: an entry does not know how many hashes it stands for."""
        raise SketchError("hash prefixes cannot be removed; a sketch with heaps can (ColumnSketch)")

    def merge(self, other: HashPrefixes) -> HashPrefixes:
        """Give the sketch of both sets together; SketchError when m or the budgets differ."""
        require_same("m and size", (self.m, self.budget), (other.m, other.budget))
        merged = HashPrefixes(self.m, self.budget)
        merged.bits, merged.entries = self.bits, self.entries
        merged._cut_to(min(self.bits, other.bits))
        merged._take_in(other.entries)
        return merged

    def _take_in(self, hashes: UInt64s) -> None:
        self.entries = np.sort(np.concatenate((self.entries, hashes)))
        self._cut_to(self.bits)
        while not self._fits():
            self._cut_to(self.bits - 1)

    def _cut_to(self, bits: int) -> None:
        self.bits = bits
        self.entries = cut(self.entries, self.m, bits)

    def registers(self, m: int | None = None) -> UInt8s:
        """Give the highest ρ of each of 2^m buckets, by default of as many as there are exactly: uint8[2^m]."""
        hll = Hll(min(self.m, self.bits) if m is None else m)
        if hll.m > min(self.m, self.bits):
            raise SketchError(f"a sketch cut to {self.bits} bits has no registers of m = {hll.m}")
        hll.update(self.entries)
        return hll.registers

    def cells(self) -> Cells:
        """Count what the cells hold."""
        return count_cells(self.entries, self.m, self.bits)

    @property
    def is_size_exact(self) -> bool:
        """Tell whether it is hardly possible that one entry stands for two values: the chance is below 1 %."""
        return 50 * len(self.entries) ** 2 < 1 << self.bits

    def estimate(self) -> float:
        """Estimate the number of distinct values by maximum likelihood, or count them while they are told apart."""
        return float(len(self.entries)) if self.is_size_exact else cardinality.maximum_likelihood(*self.cells())

    def bounds(self, level: float = 0.95) -> tuple[float, float]:
        """Give the interval of the likelihood ratio at this level."""
        n = float(len(self.entries))
        if self.is_complete or not n:
            return n, n
        low, high = cardinality.likelihood_bounds_of_cells(*self.cells(), level)
        return max(low, n), max(high, n)

    def to_bytes(self) -> bytes:
        """Give the sketch as bytes, the same for the same set."""
        gaps, rhos = self._numbers()
        head = bytes([self.bits]) + len(self.entries).to_bytes(_HEAD - 1, "little")
        payload = [head, rice.write(gaps), rice.write(rhos)]
        return seal(Kind.PREFIXES, Parameters(self.m, self.budget), payload)

    @staticmethod
    def from_bytes(data: bytes) -> HashPrefixes:
        """Read a sketch; SketchError says what is wrong with the bytes."""
        (m, budget, *_), payload = unseal(data, Kind.PREFIXES)
        sketch = HashPrefixes(m, budget)
        sketch._read(payload)
        payload.end()
        require(sketch._fits(), f"it has more than its {budget} bytes")
        return sketch

    def _fits(self) -> bool:
        """Tell whether the bits fit: they grow with every entry, as whole bytes do not quite, so no order matters."""
        gaps, rhos = self._numbers()
        return rice.bits_of(gaps) + rice.bits_of(rhos) <= 8 * (self.budget - _HEAD - 2 * rice.OVERHEAD)

    def _numbers(self) -> tuple[UInt64s, UInt64s]:
        """Give the numbers of cells that are empty before each entry's, and ρ less one where it is kept."""
        cells = _cells_of(self.entries, self.bits)
        gaps = cells.copy()
        gaps[1:] -= cells[:-1] + np.uint64(1)
        return gaps, rhos_of(self.entries, self.m, self.bits) - np.uint64(1)

    def _read(self, payload: Reader) -> None:
        self.bits = payload.number(1)
        require(self.bits <= HASH_BITS, f"it is cut to {self.bits} bits")
        gaps = rice.read(payload, payload.number(_HEAD - 1))
        # In plain integers, since a forged sum may need more than 64 bits.
        require(sum(gaps.tolist()) + len(gaps) <= 1 << self.bits, "an entry is beyond the last cell")
        ends: UInt64s = np.cumsum(gaps)
        cells: UInt64s = np.add(ends, np.arange(len(gaps), dtype=np.uint64))
        entries = np.left_shift(cells, np.uint64(HASH_BITS - self.bits)) if self.bits else cells
        keeps = _keeps_rho(entries, self.m, self.bits)
        rhos = rice.read(payload, int(keeps.sum())) + np.uint64(1)
        deepest = HASH_BITS + 1 - self.bits
        require(bool(np.all((rhos >= 1) & (rhos <= deepest))), f"a rho is above {deepest}")
        below = rhos < deepest
        at = np.flatnonzero(keeps)[below]
        entries[at] |= np.uint64(1) << (np.uint64(HASH_BITS - self.bits) - rhos[below])
        self.entries = entries


def cut(hashes: UInt64s, m: int, bits: int) -> UInt64s:
    """Cut ascending hashes, or entries of more bits, to entries of so many bits, one for each cell."""
    return _cut(hashes, m, bits)


def entries_of(registers: UInt8s) -> UInt64s:
    """Give 2^m registers as entries of m bits."""
    m = len(registers).bit_length() - 1
    buckets = np.flatnonzero(registers).astype(np.uint64)
    rhos = registers[registers > 0].astype(np.uint64)
    entries = buckets << np.uint64(HASH_BITS - m) if m else np.zeros_like(buckets)
    below = rhos <= HASH_BITS - m
    entries[below] |= np.uint64(1) << (np.uint64(HASH_BITS - m) - rhos[below])
    return entries


def count_cells(entries: UInt64s, m: int, bits: int) -> Cells:
    """Count what the cells hold that so many bits tell apart."""
    rhos = rhos_of(entries, m, bits)
    ones = len(entries) - len(rhos)
    registers = np.bincount(rhos.astype(np.int64), minlength=HASH_BITS + 2 - bits)
    registers[0] = (1 << min(m, bits)) - len(rhos)
    return Cells(registers.astype(np.int64), ones, (1 << bits) - int(registers.sum()) - ones)


def rhos_of(entries: UInt64s, m: int, bits: int) -> UInt64s:
    """Give the ρ, counted from behind the first `bits`, of the entries that have one: uint64, from 1."""
    kept = entries[_keeps_rho(entries, m, bits)]
    rest = kept << np.uint64(bits) if bits < HASH_BITS else np.zeros_like(kept)
    return _leading_zeros(rest, HASH_BITS - bits) + np.uint64(1)


def _keeps_rho(entries: UInt64s, m: int, bits: int) -> Flags:
    """Tell of each entry whether the bits between m and `bits` are all zero."""
    behind = np.uint64((1 << max(bits - m, 0)) - 1)
    flags: Flags = (_cells_of(entries, bits) & behind) == 0
    return flags


def _cells_of(entries: UInt64s, bits: int) -> UInt64s:
    return entries >> np.uint64(HASH_BITS - bits) if bits else np.zeros_like(entries)


@kernel
def _leading_zeros(values: UInt64s, most: int) -> UInt64s:
    counts = np.empty(len(values), np.uint64)
    for i in range(len(values)):
        value, zeros = values[i], 0
        while zeros < most and value < np.uint64(1 << 63):
            value <<= np.uint64(1)
            zeros += 1
        counts[i] = zeros
    return counts


@kernel
def _cut(hashes: UInt64s, m: int, bits: int) -> UInt64s:
    out = np.empty(len(hashes), np.uint64)
    n = 0
    last = np.uint64(0)
    for value in hashes:
        # Shifts by all 64 bits are not defined.
        cell = value >> np.uint64(HASH_BITS - bits) if bits else np.uint64(0)
        if n and cell == last:
            continue  # the first in a cell has the greatest rho
        entry = cell << np.uint64(HASH_BITS - bits) if bits else np.uint64(0)
        if entry << np.uint64(min(m, bits)) == np.uint64(0):
            rest = value ^ entry
            for shift in (1, 2, 4, 8, 16, 32):
                rest |= rest >> np.uint64(shift)
            entry |= rest ^ (rest >> np.uint64(1))
        out[n] = entry
        last = cell
        n += 1
    return out[:n].copy()

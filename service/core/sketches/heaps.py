"""Own the HyperLogLog sketch with heaps: it knows below its maxima, so that it can remove (BML 2018, section 4).

The paper's heap of counted ρ values is a row of counters for each bucket: the maximum is its highest one above 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.core.compiled import kernel
from service.core.errors import SketchError
from service.core.records import Int64s, UInt64s
from service.core.sketches.byte_format import Kind, Parameters, Reader, require, seal, unseal, write_plane
from service.core.sketches.hashing import UInt8s, bucket_of, check_bucket_bits, most_rho, rho_of
from service.core.sketches.hll import Hll, dropped_bits, require_same

Counts = NDArray[np.uint32] | NDArray[np.uint64]

_ONCE = np.ones(1, np.int64)


class HllHeaps:
    """Count the ρ values of each bucket: `counts` unsigned [levels, 2^m], level ρ - 1 for ρ.

    There are levels up to the highest ρ that was met. Counters are of 32 bits until one needs 64. It counts what it is
    fed, values or occurrences: the maxima are the same.
    """

    def __init__(self, m: int, counts: Counts | None = None) -> None:
        self.m = check_bucket_bits(m)
        self.counts: Counts = np.zeros((0, 1 << m), np.uint32) if counts is None else counts
        self.size = exact_sum(self.counts)
        """The sum of all counts."""

    def copy(self) -> HllHeaps:
        """Give a sketch of its own."""
        return HllHeaps(self.m, self.counts.copy())

    def update(self, hashes: UInt64s, weights: Int64s | None = None) -> None:
        """Take in hashes, each once or `weights` (above 0) times; SketchError when a count would pass 64 bits."""
        weights = check_weights(hashes, weights)
        done = self._add(hashes, weights)
        if done < len(hashes):
            _subtract(self.counts, hashes[:done], weights, self.m)
            raise SketchError(f"the count of hash {hashes[done]:016x} is at its limit of 64 bits")
        self.size += _total(hashes, weights)

    def remove(self, hashes: UInt64s, weights: Int64s | None = None) -> None:
        """Take out hashes, each once or `weights` times.

        SketchError, and nothing is changed, when its counter says that one was not there. (A counter stands for all
        hashes of its bucket and ρ, so not every such remove can be noticed.)
        """
        weights = check_weights(hashes, weights)
        done = _subtract(self.counts, hashes, weights, self.m)
        if done < len(hashes):
            self._add(hashes[:done], weights)
            raise never_inserted(int(hashes[done]))
        self.size -= _total(hashes, weights)

    def apply(self, hashes: UInt64s, differences: Int64s) -> None:
        """Take in what has a difference above 0 and take out what has one below, as one change or not at all."""
        enters, leaves = differences > 0, differences < 0
        self.update(hashes[enters], differences[enters])
        try:
            self.remove(hashes[leaves], -differences[leaves])
        except SketchError:
            self.remove(hashes[enters], differences[enters])
            raise

    def merge(self, other: HllHeaps) -> HllHeaps:
        """Give the sketch that counts both; SketchError when their numbers of buckets differ."""
        require_same("m", self.m, other.m)
        counts = np.zeros((max(len(self.counts), len(other.counts)), 1 << self.m), np.uint64)
        for part in (self.counts, other.counts):
            add_counts(counts[: len(part)], part)
        return HllHeaps(self.m, _narrow(counts))

    @property
    def registers(self) -> UInt8s:
        """Give the highest ρ of each bucket, 0 for an empty one: uint8[2^m]."""
        registers = np.zeros(1 << self.m, np.uint8)
        for level, counts in enumerate(self.counts, 1):
            registers[counts > 0] = level
        return registers

    def hll(self) -> Hll:
        """Give the sketch without heaps."""
        return Hll(self.m, self.registers)

    def fold(self, m: int) -> HllHeaps:
        """Give the sketch of the same counts with fewer buckets; the counters add up as in `Hll.fold`."""
        dropped = dropped_bits(self.m, m)
        if self.size >= 1 << 64:
            raise SketchError("counts of more than 64 bits together do not fold")
        folded = np.zeros((dropped + len(self.counts), 1 << m), np.uint64)
        groups = self.counts.sum(axis=0, dtype=np.uint64).reshape(1 << m, 1 << dropped)
        for rho in range(1, dropped + 1):
            folded[rho - 1] = groups[:, 1 << (dropped - rho) : 2 << (dropped - rho)].sum(axis=1)
        folded[dropped:] = self.counts[:, :: 1 << dropped]
        return HllHeaps(m, _narrow(folded))

    def estimate(self) -> float:
        """Estimate the number of distinct values from the maxima."""
        return self.hll().estimate()

    def bounds(self, level: float = 0.95) -> tuple[float, float]:
        """Give the interval of `Hll.bounds`."""
        return self.hll().bounds(level)

    def to_bytes(self) -> bytes:
        """Give the sketch as bytes, the same for the same counts."""
        return seal(Kind.HEAPS, Parameters(self.m), [self.payload()])

    @staticmethod
    def from_bytes(data: bytes) -> HllHeaps:
        """Read a sketch; SketchError says what is wrong with the bytes."""
        (m, *_), payload = unseal(data, Kind.HEAPS)
        heaps = HllHeaps.read(m, payload)
        payload.end()
        return heaps

    def payload(self) -> bytes:
        """Write the number of levels and each level as a plane."""
        levels = len(self.counts)
        while levels and not self.counts[levels - 1].any():
            levels -= 1
        return bytes([levels]) + b"".join(
            write_plane(level.astype(np.uint64), self.m) for level in self.counts[:levels]
        )

    @staticmethod
    def read(m: int, payload: Reader) -> HllHeaps:
        """Read what `payload` wrote."""
        levels = payload.number(1)
        require(levels <= most_rho(m), f"it has {levels} levels")
        counts = np.zeros((levels, 1 << m), np.uint64)
        for level in counts:
            level[:] = payload.plane(m)
        return HllHeaps(m, _narrow(counts))

    def _add(self, hashes: UInt64s, weights: Int64s) -> int:
        """Add from the first on, with room made where it is missing; return how many there was room for."""
        done = 0
        while True:
            most = np.uint64(np.iinfo(self.counts.dtype).max)
            done = _add(self.counts, hashes, weights, done, self.m, most)
            if done == len(hashes):
                return done
            rho = rho_of(hashes[done], self.m)
            if rho > len(self.counts):
                more = np.zeros((rho - len(self.counts), 1 << self.m), self.counts.dtype)
                self.counts = np.concatenate((self.counts, more))
            elif self.counts.dtype == np.uint32:
                self.counts = self.counts.astype(np.uint64)
            else:
                return done


def check_weights(hashes: UInt64s, weights: Int64s | None) -> Int64s:
    """Give a weight for each hash, or one for all of them (1); SketchError for one below 1."""
    if weights is None or len(hashes) == 0:
        return _ONCE
    if len(weights) != len(hashes):
        raise SketchError(f"{len(hashes)} hashes have {len(weights)} weights")
    if weights.min() < 1:
        raise SketchError(f"hash {hashes[weights.argmin()]:016x} has a weight of {weights.min()}")
    return weights


def exact_sum(numbers: Counts | Int64s) -> int:
    """Add up numbers that are not negative: in halves of 32 bits, since the sum may need more than 64."""
    if numbers.itemsize < 8:
        return int(numbers.sum(dtype=np.uint64))
    high, low = numbers >> 32, numbers & 0xFFFFFFFF
    return (int(high.sum(dtype=np.uint64)) << 32) + int(low.sum(dtype=np.uint64))


def never_inserted(value: int) -> SketchError:
    """Say that something was removed that is not there."""
    return SketchError(f"hash {value:016x} is removed more often than it was inserted; the sketch is left as it was")


def _total(hashes: UInt64s, weights: Int64s) -> int:
    return len(hashes) if weights is _ONCE else exact_sum(weights)


def _narrow(counts: NDArray[np.uint64]) -> Counts:
    return counts.astype(np.uint32) if counts.size == 0 or counts.max() <= np.iinfo(np.uint32).max else counts


def add_counts(counts: NDArray[np.uint64], others: Counts) -> None:
    """Add `others` to `counts` (same shape) in place; raise SketchError when one would need more than 64 bits."""
    counts += others
    if (counts < others).any():
        raise SketchError("a merged count would be beyond its limit of 64 bits")


@kernel
def _add(counts: Counts, hashes: UInt64s, weights: Int64s, first: int, m: int, most: np.uint64) -> int:
    """Add from place `first` on; return the place that has no level or no room, else the number of hashes."""
    for i in range(first, len(hashes)):
        bucket, level = bucket_of(hashes[i], m), rho_of(hashes[i], m) - 1
        weight = np.uint64(weights[i] if len(weights) > 1 else weights[0])
        if level >= len(counts) or np.uint64(counts[level, bucket]) > most - weight or weight > most:
            return i
        counts[level, bucket] += weight
    return len(hashes)


@kernel
def _subtract(counts: Counts, hashes: UInt64s, weights: Int64s, m: int) -> int:
    """Subtract; return the first place whose counter is too small, else the number of hashes."""
    for i in range(len(hashes)):
        bucket, level = bucket_of(hashes[i], m), rho_of(hashes[i], m) - 1
        weight = np.uint64(weights[i] if len(weights) > 1 else weights[0])
        if level >= len(counts) or np.uint64(counts[level, bucket]) < weight:
            return i
        counts[level, bucket] -= weight
    return len(hashes)

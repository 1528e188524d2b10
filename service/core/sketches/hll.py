"""Own the HyperLogLog sketch: for each bucket the highest ρ (BML 2018, Definition 2 and Algorithm 3)."""

from __future__ import annotations

import numpy as np

from service.core.compiled import kernel
from service.core.errors import SketchError
from service.core.records import UInt64s
from service.core.sketches import cardinality
from service.core.sketches.byte_format import Kind, Parameters, require, seal, unseal, write_plane
from service.core.sketches.hashing import UInt8s, bucket_of, check_bucket_bits, most_rho, rho_of


class Hll:
    """Hold 2^m registers: `registers` uint8[2^m], 0 for an empty bucket. Nothing can be removed."""

    def __init__(self, m: int, registers: UInt8s | None = None) -> None:
        self.m = check_bucket_bits(m)
        self.registers = np.zeros(1 << m, np.uint8) if registers is None else registers

    def update(self, hashes: UInt64s) -> None:
        """Take in hashes, in any order and any number of times."""
        _raise_registers(self.registers, hashes, self.m)

    def remove(self, hashes: UInt64s) -> None:
        """Refuse: a register does not know what was below its maximum (BML 2018, section 4)."""
        raise SketchError("a HyperLogLog sketch cannot remove; one with heaps can (HllHeaps)")

    def merge(self, other: Hll) -> Hll:
        """Give the sketch of both sets together; SketchError when their numbers of buckets differ."""
        require_same("m", self.m, other.m)
        return Hll(self.m, np.maximum(self.registers, other.registers))

    def fold(self, m: int) -> Hll:
        """Give the sketch of the same set with fewer buckets.

        Of the d bits that a bucket number loses, a 1 makes the position of the leftmost the new ρ; where there is
        none, ρ is d more than before.
        """
        dropped = dropped_bits(self.m, m)
        groups = self.registers.reshape(1 << m, 1 << dropped)
        registers = np.where(groups[:, 0] > 0, groups[:, 0] + np.uint8(dropped), np.uint8(0))
        for rho in range(dropped, 0, -1):
            is_seen = (groups[:, 1 << (dropped - rho) : 2 << (dropped - rho)] > 0).any(axis=1)
            registers[is_seen & (registers == 0)] = rho
        return Hll(m, registers)

    def estimate(self) -> float:
        """Estimate the number of distinct values by maximum likelihood (Ertl 2017)."""
        return cardinality.maximum_likelihood(cardinality.histogram(self.registers, self.m))

    def bounds(self, level: float = 0.95) -> tuple[float, float]:
        """Give the interval of the likelihood ratio at this level."""
        return cardinality.likelihood_bounds(cardinality.histogram(self.registers, self.m), level)

    def to_bytes(self) -> bytes:
        """Give the sketch as bytes, the same for the same set."""
        return seal(Kind.HLL, Parameters(self.m), [write_plane(self.registers.astype(np.uint64), self.m)])

    @staticmethod
    def from_bytes(data: bytes) -> Hll:
        """Read a sketch; SketchError says what is wrong with the bytes."""
        (m, *_), payload = unseal(data, Kind.HLL)
        registers = payload.plane(m)
        payload.end()
        require(int(registers.max()) <= most_rho(m), f"a register is above {most_rho(m)}")
        return Hll(m, registers.astype(np.uint8))


def require_same(what: str, ours: object, others: object) -> None:
    """Refuse to merge sketches that were made differently."""
    if ours != others:
        raise SketchError(f"sketches of different {what} cannot be merged: {ours} and {others}")


def dropped_bits(m: int, smaller: int) -> int:
    """Tell how many bits a fold drops; SketchError when there would be more buckets than before."""
    if check_bucket_bits(smaller) > m:
        raise SketchError(f"a sketch of m = {m} folds to a smaller m only, not to {smaller}")
    return m - smaller


@kernel
def _raise_registers(registers: UInt8s, hashes: UInt64s, m: int) -> None:
    for value in hashes:
        bucket, rho = bucket_of(value, m), rho_of(value, m)
        registers[bucket] = max(registers[bucket], rho)

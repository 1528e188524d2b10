"""Own what is counted in two rows of registers together."""

from __future__ import annotations

import numpy as np

from service.core.compiled import kernel
from service.core.estimators.model import Column
from service.core.records import Int64s
from service.core.sketches.hashing import HASH_BITS, UInt8s
from service.core.sketches.hll import Hll

LEVELS = HASH_BITS + 2
"""Registers are from 0 (an empty bucket) to 65 (m = 0, all bits of the hash zero)."""

SAME, X_ABOVE, Y_ABOVE = 0, 1, 2
"""Rows of a pair's histogram: buckets where the registers are equal, where X's is the greater, where Y's is."""


@kernel
def chance_at(k: int, top: int) -> float:
    """Give the chance that a value in the bucket of a register makes it k: above `top` for a bucket of one bit."""
    return 1.0 if k > top else 0.5 ** min(k, top - 1)  # type: ignore[no-any-return]


def fold(registers: UInt8s, m: int) -> UInt8s:
    """Give the registers that 2^m buckets would have: uint8[2^m]."""
    return Hll(len(registers).bit_length() - 1, registers).fold(m).registers


def align(x: Column, y: Column) -> tuple[UInt8s, UInt8s]:
    """Give the registers of both columns with the same number of buckets."""
    m = min(x.bucket_bits, y.bucket_bits)
    return fold(x.registers, m), fold(y.registers, m)


@kernel
def count_greater(x: UInt8s, y: UInt8s) -> Int64s:
    """Count the buckets by the greater register, apart by which is the greater: int64[3, LEVELS].

    With known sizes the joint likelihood depends on these counts alone. Neighbours are counted in tables of their
    own, so that a count does not wait for the one before.
    """
    tables = np.zeros((4, 4 * 128), np.int32)
    for i in range(0, len(x) - 3, 4):
        for lane in range(4):
            u, v = x[i + lane], y[i + lane]
            tables[lane, (np.int64(u > v) + 2 * np.int64(v > u)) * 128 + max(u, v)] += 1
    for i in range(len(x) & ~3, len(x)):
        u, v = x[i], y[i]
        tables[0, (np.int64(u > v) + 2 * np.int64(v > u)) * 128 + max(u, v)] += 1
    counts = np.zeros((3, LEVELS), np.int64)
    for lane in range(4):
        for order in range(3):
            for k in range(LEVELS):
                counts[order, k] += tables[lane, order * 128 + k]
    return counts

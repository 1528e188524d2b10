"""Own what an estimator takes and gives: a column as arrays, and the estimate of an inclusion coefficient."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.records import UInt64s
from service.core.sketches.hashing import UInt8s

Float64s = NDArray[np.float64]


class Prefixes(NamedTuple):
    """Hold hashes cut to `bits` as `HashPrefixes` holds them: `entries` uint64[n], ascending, one for each cell met.

    The m of the entries that keep their ρ is that of the column's registers.
    """

    entries: UInt64s
    bits: int


class Column(NamedTuple):
    """Hold what is known of a column.

    `registers` is uint8[2^m], Definition 2 of the BML paper, 0 for an empty bucket. `size` is the number of distinct
    values, exact or estimated. `hashes` are those of all values, ascending, or None when they are too many to be held;
    `bottom` are the smallest ones, ascending, or None. `prefixes` tell all that the registers tell, and more.
    """

    registers: UInt8s
    size: float
    is_size_exact: bool = True
    hashes: UInt64s | None = None
    bottom: UInt64s | None = None
    prefixes: Prefixes | None = None

    @property
    def bucket_bits(self) -> int:
        """Give m."""
        return len(self.registers).bit_length() - 1


def held_of(column: Column) -> UInt64s:
    """Give the smallest hashes that are known of a column: all, some, or none."""
    if column.hashes is not None:
        return column.hashes
    return np.zeros(0, np.uint64) if column.bottom is None else column.bottom


class Estimate(NamedTuple):
    """Give Φ(X, Y) with an interval that holds it with probability `level`, and the method that found it.

    `phi` is None, with the `reason`, where Φ is not defined: X has no values.
    """

    phi: float | None
    low: float
    high: float
    method: str
    level: float
    reason: str | None = None

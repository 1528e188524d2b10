"""Own what a sketch reads of a value's hash: its bucket and its ρ (BML 2018, Definition 2).

The hash of a value is the first 64 bits of its value key: of SHA-256 over its canonical text, big-endian. It is there
already (`Keys.high`), so nothing is hashed twice, and anyone can compute it elsewhere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.core.compiled import kernel
from service.core.errors import SketchError

HASH_NAME = "sha256-64"
SEED = 0
HASH_BITS = 64
MOST_BUCKET_BITS = 18

UInt8s = NDArray[np.uint8]

_LEFTMOST = np.uint64(1 << 63)


def check_bucket_bits(m: int) -> int:
    """Give m back; SketchError when it is not from 0 to MOST_BUCKET_BITS."""
    if not 0 <= m <= MOST_BUCKET_BITS:
        raise SketchError(f"a sketch has 2^m buckets with m from 0 to {MOST_BUCKET_BITS}, not m = {m}")
    return m


def most_rho(m: int) -> int:
    """Tell the ρ of a hash whose bits behind the first m are all zero: the highest."""
    return HASH_BITS - m + 1


@kernel
def bucket_of(value: np.uint64, m: int) -> np.int64:
    """Give the bucket of one hash, its leftmost m bits, inside kernels."""
    # A shift by all 64 bits is not defined.
    return np.int64(value >> np.uint64(64 - m)) if m else np.int64(0)


@kernel
def rho_of(value: np.uint64, m: int) -> int:
    """Give the ρ of one hash, inside kernels: the position, from 1, of the leftmost 1 behind its bucket."""
    rest = value << np.uint64(m)
    if rest == np.uint64(0):
        return 65 - m
    rho = 1
    while rest < _LEFTMOST:
        rest <<= np.uint64(1)
        rho += 1
    return rho

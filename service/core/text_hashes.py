"""Own hashes of 64 bits that compare cells and tuples within one search: much faster than keys, and never stored.

Words of 8 bytes are taken in one after the other, by steps like those of splitmix64 (Steele et al. 2014). A step maps
no two values to one, so two texts of one length up to 8 bytes never meet, and others with a chance of 2^-64, unless
somebody makes them to.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numba import vectorize

from service.core.canonical_arrow import text_buffers
from service.core.compiled import kernel
from service.core.records import Int64s, UInt64s
from service.core.sketches.hashing import UInt8s


@vectorize(cache=True)  # type: ignore[untyped-decorator,no-untyped-call]
def mixed(found: Any, value: Any) -> Any:
    """Take one more value in, element by element: what is equal stays equal, and the order of values counts."""
    found = (found ^ value) * np.uint64(0x9E3779B97F4A7C15)
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return found ^ (found >> np.uint64(27))


def text_hashes(texts: pa.Array) -> UInt64s:
    """Give the hash of each text of a string or large_string array: uint64[n]; that of a null means nothing."""
    hashes: UInt64s = _hashes(*text_buffers(texts))
    return hashes


@kernel
def _hashes(offsets: Int64s, data: UInt8s) -> UInt64s:
    out = np.empty(len(offsets) - 1, np.uint64)
    for i in range(len(out)):
        place, end = np.uint64(offsets[i]), np.uint64(offsets[i + 1])
        found = mixed(np.uint64(0), end - place)
        while place < end:
            held = min(end - place, np.uint64(8))
            word = np.uint64(0)
            for k in range(held):
                word |= np.uint64(data[place + np.uint64(k)]) << (np.uint64(8) * np.uint64(k))
            found = mixed(found, word)
            place += held
        out[i] = found
    return out

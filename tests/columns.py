"""Own columns of random hashes with a known overlap, as the estimators take them."""

from __future__ import annotations

import numpy as np

from service.core.estimators import Column
from service.core.records import UInt64s
from service.core.sketches.hll import Hll


def column_of(hashes: UInt64s, m: int, k: int = 0) -> Column:
    """Give what sketches with 2^m registers and the k smallest hashes hold of a set of hashes."""
    sketch = Hll(m)
    sketch.update(hashes)
    ascending = np.sort(hashes)
    is_complete = len(hashes) <= k
    return Column(sketch.registers, len(hashes), True, ascending if is_complete else None, ascending[:k] if k else None)


def draw_pair(seed: int, nx: int, ny: int, common: int, m: int, k: int = 0) -> tuple[Column, Column]:
    """Draw X and Y with `common` values in both."""
    hashes = np.random.default_rng(seed).integers(0, 2**64, nx + ny - common, np.uint64)
    return column_of(hashes[:nx], m, k), column_of(hashes[nx - common :], m, k)

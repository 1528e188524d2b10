"""Own the bottom-k sketch: the smallest hashes, with spares so that some may be removed; its merge is the KMV union.

Beyer et al. 2007, "On synopses for distinct-value estimation under multiset operations" (KMV, section 4); Zhang et al.
2010 use it for inclusion coefficients. While it holds all hashes it is also the sparse form of a small column.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from service.core.compiled import kernel
from service.core.errors import SketchError
from service.core.records import Int64s, UInt64s
from service.core.sketches.byte_format import Kind, Parameters, Reader, pack, require, seal, unseal
from service.core.sketches.hashing import HASH_BITS
from service.core.sketches.heaps import check_weights, exact_sum, never_inserted
from service.core.sketches.hll import require_same

MOST_HELD = 1 << 24
"""The most that k and spares together may be."""

PORTION = 1 << 15
"""Hashes are taken in by so many: the first of them lower the bound, so that most others need not be sorted."""

_MOST_COUNT = np.int64(np.iinfo(np.int64).max)
_NOT_THERE, _NO_ROOM = 1, 2


class BottomK:
    """Hold the k + spares smallest hashes: `hashes` uint64[n], ascending, and how often each came: `counts` int64[n].

    `bound`: every hash below it that was taken in and not out is held; None when that goes for all hashes. What is at
    or above the bound is not held, neither entering nor leaving. Removing lowers n, and only a rescan raises it again.
    """

    def __init__(self, k: int, spares: int) -> None:
        """Hold nothing yet."""
        if k < 1 or spares < 0 or k + spares > MOST_HELD:
            raise SketchError(
                f"a bottom-k sketch has k from 1 and spares from 0, together up to {MOST_HELD}: {k}, {spares}"
            )
        self.k = k
        self.spares = spares
        self.hashes: UInt64s = np.zeros(0, np.uint64)
        self.counts: Int64s = np.zeros(0, np.int64)
        self.bound: int | None = None

    def copy(self) -> BottomK:
        """Give a sketch of its own (arrays are never changed in place, so they are shared)."""
        twin = BottomK(self.k, self.spares)
        twin.hashes, twin.counts, twin.bound = self.hashes, self.counts, self.bound
        return twin

    @property
    def is_complete(self) -> bool:
        """Tell whether all hashes are held."""
        return self.bound is None

    @property
    def size(self) -> int:
        """Give the sum of the counts of what is held."""
        return exact_sum(self.counts)

    @property
    def spares_left(self) -> int:
        """Tell how many of those that are held may be removed before fewer than k are left."""
        return self.spares if self.is_complete else max(len(self.hashes) - self.k, 0)

    @property
    def needs_rescan(self) -> bool:
        """Tell whether fewer than k are held, though there are more."""
        return not self.is_complete and len(self.hashes) < self.k

    def update(self, hashes: UInt64s, weights: Int64s | None = None) -> None:
        """Take in hashes, each once or `weights` (above 0) times; SketchError when a count would pass 63 bits."""
        weights = check_weights(hashes, weights)
        updated = self.copy()
        for first in range(0, len(hashes), PORTION):
            portion = slice(first, first + PORTION)
            updated._change(hashes[portion], weights[portion] if len(weights) > 1 else weights)
        self.hashes, self.counts, self.bound = updated.hashes, updated.counts, updated.bound

    def remove(self, hashes: UInt64s, weights: Int64s | None = None) -> None:
        """Take out hashes; SketchError, and nothing is changed, when one below the bound was not there."""
        self._change(hashes, -check_weights(hashes, weights))

    def apply(self, hashes: UInt64s, differences: Int64s) -> None:
        """Take in what has a difference above 0 and take out what has one below, as one change or not at all."""
        if len(hashes) != len(differences):
            raise SketchError(f"{len(hashes)} hashes have {len(differences)} differences")
        self._change(hashes, differences)

    def _change(self, hashes: UInt64s, differences: Int64s) -> None:
        """Apply differences: one for each hash, or one for all."""
        if self.bound is not None:
            is_below = hashes < np.uint64(self.bound)
            differences = differences[is_below] if len(differences) == len(hashes) else differences
            hashes = hashes[is_below]
        if len(differences) < len(hashes):
            differences = np.full(len(hashes), differences[0])
        if np.any(hashes[1:] < hashes[:-1]):
            order = np.argsort(hashes, kind="stable")
            hashes, differences = hashes[order], differences[order]
        held, counts, trouble, place = _merge(self.hashes, self.counts, hashes, differences, self.k + self.spares + 1)
        if trouble == _NOT_THERE:
            raise never_inserted(int(hashes[place]))
        if trouble == _NO_ROOM:
            raise SketchError(f"the count of hash {hashes[place]:016x} is at its limit of 63 bits")
        if len(held) > self.k + self.spares:
            self.bound = int(held[-1])
            held, counts = held[:-1], counts[:-1]
        self.hashes, self.counts = held, counts

    def merge(self, other: BottomK) -> BottomK:
        """Give the sketch of both sets together, counts added up; SketchError when k or spares differ."""
        require_same("k and spares", (self.k, self.spares), (other.k, other.spares))
        merged = self.copy()
        merged.cut(other.bound)
        merged.apply(other.hashes, other.counts)
        return merged

    def cut(self, bound: int | None) -> None:
        """Let go of hashes at or above a bound."""
        if bound is not None and (self.bound is None or bound < self.bound):
            held = int(np.searchsorted(self.hashes, np.uint64(bound)))
            self.hashes, self.counts, self.bound = self.hashes[:held], self.counts[:held], bound

    def agrees_with(self, other: BottomK) -> bool:
        """Tell whether both hold the same below both bounds: sketches of one set do, whatever came and went."""
        mine, others = self.copy(), other.copy()
        mine.cut(other.bound)
        others.cut(self.bound)
        return np.array_equal(mine.hashes, others.hashes) and np.array_equal(mine.counts, others.counts)

    def estimate(self) -> float:
        """Give the number of distinct hashes: exact when all are held, else unbiased.

        The bound of a sketch that nothing was removed from is its (n + 1)-th smallest hash U, as a share of all; then
        n / U is the (k - 1) / U_k of Beyer et al., section 4.1, with k = n + 1.
        """
        return float(len(self.hashes)) if self.bound is None else len(self.hashes) / (self.bound / 2.0**HASH_BITS)

    def bounds(self, level: float = 0.95) -> tuple[float, float]:
        """Give an interval of at least this level for the number of distinct hashes.

        The number below the bound is Poisson, so far as shares are small: Garwood's interval, with the quantiles of
        the gamma distribution by Wilson and Hilferty.
        """
        held = len(self.hashes)
        if self.bound is None:
            return float(held), float(held)
        share = self.bound / 2.0**HASH_BITS
        z = -NormalDist().inv_cdf((1 - level) / 2)
        low = _gamma_quantile(held, -z) if held else 0.0
        return max(low / share, held), _gamma_quantile(held + 1, z) / share

    def to_bytes(self) -> bytes:
        """Give the sketch as bytes, the same for the same set when nothing was removed."""
        return seal(Kind.BOTTOM_K, Parameters(k=self.k, spares=self.spares), [self.payload()])

    @staticmethod
    def from_bytes(data: bytes) -> BottomK:
        """Read a sketch; SketchError says what is wrong with the bytes."""
        (_, k, spares, _), payload = unseal(data, Kind.BOTTOM_K)
        sketch = BottomK.read(k, spares, payload)
        payload.end()
        return sketch

    def payload(self) -> bytes:
        """Write bound (0 for none), number of hashes, hashes, and counts less one, packed: ones take no room."""
        above = (self.counts - 1).astype(np.uint64)
        numbers = (self.bound or 0).to_bytes(8, "little") + len(self.hashes).to_bytes(4, "little")
        return numbers + self.hashes.astype("<u8").tobytes() + pack(above)

    @staticmethod
    def read(k: int, spares: int, payload: Reader) -> BottomK:
        """Read what `payload` wrote."""
        sketch = BottomK(k, spares)
        sketch.bound = payload.number(8) or None
        held = payload.number(4)
        require(held <= k + spares, f"it holds {held} hashes of at most {k + spares}")
        sketch.hashes = payload.hashes(held)
        above = payload.packed(held)
        require(not held or sketch.bound is None or int(sketch.hashes[-1]) < sketch.bound, "a hash is beyond the bound")
        require(bool(np.all(above < np.uint64(_MOST_COUNT))), "a count is beyond 63 bits")
        sketch.counts = above.astype(np.int64) + 1
        return sketch


def _gamma_quantile(shape: float, z: float) -> float:
    return float(shape * (1 - 1 / (9 * shape) + z / (3 * shape**0.5)) ** 3)


@kernel
def _merge(
    hashes: UInt64s, counts: Int64s, others: UInt64s, differences: Int64s, most: int
) -> tuple[UInt64s, Int64s, int, int]:
    """Add differences to counts, both by ascending hash; `others` may repeat hashes.

    Return the first `most` hashes whose count is above 0, their counts, and what is in the way at which place.
    """
    size = min(len(hashes) + len(others), most)
    held, kept = np.empty(size, np.uint64), np.empty(size, np.int64)
    i = j = n = 0
    while i < len(hashes) or j < len(others):
        if j == len(others) or (i < len(hashes) and hashes[i] <= others[j]):
            value, count = hashes[i], counts[i]
            i += 1
        else:
            value, count = others[j], np.int64(0)
        while j < len(others) and others[j] == value:
            difference = differences[j]
            if difference > 0 and count > _MOST_COUNT - difference:
                return held[:0], kept[:0], _NO_ROOM, j
            if difference < 0 and count < -_MOST_COUNT - difference:
                return held[:0], kept[:0], _NOT_THERE, j
            count += difference
            j += 1
        if count < 0:
            return held[:0], kept[:0], _NOT_THERE, j - 1
        if count > 0 and n < most:
            held[n], kept[n] = value, count
            n += 1
    return held[:n], kept[:n], 0, 0

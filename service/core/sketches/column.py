"""Own the sketch that is stored for a column: a bottom-k sketch, and HyperLogLog with heaps once it is large."""

from __future__ import annotations

import numpy as np

from service.core.errors import SketchError
from service.core.records import Int64s, UInt64s
from service.core.sketches.bottom_k import BottomK
from service.core.sketches.byte_format import Kind, Parameters, require, seal, unseal
from service.core.sketches.hashing import UInt8s, check_bucket_bits
from service.core.sketches.heaps import HllHeaps, check_weights
from service.core.sketches.hll import Hll, require_same

BUCKET_BITS = 13
K = 1536
SPARES = 512

_COUNTS_VALUES, _IS_DENSE = 1, 2


class ColumnSketch:
    """Hold `bottom`, and `heaps` only while `bottom` does not hold all hashes.

    A small column is sparse: its sketch is its hashes (HyperLogLog++ has it so), and pairs of such columns are exact.
    When `bottom` overflows, the heaps are built from it first, so nothing is lost.

    `counts_values` tells what it is fed: +1 when a value appears in the column and -1 when it goes (then `size` is the
    exact number of distinct values), or occurrences (then `size` is theirs).
    """

    def __init__(self, m: int = BUCKET_BITS, k: int = K, spares: int = SPARES, *, counts_values: bool = True) -> None:
        self.m = check_bucket_bits(m)
        self.bottom = BottomK(k, spares)
        self.heaps: HllHeaps | None = None
        self.counts_values = counts_values

    @property
    def size(self) -> int:
        """Give the sum of all counts."""
        return self.bottom.size if self.heaps is None else self.heaps.size

    @property
    def hashes(self) -> UInt64s | None:
        """Give all hashes, ascending; None when there are too many."""
        return self.bottom.hashes if self.heaps is None else None

    @property
    def needs_rescan(self) -> bool:
        """Tell whether fewer than k hashes are held though there are more: build the sketch anew from the column.

        That goes for every dense column that came to fit into k.
        """
        return self.bottom.needs_rescan

    def registers(self, m: int | None = None) -> UInt8s:
        """Give the highest ρ of each of 2^m buckets: uint8[2^m]. A dense sketch has those of its own m and smaller."""
        m = self.m if m is None else m
        if self.heaps is not None:
            return self.heaps.hll().fold(m).registers
        hll = Hll(m)
        hll.update(self.bottom.hashes)
        return hll.registers

    def dense(self) -> HllHeaps:
        """Give the heaps of everything, also of a sparse column: a copy, the same whatever came and went."""
        if self.heaps is not None:
            return self.heaps.copy()
        heaps = HllHeaps(self.m)
        heaps.update(self.bottom.hashes, self.bottom.counts)
        return heaps

    def update(self, hashes: UInt64s, weights: Int64s | None = None) -> None:
        """Take in hashes, each once or `weights` (above 0) times; SketchError when a count would pass its limit."""
        bottom = self.bottom.copy()
        bottom.update(hashes, weights)
        heaps = self._heaps_beside(bottom)
        if heaps is not None:
            heaps.update(hashes, weights)
        self.bottom, self.heaps = bottom, heaps

    def remove(self, hashes: UInt64s, weights: Int64s | None = None) -> None:
        """Take out hashes; SketchError, and nothing is changed, when one was not there, so far as that is known.

        It is always known of a sparse column and of a hash below the bound, of others where their counter is 0.
        """
        weights = check_weights(hashes, weights)
        self.apply(hashes, -weights if len(weights) == len(hashes) else np.full(len(hashes), -1, np.int64))

    def apply(self, hashes: UInt64s, differences: Int64s) -> None:
        """Take in what has a difference above 0 and take out what has one below, as one change or not at all."""
        bottom = self.bottom.copy()
        bottom.apply(hashes, differences)
        heaps = self._heaps_beside(bottom)
        if heaps is not None:
            heaps.apply(hashes, differences)
            if heaps.size < bottom.size:
                heaps.apply(hashes, -differences)
                raise SketchError(
                    "more hashes are removed than the sketch counts above its bound; it is left as it was"
                )
            if heaps.size == bottom.size:
                bottom.bound, heaps = None, None
        self.bottom, self.heaps = bottom, heaps

    def _heaps_beside(self, bottom: BottomK) -> HllHeaps | None:
        """Give the heaps to change, made of what was held when `bottom` overflows."""
        return self.heaps if self.heaps is not None or bottom.is_complete else self.dense()

    def merge(self, other: ColumnSketch, *, are_disjoint: bool = False) -> ColumnSketch:
        """Give the sketch of both together, counts added up; SketchError when m, k or spares differ.

        The sketches of two columns count a value twice that is in both, so the merged sketch counts occurrences;
        unless they `are_disjoint`, as sketches of one column over different ranges of keys are.
        """
        require_same("m", self.m, other.m)
        bottom = self.bottom.merge(other.bottom)
        merged = ColumnSketch(
            self.m, bottom.k, bottom.spares, counts_values=self.counts_values and other.counts_values and are_disjoint
        )
        merged.bottom = bottom
        if not bottom.is_complete:
            merged.heaps = self.dense().merge(other.dense())
        return merged

    def agrees_with(self, other: ColumnSketch) -> bool:
        """Tell whether both are of the same column, whatever came and went (invariant I5)."""
        return self.bottom.agrees_with(other.bottom) and self.dense().payload() == other.dense().payload()

    def estimate(self) -> float:
        """Give the number of distinct values: exact when values are counted or all hashes are held, else estimated."""
        if self.counts_values:
            return float(self.size)
        return self.bottom.estimate() if self.heaps is None else max(self.heaps.estimate(), self._least(self.heaps))

    def bounds(self, level: float = 0.95) -> tuple[float, float]:
        """Give an interval of about this level for the number of distinct values."""
        if self.counts_values:
            return float(self.size), float(self.size)
        if self.heaps is None:
            return self.bottom.bounds(level)
        low, high = self.heaps.bounds(level)
        least = self._least(self.heaps)
        return max(low, least), max(high, least)

    def _least(self, heaps: HllHeaps) -> float:
        """Give how many values there are at least: those that are held, and one above the bound."""
        return float(len(self.bottom.hashes) + (heaps.size > self.bottom.size))

    def to_bytes(self) -> bytes:
        """Give the sketch as bytes, the same for the same set when nothing was removed."""
        flags = _COUNTS_VALUES * self.counts_values + _IS_DENSE * (self.heaps is not None)
        payload = [self.bottom.payload()] + ([self.heaps.payload()] if self.heaps is not None else [])
        return seal(Kind.COLUMN, Parameters(self.m, self.bottom.k, self.bottom.spares, flags), payload)

    @staticmethod
    def from_bytes(data: bytes) -> ColumnSketch:
        """Read a sketch; SketchError says what is wrong with the bytes."""
        (m, k, spares, flags), payload = unseal(data, Kind.COLUMN)
        sketch = ColumnSketch(m, k, spares, counts_values=bool(flags & _COUNTS_VALUES))
        sketch.bottom = BottomK.read(k, spares, payload)
        require(sketch.bottom.is_complete == (not flags & _IS_DENSE), "it has heaps exactly when it has no bound")
        if flags & _IS_DENSE:
            sketch.heaps = HllHeaps.read(m, payload)
            _require_below(sketch.bottom, sketch.heaps)
        payload.end()
        return sketch


def _require_below(bottom: BottomK, heaps: HllHeaps) -> None:
    try:
        heaps.copy().remove(bottom.hashes, bottom.counts)
    except SketchError:
        require(False, "its heaps do not count what its hashes say")

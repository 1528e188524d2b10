"""Own the building of sketches on executors: partial ones where the data is, put together attribute by attribute.

A range of keys is a range of hashes, and so of buckets: the parts that merging tasks make of their ranges lie side by
side in a sketch. Where there are no records (a sketch-only source) each counting task sketches what it reads.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.records import Int64s, UInt64s
from service.core.sketch_upkeep import FixedForm, SketchForm
from service.core.sketches.bottom_k import BottomK
from service.core.sketches.building import build_columns
from service.core.sketches.column import ColumnSketch
from service.core.sketches.comparable import Comparable
from service.core.sketches.heaps import HllHeaps, add_counts
from service.core.sketches.prefixes import HashPrefixes
from service.store.bulk import KeyRange

MANY_BEFORE = 4
"""So many times what a sketch holds of smallest hashes are expected before a range: then its own cannot be needed."""

_HEAD = struct.Struct("<BBQQII")
"""Levels, bytes of a count, bound (0: none), hashes, first bucket, buckets."""


class Part(NamedTuple):
    """Hold what one range of keys gives to a sketch: its smallest hashes, and heaps of its buckets from `first` on.

    `counts` is unsigned [levels, buckets], without buckets where `bottom` has all hashes.
    """

    bottom: BottomK
    first: int
    counts: NDArray[np.unsignedinteger]

    @classmethod
    def of(cls, sketch: ColumnSketch, key_range: KeyRange) -> Part:
        """Cut the buckets of a range out of the sketch of its hashes.

        If so many hashes are expected before the range that none of its own can be among the smallest, it keeps none.
        Should they be among them nevertheless, the sketch is one that needs a rescan.
        """
        bottom = sketch.bottom
        if sketch.heaps is None:
            return cls(bottom, 0, np.zeros((0, 0), np.uint8))
        if sketch.size * key_range.number > MANY_BEFORE * (bottom.k + bottom.spares):
            bottom.cut(int(bottom.hashes[0]))
        first = key_range.number << sketch.m >> key_range.bits
        counts = sketch.heaps.counts[:, first : max((key_range.number + 1) << sketch.m >> key_range.bits, first + 1)]
        return cls(bottom, first, counts.astype(np.min_scalar_type(counts.max(initial=0))))

    @classmethod
    def from_bytes(cls, data: bytes, form: SketchForm) -> Part:
        """Read what `to_bytes` wrote, of sketches of this form that count values."""
        levels, size, bound, hashes, first, buckets = _HEAD.unpack_from(data)
        bottom = BottomK(form.k, form.spares)
        bottom.hashes = np.frombuffer(data, "<u8", hashes, _HEAD.size).astype(np.uint64)
        bottom.counts, bottom.bound = np.ones(hashes, np.int64), bound or None
        counts = np.frombuffer(data, f"<u{size}", levels * buckets, _HEAD.size + 8 * hashes)
        return cls(bottom, first, counts.reshape(levels, buckets))

    def to_bytes(self) -> bytes:
        """Give the part as bytes, for the way from a task to the driver."""
        bottom, (levels, buckets) = self.bottom, self.counts.shape
        head = (levels, self.counts.itemsize, bottom.bound or 0, len(bottom.hashes), self.first, buckets)
        return _HEAD.pack(*head) + bottom.hashes.astype("<u8").tobytes() + self.counts.tobytes()


def parts_of(
    form: SketchForm, key_range: KeyRange, hashes: UInt64s, starts: Int64s, attribute_ids: NDArray[np.int32]
) -> Iterator[tuple[int, Part]]:
    """Give the part of each attribute that the records of a key range have; arrays as in `build_columns`."""
    sketches = build_columns(form.empty(), hashes, starts, attribute_ids.astype(np.int64))
    return ((attribute_id, Part.of(sketch, key_range)) for attribute_id, sketch in sketches.items())


def put_together(form: SketchForm, parts: Iterable[Part], *, counts_values: bool) -> ColumnSketch:
    """Give the sketch of all parts, whose buckets may overlap where they count occurrences.

    Raises SketchError when a count would need more than 64 bits.
    """
    sketch = form.empty(counts_values=counts_values)
    heaps: list[Part] = []
    sparse = [HllHeaps(form.bucket_bits)]
    for part in parts:
        sketch.bottom = sketch.bottom.merge(part.bottom)
        if part.counts.size:
            heaps.append(part)
        else:
            sparse[0].update(part.bottom.hashes, part.bottom.counts)
    if not sketch.bottom.is_complete:
        levels = max(len(counts) for counts in [sparse[0].counts, *(part.counts for part in heaps)])
        counts = np.zeros((levels, 1 << form.bucket_bits), np.uint64)
        add_counts(counts[: len(sparse[0].counts)], sparse[0].counts)
        for part in heaps:
            rows, buckets = part.counts.shape
            add_counts(counts[:rows, part.first : part.first + buckets], part.counts)
        is_small = counts.max(initial=0) <= np.iinfo(np.uint32).max
        sketch.heaps = HllHeaps(form.bucket_bits, counts.astype(np.uint32) if is_small else counts)
    return sketch


def merge_sketches(form: SketchForm, sketches: Sequence[bytes]) -> ColumnSketch:
    """Put together what several tasks have sketched of one column, occurrence by occurrence."""
    whole = (ColumnSketch.from_bytes(data) for data in sketches)
    return put_together(
        form,
        (Part(one.bottom, 0, np.zeros((0, 0), np.uint8) if one.heaps is None else one.heaps.counts) for one in whole),
        counts_values=False,
    )


def merge_comparable(form: SketchForm | FixedForm, sketches: Sequence[bytes]) -> Comparable:
    """Put together what several tasks have sketched of one column, of whichever form."""
    if isinstance(form, SketchForm):
        return merge_sketches(form, sketches)
    return functools.reduce(HashPrefixes.merge, map(HashPrefixes.from_bytes, sketches), form.empty())

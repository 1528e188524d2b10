"""Own how the sketches of a state are made and kept: their one form, their building from records, their changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from service.core.records import Int64s, UInt64s
from service.core.sketch_changes import SketchChanges, net_changes
from service.core.sketches.building import group_cells
from service.core.sketches.column import BUCKET_BITS, SPARES, ColumnSketch, K
from service.core.sketches.prefixes import HashPrefixes, bucket_bits_in


class SketchForm(NamedTuple):
    """Say of what size all sketches of a state are: 2^bucket_bits buckets, k smallest hashes, `spares` behind them."""

    bucket_bits: int
    k: int
    spares: int

    @classmethod
    def of(cls, bucket_bits: int, k: int) -> SketchForm:
        """Give the form with k / 3 spares: a quarter of a column can go before its hashes have to be read again."""
        return cls(bucket_bits, k, k // 3)

    def empty(self, *, counts_values: bool = True) -> ColumnSketch:
        """Make an empty sketch: of distinct values, or of occurrences (a sketch-only source)."""
        return ColumnSketch(*self, counts_values=counts_values)


class FixedForm(NamedTuple):
    """Say how many bytes sketches have at most that need not be kept current: hash prefixes, as long as they fit."""

    most_bytes: int

    def empty(self, *, counts_values: bool = True) -> HashPrefixes:
        """Make an empty sketch: the same of values and of occurrences."""
        return HashPrefixes(bucket_bits_in(self.most_bytes), self.most_bytes)


DEFAULT_FORM = SketchForm(BUCKET_BITS, K, SPARES)


class SketchBuilder:
    """Build the sketches of attributes from records, in portions of any size and order (BML 2018, Algorithm 3).

    `sketches` has one for each of the attributes; cells of others are left out.
    """

    def __init__(self, form: SketchForm, attribute_ids: Iterable[int]) -> None:
        self.sketches = {attribute_id: form.empty() for attribute_id in attribute_ids}

    def add(self, hashes: UInt64s, starts: Int64s, attribute_ids: Int64s) -> None:
        """Add records, none of them twice: the value of hash i is in the attributes at [starts[i]:starts[i + 1]]."""
        cells = group_cells(hashes, starts, attribute_ids)
        for place, attribute_id in enumerate(cells.attribute_ids.tolist()):
            sketch = self.sketches.get(attribute_id)
            if sketch is not None:
                sketch.update(cells.hashes[cells.starts[place] : cells.starts[place + 1]])


def apply_changes(sketch: ColumnSketch, changes: Sequence[SketchChanges], attribute_id: int) -> None:
    """Bring an attribute's sketch up to what several versions changed in it.

    Raises SketchError, the sketch unchanged, when they take away what was never in it.
    """
    hashes, differences = net_changes(changes, attribute_id)
    if len(hashes):
        sketch.apply(hashes, differences)

"""Own which sketches stand for a column wherever columns are compared, and the reading of either from bytes."""

from __future__ import annotations

from service.core.errors import SketchError
from service.core.sketches.byte_format import KIND_AT, Kind
from service.core.sketches.column import ColumnSketch
from service.core.sketches.prefixes import HashPrefixes

Comparable = ColumnSketch | HashPrefixes


def read_comparable(data: bytes) -> Comparable:
    """Read the sketch of a column, of whichever kind it is; SketchError says what is wrong with the bytes."""
    kind = data[KIND_AT] if len(data) > KIND_AT else 0
    if kind == Kind.PREFIXES:
        return HashPrefixes.from_bytes(data)
    if kind in (Kind.HLL, Kind.HEAPS, Kind.BOTTOM_K):
        raise SketchError(
            f"the sketch is {Kind(kind).name}, a part of one: columns are compared by {Kind.COLUMN.name} or "
            f"{Kind.PREFIXES.name}"
        )
    return ColumnSketch.from_bytes(data)

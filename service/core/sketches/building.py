"""Own the building of many columns' sketches at once from records, whose attributes lie end to end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from service.core.compiled import kernel
from service.core.records import Int64s, UInt64s, starts_of
from service.core.sketches.column import ColumnSketch


class GroupedCells(NamedTuple):
    """Hold cells by attribute: those of attribute_ids[i] at [starts[i]:starts[i + 1]], in the records' order."""

    attribute_ids: Int64s
    starts: Int64s
    hashes: UInt64s
    weights: Int64s | None


def group_cells(hashes: UInt64s, starts: Int64s, attribute_ids: Int64s, weights: Int64s | None = None) -> GroupedCells:
    """Group the cells of n records by attribute, by a counting sort.

    `hashes` is uint64[n]; the attributes (and weights) of record i are at [starts[i]:starts[i + 1]].
    """
    sizes = np.bincount(attribute_ids, minlength=0)
    ends = starts_of(sizes.astype(np.int64))
    given = weights if weights is not None else np.zeros(0, np.int64)
    grouped, weighted = _group(hashes, starts, attribute_ids, given, ends[:-1].copy())
    there = np.flatnonzero(sizes)
    return GroupedCells(there, np.append(ends[there], ends[-1]), grouped, weighted if weights is not None else None)


def build_columns(
    template: ColumnSketch,
    hashes: UInt64s,
    starts: Int64s,
    attribute_ids: Int64s,
    weights: Int64s | None = None,
) -> dict[int, ColumnSketch]:
    """Build the sketch of each attribute that has cells, of the m, k and spares of an (empty) one."""
    cells = group_cells(hashes, starts, attribute_ids, weights)
    built = {}
    for i, attribute in enumerate(cells.attribute_ids.tolist()):
        place = slice(cells.starts[i], cells.starts[i + 1])
        sketch = ColumnSketch(
            template.m, template.bottom.k, template.bottom.spares, counts_values=template.counts_values
        )
        sketch.update(cells.hashes[place], None if cells.weights is None else cells.weights[place])
        built[attribute] = sketch
    return built


@kernel
def _group(
    hashes: UInt64s, starts: Int64s, attribute_ids: Int64s, weights: Int64s, places: Int64s
) -> tuple[UInt64s, Int64s]:
    grouped, weighted = np.empty(len(attribute_ids), np.uint64), np.empty(len(weights), np.int64)
    for record in range(len(hashes)):
        for cell in range(starts[record], starts[record + 1]):
            attribute = attribute_ids[cell]
            grouped[places[attribute]] = hashes[record]
            if len(weights):
                weighted[places[attribute]] = weights[cell]
            places[attribute] += 1
    return grouped, weighted

"""Own how histograms follow changes: which values a batch brings to attributes and takes from them, and their counts.

After Zhang et al., On Multi-Column Foreign Key Discovery (2010), section "Schema and data updates": changes are counted
in the cells of the grids that are there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import orjson

from service.core.quantile_grids import GridHistogram, KeyHistogram, QuantileGrid
from service.core.records import Int64s, UInt64s
from service.core.sketch_changes import SketchChanges
from service.core.tuples import tuple_parts


class Switched(NamedTuple):
    """Hold the values that come to an attribute, and those that leave it, each with the last row that has it."""

    came: list[str]
    gone: list[str]


class ValueSwitches(NamedTuple):
    """Hold what a batch changes in the sets of values of attributes, by hash, and the text behind each hash.

    `hashes` are those of all values of the batch, ascending; that of place i has the text at `places[i]`.
    """

    changes: SketchChanges
    hashes: UInt64s
    texts: Sequence[str]
    places: Int64s

    @staticmethod
    def none() -> ValueSwitches:
        """Give no change."""
        return ValueSwitches(SketchChanges.none(), np.zeros(0, np.uint64), (), np.zeros(0, np.int64))

    def of(self, attribute_ids: Collection[int]) -> dict[int, Switched]:
        """Give the values that come to some attributes or leave them, by attribute id."""
        found: dict[int, Switched] = {}
        groups = zip(self.changes.attribute_ids.tolist(), self.changes.differences.tolist(), strict=True)
        for group, (attribute_id, difference) in enumerate(groups):
            if attribute_id in attribute_ids:
                hashes = self.changes.hashes[self.changes.starts[group] : self.changes.starts[group + 1]]
                places = self.places[np.searchsorted(self.hashes, hashes)]
                switched = found.setdefault(attribute_id, Switched([], []))
                (switched.came if difference > 0 else switched.gone).extend(self.texts[i] for i in places.tolist())
        return found


def switches_to_bytes(switches: Mapping[int, Switched]) -> bytes:
    """Give changes as the log keeps them: JSON of [values that came, values that went] by attribute id."""
    return orjson.dumps({str(attribute_id): list(switched) for attribute_id, switched in switches.items()})


def switches_from_bytes(data: bytes) -> dict[int, Switched]:
    """Read what `switches_to_bytes` gave."""
    return {int(attribute_id): Switched(*switched) for attribute_id, switched in orjson.loads(data).items()}


@dataclass(frozen=True, slots=True, eq=False)
class Histograms:
    """Hold the histogram of a key, of whose columns `cells` each were asked, and those of `others` over its grids.

    All are named by attribute id: the key, its columns (of a key of one column itself), the others.
    """

    key_id: int
    columns: tuple[int, ...]
    cells: int
    of_key: KeyHistogram
    others: Mapping[int, GridHistogram]

    @property
    def attribute_ids(self) -> set[int]:
        """Give all attributes that they follow."""
        return {self.key_id, *self.columns, *self.others}

    def after(self, changes: Iterable[Mapping[int, Switched]]) -> Histograms:
        """Give the histograms behind some changes, on the grids as they are.

        Raises ValueError when a cell would have fewer than no values: the changes are none of these histograms.
        """
        moved = _joined(changes, self.attribute_ids)
        grids = self.of_key.grids
        columns = []
        for column, grid in zip(self.columns, grids, strict=True):
            texts, differences = moved[column]
            counts = np.zeros(len(grid), np.int64)
            np.add.at(counts, grid.cells_of(texts), differences)
            columns.append(counts)
        places, differences = _places(grids, moved[self.key_id][0]), moved[self.key_id][1]
        return replace(
            self,
            of_key=self.of_key.moved(columns, places, differences),
            others={i: other.moved(_places(grids, moved[i][0]), moved[i][1]) for i, other in self.others.items()},
        )


def _joined(
    changes: Iterable[Mapping[int, Switched]], attribute_ids: Iterable[int]
) -> dict[int, tuple[list[str], Int64s]]:
    """Give of each attribute the values that came (+1) or went (-1) in all changes, and which it was."""
    found: dict[int, Switched] = {attribute_id: Switched([], []) for attribute_id in attribute_ids}
    for one in changes:
        for attribute_id in one.keys() & found.keys():
            found[attribute_id].came.extend(one[attribute_id].came)
            found[attribute_id].gone.extend(one[attribute_id].gone)
    return {
        attribute_id: (came + gone, np.repeat(np.array([1, -1], np.int64), [len(came), len(gone)]))
        for attribute_id, (came, gone) in found.items()
    }


def _places(grids: Sequence[QuantileGrid], texts: Sequence[str]) -> list[Int64s]:
    """Give the cells of values, or of tuples, in each dimension."""
    columns = [texts] if len(grids) == 1 else list(zip(*tuple_parts(texts), strict=True)) or [()] * len(grids)
    return [grid.cells_of(column) for grid, column in zip(grids, columns, strict=True)]

"""Own quantile grids of keys, and the histograms of keys and foreign keys over them.

After Zhang et al., On Multi-Column Foreign Key Discovery (2010), Definitions 2 to 4. The quantile of a value is its
rank among the key's distinct values, divided by their number; in a composite key each column has a grid of its own.
A histogram counts distinct values (tuples) by cell. Where the paper rebuilds grids after a number of changes, a grid
here follows them with its bounds unchanged: the quantile of a bound is the share of the key's values up to it, which
the counts give exactly. So cells grow unequal and nothing grows wrong; what a cell hides bounds the error.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from service.core.records import Int64s
from service.core.value_order import OrderKey, ValueOrder

Floats = NDArray[np.float64]

SINGLE_CELLS = 256
"""Cells of the grid of a key of one column, as in the paper's experiments (section 5.2)."""

COMPOSITE_CELLS = 16
"""Cells of each dimension of a composite key's grid, as there."""


def quantile_ranks(count: int, cells: int) -> list[int]:
    """Give the ranks (from 1) of the quantiles of `count` values, at most `cells` of them: ⌈count · i / cells⌉.

    With no more values than cells each value is a quantile of its own.
    """
    cells = min(count, cells)
    return [-(-count * i // cells) for i in range(1, cells + 1)]


def cells_of_each(columns: int, cells: int | None = None) -> int:
    """Give how many cells each of a key's columns has: `cells`, or fewer where all together had no number in 64 bits.

    The default is the paper's, SINGLE_CELLS or COMPOSITE_CELLS.
    """
    return min(cells or (SINGLE_CELLS if columns == 1 else COMPOSITE_CELLS), int(2 ** (62 / columns)))


@dataclass(frozen=True, slots=True)
class QuantileGrid:
    """Cut the values of one column into cells: cell i has those above bound i - 1, up to bound i.

    `bounds` are the values at the quantiles' ranks, ascending in `order`. What lies above the last one, which only
    later changes or values outside of the key can bring, is in the last cell: every value has one.
    Raises ValueError for bounds that do not ascend, or when there are none: a key without values has no grid.
    """

    order: ValueOrder
    bounds: tuple[str, ...]
    _keys: tuple[OrderKey, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        keys = tuple(map(self.order.key, self.bounds))
        if not keys or any(low >= high for low, high in pairwise(keys)):
            raise ValueError(f"the bounds of a quantile grid ascend and are not none: {self.bounds[:5]}")
        object.__setattr__(self, "_keys", keys)

    @staticmethod
    def of(values: Iterable[str], order: ValueOrder, cells: int = SINGLE_CELLS) -> QuantileGrid:
        """Build the grid of distinct values, in any order."""
        ascending = sorted(values, key=order.key)
        return QuantileGrid(order, tuple(ascending[rank - 1] for rank in quantile_ranks(len(ascending), cells)))

    def __len__(self) -> int:
        return len(self.bounds)

    def cells_of(self, values: Iterable[str]) -> Int64s:
        """Give the cell of each value."""
        key, inner = self.order.key, self._keys[:-1]
        return np.array([bisect_left(inner, key(value)) for value in values], np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class GridHistogram:
    """Count distinct values (tuples) by cell: `counts`, all positive, of `cells`, ascending.

    `shape` has the number of cells of each dimension; a cell is named by its place in an array of that shape, row by
    row. An array of all cells would not do: six dimensions of 16 cells have 16 million.
    """

    shape: tuple[int, ...]
    cells: Int64s
    counts: Int64s

    @staticmethod
    def of(shape: Sequence[int], places: Sequence[Int64s]) -> GridHistogram:
        """Count n distinct values; `places` has for each dimension their cells in it, int64[n]."""
        cells, counts = np.unique(np.ravel_multi_index(tuple(places), tuple(shape)), return_counts=True)
        return GridHistogram(tuple(shape), cells, counts)

    @property
    def total(self) -> int:
        """Count all values."""
        return int(self.counts.sum())

    def dense(self) -> Int64s:
        """Give the counts of all cells, int64[shape]."""
        counts = np.zeros(prod(self.shape), np.int64)
        counts[self.cells] = self.counts
        return counts.reshape(self.shape)

    def places(self) -> tuple[Int64s, ...]:
        """Give for each dimension the cells in it of the cells that have values."""
        return tuple(np.unravel_index(self.cells, self.shape))

    def moved(self, places: Sequence[Int64s], differences: Int64s) -> GridHistogram:
        """Give the histogram after values came (+1) to the cells at these places, or left them (-1).

        Raises ValueError when a cell would have fewer than no values.
        """
        cells = np.concatenate((self.cells, np.ravel_multi_index(tuple(places), self.shape)))
        cells, inverse = np.unique(cells, return_inverse=True)
        counts = np.zeros(len(cells), np.int64)
        np.add.at(counts, inverse, np.concatenate((self.counts, differences)))
        if (counts < 0).any():
            raise ValueError("a cell of a histogram would have fewer than no values")
        return GridHistogram(self.shape, cells[counts > 0], counts[counts > 0])


@dataclass(frozen=True, slots=True, eq=False)
class KeyHistogram:
    """Hold the grids of a key's columns, how many distinct values each has in its cells, and the key's histogram.

    `columns[i]` counts the distinct values of column i, int64[cells of grid i]; of a key of one column they are the
    histogram itself. Both follow changes on the same grids.
    """

    grids: tuple[QuantileGrid, ...]
    columns: tuple[Int64s, ...]
    tuples: GridHistogram

    @staticmethod
    def of(key: Sequence[Sequence[str]], orders: Sequence[ValueOrder], cells: int | None = None) -> KeyHistogram:
        """Build grids and histogram of a key's distinct tuples; grids are of the distinct values of each column."""
        cells = cells_of_each(len(orders), cells)
        columns = [set(column) for column in zip(*key, strict=True)]
        grids = tuple(QuantileGrid.of(*column, cells) for column in zip(columns, orders, strict=True))
        counts = tuple(
            np.bincount(grid.cells_of(column), minlength=len(grid)) for grid, column in zip(grids, columns, strict=True)
        )
        return KeyHistogram(grids, counts, histogram_over(grids, key))

    def moved(self, columns: Sequence[Int64s], places: Sequence[Int64s], differences: Int64s) -> KeyHistogram:
        """Give the histogram after changes: differences of each column's counts, and what came to cells or left."""
        counts = tuple(old + new for old, new in zip(self.columns, columns, strict=True))
        if any((of_column < 0).any() for of_column in counts):
            raise ValueError("a cell of a grid would have fewer than no values")
        return replace(self, columns=counts, tuples=self.tuples.moved(places, differences))


def histogram_over(grids: Sequence[QuantileGrid], tuples: Iterable[Sequence[str]]) -> GridHistogram:
    """Count distinct tuples over the grids of a key's columns: the distribution histogram (Definition 4)."""
    columns = list(zip(*tuples, strict=True)) or [()] * len(grids)
    places = [grid.cells_of(column) for grid, column in zip(grids, columns, strict=True)]
    return GridHistogram.of([len(grid) for grid in grids], places)

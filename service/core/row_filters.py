"""Own the filters of rows: super keys by which a row shows, without its cells, that it cannot have a key.

Each has a super key for each row of an index, and those of keys. A row that has all values of a key, each in a column
of its own, has all bits of the key's super key: no filter loses a row that joins.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from service.core.cell_index import CellIndex
from service.core.compiled import kernel
from service.core.records import Int64s, Keys, UInt64s
from service.core.signatures import positions
from service.core.xash import super_keys

BITS = 128
"""The bits of a super key of CountedBits."""

MOST_FUNCTIONS = 16
"""CountedBits sets at most so many bits for a value: more tell nothing, and each costs time."""

WIDE = 64
"""Cells of a wider row are sorted before equal ones are counted: each is compared with its two neighbours only."""


class RowFilter(Protocol):
    """Hold super keys, uint64[rows, words], and the class of each table: keys have a super key for each class."""

    @property
    def rows(self) -> UInt64s: ...
    @property
    def classes(self) -> Int64s: ...

    def of_keys(self, keys: Int64s) -> UInt64s:
        """Give the super keys of keys, int64[n, |Q|] of value ids: uint64[classes, n, words]."""
        ...


@dataclass(frozen=True, slots=True)
class ValueHashes:
    """Hold super keys that OR a hash for each value, uint64[values, words], as the paper does with XASH."""

    hashes: UInt64s
    rows: UInt64s
    classes: Int64s

    @staticmethod
    def of(index: CellIndex, hashes: UInt64s) -> ValueHashes:
        """Make those of an index."""
        rows = super_keys(hashes, index.cells, index.row_starts)
        return ValueHashes(hashes, rows, np.zeros(len(index.table_starts) - 1, np.int64))

    def of_keys(self, keys: Int64s) -> UInt64s:
        """Give the super keys of keys, all in one class."""
        of_keys: UInt64s = np.bitwise_or.reduce(self.hashes[keys], axis=1)
        return of_keys[None]


@dataclass(frozen=True, slots=True)
class CountedBits:
    """Hold super keys of 128 bits whose bits are chosen by value keys: a Bloom filter for each row, with two changes.

    A table's `functions` are chosen by the mean number of values in its rows, so that narrow rows fill their bits and
    wide rows do not fill up: `functions` holds those of each class. And the second cell of a value in a row has bits of
    its own, which tell rows that have a value once from keys that have it twice.
    """

    keys: Keys
    functions: Int64s
    rows: UInt64s
    classes: Int64s

    @staticmethod
    def of(index: CellIndex, keys: Keys) -> CountedBits:
        """Make those of an index, of the keys of its values."""
        tables = np.repeat(np.arange(len(index.table_starts) - 1), np.diff(index.table_starts))
        held = np.bincount(tables, values_held(index.cells, index.row_starts), len(index.table_starts) - 1)
        functions, classes = np.unique(functions_for(np.diff(index.table_starts), held), return_inverse=True)
        rows = counted_super_keys(keys, index.cells, index.row_starts, functions[classes][tables])
        return CountedBits(keys, functions, rows, classes)

    def of_keys(self, keys: Int64s) -> UInt64s:
        """Give the super keys of keys as the tables of each class have them."""
        values, cells = np.unique(keys, return_inverse=True)
        bits = positions(self.keys.take(values), BITS, 2 * MOST_FUNCTIONS).astype(np.uint8)
        starts = np.arange(len(keys) + 1) * keys.shape[1]
        out = np.empty((len(self.functions), len(keys), BITS // 64), np.uint64)
        for place, functions in enumerate(self.functions):
            out[place] = _counted_bits(bits, cells.ravel(), starts, np.full(len(keys), functions))
        return out


def functions_for(rows: Int64s, held: Int64s) -> Int64s:
    """Choose the functions of CountedBits for tables, by their rows and the values that these hold, all together."""
    wanted = BITS * log(2) * rows / np.maximum(held, 1)
    return np.clip(np.round(wanted), 1, MOST_FUNCTIONS).astype(np.int64)


def counted_super_keys(keys: Keys, cells: Int64s, starts: Int64s, functions: Int64s) -> UInt64s:
    """Make the super keys of rows, each by so many functions, of the keys of their cells' values: uint64[rows, 2]."""
    bits = positions(keys, BITS, 2 * MOST_FUNCTIONS).astype(np.uint8)
    return _counted_bits(bits, cells, starts, functions)


@kernel
def values_held(cells: Int64s, starts: Int64s) -> Int64s:
    """Count the values of each row, a repeated one twice."""
    out = np.empty(len(starts) - 1, np.int64)
    for row in range(len(out)):
        of_row = cells[starts[row] : starts[row + 1]]
        out[row] = _held(np.sort(of_row), 2) if len(of_row) > WIDE else _held(of_row, WIDE)
    return out


@kernel
def _held(cells: Int64s, reach: int) -> int:
    held = 0
    for at in range(len(cells)):
        held += cells[at] >= 0 and _before(cells, at, reach) < 2
    return held


@kernel
def _counted_bits(bits: NDArray[np.uint8], cells: Int64s, starts: Int64s, functions: Int64s) -> UInt64s:
    out = np.zeros((len(starts) - 1, BITS // 64), np.uint64)
    for row in range(len(out)):
        of_row = cells[starts[row] : starts[row + 1]]
        if len(of_row) > WIDE:
            _set_bits(out[row], bits, np.sort(of_row), 2, functions[row])
        else:
            _set_bits(out[row], bits, of_row, WIDE, functions[row])
    return out


@kernel
def _set_bits(out: UInt64s, bits: NDArray[np.uint8], cells: Int64s, reach: int, functions: int) -> None:
    for at in range(len(cells)):
        if cells[at] < 0:
            continue
        before = _before(cells, at, reach)
        if before > 1:
            continue
        for number in range(functions):
            bit = np.int64(bits[cells[at], before * MOST_FUNCTIONS + number])
            out[bit // 64] |= np.uint64(1) << np.uint64(bit % 64)


@kernel
def _before(cells: Int64s, at: int, reach: int) -> int:
    """Count the cells of a value in its row before a cell, at most two, and no further away than `reach`."""
    before = 0
    for other in range(max(at - reach, 0), at):
        before += cells[other] == cells[at]
        if before == 2:
            break
    return before

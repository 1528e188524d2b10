"""Own how the rows and cells of the tables of a segment are numbered, and how rows lie in blocks.

Tables stand one after the other; rows are numbered through all of them, and cells row by row. A block is at most
BLOCK_ROWS rows of one table, of a wide one fewer; it is named by its first row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.core.compiled import kernel
from service.core.records import Int64s, starts_of

BLOCK_ROWS = 1000
BLOCK_CELLS = 1 << 18
"""A block has at most so many cells, 1 MB, or one row: Postgres takes no more than 1 GB. Stored layouts go by it."""
EMPTY_CELL = 0xFFFF_FFFF
"""Stands for an empty cell among the numbers of values, of 32 bits each."""

_TABLE_BYTES = 8 + 4 + 1
_BY_CELLS = 0x80
"""Marks, beside its functions, a table whose blocks have fewer rows than BLOCK_ROWS; once all had as many."""

_GUIDES = 4
"""Cells whose table is known, for each table: from them on the table of any other is a step or two away."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Hold the `rows` and `widths` of n tables, and by how many `functions` the super keys of their rows are made.

    Rows of table t are numbered from first_rows[t] on, its cells from first_cells[t] on: int64[n + 1] each; its blocks
    have block_rows[t] rows, but the last. The cell i << shift, if there is one, is in the table guide[i].
    """

    rows: Int64s
    widths: Int64s
    functions: Int64s
    block_rows: Int64s
    first_rows: Int64s
    first_cells: Int64s
    shift: int
    guide: Int64s

    @staticmethod
    def of(rows: Int64s, widths: Int64s, functions: Int64s, block_rows: Int64s | None = None) -> Layout:
        """Number the rows and cells of tables; how many rows their blocks have is said of those that are stored."""
        if block_rows is None:
            block_rows = _block_rows(widths)
        first_cells = starts_of(rows * widths)
        shift = int(first_cells[-1] // (_GUIDES * len(rows) + 1)).bit_length()
        guide = np.searchsorted(first_cells, np.arange(0, first_cells[-1], 1 << shift), "right") - 1
        return Layout(rows, widths, functions, block_rows, starts_of(rows), first_cells, shift, guide)

    @staticmethod
    def from_bytes(data: bytes) -> Layout:
        """Take what `to_bytes` gives."""
        count = len(data) // _TABLE_BYTES
        rows, widths, functions = (
            np.frombuffer(data, kind, count, count * before).astype(np.int64)
            for kind, before in (("<i8", 0), ("<i4", 8), ("u1", 12))
        )
        block_rows = np.where(functions & _BY_CELLS, _block_rows(widths), BLOCK_ROWS)
        return Layout.of(rows, widths, functions & ~_BY_CELLS, block_rows)

    def to_bytes(self) -> bytes:
        """Give it in 13 bytes a table."""
        kinds = ("<i8", "<i4", "u1")
        parts = (self.rows, self.widths, self.functions | _BY_CELLS * (self.block_rows < BLOCK_ROWS))
        return b"".join(part.astype(kind).tobytes() for part, kind in zip(parts, kinds, strict=True))

    def tables(self, places: Int64s) -> Int64s:
        """Give the tables that cells are in."""
        return _tables(places, self.first_cells, self.shift, self.guide)

    def rows_of(self, places: Int64s, tables: Int64s) -> Int64s:
        """Give the rows that cells of these tables are in."""
        return self.first_rows[tables] + (places - self.first_cells[tables]) // self.widths[tables]

    def blocks(self, rows: Int64s) -> Int64s:
        """Give the first row of the block of each row."""
        tables = np.searchsorted(self.first_rows, rows, "right") - 1
        first, block_rows = self.first_rows[tables], self.block_rows[tables]
        return first + (rows - first) // block_rows * block_rows

    def widths_of(self, rows: Int64s) -> Int64s:
        """Give how many cells rows have."""
        return self.widths[np.searchsorted(self.first_rows, rows, "right") - 1]


def _block_rows(widths: Int64s) -> Int64s:
    block_rows: Int64s = np.clip(BLOCK_CELLS // np.maximum(widths, 1), 1, BLOCK_ROWS)
    return block_rows


@kernel
def _tables(places: Int64s, first_cells: Int64s, shift: int, guide: Int64s) -> Int64s:
    tables = np.empty(len(places), np.int64)
    for number in range(len(places)):
        table = guide[places[number] >> shift]
        while first_cells[table + 1] <= places[number]:
            table += 1
        tables[number] = table
    return tables

"""Own the cells of a corpus as an index in memory: the rows that have a value (MATE, section 3).

Rows are numbered through the corpus: those of table t are [table_starts[t]:table_starts[t + 1]]. A cell is the id of
its value, or -1 where it is empty; the cells of row r, one for each column, are at [row_starts[r]:row_starts[r + 1]].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from service.core.records import Int64s, starts_of


class Postings(NamedTuple):
    """Hold where some values are: the row and table of each posting, and which of the asked values it is of."""

    values: Int64s
    rows: Int64s
    tables: Int64s


@dataclass(frozen=True, slots=True)
class CellIndex:
    """Hold the index: value v is at the cells places[value_starts[v]:value_starts[v + 1]], ascending."""

    cells: Int64s
    row_starts: Int64s
    table_starts: Int64s
    value_starts: Int64s
    places: Int64s

    @staticmethod
    def of(cells: Int64s, row_starts: Int64s, table_starts: Int64s, values: int) -> CellIndex:
        """Build it from the cells, whose ids are below the number of values."""
        present = np.flatnonzero(cells >= 0)
        places = present[np.argsort(cells[present], kind="stable")]
        value_starts = starts_of(np.bincount(cells[present], minlength=values))
        return CellIndex(cells, row_starts, table_starts, value_starts, places)

    def counts(self, values: Int64s) -> Int64s:
        """Give how many postings values have, in the shape of `values`; none for -1."""
        return np.where(values < 0, 0, self.value_starts[values + 1] - self.value_starts[values])

    def postings(self, values: Int64s) -> Postings:
        """Fetch the postings of values."""
        counts = self.counts(values)
        asked = np.repeat(np.arange(len(values)), counts)
        within = np.arange(len(asked)) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = np.searchsorted(self.row_starts, self.places[self.value_starts[values[asked]] + within], "right") - 1
        return Postings(asked, rows, np.searchsorted(self.table_starts, rows, "right") - 1)

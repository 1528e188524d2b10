"""Own which rows have all values of a key, by the postings of all of them.

Algorithm 1 (MATE, section 6) fetches the postings of one key column, and asks super keys for the rest. Where those of
all columns are at hand, as they are when the values of a query were looked up for their counts, intersecting them
leaves next to no row that does not join.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from service.core.cell_index import Postings
from service.core.compiled import kernel
from service.core.records import Int64s


class Pairs(NamedTuple):
    """Hold pairs of a row and the number of a key whose values it has, each once, by key and then by row."""

    rows: Int64s
    tables: Int64s
    keys: Int64s


def rows_with_keys(keys: Int64s, values: Int64s, postings: Postings) -> Pairs:
    """Give the rows that have each value of a key in some column, a value that the key has twice at least once.

    `values` are those of the keys, int64[n, |Q|], ascending and each once, and `postings` theirs, by value and row.
    """
    starts = np.searchsorted(postings.values, np.arange(len(values) + 1))
    return Pairs(*_intersect(np.searchsorted(values, keys), starts, postings.rows, postings.tables))


@kernel
def _intersect(lists: Int64s, starts: Int64s, rows: Int64s, tables: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    found_rows, found_tables, found_keys = [0 for _ in range(0)], [0 for _ in range(0)], [0 for _ in range(0)]
    for key in range(len(lists)):
        of_key = lists[key]
        rarest = of_key[np.argmin(starts[of_key + 1] - starts[of_key])]
        at = starts[of_key]
        row = -1
        for posting in range(starts[rarest], starts[rarest + 1]):
            if rows[posting] == row:
                continue
            row = rows[posting]
            has_all = True
            for column in range(len(of_key)):
                end = starts[of_key[column] + 1]
                at[column] = _first_from(rows, at[column], end, row)
                if at[column] == end or rows[at[column]] != row:
                    has_all = False
                    break
            if has_all:
                found_rows.append(row)
                found_tables.append(tables[posting])
                found_keys.append(key)
    return np.array(found_rows, np.int64), np.array(found_tables, np.int64), np.array(found_keys, np.int64)


@kernel
def _first_from(rows: Int64s, first: int, end: int, row: int) -> int:
    """Give the first place of ascending rows that is not below a row, by steps that double."""
    step = 1
    while first + step < end and rows[first + step] < row:
        first += step
        step *= 2
    last = min(first + step, end)
    while first < last:
        middle = (first + last) // 2
        if rows[middle] < row:
            first = middle + 1
        else:
            last = middle
    return first

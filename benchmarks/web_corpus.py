"""Own made corpora of any size that look like web tables: seeded, in arrays, with their statistics.

What they have in common with WikiTables (MANY, section 3): 5.3 columns and 11 rows a table, lists of integers that
begin at 1, small integers, names whose frequencies follow Zipf's law, null tokens, columns that repeat parts of others.
The number of INDs, without filters and with all four, is near that of the paper's Table 3 and Figure 13.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.core.column_filters import ColumnFacts, all_of
from service.core.column_sets import ColumnSets
from service.core.records import Int64s, Keys, starts_of

_RANK, _SMALL, _CATEGORY, _NAME, _UNIQUE, _NULL = range(6)
_SHARES = (0.06, 0.20, 0.16, 0.43, 0.12, 0.03)
_COPIED = 0.02
"""Columns that repeat the first values of an earlier one."""
_EMPTY = 0.06
"""Cells that are NULL."""

_PART = 65_536
"""Tables that are made at a time; columns are copied within a part."""

INTEGERS = 1 << 40
NULLS = 1 << 41
FRESH = 1 << 42
"""Values are numbers: below INTEGERS names of topics, from there integers, null tokens, and values that occur once."""


@dataclass(frozen=True, slots=True)
class WebCorpus:
    """Hold a corpus: the values of column c at [starts[c]:starts[c + 1]], as numbers, with repetitions.

    Table t has the columns [first_columns[t]:first_columns[t + 1]].
    """

    tables: int
    starts: Int64s
    values: Int64s
    rows: Int64s
    first_columns: Int64s

    def keys(self) -> Keys:
        """Give the key of each value: two mixes of its number."""
        numbers = self.values.astype(np.uint64)
        return Keys(_mixed(numbers, 0x9E3779B97F4A7C15), _mixed(numbers, 0xC2B2AE3D27D4EB4F))

    def facts(self, sets: ColumnSets) -> ColumnFacts:
        """Give what the filters ask."""
        return ColumnFacts(
            distinct=sets.sizes,
            rows=self.rows,
            null_only=all_of(self.starts, (self.values >= NULLS) & (self.values < FRESH)),
            integers_only=all_of(self.starts, (self.values >= INTEGERS) & (self.values < NULLS)),
        )

    def texts(self) -> list[str]:
        """Give the values as texts: what tables of this corpus hold, for whoever writes them."""
        tokens = ("-", "—", "N/A", "?")
        return [
            f"name {n}" if n < INTEGERS
            else str(n - INTEGERS) if n < NULLS
            else tokens[n - NULLS] if n < FRESH
            else f"text {n - FRESH}"
            for n in self.values.tolist()
        ]  # fmt: skip


def make(tables: int, seed: int) -> WebCorpus:
    """Make a corpus; the same for the same seed and number of tables."""
    parts = [
        _part(min(_PART, tables - first), first, tables, np.random.default_rng([seed, tables, first]))
        for first in range(0, tables, _PART)
    ]
    lengths, values, rows, columns = (np.concatenate(side) for side in zip(*parts, strict=True))
    return WebCorpus(tables, starts_of(lengths), values, rows, starts_of(columns))


def _part(count: int, number: int, tables: int, random: np.random.Generator) -> tuple[Int64s, ...]:
    """Make some of the tables: values of each column, values, rows of each column, columns of each table."""
    columns_of = 1 + random.poisson(4.34, count)
    rows_of = np.clip(random.lognormal(1.95, 0.95, count), 1, 4670).astype(np.int64)
    table = np.repeat(np.arange(count), columns_of)
    columns = len(table)
    rows = rows_of[table]
    kind = random.choice(len(_SHARES), columns, p=_SHARES)
    copied = random.random(columns) < _COPIED
    copied[0] = False
    source = np.where(copied, (random.random(columns) * np.arange(columns)).astype(np.int64), 0)
    copied &= ~copied[source]
    length = np.where(copied, np.minimum(rows, rows[source]), rows)
    topics = max(20, tables // 40)
    topic = (topics * random.random(columns) ** 2.5).astype(np.int64)

    starts = starts_of(length)
    column = np.repeat(np.arange(columns), length)
    place = np.arange(starts[-1]) - starts[column]
    of_kind, u = kind[column], random.random(starts[-1])
    names = 8 + 20_000 // (1 + topic % 97)  # topics have from 200 to 20,000 names
    values = np.select(
        [of_kind == code for code in range(len(_SHARES))],
        [
            INTEGERS + 1 + place,
            INTEGERS + (10 ** (u * (2 + topic[column] % 3))).astype(np.int64),
            (topic[column] % max(300, tables // 4)) * 64 + ((3 + topic[column] % 40) * u * u).astype(np.int64),
            (1 << 20) + topic[column] * (1 << 16) + (names[column] * u**3).astype(np.int64),
            FRESH + (number << 16) + np.arange(starts[-1]),
            NULLS + (4 * u**3).astype(np.int64),
        ],
    )
    values[random.random(starts[-1]) < _EMPTY] = -1
    taken = copied[column]
    values[taken] = values[(starts[source[column]] + place)[taken]]
    present = values >= 0
    return np.bincount(column[present], minlength=columns), values[present], length, columns_of


def _mixed(numbers: NDArray[np.uint64], factor: int) -> NDArray[np.uint64]:
    mixed = (numbers + np.uint64(1)) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    return mixed ^ (mixed >> np.uint64(32))

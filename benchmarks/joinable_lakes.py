"""Own the lakes that searches for joinable tables are measured on: their cells by value, and queries drawn of them."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks import data_sets
from service.core.canonical_arrow import key_array
from service.core.cell_index import CellIndex
from service.core.records import Int64s, Keys, starts_of

ARCHIVES = Path(__file__).parents[1] / "tests" / "data"
LAKES = ("webtables_2k/webtables_2k", "lakes/lake_fivethirtyeight", "lakes/lake_mate")
"""The lakes that are kept with the tests, as texts."""


class LakeQuery(NamedTuple):
    """Hold a query: a table of the lake, and which of its columns are the key."""

    table: int
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Lake:
    """Hold a lake: the distinct values, and its cells as an index; '' is empty. `size` is that of its files."""

    name: str
    size: int
    tables: list[str]
    values: pa.Array
    index: CellIndex

    def keys(self) -> Keys:
        """Give the value keys of the values."""
        halves = key_array(self.values)
        return Keys(halves[:, 0].copy(), halves[:, 1].copy())

    def key_values(self, query: LakeQuery) -> Int64s:
        """Give the key columns of a query, int64[rows, |Q|]."""
        return self.rows(query.table)[:, query.columns]

    def rows(self, table: int) -> Int64s:
        """Give the cells of a table, int64[rows, columns]."""
        first, end = self.index.table_starts[table : table + 2]
        starts = self.index.row_starts
        return self.index.cells[starts[first] : starts[end]].reshape(end - first, -1)

    def widths(self) -> Int64s:
        """Give the number of columns of each table; 0 where it has no rows."""
        first, end = self.index.table_starts[:-1], self.index.table_starts[1:]
        size = np.diff(self.index.row_starts, append=self.index.row_starts[-1])
        return np.where(end > first, size[first], 0)


def lakes(work: Path) -> list[Lake]:
    """Read the lakes that are kept with the tests."""
    return [read_lake(data_sets.unpack(ARCHIVES / f"{lake}.tar.zst", work) / Path(lake).name) for lake in LAKES]


def read_lake(folder: Path) -> Lake:
    """Read the tables of a folder, in the order of their names; a cell that a row lacks is empty."""
    ids: dict[str, int] = {"": -1}
    cells: list[int] = []
    size = 0
    tables, sizes, rows = [], [], []
    for path in sorted((folder / "tables").glob("*.csv"), key=lambda path: path.stem):
        with path.open(encoding="utf-8", newline="") as lines:
            header, *read = csv.reader(lines)
        size += path.stat().st_size
        tables.append(path.stem)
        rows.append(len(read))
        sizes += [len(header)] * len(read)
        for row in read:
            lacking = [""] * (len(header) - len(row))  # one empty cell alone is an empty line
            cells += [ids.setdefault(cell, len(ids) - 1) for cell in [*row, *lacking]]
    del ids[""]
    index = CellIndex.of(
        np.array(cells, np.int64),
        starts_of(np.array(sizes, np.int64)),
        starts_of(np.array(rows, np.int64)),
        len(ids),
    )
    return Lake(folder.name, size, tables, pa.array(ids, pa.large_string()), index)


def draw_queries(lake: Lake, count: int, random: Random, size: int = 2, keys: int = 1) -> list[LakeQuery]:
    """Draw tables, each once, and for each so many `keys` of `size` of its columns, all in any order."""
    widths = lake.widths()
    wide = np.flatnonzero(widths >= size).tolist()
    tables = random.sample(wide, min(count, len(wide)))
    return [LakeQuery(table, tuple(random.sample(range(widths[table]), size))) for table in tables for _ in range(keys)]


def published_queries(lake: Lake) -> list[LakeQuery]:
    """Give the paper's queries that are published with its code: tables of two columns, which are the key."""
    return [LakeQuery(table, (0, 1)) for table in np.flatnonzero(lake.widths() == 2).tolist()]

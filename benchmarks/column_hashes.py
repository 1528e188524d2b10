"""Own the columns of a database as the hashes of their values, and how many values each two have in common.

What estimators are measured on: exact coefficients come from here, by sorting, not from what is measured.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from benchmarks import tpch
from benchmarks.context import Context
from benchmarks.data_sets import write_tpcds
from service.core.canonical_arrow import canonical_array, key_array

UInt64s = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class ColumnHashes:
    """Hold the columns that have values: names `table.column`, ascending hashes, and overlap int64[n, n]."""

    names: list[str]
    hashes: list[UInt64s]
    overlap: NDArray[np.int64]

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.diagonal(self.overlap)

    def pairs_of_tables(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Give all ordered pairs (dependent, referenced) of columns of different tables, as the paper takes them."""
        table = np.unique([name.split(".")[0] for name in self.names], return_inverse=True)[1]
        return np.nonzero(table[:, None] != table[None, :])  # type: ignore[return-value]


def tpch_columns(context: Context) -> ColumnHashes:
    """Read TPC-H, made on first use."""
    folder = tpch.tables(context.work, context.scale_factor)
    return _kept(context.work / f"tpch-{context.scale_factor:g}.hashes.npz", folder)


def tpcds_columns(context: Context) -> ColumnHashes:
    """Read TPC-DS, made on first use; Unavailable where its generator is not installed."""
    folder = context.work / f"tpcds-{context.scale_factor:g}"
    if not folder.exists():
        unfinished = folder.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        write_tpcds(context.scale_factor, unfinished)
        unfinished.rename(folder)
    return _kept(context.work / f"tpcds-{context.scale_factor:g}.hashes.npz", folder)


def _kept(file: Path, folder: Path) -> ColumnHashes:
    if not file.exists():
        made = read_columns(folder)
        starts = np.cumsum([0, *map(len, made.hashes)])
        unfinished = file.with_suffix(".unfinished.npz")
        np.savez(unfinished, names=made.names, hashes=np.concatenate(made.hashes), starts=starts, overlap=made.overlap)
        unfinished.rename(file)
    with np.load(file) as kept:
        hashes, starts = kept["hashes"], kept["starts"]
        columns = [hashes[start:end] for start, end in itertools.pairwise(starts)]
        return ColumnHashes(kept["names"].tolist(), columns, kept["overlap"])


def read_columns(folder: Path) -> ColumnHashes:
    """Read a folder of CSV files, every cell a text and an empty one NULL."""
    names, hashes = [], []
    for file in sorted(folder.glob("*.csv")):
        for name, of_column in _read_file(file):
            if len(of_column):
                names.append(f"{file.stem}.{name}")
                hashes.append(of_column)
    return ColumnHashes(names, hashes, overlaps(hashes))


def _read_file(file: Path) -> Iterator[tuple[str, UInt64s]]:
    with file.open() as lines:
        columns = next(lines).strip().replace('"', "").split(",")
    texts = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(columns, pa.string()), strings_can_be_null=True, null_values=[""]
    )
    found: list[list[UInt64s]] = [[] for _ in columns]
    for batch in pyarrow.csv.open_csv(file, pyarrow.csv.ReadOptions(block_size=32 << 20), convert_options=texts):
        for of_column, cells in zip(found, batch.columns, strict=True):
            distinct = canonical_array(pc.drop_null(pc.unique(cells)))
            of_column.append(np.unique(key_array(distinct)[:, 0]))
    for name, of_column in zip(columns, found, strict=True):
        yield name, np.unique(np.concatenate([*of_column, np.zeros(0, np.uint64)]))


def overlaps(hashes: Sequence[UInt64s]) -> NDArray[np.int64]:
    """Count the common hashes of each two columns: group all by hash, then equal sets of columns together."""
    count = len(hashes)
    column = np.repeat(np.arange(count), [len(h) for h in hashes])
    order = np.argsort(np.concatenate(hashes), kind="stable")
    every, column = np.concatenate(hashes)[order], column[order]
    starts = np.flatnonzero(np.r_[True, every[1:] != every[:-1]])
    ends = np.r_[starts[1:], len(every)]
    # Sets are told apart by a random sum of their members: two of them are equal by chance once in 2^64.
    marks = np.random.default_rng(0).integers(0, 1 << 63, count, dtype=np.int64)
    _, first, values = np.unique(np.add.reduceat(marks[column], starts), return_index=True, return_counts=True)
    overlap = np.zeros((count, count), np.int64)
    for place, number in zip(first, values, strict=True):
        members = column[starts[place] : ends[place]]
        overlap[np.ix_(members, members)] += number
    if [len(h) for h in hashes] != np.diagonal(overlap).tolist():
        raise AssertionError("the overlaps do not add up to the columns")
    return overlap

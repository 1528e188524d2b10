"""Own how a generation's INDs leave as CSV or Parquet: a row for each, both columns by table and position."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyarrow import csv

from service.core.records import Int32s
from service.usecases.corpora_ports import CorpusSnapshot

SCHEMA = pa.schema(
    [
        pa.field("dependent_table", pa.string(), nullable=False),
        pa.field("dependent_position", pa.int32(), nullable=False),
        pa.field("referenced_table", pa.string(), nullable=False),
        pa.field("referenced_position", pa.int32(), nullable=False),
    ]
)
"""What is exported: tables by their paths, positions from 0."""

ROWS = 100_000
"""Rows that are written at once: with paths of 4 kB each they stay below the 2 GB of an Arrow column of texts."""


class ExportFormat(StrEnum):
    """Name what INDs are exported as."""

    CSV = "csv"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class ColumnPlaces:
    """Hold which table's column an id is: tables with columns by their first column's id, ascending."""

    first_columns: Int32s
    paths: pa.LargeStringArray

    @staticmethod
    def read(snapshot: CorpusSnapshot) -> ColumnPlaces:
        """Read the tables of a generation: some 4 bytes and its path for each."""
        firsts, paths = [np.empty(0, np.int32)], [pa.array([], pa.large_string())]
        for block in snapshot.stream_tables():
            has_columns = np.diff(block.starts) > 0
            firsts.append(block.first_columns[has_columns])
            paths.append(block.paths.filter(pa.array(has_columns)).cast(pa.large_string()))
        first_columns = np.concatenate(firsts)
        order = np.argsort(first_columns, kind="stable")
        return ColumnPlaces(first_columns[order], pa.concat_arrays(paths).take(order))

    def of(self, columns: Int32s) -> tuple[pa.StringArray, pa.Int32Array]:
        """Give the paths and positions of columns."""
        tables = np.searchsorted(self.first_columns, columns, "right") - 1
        return self.paths.take(tables).cast(pa.string()), pa.array(columns - self.first_columns[tables], pa.int32())


def pairs(snapshot: CorpusSnapshot) -> Iterator[pa.RecordBatch]:
    """Give the INDs of a generation as SCHEMA has them, by (dependent, referenced) column id."""
    places = ColumnPlaces.read(snapshot)
    for block in snapshot.stream_pairs():
        for low in range(0, len(block.dependent), ROWS):
            chosen = slice(low, low + ROWS)
            sides = [*places.of(block.dependent[chosen]), *places.of(block.referenced[chosen])]
            yield pa.record_batch(sides, SCHEMA)


def export(snapshot: CorpusSnapshot, format_: ExportFormat) -> Iterator[bytes]:
    """Give the bytes of a file of all INDs, piece by piece; some `ROWS` of them are in memory at a time."""
    sink = _Sink()
    if format_ is ExportFormat.PARQUET:
        with pq.ParquetWriter(sink, SCHEMA) as writer:
            for batch in pairs(snapshot):
                writer.write_batch(batch)
                yield sink.taken()
    else:
        sink.write((",".join(SCHEMA.names) + "\n").encode())
        for batch in pairs(snapshot):
            csv.write_csv(batch, sink, csv.WriteOptions(include_header=False, quoting_style="needed"))
            yield sink.taken()
    yield sink.taken()


class _Sink(io.RawIOBase):
    """Keep what is written until it is taken; positions count from the file's beginning, as Parquet's footer does."""

    def __init__(self) -> None:
        self._written = bytearray()
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = len(memoryview(data).cast("B"))
        self._written += data
        self._position += size
        return size

    def tell(self) -> int:
        return self._position

    def taken(self) -> bytes:
        found = bytes(self._written)
        self._written.clear()
        return found

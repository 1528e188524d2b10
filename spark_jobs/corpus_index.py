"""Own the index of a corpus: the value keys of its columns as Parquet parts, and a manifest for each generation.

A folder holds `parts/NAME.parquet`, written by tasks and never changed, and `manifest-GENERATION.parquet`, written by
the driver. What no manifest names is remains of a refresh that died.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from service.core.column_filters import ColumnFacts
from service.core.column_sets import Int32s
from service.core.errors import SourceError
from service.core.records import Flags, Int64s, Keys

CELLS = pa.schema([("column", pa.int32()), ("high", pa.uint64()), ("low", pa.uint64())])
"""A row of a part: the number of a column in the part, ascending, and the key of a value of it, each once."""

TABLES = pa.schema(
    [
        ("path", pa.string()),
        ("file", pa.string()),
        ("line", pa.int64()),
        ("digest", pa.binary(16)),
        ("rows", pa.int64()),
        ("names", pa.list_(pa.string())),
        ("distinct", pa.list_(pa.int32())),
        ("null_only", pa.list_(pa.bool_())),
        ("integers_only", pa.list_(pa.bool_())),
        ("sums", pa.list_(pa.uint64())),
        ("part", pa.string()),
        ("part_column", pa.int32()),
        ("table_number", pa.int32()),
        ("first_column", pa.int32()),
    ]
)
"""A row of a manifest: a table, what is known of its columns by their positions, and where their keys are.

`line` (from 1) and the `digest` of the line tell the tables of a file of JSON lines apart; elsewhere both are null. The
columns are part_column, part_column + 1, ... of the part. `sums` are two sums over a column's keys, modulo 2^64, that
tell whether its values changed: high and low halves, one after the other for each column. A column's id is
first_column + its position.
"""


class DamagedIndexError(SourceError):
    """An index is not there as its manifest says: everything has to be read anew."""


@dataclass(frozen=True, slots=True)
class PartColumns:
    """Name a part and the id of each of its columns, int32[columns], -1 for those that are no longer of the corpus."""

    part: str
    column_ids: Int32s


@dataclass(frozen=True, slots=True)
class Manifest:
    """Hold what a generation is made of.

    `reading` are the settings that decide what a cell is: under others everything is read anew. `files` has the columns
    path, size, modified (nanoseconds) of all files that were read, `tables` is as TABLES, ascending by first_column.
    """

    generation: int
    reading: Mapping[str, object]
    files: pa.Table
    tables: pa.Table

    def parts(self) -> list[PartColumns]:
        """Give the parts that hold columns of this generation."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class CorpusIndex:
    """Be the folder of an index: a local path, or an address of a file system that all tasks reach; picklable."""

    folder: str

    def load(self, generation: int) -> Manifest:
        """Read a generation's manifest; raise DamagedIndexError when it or a part that it names is not there."""
        raise NotImplementedError

    def save(self, manifest: Manifest) -> None:
        """Write a manifest, whole or not at all."""
        raise NotImplementedError

    def keep_only(self, manifests: Sequence[Manifest]) -> None:
        """Remove the manifests and parts that are not of these generations: after landing, and before a refresh."""
        raise NotImplementedError

    def blocks(self, part: PartColumns) -> Iterator[tuple[Int32s, Keys]]:
        """Yield the cells of a part's live columns in blocks of bounded size: column ids, int32[n], and value keys.

        Cells of one column stand together, perhaps in two blocks, and no cell comes twice. Raises DamagedIndexError.
        """
        raise NotImplementedError

    def columns(self, parts: Sequence[PartColumns]) -> tuple[Int32s, Int64s, Keys]:
        """Give all live columns of some parts: ids, int32[n], starts, int64[n + 1], and keys end to end.

        Columns without values have no place in it. 16 bytes a cell, and as much again while they are read.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class CorpusState:
    """Hold what the driver knows when everything is read: metadata of n live columns, never a value.

    `column_ids`, int32[n], ascending, go with `facts`. `changed`, bool[n], marks new columns and those whose values,
    row count or flags differ from before; `gone_columns` are ids that were and are no longer. `new_tables`, as TABLES, are
    table versions to be written, also of tables that have only another name; the versions of `gone_tables` (table
    numbers, those of new versions among them) end. `next_table` and `next_column` are the first numbers not yet given.
    """

    manifest: Manifest
    column_ids: Int32s
    facts: ColumnFacts
    changed: Flags
    gone_columns: Int32s
    new_tables: pa.Table
    gone_tables: NDArray[np.int32]
    next_table: int
    next_column: int

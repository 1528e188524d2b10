"""Own what the readers of a corpus give: tables with the keys of their columns, and faults."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from service.core.corpus import PACKINGS
from service.core.errors import first_line
from service.core.records import Int64s
from spark_jobs.corpus_columns import CellTexts, ColumnCells, distinct_cells, merge_cells

BATCH_BYTES = 8 << 20
"""Tables are looked at together up to so many bytes of their files (of Parquet unpacked); a larger one is read in
portions of it."""


class FaultKind(StrEnum):
    """Name why a file, or a table in one, is not in the corpus."""

    UNREADABLE = "unreadable"
    VANISHED = "vanished"
    EMPTY = "empty"
    RAGGED = "ragged"
    BINARY = "binary"
    ENCODING = "encoding"
    QUOTING = "quoting"
    MALFORMED = "malformed"
    TOO_LARGE = "too large"


@dataclass(frozen=True, slots=True)
class ReadingFault:
    """Say why a table is not in the corpus: the file's path, the kind, a sentence.

    In JSON lines `line` counts from 1; where a task read only some of them, from the `piece` of that task on, by its
    place among them. `corpus_state.all_faults` counts from the file's beginning.
    """

    path: str
    kind: FaultKind
    message: str
    line: int | None = None
    piece: int = -1


class TableError(Exception):
    """A table cannot be read; caught where the table's name is known."""

    def __init__(self, kind: FaultKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Piece:
    """Name what a task reads of a file (or database table): all of it, or the lines that begin in [start, end).

    `detail` is what a database's reader needs.
    """

    path: str
    size: int
    start: int = 0
    end: int | None = None
    detail: Any = None


@dataclass(frozen=True, slots=True)
class FoundTables:
    """Hold n tables: the place of each one's piece among those of the task, rows, columns; names and cells end to end.

    `lines` and `digests` are those of JSON lines, 0 and None elsewhere.
    """

    pieces: Int64s
    rows: Int64s
    widths: Int64s
    names: pa.Array
    cells: ColumnCells
    lines: Int64s
    digests: list[bytes | None]


@dataclass(frozen=True, slots=True)
class TableCells:
    """Hold n tables before anything is made of their cells: as FoundTables, the cells of a column in the rows' order.

    NULL tokens are not NULL yet.
    """

    pieces: Int64s
    rows: Int64s
    widths: Int64s
    names: pa.Array
    cells: CellTexts
    lines: Int64s
    digests: list[bytes | None]

    @staticmethod
    def of_files(pieces: Int64s, rows: Int64s, widths: Int64s, names: pa.Array, cells: CellTexts) -> TableCells:
        """Hold tables that are files of their own."""
        return TableCells(
            pieces, rows, widths, names, cells, np.zeros(len(pieces), np.int64), [None] * len(pieces)
        )  # fmt: skip

    def distinct(self, null_tokens: Sequence[str]) -> FoundTables:
        """Find the distinct values of the columns."""
        found = distinct_cells(self.cells, null_tokens)
        return FoundTables(self.pieces, self.rows, self.widths, self.names, found, self.lines, self.digests)


class LargeTable(NamedTuple):
    """Hold a table in portions, each some of its rows in their order; getting them raises TableError."""

    piece: int
    portions: Iterator[TableCells]


@dataclass(frozen=True, slots=True)
class PieceLines:
    """Say how many lines a piece of JSON lines has."""

    piece: int
    lines: int


def merge_portions(piece: int, portions: Iterable[TableCells], null_tokens: Sequence[str]) -> FoundTables:
    """Make a table of portions, of which the first has its names; only its distinct values are held, and a portion's.

    Raises what getting the portions raises.
    """
    names = pa.array([], pa.large_string())
    parts: list[ColumnCells] = []
    rows = 0
    for portion in portions:
        names = names if parts else portion.names
        rows += int(portion.rows[0])
        parts.append(portion.distinct(null_tokens).cells)
        if sum(len(part.keys.high) for part in parts[1:]) > len(parts[0].keys.high):
            parts = [merge_cells(parts)]
    one, counted, width = (np.array([number], np.int64) for number in (piece, rows, len(names)))
    return FoundTables(one, counted, width, names, merge_cells(parts), np.zeros(1, np.int64), [None])


def distinct_tables(
    cells: Iterable[TableCells | LargeTable | ReadingFault], pieces: Sequence[Piece], null_tokens: Sequence[str]
) -> Iterator[FoundTables | ReadingFault]:
    """Make tables of distinct values of what was read; a large one that cannot be read to its end is a fault."""
    for found in cells:
        try:
            match found:
                case TableCells():
                    yield found.distinct(null_tokens)
                case LargeTable(piece, portions):
                    yield merge_portions(piece, portions, null_tokens)
                case ReadingFault():
                    yield found
        except TableError as error:
            assert isinstance(found, LargeTable)
            yield ReadingFault(pieces[found.piece].path, error.kind, str(error))


class TableReader(Protocol):
    """Read the pieces of a task."""

    def read(self, pieces: list[Piece]) -> Iterator[Any]:
        """Give FoundTables as soon as a batch of them is full, ReadingFaults, and what a kind has of its own."""
        ...

    def cells(self, pieces: list[Piece]) -> Iterator[TableCells | LargeTable | ReadingFault | PieceLines]:
        """Give the cells of the same tables, and the same faults."""
        ...


def vanished() -> TableError:
    """Say of a file that it is gone."""
    return TableError(FaultKind.VANISHED, "it was there when the corpus was listed, and is gone")


def reading_error(error: OSError) -> TableError:
    """Say why a file could not be opened or read."""
    if isinstance(error, FileNotFoundError):
        return vanished()
    return TableError(FaultKind.UNREADABLE, f"it cannot be read: {error.strerror or first_line(error)}")


def packing_of(path: str) -> str | None:
    """Say what a file is packed by, as Arrow names it; None: by nothing."""
    return next((codec for ending, codec in PACKINGS.items() if path.lower().endswith(ending)), None)


def read_small(filesystem: pafs.FileSystem, path: str, limit: int) -> bytes | None:
    """Read a file, unpacked; None when it has more than `limit` bytes. Raises TableError when it cannot be read."""
    packing = packing_of(path)
    try:
        if packing is None and isinstance(filesystem, pafs.LocalFileSystem):  # a third of the time of Arrow's own
            with open(path, "rb", buffering=0) as file:
                if os.fstat(file.fileno()).st_size > limit:
                    return None
                data: bytes = file.readall()
        else:
            with filesystem.open_input_stream(path, compression=packing) as stream:
                data = stream.read(limit + 1)
    except OSError as error:
        raise reading_error(error) from error
    return data if len(data) <= limit else None


def too_large(limit: int) -> TableError:
    """Say that a table has too many bytes."""
    return TableError(FaultKind.TOO_LARGE, f"it has more than {limit:,} bytes, the most that a table may have")

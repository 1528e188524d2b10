"""Own the reading of what comes as Arrow tables: Parquet files, and the tables of a Postgres schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from service.core.canonical import CellDecoder, cell_decoder
from service.core.errors import RecordError, SourceError, first_line
from service.core.records import starts_of
from service.store.canonical_sql import needs_document_walk
from spark_jobs.corpus_columns import CellTexts, ColumnCells, default_names, distinct_cells, merge_cells
from spark_jobs.corpus_tables import (
    BATCH_BYTES,
    FaultKind,
    FoundTables,
    Piece,
    ReadingFault,
    TableError,
    found_table,
    reading_error,
    too_large,
)
from spark_jobs.kernels import count_texts
from spark_jobs.postgres_source import PostgresReader

BATCH_ROWS = 65_536
"""Rows that are read of a file at a time; fewer where they are wide."""


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """Read Parquet files, a table each."""

    filesystem: pafs.FileSystem
    root: str
    null_tokens: Sequence[str]
    table_bytes: int

    def read(self, pieces: list[Piece]) -> Iterator[FoundTables | ReadingFault]:
        for number, piece in enumerate(pieces):
            try:
                yield self._read(number, piece)
            except TableError as error:
                yield ReadingFault(piece.path, error.kind, str(error))

    def _read(self, number: int, piece: Piece) -> FoundTables:
        if piece.size == 0:
            raise TableError(FaultKind.EMPTY, "there is nothing in it")
        try:
            with pq.ParquetFile(self.filesystem.open_input_file(f"{self.root}/{piece.path}")) as file:
                described = file.metadata
                size = sum(described.row_group(i).total_byte_size for i in range(described.num_row_groups))
                if size > self.table_bytes:
                    raise too_large(self.table_bytes)
                rows = max(1, min(BATCH_ROWS, BATCH_BYTES * described.num_rows // (size or 1)))
                chunks = (pa.Table.from_batches([batch]) for batch in file.iter_batches(rows, use_threads=False))
                schema = file.schema_arrow
                cells = cells_of(schema.empty_table(), chunks, [None] * len(schema), self.null_tokens)
                names = default_names(pa.array(schema.names, pa.large_string()), np.arange(len(schema)))
                return found_table(number, described.num_rows, names, cells)
        except OSError as error:
            raise reading_error(error) from error
        except (pa.ArrowException, SourceError, RecordError) as error:
            raise TableError(FaultKind.MALFORMED, f"it cannot be read as Parquet: {first_line(error)}") from error


@dataclass(frozen=True, slots=True)
class PostgresTables:
    """Read tables under an exported snapshot; a piece's detail has the table's place in `reader` and its splits."""

    reader: PostgresReader
    null_tokens: Sequence[str]

    def read(self, pieces: list[Piece]) -> Iterator[FoundTables | ReadingFault]:
        for number, piece in enumerate(pieces):
            try:
                yield self._read(number, piece)
            except (SourceError, RecordError) as error:
                yield ReadingFault(piece.path, FaultKind.UNREADABLE, str(error))

    def _read(self, number: int, piece: Piece) -> FoundTables:
        place, splits = piece.detail
        columns = self.reader.tables[place].columns
        rows = 0

        def chunks() -> Iterator[pa.Table]:
            nonlocal rows
            for split in splits:
                for chunk in self.reader.read(split):
                    rows += len(chunk)
                    yield chunk

        decoders = [cell_decoder(kind) if needs_document_walk(kind) else None for _, kind in columns]
        empty = pa.table({str(i): pa.array([], pa.string()) for i in range(len(columns))})
        cells = cells_of(empty, chunks(), decoders, self.null_tokens)
        return found_table(number, rows, pa.array([name for name, _ in columns], pa.large_string()), cells)


def cells_of(
    empty: pa.Table,
    chunks: Iterator[pa.Table],
    decoders: Sequence[Callable[[object], str | None] | None],
    null_tokens: Sequence[str],
) -> ColumnCells:
    """Find the distinct values of a table that comes in chunks; `empty` has its columns and no row.

    Raises SourceError and RecordError for values without a canonical text, or with a NUL character.
    """
    parts = [_cells_of(empty, decoders, null_tokens)]
    for chunk in chunks:
        parts.append(_cells_of(chunk, decoders, null_tokens))
        if sum(len(part.keys.high) for part in parts[1:]) > len(parts[0].keys.high):
            parts = [merge_cells(parts)]
    return merge_cells(parts)


def _cells_of(chunk: pa.Table, decoders: Sequence[CellDecoder | None], null_tokens: Sequence[str]) -> ColumnCells:
    columns = [
        count_texts(column, (), decode)[0].cast(pa.large_string())
        for column, decode in zip(chunk.columns, decoders, strict=True)
    ]
    for column in columns:
        column.validate(full=True)  # Parquet's texts may be anything
    texts = pa.concat_arrays([pa.array([], pa.large_string()), *columns])
    starts = starts_of(np.array([len(column) for column in columns], np.int64))
    return distinct_cells(CellTexts.of_array(texts, starts), null_tokens)

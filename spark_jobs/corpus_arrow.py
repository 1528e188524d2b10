"""Own the reading of what comes as Arrow tables: Parquet files, and the tables of a Postgres schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from service.core.canonical import CellDecoder, cell_decoder
from service.core.canonical_arrow import text_buffers
from service.core.corpus import CorpusSettings
from service.core.errors import RecordError, SourceError, first_line
from service.core.records import Int64s, starts_of
from service.store.canonical_sql import needs_document_walk
from spark_jobs.corpus_columns import CellTexts, ColumnCells, default_names, distinct_cells, merge_cells
from spark_jobs.corpus_index import counted_within
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
    settings: CorpusSettings

    def read(self, pieces: list[Piece]) -> Iterator[FoundTables | ReadingFault]:
        batch = _Batch()
        for number, piece in enumerate(pieces):
            try:
                found = self._read(number, piece, batch)
            except TableError as error:
                yield ReadingFault(piece.path, error.kind, str(error))
                continue
            if found is not None:
                yield found
            if batch.size >= BATCH_BYTES:
                yield batch.found(self.settings.null_tokens)
                batch = _Batch()
        if batch.rows:
            yield batch.found(self.settings.null_tokens)

    def _read(self, number: int, piece: Piece, batch: _Batch) -> FoundTables | None:
        """Read a small file into the batch, a large one in portions of its rows."""
        if piece.size == 0:
            raise TableError(FaultKind.EMPTY, "there is nothing in it")
        try:
            with pq.ParquetFile(self.filesystem.open_input_file(f"{self.root}/{piece.path}")) as file:
                described, names = file.metadata, file.schema_arrow.names
                size = sum(described.row_group(i).total_byte_size for i in range(described.num_row_groups))
                if size > self.settings.max_table_bytes:
                    raise too_large(self.settings.max_table_bytes)
                if any("\0" in name for name in names):
                    raise TableError(FaultKind.BINARY, "the name of a column has a NUL character")
                if size <= BATCH_BYTES:
                    texts = [_texts(column, None) for column in file.read(use_threads=False).columns]
                    batch.add(number, described.num_rows, names, texts)
                    return None
                rows = max(1, min(BATCH_ROWS, BATCH_BYTES * described.num_rows // size))
                chunks = (pa.Table.from_batches([batch]) for batch in file.iter_batches(rows, use_threads=False))
                cells = cells_of(len(names), chunks, [None] * len(names), self.settings.null_tokens)
        except OSError as error:
            raise reading_error(error) from error
        except (pa.ArrowException, SourceError, RecordError) as error:
            raise TableError(FaultKind.MALFORMED, f"it cannot be read as Parquet: {first_line(error)}") from error
        return found_table(number, described.num_rows, _names(names, np.arange(len(names))), cells)


class _Batch:
    """Gather small tables, to look at their values together."""

    def __init__(self) -> None:
        self.pieces: list[int] = []
        self.rows: list[int] = []
        self.names: list[list[str]] = []
        self.texts: list[pa.Array] = []
        self.size = 0

    def add(self, piece: int, rows: int, names: list[str], texts: list[pa.Array]) -> None:
        self.pieces.append(piece)
        self.rows.append(rows)
        self.names.append(names)
        self.texts += texts
        self.size += sum(column.nbytes for column in texts)

    def found(self, null_tokens: Sequence[str]) -> FoundTables:
        widths = np.array([len(names) for names in self.names], np.int64)
        names = _names([name for names in self.names for name in names], counted_within(widths))
        count = len(self.rows)
        return FoundTables(
            np.array(self.pieces, np.int64),
            np.array(self.rows, np.int64),
            widths,
            names,
            _cells_of(self.texts, null_tokens),
            np.zeros(count, np.int64),
            [None] * count,
        )


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
        cells = cells_of(len(columns), chunks(), decoders, self.null_tokens)
        return found_table(number, rows, pa.array([name for name, _ in columns], pa.large_string()), cells)


def cells_of(
    width: int,
    chunks: Iterable[pa.Table],
    decoders: Sequence[CellDecoder | None],
    null_tokens: Sequence[str],
) -> ColumnCells:
    """Find the distinct values of a table of some columns that comes in chunks.

    Raises SourceError and RecordError for values without a canonical text, TableError for a NUL character.
    """
    parts = [_cells_of([pa.array([], pa.large_string())] * width, null_tokens)]
    for chunk in chunks:
        texts = [_texts(column, decode) for column, decode in zip(chunk.columns, decoders, strict=True)]
        parts.append(_cells_of(texts, null_tokens))
        if sum(len(part.keys.high) for part in parts[1:]) > len(parts[0].keys.high):
            parts = [merge_cells(parts)]
    return merge_cells(parts)


def _texts(column: pa.ChunkedArray, decode: CellDecoder | None) -> pa.Array:
    """Give the canonical texts of a column, some of them more than once; raises as `cells_of` does."""
    if decode is None and (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        texts = pa.concat_arrays([pa.array([], pa.large_string()), *column.cast(pa.large_string()).chunks]).drop_null()
    else:
        texts = count_texts(column, (), decode)[0].cast(pa.large_string())
    texts.validate(full=True)  # a file's texts may be anything
    offsets, data = text_buffers(texts)
    if not data[offsets[0] : offsets[-1]].all():
        raise TableError(FaultKind.BINARY, "a value has a NUL character, which no database can hold")
    return texts


def _cells_of(columns: Sequence[pa.Array], null_tokens: Sequence[str]) -> ColumnCells:
    texts = pa.concat_arrays([pa.array([], pa.large_string()), *columns])
    starts = starts_of(np.array([len(column) for column in columns], np.int64))
    return distinct_cells(CellTexts.of_array(texts, starts), null_tokens)


def _names(names: list[str], positions: Int64s) -> pa.Array:
    return default_names(pa.array(names, pa.large_string()), positions)

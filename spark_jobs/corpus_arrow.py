"""Own the reading of what comes as Arrow tables: Parquet files, and the tables of a Postgres schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from service.core.canonical import CellDecoder, cell_decoder
from service.core.canonical_arrow import text_buffers
from service.core.corpus import CorpusSettings
from service.core.errors import RecordError, SourceError, first_line
from service.core.records import starts_of
from service.store.canonical_sql import needs_document_walk
from spark_jobs.corpus_columns import CellTexts, default_names
from spark_jobs.corpus_index import counted_within
from spark_jobs.corpus_tables import (
    BATCH_BYTES,
    FaultKind,
    FoundTables,
    LargeTable,
    Piece,
    ReadingFault,
    TableCells,
    TableError,
    distinct_tables,
    merge_portions,
    reading_error,
    too_large,
)
from spark_jobs.kernels import column_texts, count_texts
from spark_jobs.parquet_source import open_parquet
from spark_jobs.postgres_source import PostgresReader

TextsOf = Callable[[pa.ChunkedArray, CellDecoder | None], pa.Array]

BATCH_ROWS = 65_536
"""Rows of a portion of a file; fewer where they are wide."""

STEP_ROWS = 512
STEP_LISTS = 64
"""Rows that are read of a file at a time, and those that have lists, which may be long."""


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """Read Parquet files, a table each."""

    filesystem: pafs.FileSystem
    root: str
    settings: CorpusSettings

    def read(self, pieces: list[Piece]) -> Iterator[FoundTables | ReadingFault]:
        return distinct_tables(self._tables(pieces, _distinct_texts), pieces, self.settings.null_tokens)

    def cells(self, pieces: list[Piece]) -> Iterator[TableCells | LargeTable | ReadingFault]:
        return self._tables(pieces, _cell_texts)

    def _tables(self, pieces: list[Piece], texts_of: TextsOf) -> Iterator[TableCells | LargeTable | ReadingFault]:
        batch = _Batch()
        for number, piece in enumerate(pieces):
            portions = self._portions(piece, texts_of)
            try:
                first, *more = islice(portions, 2)
            except TableError as error:
                yield ReadingFault(piece.path, error.kind, str(error))
                continue
            if more:
                yield LargeTable(number, (portion_of(number, *one) for one in chain([first], more, portions)))
                continue
            batch.add(number, *first)
            if batch.size >= BATCH_BYTES:
                yield batch.cells()
                batch = _Batch()
        if batch.rows:
            yield batch.cells()

    def _portions(self, piece: Piece, texts_of: TextsOf) -> Iterator[tuple[int, list[str], list[pa.Array]]]:
        """Give how many rows a portion has, and the columns' names and texts; of a table without rows there is one."""
        with self._opened(piece) as (file, size):
            for rows in self._rows(file, size):
                yield rows.num_rows, file.schema_arrow.names, [texts_of(column, None) for column in rows.columns]

    def _rows(self, file: pq.ParquetFile, size: int) -> Iterator[pa.Table]:
        """Read a file of so many encoded bytes in portions of about BATCH_BYTES.

        A value that a file says once may stand in millions of rows: few are read before it is asked how much they are.
        """
        most, rows = self.settings.max_table_bytes, file.metadata.num_rows
        # Not by the numbers of values in the metadata of columns: Arrow ends the process where these are damaged.
        is_repeated = any(file.schema.column(place).max_repetition_level for place in range(len(file.schema)))
        step = STEP_LISTS if is_repeated else STEP_ROWS
        if rows <= step and rows * size <= min(BATCH_BYTES, most) and not is_repeated:  # no value is longer than `size`
            yield file.read(use_threads=False)
            return
        held: list[pa.RecordBatch] = []
        read = given = 0
        step = max(1, min(step, BATCH_BYTES * rows // max(1, size)))
        for batch in file.iter_batches(step, use_threads=False):
            columns = [_decoded(column) for column in batch.columns]
            read += sum(map(_unpacked_bytes, columns))
            if read > most:
                raise too_large(most)
            held.append(pa.RecordBatch.from_arrays(columns, names=batch.schema.names))
            if read - given >= BATCH_BYTES or len(held) * step >= BATCH_ROWS:
                yield pa.Table.from_batches(held)
                held, given = [], read
        if held or not given:
            yield pa.Table.from_batches(held) if held else file.schema_arrow.empty_table()

    @contextmanager
    def _opened(self, piece: Piece) -> Iterator[tuple[pq.ParquetFile, int]]:
        """Open a file that may be a table, and give its encoded bytes; what befalls it inside is a TableError."""
        if piece.size == 0:
            raise TableError(FaultKind.EMPTY, "there is nothing in it")
        try:
            with open_parquet(self.filesystem, f"{self.root}/{piece.path}") as file:
                described = file.metadata
                size = sum(described.row_group(i).total_byte_size for i in range(described.num_row_groups))
                if size > self.settings.max_table_bytes:
                    raise too_large(self.settings.max_table_bytes)
                if any("\0" in name for name in file.schema_arrow.names):
                    raise TableError(FaultKind.BINARY, "the name of a column has a NUL character")
                yield file, size
        except OSError as error:
            raise reading_error(error) from error
        except (pa.ArrowException, UnicodeDecodeError, SourceError, RecordError) as error:
            raise TableError(FaultKind.MALFORMED, f"it cannot be read as Parquet: {first_line(error)}") from error


def _decoded(column: pa.Array) -> pa.Array:
    """Put values in the place of a dictionary, of which each batch has a whole one."""
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def _unpacked_bytes(column: pa.Array) -> int:
    """Give the bytes of the values, each as often as it is there."""
    if isinstance(column, pa.StructArray):
        return sum(map(_unpacked_bytes, column.flatten()))
    if pa.types.is_nested(column.type):
        return _unpacked_bytes(column.flatten())
    return int(_decoded(column).nbytes)


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

    def cells(self) -> TableCells:
        widths = np.array([len(names) for names in self.names], np.int64)
        names = pa.array([name for names in self.names for name in names], pa.large_string())
        return TableCells.of_files(
            np.array(self.pieces, np.int64),
            np.array(self.rows, np.int64),
            widths,
            default_names(names, counted_within(widths)),
            _laid(self.texts),
        )


@dataclass(frozen=True, slots=True)
class PostgresTables:
    """Read tables under an exported snapshot; a piece's detail has the table's place in `reader` and its splits."""

    reader: PostgresReader
    null_tokens: Sequence[str]

    def read(self, pieces: list[Piece]) -> Iterator[FoundTables | ReadingFault]:
        for number, piece in enumerate(pieces):
            try:
                yield merge_portions(number, self._portions(number, piece, _distinct_texts), self.null_tokens)
            except TableError as error:
                yield ReadingFault(piece.path, error.kind, str(error))

    def cells(self, pieces: list[Piece]) -> Iterator[LargeTable]:
        for number, piece in enumerate(pieces):
            yield LargeTable(number, self._portions(number, piece, _cell_texts))

    def _portions(self, number: int, piece: Piece, texts_of: TextsOf) -> Iterator[TableCells]:
        """Give the rows in the order in which they lie in the table."""
        place, splits = piece.detail
        columns = self.reader.tables[place].columns
        names = [name for name, _ in columns]
        decoders = [cell_decoder(kind) if needs_document_walk(kind) else None for _, kind in columns]
        yield portion_of(number, 0, names, [pa.array([], pa.large_string())] * len(names))
        try:
            for split in splits:
                for chunk in self.reader.read(split):
                    texts = [texts_of(column, decode) for column, decode in zip(chunk.columns, decoders, strict=True)]
                    yield portion_of(number, len(chunk), names, texts)
        except (SourceError, RecordError) as error:
            raise TableError(FaultKind.UNREADABLE, str(error)) from error


def portion_of(piece: int, rows: int, names: Sequence[str], texts: Sequence[pa.Array]) -> TableCells:
    """Give some rows of a table by the texts of their columns."""
    one, counted, width = (np.array([number], np.int64) for number in (piece, rows, len(names)))
    named = default_names(pa.array(names, pa.large_string()), np.arange(len(names)))
    return TableCells.of_files(one, counted, width, named, _laid(texts))


def _distinct_texts(column: pa.ChunkedArray, decode: CellDecoder | None) -> pa.Array:
    """Give the canonical texts of a column, some of them more than once; raises as `_cell_texts` does."""
    if decode is None and _has_texts(column):
        return _checked(_one_array(column).drop_null())
    return _checked(count_texts(column, (), decode)[0].cast(pa.large_string()))


def _cell_texts(column: pa.ChunkedArray, decode: CellDecoder | None) -> pa.Array:
    """Give the canonical text of each cell of a column.

    Raises SourceError and RecordError for values without one, TableError for a NUL character.
    """
    if decode is None and _has_texts(column):
        return _checked(_one_array(column))
    return _checked(column_texts(column, (), decode))


def _has_texts(column: pa.ChunkedArray) -> bool:
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays([pa.array([], pa.large_string()), *column.cast(pa.large_string()).chunks])


def _checked(texts: pa.Array) -> pa.Array:
    texts.validate(full=True)  # a file's texts may be anything
    offsets, data = text_buffers(texts)
    if not data[offsets[0] : offsets[-1]].all():
        raise TableError(FaultKind.BINARY, "a value has a NUL character, which no database can hold")
    return texts


def _laid(columns: Sequence[pa.Array]) -> CellTexts:
    """Lay the texts of columns end to end."""
    texts = pa.concat_arrays([pa.array([], pa.large_string()), *columns])
    return CellTexts.of_array(texts, starts_of(np.array([len(column) for column in columns], np.int64)))

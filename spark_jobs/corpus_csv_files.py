"""Own the reading of CSV files, a table each: small ones in batches, large ones in portions, bad ones as faults."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow.fs as pafs

from service.core.corpus import PACKINGS, CorpusSettings
from spark_jobs.corpus_csv import (
    AFTER_QUOTE,
    EMPTY,
    FINE,
    OPEN_QUOTE,
    RAGGED,
    STRAY_QUOTE,
    CsvCells,
    end_of_records,
    tokenise,
)
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
    packing_of,
    read_small,
    reading_error,
    too_large,
)
from spark_jobs.csv_source import BOM
from spark_jobs.csv_text import Dialect

_BROKEN = {
    STRAY_QUOTE: "a quote stands inside a cell that is not quoted",
    AFTER_QUOTE: "there is text after a cell's closing quote",
    OPEN_QUOTE: "a quote is opened and never closed",
}

_WIDE_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)

TABBED = tuple(f".tsv{packed}" for packed in ("", *PACKINGS))


@dataclass
class _Batch:
    """Gather files of one dialect."""

    files: list[bytes] = field(default_factory=list)
    pieces: list[int] = field(default_factory=list)
    size: int = 0

    def add(self, data: bytes, piece: int) -> None:
        self.files.append(data)
        self.pieces.append(piece)
        self.size += len(data)


@dataclass(frozen=True, slots=True)
class CsvFiles:
    """Read CSV files. Where no delimiter is set it is a tab in files that end with .tsv, and a comma in all others."""

    filesystem: pafs.FileSystem
    root: str
    settings: CorpusSettings

    def read(self, pieces: list[Piece]) -> Iterator[FoundTables | ReadingFault]:
        return distinct_tables(self.cells(pieces), pieces, self.settings.null_tokens)

    def cells(self, pieces: list[Piece]) -> Iterator[TableCells | LargeTable | ReadingFault]:
        batches: dict[Dialect, _Batch] = {}
        for number, piece in enumerate(pieces):
            dialect = self._dialect(piece.path)
            try:
                path = f"{self.root}/{piece.path}"
                data = None if piece.size > BATCH_BYTES else read_small(self.filesystem, path, BATCH_BYTES)
                if data is None:
                    yield LargeTable(number, self._cells_of_portions(number, path, dialect))
                    continue
                if len(data) > self.settings.max_table_bytes:
                    raise too_large(self.settings.max_table_bytes)
                batch = batches.setdefault(dialect, _Batch())
                batch.add(_as_utf8(data, self.settings.encoding), number)
            except TableError as error:
                yield ReadingFault(piece.path, error.kind, str(error))
                continue
            if batch.size >= BATCH_BYTES:
                yield from self._small(batches.pop(dialect), dialect, pieces)
        for dialect, batch in batches.items():
            yield from self._small(batch, dialect, pieces)

    def _dialect(self, path: str) -> Dialect:
        is_tabbed = path.lower().endswith(TABBED)
        return Dialect(self.settings.delimiter or ("\t" if is_tabbed else ","), self.settings.quote or None)

    def _small(self, batch: _Batch, dialect: Dialect, pieces: list[Piece]) -> Iterator[TableCells | ReadingFault]:
        found = tokenise(batch.files, dialect, self.settings.header)
        for place in np.flatnonzero(found.status != FINE).tolist():
            error = _fault(found, place, batch.files[place])
            yield ReadingFault(pieces[batch.pieces[place]].path, error.kind, str(error))
        yield _tables(batch.pieces, found)

    def _cells_of_portions(self, number: int, path: str, dialect: Dialect) -> Iterator[TableCells]:
        """Read a file in portions that end at records; the first one has the names."""
        width: int | None = None
        lines = 0
        for data in self._portions(path, dialect):
            text = _checked(data, self.settings.encoding, lines)
            found = tokenise([text], dialect, self.settings.header and width is None)
            if found.status[0] == EMPTY:
                lines += data.count(b"\n")
                continue
            if found.status[0] != FINE:
                raise _fault(found, 0, data, lines)
            if width is None:
                width = len(found.names)
            elif len(found.names) != width:
                raise _ragged(lines + 1, int(found.columns[0]), width)
            lines += data.count(b"\n")
            yield _tables([number], found)
        if width is None:
            raise _empty()

    def _portions(self, path: str, dialect: Dialect) -> Iterator[bytes]:
        decoder = codecs.getincrementaldecoder(self.settings.encoding)()
        is_utf8 = _is_utf8(self.settings.encoding)
        is_wide = codecs.lookup(self.settings.encoding).name in ("utf-16", "utf-32")
        kept, size, is_first = b"", 0, True
        try:
            with self.filesystem.open_input_stream(path, compression=packing_of(path)) as stream:
                while data := stream.read(max(BATCH_BYTES, len(kept))):
                    size += len(data)
                    if size > self.settings.max_table_bytes:
                        raise too_large(self.settings.max_table_bytes)
                    if is_first and is_wide and not data.startswith(_WIDE_BOMS):
                        decoder.setstate((b"", 0))  # the machine's own byte order, which small files are read in, too
                    kept += data if is_utf8 else decoder.decode(data).encode()
                    if is_first and kept.startswith(BOM):
                        kept = kept[len(BOM) :]
                    is_first = False
                    end = end_of_records(np.frombuffer(kept, np.uint8), dialect)
                    if end:
                        yield kept[:end]
                        kept = kept[end:]
                kept += b"" if is_utf8 else decoder.decode(b"", final=True).encode()
        except OSError as error:
            raise reading_error(error) from error
        except UnicodeError as error:
            raise _wrong_encoding(self.settings.encoding, error) from error
        if kept:
            yield kept


def _tables(pieces: list[int], found: CsvCells) -> TableCells:
    fine = found.status == FINE
    of_tables = np.array(pieces, np.int64)[fine]
    return TableCells.of_files(of_tables, found.rows[fine], found.columns[fine], found.names, found.cells)


def _is_utf8(encoding: str) -> bool:
    return codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")


def _as_utf8(data: bytes, encoding: str) -> bytes:
    """Give a file's text in UTF-8 without its byte order mark, for the tokeniser."""
    if not _is_utf8(encoding):
        try:
            data = data.decode(encoding).encode()
        except UnicodeError as error:
            raise _wrong_encoding(encoding, error) from error
    return _checked(data[len(BOM) :] if data.startswith(BOM) else data, encoding)


def _checked(data: bytes, encoding: str, lines_before: int = 0) -> bytes:
    if b"\0" in data:
        line = lines_before + data.count(b"\n", 0, data.index(b"\0")) + 1
        raise TableError(FaultKind.BINARY, f"line {line}: there is a NUL byte; is it text at all?")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise _wrong_encoding(encoding, error) from error
    return data


def _wrong_encoding(encoding: str, error: UnicodeError) -> TableError:
    return TableError(FaultKind.ENCODING, f"it is not {encoding} text: {error}")


def _fault(found: CsvCells, place: int, data: bytes, lines_before: int = 0) -> TableError:
    """Say what is wrong with a file that is not FINE."""
    status = int(found.status[place])
    if status == EMPTY:
        return _empty()
    line = lines_before + data.count(b"\n", 0, int(found.places[place])) + 1
    if status == RAGGED:
        return _ragged(line, int(found.rows[place]), int(found.columns[place]))
    return TableError(FaultKind.QUOTING, f"line {line}: broken quoting: {_BROKEN[status]}")


def _empty() -> TableError:
    return TableError(FaultKind.EMPTY, "there is no line in it, not even a header")


def _ragged(line: int, cells: int, columns: int) -> TableError:
    return TableError(FaultKind.RAGGED, f"line {line}: the row has {cells} cells, the first one has {columns}")

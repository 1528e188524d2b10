"""Own the reading of JSON lines, a table a line, in the form of the Dresden and the WDC web table corpora.

`relation` is a list of columns, each a list of cells; a `tableOrientation` of VERTICAL says that its attributes are the
rows. WDC's `hasHeader` and `headerRowIndex` say which row (of a vertical table: which column) has the names; where they
are not, Dresden's `headerPosition` does. Nothing else of a line counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.fs as pafs

from service.core.canonical_forms import document_text, parse_json, scalar_text
from service.core.corpus import CorpusSettings
from service.core.errors import first_line
from service.core.records import Flags, Int64s, Keys, starts_of
from spark_jobs.corpus_columns import CellTexts, default_names
from spark_jobs.corpus_index import CorpusIndex, DigestsByFile
from spark_jobs.corpus_tables import (
    BATCH_BYTES,
    FaultKind,
    FoundTables,
    Piece,
    PieceLines,
    ReadingFault,
    TableCells,
    TableError,
    packing_of,
    reading_error,
    too_large,
)

DIGEST_BYTES = 16
SEEK_BYTES = 64 << 10
"""How much is read at a time to find the first line of a piece."""


@dataclass(frozen=True, slots=True)
class KnownLines:
    """Name the lines of a piece whose digests the index knows, by their places in it from 1."""

    piece: int
    lines: Int64s
    digests: pa.Array


@dataclass(frozen=True, slots=True)
class Relation:
    """Hold a table: a name (or None) and the cells of each column."""

    names: Sequence[Any]
    columns: Sequence[Sequence[Any]]
    rows: int


class _Line(NamedTuple):
    """Hold a line that is to be read: its piece, its place in it from 1, and what it says."""

    path: str
    piece: int
    number: int
    digest: bytes
    text: bytes


@dataclass
class _Batch:
    """Gather the tables of lines: cells column after column."""

    tables: list[_Line] = field(default_factory=list)
    cells: list[Any] = field(default_factory=list)
    names: list[Any] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    size: int = 0

    def add(self, relation: Relation, line: _Line) -> None:
        for column in relation.columns:
            self.cells += column
        self.names += relation.names
        self.widths.append(len(relation.columns))
        self.rows.append(relation.rows)
        self.tables.append(line)
        self.size += len(line.text)


@dataclass(frozen=True, slots=True)
class JsonLines:
    """Read files of JSON lines, packed or not; what `index` knows of generation `previous` is not parsed."""

    filesystem: pafs.FileSystem
    root: str
    settings: CorpusSettings
    index: CorpusIndex | None = None
    previous: int | None = None

    def read(self, pieces: list[Piece]) -> Iterator[FoundTables | ReadingFault | KnownLines | PieceLines]:
        for found in self._read(pieces, self.index, self.previous):
            yield found.distinct(self.settings.null_tokens) if isinstance(found, TableCells) else found

    def cells(self, pieces: list[Piece]) -> Iterator[TableCells | ReadingFault | PieceLines]:
        for found in self._read(pieces, None, None):
            assert not isinstance(found, KnownLines)
            yield found

    def relations(self, path: str, lines: Sequence[int]) -> Iterator[tuple[int, Relation | TableError]]:
        """Read the tables of some lines of a file, from 1 and ascending, or why one is none; others are not parsed.

        Lines behind the file's end are left out. Raises TableError when the file cannot be read.
        """
        wanted, count = deque(lines), 0
        for texts in self._blocks(Piece(path, 0)):
            while wanted and wanted[0] <= count + len(texts):
                line = wanted.popleft()
                try:
                    yield line, read_relation(texts[line - count - 1], exact=True)
                except TableError as error:
                    yield line, error
            count += len(texts)
            if not wanted:
                return

    def _read(
        self, pieces: list[Piece], index: CorpusIndex | None, previous: int | None
    ) -> Iterator[TableCells | ReadingFault | KnownLines | PieceLines]:
        batch = _Batch()
        for number, piece in enumerate(pieces):
            known = None if index is None or previous is None else known_digests(index, previous, piece.path)
            count = 0
            try:
                for texts in self._blocks(piece):
                    digests = [blake2b(text, digest_size=DIGEST_BYTES).digest() for text in texts]
                    unknown = np.ones(len(texts), np.bool_)
                    if known is not None:
                        packed = b"".join(digests)
                        unknown = ~are_known(packed, known)
                        array = pa.FixedSizeBinaryArray.from_buffers(
                            pa.binary(DIGEST_BYTES), len(digests), [None, pa.py_buffer(packed)]
                        )
                        yield KnownLines(number, count + 1 + np.flatnonzero(~unknown), array.filter(pa.array(~unknown)))
                    lines = [
                        _Line(piece.path, number, count + place + 1, digests[place], texts[place])
                        for place in np.flatnonzero(unknown).tolist()
                        if texts[place]
                    ]
                    count += len(texts)
                    for line in lines:
                        try:
                            if len(line.text) > self.settings.max_table_bytes:
                                raise too_large(self.settings.max_table_bytes)
                            batch.add(read_relation(line.text), line)
                        except TableError as error:
                            yield ReadingFault(piece.path, error.kind, str(error), line.number, number)
                    if batch.size >= BATCH_BYTES:
                        yield from self._found(batch)
                        batch = _Batch()
            except TableError as error:
                yield ReadingFault(piece.path, error.kind, str(error))
            yield PieceLines(number, count)
        if batch.tables:
            yield from self._found(batch)

    def _found(self, batch: _Batch) -> Iterator[TableCells | ReadingFault]:
        try:
            texts, names = _texts(batch.cells), _texts(batch.names)
        except TableError:
            batch, faults = _reread(batch)
            yield from faults
            texts, names = _texts(batch.cells), _texts(batch.names)
        widths, rows = np.array(batch.widths, np.int64), np.array(batch.rows, np.int64)
        first = starts_of(widths)
        positions = np.arange(first[-1]) - np.repeat(first[:-1], widths)
        cells = CellTexts.of_array(texts, starts_of(np.repeat(rows, widths)))
        yield TableCells(
            np.array([table.piece for table in batch.tables], np.int64),
            rows,
            widths,
            default_names(names, positions),
            cells,
            np.array([table.number for table in batch.tables], np.int64),
            [table.digest for table in batch.tables],
        )

    def _blocks(self, piece: Piece) -> Iterator[list[bytes]]:
        """Yield the lines that begin in a piece, without their ends; raise TableError when the file cannot be read."""
        path = f"{self.root}/{piece.path}"
        try:
            if piece.start == 0:
                with self.filesystem.open_input_stream(path, compression=packing_of(path)) as stream:
                    yield from self._lines(stream, 0, piece.end)
            else:
                with self.filesystem.open_input_file(path) as file:
                    # The line that the byte before the piece is in belongs to the piece before.
                    place = piece.start - 1
                    file.seek(place)
                    while data := file.read(SEEK_BYTES):
                        found = data.find(b"\n") + 1
                        place += found or len(data)
                        if found:
                            break
                    file.seek(place)
                    yield from self._lines(file, place, piece.end)
        except OSError as error:
            raise reading_error(error) from error

    def _lines(self, stream: pa.NativeFile, place: int, end: int | None) -> Iterator[list[bytes]]:
        """Yield the lines that begin at `place` or later and before `end`, those of a block together.

        Of a line that has more bytes than a table may have, no more is kept than shows it.
        """
        rest, longest = b"", self.settings.max_table_bytes
        while end is None or place < end:
            data = stream.read(max(BATCH_BYTES, len(rest)))
            rest += data
            cut = rest.rfind(b"\n") + 1 if data else len(rest)
            if not cut:
                if not data:
                    return
                if len(rest) > longest:
                    place += len(rest)
                    beginning, found = rest[: longest + 1], 0
                    while not found and (data := stream.read(BATCH_BYTES)):
                        found = data.find(b"\n") + 1
                        place += found or len(data)
                    yield [beginning]
                    rest = data[found:]
                continue
            if end is not None and place + cut > end:
                cut = rest.find(b"\n", end - 1 - place) + 1 or cut
            lines = rest[:cut].split(b"\n")
            if not lines[-1]:
                lines.pop()  # what is behind the last line's end
            yield [line.rstrip(b"\r") for line in lines]
            place += cut
            rest = rest[cut:]


def read_relation(line: bytes, exact: bool = False) -> Relation:
    """Read the table of a line; raise TableError for what is none.

    Cells are texts and None; with `exact` other JSON values have become their canonical texts, without it they are
    whatever the parser made of them.
    """
    try:
        document: Any = parse_json(line.decode()) if exact else orjson.loads(line)
    except ValueError as error:
        raise TableError(FaultKind.MALFORMED, f"the line is no JSON: {first_line(error)}") from error
    relation = document.get("relation") if isinstance(document, dict) else None
    if not isinstance(relation, list) or not set(map(type, relation)) <= {list}:
        raise TableError(FaultKind.MALFORMED, "it has no list of columns that is named `relation`")
    if len(set(map(len, relation))) > 1:
        raise TableError(FaultKind.RAGGED, "the columns of its relation have not the same number of cells")
    if document.get("tableOrientation") == "VERTICAL":
        relation = [list(row) for row in zip(*relation, strict=True)]
    if not relation:
        raise TableError(FaultKind.EMPTY, "its relation has no column")
    if exact:
        relation = [[_text(cell) for cell in column] for column in relation]
    header = _header_place(document)
    rows = len(relation[0])
    if header is None:
        return Relation([None] * len(relation), relation, rows)
    if not 0 <= header < rows:
        raise TableError(FaultKind.MALFORMED, f"its header would be row {header}, and there are {rows}")
    names = [column.pop(header) for column in relation]
    return Relation(names, relation, rows - 1)


def _header_place(document: dict[str, Any]) -> Any:
    """Give the row of the names, None for no such row."""
    has_header = document.get("hasHeader")
    if has_header is None:
        has_header = document.get("headerPosition") in ("FIRST_ROW", "FIRST_COLUMN")
    if not has_header:
        return None
    place = document.get("headerRowIndex", 0)
    digits = str(place) if isinstance(place, int | str) else ""
    if len(digits) > 18 and digits.isdecimal():  # int() refuses thousands of digits
        raise TableError(FaultKind.MALFORMED, f"its header would be a row of {len(digits)} digits")
    return int(digits) if digits.isdecimal() else 0


def _text(cell: object) -> str | None:
    if cell is None or (isinstance(cell, str) and type(cell) is str):
        return cell
    try:
        return document_text(cell) if isinstance(cell, list | dict) else scalar_text(cell)
    except ValueError as error:
        raise TableError(FaultKind.MALFORMED, f"a cell has no text: {first_line(error)}") from error


def _texts(cells: list[Any]) -> pa.Array:
    """Make an array of texts; raise TableError when there is anything else among them, or a NUL character."""
    try:
        texts = pa.array(cells, pa.large_string())
    except (pa.ArrowException, TypeError) as error:
        raise TableError(FaultKind.MALFORMED, first_line(error)) from error
    data = texts.buffers()[2]
    if data is not None and not np.frombuffer(data, np.uint8).all():
        raise TableError(FaultKind.BINARY, "a cell has a NUL character, which no database can hold")
    return texts


@lru_cache(maxsize=1)
def _digests(index: CorpusIndex, generation: int) -> DigestsByFile:
    """Read them once for all files of a process: a generation's manifest does not change."""
    return index.digests(generation)


@lru_cache(maxsize=4)
def known_digests(index: CorpusIndex, generation: int, file: str) -> Keys:
    """Give the digests of the lines of a file that a generation has tables of, ascending and each once.

    They are kept for the next piece of the file.
    """
    keys = _digests(index, generation).of(file)
    keys = keys.take(keys.order())
    first = np.ones(len(keys.high), np.bool_)
    first[1:] = (keys.high[1:] != keys.high[:-1]) | (keys.low[1:] != keys.low[:-1])
    return keys.take(first)


def are_known(digests: bytes, known: Keys) -> Flags:
    """Mark the digests that are known."""
    halves = np.frombuffer(digests, ">u8").astype(np.uint64)
    high, low = halves[::2], halves[1::2]
    flags = np.zeros(len(high), np.bool_)
    if len(known.high):
        place = np.minimum(np.searchsorted(known.high, high), len(known.high) - 1)
        flags = (known.high[place] == high) & (known.low[place] == low)
    return flags


def _reread(batch: _Batch) -> tuple[_Batch, list[ReadingFault]]:
    """Read a batch anew, line by line and exactly: it has numbers, booleans, nested values, or NUL characters."""
    good, faults = _Batch(), []
    for line in batch.tables:
        try:
            relation = read_relation(line.text, exact=True)
            _texts([cell for column in (relation.names, *relation.columns) for cell in column])
        except TableError as error:
            faults.append(ReadingFault(line.path, error.kind, str(error), line.number, line.piece))
            continue
        good.add(relation, line)
    return good, faults

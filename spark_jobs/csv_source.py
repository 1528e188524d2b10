"""Own CSV sources: folders of files read in byte ranges that never tear a record, and what is wrong with a file.

A first pass counts the quotes of each range, so that a range knows whether it begins inside quotes. A record belongs
to the range that its first byte is in; its reader reads on to the record's end.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.fs as pafs

from service.core.errors import SourceError
from service.core.exclusion import not_excluded
from spark_jobs.arrow_csv import parse_texts
from spark_jobs.csv_text import (
    NEVER_CLOSED,
    Bytes,
    Dialect,
    broken_quote,
    column_at,
    count_quotes,
    end_of_line,
    end_of_record,
    ragged_record,
    split_record,
)
from spark_jobs.hadoop_files import absolute, hadoop_settings
from spark_jobs.sources import (
    Fault,
    Options,
    ParallelMap,
    SourceTable,
    Split,
    changed_files,
    find_file_system,
    refuse_changed,
    table_files,
    unique_names,
)

ENDINGS = (".csv", ".tsv", ".txt")
LOOK_AHEAD_BYTES = 64 << 10
"""How far a range reads beyond its end at first, to find the end of its last record."""
RECORD_BYTES = 1 << 30
"""What a record may have: no block of Arrow's is larger."""
COUNTED_BYTES = 16 << 20
"""How much is read at a time to count the lines before a fault."""
ENDLESS = "the record has no end within 1 GiB. Close its quote, or name another --quote"
BOM = b"\xef\xbb\xbf"
_NUMBER_OR_MOMENT = re.compile(
    r"\s*([+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?"
    r"|\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?\s?(Z|[+-]\d\d(:?\d\d)?)?)?)\s*",
    re.ASCII | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class FileRange:
    """Name a byte range of a file; `*_quoted` say whether its first byte, and the byte after it, are inside quotes.

    A whole file (a small one, or one in an encoding whose bytes cannot be cut anywhere) has `end` None. The first
    range of a file begins at a record.
    """

    path: str
    start: int
    end: int | None
    is_first: bool = True
    start_quoted: bool = False
    end_quoted: bool = False


class CsvFault(SourceError):
    """A fault at a byte of a file; it is told by `CsvReader.told`."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class CsvReader:
    """Read ranges of CSV files as tables of texts; picklable."""

    def __init__(
        self, location: str, dialect: Dialect, encoding: str, has_header: bool, columns: list[list[str]]
    ) -> None:
        self.location = location
        self.dialect = dialect
        self.encoding = encoding
        self.has_header = has_header
        self.columns = columns
        self.hadoop = hadoop_settings()  # the driver's, also where tasks run
        self._filesystem: pafs.FileSystem | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_filesystem": None}

    @property
    def filesystem(self) -> pafs.FileSystem:
        if self._filesystem is None:
            self._filesystem, _ = find_file_system(self.location, self.hadoop)
        return self._filesystem

    def read(self, split: Split) -> Iterator[pa.Table]:
        try:
            yield from self._read(split)
        except CsvFault as error:
            raise SourceError(self.told(error.fault)) from error

    def check(self, split: Split) -> Fault | None:
        try:
            for _ in self._read(split):
                pass
        except CsvFault as error:
            return error.fault
        except SourceError as error:
            return Fault(split.detail.path, 0, str(error))
        return None

    def told(self, fault: Fault) -> str:
        if not fault.lacks_line:
            return fault.message
        return f"{fault.place}, line {self._line(fault.place, fault.offset)}{fault.message}"

    def _read(self, split: Split) -> Iterator[pa.Table]:
        data, offset = self._bytes(split.detail)
        if len(data):
            yield self._parse(data, offset, split)

    def place(self, split: Split) -> str:
        return str(split.detail.path)

    def header(self, path: str) -> tuple[list[str], int]:
        """Return the cells of the first record and where the data begins (0 when there is no header in the file).

        Raises SourceError for a file without any record.
        """
        try:
            return self._header(path)
        except CsvFault as error:
            raise SourceError(self.told(error.fault)) from error

    def _header(self, path: str) -> tuple[list[str], int]:
        size = 1 << 16
        while True:
            raw = bytes(self._slice(path, 0, size))
            is_whole = len(raw) < size
            text = self._decoded(raw, path, is_whole) if self._must_be_whole else raw
            start = len(BOM) if text.startswith(BOM) else 0
            data = np.frombuffer(text, np.uint8)
            while start < len(data) and data[start] in (10, 13):  # blank lines are no records
                start += 1
            end = end_of_line(data, start, self.dialect)
            if end >= 0 or is_whole or self._is_broken(data[start:]):
                break
            if size >= RECORD_BYTES:
                self._fail(path, start, ENDLESS)
            size *= 4
        end = len(text) if end < 0 else end
        record = text[start:end].rstrip(b"\r\n")
        if not record:
            self._fail(
                path, 0, "the file has no header: it is empty. Remove it, give it a header, or --exclude its table"
            )
        if b"\0" in record:
            self._fail(path, start + record.index(0), "there is a NUL byte; is it CSV at all? Remove the byte")
        fault = broken_quote(np.frombuffer(record, np.uint8), self.dialect)
        if fault:
            self._fail(path, start + fault[0], f"broken quoting: {fault[1]}. Mend it, or name another --quote")
        try:
            cells = split_record(record, self.dialect, "utf-8" if self._must_be_whole else self.encoding)
        except ValueError as error:
            self._fail(path, start, f"the first record cannot be read as {self.encoding}: {error}. Name its --encoding")
        return cells, end if self.has_header else start

    @property
    def _must_be_whole(self) -> bool:
        return not is_ascii_based(self.encoding)

    def _slice(self, path: str, start: int, end: int | None) -> bytes | pa.Buffer:
        try:
            with self.filesystem.open_input_file(path) as file:
                length = (file.size() if end is None else min(end, file.size())) - start
                if length < 0:
                    raise SourceError(
                        f"{path}: the file became shorter while it was read. Bootstrap it when it is at rest."
                    )
                if start:
                    file.seek(start)
                return file.read_buffer(length) if start or end is None or length > 1 << 20 else file.read(length)
        except OSError as error:
            raise SourceError(
                f"{path}: the file cannot be read: {error}. Make it readable, or leave it out."
            ) from error

    def _decoded(self, raw: bytes | pa.Buffer, path: str, is_whole: bool = True) -> bytes:
        decoder = codecs.getincrementaldecoder(self.encoding)()  # a character may be torn where a beginning ends
        try:
            return decoder.decode(bytes(raw), is_whole).encode()
        except UnicodeError as error:  # a text without the mark that UTF-16 begins with has no place
            start = getattr(error, "start", 0)
            message = f"{path}, byte {start}: this is not {self.encoding} text. Name its --encoding."
            raise CsvFault(Fault(path, start, message)) from error

    def _bytes(self, part: FileRange) -> tuple[Bytes, int]:
        """Return the whole records of a range, and the offset at which they begin."""
        if part.end is None:
            raw = self._slice(part.path, 0 if self._must_be_whole else part.start, None)
            if self._must_be_whole:
                return np.frombuffer(self._decoded(raw, part.path), np.uint8)[part.start :], part.start
            return np.frombuffer(raw, np.uint8), part.start
        # Both ends are looked for from the byte before them: a record may end exactly there.
        first = part.start if part.is_first else part.start - 1
        last = part.end - 1 - first
        look_ahead, start = LOOK_AHEAD_BYTES, 0
        while True:
            data = np.frombuffer(self._slice(part.path, first, part.end + look_ahead), np.uint8)
            if len(data) <= last:
                raise SourceError(
                    f"{part.path}: the file became shorter while it was read. Bootstrap it when it is at rest."
                )
            if not part.is_first:
                before = self._before(data[0], part.start_quoted)
                start = end_of_record(data[: last + 1], 0, before, self.dialect)
                if not 0 <= start <= last:  # no record begins here: nothing is to be read behind it
                    return data[:0], part.start
            end = end_of_record(data, last, self._before(data[last], part.end_quoted), self.dialect)
            if end >= 0 or len(data) < part.end + look_ahead - first or self._is_broken(data[start:]):
                break
            if look_ahead >= RECORD_BYTES:
                self._fail(part.path, first + last, ENDLESS)
            look_ahead = min(8 * look_ahead, RECORD_BYTES)
        return data[start : len(data) if end < 0 else end], first + start

    def _is_broken(self, data: Bytes) -> bool:
        """Tell whether a quote is where none may be, as is told of it then: to read on for an end would be in vain."""
        fault = broken_quote(data, self.dialect)
        return fault is not None and fault[1] != NEVER_CLOSED

    def _before(self, byte: np.uint8, is_quoted: bool) -> bool:
        """Tell whether the place before a byte is inside quotes, when it is known of the place after it."""
        return is_quoted ^ bool(byte == self.dialect.quote_byte)

    def _parse(self, data: Bytes, offset: int, split: Split) -> pa.Table:
        path, names = split.detail.path, self.columns[split.table]
        buffer = pa.py_buffer(data)
        if not data.min():
            message = "there is a NUL byte, which no database can hold. Remove it"
            self._fail_in(data, int(data.argmin()), offset, path, names, message)
        fault = broken_quote(data, self.dialect)
        if fault:
            message = f"broken quoting: {fault[1]}. Write a quote inside a quoted cell twice, or name another --quote"
            self._fail_in(data, fault[0], offset, path, names, message)
        if self.encoding != "utf-8" and not self._must_be_whole:
            try:
                buffer = pa.py_buffer(data.tobytes().decode(self.encoding).encode())
            except UnicodeDecodeError as wrong:
                self._fail_text(wrong, data, offset, path, names)
        options = pacsv.ParseOptions(
            delimiter=self.dialect.delimiter,
            quote_char=self.dialect.quote or False,
            newlines_in_values=self.dialect.quote is not None,
        )
        try:
            return parse_texts(buffer, len(names), options)
        except pa.ArrowInvalid as error:
            self._explain(error, data, offset, path, names)

    def _explain(self, error: pa.ArrowInvalid, data: Bytes, offset: int, path: str, names: list[str]) -> NoReturn:
        """Raise the SourceError that says what Arrow's error was about."""
        ragged = ragged_record(data, len(names), self.dialect)
        if ragged:
            place, cells = ragged
            message = (
                f"the row has {cells} cells, its table has {len(names)} columns. "
                "Mend the row, or name the --delimiter and --quote that the file has"
            )
            self._fail(path, offset + place, message)
        try:
            data.tobytes().decode("utf-8")
        except UnicodeDecodeError as wrong:
            self._fail_text(wrong, data, offset, path, names)
        self._fail(path, offset, f"the part of the file from here on cannot be read: {error}")

    def _fail_text(self, wrong: UnicodeDecodeError, data: Bytes, offset: int, path: str, names: list[str]) -> NoReturn:
        message = f"byte 0x{data[wrong.start]:02x} is not {self.encoding} text. Name the file's --encoding"
        self._fail_in(data, wrong.start, offset, path, names, message)

    def _fail_in(self, data: Bytes, place: int, offset: int, path: str, names: list[str], message: str) -> NoReturn:
        """Raise a CsvFault that names the column as well, of a place in records that begin at `offset`."""
        column = column_at(data, place, self.dialect)
        where = f", column {names[column]!r}" if column < len(names) else f", column {column + 1}"
        self._fail(path, offset + place, message, where)

    def _fail(self, path: str, offset: int, message: str, where: str = "") -> NoReturn:
        """Raise a CsvFault of a byte of a file, and where in its line that is."""
        raise CsvFault(Fault(path, offset, f"{where}: {message}.", lacks_line=True))

    def _line(self, path: str, offset: int) -> int:
        """Count up to a byte, in portions: a file may be larger than the memory."""
        if self._must_be_whole:
            return self._decoded(self._slice(path, 0, None), path)[:offset].count(b"\n") + 1
        starts = range(0, offset, COUNTED_BYTES)
        return 1 + sum(
            bytes(self._slice(path, start, min(start + COUNTED_BYTES, offset))).count(b"\n") for start in starts
        )


class CsvSource:
    """Be a folder of CSV files: one table for each file, or for each sub-folder of part files."""

    kind = "csv"
    snapshot = None

    def __init__(self, options: Options) -> None:
        self.location = absolute(options.source)  # as it is kept: others ask for it from other folders
        self.settings = options.settings()
        self._check_options(options)
        filesystem, root = find_file_system(options.source)
        found = table_files(filesystem, root, ENDINGS)
        left = not_excluded(((options.name, table) for table in found), options.exclude)
        self.names = [table for _, table in left]
        self.files = [found[name] for name in self.names]
        endings = {file.extension.lower() for files in self.files for file in files}
        delimiter = options.delimiter or ("\t" if endings == {"tsv"} else ",")
        self._reader = CsvReader(
            self.location,
            Dialect(delimiter, options.quote or None),
            _codec(options.encoding),
            options.header,
            [],
        )
        self.heads: dict[str, tuple[int, int]] = {}
        """A hash of the cells of each file's first record, and where its data begins."""
        self.warnings: list[str] = []
        self._tables = [
            self._table(options.name, name, files) for name, files in zip(self.names, self.files, strict=True)
        ]
        self._reader.columns = [[column for column, _ in table.columns] for table in self._tables]

    def tables(self) -> list[SourceTable]:
        return self._tables

    def reader(self) -> CsvReader:
        return self._reader

    def confirm(self) -> None:
        """Raise SourceError when a file was written anew, as far as its first record or its length tell.

        One that has grown is taken as it was read.
        """
        changed = changed_files(self.location, ENDINGS, (file for files in self.files for file in files))
        refuse_changed([was.path for was, now in changed if now.size < was.size or self._begins_anew(was.path)])

    def _begins_anew(self, path: str) -> bool:
        try:
            cells, start = self._reader.header(path)
        except SourceError:
            return True
        return (hash(tuple(cells)), start) != self.heads[path]

    def close(self) -> None:
        """Hold nothing open."""

    def splits(self, target: int, parallel: ParallelMap[Any, Any]) -> list[Split]:
        splits: list[Split] = []
        ranges: list[tuple[int, FileRange]] = []
        for table, files in enumerate(self.files):
            for file in files:
                (_, start), size = self.heads[file.path], file.size
                if size - start <= target or not is_ascii_based(self._reader.encoding):
                    splits.append(Split(table, size - start, FileRange(file.path, start, None)))
                    continue
                parts = -(-(size - start) // target)
                bounds = [start + (size - start) * i // parts for i in range(parts + 1)]
                ranges += [
                    (table, FileRange(file.path, low, high, low == start)) for low, high in itertools.pairwise(bounds)
                ]
        quotes = parallel(_QuoteCount(self._reader), [part for _, part in ranges])
        quoted, path = False, None
        for (table, part), found in zip(ranges, quotes, strict=True):
            if part.path != path:
                quoted, path = False, part.path
            after = quoted ^ bool(found % 2)
            size = (part.end or 0) - part.start
            splits.append(Split(table, size, replace(part, start_quoted=quoted, end_quoted=after)))
            quoted = after
        return splits

    def _table(self, schema: str, name: str, files: list[pafs.FileInfo]) -> SourceTable:
        first: list[str] | None = None
        for file in files:
            cells, start = self._reader.header(file.path)
            self.heads[file.path] = hash(tuple(cells)), start
            if not self._reader.has_header:
                cells = [f"column_{i + 1}" for i in range(len(cells))]
            if first is not None and cells != first:
                raise SourceError(
                    f"{file.path}: its header differs from that of {files[0].path}, another part of the table "
                    f"{schema}.{name}. Parts of a table must have equal headers; move the file to a folder of its own."
                )
            if first is None and self._reader.has_header and is_like_data(cells):
                shown = ", ".join(cells)
                self.warnings.append(
                    f"{file.path}: its first row was taken as the header, but holds only numbers or dates: "
                    f"{shown if len(shown) <= 60 else shown[:60] + '...'}. If it is data, bootstrap again with "
                    "--no-header, which holds for all files; if these are names, ignore this."
                )
            first = cells
        return SourceTable(schema, name, tuple((column, "string") for column in unique_names(first or [])))

    @staticmethod
    def _check_options(options: Options) -> None:
        for option, text in (("--delimiter", options.delimiter), ("--quote", options.quote)):
            if text and (len(text) != 1 or ord(text) > 127 or text in "\r\n"):
                raise SourceError(f"{option} {text!r}: it must be one ASCII character.")
        if options.delimiter and options.delimiter == options.quote:
            raise SourceError(f"--delimiter and --quote are both {options.quote!r}: they must differ.")


class _QuoteCount:
    """Count the quotes of a range; picklable."""

    def __init__(self, reader: CsvReader) -> None:
        self.reader = reader

    def __call__(self, part: FileRange) -> int:
        data = self.reader._slice(part.path, part.start, part.end)
        return count_quotes(np.frombuffer(data, np.uint8), self.reader.dialect)


def is_like_data(header: list[str]) -> bool:
    """Tell whether a header may be a row of data: each cell that is not empty is a number, an ISO date or timestamp."""
    cells = [cell for cell in header if cell.strip()]
    return bool(cells) and all(_NUMBER_OR_MOMENT.fullmatch(cell) for cell in cells)


def is_ascii_based(encoding: str) -> bool:
    """Tell whether text in this encoding can be cut at ASCII bytes: UTF-8, or one byte a character with ASCII in it."""
    if encoding == "utf-8":
        return True
    ascii_bytes = bytes(range(128))
    try:
        return (
            ascii_bytes.decode(encoding) == ascii_bytes.decode("ascii")
            and len(bytes(range(128, 256)).decode(encoding, "replace")) == 128
            and all(len(bytes([b, 65]).decode(encoding, "replace")) == 2 for b in range(128, 256))
        )
    except UnicodeError:
        return False


def _codec(encoding: str) -> str:
    try:
        name = codecs.lookup(encoding).name
        bytes(4).decode(name)  # Python has codecs that are of no texts; these bytes are some in each that is
    except (LookupError, UnicodeError):
        raise SourceError(f"--encoding {encoding}: there is no such encoding. Give one that Python knows.") from None
    return "utf-8" if re.fullmatch(r"utf-8(-sig)?", name) else name

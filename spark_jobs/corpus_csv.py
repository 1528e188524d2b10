"""Own the cells of CSV: one pass over the bytes of many files at once, instead of a parser for each of them.

The rules are the bootstrap's: RFC 4180; records end with LF, CRLF or CR; a quote opens a cell at its beginning only;
blank lines are no records; an empty cell is NULL unless it is quoted. A file that breaks them is a fault, whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from service.core.compiled import kernel
from service.core.records import Int64s, starts_of
from spark_jobs.corpus_columns import Bytes, CellTexts, default_names, gather_texts
from spark_jobs.csv_text import Dialect

FINE, EMPTY, RAGGED, STRAY_QUOTE, AFTER_QUOTE, OPEN_QUOTE = range(6)
"""What a file can be; the last three are broken quoting."""

_NEWLINE, _RETURN = 10, 13


@dataclass(frozen=True, slots=True)
class CsvCells:
    """Hold what n files are: `status`, and the byte of the file that it is about. Cells are those of FINE files.

    `rows` (a header is none) and `columns` are int64[n], 0 for all others; of a RAGGED file they are how many cells the
    record at `places` has, and how many the first one has. `names` lie end to end, the columns' cells likewise.
    """

    status: Int64s
    places: Int64s
    rows: Int64s
    columns: Int64s
    names: pa.Array
    cells: CellTexts


def tokenise(files: Sequence[bytes | pa.Buffer], dialect: Dialect, has_header: bool) -> CsvCells:
    """Find the cells of files in UTF-8 without NUL and without byte order marks."""
    buffer = np.concatenate([np.zeros(0, np.uint8), *(np.frombuffer(data, np.uint8) for data in files)])
    bounds = starts_of(np.array([len(data) for data in files], np.int64))
    status, places, rows, columns, starts, ends = _tokenise(buffer, bounds, ord(dialect.delimiter), dialect.quote_byte)
    fine = status == FINE
    header = int(has_header)
    rows[fine] -= header
    fine_rows, fine_columns = rows[fine], columns[fine]
    name_starts, name_ends, starts, ends = _by_column(starts, ends, fine_rows, fine_columns, header)
    first = starts_of(fine_columns)
    positions = np.arange(first[-1]) - np.repeat(first[:-1], fine_columns)
    return CsvCells(
        status,
        places - bounds[:-1],
        rows,
        columns,
        default_names(gather_texts(buffer, name_starts, name_ends), positions),
        CellTexts(buffer, starts, ends, starts_of(np.repeat(fine_rows, fine_columns))),
    )


def end_of_records(data: Bytes, dialect: Dialect) -> int:
    """Give the place behind the last record that is whole in the data, which begins at a record; 0 if none is."""
    return int(_end_of_records(data, dialect.quote_byte))


@kernel
def _end_of_records(data: Bytes, quote: int) -> int:
    end, quoted = 0, False
    for i in range(len(data)):
        if data[i] == quote:
            quoted = not quoted
        elif data[i] == _NEWLINE and not quoted:
            end = i + 1
    return end


@kernel
def _tokenise(
    data: Bytes, bounds: Int64s, delimiter: int, quote: int
) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s, Int64s]:
    """Give status, place, rows, columns of each file, and the cells of fine ones, row by row: starts (-1: NULL), ends.

    Two quotes inside a quoted cell become one in `data`, where the cell's bytes move together.
    """
    files = len(bounds) - 1
    status, places = np.zeros(files, np.int64), np.zeros(files, np.int64)
    rows, columns = np.zeros(files, np.int64), np.zeros(files, np.int64)
    most = files
    for byte in data:
        most += byte in (delimiter, _NEWLINE, _RETURN)
    starts, ends = np.empty(most, np.int64), np.empty(most, np.int64)
    total = 0
    for file in range(files):
        i, end = bounds[file], bounds[file + 1]
        count, width, records, of_record, record = total, 0, 0, 0, i
        found, place = FINE, i
        while found == FINE and (i < end or of_record > 0):
            if of_record == 0:
                if data[i] == _NEWLINE or data[i] == _RETURN:
                    i += 1
                    continue
                record = i
            start = i
            if i < end and data[i] == quote:
                start += 1
                to, i = start, start
                found, place = OPEN_QUOTE, start - 1
                while i < end:
                    if data[i] == quote:
                        i += 1
                        if i == end or data[i] != quote:
                            found = FINE
                            break
                    data[to] = data[i]
                    to += 1
                    i += 1
                if found == FINE and i < end and data[i] != delimiter and data[i] != _NEWLINE and data[i] != _RETURN:
                    found, place = AFTER_QUOTE, i
                starts[count], ends[count] = start, to
            else:
                while i < end and data[i] != delimiter and data[i] != _NEWLINE and data[i] != _RETURN:
                    if data[i] == quote and found == FINE:
                        found, place = STRAY_QUOTE, i
                    i += 1
                starts[count], ends[count] = start if i > start else -1, i
            count += 1
            of_record += 1
            if i < end and data[i] == delimiter:
                i += 1
                continue
            i += 1
            width = of_record if records == 0 else width
            if found == FINE and of_record != width:
                found, place, records = RAGGED, record, of_record
                break
            records += 1
            of_record = 0
        if found == FINE and records == 0:
            found = EMPTY
        status[file], places[file] = found, place
        if found in (FINE, RAGGED):
            rows[file], columns[file] = records, width
        if found == FINE:
            total = count
    return status, places, rows, columns, starts[:total], ends[:total]


@kernel
def _by_column(
    starts: Int64s, ends: Int64s, rows: Int64s, columns: Int64s, header: int
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Lay the cells of files column after column; the names, first cells where there is a header, come apart."""
    names = columns.sum()
    name_starts, name_ends = np.zeros(names, np.int64), np.zeros(names, np.int64)
    out_starts, out_ends = (
        np.empty(len(starts) - header * names, np.int64),
        np.empty(len(starts) - header * names, np.int64),
    )
    at, to, name = 0, 0, 0
    for file in range(len(rows)):
        width, height = columns[file], rows[file]
        for column in range(width * header):
            if starts[at + column] >= 0:
                name_starts[name + column], name_ends[name + column] = starts[at + column], ends[at + column]
        name += width
        at += width * header
        for row in range(height):
            for column in range(width):
                cell = at + row * width + column
                out_starts[to + column * height + row] = starts[cell]
                out_ends[to + column * height + row] = ends[cell]
        at += width * height
        to += width * height
    return name_starts, name_ends, out_starts, out_ends

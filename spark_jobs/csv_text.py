"""Own CSV text as bytes: where records end, what is broken in it, and what line a fault is in.

Everything works on byte offsets of UTF-8 text (or of an encoding that has ASCII's bytes for ASCII's characters and
nothing else). Quoting is RFC 4180's: a quote opens a cell at its beginning only, and two quotes inside mean one.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from service.core.compiled import kernel
from service.core.csv_lines import csv_reader

Bytes = NDArray[np.uint8]

NEVER_CLOSED = "a quote is opened and never closed"
_NEWLINE, _RETURN = 10, 13


@dataclass(frozen=True, slots=True)
class Dialect:
    """Hold how cells and records are set apart; `quote` is None when no character quotes."""

    delimiter: str = ","
    quote: str | None = '"'

    @property
    def quote_byte(self) -> int:
        """Give the quote's byte, or -1."""
        return ord(self.quote) if self.quote else -1


def count_quotes(data: Bytes, dialect: Dialect) -> int:
    """Count the bytes that are quotes."""
    return int(np.count_nonzero(data == dialect.quote_byte)) if dialect.quote else 0


def end_of_record(data: Bytes, start: int, is_quoted: bool, dialect: Dialect) -> int:
    """Return the place after the first newline outside quotes at or after `start`, or -1 when there is none."""
    return int(_end_of_record(data, start, is_quoted, dialect.quote_byte))


@kernel
def _end_of_record(data: Bytes, start: int, is_quoted: bool, quote: int) -> int:
    for i in range(start, len(data)):
        if data[i] == quote:
            is_quoted = not is_quoted
        elif data[i] == _NEWLINE and not is_quoted:
            return i + 1
    return -1


def end_of_line(data: Bytes, start: int, dialect: Dialect) -> int:
    r"""Return the place after the first \n, \r or \r\n outside quotes at or after `start`, or -1.

    A \r at the end of the data is none: what is behind it may belong to it.
    """
    return int(_end_of_line(data, start, dialect.quote_byte))


@kernel
def _end_of_line(data: Bytes, start: int, quote: int) -> int:
    is_quoted = False
    for i in range(start, len(data)):
        if data[i] == quote:
            is_quoted = not is_quoted
        elif data[i] == _NEWLINE and not is_quoted:
            return i + 1
        elif data[i] == _RETURN and not is_quoted and i + 1 < len(data):
            return i + 2 if data[i + 1] == _NEWLINE else i + 1
    return -1


def broken_quote(data: Bytes, dialect: Dialect) -> tuple[int, str] | None:
    """Return the place of the first quote that may not be where it is and what is wrong, or None.

    `data` must begin at a record. A quote opens at the start of a cell, and closes at its end.
    """
    if dialect.quote is None:
        return None
    quote, delimiter = dialect.quote_byte, ord(dialect.delimiter)
    places = np.flatnonzero(data == quote)
    opening, closing = places[::2], places[1::2]
    before = data[opening - 1]
    good = (before == delimiter) | (before == _NEWLINE) | (before == _RETURN) | (before == quote) | (opening == 0)
    after = data[np.minimum(closing + 1, len(data) - 1)] if len(data) else closing
    ends = (
        (after == delimiter) | (after == _NEWLINE) | (after == _RETURN) | (after == quote) | (closing + 1 == len(data))
    )
    wrong = [
        (int(opening[i]), "a quote stands inside a cell that is not quoted") for i in np.flatnonzero(~good)[:1]
    ] + [(int(closing[i]), "there is text after a cell's closing quote") for i in np.flatnonzero(~ends)[:1]]
    if wrong:
        return min(wrong)
    if len(places) % 2:
        return int(places[-1]), NEVER_CLOSED
    return None


def ragged_record(data: Bytes, columns: int, dialect: Dialect) -> tuple[int, int] | None:
    """Return (place, number of cells) of the first record that has not `columns` cells; blank lines are none."""
    place, cells = _ragged_record(data, columns, ord(dialect.delimiter), dialect.quote_byte)
    return (int(place), int(cells)) if place >= 0 else None


@kernel
def _ragged_record(data: Bytes, columns: int, delimiter: int, quote: int) -> tuple[int, int]:
    start, cells, is_quoted = 0, 1, False
    for i in range(len(data) + 1):
        is_end = i == len(data)
        byte = _NEWLINE if is_end else data[i]
        if byte == quote and not is_end:
            is_quoted = not is_quoted
        elif is_quoted and not is_end:
            continue
        elif byte == delimiter:
            cells += 1
        elif byte in (_NEWLINE, _RETURN):
            if cells != columns and i > start:
                return start, cells
            start, cells = i + 1, 1
    return -1, 0


def split_record(record: bytes, dialect: Dialect, encoding: str) -> list[str]:
    """Return the cells of one record; raise ValueError for bytes that are no text or no record."""
    text = io.StringIO(record.decode(encoding), newline="")
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if dialect.quote else csv.QUOTE_NONE
    try:
        return next(csv_reader(text, delimiter=dialect.delimiter, quotechar=dialect.quote, quoting=quoting), [])
    except csv.Error as error:
        raise ValueError(str(error)) from error


def column_at(data: Bytes, offset: int, dialect: Dialect) -> int:
    """Return the number of the column, from 0, that `offset` is in; `data` begins at a record."""
    return int(_column_at(data, offset, ord(dialect.delimiter), dialect.quote_byte))


@kernel
def _column_at(data: Bytes, offset: int, delimiter: int, quote: int) -> int:
    column, is_quoted = 0, False
    for i in range(offset):
        byte = data[i]
        if byte == quote:
            is_quoted = not is_quoted
        elif not is_quoted and byte == delimiter:
            column += 1
        elif not is_quoted and byte == _NEWLINE:
            column = 0
    return column

"""Own CSV as Python's module has it: lines in which every cell is read as it was, a reader of cells of any length."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _csv import Reader


def csv_lines(rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Give each row as a line of CSV (RFC 4180, but it ends with a line feed alone); None is an empty cell."""
    out = io.StringIO()
    # A lone carriage return in a cell is quoted only by a writer whose own lines end with one.
    writer = csv.writer(out, lineterminator="\r\n")
    for row in rows:
        writer.writerow(row)
        yield out.getvalue()[:-2] + "\n"
        out.seek(0)
        out.truncate()


def csv_reader(lines: Iterable[str], **dialect: Any) -> Reader:
    """Give Python's reader of these lines, without its bound of 131,072 characters on a cell."""
    csv.field_size_limit(sys.maxsize)
    return csv.reader(lines, **dialect)

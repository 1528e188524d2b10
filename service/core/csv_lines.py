"""Own the writing of CSV: lines that end with a line feed alone, in which every cell is read as it was."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any


def csv_lines(rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Give each row as a line of CSV (RFC 4180, but for the line's end); None is an empty cell."""
    out = io.StringIO()
    # A lone carriage return in a cell is quoted only by a writer whose own lines end with one.
    writer = csv.writer(out, lineterminator="\r\n")
    for row in rows:
        writer.writerow(row)
        yield out.getvalue()[:-2] + "\n"
        out.seek(0)
        out.truncate()

"""Own the reading of some rows of a corpus' files, for who wants to see them: no Spark, and by the rules of refreshes.

    python -m spark_jobs.corpus_rows < {"location": ..., "kind": ..., "settings": ..., "wanted": ...}

`wanted` is {PATH: [ROW, ...]}. Prints {PATH: {"rows": {ROW: [CELL, ...]}} or {"fault": WHY}}. Rows count from 0.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from service.core.corpus import CorpusKind, CorpusSettings
from service.core.errors import SourceError, SubsetdError
from spark_jobs.corpus_csv_files import CsvFiles
from spark_jobs.corpus_files import corpus_root
from spark_jobs.corpus_tables import LargeTable, Piece, ReadingFault, TableCells, TableError, TableReader
from spark_jobs.hadoop_files import hadoop_settings


def read_rows(
    kind: CorpusKind, location: str, settings: CorpusSettings, path: str, rows: Sequence[int]
) -> dict[int, list[str | None]]:
    """Read rows of a table, ascending by their numbers; those that it does not have are left out.

    A large file is read up to the last of them. Raises SubsetdError and TableError where it cannot be read.
    """
    files = _files(kind, location, settings)
    size = files.filesystem.get_file_info(f"{files.root}/{path}").size
    found: dict[int, list[str | None]] = {}
    first = 0
    for cells in _portions(files, Piece(path, size or 0)):
        height, width = int(cells.rows[0]), int(cells.widths[0])
        for row in rows:
            if first <= row < first + height:
                found[row] = [_cell(cells, column * height + row - first) for column in range(width)]
        first += height
        if first > rows[-1]:
            break
    return found


def _files(kind: CorpusKind, location: str, settings: CorpusSettings) -> Any:
    if kind is CorpusKind.CSV:
        return CsvFiles(*corpus_root(location, hadoop_settings()), settings)
    if kind is CorpusKind.PARQUET:
        from spark_jobs.corpus_arrow import (
            ParquetFiles,
        )  # with it comes what reads databases: half of all that is loaded

        return ParquetFiles(*corpus_root(location, hadoop_settings()), settings)
    raise SourceError(f"rows of a corpus of kind {kind} are not shown, only of CSV and Parquet")


def _portions(files: TableReader, piece: Piece) -> Iterator[TableCells]:
    for found in files.cells([piece]):
        match found:
            case TableCells() if len(found.pieces):
                yield found
            case LargeTable():
                yield from found.portions
            case ReadingFault():
                raise TableError(found.kind, found.message)


def _cell(cells: TableCells, place: int) -> str | None:
    start, end = int(cells.cells.starts[place]), int(cells.cells.ends[place])
    return None if start < 0 else bytes(cells.cells.data[start:end]).decode()


def main() -> int:
    """Read what standard input asks for. Exit code 0, also where a table cannot be read."""
    asked = json.load(sys.stdin)
    settings = CorpusSettings.from_json(asked["settings"])
    told: dict[str, Any] = {}
    for path, rows in asked["wanted"].items():
        try:
            told[path] = {"rows": read_rows(CorpusKind(asked["kind"]), asked["location"], settings, path, rows)}
        except (TableError, SubsetdError) as error:
            told[path] = {"fault": str(error)}
    json.dump(told, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Own the reading of some rows of a corpus' files, for who wants to see them: no Spark, and by the rules of refreshes.

    python -m spark_jobs.corpus_rows < {"location": ..., "kind": ..., "settings": ..., "wanted": ...}

`wanted` is {PATH: [ROW, ...]}. Prints {PATH: {"rows": {ROW: [CELL, ...]}} or {"fault": WHY}}. Rows count from 0.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow.fs as pafs

from service.core.corpus import CorpusKind, CorpusSettings
from service.core.errors import SubsetdError
from spark_jobs.corpus_csv_files import CsvFiles
from spark_jobs.corpus_files import corpus_root
from spark_jobs.corpus_tables import (
    FaultKind,
    LargeTable,
    Piece,
    ReadingFault,
    TableCells,
    TableError,
    TableReader,
    vanished,
)
from spark_jobs.hadoop_files import hadoop_settings

Rows = dict[int, Sequence[str | None]]
Found = Rows | TableError | SubsetdError


def read_rows(
    kind: CorpusKind, location: str, settings: CorpusSettings, wanted: Mapping[str, Sequence[int]]
) -> Iterator[tuple[str, Found]]:
    """Read rows of tables, ascending by their numbers, or say why a table is not read; rows it has not are left out.

    A large file or table is read up to the last of them. Raises SubsetdError for a corpus that cannot be read.
    """
    match kind:
        case CorpusKind.JSONL:
            yield from _of_lines(location, settings, wanted)
        case CorpusKind.POSTGRES:
            yield from _of_database(location, settings, wanted)
        case CorpusKind.CSV | CorpusKind.PARQUET:
            files = _files(kind, location, settings)
            for path, rows in wanted.items():
                info = files.filesystem.get_file_info(f"{files.root}/{path}")
                if info.type == pafs.FileType.NotFound:
                    yield path, vanished()
                else:
                    yield path, _of_piece(files, Piece(path, info.size or 0), rows)


def _files(kind: CorpusKind, location: str, settings: CorpusSettings) -> Any:
    if kind is CorpusKind.CSV:
        return CsvFiles(*corpus_root(location, hadoop_settings()), settings)
    # With it comes what reads databases: half of all that is loaded.
    from spark_jobs.corpus_arrow import ParquetFiles

    return ParquetFiles(*corpus_root(location, hadoop_settings()), settings)


def _of_lines(
    location: str, settings: CorpusSettings, wanted: Mapping[str, Sequence[int]]
) -> Iterator[tuple[str, Found]]:
    from spark_jobs.corpus_json import JsonLines

    files = JsonLines(*corpus_root(location, hadoop_settings()), settings)
    of_files: dict[str, dict[int, str]] = {}
    for path in wanted:
        file, _, number = path.rpartition("#")
        of_files.setdefault(file, {})[int(number)] = path
    for file, paths in of_files.items():
        try:
            for line, found in files.relations(file, sorted(paths)):
                path = paths.pop(line)
                if isinstance(found, TableError):
                    yield path, found
                else:
                    present = (row for row in wanted[path] if row < found.rows)
                    yield path, {row: [column[row] for column in found.columns] for row in present}
            fault: Found = TableError(FaultKind.VANISHED, "the file has not so many lines any more")
        except (TableError, SubsetdError) as error:
            fault = error
        for path in paths.values():
            yield path, fault


def _of_database(
    location: str, settings: CorpusSettings, wanted: Mapping[str, Sequence[int]]
) -> Iterator[tuple[str, Found]]:
    from spark_jobs.corpus_arrow import PostgresTables
    from spark_jobs.corpus_sources import list_corpus, plan_reading

    listing = list_corpus(location, CorpusKind.POSTGRES, settings)
    try:
        assert listing.database is not None
        tables = PostgresTables(listing.database.reader(), settings.null_tokens)
        pieces = {
            piece.path: piece for task in plan_reading(CorpusKind.POSTGRES, listing, None, 1).tasks for piece in task
        }
        for path, rows in wanted.items():
            if path in pieces:
                yield path, _of_piece(tables, pieces[path], rows)
            else:
                yield path, TableError(FaultKind.VANISHED, "there is no such table any more")
    finally:
        listing.close()


def _of_piece(reader: TableReader, piece: Piece, rows: Sequence[int]) -> Found:
    found: Rows = {}
    first = 0
    try:
        for cells in _portions(reader.cells([piece])):
            height, width = int(cells.rows[0]), int(cells.widths[0])
            for row in rows:
                if first <= row < first + height:
                    found[row] = [_cell(cells, column * height + row - first) for column in range(width)]
            first += height
            if first > rows[-1]:
                break
    except (TableError, SubsetdError) as error:
        return error
    return found


def _portions(read: Iterable[Any]) -> Iterator[TableCells]:
    for found in read:
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
    """Read what standard input asks for. Exit code 0, also where a table cannot be read; 1 with the reason for all."""
    asked = json.load(sys.stdin)
    settings = CorpusSettings.from_json(asked["settings"])
    told: dict[str, Any] = {}
    try:
        for path, found in read_rows(CorpusKind(asked["kind"]), asked["location"], settings, asked["wanted"]):
            told[path] = {"rows": found} if isinstance(found, dict) else {"fault": str(found)}
    except SubsetdError as error:
        print(error, file=sys.stderr)
        return 1
    json.dump(told, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())

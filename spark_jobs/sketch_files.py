"""Own the sketching of files on one machine, without Spark or a database: a file of bytes for each column.

    python -m spark_jobs.sketch_files FILE [--column NAME ...] [--out PATH] ...

Files are read as the bootstrap reads them, and a column has the same bytes as the one that a state keeps of it.
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import numpy as np

from service.core.errors import NotFoundError, RecordError, SourceError, SubsetdError
from service.core.records import UInt64s, distinct_of
from service.core.sketch_upkeep import DEFAULT_FORM, FixedForm, SketchForm
from service.core.sketches.comparable import Comparable
from spark_jobs.command_line import add_form_options, add_reading_options, form_of, reading_options
from spark_jobs.kernels import count_hashes
from spark_jobs.sources import FoldedSource, Options, SourceTable, open_source

SPLIT_BYTES = 64 << 20
LEAST_PORTION = 1 << 20
"""Hashes are sorted into those that are known by so many at least: a column then takes 16 to 32 bytes a value."""

ENDING = ".sketch"
PACKED = ".zip"


class DistinctHashes:
    """Gather the distinct hashes of a column."""

    def __init__(self) -> None:
        self._known: UInt64s = np.zeros(0, np.uint64)
        self._pending: list[UInt64s] = []
        self._count = 0

    def add(self, hashes: UInt64s) -> None:
        """Take in hashes, known ones or not."""
        self._pending.append(hashes)
        self._count += len(hashes)
        if self._count > max(LEAST_PORTION, len(self._known)):
            self.all()

    def all(self) -> UInt64s:
        """Give them ascending."""
        self._known = distinct_of(np.concatenate([self._known, *self._pending]))
        self._pending, self._count = [], 0
        return self._known


def require_apart(source: str, names: Sequence[str]) -> None:
    """Raise SourceError where two columns would have one name: `b.c` of the table `a`, and `c` of `a.b`."""
    for name, count in Counter(names).items():
        if count > 1:
            raise SourceError(f"{source}: {count} columns would have one name, {name!r}: rename one of their files.")


def sketch_files(
    options: Options, columns: Sequence[str] = (), form: SketchForm | FixedForm | None = None
) -> dict[str, Comparable]:
    """Sketch the columns of CSV or Parquet, all or those named `column` or `table.column`, by `table.column`.

    They are of `form`, or else of that of the options. Raises SourceError for data that cannot be read, and
    NotFoundError for a column that is not there.
    """
    form = form or options.sketches or DEFAULT_FORM
    with closing(open_source(options)) as source:
        if isinstance(source, FoldedSource) or source.kind == "postgres":
            raise SourceError(f"{source.location}: files of CSV or Parquet are sketched here; bootstrap reads others.")
        tables = source.tables()
        names = [[f"{table.name}.{column}" for column, _ in table.columns] for table in tables]
        require_apart(source.location, [name for of_table in names for name in of_table])
        wanted = _wanted(tables, columns)
        found = {name: DistinctHashes() for of_table in names for name in of_table if name in wanted}
        reader = source.reader()
        for split in source.splits(SPLIT_BYTES, lambda function, items: list(map(function, items))):
            for chunk in reader.read(split):
                for name, cells in zip(names[split.table], chunk.columns, strict=True):
                    if name in found:
                        try:
                            found[name].add(count_hashes(cells, options.null_tokens)[0])
                        except RecordError as error:
                            raise SourceError(f"{reader.place(split)}, column {name!r}: {error}") from error
    return {name: _sketch(form, hashes.all()) for name, hashes in found.items()}


def write_sketches(sketches: Mapping[str, Comparable], path: Path) -> None:
    """Write sketches into one file that packs them (.zip), one file (.sketch, of one column), or a folder."""
    files = ((f"{quote(name, safe=' ')}{ENDING}", sketch.to_bytes()) for name, sketch in sketches.items())
    if path.suffix == PACKED:
        with zipfile.ZipFile(path, "w") as archive:
            for file, data in files:
                archive.writestr(zipfile.ZipInfo(file), data)  # without the time: equal sketches, equal bytes
    elif path.suffix == ENDING:
        ((_, data),) = files
        path.write_bytes(data)
    else:
        path.mkdir(parents=True, exist_ok=True)
        for file, data in files:
            (path / file).write_bytes(data)


def _sketch(form: SketchForm | FixedForm, hashes: UInt64s) -> Comparable:
    sketch = form.empty()
    sketch.update(hashes)
    return sketch


def _wanted(tables: Sequence[SourceTable], columns: Sequence[str]) -> set[str]:
    every = {f"{table.name}.{column}": column for table in tables for column, _ in table.columns}
    if not columns:
        return set(every)
    for one in columns:
        if one not in every and one not in every.values():
            raise NotFoundError(f"--column {one}: there is no such column. There are: {', '.join([*every][:20])}.")
    return {name for name, column in every.items() if name in columns or column in columns}


def main(arguments: Sequence[str] | None = None) -> int:
    """Sketch files from the command line; an error is one message on standard error, and exit code 1."""
    parser = argparse.ArgumentParser(prog="python -m spark_jobs.sketch_files", description="Sketch columns of files.")
    parser.add_argument("source", help="file of CSV or Parquet, or a folder of them")
    parser.add_argument("--column", action="append", default=[], help="column or table.column (default: all)")
    parser.add_argument("--out", type=Path, help="a .zip of all, a .sketch of one column, or a folder")
    add_reading_options(parser)
    add_form_options(parser)
    given = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    try:
        options = Options(given.source, "files", **reading_options(given))
        sketches = sketch_files(options, given.column, form_of(given))
        path = given.out or Path(f"{Path(given.source).stem}.sketches{PACKED}")
        if path.suffix == ENDING and len(sketches) != 1:
            raise SourceError(f"--out {path} is for one column, there are {len(sketches)}: name a .zip or a folder.")
        write_sketches(sketches, path)
    except SubsetdError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for name, sketch in sketches.items():
        print(f"{name}: {sketch.estimate():,.0f} distinct values, {len(sketch.to_bytes()):,} bytes")
    print(f"written to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

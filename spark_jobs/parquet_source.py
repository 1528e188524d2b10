"""Own Parquet sources: folders of files read by row groups, in batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from service.core.errors import SourceError
from service.core.exclusion import not_excluded
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

ENDINGS = (".parquet", ".pq")
BATCH_ROWS = 65_536
TABLE_BYTES = 64 << 20
"""Batches are counted together up to so many bytes, so that repeated values are hashed once."""


def open_parquet(filesystem: pafs.FileSystem, path: str) -> pq.ParquetFile:
    """Open a file; raise what Arrow raises of it."""
    # As nanoseconds, Arrow's default, a moment of INT96 before 1677 or after 2262 would silently be another one.
    return pq.ParquetFile(filesystem.open_input_file(path), coerce_int96_timestamp_unit="us")


def batch_rows(groups: Sequence[pq.RowGroupMetaData]) -> int:
    """Give how many rows of these groups are read at a time: fewer of long ones, which may be documents."""
    sizes: list[tuple[int, int]] = [(group.num_rows, group.total_byte_size) for group in groups if group.num_rows]
    return max(1, min([BATCH_ROWS, *(TABLE_BYTES * rows // max(size, 1) for rows, size in sizes)]))


class RowGroups(NamedTuple):
    """Name some row groups of a file."""

    path: str
    first: int
    end: int


class ParquetReader:
    """Read row groups of Parquet files; picklable."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.hadoop = hadoop_settings()  # the driver's, also where tasks run
        self._filesystem: pafs.FileSystem | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_filesystem": None}

    def open(self, path: str) -> pq.ParquetFile:
        """Open a file; raise SourceError when it cannot be read or is no Parquet."""
        if self._filesystem is None:
            self._filesystem, _ = find_file_system(self.location, self.hadoop)
        try:
            file = open_parquet(self._filesystem, path)
            file.schema_arrow  # noqa: B018  (names are decoded here)
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            raise SourceError(f"{path}: it cannot be read as Parquet: {error}. Mend it, or leave it out.") from error
        return file

    def read(self, split: Split) -> Iterator[pa.Table]:
        part: RowGroups = split.detail
        batches: list[pa.RecordBatch] = []
        with self.open(part.path) as file:
            if part.end > file.num_row_groups:
                raise SourceError(
                    f"{part.path}: it was written anew while it was read. Bootstrap it when it is at rest."
                )
            try:
                rows = batch_rows([file.metadata.row_group(number) for number in range(part.first, part.end)])
                for batch in file.iter_batches(rows, row_groups=range(part.first, part.end), use_threads=False):
                    batch.validate(full=True)  # texts that are no UTF-8 are told of here, where the file is known
                    batches.append(batch)
                    if sum(b.nbytes for b in batches) >= TABLE_BYTES:
                        yield pa.Table.from_batches(batches)
                        batches = []
            except (OSError, pa.ArrowException) as error:
                raise SourceError(f"{self.place(split)}: it cannot be read: {error}. Write the file anew.") from error
        if batches:
            yield pa.Table.from_batches(batches)

    def check(self, split: Split) -> Fault | None:
        try:
            for _ in self.read(split):
                pass
        except SourceError as error:
            return Fault(split.detail.path, split.detail.first, str(error))
        return None

    def told(self, fault: Fault) -> str:
        return fault.message

    def place(self, split: Split) -> str:
        part: RowGroups = split.detail
        return f"{part.path}, row groups {part.first} to {part.end - 1}"


class ParquetSource:
    """Be a folder of Parquet files: one table for each file, or for each sub-folder of part files."""

    kind = "parquet"
    warnings: Sequence[str] = ()
    snapshot = None

    def __init__(self, options: Options) -> None:
        self.location = absolute(options.source)  # as it is kept: others ask for it from other folders
        self.settings = options.settings()
        self._reader = ParquetReader(self.location)
        filesystem, root = find_file_system(options.source)
        found = table_files(filesystem, root, ENDINGS)
        names = [table for _, table in not_excluded(((options.name, table) for table in found), options.exclude)]
        self.files = [found[name] for name in names]
        self.groups: list[tuple[int, str, list[int]]] = []
        self._tables = [self._table(number, options.name, name) for number, name in enumerate(names)]

    def tables(self) -> list[SourceTable]:
        return self._tables

    def reader(self) -> ParquetReader:
        return self._reader

    def confirm(self) -> None:
        """Raise SourceError when a file was written anew: columns may lie elsewhere, and rows have been left out."""
        files = (file for files in self.files for file in files)
        refuse_changed([was.path for was, _ in changed_files(self.location, ENDINGS, files)])

    def close(self) -> None:
        """Hold nothing open."""

    def splits(self, target: int, parallel: ParallelMap[Any, Any]) -> list[Split]:
        splits = []
        for table, path, sizes in self.groups:
            first, size = 0, 0
            for number, bytes_of in enumerate(sizes):
                if size and size + bytes_of > target:
                    splits.append(Split(table, size, RowGroups(path, first, number)))
                    first, size = number, 0
                size += bytes_of
            if len(sizes) > first or not sizes:  # a file without any is a table without rows
                splits.append(Split(table, size, RowGroups(path, first, len(sizes))))
        return splits

    def _table(self, number: int, schema: str, name: str) -> SourceTable:
        files = self.files[number]
        first: pa.Schema | None = None
        for info in files:
            with self._reader.open(info.path) as file:
                found = file.schema_arrow
                if any("\0" in column for column in found.names):
                    raise SourceError(f"{info.path}: the name of a column has a NUL character. Give it another.")
                # Whether a column may be NULL is no difference: a part may have been written before it might.
                if first is not None and (found.names, found.types) != (first.names, first.types):
                    raise SourceError(
                        f"{info.path}: its columns or their types differ from those of {files[0].path}, another part "
                        f"of the table {schema}.{name}. Parts of a table must be alike: move the file elsewhere."
                    )
                first = found
                metadata = file.metadata
                sizes = [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]
                self.groups.append((number, info.path, sizes))
        assert first is not None
        columns = zip(unique_names(first.names), (_type_name(kind) for kind in first.types), strict=True)
        return SourceTable(schema, name, tuple(columns))


def _type_name(kind: pa.DataType) -> str:
    """Name a type as it is stored; a struct's fields are called as they are."""
    name = str(kind)
    return name if "struct<" in name else name.lower()

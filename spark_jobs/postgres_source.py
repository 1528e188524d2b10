"""Own Postgres sources: all tables under one exported snapshot, read in page ranges by COPY on the executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

from service.core.errors import SourceError
from service.store.source_reader import (
    PageRange,
    SourceSnapshot,
    StoredTable,
    page_ranges,
    read_pages,
    without_password,
)
from spark_jobs.arrow_csv import parse_texts
from spark_jobs.sources import Fault, Options, ParallelMap, SourceTable, Split

PARSING = pacsv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
"""In a table of one column an empty line is a NULL."""


class PostgresReader:
    """Read page ranges under a snapshot; picklable. It carries the address with its password to the executors."""

    def __init__(self, url: str, exported: str, tables: list[SourceTable]) -> None:
        self.url = url
        self.exported = exported
        self.tables = tables

    def read(self, split: Split) -> Iterator[pa.Table]:
        table = self.tables[split.table]
        text = read_pages(self.url, self.exported, split.detail, table.columns)
        if not text:
            return
        try:
            yield parse_texts(text, len(table.columns), PARSING)
        except pa.ArrowInvalid as error:
            raise SourceError(
                f"{self.place(split)}: it holds bytes that are not UTF-8 text: {error}. Mend them there."
            ) from error

    def check(self, split: Split) -> Fault | None:
        try:
            for _ in self.read(split):
                pass
        except SourceError as error:
            return Fault(str(self.tables[split.table]), 0, str(error))
        return None

    def told(self, fault: Fault) -> str:
        return fault.message

    def place(self, split: Split) -> str:
        part: PageRange = split.detail
        return f"{part.schema}.{part.table}, pages from {part.first or 0}"


class MissingTableError(SourceError):
    """A table that is to be read is not there."""

    def __init__(self, table: str) -> None:
        super().__init__(f"--only-table {table}: the source has no such table.")
        self.table = table


class PostgresSource:
    """Be a Postgres database: its tables have their own schemas' names."""

    kind = "postgres"
    warnings: Sequence[str] = ()

    def __init__(self, options: Options) -> None:
        self.location = without_password(options.source)
        self.settings = options.settings()
        self._snapshot = SourceSnapshot(options.source, options.snapshot)
        self.snapshot: str | None = self._snapshot.visible
        try:
            found = self._snapshot.tables(published=options.published)
            self.stored = self._snapshot.chosen(found, options.exclude)
            if options.only_tables:
                missing = set(options.only_tables) - {f"{t.schema}.{t.name}" for t in found}
                if missing:
                    raise MissingTableError(min(missing))
                self.stored = [t for t in self.stored if f"{t.schema}.{t.name}" in options.only_tables]
        except BaseException:
            self.close()
            raise
        self._set_tables(self.stored)

    def narrow(self, schema: str) -> None:
        """Forget the tables of all other schemas; raise SourceError when none is left."""
        self._set_tables([table for table in self.stored if table.schema == schema])
        if not self.stored:
            self.close()
            raise SourceError(
                f"The {self._snapshot.place} has no table in its schema {schema!r} that the address's user can see."
            )

    def _set_tables(self, stored: list[StoredTable]) -> None:
        self.stored = stored
        self._tables = [
            SourceTable(t.schema, t.name, t.columns, t.key_columns, t.replica_identity, constraints=t.constraints)
            for t in stored
        ]
        self._reader = PostgresReader(self._snapshot.url, self._snapshot.exported, self._tables)

    def tables(self) -> list[SourceTable]:
        return self._tables

    def reader(self) -> PostgresReader:
        return self._reader

    def confirm(self) -> None:
        """Raise SourceError when a table was emptied or rewritten since the snapshot, which then does not show it."""
        self._snapshot.require_unbroken(self.stored)

    def close(self) -> None:
        """Let the snapshot go."""
        self._snapshot.close()

    def splits(self, target: int, parallel: ParallelMap[Any, Any]) -> list[Split]:
        return [
            Split(number, size, pages)
            for number, table in enumerate(self.stored)
            for part in table.parts
            for pages, size in page_ranges(part, target)
        ]

"""Own what a corpus is read from: listings with fingerprints, what has to be read, and the task that reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from service.core.records import Int64s
from spark_jobs.corpus_index import CorpusIndex, CorpusState, Manifest

TABLE_BYTES = 1 << 30
"""A file (of JSON lines: a line) larger than this is listed as a fault, and not read."""

TASK_BYTES = 32 << 20
"""What a task reads, about; a larger file is a task of its own, one of JSON lines is cut."""


class FaultKind(StrEnum):
    """Name why a file, or a table in one, is not in the corpus."""

    UNREADABLE = "unreadable"
    VANISHED = "vanished"
    EMPTY = "empty"
    RAGGED = "ragged"
    BINARY = "binary"
    ENCODING = "encoding"
    QUOTING = "quoting"
    MALFORMED = "malformed"
    TOO_LARGE = "too large"


@dataclass(frozen=True, slots=True)
class ReadingFault:
    """Say why a table is not in the corpus: its path below the folder (`FILE#LINE` in JSON lines) and a sentence."""

    path: str
    kind: FaultKind
    message: str


@dataclass(frozen=True, slots=True)
class Reading:
    """Hold the settings that decide what a cell is. An empty quote: no character quotes."""

    null_tokens: tuple[str, ...] = ()
    delimiter: str = ","
    quote: str = '"'
    header: bool = True
    encoding: str = "utf-8"
    table_bytes: int = TABLE_BYTES


@dataclass(frozen=True, slots=True)
class CorpusListing:
    """Hold the files (or database tables) of a corpus by path: `modified` in nanoseconds, -1 where it is not known.

    `snapshot` names the exported snapshot that a database's tables are read under, while the listing is open.
    """

    paths: Sequence[str]
    sizes: Int64s
    modified: Int64s
    faults: Sequence[ReadingFault]
    snapshot: str | None = None

    def close(self) -> None:
        """Let a database's snapshot go; call it when everything is read."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Name what a task reads of a file: all of it, or the lines that begin in [start, end)."""

    path: str
    size: int
    start: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True)
class ReadingPlan:
    """Hold the tasks of a refresh, each some pieces, large ones first, and how many files need not be read."""

    tasks: Sequence[Sequence[Piece]]
    listing: CorpusListing
    previous: Manifest | None
    unchanged: int
    gone: int


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Hold what a task tells the driver: metadata of tables (columns of TABLES), known lines, faults; never a value."""

    tables: pa.Table
    known: pa.Table
    lines: Mapping[tuple[str, int], int]
    faults: Sequence[ReadingFault]


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Read the pieces of a task and write their value keys into one part of the index; picklable.

    A task that runs twice writes two parts, and the one whose result the driver gets counts.
    """

    location: str
    kind: str
    reading: Reading
    index: CorpusIndex
    previous: int | None = None
    """The generation whose known lines need not be parsed."""
    snapshot: str | None = None

    def __call__(self, pieces: Sequence[Piece]) -> ReadResult:
        raise NotImplementedError


def list_corpus(location: str, kind: str, reading: Reading) -> CorpusListing:
    """List a corpus: folders that cannot be listed are faults; raises SourceError when the corpus itself cannot."""
    raise NotImplementedError


def plan_reading(
    kind: str, listing: CorpusListing, previous: Manifest | None, task_bytes: int = TASK_BYTES
) -> ReadingPlan:
    """Choose what is read: files whose fingerprint (path, size, time of change) is not as in the manifest."""
    raise NotImplementedError


def corpus_state(
    plan: ReadingPlan,
    results: Sequence[ReadResult],
    reading: Reading,
    generation: int,
    numbered: pa.Table,
    next_table: int,
    next_column: int,
) -> CorpusState:
    """Put together what was read and what was kept, and number tables and columns.

    `numbered` has (path, table_number, first_column, columns) of the served tables, from the previous manifest or,
    without an index, from the store: a table of the same path and number of columns keeps its numbers.
    """
    raise NotImplementedError


def all_faults(plan: ReadingPlan, results: Sequence[ReadResult]) -> list[ReadingFault]:
    """Give the faults of the listing and of all tasks, by path."""
    raise NotImplementedError

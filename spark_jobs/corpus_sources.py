"""Own what a corpus is read from: listings with fingerprints, what of it has to be read, and the task that reads it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.core.corpus import PACKINGS, CorpusKind, CorpusSettings
from service.core.errors import SourceError
from service.core.records import Int32s, Int64s, starts_of
from service.store.source_reader import page_ranges
from spark_jobs.corpus_arrow import ParquetFiles, PostgresTables
from spark_jobs.corpus_csv_files import CsvFiles
from spark_jobs.corpus_files import corpus_root, list_files
from spark_jobs.corpus_index import FILES, TABLES, CorpusIndex, Manifest, Part, PartColumns, PartWriter
from spark_jobs.corpus_json import DIGEST_BYTES, JsonLines, KnownLines
from spark_jobs.corpus_tables import FoundTables, Piece, PieceLines, ReadingFault, TableReader, packing_of
from spark_jobs.csv_source import ENDINGS as CSV_ENDINGS
from spark_jobs.hadoop_files import HadoopSettings, hadoop_settings
from spark_jobs.parquet_source import ENDINGS as PARQUET_ENDINGS
from spark_jobs.postgres_source import PostgresReader, PostgresSource
from spark_jobs.sources import Options, Split

ENDINGS = {
    CorpusKind.CSV: tuple(f"{name}{packed}" for name in CSV_ENDINGS for packed in ("", *PACKINGS)),
    CorpusKind.PARQUET: PARQUET_ENDINGS,
    CorpusKind.JSONL: tuple(f"{name}{packed}" for name in (".json", ".jsonl", ".ndjson") for packed in ("", *PACKINGS)),
}
"""What the names of a corpus' files end with; all others are left alone."""

TASK_BYTES = 32 << 20
LEAST_TASK_BYTES = 1 << 20
"""What a task reads, about. A larger file is a task of its own, one of JSON lines is cut."""

OPENING_BYTES = 16 << 10
"""What could be read while a file is opened."""

SPLIT_BYTES = 64 << 20
"""What is read at once of a database table."""

FINE_TICK = 10_000_000
COARSE_TICK = 2_000_000_000
"""Nanoseconds within which a file may change twice with one time of change: of file systems that tell fractions of a
second, and of others. So fresh a file is read again next time."""

PARTS_KEPT = 64
SMALL_PART_CELLS = 1 << 20
BIG_PART_CELLS = 1 << 23
"""An index may have so many small parts. When there are more they are put together to big ones."""

READING = (
    "null_tokens", "delimiter", "quote", "header", "encoding", "db_schema", "max_table_bytes",
    "null_columns", "integer_columns", "non_unique_referenced", "coverage", "min_values", "threshold", "top",
)  # fmt: skip
"""Settings that decide what is read, and which INDs count: under others a refresh begins anew."""

READ_TABLES = pa.schema([("piece", pa.int32()), *(TABLES.field(name) for name in (
    "line", "digest", "rows", "names", "distinct", "null_only", "integers_only", "sums", "part_column",
))])  # fmt: skip
"""What a task knows of a table: as TABLES, with the place of its piece; lines count from the piece's beginning."""


def reading_settings(settings: CorpusSettings) -> dict[str, object]:
    """Give the settings that decide what a generation is, for its manifest."""
    described = settings.to_json()
    return {name: described[name] for name in READING}


@dataclass(frozen=True, slots=True)
class CorpusListing:
    """Hold the files (or tables of a database) of a corpus, by their paths below the folder.

    `modified` is in nanoseconds, -1 where it is not known. `database` holds an exported snapshot open.
    """

    paths: Sequence[str]
    sizes: Int64s
    modified: Int64s
    faults: Sequence[ReadingFault]
    database: PostgresSource | None = None

    def confirm(self) -> None:
        """Raise SourceError when a database table is no longer what the snapshot shows; call it when all is read."""
        if self.database is not None:
            self.database.confirm()

    def close(self) -> None:
        """Let a database's snapshot go."""
        if self.database is not None:
            self.database.close()


@dataclass(frozen=True, slots=True)
class ReadingPlan:
    """Hold what a refresh reads: `tasks`, each some pieces, large ones first.

    `read` are the files (FILES) that are read, `kept` those of the `previous` manifest that need not be, `gone` those
    of it that are no longer there.
    """

    listing: CorpusListing
    previous: Manifest | None
    tasks: Sequence[Sequence[Piece]]
    read: pa.Table
    kept: pa.Table
    gone: int


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Hold what a task tells the driver, never a value.

    `tables` is as READ_TABLES. `known` are lines that were not parsed, `lines` counts those of each piece of JSON
    lines; `moved` gives the new number of each column of parts that were written anew, -1 for those that were left out.
    """

    pieces: Sequence[Piece]
    part: Part | None
    tables: pa.Table
    known: Sequence[KnownLines]
    lines: Mapping[int, int]
    faults: Sequence[ReadingFault]
    moved: Mapping[str, Int32s]


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Read the pieces of a task and write their value keys into one part of the index; picklable.

    A task that runs twice writes two parts; the one that the driver is told of counts. `previous` is the generation
    whose known lines need not be parsed. `reader` is that of a listing's database. `hadoop` are the settings of
    Hadoop's file systems as they are where this is made.
    """

    location: str
    kind: CorpusKind
    settings: CorpusSettings
    index: CorpusIndex
    previous: int | None = None
    reader: PostgresReader | None = None
    hadoop: HadoopSettings = field(default_factory=hadoop_settings)

    def __call__(self, pieces: Sequence[Piece]) -> ReadResult:
        writer = self.index.write(self.settings.signed_by)
        tables = [READ_TABLES.empty_table()]
        faults: list[ReadingFault] = []
        known: list[KnownLines] = []
        lines: dict[int, int] = {}
        moved: dict[str, Int32s] = {}
        of_index = [piece.detail for piece in pieces if isinstance(piece.detail, PartColumns)]
        for part in of_index:
            moved[part.part] = copy_live(self.index, part, writer)
        reader = table_reader(
            self.location, self.kind, self.settings, self.hadoop, self.reader, self.index, self.previous
        )  # fmt: skip
        for found in reader.read(list(pieces)) if not of_index else ():
            match found:
                case FoundTables():
                    tables.append(_rows(found, writer.add(found.cells.starts, found.cells.keys)))
                case KnownLines():
                    known.append(found)
                case PieceLines():
                    lines[found.piece] = found.lines
                case ReadingFault():
                    faults.append(found)
        return ReadResult(pieces, writer.close(), pa.concat_tables(tables), known, lines, faults, moved)


def table_reader(
    location: str,
    kind: CorpusKind,
    settings: CorpusSettings,
    hadoop: HadoopSettings,
    database: PostgresReader | None,
    index: CorpusIndex | None = None,
    previous: int | None = None,
) -> TableReader:
    """Give what reads the tables of a corpus; `index` knows the lines of the `previous` generation."""
    if database is not None:
        return PostgresTables(database, settings.null_tokens)
    filesystem, root = corpus_root(location, hadoop)
    if kind is CorpusKind.PARQUET:
        return ParquetFiles(filesystem, root, settings)
    if kind is CorpusKind.JSONL:
        return JsonLines(filesystem, root, settings, index, previous)
    return CsvFiles(filesystem, root, settings)


def list_corpus(location: str, kind: CorpusKind, settings: CorpusSettings) -> CorpusListing:
    """List a corpus, as `list_files` does. Raises SourceError when it cannot be listed, or there is nothing in it."""
    if kind is CorpusKind.POSTGRES:
        return _list_database(location, settings)
    now = time.time_ns()
    found, faults = list_files(location, ENDINGS[kind])
    if not found and not faults:
        raise SourceError(
            f"{location}: there is no table in it. Names of files of this kind end with {', '.join(ENDINGS[kind])}."
        )
    return CorpusListing(
        [file.path for file in found],
        np.array([file.size for file in found], np.int64),
        np.array([_settled(file.modified, now) for file in found], np.int64),
        faults,
    )


def plan_reading(
    kind: CorpusKind,
    listing: CorpusListing,
    previous: Manifest | None,
    cores: int,
    task_bytes: int = TASK_BYTES,
) -> ReadingPlan:
    """Choose what is read: files whose fingerprint (path, size, time of change) is not as in the manifest.

    `task_bytes` bounds a task, if its files do; with few files tasks are smaller, so that all `cores` have some.
    """
    paths = pa.array(listing.paths, pa.string())
    is_kept = np.zeros(len(paths), np.bool_)
    gone = 0
    if previous is not None:
        before = pc.fill_null(pc.index_in(paths, value_set=previous.files["path"]), -1).to_numpy()
        gone = len(previous.files) - int(np.count_nonzero(before >= 0))
        sizes, modified = (np.append(previous.files[name].to_numpy(), -1) for name in ("size", "modified"))
        is_kept = (modified[before] >= 0) & (sizes[before] == listing.sizes) & (modified[before] == listing.modified)
    files = pa.table([paths, pa.array(listing.sizes), pa.array(listing.modified)], schema=FILES)
    total = int((listing.sizes[~is_kept] + OPENING_BYTES).sum())
    target = min(task_bytes, max(total // (3 * cores), LEAST_TASK_BYTES))
    pieces = (piece for number in np.flatnonzero(~is_kept).tolist() for piece in _pieces(kind, listing, number, target))
    tasks = sorted(_group(pieces, target), key=lambda task: -sum(piece.size for piece in task))
    tasks += [] if previous is None else [[Piece("", 0, detail=part) for part in parts] for parts in _worn(previous)]
    return ReadingPlan(listing, previous, tasks, files.filter(~is_kept), files.filter(is_kept), gone)


def copy_live(index: CorpusIndex, part: PartColumns, writer: PartWriter) -> Int32s:
    """Copy the columns of a part that have an id; give the new number of each, -1 for the others."""
    live = part.column_ids >= 0
    numbers = np.where(live, np.cumsum(live) - 1, -1).astype(np.int32)
    first = writer.extend(int(live.sum()), index.blocks(PartColumns(part.part, numbers)))
    return np.where(live, numbers + first, -1).astype(np.int32)


def _rows(found: FoundTables, first_column: int) -> pa.Table:
    starts = starts_of(found.widths)
    distinct = np.diff(found.cells.starts)

    def lists(values: pa.Array, width: int = 1) -> pa.Array:
        return pa.ListArray.from_arrays(pa.array((starts * width).astype(np.int32)), values)

    has_lines = found.lines > 0
    return pa.table(
        [
            pa.array(found.pieces.astype(np.int32)),
            pa.array(found.lines, mask=~has_lines),
            pa.array(found.digests, pa.binary(DIGEST_BYTES)),
            pa.array(found.rows),
            lists(found.names.cast(pa.string())),
            lists(pa.array(distinct.astype(np.int32))),
            lists(pa.array(found.cells.null_only)),
            lists(pa.array(found.cells.integers_only)),
            lists(pa.array(found.cells.sums()), 2),
            pa.array((first_column + starts[:-1]).astype(np.int32)),
        ],
        schema=READ_TABLES,
    )


def _list_database(location: str, settings: CorpusSettings) -> CorpusListing:
    source = PostgresSource(Options(location, "corpus"))
    source.narrow(settings.db_schema)
    sizes = np.array([sum(part[3] for part in table.parts) for table in source.stored], np.int64)
    paths = [table.name for table in source.stored]
    return CorpusListing(paths, sizes, np.full(len(paths), -1, np.int64), (), source)


def _settled(modified: int | None, now: int) -> int:
    """Give a time of change that will differ when the file is changed again, -1 when it is too fresh for that."""
    if modified is None:
        return -1
    tick = COARSE_TICK if modified % 1_000_000_000 == 0 else FINE_TICK
    return modified if modified < now - tick else -1


def _pieces(kind: CorpusKind, listing: CorpusListing, number: int, target: int) -> Iterator[Piece]:
    path, size = listing.paths[number], int(listing.sizes[number])
    if listing.database is not None:
        splits = [
            Split(number, bytes_of, pages)
            for part in listing.database.stored[number].parts
            for pages, bytes_of in page_ranges(part, SPLIT_BYTES)
        ]
        yield Piece(path, size, detail=(number, splits))
    elif kind is CorpusKind.JSONL and size > target and packing_of(path) is None:
        count = -(-size // target)
        bounds = [size * i // count for i in range(count)]
        for start, end in zip(bounds, [*bounds[1:], None], strict=True):
            yield Piece(path, (end or size) - start, start, end)
    else:
        yield Piece(path, size)


def _group(pieces: Iterable[Piece], target: int) -> list[list[Piece]]:
    """Put neighbouring pieces together to tasks of about `target` bytes."""
    tasks: list[list[Piece]] = []
    held = target
    for piece in pieces:
        cost = piece.size + OPENING_BYTES
        if held + cost > target:
            tasks.append([])
            held = 0
        tasks[-1].append(piece)
        held += cost
    return tasks


def _worn(manifest: Manifest) -> list[list[PartColumns]]:
    """Group the parts that are to be written anew: mostly dead ones, and small ones where there are too many."""
    described = {part.name: part for part in manifest.parts}
    of_part: dict[str, Int32s] = {}
    for part in manifest.part_columns():
        of_part[part.part] = np.maximum(part.column_ids, of_part.get(part.part, np.int32(-1)))
    live = manifest.live_cells()
    small = {name for name in of_part if described[name].cells < SMALL_PART_CELLS}
    merged = small if len(small) > PARTS_KEPT else set()
    groups: list[list[PartColumns]] = []
    held = 0
    for name, column_ids in of_part.items():
        if name in merged or 2 * live[name] < described[name].cells:
            if not groups or held + live[name] > BIG_PART_CELLS:
                groups.append([])
                held = 0
            groups[-1].append(PartColumns(name, column_ids))
            held += live[name]
    return groups

"""Own what the bootstrap asks of a source: tables, splits that tasks read on their own, and the options of a run."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import pyarrow as pa
import pyarrow.fs as pafs

from service.core.errors import SourceError, first_line
from service.core.sketch_upkeep import DEFAULT_FORM, SketchForm
from service.core.tuples import TUPLE_TYPE, tuple_name
from service.store.feed_start import FeedStart
from service.store.keys import TrackedKey
from service.store.source_constraints import UNCONSTRAINED, Constraints
from service.store.source_reader import NOTHING_STORED
from service.usecases.register_corpora import has_key
from spark_jobs.hadoop_files import HadoopSettings, file_system_of, hadoop_settings

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")
ParallelMap = Callable[[Callable[[Item], Result], Sequence[Item]], list[Result]]
"""Apply a picklable function to items on the executors and give the results in the order of the items."""


SETTINGS = (
    "qualify", "null_tokens", "delimiter", "header", "quote", "encoding", "exclude", "format", "only_tables",
    "published", "store_values",
)  # fmt: skip
"""Options that decide what a source holds; the state keeps them with it."""

SAID_ONCE = (
    "qualify", "null_tokens", "delimiter", "header", "quote", "encoding", "exclude", "only_tables", "insert_only",
    "sketch_only",
)  # fmt: skip
"""Those that were said of a source are not forgotten by who reads it anew and does not say them again."""

LEFT_OUT = (".", "_")
"""What names of files and folders begin with that are of no table."""


@dataclass(frozen=True, slots=True)
class Options:
    """Hold what a user may say of a bootstrap; the command line has an option for each field."""

    source: str
    name: str
    database_url: str | None = None
    format: str | None = None
    replace: bool = False
    as_before: bool = False
    insert_only: bool = False
    qualify: bool = False
    null_tokens: tuple[str, ...] = ()
    delimiter: str | None = None
    header: bool = True
    quote: str = '"'
    encoding: str = "utf-8"
    exclude: tuple[str, ...] = ()
    partitions: int | None = None
    task_bytes: int | None = None
    clusters_only: bool = False
    check: bool = False
    feed_positions: tuple[tuple[str, str, int, int], ...] = ()
    schema_registry: str | None = None
    only_tables: tuple[str, ...] = ()
    published: bool = False
    snapshot: str | None = None
    feed_start: FeedStart | None = None
    row_images: str = "auto"
    keys: tuple[tuple[str, tuple[str, ...]], ...] = ()
    tracked_keys: tuple[tuple[str, tuple[str, ...]], ...] = ()
    declared_keys: bool = True
    fail_at: str | None = None
    sketches: SketchForm | None = DEFAULT_FORM
    sketch_only: bool = False
    store_values: str | None = None
    masks: tuple[tuple[str, str], ...] = ()

    def settings(self) -> dict[str, object]:
        """Give what the state remembers of a source, to read it in the same way again."""
        named = {name: getattr(self, name) for name in SETTINGS}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in named.items()}

    def remembered(self, settings: Mapping[str, Any], insert_only: bool, sketch_only: bool) -> Options:
        """Give these options with what the state remembers of the source."""
        kept = {name: settings[name] for name in SETTINGS if name in settings}
        kept = {name: tuple(value) if isinstance(value, list) else value for name, value in kept.items()}
        return replace(self, insert_only=insert_only, sketch_only=sketch_only, **kept)

    def with_those_before(self, settings: Mapping[str, Any], insert_only: bool, sketch_only: bool) -> Options:
        """Give these options, and where they say nothing what the state remembers of the source.

        Raises SourceError for a source of sketches alone that is to have none.
        """
        before, silent = self.remembered(settings, insert_only, sketch_only), Options(self.source, self.name)
        names = {name for name in SAID_ONCE if getattr(self, name) == getattr(silent, name)}
        if settings.get("published"):  # which tables these are `subsetd follow` has said
            names.discard("only_tables")
        chosen = replace(self, **{name: getattr(before, name) for name in names})
        if chosen.sketch_only and chosen.sketches is None:
            raise SourceError(
                f"Of the source {self.name} sketches alone are kept (--sketch-only), and none are to be made: switch "
                f"SUBSETD_SKETCHES on, or forget what was said of it before: --forget-options."
            )
        return chosen

    def told(self) -> list[str]:
        """Give, as a shell takes them, the options among SAID_ONCE that are not what nothing said means."""
        silent = Options(self.source, self.name)
        told = []
        for name in SAID_ONCE:
            value = getattr(self, name)
            if value == getattr(silent, name):
                continue
            option = "--no-header" if name == "header" else f"--{name.removesuffix('s').replace('_', '-')}"
            if isinstance(value, bool):
                told.append(option)
            else:
                told += [shlex.quote(f"{option}={one}") for one in (value if isinstance(value, tuple) else [value])]
        return told


@dataclass(frozen=True, slots=True)
class SourceTable:
    """Name a table of a source and its columns, each with its type's name, in order.

    `key_columns` tell its rows apart (none where that is not known), `replica_identity` is Postgres' word for it
    (full, default, index, nothing; None elsewhere). With `row_images` the bootstrap writes its rows beside the state.
    `constraints` are those that its source declares; none where files have none. `tuples` are places of columns whose
    tuples are followed as well, `keys` columns that are tracked as keys, alone or as one of these. `database` is what
    changes call its database, where they say it of themselves.
    """

    schema: str
    name: str
    columns: tuple[tuple[str, str], ...]
    key_columns: tuple[str, ...] = ()
    replica_identity: str | None = None
    row_images: bool = False
    constraints: Constraints = UNCONSTRAINED
    tuples: tuple[tuple[int, ...], ...] = ()
    keys: tuple[TrackedKey, ...] = ()
    database: str | None = None

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def attributes(self) -> list[tuple[str, str, tuple[int, ...] | None]]:
        """Give name, type and (of a tuple) the places of the parts of all that is followed, columns first."""
        columns = [name for name, _ in self.columns]
        return [
            *((name, data_type, None) for name, data_type in self.columns),
            *((tuple_name([columns[place] for place in places]), TUPLE_TYPE, places) for places in self.tuples),
        ]


@dataclass(frozen=True, slots=True)
class Split:
    """Name a part of a table (by its place in the source's list) that one task reads; `detail` is the source's own."""

    table: int
    size: int
    detail: Any

    @property
    def cost(self) -> int:
        """Give the bytes to read, with those that could be read while a file is opened."""
        return self.size + 65_536


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """Say what is wrong in a split, and where, so that the first fault of each file can be told."""

    place: str
    offset: int
    message: str = field(compare=False)
    lacks_line: bool = field(default=False, compare=False)
    """Whether place and line are still to be told before the message: to count lines is to read all before them."""


class Reader(Protocol):
    """Read splits on executors; picklable."""

    def read(self, split: Split) -> Iterator[pa.Table]:
        """Give the rows of a split in bounded tables, columns by their place; raise SourceError for bad data."""
        ...

    def check(self, split: Split) -> Fault | None:
        """Give the first fault of a split, or None."""
        ...

    def told(self, fault: Fault) -> str:
        """Give the whole message of a fault that `check` gave."""
        ...

    def place(self, split: Split) -> str:
        """Name a split for a message."""
        ...


class Source(Protocol):
    """Be a source on the driver: it knows its tables, plans their splits, and gives the reader to send along."""

    location: str
    settings: dict[str, object]

    @property
    def kind(self) -> str: ...

    @property
    def snapshot(self) -> str | None: ...

    @property
    def warnings(self) -> Sequence[str]:
        """Give what may be wrong without stopping the bootstrap."""
        ...

    def tables(self) -> list[SourceTable]: ...

    def splits(self, target: int, parallel: ParallelMap[Any, Any]) -> list[Split]:
        """Cut all tables into splits of at most about `target` bytes."""
        ...

    def reader(self) -> Reader: ...

    def confirm(self) -> None:
        """Raise SourceError when what was read is not what the source held at one moment; called when all is read."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class FoldedSource(Source, Protocol):
    """Be a source whose rows are made of a log: its tables are known after `discover`, its rows come all at once."""

    @property
    def feed_positions(self) -> tuple[tuple[str, str, int, int], ...]:
        """Give where a feed of the log goes on behind these rows."""
        ...

    def discover(self, parallel: ParallelMap[Any, Any]) -> None:
        """Learn the tables, on the executors."""
        ...

    def rows(self, spark: SparkSession, tables: Sequence[SourceTable]) -> RDD[tuple[int, pa.Table]]:
        """Give the present rows in chunks, each with its table's place."""
        ...


def open_source(options: Options) -> Source:
    """Open the source that the options name: a `postgresql://` address, or a folder or file of CSV or Parquet."""
    if re.match(r"postgres(ql)?(\+\w+)?://", options.source):
        from spark_jobs.postgres_source import PostgresSource

        return PostgresSource(options)
    if options.source.startswith("kafka://"):
        from spark_jobs.kafka_source import KafkaSource

        return KafkaSource(options)
    if "://" in options.source and has_key(options.source):  # it would be kept and shown, and is in each message
        raise SourceError(
            "The state keeps no passwords: leave user and key out of the address, and give them in settings that "
            "executors have as well: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for s3://, AZURE_CLIENT_SECRET for "
            "abfs://, "
            "spark.hadoop.fs.s3a.access.key and .secret.key in spark-defaults.conf or core-site.xml for s3a://."
        )
    from spark_jobs.csv_source import ENDINGS as CSV_ENDINGS
    from spark_jobs.csv_source import CsvSource
    from spark_jobs.parquet_source import ENDINGS as PARQUET_ENDINGS
    from spark_jobs.parquet_source import ParquetSource

    filesystem, root = find_file_system(options.source)
    found = [
        kind
        for kind, endings in (("csv", CSV_ENDINGS), ("parquet", PARQUET_ENDINGS))
        if options.format in (None, kind) and table_files(filesystem, root, endings)
    ]
    if not found:
        wanted = ", ".join(PARQUET_ENDINGS if options.format == "parquet" else CSV_ENDINGS)
        wanted += ", " + ", ".join(PARQUET_ENDINGS) if options.format is None else ""
        raise SourceError(
            f"{options.source}: there is no table in it. A table is a file, or a folder of part files, "
            f"with one of these endings: {wanted}."
        )
    if len(found) > 1:
        raise SourceError(
            f"{options.source}: it holds both CSV and Parquet. Say which to read: --format csv or parquet."
        )
    return CsvSource(options) if found[0] == "csv" else ParquetSource(options)


def find_file_system(location: str, hadoop: HadoopSettings | None = None) -> tuple[pafs.FileSystem, str]:
    """Return the file system and the path on it for a URI (`s3://...`, `hdfs://...`) or a local path.

    `hadoop` are the settings of Hadoop's file systems; None: those of this machine.
    """
    try:
        filesystem, path = file_system_of(location, hadoop or hadoop_settings())
        info = filesystem.get_file_info(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        way = "end point and credentials of the settings, and the " if "://" in location else ""
        said = getattr(error, "strerror", None) or first_line(error)
        raise SourceError(f"{location}: it cannot be reached: {said.rstrip('.')}. Check the {way}address.") from error
    if info.type == pafs.FileType.NotFound:
        raise SourceError(f"{location}: there is no such file or folder. Check the path.")
    return filesystem, path


def table_files(filesystem: pafs.FileSystem, root: str, endings: Iterable[str]) -> dict[str, list[pafs.FileInfo]]:
    """List the files of each table under `root`: a file is a table, a sub-folder is a table of part files.

    Names that start with a dot or an underscore (Spark's `_SUCCESS` and `_temporary`) are left out, at any depth.
    """

    def is_table_file(info: pafs.FileInfo) -> bool:
        name = info.base_name.lower()
        is_named = name.endswith(tuple(endings)) and not name.startswith(LEFT_OUT)
        if is_named and info.type == pafs.FileType.NotFound:
            raise SourceError(f"{info.path}: the link leads nowhere. Mend or remove it.")
        return is_named and info.type == pafs.FileType.File

    top = filesystem.get_file_info(root)
    if top.type == pafs.FileType.File:
        return {_stem(top.base_name, endings): [top]} if is_table_file(top) else {}
    tables: dict[str, list[pafs.FileInfo]] = {}
    for info in sorted(_list(filesystem, root), key=lambda i: i.path):
        if is_table_file(info):
            name, files = _stem(info.base_name, endings), [info]
        elif info.type == pafs.FileType.Directory and not info.base_name.startswith(LEFT_OUT):
            files = sorted(filter(is_table_file, _parts(filesystem, info.path)), key=lambda i: i.path)
            name = _stem(info.base_name, endings)  # Spark writes folders named like files
            if not files:
                continue
        else:
            continue
        if name in tables:
            raise SourceError(
                f"{files[0].path}: its table would be named {name!r}, as that of {tables[name][0].path}. Rename one."
            )
        tables[name] = files
    return tables


def changed_files(
    location: str, endings: Iterable[str], files: Iterable[pafs.FileInfo]
) -> list[tuple[pafs.FileInfo, pafs.FileInfo]]:
    """Give the files that are not as they were listed, each with what it is now, but not those that are gone."""
    found = table_files(*find_file_system(location), endings)
    now = {info.path: info for of_table in found.values() for info in of_table}
    pairs = ((file, now[file.path]) for file in files if file.path in now)
    return [(was, is_now) for was, is_now in pairs if (was.size, was.mtime_ns) != (is_now.size, is_now.mtime_ns)]


def refuse_changed(paths: Collection[str]) -> None:
    """Raise SourceError for files, if there are any, of which what was read may be of two moments."""
    if paths:
        first, more = sorted(paths)[:3], f" and {len(paths) - 3} more" if len(paths) > 3 else ""
        raise SourceError(
            f"{', '.join(first)}{more}: changed since the files were listed, so that what was read may be of two "
            f"moments. {NOTHING_STORED}: run the same command again when they are at rest."
        )


def _parts(filesystem: pafs.FileSystem, folder: str) -> Iterator[pafs.FileInfo]:
    """List what is below a table's folder, but for names that are left out, and what is below these.

    Arrow would follow a link that leads back as often as the system lets it, and give each file so many times.
    """
    if not isinstance(filesystem, pafs.LocalFileSystem):  # which have no links, and list all at once fast
        for info in _list(filesystem, folder, recursive=True):
            if not any(name.startswith(LEFT_OUT) for name in info.path[len(folder) :].split("/")):
                yield info
        return
    folders: list[tuple[str, tuple[tuple[int, int], ...]]] = [(folder, ())]
    while folders:
        current, above = folders.pop()
        try:
            about = os.stat(current)
        except OSError as error:
            raise SourceError(f"{current}: the folder cannot be listed: {error}.") from error
        here = about.st_dev, about.st_ino
        if here in above:
            raise SourceError(f"{current}: the folder is, by a link, one it is in. Remove the link.")
        for info in _list(filesystem, current):
            if info.base_name.startswith(LEFT_OUT):
                continue
            if info.type == pafs.FileType.Directory:
                folders.append((info.path, (*above, here)))
            else:
                yield info


def _list(filesystem: pafs.FileSystem, folder: str, recursive: bool = False) -> list[pafs.FileInfo]:
    """List a folder; a local one with links that lead nowhere, as not found."""
    try:
        found: list[pafs.FileInfo] = filesystem.get_file_info(pafs.FileSelector(folder, recursive=recursive))
        for info in found:
            info.path  # noqa: B018  (it is decoded here)
        if isinstance(filesystem, pafs.LocalFileSystem):  # by which they are left out
            links = (one.path for one in os.scandir(folder) if one.is_symlink() and not os.path.exists(one.path))
            found += (pafs.FileInfo(path, pafs.FileType.NotFound) for path in links)
    except OSError as error:
        raise SourceError(f"{folder}: the folder cannot be listed: {error}.") from error
    except UnicodeDecodeError as error:
        shown = bytes(error.object).decode(errors="replace")
        raise SourceError(f"{shown}: its name is no UTF-8. Give it another.") from error
    return found


def _stem(name: str, endings: Iterable[str]) -> str:
    ending = next((e for e in endings if name.lower().endswith(e)), "")
    return name[: len(name) - len(ending)]


def unique_names(cells: list[str]) -> list[str]:
    """Name the columns of a header: an empty one `column_N`, a repeated one with `#2`, `#3`, ... behind it."""
    named = [cell if cell.strip() else f"column_{i + 1}" for i, cell in enumerate(cells)]
    taken = set(named)
    seen: Counter[str] = Counter()
    names = []
    for name in named:
        seen[name] += 1
        if seen[name] > 1:
            start = seen[name]
            fresh = next(n for i in itertools.count(start) if (n := f"{name}#{i}") not in taken)
            taken.add(fresh)
            names.append(fresh)
        else:
            names.append(name)
    return names


def group_splits(splits: Sequence[Split], target: int) -> list[list[Split]]:
    """Group neighbouring splits into tasks of about `target` bytes; large ones first, so that no task trails."""
    tasks: list[list[Split]] = []
    size = target
    for split in splits:
        if size + split.cost > target:
            tasks.append([])
            size = 0
        tasks[-1].append(split)
        size += split.cost
    return sorted(tasks, key=lambda task: -sum(split.cost for split in task))

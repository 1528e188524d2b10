"""Own the index of a corpus: the value keys of its columns as Parquet parts, and a manifest for each generation.

A folder holds `parts/NAME.parquet`, written by tasks and never changed (value keys, or the signatures of a part's
columns), and `generation-N/`, written by the driver: tables.parquet, files.parquet, and manifest.json, which comes
last. What no manifest names is remains of a refresh that died.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from service.core.corpus_choices import Parameters
from service.core.errors import DamagedIndexError, SourceError, StateError, first_line
from service.core.records import Int32s, Int64s, Keys, UInt64s, starts_of
from spark_jobs.corpus_signatures import SignatureFile, SignatureWriter, Signing, read_signatures
from spark_jobs.hadoop_files import HadoopSettings, file_system_of, hadoop_settings

VERSION = 1
"""Of the folder's form: an index of another is read as none."""

_PART = re.compile(r"[0-9a-f]{32}\.parquet")
_GENERATION = re.compile(r"generation-([0-9]+)")
OF_INDEX = re.compile(
    rf"((?:.*/)?)(parts/{_PART.pattern}|{_GENERATION.pattern}/(tables\.parquet|files\.parquet|manifest\.json))",
    re.DOTALL,
)
"""The path of a file of an index, if there is an `owner` in the folder, too."""

BLOCK_CELLS = 1 << 20
"""Cells that are written and read at a time: 20 MB."""

CELLS = pa.schema([("column", pa.int32()), ("high", pa.uint64()), ("low", pa.uint64())])
"""A row of a part: the number of a column in the part, ascending, and the key of a value of it, each once."""

FILES = pa.schema([("path", pa.string()), ("size", pa.int64()), ("modified", pa.int64())])
"""A row of a manifest: a file that was read, with its fingerprint; `modified` in nanoseconds."""

TABLES = pa.schema(
    [
        ("path", pa.string()),
        ("file", pa.string()),
        ("line", pa.int64()),
        ("digest", pa.binary(16)),
        ("rows", pa.int64()),
        ("names", pa.list_(pa.string())),
        ("distinct", pa.list_(pa.int32())),
        ("null_only", pa.list_(pa.bool_())),
        ("integers_only", pa.list_(pa.bool_())),
        ("sums", pa.list_(pa.uint64())),
        ("part", pa.string()),
        ("part_column", pa.int32()),
        ("table_number", pa.int32()),
        ("first_column", pa.int32()),
    ]
)
"""A row of a manifest: a table, what is known of its columns by their positions, and where their keys are.

`line` (from 1) and the `digest` of the line tell the tables of a file of JSON lines apart; elsewhere both are null. The
columns are part_column, part_column + 1, ... of the part. `sums` are two sums over a column's keys, modulo 2^64, that
tell whether its values changed: high and low halves, one after the other for each column. A column's id is
first_column + its position.
"""


RANDOM = ("digest", "sums.list.element")
"""What no compression makes smaller."""


@dataclass(frozen=True, slots=True)
class Part:
    """Describe a part: how many columns and cells it was written with, the bytes of its file, and kept signatures."""

    name: str
    columns: int
    cells: int
    size: int
    signatures: SignatureFile | None = None

    def is_signed(self, parameters: Parameters) -> bool:
        """Say whether there are signatures by these parameters."""
        return self.signatures is not None and self.signatures.signing == Signing.by(parameters)

    def to_json(self) -> list[object]:
        """Give it for a manifest."""
        return [self.name, self.columns, self.cells, self.size, self.signatures and self.signatures.to_json()]

    @staticmethod
    def from_json(told: list[Any]) -> Part:
        """Take it from a manifest. Raises ValueError or TypeError for what `to_json` does not give."""
        name, columns, cells, size, *signatures = told
        return Part(name, columns, cells, size, SignatureFile.from_json(signatures[0] if signatures else None))


@dataclass(frozen=True, slots=True)
class PartColumns:
    """Name a part and the id of each of its columns, int32[columns], -1 for those that are not of the corpus now."""

    part: str
    column_ids: Int32s


@dataclass(frozen=True, slots=True)
class Manifest:
    """Hold what a generation is made of.

    `reading` are the settings that decide what a generation is: under others everything is read anew. `files` has a row
    for each file that was read, as FILES; `tables` is as TABLES, ascending by first_column. `identity` tells it from
    one of the same number in another history, which a restore begins; earlier versions gave none.
    """

    generation: int
    reading: Mapping[str, object]
    files: pa.Table
    tables: pa.Table
    parts: Sequence[Part]
    identity: str | None = None

    def part_columns(self) -> list[PartColumns]:
        """Say which columns of this generation each part has.

        A part comes twice where two tables share columns of it: equal lines of a file of JSON lines.
        """
        names = [part.name for part in self.parts]
        part = pc.index_in(self.tables["part"], pa.array(names, pa.string())).to_numpy()
        first, ids = self.tables["part_column"].to_numpy(), self.tables["first_column"].to_numpy()
        widths = pc.list_value_length(self.tables["names"]).to_numpy()
        found = []
        for number, described in enumerate(self.parts):
            rows = np.flatnonzero((part == number) & (widths > 0))
            while len(rows):
                _, chosen = np.unique(first[rows], return_index=True)
                column_ids = np.full(described.columns, -1, np.int32)
                within = counted_within(widths[rows[chosen]])
                at = np.repeat(first[rows[chosen]], widths[rows[chosen]]) + within
                column_ids[at] = np.repeat(ids[rows[chosen]], widths[rows[chosen]]) + within
                found.append(PartColumns(described.name, column_ids))
                rows = np.delete(rows, chosen)
        return found

    def live_cells(self) -> dict[str, int]:
        """Count the cells of each part that are of this generation."""
        counts = pc.list_value_length(self.tables["distinct"]).to_numpy()
        distinct = pc.list_flatten(self.tables["distinct"]).to_numpy()
        ends = np.cumsum(counts)
        before = np.concatenate([[0], np.cumsum(distinct, dtype=np.int64)])
        return self._by_part(pa.array(before[ends] - before[ends - counts]))

    def signature_counts(self, parameters: Parameters, previous: Manifest | None) -> dict[str, int]:
        """Count the columns whose signatures were `kept` from the manifest before, and those of which they were `made`.

        Neither are columns of parts that have none by these parameters, because nothing asked for them.
        """
        columns = self._by_part(pc.list_value_length(self.tables["names"]))
        before = {part.signatures for part in previous.parts} if previous is not None else set()
        counts = {"kept": 0, "made": 0}
        for part in self.parts:
            if part.is_signed(parameters):
                counts["kept" if part.signatures in before else "made"] += columns.get(part.name, 0)
        return counts

    def _by_part(self, counts: pa.Array | pa.ChunkedArray) -> dict[str, int]:
        """Add up a number of each table."""
        sums = pa.table([self.tables["part"], counts], ["part", "of"]).group_by("part").aggregate([("of", "sum")])
        return dict(zip(sums["part"].to_pylist(), sums["of_sum"].to_pylist(), strict=True))


@dataclass(frozen=True, slots=True)
class CorpusIndex:
    """Be the folder of an index: a local path, or an address of a file system that all tasks reach; picklable.

    `hadoop` are the settings of Hadoop's file systems as they are where this is made.
    """

    folder: str
    hadoop: HadoopSettings = field(default_factory=hadoop_settings)

    def claim(self, database: str, corpus_id: int, others: Mapping[int, str]) -> None:
        """Make the folder that of a corpus in a database; raise SourceError when it is another's already.

        Others of the database are given by their names; what one that is among them no longer had is removed.
        """
        filesystem, root = self._open()
        path = f"{root}/owner"
        found = ""
        with _writing(self.folder):
            if filesystem.get_file_info(path).type is not pafs.FileType.NotFound:
                with filesystem.open_input_stream(path) as stream:
                    found = stream.read().decode(errors="replace")
        owner, _, number = found.partition("\n")  # earlier versions wrote no number
        if found and owner != database:
            raise SourceError(
                f"{self.folder}: the index is that of a corpus in another database ({owner}). Remove the folder if "
                "that one is gone, or else add the corpus with another --index."
            )
        if name := {str(corpus_id): name for corpus_id, name in others.items()}.get(number):
            raise SourceError(
                f"{self.folder}: the index is that of the corpus {name}. Give each its own folder: remove this corpus, "
                "and add it with another --index."
            )
        if number != str(corpus_id):
            if number:
                self.keep_only(None)
            with _writing(self.folder):
                filesystem.create_dir(root, recursive=True)
                with filesystem.open_output_stream(path) as stream:
                    stream.write(f"{database}\n{corpus_id}".encode())

    def load(self, generation: int, reading: Mapping[str, object]) -> Manifest:
        """Read a generation's manifest.

        Signatures that are not there as they were written are left out. Raises DamagedIndexError when anything else
        that it names is not, or when it was read with other settings.
        """
        filesystem, root = self._open()
        try:
            with filesystem.open_input_stream(f"{root}/generation-{generation}/manifest.json") as stream:
                described = json.loads(stream.read())
            tables, files = (
                pq.read_table(f"{root}/generation-{generation}/{name}.parquet", filesystem=filesystem)
                for name in ("tables", "files")
            )
            parts = [Part.from_json(part) for part in described["parts"]]
            written = {each.name: each.size for part in parts for each in (part, part.signatures) if each is not None}
            infos = filesystem.get_file_info([self._path(root, name) for name in written])
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise DamagedIndexError(f"{self.folder}: there is no index of generation {generation}: {error}.") from error
        if described["version"] != VERSION or described["reading"] != json.loads(json.dumps(reading)):
            raise DamagedIndexError(
                f"{self.folder}: the index is of another version, or of other settings of the corpus."
            )
        damaged = {name for name, info in zip(written, infos, strict=True) if info.size != written[name]}
        for part in parts:
            if part.name in damaged:
                raise DamagedIndexError(f"{self._path(root, part.name)}: the part is gone, or not as it was written.")
        if not tables.schema.equals(TABLES) or not files.schema.equals(FILES):
            raise DamagedIndexError(f"{self.folder}: the manifest of generation {generation} is not as it was written.")
        unsigned = [part.signatures is not None and part.signatures.name in damaged for part in parts]
        parts = [replace(part, signatures=None) if lost else part for part, lost in zip(parts, unsigned, strict=True)]
        return Manifest(generation, reading, files, tables, parts, described.get("identity"))

    def save(self, manifest: Manifest) -> None:
        """Write a manifest, whole or not at all."""
        filesystem, root = self._open()
        folder = f"{root}/generation-{manifest.generation}"
        described = {
            "version": VERSION,
            "identity": manifest.identity,
            "reading": manifest.reading,
            "parts": [part.to_json() for part in manifest.parts],
        }
        with _writing(folder):
            filesystem.create_dir(folder, recursive=True)
            for name, table, repeated in (
                ("tables", manifest.tables, ["file", "part", "names.list.element"]),
                ("files", manifest.files, []),
            ):
                path = f"{folder}/{name}.parquet"
                packed = {leaf: "none" if leaf in RANDOM else "lz4" for leaf in _leaves(table.schema)}
                pq.write_table(
                    table, path, filesystem=filesystem, compression=packed, use_dictionary=repeated,
                    write_statistics=False,
                )  # fmt: skip
            with filesystem.open_output_stream(f"{folder}/manifest.json") as stream:
                stream.write(json.dumps(described).encode())

    def keep_only(self, manifest: Manifest | None) -> None:
        """Remove what is not of this generation: after landing, and before a refresh what one that died has left.

        Files and folders that have not the names of ours stay.
        """
        filesystem, root = self._open()
        parts = manifest.parts if manifest else ()
        kept = {f"{each.name}.parquet" for part in parts for each in (part, part.signatures) if each is not None}
        with _writing(self.folder):
            for info in filesystem.get_file_info(pafs.FileSelector(f"{root}/parts", allow_not_found=True)):
                if info.base_name not in kept and _PART.fullmatch(info.base_name):
                    filesystem.delete_file(info.path)
            for info in filesystem.get_file_info(pafs.FileSelector(root, allow_not_found=True)):
                generation = _GENERATION.fullmatch(info.base_name)
                if generation and (manifest is None or int(generation[1]) != manifest.generation):
                    filesystem.delete_dir(info.path)

    def write(self, parameters: Parameters | None = None) -> PartWriter:
        """Begin a part, with a name that no other has; with `parameters` its columns are signed, too."""
        filesystem, root = self._open()
        name = uuid.uuid4().hex
        with _writing(self.folder):
            filesystem.create_dir(f"{root}/parts", recursive=True)
        signing = None if parameters is None else partial(self._signature_writer, name, parameters)
        return PartWriter(filesystem, self._path(root, name), name, signing)

    def sign(self, part: Part, parameters: Parameters) -> Part:
        """Make the signatures of a part's columns anew, from their keys; give the part with them."""
        everything = self.blocks(PartColumns(part.name, np.arange(part.columns, dtype=np.int32)))
        with _writing(self.folder):
            writer = self._signature_writer(part.name, parameters)
            for _ in writer.signing(part.columns, everything):
                pass
            return replace(part, signatures=writer.close())

    def signatures(self, part: Part, parameters: Parameters) -> Iterator[tuple[int, UInt64s]]:
        """Yield the kept signatures of a part in blocks, uint64[n, words], each with the number of its first column.

        Raises DamagedIndexError when they are not as they were written, perhaps after all blocks.
        """
        assert part.signatures is not None
        filesystem, root = self._open()
        path = self._path(root, part.signatures.name)
        try:
            yield from read_signatures(filesystem, path, part.name, part.columns, parameters, part.signatures.checksum)
        except (OSError, ValueError, TypeError, pa.ArrowException) as error:
            raise DamagedIndexError(f"{path}: the signatures cannot be read: {error}.") from error

    def _signature_writer(self, part: str, parameters: Parameters) -> SignatureWriter:
        filesystem, root = self._open()
        name = uuid.uuid4().hex
        return SignatureWriter(filesystem, self._path(root, name), name, part, parameters)

    def blocks(self, part: PartColumns) -> Iterator[tuple[Int32s, Keys]]:
        """Yield the cells of a part's live columns in blocks of at most BLOCK_CELLS: column ids, int32[n], value keys.

        Cells of one column stand together, perhaps in two blocks, and no cell comes twice. Raises DamagedIndexError.
        """
        filesystem, root = self._open()
        path = self._path(root, part.part)
        try:
            with pq.ParquetFile(filesystem.open_input_file(path)) as file:
                for group in range(file.num_row_groups):
                    column = file.read_row_group(group, ["column"], use_threads=False)["column"].to_numpy()
                    ids = part.column_ids[column]
                    live = ids >= 0
                    if not live.any():
                        continue
                    halves = file.read_row_group(group, ["high", "low"], use_threads=False)
                    keys = Keys(halves["high"].to_numpy(), halves["low"].to_numpy())
                    yield (ids, keys) if live.all() else (ids[live], keys.take(live))
        except (OSError, IndexError, ValueError, pa.ArrowException) as error:
            raise DamagedIndexError(f"{path}: the part cannot be read: {error}.") from error

    def columns(self, parts: Sequence[PartColumns]) -> tuple[Int32s, Int64s, Keys]:
        """Give all live columns of some parts: ids, int32[n], starts, int64[n + 1], and keys end to end.

        Columns without values have no place in it. 20 bytes a cell, twice while they are put together.
        """
        blocks = [block for part in parts for block in self.blocks(part)]
        ids = np.concatenate([np.zeros(0, np.int32), *(ids for ids, _ in blocks)])
        high, low = (np.concatenate([np.zeros(0, np.uint64), *(keys[half] for _, keys in blocks)]) for half in (0, 1))
        first = np.flatnonzero(np.concatenate([np.ones(min(1, len(ids)), np.bool_), ids[1:] != ids[:-1]]))
        return ids[first], np.append(first, len(ids)), Keys(high, low)

    def digests(self, generation: int) -> DigestsByFile:
        """Read the digests of all lines that a generation has tables of."""
        filesystem, root = self._open()
        path = f"{root}/generation-{generation}/tables.parquet"
        try:
            rows = pq.read_table(path, columns=["file", "digest"], filesystem=filesystem)
        except (OSError, pa.ArrowException) as error:
            raise DamagedIndexError(f"{path}: the manifest cannot be read: {error}.") from error
        rows = rows.filter(rows["digest"].is_valid())
        files = rows["file"].combine_chunks().dictionary_encode()
        numbers = {name: place for place, name in enumerate(files.dictionary.to_pylist())}
        of_files = files.indices.to_numpy()
        order = np.argsort(of_files, kind="stable")  # the files' runs are merged
        starts = np.searchsorted(of_files[order], np.arange(len(numbers) + 1))
        packed = rows["digest"].combine_chunks()
        data = np.frombuffer(packed.buffers()[1] or b"", ">u8").reshape(-1, 2)
        halves = data[packed.offset : packed.offset + len(packed)][order].astype(np.uint64).ravel()
        return DigestsByFile(numbers, starts, Keys(halves[::2], halves[1::2]))

    def _open(self) -> tuple[pafs.FileSystem, str]:
        try:
            return file_system_of(self.folder, self.hadoop)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise SourceError(f"{self.folder}: the folder of the index cannot be reached: {error}.") from error

    @staticmethod
    def _path(root: str, part: str) -> str:
        return f"{root}/parts/{part}.parquet"


def _leaves(schema: pa.Schema) -> list[str]:
    """Name the columns of a Parquet file of a schema."""
    return [f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name for field in schema]


@contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateError(
            f"{path}: the index of the corpus cannot be written: {error.strerror or first_line(error)}. See that it "
            "can be reached and written to and has room, or add the corpus with another folder for its index."
        ) from error


@dataclass(frozen=True, slots=True)
class DigestsByFile:
    """Hold the digests of lines as two halves, those of file number i at [starts[i]:starts[i + 1]]."""

    numbers: Mapping[str, int]
    starts: Int64s
    digests: Keys

    def of(self, file: str) -> Keys:
        """Give those of a file, none for one that is not there."""
        number = self.numbers.get(file)
        if number is None:
            return self.digests.take(slice(0))
        return self.digests.take(slice(*self.starts[number : number + 2].tolist()))


class PartWriter:
    """Write the columns of a part one after the other, and their signatures; a part without columns leaves no file."""

    def __init__(
        self, filesystem: pafs.FileSystem, path: str, name: str, signing: Callable[[], SignatureWriter] | None
    ) -> None:
        self.name = name
        self._filesystem = filesystem
        self._path = path
        self._writer: pq.ParquetWriter | None = None
        self._signing = signing
        self._signatures: SignatureWriter | None = None
        self._columns = self._cells = 0

    def add(self, starts: Int64s, keys: Keys) -> int:
        """Write columns, keys of column i at [starts[i]:starts[i + 1]]; give the number of the first in the part."""
        columns = len(starts) - 1
        return self.extend(columns, [(np.repeat(np.arange(columns, dtype=np.int32), np.diff(starts)), keys)])

    def extend(self, columns: int, blocks: Iterable[tuple[Int32s, Keys]]) -> int:
        """Write some columns; blocks have the columns' numbers from 0, ascending, and the keys of their values."""
        first = self._columns
        self._columns += columns
        with _writing(self._path):
            if self._writer is None:
                self._writer = pq.ParquetWriter(
                    self._path, CELLS, filesystem=self._filesystem, compression="none", use_dictionary=False,
                    write_statistics=False,
                    column_encoding={"column": "DELTA_BINARY_PACKED", "high": "PLAIN", "low": "PLAIN"},
                )  # fmt: skip
                self._signatures = None if self._signing is None else self._signing()
            if self._signatures is not None:
                blocks = self._signatures.signing(columns, blocks)
            for numbers, keys in blocks:
                self._cells += len(numbers)
                cells = [pa.array(numbers + np.int32(first)), pa.array(keys.high), pa.array(keys.low)]
                self._writer.write_table(pa.table(cells, schema=CELLS), BLOCK_CELLS)
        return first

    def close(self) -> Part | None:
        """End the part and describe it."""
        if self._writer is None:
            return None
        with _writing(self._path):
            self._writer.close()
            size = self._filesystem.get_file_info(self._path).size
            signatures = None if self._signatures is None else self._signatures.close()
            return Part(self.name, self._columns, self._cells, size, signatures)


def counted_within(lengths: Int64s) -> Int64s:
    """Count from 0 in each of several lists that lie end to end."""
    starts = starts_of(lengths)
    return np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)

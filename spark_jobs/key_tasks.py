"""Own the tasks of the search for keys as Spark runs them: each reads one table, or of its tuples one split."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

import numpy as np

from service.core.canonical import cell_decoder
from service.core.errors import RecordError, SourceError
from service.core.foreign_keys.candidates import Columns
from service.core.key_search import Chunk, FoundKeys, Share, distinct_tuples, find_keys
from service.core.records import UInt64s
from service.core.text_hashes import text_hashes
from service.store.canonical_sql import needs_document_walk
from spark_jobs.kernels import column_texts
from spark_jobs.sources import Reader, SourceTable, Split


@dataclass(frozen=True, slots=True)
class TableReading:
    """Read a table as hashes of its canonical texts; picklable. Each call of `chunks` reads it anew."""

    reader: Reader
    table: SourceTable
    splits: Sequence[Split]
    is_database: bool
    null_tokens: Sequence[str]

    def chunks(self, columns: Collection[int] | None = None) -> Iterator[Chunk]:
        """Give the rows, and of all columns but these zeros; raise SourceError for data that cannot be read."""
        decoders = [
            cell_decoder(kind) if self.is_database and needs_document_walk(kind) else None
            for _, kind in self.table.columns
        ]
        for split in self.splits:
            for rows in self.reader.read(split):
                hashes = np.zeros((len(rows), len(decoders)), np.uint64, order="F")
                nulls = np.zeros(hashes.shape, np.bool_, order="F")
                for place in range(len(decoders)) if columns is None else columns:
                    try:
                        texts = column_texts(rows.column(place), self.null_tokens, decoders[place])
                    except (RecordError, SourceError) as error:
                        name = self.table.columns[place][0]
                        raise SourceError(
                            f"{self.reader.place(split)}, column {name!r} of {self.table}: {error}"
                        ) from error
                    hashes[:, place] = text_hashes(texts)
                    if texts.null_count:
                        nulls[:, place] = texts.is_null().to_numpy(zero_copy_only=False)
                yield Chunk(hashes, nulls)


class _HashFile:
    """Keep the chunks of a table in a nameless file on the executor's disk: 9 bytes a cell, gone with its process.

    A search for keys looks at hundreds of combinations, and parsing the source for each takes longer than all else.
    """

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by whoever entered it
        self._shapes: list[tuple[int, int]] = []
        for chunk in chunks:
            self._shapes.append(chunk.hashes.shape)
            for of_cells in chunk:
                self._file.write(np.ascontiguousarray(of_cells.T).data)
        self._file.flush()
        self._held = np.memmap(self._file, np.uint8, "r") if self._file.tell() else np.zeros(0, np.uint8)

    def __enter__(self) -> _HashFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, of: TracebackType | None) -> None:
        self._file.close()

    def chunks(self) -> Iterator[Chunk]:
        """Give the rows as they were, from the file."""
        start = 0
        for rows, columns in self._shapes:
            middle, end = start + 8 * rows * columns, start + 9 * rows * columns
            hashes = self._held[start:middle].view(np.uint64).reshape(columns, rows).T
            yield Chunk(hashes, self._held[middle:end].view(np.bool_).reshape(columns, rows).T)
            start = end


@dataclass(frozen=True, slots=True)
class KeyTask:
    """Find the minimal keys of a table; picklable."""

    width: int
    most: int
    memory: int

    def __call__(self, reading: TableReading) -> FoundKeys:
        with _HashFile(reading.chunks()) as held:
            return find_keys(held.chunks, self.width, self.most, self.memory)


@dataclass(frozen=True, slots=True)
class TupleTask:
    """Give a share of the distinct tuples of columns, by their places, in what a reading has, as hashes; picklable."""

    share: Share

    def __call__(self, asked: tuple[TableReading, Sequence[Columns]]) -> Mapping[Columns, UInt64s]:
        reading, wanted = asked
        columns = {column for side in wanted for column in side}
        return distinct_tuples(lambda: reading.chunks(columns), wanted, self.share)

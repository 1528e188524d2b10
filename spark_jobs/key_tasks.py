"""Own the tasks of the search for keys as Spark runs them: each reads one table, as often as it needs to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from service.core.canonical import cell_decoder
from service.core.canonical_arrow import key_array
from service.core.errors import RecordError, SourceError
from service.core.foreign_keys.candidates import Columns
from service.core.key_search import Chunk, FoundKeys, Share, distinct_tuples, find_keys
from service.core.records import UInt64s
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

    def chunks(self) -> Iterator[Chunk]:
        """Give the rows; raise SourceError for data that cannot be read."""
        decoders = [
            cell_decoder(kind) if self.is_database and needs_document_walk(kind) else None
            for _, kind in self.table.columns
        ]
        for split in self.splits:
            for rows in self.reader.read(split):
                hashes = np.zeros((len(rows), len(decoders)), np.uint64)
                nulls = np.zeros(hashes.shape, np.bool_)
                for place, decode in enumerate(decoders):
                    try:
                        texts = column_texts(rows.column(place), self.null_tokens, decode)
                    except (RecordError, SourceError) as error:
                        name = self.table.columns[place][0]
                        raise SourceError(
                            f"{self.reader.place(split)}, column {name!r} of {self.table}: {error}"
                        ) from error
                    hashes[:, place] = key_array(texts.fill_null(""))[:, 0]
                    nulls[:, place] = texts.is_null().to_numpy(zero_copy_only=False)
                yield Chunk(hashes, nulls)


@dataclass(frozen=True, slots=True)
class KeyTask:
    """Find the minimal keys of a table; picklable."""

    width: int
    most: int
    memory: int

    def __call__(self, reading: TableReading) -> FoundKeys:
        return find_keys(reading.chunks, self.width, self.most, self.memory)


@dataclass(frozen=True, slots=True)
class TupleTask:
    """Give a share of the distinct tuples of a table's columns, by their places, as hashes; picklable."""

    share: Share

    def __call__(self, asked: tuple[TableReading, Sequence[Columns]]) -> Mapping[Columns, UInt64s]:
        reading, wanted = asked
        return distinct_tuples(reading.chunks, wanted, self.share)

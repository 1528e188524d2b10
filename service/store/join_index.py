"""Own the search of a join index in Postgres: postings of values and rows, in a few statements for each search.

`PostgresSegment` is what core.joinability searches; a search sees what it has begun with, whatever lands meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Engine, text

from service.core.cell_index import Postings
from service.core.errors import DamagedStateError, NotFoundError
from service.core.join_layout import EMPTY_CELL, Layout
from service.core.joinability import Rows
from service.core.posting_buckets import MOST_VALUES, bucket_numbers, find_in_bucket
from service.core.records import Int64s, Keys, UInt64s, starts_of
from service.core.row_filters import BITS, CountedBits
from service.store.corpora import corpus_named
from service.usecases.joinable import IndexedTable

BUCKETS_AT_ONCE = 4096
"""Buckets of one statement: some MB."""

INDEX = "select generation, segment_ids, built_at from join_index where corpus_id = :corpus_id"
SEGMENTS = """
select segment_id, bucket_bits, layout, dead from join_segment where segment_id = any(:ids) order by segment_id
"""
BUCKETS = "select bucket, data from join_bucket where segment_id = :segment_id and bucket = any(:asked)"
ROWS = """
select first_row, super_keys, cells from join_rows where segment_id = :segment_id and first_row = any(:asked)
order by first_row
"""
TABLES = """
select place, table_number, path, column_names from join_table where segment_id = :segment_id and place = any(:asked)
"""


class PostgresJoinIndexes:
    """Implement usecases.joinable.JoinIndexes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @contextmanager
    def snapshot(self, corpus: str) -> Iterator[PostgresJoinSnapshot]:
        reading = self._engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        with reading.connect() as connection:
            found = connection.execute(text(INDEX), {"corpus_id": corpus_named(connection, corpus).corpus_id})
            index = found.one_or_none()
            if index is None:
                raise NotFoundError(
                    f"The corpus {corpus!r} has no index of joinable tables; `subsetd corpus index {corpus} --wait` "
                    "builds it."
                )
            segments = [
                PostgresSegment(
                    connection, segment_id, bits, Layout.from_bytes(bytes(layout)), np.frombuffer(dead, "<i4")
                )
                for segment_id, bits, layout, dead in connection.execute(text(SEGMENTS), {"ids": index.segment_ids})
            ]
            yield PostgresJoinSnapshot(index.generation, index.built_at, segments)


class PostgresJoinSnapshot:
    """Hold what is searched, and which generation of the corpus it is of."""

    def __init__(self, generation: int, built_at: datetime, segments: Sequence[PostgresSegment]) -> None:
        self.generation = generation
        self.built_at = built_at
        self.segments = segments


class PostgresSegment:
    """Be a JoinIndex of the values that `numbers` was asked for; others it does not know."""

    def __init__(
        self, connection: Connection, segment_id: int, bits: int, layout: Layout, dead: NDArray[np.int32]
    ) -> None:
        self._connection = connection
        self._segment_id = segment_id
        self._bits = bits
        self._layout = layout
        self._dead = dead
        self._functions, self.classes = np.unique(layout.functions, return_inverse=True)
        self._values, self._keys = np.zeros(0, np.int64), Keys.of(())
        self._starts, self._places = np.zeros(1, np.int64), np.zeros(0, np.int64)

    def numbers(self, keys: Keys) -> Int64s:
        """Give the numbers of values, -1 for those that are nowhere; keys by ascending order, each once."""
        buckets, first = np.unique(bucket_numbers(keys, self._bits), return_index=True)
        bounds = dict(zip(buckets.tolist(), pairwise([*first.tolist(), len(keys.high)]), strict=True))
        numbers, lengths = np.full(len(keys.high), -1, np.int64), np.zeros(len(keys.high), np.int64)
        places: dict[int, Int64s] = {}
        for at in range(0, len(buckets), BUCKETS_AT_ONCE):
            asked = buckets[at : at + BUCKETS_AT_ONCE].tolist()
            for bucket, data in self._connection.execute(text(BUCKETS), self._of(asked)):
                of_bucket = slice(*bounds[bucket])
                found = find_in_bucket(bytes(data), keys.take(of_bucket))
                numbers[of_bucket] = np.where(found.ranks < 0, -1, bucket * MOST_VALUES + found.ranks)
                lengths[of_bucket] = np.diff(found.starts)
                places[bucket] = found.places
        known = numbers >= 0
        self._values, self._keys = numbers[known], keys.take(known)
        self._starts = starts_of(lengths[known])
        self._places = np.concatenate([np.zeros(0, np.int64), *(places[bucket] for bucket in sorted(places))])
        if len(self._dead):
            live = ~np.isin(self._layout.tables(self._places), self._dead)
            self._starts, self._places = starts_of(live.astype(np.int64))[self._starts], self._places[live]
        return numbers

    def of_keys(self, keys: Int64s) -> UInt64s:
        no_rows = np.zeros((0, BITS // 64), np.uint64)
        counted = CountedBits(self._keys, self._functions, no_rows, self.classes)
        return counted.of_keys(np.searchsorted(self._values, keys))

    def counts(self, values: Int64s) -> Int64s:
        lengths = np.append(np.diff(self._starts), 0)
        return np.where(values < 0, 0, lengths[np.searchsorted(self._values, values)])

    def postings(self, values: Int64s) -> Postings:
        at = np.searchsorted(self._values, values)
        counts = np.diff(self._starts)[at]
        asked = np.repeat(np.arange(len(values)), counts)
        within = np.arange(len(asked)) - np.repeat(starts_of(counts)[:-1], counts)
        return self._layout.postings(asked, self._places[self._starts[at][asked] + within])

    def rows(self, numbers: Int64s) -> Rows:
        """Fetch the blocks that rows are in."""
        asked = np.unique(self._layout.blocks(numbers))
        found = self._connection.execute(text(ROWS), self._of(asked.tolist())).all() if len(asked) else []
        if len(found) != len(asked):
            raise DamagedStateError(f"Of {len(asked)} blocks of rows of a join index {len(found)} are there.")
        super_keys = np.frombuffer(b"".join(bytes(row.super_keys) for row in found), "<u8").reshape(-1, BITS // 64)
        cells = np.frombuffer(b"".join(bytes(row.cells) for row in found), "<u4").astype(np.int64)
        cells[cells == EMPTY_CELL] = -1
        heights = np.array([len(row.super_keys) // (BITS // 8) for row in found], np.int64)
        first = starts_of(heights)
        starts = starts_of(np.repeat(self._layout.widths_of(asked), heights))
        block = np.searchsorted(asked, numbers, "right") - 1
        return Rows(first[block] + numbers - asked[block], super_keys.astype(np.uint64), starts, cells)

    def tables(self, places: Sequence[int]) -> dict[int, IndexedTable]:
        found = self._connection.execute(text(TABLES), self._of(list(places)))
        return {row.place: IndexedTable(row.table_number, row.path, row.column_names) for row in found}

    def first_row(self, place: int) -> int:
        return int(self._layout.first_rows[place])

    def _of(self, asked: Sequence[int]) -> dict[str, object]:
        return {"segment_id": self._segment_id, "asked": asked}

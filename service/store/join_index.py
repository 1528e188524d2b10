"""Own the search of a join index in Postgres: postings of values and rows, in a few statements for each search.

`PostgresSegment` is what core.joinability searches; a search sees what it has begun with, whatever lands meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Engine, text

from service.core.cell_index import Postings
from service.core.errors import DamagedStateError, NotFoundError
from service.core.join_layout import EMPTY_CELL, Layout
from service.core.joinability import Rows
from service.core.near_matches import Near
from service.core.posting_buckets import Buckets, Found, bucket_numbers, find_in_buckets
from service.core.records import Int64s, Keys, UInt64s, starts_of
from service.core.row_filters import BITS, CountedBits
from service.store.corpora import corpus_named
from service.usecases.joinable import IndexedTable, ShownRow

BUCKETS_AT_ONCE = 4096
"""Buckets of one statement: some MB."""
BLOCKS_AT_ONCE = 64
"""Blocks of rows of one statement: 5 MB of a table of 16 columns, 64 MB of a wide one."""
MOST_SHAPES = 64
"""Segments whose layouts are kept beside those of a search: some 60 bytes a table."""

INDEX = """
select i.generation, i.built_at, i.reading, s.segment_id, s.dead
from corpus c join join_index i using (corpus_id) left join join_segment s on s.segment_id = any(i.segment_ids)
where c.name = :corpus order by s.segment_id
"""
LAYOUTS = "select segment_id, bucket_bits, layout from join_segment where segment_id = any(:ids)"
BUCKETS = "select bucket, data from join_bucket where segment_id = :segment_id and bucket = any(:asked)"
ROWS = """
select first_row, super_keys, cells from join_rows where segment_id = :segment_id and first_row = any(:asked)
order by first_row
"""
TABLES = """
select place, table_number, path, column_names from join_table where segment_id = :segment_id and place = any(:asked)
"""


class SegmentShape:
    """Hold what never changes of a segment, and its tables' classes by their functions."""

    def __init__(self, bits: int, layout: Layout) -> None:
        self.bits = bits
        self.layout = layout
        self.functions, self.classes = np.unique(layout.functions, return_inverse=True)


class PostgresJoinIndexes:
    """Implement usecases.joinable.JoinIndexes; keeps the shapes of segments for searches that follow."""

    def __init__(self, engine: Engine) -> None:
        self._reading = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self._shapes: dict[int, SegmentShape] = {}

    @contextmanager
    def snapshot(self, corpus: str) -> Iterator[PostgresJoinSnapshot]:
        with self._reading.connect() as connection:
            found = [] if "\0" in corpus else connection.execute(text(INDEX), {"corpus": corpus}).all()
            if not found:
                corpus_named(connection, corpus)
                raise NotFoundError(
                    f"The corpus {corpus!r} has no index of joinable tables; `subsetd corpus index {corpus} --wait` "
                    "builds it."
                )
            dead = {row.segment_id: np.frombuffer(row.dead, "<i4") for row in found if row.segment_id is not None}
            shapes = self._shapes_of(connection, list(dead))
            segments = [PostgresSegment(connection, number, shapes[number], dead[number]) for number in dead]
            reading = found[0].reading
            near, null_tokens = frozenset(map(Near, reading.get("near", ()))), reading.get("null_tokens", ())
            yield PostgresJoinSnapshot(found[0].generation, found[0].built_at, segments, near, null_tokens)

    def _shapes_of(self, connection: Connection, segment_ids: Sequence[int]) -> dict[int, SegmentShape]:
        """Give the shapes of segments; the oldest that are kept are forgotten, as segments come and go."""
        known = {number: self._shapes[number] for number in segment_ids if number in self._shapes}
        unknown = [number for number in segment_ids if number not in known]
        if unknown:
            read = {
                number: SegmentShape(bits, Layout.from_bytes(bytes(layout)))
                for number, bits, layout in connection.execute(text(LAYOUTS), {"ids": unknown})
            }
            known |= read
            kept = list(self._shapes.items())[-MOST_SHAPES:]
            self._shapes = dict(kept) | read
        return known


class PostgresJoinSnapshot:
    """Hold what is searched, of which generation of the corpus, which texts are near in it, and which are none."""

    version = None
    not_indexed = ()

    def __init__(
        self,
        generation: int,
        built_at: datetime,
        segments: Sequence[PostgresSegment],
        near: frozenset[Near],
        null_tokens: Sequence[str],
    ) -> None:
        self.generation = generation
        self.built_at = built_at
        self.segments = segments
        self.near = near
        self.null_tokens = null_tokens


class PostgresSegment:
    """Be a JoinIndex of the values that `numbers` was asked for; others it does not know."""

    def __init__(self, connection: Connection, segment_id: int, shape: SegmentShape, dead: NDArray[np.int32]) -> None:
        self._connection = connection
        self._segment_id = segment_id
        self._bits, self._layout = shape.bits, shape.layout
        self._functions, self.classes = shape.functions, shape.classes
        self._dead = dead
        self._keys = Keys.of(())
        self._found = Found.joined(())
        self._known = self._values = np.zeros(0, np.int64)

    def numbers(self, keys: Keys) -> Int64s:
        """Give the numbers of values, -1 for those that are nowhere; keys by ascending order, each once."""
        wanted = bucket_numbers(keys, self._bits)
        buckets, first = np.unique(wanted, return_index=True)
        parts = []
        for at in range(0, len(buckets), BUCKETS_AT_ONCE):
            asked = buckets[at : at + BUCKETS_AT_ONCE]
            of_asked = keys.take(slice(first[at], int(np.searchsorted(wanted, asked[-1], "right"))))
            parts.append(find_in_buckets(self._buckets(asked), of_asked, self._bits))
        self._found = Found.joined(parts)
        self._known = np.flatnonzero(self._found.numbers >= 0)
        self._values, self._keys = self._found.numbers[self._known], keys.take(self._known)
        return self._found.numbers

    def _buckets(self, asked: Int64s) -> Buckets:
        """Fetch buckets; those without a value are not there."""
        found = self._connection.execute(text(BUCKETS), self._of(asked.tolist())).all()
        lengths = np.array([len(data) for _, data in found], np.int64)
        data = np.frombuffer(b"".join(data for _, data in found), np.uint8)
        return Buckets(np.array([bucket for bucket, _ in found], np.int64), starts_of(lengths), data)

    def of_keys(self, keys: Int64s) -> UInt64s:
        no_rows = np.zeros((0, BITS // 64), np.uint64)
        counted = CountedBits(self._keys, self._functions, no_rows, self.classes)
        return counted.of_keys(np.searchsorted(self._values, keys))

    def counts(self, values: Int64s) -> Int64s:
        """Give at most how many postings values have, before any is decoded: those of dead tables count, too."""
        counts = np.append(self._found.counts[self._known], 0)
        return np.where(values < 0, 0, counts[np.searchsorted(self._values, values)])

    def postings(self, values: Int64s) -> Postings:
        """Decode the postings of values."""
        chosen = self._known[np.searchsorted(self._values, values)]
        asked = np.repeat(np.arange(len(values)), self._found.counts[chosen])
        places = self._found.places(chosen)
        tables = self._layout.tables(places)
        if len(self._dead):
            live = ~np.isin(tables, self._dead)
            asked, places, tables = asked[live], places[live], tables[live]
        return Postings(asked, self._layout.rows_of(places, tables), tables)

    def rows(self, numbers: Int64s) -> Rows:
        """Fetch the blocks that rows are in, some at a time, and keep the rows: a block may have one alone of them."""
        wanted, places = np.unique(numbers, return_inverse=True)
        asked, first = np.unique(self._layout.blocks(wanted), return_index=True)
        bounds, widths = [*first.tolist(), len(wanted)], self._layout.widths_of(asked).tolist()
        super_keys, cells = [np.zeros((0, BITS // 64), "<u8")], [np.zeros(0, "<u4")]
        for at in range(0, len(asked), BLOCKS_AT_ONCE):
            some = asked[at : at + BLOCKS_AT_ONCE]
            found = self._connection.execute(text(ROWS), self._of(some.tolist())).all()
            if len(found) != len(some):
                raise DamagedStateError(f"Of {len(some)} blocks of rows of a join index {len(found)} are there.")
            for place, block in enumerate(found, at):
                own = wanted[bounds[place] : bounds[place + 1]] - block.first_row
                of_block = np.frombuffer(block.super_keys, "<u8").reshape(-1, BITS // 64)
                super_keys.append(of_block[own])
                of_rows = np.frombuffer(block.cells, "<u4").reshape(len(of_block), widths[place])
                cells.append(of_rows[own].ravel())
        joined = np.concatenate(cells).astype(np.int64)
        joined[joined == EMPTY_CELL] = -1
        starts = starts_of(self._layout.widths_of(wanted))
        return Rows(places, np.concatenate(super_keys).astype(np.uint64), starts, joined)

    def tables(self, places: Sequence[int]) -> dict[int, IndexedTable]:
        found = self._connection.execute(text(TABLES), self._of(list(places)))
        return {row.place: IndexedTable(row.table_number, row.path, row.column_names) for row in found}

    def show(self, place: int, rows: Int64s) -> list[ShownRow]:
        return [ShownRow(number, None) for number in (rows - self._layout.first_rows[place]).tolist()]

    def _of(self, asked: Sequence[int]) -> dict[str, object]:
        return {"segment_id": self._segment_id, "asked": asked}

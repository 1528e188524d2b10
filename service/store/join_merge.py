"""Own the merging of the segments of a join index to one, without the files: as one that is built anew, byte by byte.

It runs in one process, range by range of the value keys and then block by block of the rows; what it holds for all
values is the number that each had and the one that it gets, 16 bytes a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from service.core.join_layout import EMPTY_CELL, Layout
from service.core.posting_buckets import (
    MOST_BITS,
    SAMPLE,
    Buckets,
    CrowdedError,
    TooManyValuesError,
    bits_for,
    decode_buckets,
    smallest_halves,
    values_estimated,
)
from service.core.posting_ranges import ValuePlaces, code_range
from service.core.records import Int64s, UInt64s, starts_of
from service.store.database import connect
from service.store.join_loads import BUILD_NAME, SegmentLoad, StoredSegment
from service.store.join_packing import RowBlock

RANGE_CELLS = 4_000_000
"""Cells of one range of keys, about."""

BLOCKS_AT_ONCE = 1000
"""Blocks of rows that are fetched at a time, of large ones fewer: `blocks_at_once`."""

MOST_SEGMENTS = 8


def wants_merging(segments: Sequence[StoredSegment]) -> bool:
    """Say whether there are too many segments, or a fourth of their rows is dead."""
    rows = sum(int(segment.layout.first_rows[-1]) for segment in segments)
    dead = sum(int(segment.layout.rows[segment.dead].sum()) for segment in segments)
    return len(segments) > MOST_SEGMENTS or 4 * dead > rows


def blocks_at_once(layout: Layout) -> int:
    """Say how many blocks of rows to fetch at a time, so that they have no more cells than a range of keys."""
    largest = int((np.minimum(layout.rows, layout.block_rows) * layout.widths).max(initial=1))
    return max(1, min(BLOCKS_AT_ONCE, RANGE_CELLS // max(largest, 1)))


def merge_segments(url: str, corpus_id: int, segments: Sequence[StoredSegment]) -> tuple[StoredSegment, int] | None:
    """Write a segment of all tables that live, and give it and the number of tasks; nothing is searched in it yet.

    None where the values of all together cannot be numbered. The caller holds the index by `join_loads.building`.
    """
    least = 1
    while least <= MOST_BITS:
        try:
            return _merged(url, corpus_id, segments, least)
        except CrowdedError as error:
            least = error.bits
        except TooManyValuesError:
            return None
    return None


def _merged(url: str, corpus_id: int, segments: Sequence[StoredSegment], least: int) -> tuple[StoredSegment, int]:
    """Merge with at least so many bits of bucket numbers; raise CrowdedError where more are needed."""
    merge = _Merge(segments)
    with connect(url, BUILD_NAME) as connection:
        bits = max(least, bits_for(values_estimated(merge.smallest(connection))))
        merge.range_bits = min(merge.range_bits, bits)  # else two ranges would write to one bucket
        load = SegmentLoad.begin(url, corpus_id, merge.layout, merge.tables, bits)
        for number in range(1 << merge.range_bits):
            load.copy_buckets(number, merge.range(connection, number, bits))
        for number in range(len(segments)):
            load.copy_rows((1 << merge.range_bits) + number, merge.blocks(connection, number))
    merged = StoredSegment(load.segment_id, bits, merge.layout, dict(enumerate(merge.tables)))
    return merged, (1 << merge.range_bits) + len(segments)


class _Merge:
    def __init__(self, segments: Sequence[StoredSegment]) -> None:
        self.segments = segments
        found = [(table, number, place) for number, each in enumerate(segments) for place, table in each.tables.items()]
        found.sort(key=lambda each: each[0].path)
        self.tables = [table for table, _, _ in found]
        self.places = [np.full(len(segment.layout.rows), -1, np.int64) for segment in segments]
        for new, (_, number, place) in enumerate(found):
            self.places[number][place] = new
        of, at = (np.array([each[part] for each in found], np.int64) for part in (1, 2))
        starts = starts_of(np.array([len(segment.layout.rows) for segment in segments], np.int64))
        chosen = starts[of] + at
        self.layout = Layout.of(
            *(
                np.concatenate([np.zeros(0, np.int64), *(getattr(segment.layout, name) for segment in segments)])[
                    chosen
                ]
                for name in ("rows", "widths", "functions", "block_rows")
            )
        )
        wanted = max(1, int(self.layout.first_cells[-1] // RANGE_CELLS).bit_length())
        self.range_bits = min([wanted, *(segment.bits for segment in segments)])
        self._numbers: list[list[tuple[Int64s, Int64s]]] = [[] for _ in segments]

    def smallest(self, connection: Any) -> UInt64s:
        """Give the smallest first halves of all keys."""
        found = np.zeros(0, np.uint64)
        for number in range(1 << self.range_bits):
            found = np.concatenate([found, *(values.keys.high for values in self._values(connection, number))])
            if len(smallest_halves(found)) == SAMPLE:
                break
        return smallest_halves(found)

    def range(self, connection: Any, number: int, bits: int) -> Buckets:
        """Give the buckets of a range of keys, and keep which number its values had, and have."""
        values = list(self._values(connection, number))
        buckets, numbers = code_range(values, bits)
        for each, of_values in zip(values, numbers, strict=True):
            self._numbers[each.source].append((each.codes, of_values))
        return buckets

    def blocks(self, connection: Any, number: int) -> Iterator[RowBlock]:
        """Give the blocks of the rows of a segment that live, with the new numbers of their values."""
        layout, places = self.segments[number].layout, self.places[number]
        none = (np.zeros(0, np.int64),) * 2
        had, have = (np.concatenate(parts) for parts in zip(none, *self._numbers[number], strict=True))
        # A cell of a table that is dead may have a value that is no more; the last one stands for an empty cell.
        had, have = np.append(had, EMPTY_CELL), np.append(have, EMPTY_CELL)
        with connection.cursor("blocks") as cursor:
            cursor.execute(
                "SELECT first_row, super_keys, cells FROM join_rows WHERE segment_id = %s ORDER BY first_row",
                (self.segments[number].segment_id,),
            )
            at_once = blocks_at_once(layout)
            while found := cursor.fetchmany(at_once):
                first_rows = np.array([row[0] for row in found], np.int64)
                tables = np.searchsorted(layout.first_rows, first_rows, "right") - 1
                cells = np.frombuffer(b"".join(bytes(row[2]) for row in found), "<u4")
                numbers = have[np.searchsorted(had, cells)]
                bounds = starts_of(np.array([len(row[2]) // 4 for row in found], np.int64)).tolist()
                firsts = first_rows - layout.first_rows[tables] + self.layout.first_rows[places[tables]]
                for row, new, first, (start, end) in zip(
                    found, places[tables].tolist(), firsts.tolist(), pairwise(bounds), strict=True
                ):
                    if new >= 0:
                        super_keys = np.frombuffer(row[1], "<u8").reshape(-1, 2)
                        yield RowBlock(first, super_keys, numbers[start:end])

    def _values(self, connection: Any, number: int) -> Iterator[ValuePlaces]:
        """Give the values of a range of keys that each segment has in tables that live, with their new places."""
        for source, segment in enumerate(self.segments):
            shift = segment.bits - self.range_bits
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT bucket, data FROM join_bucket WHERE segment_id = %s AND bucket >= %s AND bucket < %s "
                    "ORDER BY bucket",
                    (segment.segment_id, number << shift, number + 1 << shift),
                )
                found = [(bucket, bytes(data)) for bucket, data in cursor]
            lengths = np.array([len(data) for _, data in found], np.int64)
            data = np.frombuffer(b"".join(data for _, data in found), np.uint8)
            numbers = np.array([bucket for bucket, _ in found], np.int64)
            keys, starts, places, codes = decode_buckets(Buckets(numbers, starts_of(lengths), data))
            layout = segment.layout
            tables = layout.tables(places)
            moved = self.places[source][tables]
            live = moved >= 0
            counts = np.diff(starts_of(live.astype(np.int64))[starts])
            kept = np.flatnonzero(counts)
            cells = (places - layout.first_cells[tables] + self.layout.first_cells[moved])[live]
            yield ValuePlaces(source, codes[kept], keys.take(kept), starts_of(counts[kept]), cells)

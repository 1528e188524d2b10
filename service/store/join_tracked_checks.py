"""Own the check of the indexes of tracked tables: what their segments say of rows, against the rows that are kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from service.core.errors import DamagedStateError
from service.core.join_layout import EMPTY_CELL, Layout
from service.core.join_parts import CellRows, distinct_keys
from service.core.posting_buckets import Buckets, decode_buckets, value_numbers
from service.core.records import Flags, Int64s, Keys, find_keys, starts_of
from service.core.row_filters import counted_super_keys
from service.store.join_tracked_rows import KeptRows, row_keys_of, row_keys_to_bytes
from service.usecases.verify import EXAMPLES, Count

INDEXED = """
select table_id, schema_name || '.' || table_name from join_tracked join tracked_table using (table_id)
where built_version is not null order by 2
"""
PRESENT = """
select ordinal from attribute join tracked_table using (source_id, schema_name, table_name)
where table_id = %s and dropped_version is null and stale_version is null and parts is null order by 1
"""
CHANGED = "select row_keys from join_change where table_id = %s"
SEGMENTS = """
select segment_id, bucket_bits, layout, coalesce(row_keys, '') from join_segment left join join_cover using (segment_id)
where table_id = %s order by segment_id desc
"""
BUCKETS = "select bucket, data from join_bucket where segment_id = %s order by bucket"
ROWS = """
select super_keys, cells, row_keys from join_rows left join join_row_keys using (segment_id, first_row)
where segment_id = %s order by first_row
"""


def check_indexes(connection: Any) -> Count:
    """Hold each row of each segment against the kept row, its postings and super key against its cells."""
    checked, wrong, examples = 0, 0, []
    with connection.cursor() as cursor:
        cursor.execute(INDEXED)
        for table_id, name in cursor.fetchall():
            rows, faults = 0, []
            for count, fault in _check(cursor, table_id):
                rows += count
                faults += [fault] if fault else []
            checked += max(rows, 1)
            wrong += len(faults)
            anew = f"`subsetd join-index untrack {name}`, then `track` make the index anew"
            examples += [f"{name}: {fault}; {anew}" for fault in faults]
    return Count(checked, wrong, tuple(examples[:EXAMPLES]))


def _check(cursor: Any, table_id: int) -> Iterator[tuple[int, str | None]]:
    """Give how many rows were looked at, and what is wrong with them, segment by segment, the newest first."""
    kept_rows = KeptRows(cursor, table_id)
    cursor.execute(PRESENT, (table_id,))
    ordinals = np.array([ordinal for (ordinal,) in cursor], np.int64)
    cursor.execute(CHANGED, (table_id,))
    gone = distinct_keys([row_keys_of(row_keys) for (row_keys,) in cursor])
    found = [kept_rows.some(gone).row_keys]  # of these the index says nothing: searches read them
    cursor.execute(SEGMENTS, (table_id,))
    for segment_id, bits, layout, cover in cursor.fetchall():
        try:
            segment = _read(cursor, segment_id, bits, Layout.from_bytes(bytes(layout)))
        except DamagedStateError as error:
            yield 0, str(error)
            continue
        visible = np.flatnonzero(find_keys(gone, segment.row_keys) < 0)
        row_keys = segment.row_keys.take(visible)
        differs = _differ(segment, visible, kept_rows.some(row_keys), ordinals)
        fault = None
        if differs.any():
            one = row_keys_to_bytes(row_keys.take(np.flatnonzero(differs)[:1])).hex()
            fault = f"{differs.sum():,} rows of its join index are not as they are kept, as that of row_key {one}"
        yield len(visible), fault
        found.append(row_keys)
        gone = distinct_keys([gone, row_keys_of(cover)])
    indexed, kept = sum(len(keys.high) for keys in found), kept_rows.count()
    if not indexed == kept == len(distinct_keys(found).high):
        yield 0, f"{kept:,} rows are kept, and {indexed:,} are in its join index"


class _Segment(NamedTuple):
    """Hold rows by ascending row key, each cell by the place of its value among `values`, -1 where it is empty."""

    row_keys: Keys
    values: Keys
    codes: Int64s

    def cells(self, rows: Int64s, ordinals: Int64s) -> Keys:
        """Give value keys of rows, [n, ordinals] each half; 0 for an empty cell, and for one that the rows have not."""
        known = ordinals[ordinals < self.codes.shape[1]]
        places = np.full((len(rows), len(ordinals)), -1, np.int64)
        places[:, : len(known)] = self.codes[rows][:, known]
        return Keys(*(np.append(half, np.uint64(0))[places] for half in self.values))


def _read(cursor: Any, segment_id: int, bits: int, layout: Layout) -> _Segment:
    """Read a segment; raise DamagedStateError where its parts do not fit each other."""

    def require(holds: bool, otherwise: str) -> None:
        if not holds:
            raise DamagedStateError(f"segment {segment_id} of its join index: {otherwise}")

    cursor.execute(BUCKETS, (segment_id,))
    buckets = [(number, bytes(data)) for number, data in cursor]
    starts = starts_of(np.array([len(data) for _, data in buckets], np.int64))
    coded = Buckets(
        np.array([number for number, _ in buckets], np.int64),
        starts,
        np.frombuffer(b"".join(data for _, data in buckets), np.uint8),
    )
    values, starts, places, numbers = decode_buckets(coded)
    is_ascending = np.array_equal(values.order(), np.arange(len(values.high)))
    require(is_ascending and np.array_equal(numbers, value_numbers(values, bits)), "values are not in their buckets")
    cursor.execute(ROWS, (segment_id,))
    blocks = cursor.fetchall()
    rows, width = int(layout.rows.sum()), int(layout.widths[0])
    super_keys, cells, row_keys = (b"".join(bytes(block[part] or b"") for block in blocks) for part in range(3))
    sizes = [len(super_keys), len(cells), len(row_keys)]
    require(sizes == [16 * rows, 4 * rows * width, 16 * rows], f"of its {rows:,} rows some are missing")
    held = np.frombuffer(cells, "<u4").astype(np.int64)
    codes = np.searchsorted(numbers, held)
    codes[held == EMPTY_CELL] = -1
    require(bool((np.append(numbers, (-1, EMPTY_CELL))[codes] == held).all()), "cells have values that are not there")
    require(places.max(initial=-1) < len(held), "postings are of rows that are not there")
    posted = np.full(len(held), -1, np.int64)
    posted[places] = np.repeat(np.arange(len(numbers)), np.diff(starts))
    require(np.array_equal(posted, codes), "its postings are not those of its rows")
    made = counted_super_keys(values, codes, np.arange(rows + 1) * width, np.full(rows, layout.functions[0]))
    require(made.astype("<u8").tobytes() == super_keys, "its super keys are not those of its rows")
    keys = row_keys_of(row_keys)
    require(np.array_equal(keys.order(), np.arange(rows)), "its rows are not in their order")
    return _Segment(keys, values, codes.reshape(rows, width))


def _differ(segment: _Segment, visible: Int64s, kept: CellRows, ordinals: Int64s) -> Flags:
    """Tell of the visible rows of a segment which are not kept, or with other cells in the present columns."""
    at = find_keys(kept.row_keys, segment.row_keys.take(visible))
    differs = at < 0
    for indexed, half in zip(segment.cells(visible, ordinals), kept.cells, strict=True):
        of_rows = half.reshape(-1, kept.width)[:, ordinals]
        differs[~differs] = (indexed[~differs] != of_rows[at[~differs]]).any(axis=1)
    return np.asarray(differs)

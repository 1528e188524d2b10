"""Own the rows of join_bucket and join_rows in COPY's binary format."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from service.core.posting_buckets import Buckets
from service.core.records import Int64s, UInt64s

_BUCKET = struct.Struct(">hiiiii")
_ROWS = struct.Struct(">hiiiqi")
_LENGTH = struct.Struct(">i")


class RowBlock(NamedTuple):
    """Hold rows of one table: their super keys, uint64[rows, 2], and the numbers of their values, row by row."""

    first_row: int
    super_keys: UInt64s
    cells: Int64s


def pack_buckets(segment_id: int, buckets: Buckets) -> Iterator[bytes]:
    """Pack the buckets of a segment."""
    bounds = zip(buckets.numbers.tolist(), buckets.starts[:-1].tolist(), buckets.starts[1:].tolist(), strict=True)
    for number, first, end in bounds:
        yield _BUCKET.pack(3, 4, segment_id, 4, number, end - first) + buckets.data[first:end].tobytes()


def pack_rows(segment_id: int, block: RowBlock) -> bytes:
    """Pack a block of rows of a segment."""
    super_keys, cells = block.super_keys.astype("<u8").tobytes(), block.cells.astype("<u4").tobytes()
    head = _ROWS.pack(4, 4, segment_id, 8, block.first_row, len(super_keys))
    return b"".join((head, super_keys, _LENGTH.pack(len(cells)), cells))

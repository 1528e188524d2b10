"""Own the bulk way of gen_recs: one key range written as a partition by binary COPY, or read back as arrays.

A range is one of the 2^bits equal shares of the key space (design note 2). All functions take a raw psycopg2
connection, because COPY goes through it; the caller commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from service.core.canonical_arrow import stored_array, text_buffers
from service.core.compiled import kernel
from service.core.record_kernels import take_lists
from service.core.records import Keys, NewRecords, Records, starts_of
from service.store.copy_stream import copy_blocks, read_whole

BLOCK_RECORDS = 65_536
"""Records that are turned into one block of the COPY stream: a few MB."""

FILL_FACTOR = 90
"""Room on each page for later versions of its records: an update of frequencies then touches no index (HOT)."""

INT4_OID = 23
_INT8_OID = 20
_KEY_ROW = np.dtype([("fields", ">u2"), ("length", ">u4"), ("high", ">u8"), ("low", ">u8")])

Bytes = NDArray[np.uint8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]


def between(low: str | None, high: str | None) -> str:
    """Give the keys from `low` up to `high`, uuid texts, as a condition on value_key; None where the key space ends."""
    parts = [f"value_key >= '{low}'"] if low else []
    parts += [f"value_key < '{high}'"] if high else []
    return " AND ".join(parts) or "true"


class KeyRange(NamedTuple):
    """Name one of the 2^bits equal ranges of the keys: those whose first `bits` bits are `number`."""

    number: int
    bits: int

    def bounds(self) -> tuple[str | None, str | None]:
        """Give the first key and the first key after the range, as uuid texts; None where the key space ends."""
        low, high = self.number << (128 - self.bits), (self.number + 1) << (128 - self.bits)
        return (uuid_text(low) if self.number else None, uuid_text(high) if high < 1 << 128 else None)

    def condition(self) -> str:
        """Give the range as a condition on value_key."""
        return between(*self.bounds())

    def partition_bound(self) -> str:
        """Give the range as a bound of ATTACH PARTITION."""
        low, high = self.bounds()
        return f"FROM ({_quoted(low) or 'MINVALUE'}) TO ({_quoted(high) or 'MAXVALUE'})"


@dataclass(frozen=True, slots=True)
class RecordArrays:
    """Hold m gen_recs: keys as two halves of 64 bits, texts and cells laid end to end.

    Record i has the text value_data[value_starts[i]:value_starts[i + 1]] and the cells starts[i]:starts[i + 1].
    """

    high: UInt64s
    low: UInt64s
    value_starts: Int64s
    value_data: Bytes
    cluster_id: Int64s
    starts: Int64s
    attribute_ids: Int32s
    frequencies: Int64s

    def __len__(self) -> int:
        return len(self.high)


def partition_name(generation: int, number: int) -> str:
    """Name the table of one partition of one generation."""
    return f"gen_rec_g{generation}_p{number:03d}"


def write_partition(connection: Any, generation: int, key_range: KeyRange, records: RecordArrays) -> None:
    """Make the table of one key range of a generation anew: rows by one COPY, then its indexes; does not commit.

    `records` must be sorted by key. The table has what ATTACH PARTITION looks for, so attaching reads no row: the
    range as a checked constraint, and the indexes of gen_rec. Frequencies that are all 0 become NULL: none is
    counted (insert-only). Another attempt of the same task waits for this one to end.
    """
    name = partition_name(generation, key_range.number)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (name,))
        cursor.execute(
            "SET LOCAL maintenance_work_mem = '256MB'; SET LOCAL max_parallel_maintenance_workers = 0; "
            "SET LOCAL default_statistics_target = 20"
        )
        cursor.execute(f"DROP TABLE IF EXISTS {name}")
        cursor.execute(
            f"CREATE TABLE {name} (LIKE gen_rec INCLUDING DEFAULTS INCLUDING COMMENTS) "
            # Its records are frozen already: without the threshold a thousand new ones would start a vacuum.
            f"WITH (fillfactor = {FILL_FACTOR}, autovacuum_vacuum_insert_threshold = 1000000)"
        )
        cursor.execute(f"ALTER TABLE {name} ADD CONSTRAINT {name}_range CHECK ({key_range.condition()})")
        # Nobody can see a table of this transaction, so its rows may be frozen at once: no VACUUM has to come back.
        copy_blocks(cursor, name, _blocks(records), ", FREEZE")
        cursor.execute(f"ALTER TABLE {name} ADD CONSTRAINT {name}_pkey PRIMARY KEY (value_key)")
        cursor.execute(f"CREATE INDEX {name}_cluster_id_value_key_idx ON {name} (cluster_id, value_key)")
        cursor.execute(f"ANALYZE {name}")


def read_range(connection: Any, key_range: KeyRange, without_attributes: Sequence[int] = ()) -> RecordArrays:
    """Read the served gen_recs of a key range, without the cells of some attributes; cluster ids are not kept.

    A record whose cells are all left out stays with no cells. NULL frequencies come as 0.
    """
    query = f"SELECT value_key, value, attribute_ids, frequencies FROM gen_rec WHERE {key_range.condition()}"
    with connection.cursor() as cursor:
        stream = read_whole(cursor, query)
    dropped = np.zeros(max(without_attributes, default=-1) + 1, np.bool_)
    dropped[list(without_attributes)] = True
    records, text_bytes, cells = _measure(stream)
    high, low = np.empty(records, np.uint64), np.empty(records, np.uint64)
    value_starts, value_data = np.zeros(records + 1, np.int64), np.empty(text_bytes, np.uint8)
    starts = np.zeros(records + 1, np.int64)
    ids, frequencies = np.empty(cells, np.int32), np.empty(cells, np.int64)
    kept = _decode(stream, dropped, high, low, value_starts, value_data, starts, ids, frequencies)
    no_ids = np.zeros(records, np.int64)
    return RecordArrays(high, low, value_starts, value_data, no_ids, starts, ids[:kept], frequencies[:kept])


def new_records(records: NewRecords, texts: Sequence[str]) -> RecordArrays:
    """Give a batch's records for COPY; `texts` are all of theirs, or none where those are known already."""
    offsets, data = text_buffers(stored_array(pa.array(texts, pa.large_string())))
    return RecordArrays(
        records.keys.high,
        records.keys.low,
        offsets if len(texts) else np.zeros(len(records.cluster_id) + 1, np.int64),
        data,
        records.cluster_id,
        records.starts,
        records.attribute_ids.astype(np.int32),
        records.frequencies,
    )


def copy_records(cursor: Any, table: str, records: RecordArrays) -> None:
    """Write records by binary COPY; those without cells have cluster id 0 and no frequencies."""
    copy_blocks(cursor, table, _blocks(records))


def read_keys(cursor: Any, query: str) -> Keys:
    """Read value keys by binary COPY, in the order in which they come."""
    stream = read_whole(cursor, query)
    found = np.frombuffer(stream, _KEY_ROW, len(stream) // _KEY_ROW.itemsize)
    return Keys(found["high"].astype(np.uint64), found["low"].astype(np.uint64))


def read_records(cursor: Any, queries: Iterable[str]) -> tuple[Keys, Records]:
    """Read (value_key, cluster_id, frequencies) by binary COPY, and give them by ascending key."""
    found = [_decode_records(np.empty(0, np.uint8)), *(_decode_records(read_whole(cursor, query)) for query in queries)]
    high, low, cluster_id, lengths, frequencies = (np.concatenate(part) for part in zip(*found, strict=True))
    keys, starts = Keys(high, low), starts_of(lengths)
    order = keys.order()
    ordered = starts_of(lengths[order])
    return keys.take(order), Records(cluster_id[order], ordered, take_lists(order, starts, frequencies, ordered))


def _blocks(records: RecordArrays) -> Iterator[Any]:
    """Give records as rows of a binary COPY, block by block."""
    r = records
    for start in range(0, len(r), BLOCK_RECORDS):
        end = min(start + BLOCK_RECORDS, len(r))
        rows, cells = end - start, int(r.starts[end] - r.starts[start])
        texts = int(r.value_starts[end] - r.value_starts[start])
        block = np.empty(rows * (2 + 20 + 4 + 12 + 24 + 24) + texts + cells * (8 + 12), np.uint8)
        used = _encode(
            block, start, end, r.high, r.low, r.value_starts, r.value_data, r.cluster_id, r.starts, r.attribute_ids,
            r.frequencies,
        )  # fmt: skip
        yield block[:used].data


def uuid_text(key: int) -> str:
    """Write a key of 128 bits as Postgres does."""
    digits = f"{key:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _quoted(bound: str | None) -> str | None:
    return f"'{bound}'" if bound else None


@kernel
def put4(block: Bytes, at: int, number: int) -> int:
    """Write 4 bytes, the first ones first; return the place behind them."""
    block[at] = (number >> 24) & 0xFF
    block[at + 1] = (number >> 16) & 0xFF
    block[at + 2] = (number >> 8) & 0xFF
    block[at + 3] = number & 0xFF
    return at + 4


@kernel
def put8(block: Bytes, at: int, number: np.uint64) -> int:
    """Write 8 bytes, the first ones first; return the place behind them."""
    for i in range(8):
        block[at + i] = np.uint8((number >> np.uint64(56 - 8 * i)) & np.uint64(0xFF))
    return at + 8


@kernel
def put_array_header(block: Bytes, at: int, width: int, element_bytes: int, oid: int) -> int:
    """Write what stands in front of elements that have their lengths before them; return the place behind it."""
    at = put4(block, at, 20 + width * (4 + element_bytes))
    at = put4(block, at, 1)  # dimensions
    at = put4(block, at, 0)  # no NULL in it
    at = put4(block, at, oid)
    at = put4(block, at, width)
    return put4(block, at, 1)  # type: ignore[no-any-return]  # lower bound


@kernel
def _encode(
    block: Bytes,
    first: int,
    end: int,
    high: UInt64s,
    low: UInt64s,
    value_starts: Int64s,
    value_data: Bytes,
    cluster_id: Int64s,
    starts: Int64s,
    ids: Int32s,
    frequencies: Int64s,
) -> int:
    at = 0
    for record in range(first, end):
        block[at] = 0
        block[at + 1] = 5
        at = put4(block, at + 2, 16)
        at = put8(block, at, high[record])
        at = put8(block, at, low[record])
        text, text_end = value_starts[record], value_starts[record + 1]
        at = put4(block, at, text_end - text)
        for i in range(text, text_end):
            block[at] = value_data[i]
            at += 1
        at = put4(block, at, 8)
        at = put8(block, at, np.uint64(cluster_id[record]))
        cell, cell_end = starts[record], starts[record + 1]
        at = put_array_header(block, at, cell_end - cell, 4, INT4_OID)
        counted = False
        for i in range(cell, cell_end):
            at = put4(block, at, 4)
            at = put4(block, at, ids[i])
            counted = counted or frequencies[i] != 0
        if not counted:
            at = put4(block, at, -1)
            continue
        at = put_array_header(block, at, cell_end - cell, 8, _INT8_OID)
        for i in range(cell, cell_end):
            at = put4(block, at, 8)
            at = put8(block, at, np.uint64(frequencies[i]))
    return at


@kernel
def get4(stream: Bytes, at: int) -> int:
    """Read 4 bytes, the first ones first, with a sign."""
    number = (
        (np.int64(stream[at]) << 24)
        | (np.int64(stream[at + 1]) << 16)
        | (np.int64(stream[at + 2]) << 8)
        | np.int64(stream[at + 3])
    )
    return number - (1 << 32) if number >= 1 << 31 else number  # type: ignore[return-value]


@kernel
def get8(stream: Bytes, at: int) -> np.uint64:
    """Read 8 bytes, the first ones first."""
    number = np.uint64(0)
    for i in range(8):
        number = (number << np.uint64(8)) | np.uint64(stream[at + i])
    return number


@kernel
def _measure(stream: Bytes) -> tuple[int, int, int]:
    """Count the records, the bytes of their texts and their cells."""
    at = records = texts = cells = 0
    while stream[at] != 0xFF:
        at += 2 + 20
        length = get4(stream, at)
        texts += length
        at += 4 + length
        cells += get4(stream, at + 16)
        at += 4 + get4(stream, at)
        length = get4(stream, at)
        at += 4 + max(length, 0)
        records += 1
    return records, texts, cells


@kernel
def _decode(
    stream: Bytes,
    dropped: NDArray[np.bool_],
    high: UInt64s,
    low: UInt64s,
    value_starts: Int64s,
    value_data: Bytes,
    starts: Int64s,
    ids: Int32s,
    frequencies: Int64s,
) -> int:
    at = kept = 0
    for record in range(len(high)):
        high[record] = get8(stream, at + 6)
        low[record] = get8(stream, at + 14)
        at += 22
        length = get4(stream, at)
        text = value_starts[record]
        value_data[text : text + length] = stream[at + 4 : at + 4 + length]
        value_starts[record + 1] = text + length
        at += 4 + length
        ids_at, width = at + 24, get4(stream, at + 16)
        at += 4 + get4(stream, at)
        length = get4(stream, at)
        for i in range(width):
            attribute = get4(stream, ids_at + 8 * i + 4)
            if attribute < len(dropped) and dropped[attribute]:
                continue
            ids[kept] = attribute
            frequencies[kept] = np.int64(get8(stream, at + 24 + 12 * i + 4)) if length >= 0 else 0
            kept += 1
        starts[record + 1] = kept
        at += 4 + max(length, 0)
    return kept


@kernel
def _decode_records(rows: Bytes) -> tuple[UInt64s, UInt64s, Int64s, Int64s, Int64s]:
    """Read keys, cluster ids, numbers of frequencies, and the frequencies end to end."""
    at = records = cells = 0
    while at < len(rows) and rows[at] != 0xFF:
        cells += get4(rows, at + 50)
        at += 34 + 4 + get4(rows, at + 34)
        records += 1
    high, low = np.empty(records, np.uint64), np.empty(records, np.uint64)
    cluster_id, lengths = np.empty(records, np.int64), np.empty(records, np.int64)
    frequencies = np.empty(cells, np.int64)
    at = done = 0
    for record in range(records):
        high[record], low[record] = get8(rows, at + 6), get8(rows, at + 14)
        cluster_id[record] = np.int64(get8(rows, at + 26))
        width = lengths[record] = get4(rows, at + 50)
        for i in range(width):
            frequencies[done] = np.int64(get8(rows, at + 58 + 12 * i + 4))
            done += 1
        at += 34 + 4 + get4(rows, at + 34)
    return high, low, cluster_id, lengths, frequencies

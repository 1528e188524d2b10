"""Own what the bootstrap computes on executors: counting values, cutting them by key range, merging them into records.

Everything is in whole arrays; no Python code runs for a value. The arrays that travel are `Entries`: one entry says
how often one value occurs in one attribute in some part of the data. Entries of one key range, from all parts, are
merged into `Records`: for each value its attributes (ascending) and their frequencies, and its cluster.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from service.core.canonical_arrow import canonical_array, key_array, stored_array
from service.core.compiled import kernel
from service.core.shown_values import WHOLE

PAYLOAD_ENTRIES = 250_000
"""Entries of one payload: at most 80 MB, far below what Spark's rows and Arrow's 32-bit offsets can hold."""

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]

_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
_OF_JSON = r'["\\\x00-\x1f]'
_QUOTE, _LEFT, _RIGHT = (pa.scalar(mark, pa.large_string()) for mark in '"[]')


@dataclass(frozen=True, slots=True)
class Entries:
    """Hold n entries: keys as two halves of 64 bits (big-endian order), attribute, count, value (cut)."""

    high: UInt64s
    low: UInt64s
    attribute: Int32s
    count: Int64s
    value: pa.Array

    def __len__(self) -> int:
        return len(self.high)


@dataclass(frozen=True, slots=True)
class Records:
    """Hold m records in the order of their keys; record i has the cells starts[i]:starts[i + 1].

    attribute_ids and frequencies are laid end to end, ascending in each record. `cluster` numbers the distinct
    attribute sets of these records from 0; record `cluster_example[c]` has the set of cluster c.
    """

    high: UInt64s
    low: UInt64s
    value: pa.Array
    starts: Int64s
    attribute_ids: Int32s
    frequencies: Int64s
    cluster: Int32s
    cluster_example: Int64s
    cluster_size: Int64s

    def __len__(self) -> int:
        return len(self.high)

    def cluster_sets(self) -> list[Int32s]:
        """Give the attribute set of each cluster."""
        return [self.attribute_ids[self.starts[r] : self.starts[r + 1]] for r in self.cluster_example]


def count_column(
    column: pa.ChunkedArray,
    attribute_id: int,
    null_tokens: Sequence[str] = (),
    decode: Callable[[object], str | None] | None = None,
    *,
    of_tuples: bool = False,
) -> Entries:
    """Count the values of one column; NULLs and values whose canonical text is a null token are left out.

    `decode` makes the canonical text of one distinct value, for documents that come as text; all others are made as
    arrays. A canonical text may come in several entries (0.0 and -0.0 of a float column): merging adds them up. The
    texts of `tuple_texts` have keys of their own (`of_tuples`).
    """
    text, count = count_texts(column, null_tokens, decode)
    key = key_array(text, of_tuples=of_tuples)
    return Entries(
        high=np.ascontiguousarray(key[:, 0]),
        low=np.ascontiguousarray(key[:, 1]),
        attribute=np.full(len(text), attribute_id, np.int32),
        count=count,
        value=stored_array(text).cast(pa.string()),
    )


def count_hashes(
    column: pa.ChunkedArray,
    null_tokens: Sequence[str] = (),
    decode: Callable[[object], str | None] | None = None,
    *,
    of_tuples: bool = False,
) -> tuple[UInt64s, Int64s]:
    """Count the values of one column as `count_column` does, and give the hashes alone that sketches are made of."""
    text, count = count_texts(column, null_tokens, decode)
    return np.ascontiguousarray(key_array(text, of_tuples=of_tuples)[:, 0]), count


def column_texts(
    column: pa.ChunkedArray, null_tokens: Sequence[str], decode: Callable[[object], str | None] | None
) -> pa.Array:
    """Give the canonical texts of a column, row by row, as large_string; null where it is NULL or a null token."""
    texts = _canonical_chunks(column).combine_chunks()
    if decode is not None:
        texts = pa.array([None if text is None else decode(text) for text in texts.to_pylist()], pa.large_string())
    if null_tokens:
        is_null = pc.is_in(texts, value_set=pa.array(null_tokens, texts.type))
        texts = pc.if_else(is_null, pa.scalar(None, texts.type), texts)
    return texts


def tuple_texts(parts: Sequence[pa.Array]) -> pa.ChunkedArray:
    """Give the tuples of columns of texts as `core.tuples.tuple_texts` does; null where a part is."""
    joined = join_texts([json_texts(part) for part in parts], ",")
    return pa.chunked_array([join_texts([_LEFT, joined, _RIGHT], "")])


def json_texts(texts: pa.Array) -> pa.Array:
    """Write texts as JSON strings; null stays."""
    texts = texts.cast(pa.large_string())
    if any_match(texts, _OF_JSON):
        written = [None if text is None else json.dumps(text, ensure_ascii=False) for text in texts.to_pylist()]
        return pa.array(written, pa.large_string())
    return join_texts([_QUOTE, texts, _QUOTE], "")


def any_match(texts: pa.Array, pattern: str) -> bool:
    """Tell whether a text has a match of a regular expression."""
    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())


def join_texts(parts: Sequence[pa.Array | pa.Scalar], separator: str) -> pa.Array:
    """Join texts row by row; null where one is."""
    return pc.binary_join_element_wise(*parts, pa.scalar(separator, pa.large_string()))


def count_texts(
    column: pa.ChunkedArray, null_tokens: Sequence[str], decode: Callable[[object], str | None] | None
) -> tuple[pa.Array, Int64s]:
    """Count the canonical texts of one column as `count_column` does."""
    if column.type in _VIEWS:  # of which Arrow counts NULL as the empty text
        column = column.cast(_VIEWS[column.type])
    try:
        counted = pc.value_counts(column)
    except pa.ArrowNotImplementedError:  # nested values and extensions, which Arrow does not hash, small decimals
        counted = pc.value_counts(_canonical_chunks(column))
    text, count = canonical_array(counted.field("values")), counted.field("counts")
    if decode is not None:
        text = pa.array([None if value is None else decode(value) for value in text.to_pylist()], pa.large_string())
    present = text.is_valid()
    if null_tokens:
        present = pc.and_(present, pc.invert(pc.is_in(text, value_set=pa.array(null_tokens, text.type))))
    if text.null_count or null_tokens:
        text, count = text.filter(present), count.filter(present)
    return text, count.to_numpy(zero_copy_only=False)


def _canonical_chunks(column: pa.ChunkedArray) -> pa.ChunkedArray:
    chunks = [canonical_array(chunk).cast(pa.large_string()) for chunk in column.chunks]
    return pa.chunked_array(chunks, pa.large_string())


def concat_entries(parts: Sequence[Entries]) -> Entries:
    """Lay entries end to end."""
    if not parts:
        empty = np.zeros(0, np.uint64)
        return Entries(empty, empty, np.zeros(0, np.int32), np.zeros(0, np.int64), pa.array([], pa.large_string()))
    return Entries(
        high=np.concatenate([part.high for part in parts]),
        low=np.concatenate([part.low for part in parts]),
        attribute=np.concatenate([part.attribute for part in parts]),
        count=np.concatenate([part.count for part in parts]),
        value=pa.concat_arrays([part.value.cast(pa.large_string()) for part in parts]),
    )


def cut_by_range(entries: Entries, bits: int) -> Iterator[tuple[int, Entries]]:
    """Cut entries into the 2^bits ranges that the first bits of their keys name, each in pieces of a payload."""
    if bits == 0:
        yield from ((0, piece) for piece in _pieces(entries))
        return
    part = (entries.high >> np.uint64(64 - bits)).astype(np.uint16)
    order = np.argsort(part, kind="stable")  # a radix sort for 16-bit numbers
    ends = np.cumsum(np.bincount(part, minlength=1 << bits))
    sorted_entries = _take(entries, order)
    start = 0
    for number, end in enumerate(ends):
        if end > start:
            yield from ((number, piece) for piece in _pieces(_slice(sorted_entries, start, int(end))))
        start = int(end)


def to_payload(entries: Entries) -> bytes:
    """Serialise entries as an Arrow IPC stream of one batch."""
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(entries.high),
            pa.array(entries.low),
            pa.array(entries.attribute),
            pa.array(entries.count),
            entries.value.cast(pa.string()),
        ],
        names=["high", "low", "attribute", "count", "value"],
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def from_payload(payload: pa.Buffer | bytes) -> Entries:
    """Read what `to_payload` wrote."""
    with pa.ipc.open_stream(payload) as reader:
        batch = reader.read_next_batch()
    high, low, attribute, count = (batch.column(i).to_numpy() for i in range(4))
    return Entries(high, low, attribute, count, batch.column(4))


def merge_entries(parts: Sequence[Entries], *, longest: bool = False) -> Records:
    """Merge entries of one key range into records, and find their clusters (Incremental INDs 2017, section 4.1).

    Equal (key, attribute) are added up. The result does not depend on the order of the parts. With `longest` the texts
    of a value may be beginnings of one another, and the longest is its record's.
    """
    entries = concat_entries(parts)
    order = np.argsort(entries.high)
    _sort_ties(entries.high, entries.low, entries.attribute, order)
    first, starts, attribute_ids, frequencies = _merge(
        entries.high, entries.low, entries.attribute, entries.count, order
    )
    if longest:
        first = _longest(entries, order)
    cluster, example, size = _find_clusters(starts, attribute_ids)
    return Records(
        high=entries.high[first],
        low=entries.low[first],
        value=entries.value.take(pa.array(first)),
        starts=starts,
        attribute_ids=attribute_ids,
        frequencies=frequencies,
        cluster=cluster,
        cluster_example=example,
        cluster_size=size,
    )


def _longest(entries: Entries, order: Int64s) -> Int64s:
    """Give the entry with the longest text of each value, by ascending keys; `order` is that of the keys."""
    high, low = entries.high[order], entries.low[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    lengths = pc.binary_length(entries.value).to_numpy(zero_copy_only=False)[order]
    ordered = np.lexsort((lengths, np.cumsum(begins)))
    ends = np.append(np.flatnonzero(begins)[1:], len(order))[: int(begins.sum())] - 1
    longest: Int64s = order[ordered[ends]]
    return longest


def cut_texts(texts: pa.Array, characters: Int64s) -> pa.Array:
    """Cut each text to its number of characters."""
    for most in np.unique(characters[characters < WHOLE]).tolist():
        texts = pc.if_else(pa.array(characters == most), pc.utf8_slice_codeunits(texts, 0, most), texts)
    return texts


def attribute_counters(records: Records, size: int) -> Int64s:
    """Count for attribute ids below `size`: int64[3, size] of distinct values, values more than once, occurrences."""
    counters = np.zeros((3, size), np.int64)
    _count_attributes(records.attribute_ids, records.frequencies, counters)
    return counters


def _pieces(entries: Entries) -> Iterator[Entries]:
    for start in range(0, len(entries), PAYLOAD_ENTRIES):
        yield _slice(entries, start, min(start + PAYLOAD_ENTRIES, len(entries)))


def _slice(entries: Entries, start: int, end: int) -> Entries:
    return Entries(
        entries.high[start:end],
        entries.low[start:end],
        entries.attribute[start:end],
        entries.count[start:end],
        entries.value.slice(start, end - start),
    )


def _take(entries: Entries, order: NDArray[np.intp]) -> Entries:
    return Entries(
        entries.high[order],
        entries.low[order],
        entries.attribute[order],
        entries.count[order],
        entries.value.take(pa.array(order)),
    )


@kernel
def _sort_ties(high: UInt64s, low: UInt64s, attribute: Int32s, order: Int64s) -> None:
    """Sort entries of one high half by (low half, attribute): Shell's sort, for runs are short or nearly sorted."""
    start = 0
    while start < len(order):
        end = start + 1
        while end < len(order) and high[order[end]] == high[order[start]]:
            end += 1
        gap = 1
        while gap < (end - start) // 3:
            gap = 3 * gap + 1
        while gap > 0:
            for i in range(start + gap, end):
                entry = order[i]
                j = i
                while j - gap >= start:
                    other = order[j - gap]
                    if low[other] < low[entry] or (low[other] == low[entry] and attribute[other] <= attribute[entry]):
                        break
                    order[j] = other
                    j -= gap
                order[j] = entry
            gap //= 3
        start = end


@kernel
def _merge(
    high: UInt64s, low: UInt64s, attribute: Int32s, count: Int64s, order: Int64s
) -> tuple[Int64s, Int64s, Int32s, Int64s]:
    """Return (the entry that stands for each record, starts, attribute ids, frequencies)."""
    size = len(order)
    first = np.empty(size, np.int64)
    starts = np.empty(size + 1, np.int64)
    ids = np.empty(size, np.int32)
    frequencies = np.empty(size, np.int64)
    records = 0
    cells = 0
    for place in range(size):
        entry = order[place]
        is_new = records == 0 or high[entry] != high[first[records - 1]] or low[entry] != low[first[records - 1]]
        if is_new:
            first[records] = entry
            starts[records] = cells
            records += 1
        if not is_new and ids[cells - 1] == attribute[entry]:
            frequencies[cells - 1] += count[entry]
        else:
            ids[cells] = attribute[entry]
            frequencies[cells] = count[entry]
            cells += 1
    starts[records] = cells
    return first[:records].copy(), starts[: records + 1].copy(), ids[:cells].copy(), frequencies[:cells].copy()


@kernel
def _find_clusters(starts: Int64s, ids: Int32s) -> tuple[Int32s, Int64s, Int64s]:
    """Number the distinct attribute sets: (cluster of each record, an example of each, records of each)."""
    records = len(starts) - 1
    slots = 16
    while slots < 2 * records:
        slots *= 2
    table = np.full(slots, -1, np.int32)
    cluster = np.empty(records, np.int32)
    example = np.empty(records, np.int64)
    size = np.zeros(records, np.int64)
    found = 0
    for record in range(records):
        start, width = starts[record], starts[record + 1] - starts[record]
        mixed = np.uint64(width)
        for i in range(width):
            mixed = (mixed ^ np.uint64(ids[start + i])) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
        slot = np.int64(mixed & np.uint64(slots - 1))
        while True:
            number = table[slot]
            if number < 0:
                number = found
                table[slot] = number
                example[number] = record
                found += 1
                break
            other = starts[example[number]]
            same = starts[example[number] + 1] - other == width
            for i in range(width if same else 0):
                if ids[other + i] != ids[start + i]:
                    same = False
                    break
            if same:
                break
            slot = (slot + 1) & (slots - 1)
        cluster[record] = number
        size[number] += 1
    return cluster, example[:found].copy(), size[:found].copy()


@kernel
def _count_attributes(ids: Int32s, frequencies: Int64s, counters: NDArray[np.int64]) -> None:
    for i in range(len(ids)):
        counters[0, ids[i]] += 1
        if frequencies[i] > 1:
            counters[1, ids[i]] += 1
        counters[2, ids[i]] += frequencies[i]

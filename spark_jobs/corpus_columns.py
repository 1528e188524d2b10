"""Own what a task makes of the cells of many small tables: each column's distinct value keys, and what filters ask.

Cells come as places in one buffer of bytes, column after column. Each text is looked up once in a table of the batch's
texts; what is dear (the key's SHA-256, the filters' questions) is done for each distinct text, not for each cell.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from service.core.canonical_arrow import key_array, text_buffers
from service.core.column_filters import all_of, are_integers, are_null_tokens
from service.core.compiled import kernel
from service.core.near_matches import Near, folded
from service.core.records import Flags, Int32s, Int64s, Keys, UInt64s, starts_of

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class CellTexts:
    """Hold the cells of n columns: cell i is data[starts[i]:ends[i]], in UTF-8, NULL where starts[i] is -1.

    Those of column c are at [column_starts[c]:column_starts[c + 1]].
    """

    data: Bytes
    starts: Int64s
    ends: Int64s
    column_starts: Int64s

    @staticmethod
    def of_array(texts: pa.Array, column_starts: Int64s) -> CellTexts:
        """Take the cells as a string or large_string array."""
        offsets, data = text_buffers(texts)
        starts = offsets[:-1].copy()
        if texts.null_count:
            starts[texts.is_null().to_numpy(zero_copy_only=False)] = -1
        return CellTexts(data, starts, offsets[1:], column_starts)


@dataclass(frozen=True, slots=True)
class ColumnCells:
    """Hold the distinct values of n columns: keys of column c at [starts[c]:starts[c + 1]], each once, and its flags.

    A column without values has neither flag.
    """

    starts: Int64s
    keys: Keys
    null_only: Flags
    integers_only: Flags

    def __len__(self) -> int:
        return len(self.starts) - 1

    def sums(self) -> UInt64s:
        """Give the sums of each column's keys, modulo 2^64: uint64[2 n], high and low in turn."""
        return np.column_stack([_sums(self.starts, half) for half in self.keys]).ravel()


def distinct_cells(cells: CellTexts, null_tokens: Sequence[str] = ()) -> ColumnCells:
    """Find the distinct values of each column; cells that are null tokens count as NULL.

    Raises SourceError for a text with a NUL character. Texts must be valid UTF-8.
    """
    codes, texts, is_null = _coded(cells, null_tokens)
    starts, of_columns = _distinct_codes(cells.column_starts, codes, is_null)
    halves = key_array(texts)
    return ColumnCells(
        starts,
        Keys(halves[of_columns, 0], halves[of_columns, 1]),
        all_of(starts, are_null_tokens(texts)[of_columns]),
        all_of(starts, are_integers(texts)[of_columns]),
    )


def coded_cells(cells: CellTexts, null_tokens: Sequence[str] = (), near: Collection[Near] = ()) -> tuple[Int32s, Keys]:
    """Give the code of each cell, int32[n], and the key of each code; -1 for what is empty: NULL, or a text of nothing.

    Near texts have one code, and the key of what they are folded to. Raises SourceError for a text with a NUL
    character. Texts must be valid UTF-8.
    """
    codes, texts, is_null = _coded(cells, null_tokens)
    if near:
        one = pc.if_else(pa.array(is_null), "", folded(texts, near)).dictionary_encode()
        codes = np.append(one.indices.to_numpy(), np.int32(-1))[codes]
        texts, is_null = one.dictionary, np.zeros(len(one.dictionary), np.bool_)
    kept = ~(is_null | (pc.binary_length(texts).to_numpy() == 0))
    halves = key_array(texts)[kept]
    numbers = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1).astype(np.int32)
    return numbers[codes], Keys(halves[:, 0].copy(), halves[:, 1].copy())


def merge_cells(parts: Sequence[ColumnCells]) -> ColumnCells:
    """Put together what was found of the same columns in several portions of their rows."""
    if len(parts) == 1:
        return parts[0]
    column = np.concatenate([np.repeat(np.arange(len(part), dtype=np.int32), np.diff(part.starts)) for part in parts])
    keys = Keys(*(np.concatenate(half) for half in zip(*(part.keys for part in parts), strict=True)))
    first = _first_cells(column, keys.high, keys.low)
    first = first[np.argsort(column[first], kind="stable")]  # merges the parts' runs
    return ColumnCells(
        starts_of(np.bincount(column[first], minlength=len(parts[0]))),
        keys.take(first),
        _in_all([(part.starts, part.null_only) for part in parts]),
        _in_all([(part.starts, part.integers_only) for part in parts]),
    )


def concat_cells(parts: Sequence[ColumnCells]) -> ColumnCells:
    """Lay the columns of several tables end to end."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        none = np.zeros(0, np.bool_)
        return ColumnCells(np.zeros(1, np.int64), Keys.of(()), none, none)
    return ColumnCells(
        starts_of(np.concatenate([np.diff(part.starts) for part in parts])),
        Keys(*(np.concatenate(half) for half in zip(*(part.keys for part in parts), strict=True))),
        np.concatenate([part.null_only for part in parts]),
        np.concatenate([part.integers_only for part in parts]),
    )


def gather_texts(data: Bytes, starts: Int64s, ends: Int64s) -> pa.Array:
    """Copy texts out of a buffer into a large_string array."""
    offsets = starts_of(ends - starts)
    return pa.LargeStringArray.from_buffers(
        len(starts), pa.py_buffer(offsets), pa.py_buffer(_gather_bytes(data, starts, offsets))
    )


def default_names(names: pa.Array, positions: NDArray[np.int64]) -> pa.Array:
    """Name columns without a name `column_N`, by their positions from 0; all others keep theirs, repeated or not."""
    numbered = pc.binary_join_element_wise("column_", pa.array(positions + 1).cast(pa.string()), "")
    return pc.if_else(pc.fill_null(pc.equal(names, ""), True), numbered.cast(names.type), names)


def _coded(cells: CellTexts, null_tokens: Sequence[str]) -> tuple[Int32s, pa.Array, Flags]:
    """Give each cell's code, -1 for NULL, the text of each code, and whether it is a null token."""
    codes, examples = _number_texts(cells.data, cells.starts, cells.ends)
    texts = gather_texts(cells.data, cells.starts[examples], cells.ends[examples])
    is_null = are_null_tokens(texts, tuple(null_tokens)) if null_tokens else np.zeros(len(texts), np.bool_)
    return codes, texts, is_null


def _in_all(parts: Sequence[tuple[Int64s, Flags]]) -> Flags:
    """Say of each column whether it has values in a portion, and the flag in all portions in which it has some."""
    has_values = np.array([np.diff(starts) > 0 for starts, _ in parts])
    flags = np.array([flag for _, flag in parts])
    return np.asarray(has_values.any(axis=0) & (flags | ~has_values).all(axis=0))


def _sums(starts: Int64s, half: UInt64s) -> UInt64s:
    before = np.zeros(len(half) + 1, np.uint64)
    np.cumsum(half, out=before[1:])
    return before[starts[1:]] - before[starts[:-1]]


@kernel
def _number_texts(data: Bytes, starts: Int64s, ends: Int64s) -> tuple[Int32s, Int64s]:
    """Number texts from 0 by first occurrence: each cell's code, -1 for NULL, and the first cell of each code."""
    codes = np.empty(len(starts), np.int32)
    examples = np.empty(len(starts), np.int64)
    hashes = np.empty(len(starts), np.uint64)
    table = np.full(1024, -1, np.int32)
    mask = np.uint64(1023)
    count = 0
    for i in range(len(starts)):
        start, end = starts[i], ends[i]
        if start < 0:
            codes[i] = -1
            continue
        hashed = np.uint64(end - start)
        for place in range(start, end):
            hashed = (hashed ^ np.uint64(data[place])) * np.uint64(0x9E3779B97F4A7C15)
        hashed ^= hashed >> np.uint64(32)
        slot = np.int64(hashed & mask)
        while True:
            code = table[slot]
            if code < 0:
                code = count
                table[slot] = code
                examples[code] = i
                hashes[code] = hashed
                count += 1
                break
            if hashes[code] == hashed:
                other = starts[examples[code]]
                same = ends[examples[code]] - other == end - start
                k = 0
                while same and k < end - start:
                    same = data[other + k] == data[start + k]
                    k += 1
                if same:
                    break
            slot = np.int64(np.uint64(slot + 1) & mask)
        codes[i] = code
        if 2 * count > len(table):
            table = np.full(4 * len(table), -1, np.int32)
            mask = np.uint64(len(table) - 1)
            for known in range(count):
                slot = np.int64(hashes[known] & mask)
                while table[slot] >= 0:
                    slot = np.int64(np.uint64(slot + 1) & mask)
                table[slot] = known
    return codes, examples[:count].copy()


@kernel
def _first_cells(column: Int32s, high: UInt64s, low: UInt64s) -> Int64s:
    """Give the place of each distinct (column, key) where it comes first."""
    size = 16
    while size < 2 * len(column):
        size *= 2
    table = np.full(size, -1, np.int32)
    first = np.empty(len(column), np.int64)
    count = 0
    for i in range(len(column)):
        # Keys are evenly distributed; columns may share them.
        hashed = (high[i] + np.uint64(column[i])) * np.uint64(0x9E3779B97F4A7C15)
        slot = np.int64((hashed >> np.uint64(32)) & np.uint64(size - 1))
        while table[slot] >= 0:
            other = first[table[slot]]
            if high[other] == high[i] and low[other] == low[i] and column[other] == column[i]:
                break
            slot = (slot + 1) & (size - 1)
        if table[slot] < 0:
            table[slot] = count
            first[count] = i
            count += 1
    return first[:count].copy()


@kernel
def _distinct_codes(column_starts: Int64s, codes: Int32s, is_null: Flags) -> tuple[Int64s, Int32s]:
    """Keep each code once in each column, by first occurrence, and none of those that stand for NULL."""
    starts = np.zeros(len(column_starts), np.int64)
    found = np.empty(len(codes), np.int32)
    last = np.full(len(is_null), -1, np.int64)
    count = 0
    for column in range(len(column_starts) - 1):
        for i in range(column_starts[column], column_starts[column + 1]):
            code = codes[i]
            if code >= 0 and last[code] != column and not is_null[code]:
                last[code] = column
                found[count] = code
                count += 1
        starts[column + 1] = count
    return starts, found[:count].copy()


@kernel
def _gather_bytes(data: Bytes, starts: Int64s, offsets: Int64s) -> Bytes:
    out = np.empty(offsets[-1], np.uint8)
    for i in range(len(starts)):
        at, start = offsets[i], starts[i]
        for k in range(offsets[i + 1] - at):
            out[at + k] = data[start + k]
    return out

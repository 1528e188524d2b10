"""Own a table whose rows are indexed in parts: how a part is made, and the search of all of them as one index.

Rows are told apart by 128 bits, their row key. A part holds rows by ascending row key, and covers the row keys that
changed before it was made: of such a row no older part speaks any more, and this one has it as it was then, or not at
all where it was gone. The parts that were made of the whole table are the oldest, and cover nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from service.core.cell_index import CellIndex, Postings
from service.core.join_layout import EMPTY_CELL, Layout
from service.core.joinability import Rows
from service.core.posting_buckets import MOST_BITS, Buckets, bits_for, encode_buckets, least_bits, value_numbers
from service.core.records import Flags, Int64s, Keys, UInt64s, find_keys
from service.core.row_filters import BITS, CountedBits, counted_super_keys, functions_for, values_held


class CellRows(NamedTuple):
    """Hold n rows by ascending row key, and the value keys of their cells, row by row; that of an empty cell is 0."""

    row_keys: Keys
    cells: Keys
    width: int

    @property
    def starts(self) -> Int64s:
        """Give where the cells of each row begin."""
        return np.arange(len(self.row_keys.high) + 1) * self.width

    @staticmethod
    def joined(parts: Sequence[CellRows]) -> CellRows:
        """Put rows of one width end to end; at least one part."""
        row_keys, cells = (
            Keys(np.concatenate([keys.high for keys in pieces]), np.concatenate([keys.low for keys in pieces]))
            for pieces in ([part.row_keys for part in parts], [part.cells for part in parts])
        )
        return CellRows(row_keys, cells, parts[0].width)


class CodedPart(NamedTuple):
    """Hold a part as it is stored: super keys, uint64[n, 2], and the numbers of the cells' values."""

    bits: int
    layout: Layout
    row_keys: Keys
    super_keys: UInt64s
    cells: Int64s
    buckets: Buckets


class Part(Protocol):
    """Give what a search asks of a part. Its rows are numbered from 0, values have numbers of its own."""

    @property
    def layout(self) -> Layout: ...
    def numbers(self, keys: Keys) -> Int64s: ...
    def counts(self, values: Int64s) -> Int64s: ...
    def postings(self, values: Int64s) -> Postings: ...
    def rows(self, numbers: Int64s) -> Rows: ...
    def row_keys(self, numbers: Int64s) -> Keys: ...


def code_part(rows: CellRows, functions: int | None = None) -> CodedPart:
    """Code rows as a part; the functions of their super keys are chosen by the rows where they are not given.

    Raises ValueError for more values than can be numbered, and CrowdedError where too many keys begin alike.
    """
    places = np.flatnonzero(rows.cells.high | rows.cells.low)
    keys = rows.cells.take(places)
    order = _stable_order(keys)
    is_first = _is_first(keys.take(order))
    values, laid = keys.take(order[is_first]), places[order]
    codes = np.full(len(rows.cells.high), -1, np.int64)
    codes[laid] = np.cumsum(is_first) - 1
    if functions is None:
        held = values_held(codes, rows.starts).sum()
        functions = int(functions_for(np.array([len(rows.row_keys.high)]), np.array([held]))[0])
    height = len(rows.row_keys.high)
    bits = min(max(bits_for(len(values.high)), least_bits(values)), MOST_BITS)
    return CodedPart(
        bits,
        Layout.of(*(np.array([number], np.int64) for number in (height, rows.width, functions))),
        rows.row_keys,
        counted_super_keys(values, codes, rows.starts, np.full(height, functions)),
        np.append(value_numbers(values, bits), EMPTY_CELL)[codes],
        encode_buckets(values, np.append(np.flatnonzero(is_first), len(laid)), laid, bits),
    )


def distinct_keys(keys: Sequence[Keys]) -> Keys:
    """Give all keys by ascending order, each once."""
    joined = Keys(*(np.concatenate([np.zeros(0, np.uint64), *(each[half] for each in keys)]) for half in (0, 1)))
    ordered = joined.take(joined.order())
    return ordered.take(_is_first(ordered))


class RowsInMemory:
    """Be a part of rows that are not coded: the newest, which are in no part yet."""

    def __init__(self, rows: CellRows, functions: int) -> None:
        """Take rows, and by how many functions the super keys of the table's rows are made."""
        self._rows = rows
        self._order = _stable_order(rows.cells)
        height, width = len(rows.row_keys.high), rows.width
        self.layout = Layout.of(*(np.array([number], np.int64) for number in (height, width, functions)))

    def numbers(self, keys: Keys) -> Int64s:
        """Number the values that are asked for by their places; keys by ascending order, each once."""
        codes = np.empty(len(self._order), np.int64)
        codes[self._order] = find_keys(keys, self._rows.cells.take(self._order))
        starts = self._rows.starts
        self._index = CellIndex.of(codes, starts, self.layout.first_rows, len(keys.high))
        functions = np.full(len(starts) - 1, self.layout.functions[0])
        self._super_keys = counted_super_keys(keys, codes, starts, functions)
        places = np.arange(len(keys.high))
        return np.where(self._index.counts(places) > 0, places, -1)

    def counts(self, values: Int64s) -> Int64s:
        """Give how many postings values have."""
        return self._index.counts(values)

    def postings(self, values: Int64s) -> Postings:
        """Fetch the postings of values."""
        return self._index.postings(values)

    def rows(self, numbers: Int64s) -> Rows:
        """Give rows with all others."""
        return Rows(numbers, self._super_keys, self._index.row_starts, self._index.cells)

    def row_keys(self, numbers: Int64s) -> Keys:
        """Give the row keys of rows."""
        return self._rows.row_keys.take(numbers)


class TableInParts:
    """Be a JoinIndex of one table in parts, the oldest first; a value's number is its place among those asked for.

    A row that a newer part covers still has its postings, which are bounds of the search, but neither super key nor
    cells. Of the others the cells at the table's present `ordinals` are given; an older part may lack the last of them.
    """

    def __init__(self, parts: Sequence[Part], covers: Sequence[Keys], functions: int, ordinals: Sequence[int]) -> None:
        """Take the parts, what each covers by ascending order, and by how many functions all super keys are made."""
        self.classes = np.zeros(1, np.int64)
        self._parts = parts
        self._gone = [distinct_keys(covers[place + 1 :]) for place in range(len(parts))]
        self._functions = functions
        self._ordinals = np.array(ordinals, np.int64)
        self._ends = np.cumsum([part.layout.rows.sum() for part in parts], dtype=np.int64)

    def numbers(self, keys: Keys) -> Int64s:
        """Give the numbers of values, -1 for those that are nowhere; keys by ascending order, each once."""
        self._keys = keys
        self._numbers = [part.numbers(keys) for part in self._parts]
        places = np.arange(len(keys.high))
        return np.where(np.any([np.zeros(len(places)), *(of >= 0 for of in self._numbers)], axis=0), places, -1)

    def of_keys(self, keys: Int64s) -> UInt64s:
        """Give the super keys of keys."""
        no_rows = np.zeros((0, BITS // 64), np.uint64)
        return CountedBits(self._keys, np.array([self._functions]), no_rows, self.classes).of_keys(keys)

    def counts(self, values: Int64s) -> Int64s:
        """Give at most how many postings values have: rows that are gone are counted, too."""
        found = np.zeros(values.shape, np.int64)
        for part, numbers in zip(self._parts, self._numbers, strict=True):
            found += part.counts(np.append(numbers, -1)[values])
        return found

    def postings(self, values: Int64s) -> Postings:
        """Fetch the postings of values, by value and row, those of rows that are gone among them."""
        asked, rows = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for part, numbers, end in zip(self._parts, self._numbers, self._ends, strict=True):
            known = np.flatnonzero(numbers[values] >= 0)
            found = part.postings(numbers[values[known]])
            asked.append(known[found.values])
            rows.append(found.rows + end - part.layout.rows.sum())
        joined = np.concatenate(asked)
        order = np.argsort(joined, kind="stable")  # the rows of a part are behind those of older ones
        return Postings(joined[order], np.concatenate(rows)[order], np.zeros(len(joined), np.int64))

    def row_keys(self, numbers: Int64s) -> Keys:
        """Give the row keys of rows."""
        found = np.empty((2, len(numbers)), np.uint64)
        for place, here, own in self._by_part(numbers):
            found[:, here] = self._parts[place].row_keys(own)
        return Keys(*found)

    def _by_part(self, numbers: Int64s) -> Iterator[tuple[int, Int64s, Int64s]]:
        """Give for each part where its rows are among `numbers`, and their numbers in it."""
        of_parts = np.searchsorted(self._ends, numbers, "right")
        for place, part in enumerate(self._parts):
            here = np.flatnonzero(of_parts == place)
            yield place, here, numbers[here] - self._ends[place] + part.layout.rows.sum()

    def rows(self, numbers: Int64s) -> Rows:
        """Fetch rows."""
        super_keys = np.zeros((len(numbers), BITS // 64), np.uint64)
        cells = np.full((len(numbers), len(self._ordinals)), -1, np.int64)
        for place, here, own in self._by_part(numbers):
            part = self._parts[place]
            is_present = ~_are_among(self._gone[place], part.row_keys(own))
            present = here[is_present]
            found = part.rows(own[is_present])
            super_keys[present] = found.super_keys[found.places]
            known = self._ordinals[self._ordinals < part.layout.widths[0]]
            in_part = found.cells[found.starts[found.places][:, None] + known]
            cells[present, : len(known)] = _asked(self._numbers[place], in_part)
        starts = np.arange(len(numbers) + 1) * len(self._ordinals)
        return Rows(np.arange(len(numbers)), super_keys, starts, cells.ravel())


def _stable_order(keys: Keys) -> Int64s:
    """Order keys, equal ones by their places: by their first halves alone, while these tell all of them apart."""
    order = np.argsort(keys.high, kind="stable")
    high, low = keys.high[order], keys.low[order]
    if ((high[1:] == high[:-1]) & (low[1:] != low[:-1])).any():
        return keys.order(np.arange(len(order)))
    return order


def _is_first(keys: Keys) -> Flags:
    """Tell of ascending keys which are not the one before."""
    is_first = np.ones(len(keys.high), np.bool_)
    is_first[1:] = (keys.high[1:] != keys.high[:-1]) | (keys.low[1:] != keys.low[:-1])
    return is_first


def _are_among(ascending: Keys, keys: Keys) -> Flags:
    found = np.empty(len(keys.high), np.bool_)
    order = keys.order()
    found[order] = find_keys(ascending, keys.take(order)) >= 0
    return found


def _asked(numbers: Int64s, cells: Int64s) -> Int64s:
    """Give for each cell the place at which its value was asked for, -1 where it was not; numbers ascend but for -1."""
    places = np.flatnonzero(numbers >= 0)
    if not len(places):
        return np.full(cells.shape, -1, np.int64)
    known = numbers[places]
    at = np.minimum(np.searchsorted(known, cells), len(known) - 1)
    return np.where(known[at] == cells, places[at], -1)

"""Own what the tasks of a join index make of a corpus' files: tables of coded cells, postings, and rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from service.core.column_sets import Int32s
from service.core.join_layout import BLOCK_ROWS, EMPTY_CELL, Layout
from service.core.posting_buckets import Buckets, bucket_numbers, encode_buckets, value_numbers
from service.core.records import Int64s, Keys, starts_of, take_lists
from service.core.row_filters import counted_super_keys, values_held
from service.store.join_loads import RowBlock
from spark_jobs.corpus_columns import coded_cells
from spark_jobs.corpus_csv import FINE, CsvCells
from spark_jobs.corpus_csv_files import CsvFiles, LargeTable, SmallTables
from spark_jobs.corpus_tables import Piece, ReadingFault, TableError


@dataclass(frozen=True, slots=True)
class Portion:
    """Hold tables as a task has read them: cells row by row, as places in `keys`, -1 where they are empty.

    `held` counts the values of each table's rows; a key may stand in `keys` more than once.
    """

    paths: Sequence[str]
    rows: Int64s
    widths: Int64s
    held: Int64s
    names: Sequence[Sequence[str]]
    codes: Int32s
    keys: Keys


class Described(NamedTuple):
    """Hold what the driver learns of a portion: all but its cells, and how many values it may have."""

    portion: int
    paths: Sequence[str]
    rows: Int64s
    widths: Int64s
    held: Int64s
    names: Sequence[Sequence[str]]
    values: int


class Postings(NamedTuple):
    """Hold some values of a portion, ascending by code: the cells of value i are places[starts[i]:starts[i + 1]]."""

    portion: int
    codes: Int64s
    keys: Keys
    starts: Int64s
    places: Int64s


def read_portions(files: CsvFiles, pieces: Sequence[Piece]) -> Iterator[Portion]:
    """Read the tables of files; one that cannot be read is left out. A table is in one portion, whole."""
    for found in files.cells(list(pieces)):
        match found:
            case SmallTables(places, cells):
                yield _portion([pieces[place].path for place in places.tolist()], [cells], files.settings.null_tokens)
            case LargeTable(place, portions):
                try:
                    yield _portion([pieces[place].path], list(portions), files.settings.null_tokens)
                except TableError:
                    continue
            case ReadingFault():
                continue


def describe(number: int, portion: Portion) -> Described:
    """Give what the driver is told."""
    p = portion
    return Described(number, p.paths, p.rows, p.widths, p.held, p.names, len(p.keys.high))


def cut_postings(number: int, portion: Portion, places: Int64s, layout: Layout, bits: int) -> Iterator[Postings]:
    """Cut the cells of a portion by the first bits of their values' keys, some at a time.

    `places` are those of its tables in the layout, -1 for one that is left out. Gives what there is for each of the
    2^bits ranges of keys, ascending by range.
    """
    sizes = portion.rows * portion.widths
    first = np.where(places < 0, -1, layout.first_cells[places])
    cells = np.arange(len(portion.codes)) + np.repeat(first - starts_of(sizes)[:-1], sizes)
    kept = (portion.codes >= 0) & np.repeat(places >= 0, sizes)
    codes, cells = portion.codes[kept], cells[kept]
    held, counts = np.unique(codes.astype(np.int64), return_counts=True)
    ranges = bucket_numbers(portion.keys.take(held), bits)
    order = np.argsort(ranges, kind="stable")
    rank = np.empty(len(portion.keys.high), np.int64)
    rank[held[order]] = np.arange(len(held))
    cells = cells[np.argsort(rank[codes], kind="stable")]
    held, counts = held[order], counts[order]
    starts = starts_of(counts)
    edges = np.searchsorted(ranges[order], np.arange((1 << bits) + 1))
    for a, b in pairwise(edges.tolist()):
        chosen = held[a:b]
        yield Postings(
            number, chosen, portion.keys.take(chosen), starts[a : b + 1] - starts[a], cells[starts[a] : starts[b]]
        )


def code_range(found: Sequence[Postings], bits: int) -> tuple[Buckets, list[Int64s]]:
    """Code all values of a range of keys as buckets; give the numbers of the values of each of `found`, too."""
    keys = Keys(*(np.concatenate([np.zeros(0, np.uint64), *(p.keys[half] for p in found)]) for half in (0, 1)))
    counts = np.concatenate([np.zeros(0, np.int64), *(np.diff(p.starts) for p in found)])
    places = np.concatenate([np.zeros(0, np.int64), *(p.places for p in found)])
    order = keys.order()
    ordered = keys.take(order)
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (ordered.high[1:] != ordered.high[:-1]) | (ordered.low[1:] != ordered.low[:-1])
    distinct = ordered.take(is_new)
    value = np.cumsum(is_new) - 1
    starts = starts_of(np.bincount(value, counts[order], len(distinct.high)).astype(np.int64))
    laid = take_lists(order, starts_of(counts), places, starts_of(counts[order]))
    laid = laid[np.lexsort((laid, np.repeat(value, counts[order])))]
    numbers = np.empty(len(order), np.int64)
    numbers[order] = value_numbers(distinct, bits)[value]
    ends = np.cumsum([len(p.codes) for p in found])
    return encode_buckets(distinct, starts, laid, bits), np.split(numbers, ends[:-1]) if len(found) else []


def row_blocks(portion: Portion, places: Int64s, layout: Layout, numbers: Int64s) -> Iterator[RowBlock]:
    """Give the rows of a portion's tables in blocks; `numbers` are those of the values, by their codes."""
    starts = starts_of(np.repeat(portion.widths, portion.rows))
    cells = np.append(numbers, EMPTY_CELL)[portion.codes]
    functions = np.repeat(np.where(places < 0, 1, layout.functions[places]), portion.rows)
    super_keys = counted_super_keys(portion.keys, portion.codes.astype(np.int64), starts, functions)
    first_rows = starts_of(portion.rows)
    for table, place in enumerate(places.tolist()):
        for at in range(0, int(portion.rows[table]) if place >= 0 else 0, BLOCK_ROWS):
            first = int(first_rows[table]) + at
            end = min(first + BLOCK_ROWS, int(first_rows[table + 1]))
            yield RowBlock(
                int(layout.first_rows[place]) + at, super_keys[first:end], cells[starts[first] : starts[end]]
            )


def _portion(paths: Sequence[str], parts: Sequence[CsvCells], null_tokens: Sequence[str]) -> Portion:
    """Code the cells of tables, or of the portions of one."""
    coded, keys = [], []
    before = 0
    for part in parts:
        codes, of_part = coded_cells(part.cells, null_tokens)
        fine = part.status == FINE
        by_row = _by_row(codes, part.rows[fine], part.columns[fine])
        coded.append(np.where(by_row < 0, -1, by_row + before).astype(np.int32))
        keys.append(of_part)
        before += len(of_part.high)
    codes = np.concatenate(coded)
    fine = parts[0].status == FINE
    widths = parts[0].columns[fine]
    rows = parts[0].rows[fine] if len(parts) == 1 else np.array([sum(int(part.rows[0]) for part in parts)])
    held = values_held(codes.astype(np.int64), starts_of(np.repeat(widths, rows)))
    of_tables = np.bincount(np.repeat(np.arange(len(rows)), rows), held, len(rows)).astype(np.int64)
    bounds = starts_of(widths).tolist()
    names = parts[0].names.to_pylist()
    return Portion(
        paths, rows, widths, of_tables,
        [names[first:end] for first, end in pairwise(bounds)],
        codes, Keys(*(np.concatenate(half) for half in zip(*keys, strict=True))),
    )  # fmt: skip


def _by_row(codes: Int32s, rows: Int64s, widths: Int64s) -> Int32s:
    """Lay cells that come column after column row by row."""
    bounds = starts_of(rows * widths).tolist()
    tables = zip(bounds, rows.tolist(), widths.tolist(), strict=False)
    parts = [codes[at : at + height * width].reshape(width, height).T.ravel() for at, height, width in tables]
    return np.concatenate([np.zeros(0, np.int32), *parts])

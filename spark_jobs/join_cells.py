"""Own what the tasks of a join index make of a corpus' files: tables of coded cells, postings, and rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from service.core.compiled import kernel
from service.core.join_layout import EMPTY_CELL, Layout
from service.core.near_matches import Near
from service.core.posting_buckets import bucket_numbers, smallest_halves
from service.core.posting_ranges import ValuePlaces
from service.core.records import Int32s, Int64s, Keys, UInt64s, starts_of
from service.core.row_filters import counted_super_keys, values_held
from service.store.join_packing import RowBlock
from spark_jobs.corpus_columns import coded_cells
from spark_jobs.corpus_tables import (
    LargeTable,
    Piece,
    PieceLines,
    ReadingFault,
    TableCells,
    TableError,
    TableReader,
)


@dataclass(frozen=True, slots=True)
class Portion:
    """Hold tables as a task has read them: cells row by row, as places in `keys`, -1 where they are empty.

    Their files are those of pieces that begin at `starts`; of JSON lines `lines` are their places in these from 1, 0
    elsewhere. `held` counts the values of each table's rows; a key may stand in `keys` more than once.
    """

    files: Sequence[str]
    starts: Int64s
    lines: Int64s
    rows: Int64s
    widths: Int64s
    held: Int64s
    names: Sequence[Sequence[str]]
    codes: Int32s
    keys: Keys


class Described(NamedTuple):
    """Hold what the driver learns of a portion: all but its cells, and the smallest first halves of its keys."""

    portion: int
    files: Sequence[str]
    starts: Int64s
    lines: Int64s
    rows: Int64s
    widths: Int64s
    held: Int64s
    names: Sequence[Sequence[str]]
    smallest: UInt64s


class Notes(NamedTuple):
    """Hold what else the driver learns of a task: faults, and the lines of pieces as (file, start, count)."""

    faults: Sequence[ReadingFault]
    lines: Sequence[tuple[str, int, int]]


def read_portions(
    reader: TableReader, pieces: Sequence[Piece], null_tokens: Sequence[str], near: Collection[Near]
) -> Iterator[Portion | Notes]:
    """Read tables, and last of all give the notes. A table is in one portion, whole; one with a fault in none."""
    faults: list[ReadingFault] = []
    lines = []
    for found in reader.cells(list(pieces)):
        match found:
            case TableCells():
                yield _portion(pieces, [found], null_tokens, near)
            case LargeTable(place, portions):
                try:
                    yield _portion(pieces, list(portions), null_tokens, near)
                except TableError as error:
                    faults.append(ReadingFault(pieces[place].path, error.kind, str(error)))
            case PieceLines(place, count):
                lines.append((pieces[place].path, pieces[place].start, count))
            case ReadingFault():
                faults.append(found)
    yield Notes(faults, lines)


def describe(number: int, portion: Portion | Notes) -> Described | Notes:
    """Give what the driver is told."""
    if isinstance(portion, Notes):
        return portion
    p = portion
    told = p.files, p.starts, p.lines, p.rows, p.widths, p.held, p.names
    return Described(number, *told, smallest_halves(p.keys.high))


def cut_postings(number: int, portion: Portion, places: Int64s, layout: Layout, bits: int) -> Iterator[ValuePlaces]:
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
        yield ValuePlaces(
            number, chosen, portion.keys.take(chosen), starts[a : b + 1] - starts[a], cells[starts[a] : starts[b]]
        )


def row_blocks(portion: Portion, places: Int64s, layout: Layout, numbers: Int64s) -> Iterator[RowBlock]:
    """Give the rows of a portion's tables in blocks; `numbers` are those of the values, by their codes."""
    starts = starts_of(np.repeat(portion.widths, portion.rows))
    cells = np.append(numbers, EMPTY_CELL)[portion.codes]
    functions = np.repeat(np.where(places < 0, 1, layout.functions[places]), portion.rows)
    super_keys = counted_super_keys(portion.keys, portion.codes.astype(np.int64), starts, functions)
    first_rows = starts_of(portion.rows)
    for table, place in enumerate(places.tolist()):
        block_rows = int(layout.block_rows[place]) if place >= 0 else 1
        for at in range(0, int(portion.rows[table]) if place >= 0 else 0, block_rows):
            first = int(first_rows[table]) + at
            end = min(first + block_rows, int(first_rows[table + 1]))
            yield RowBlock(
                int(layout.first_rows[place]) + at, super_keys[first:end], cells[starts[first] : starts[end]]
            )


def _portion(
    pieces: Sequence[Piece], parts: Sequence[TableCells], null_tokens: Sequence[str], near: Collection[Near]
) -> Portion:
    """Code the cells of tables, or of the portions of one."""
    coded, keys = [], []
    before = 0
    for part in parts:
        codes, of_part = coded_cells(part.cells, null_tokens, near)
        by_row = _by_row(codes, part.rows, part.widths)
        coded.append(np.where(by_row < 0, np.int32(-1), by_row + np.int32(before)))
        keys.append(of_part)
        before += len(of_part.high)
    codes = np.concatenate(coded)
    first = parts[0]
    rows = first.rows if len(parts) == 1 else np.array([sum(int(part.rows[0]) for part in parts)])
    held = values_held(codes.astype(np.int64), starts_of(np.repeat(first.widths, rows)))
    of_tables = np.bincount(np.repeat(np.arange(len(rows)), rows), held, len(rows)).astype(np.int64)
    bounds = starts_of(first.widths).tolist()
    names = first.names.to_pylist()
    of_files = [pieces[place] for place in first.pieces.tolist()]
    return Portion(
        [piece.path for piece in of_files], np.array([piece.start for piece in of_files], np.int64), first.lines,
        rows, first.widths, of_tables,
        [names[start:end] for start, end in pairwise(bounds)],
        codes, Keys(*(np.concatenate(half) for half in zip(*keys, strict=True))),
    )  # fmt: skip


@kernel
def _by_row(codes: Int32s, rows: Int64s, widths: Int64s) -> Int32s:
    """Lay cells that come column after column row by row."""
    out = np.empty(len(codes), np.int32)
    first = 0
    for table in range(len(rows)):
        height, width = rows[table], widths[table]
        for row in range(height):
            for column in range(width):
                out[first + row * width + column] = codes[first + column * height + row]
        first += height * width
    return out

"""Own what the driver makes of a reading: the manifest of all that was read and kept, numbers, and what changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from service.core.column_filters import ColumnFacts, Exclusions
from service.core.corpus import CorpusSettings
from service.core.errors import SourceError
from service.core.records import Flags, Int32s, Int64s, UInt64s, starts_of
from service.usecases.corpora import CorpusFault, TableVersions
from spark_jobs.corpus_index import FILES, TABLES, Manifest, counted_within
from spark_jobs.corpus_sources import READ_TABLES, ReadingPlan, ReadResult, reading_settings

MOST_RUNS = 200
"""So many runs of rows are sliced out of a table; more of them cost more than a copy."""


@dataclass(frozen=True, slots=True)
class CorpusState:
    """Hold what is known when everything is read: metadata of n columns by ascending id, never a value.

    `sums`, uint64[n, 2], are those of each column's keys, modulo 2^64: high and low halves. `changed`, bool[n], marks
    new columns and those whose values, flags or row count are not as before; `gone_columns` are ids that are no longer
    in use, and `gone_tables` numbers. `is_new`, bool[tables of the manifest], marks tables of which a new version is
    to be stored: something of them changed, be it the path alone.
    """

    manifest: Manifest
    column_ids: Int32s
    facts: ColumnFacts
    sums: UInt64s
    changed: Flags
    gone_columns: Int32s
    gone_tables: Int32s
    is_new: Flags
    faults: Sequence[CorpusFault]

    def new_versions(self, exclusions: Exclusions) -> TableVersions:
        """Give the tables of which a new version is to be stored; `exclusions` are those of all n columns."""
        tables = self.manifest.tables.filter(self.is_new)
        widths = _widths(self.manifest.tables)
        cells = np.repeat(self.is_new, widths)
        return TableVersions(
            numbers=tables["table_number"].to_numpy(),
            paths=_one(tables["path"]),
            rows=tables["rows"].to_numpy(),
            first_columns=tables["first_column"].to_numpy(),
            starts=starts_of(widths[self.is_new]),
            names=_one(pc.list_flatten(tables["names"])),
            distinct=self.facts.distinct[cells].astype(np.int32),
            dependent_reasons=exclusions.dependent[cells],
            referenced_reasons=exclusions.referenced[cells],
        )


@dataclass(frozen=True, slots=True)
class _Numbered:
    """Hold the tables that were served: where a table keeps its path and number of columns, it keeps its numbers."""

    paths: pa.Array
    numbers: Int32s
    first_columns: Int32s
    widths: Int64s


def corpus_state(
    plan: ReadingPlan,
    results: Sequence[ReadResult],
    settings: CorpusSettings,
    generation: int,
    served: Iterable[TableVersions],
    next_table: int,
    next_column: int,
) -> CorpusState:
    """Put together what was read and what was kept; new tables and columns are numbered from the given numbers on.

    Without a previous manifest the numbers of `served` tables are kept, and everything counts as changed.
    """
    before = plan.previous.tables if plan.previous is not None else TABLES.empty_table()
    offsets = _line_offsets(results)
    moved, repeated = _moved_lines(before, results, offsets)
    kept = pc.is_in(before["file"], _one(plan.kept["path"])).to_numpy()
    old = pa.concat_tables([_rows(before, np.flatnonzero(kept)), moved])
    old, repeated = (_in_new_parts(tables, results) for tables in (old, repeated))
    read = pa.concat_tables([repeated, *(_tables_of(result, offsets) for result in results)])
    numbered = _numbered(before) if plan.previous is not None else _served(served)
    read = _number(read, numbered, old["table_number"].to_numpy(), next_table, next_column)
    read_changed, read_is_new = _changed(read, before)

    tables = pa.concat_tables([old, read])
    widths = _widths(tables)
    old_columns = int(widths[: len(old)].sum())
    order = np.argsort(tables["first_column"].to_numpy(), kind="stable")
    changed = np.concatenate([np.zeros(old_columns, np.bool_), read_changed])
    is_new = np.concatenate([_are_renamed(old, before), read_is_new])
    starts = starts_of(widths)
    columns = np.repeat(starts[:-1][order], widths[order]) + counted_within(widths[order])
    tables = _rows(tables, order)

    faulty = pa.array(sorted({fault.path for result in results for fault in result.faults}), pa.string())
    files = pa.concat_tables([plan.kept, plan.read.filter(pc.invert(pc.is_in(plan.read["path"], faulty)))])
    parts = {part.name: part for part in (plan.previous.parts if plan.previous is not None else ())}
    parts |= {result.part.name: result.part for result in results if result.part is not None}
    used = set(pc.unique(tables["part"]).to_pylist())
    # Signatures that no refresh asks for any more are left out, and their files go when this generation has landed.
    described = [
        part if settings.signed_by else replace(part, signatures=None) for name, part in parts.items() if name in used
    ]
    reading = reading_settings(settings)
    manifest = Manifest(generation, reading, files.cast(FILES), tables, described, uuid4().hex)
    gone_tables, gone_columns = _gone(numbered, tables)
    faults = [*_faults(plan, results, offsets), *_lost(plan, results, numbered, gone_tables)]
    return CorpusState(
        manifest=manifest,
        column_ids=_column_ids(tables),
        facts=_facts(tables),
        sums=_flat(tables, "sums").reshape(-1, 2),
        changed=changed[columns],
        gone_columns=gone_columns,
        gone_tables=gone_tables,
        is_new=is_new[order],
        faults=faults,
    )


def _line_offsets(results: Sequence[ReadResult]) -> dict[tuple[str, int], int]:
    """Say how many lines of its file are before each piece of JSON lines."""
    counted = sorted(
        (piece.path, piece.start, result.lines[number])
        for result in results
        for number, piece in enumerate(result.pieces)
        if number in result.lines
    )
    offsets: dict[tuple[str, int], int] = {}
    before, file = 0, None
    for path, start, lines in counted:
        before = 0 if path != file else before
        offsets[path, start] = before
        before, file = before + lines, path
    return offsets


def _faults(
    plan: ReadingPlan, results: Sequence[ReadResult], offsets: Mapping[tuple[str, int], int]
) -> list[CorpusFault]:
    """Give all faults by path and line, lines counted from the file's beginning."""
    placed = [(fault.path, 0, fault) for fault in plan.listing.faults]
    for result in results:
        for fault in result.faults:
            before = 0 if fault.line is None else offsets[fault.path, result.pieces[fault.piece].start]
            placed.append((fault.path, before + (fault.line or 0), fault))
    placed.sort(key=lambda each: each[:2])
    return [
        CorpusFault(f"{path}#{line}" if line else path, f"{fault.kind.value}: {fault.message}")
        for path, line, fault in placed
    ]


def _lost(
    plan: ReadingPlan, results: Sequence[ReadResult], numbered: _Numbered, gone_tables: Int32s
) -> list[CorpusFault]:
    """Give a fault for each served table that went with its file or a folder above it, which could not be read.

    One file of JSON lines or one folder may have had most of a corpus: it must not count as one table.
    """
    faults = [*plan.listing.faults, *(fault for result in results for fault in result.faults if fault.line is None)]
    kinds = {fault.path: fault.kind for fault in faults}
    if not kinds:
        return []
    lost = []
    for path in numbered.paths.filter(pa.array(np.isin(numbered.numbers, gone_tables))).to_pylist():
        places = [place for place, character in enumerate(path) if character in "/#"]
        above = next((path[:place] for place in places if path[:place] in kinds), None)
        if above is not None:
            lost.append(CorpusFault(path, f"{kinds[above].value}: {above} could not be read"))
    return sorted(lost, key=lambda fault: fault.path)


def _tables_of(result: ReadResult, offsets: Mapping[tuple[str, int], int]) -> pa.Table:
    """Give what a task read as TABLES, not yet numbered."""
    piece = result.tables["piece"].to_numpy()
    files = pa.array([piece.path for piece in result.pieces], pa.string()).take(pa.array(piece))
    before = np.array([offsets.get((piece.path, piece.start), 0) for piece in result.pieces], np.int64)
    lines = pc.add(result.tables["line"], pa.array(before[piece]))
    none = pa.nulls(len(piece), pa.int32())
    part = pa.repeat(pa.scalar(result.part and result.part.name, pa.string()), len(piece))
    columns = {name: result.tables[name] for name in READ_TABLES.names}
    columns |= {"path": _paths(files, lines), "file": files, "line": lines, "part": part}
    columns |= {"table_number": none, "first_column": none}
    return pa.table([columns[name] for name in TABLES.names], schema=TABLES)


def _paths(files: pa.Array, lines: pa.ChunkedArray) -> pa.Array:
    """Name tables: by their file, in JSON lines with `#` and the number of the line."""
    numbered = pc.binary_join_element_wise(files, lines.cast(pa.string()), "#")
    return pc.if_else(lines.is_valid(), numbered, files)


def _moved_lines(
    before: pa.Table, results: Sequence[ReadResult], offsets: Mapping[tuple[str, int], int]
) -> tuple[pa.Table, pa.Table]:
    """Give the rows of lines that were known by their digests, with the lines where they are now.

    Equal lines of a file are matched in their order. One that is there more often than before has no row to take: the
    second table has it without numbers, its values where those of its like are.
    """
    known = [(result.pieces[each.piece], each) for result in results for each in result.known if len(each.lines)]
    number = np.repeat(np.arange(len(known)), [len(each.lines) for _, each in known])
    files = pa.array([piece.path for piece, _ in known], pa.string()).take(pa.array(number))
    lines = np.concatenate([np.zeros(0, np.int64), *(k.lines + offsets[piece.path, piece.start] for piece, k in known)])
    digests = pa.chunked_array([each.digests for _, each in known], TABLES.field("digest").type)
    rows = np.flatnonzero(pc.is_in(before["file"], pc.unique(files)).to_numpy())
    rows = rows[before["digest"].take(pa.array(rows)).is_valid().to_numpy()]
    candidates = before.take(pa.array(rows))
    line_of = candidates["line"].to_numpy()

    text = _codes(candidates["file"], files) * (len(rows) + len(lines) + 1) + _codes(candidates["digest"], digests)
    was, now = text[: len(rows)], text[len(rows) :]
    was_order, now_order = np.lexsort((line_of, was)), np.lexsort((lines, now))
    first = np.searchsorted(was[was_order], now[now_order])
    rank = np.arange(len(now)) - np.searchsorted(now[now_order], now[now_order])
    count = np.searchsorted(was[was_order], now[now_order], "right") - first
    has_row = rank < count
    source = was_order[first + np.where(has_row, rank, 0)]
    found = candidates.take(pa.array(source))
    moved_files, moved = files.take(pa.array(now_order)), pa.array(lines[now_order])
    none = pa.nulls(len(now), pa.int32())
    found = _with(found, path=_paths(moved_files, moved), line=moved)
    return found.filter(has_row), _with(found, table_number=none, first_column=none).filter(~has_row)


def _codes(*columns: pa.Array | pa.ChunkedArray) -> Int64s:
    """Number the texts of columns that are laid end to end, equal ones alike."""
    whole = [_one(column) if isinstance(column, pa.ChunkedArray) else column for column in columns]
    codes: Int64s = pa.concat_arrays(whole).dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes


def _in_new_parts(tables: pa.Table, results: Sequence[ReadResult]) -> pa.Table:
    """Let tables point into the parts that theirs were copied to."""
    moved = {
        name: (result.part.name, numbers)
        for result in results
        if result.part is not None
        for name, numbers in result.moved.items()
    }
    if not moved:
        return tables
    part, column = np.array(tables["part"].to_pylist(), object), tables["part_column"].to_numpy().copy()
    for name, (into, numbers) in moved.items():
        rows = np.flatnonzero(part == name)
        column[rows] = np.append(numbers, np.int32(-1))[column[rows]]  # behind the last: of a table without columns
        part[rows] = into
    return _with(tables, part=pa.array(part.tolist(), pa.string()), part_column=pa.array(column))


def _numbered(before: pa.Table) -> _Numbered:
    return _Numbered(
        _one(before["path"]), before["table_number"].to_numpy(), before["first_column"].to_numpy(), _widths(before)
    )


def _served(served: Iterable[TableVersions]) -> _Numbered:
    blocks = list(served)
    return _Numbered(
        pa.concat_arrays([pa.array([], pa.string()), *(block.paths.cast(pa.string()) for block in blocks)]),
        np.concatenate([np.zeros(0, np.int32), *(block.numbers for block in blocks)]),
        np.concatenate([np.zeros(0, np.int32), *(block.first_columns for block in blocks)]),
        np.concatenate([np.zeros(0, np.int64), *(np.diff(block.starts) for block in blocks)]),
    )


def _number(read: pa.Table, numbered: _Numbered, used: Int32s, next_table: int, next_column: int) -> pa.Table:
    """Give tables the numbers that those at their paths had, unless they are used, and new ones to others."""
    free = np.flatnonzero(~np.isin(numbered.numbers, used))
    found = pc.fill_null(pc.index_in(_one(read["path"]), value_set=numbered.paths.take(pa.array(free))), -1).to_numpy()
    known = found >= 0
    row = free[found[known]]
    widths = _widths(read)
    numbers = next_table + np.cumsum(~known) - 1
    numbers[known] = numbered.numbers[row]
    alike = known.copy()
    alike[known] = numbered.widths[row] == widths[known]
    first_columns = next_column + starts_of(np.where(alike, 0, widths))[:-1]
    first_columns[alike] = numbered.first_columns[free[found[alike]]]
    if len(read) and max(int(numbers.max()), int((first_columns + widths).max())) >= 1 << 31:
        raise SourceError("The corpus has used up its 2,147,483,648 column ids. Remove it and add it again.")
    return _with(
        read,
        table_number=pa.array(numbers.astype(np.int32)),
        first_column=pa.array(first_columns.astype(np.int32)),
    )


def _same_columns(read: pa.Table, before: pa.Table) -> tuple[Flags, Int64s]:
    """Say of each table that was read whether it has the column ids that it had, and in which row it was."""
    row = pc.fill_null(pc.index_in(_one(read["table_number"]), value_set=_one(before["table_number"])), -1).to_numpy()
    same = row >= 0
    same[same] = before["first_column"].to_numpy()[row[same]] == read["first_column"].to_numpy()[same]
    return same, row


def _changed(read: pa.Table, before: pa.Table) -> tuple[Flags, Flags]:
    """Say of each column that was read whether it is new or not as it was, and of each table if anything of it is."""
    same, row = _same_columns(read, before)
    now, was = read.filter(same), before.take(pa.array(row[same]))
    widths = _widths(read)
    differs = np.repeat(now["rows"].to_numpy() != was["rows"].to_numpy(), widths[same])
    for name in ("distinct", "null_only", "integers_only"):
        differs |= _flat(now, name) != _flat(was, name)
    differs |= (_flat(now, "sums") != _flat(was, "sums")).reshape(-1, 2).any(axis=1)
    changed = np.ones(int(widths.sum()), np.bool_)
    changed[np.repeat(same, widths)] = differs
    renamed = pc.not_equal(pc.list_flatten(_one(now["names"])), pc.list_flatten(_one(was["names"])))
    is_new = ~same
    any_differs = np.concatenate([[0], np.cumsum(differs | renamed.to_numpy(zero_copy_only=False))])
    is_new[same] = (np.diff(any_differs[starts_of(widths[same])]) > 0) | (
        now["rows"].to_numpy() != was["rows"].to_numpy()
    )
    return changed, is_new


def _are_renamed(old: pa.Table, before: pa.Table) -> Flags:
    """Say of each table that was not read whether its path is another now."""
    row = pc.index_in(_one(old["table_number"]), value_set=_one(before["table_number"]))
    flags: Flags = pc.not_equal(_one(old["path"]), _one(before["path"]).take(row)).to_numpy(zero_copy_only=False)
    return flags


def _gone(numbered: _Numbered, tables: pa.Table) -> tuple[Int32s, Int32s]:
    """Give the numbers and the column ids that are no longer in use."""
    gone_tables = numbered.numbers[~np.isin(numbered.numbers, tables["table_number"].to_numpy())]
    in_use = tables["first_column"].to_numpy()[_widths(tables) > 0]
    gone = ~np.isin(numbered.first_columns, in_use)
    widths = numbered.widths[gone]
    columns = np.repeat(numbered.first_columns[gone], widths) + counted_within(widths)
    return gone_tables.astype(np.int32), np.sort(columns).astype(np.int32)


def _facts(tables: pa.Table) -> ColumnFacts:
    return ColumnFacts(
        distinct=_flat(tables, "distinct").astype(np.int64),
        rows=np.repeat(tables["rows"].to_numpy(), _widths(tables)),
        null_only=_flat(tables, "null_only"),
        integers_only=_flat(tables, "integers_only"),
    )


def _column_ids(tables: pa.Table) -> Int32s:
    widths = _widths(tables)
    return (np.repeat(tables["first_column"].to_numpy(), widths) + counted_within(widths)).astype(np.int32)


def _widths(tables: pa.Table) -> Int64s:
    """Give the number of columns of each table."""
    widths: Int64s = pc.list_value_length(tables["names"]).to_numpy().astype(np.int64)
    return widths


def _flat(tables: pa.Table, name: str) -> NDArray[Any]:
    """Give what is known of all columns, those of a table after those of the one before."""
    values: NDArray[Any] = pc.list_flatten(tables[name]).to_numpy()
    return values


def _one(column: pa.ChunkedArray) -> pa.Array:
    """Give a column in one piece."""
    return pa.concat_arrays([pa.array([], column.type), *column.chunks])


def _rows(table: pa.Table, rows: Int64s) -> pa.Table:
    """Give some rows in their order: where few runs of them stand together, as in most refreshes, none is copied."""
    cuts = np.flatnonzero(np.diff(rows) != 1) + 1
    if len(cuts) > MOST_RUNS:
        return table.take(pa.array(rows))
    bounds = [0, *cuts.tolist(), len(rows)]
    runs = [table.slice(rows[first], end - first) for first, end in pairwise(bounds) if first < end]
    return pa.concat_tables([table.slice(0, 0), *runs])


def _with(table: pa.Table, **columns: pa.Array) -> pa.Table:
    """Give a table with other columns in the place of some."""
    for name, column in columns.items():
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), column)
    return table

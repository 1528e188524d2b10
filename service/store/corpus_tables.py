"""Own the tables of corpora in bulk: versions of a million tables to Postgres and back, as arrays by COPY."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from service.core.records import Int64s, starts_of
from service.usecases.corpora import TableVersions

BLOCK_TABLES = 1 << 15
"""Tables that are read at once."""

BLOCK_CELLS = 1 << 18
"""Tables and columns that are written at once, or one table."""

COLUMNS = (
    "corpus_id, table_number, since, path, row_count, first_column, column_count, column_names, distinct_counts, "
    "dependent_reasons, referenced_reasons"
)

VISIBLE = "corpus_id = {corpus_id} AND since <= {generation} AND (until IS NULL OR until > {generation})"


def write_tables(cursor: Any, into: str, corpus_id: int, generation: int, tables: TableVersions) -> None:
    """Append versions, as since a generation, to a table that has the columns of corpus_table."""
    for first, end in _parts(tables.starts):
        cells = slice(int(tables.starts[first]), int(tables.starts[end]))
        starts = tables.starts[first : end + 1] - tables.starts[first]
        count = end - first
        columns = [
            np.full(count, corpus_id),
            tables.numbers[first:end],
            np.full(count, generation),
            _without_nul(tables.paths.slice(first, count)),
            tables.rows[first:end],
            tables.first_columns[first:end],
            np.diff(starts),
            _literals(starts, _quoted(tables.names.slice(cells.start, cells.stop - cells.start))),
            *(
                _literals(starts, pa.array(side[cells].astype(np.int32)).cast(pa.large_string()))
                for side in (tables.distinct, tables.dependent_reasons, tables.referenced_reasons)
            ),
        ]
        sink = io.BytesIO()
        # Quoted, an empty text is a text: COPY takes one without quotes for NULL.
        options = pacsv.WriteOptions(include_header=False, quoting_style="all_valid")
        pacsv.write_csv(pa.table([pa.array(column) for column in columns], COLUMNS.split(", ")), sink, options)
        sink.seek(0)
        cursor.copy_expert(f"COPY {into} ({COLUMNS}) FROM STDIN (FORMAT csv)", sink)


def read_tables(cursor: Any, corpus_id: int, generation: int) -> Iterator[TableVersions]:
    """Read the tables of a generation by (table_number), in blocks of at most BLOCK_TABLES."""
    visible = VISIBLE.format(corpus_id=corpus_id, generation=generation)
    last = -1
    while True:
        page = f"corpus_table WHERE {visible} AND table_number > {last} ORDER BY table_number LIMIT {BLOCK_TABLES}"
        tables = _read(
            cursor,
            f"SELECT table_number, row_count, first_column, column_count, path FROM {page}",
            {"number": pa.int32(), "rows": pa.int64(), "first": pa.int32(), "count": pa.int64(), "path": _TEXT},
        )
        if not len(tables):
            return
        columns = _read(
            cursor,
            f"SELECT u.* FROM (SELECT * FROM {page}) t, LATERAL ROWS FROM (unnest(column_names), "
            "unnest(distinct_counts), unnest(dependent_reasons), unnest(referenced_reasons)) WITH ORDINALITY "
            "u (name, distinct_count, dependent, referenced, place) ORDER BY t.table_number, u.place",
            {"name": _TEXT, "distinct": pa.int32(), "dependent": pa.uint8(), "referenced": pa.uint8(), "place": _PLACE},
        )
        numbers = _numbers(tables["number"])
        yield TableVersions(
            numbers=numbers,
            paths=_text(tables["path"]),
            rows=_numbers(tables["rows"]),
            first_columns=_numbers(tables["first"]),
            starts=starts_of(_numbers(tables["count"])),
            names=_text(columns["name"]),
            distinct=_numbers(columns["distinct"]),
            dependent_reasons=_numbers(columns["dependent"]),
            referenced_reasons=_numbers(columns["referenced"]),
        )
        last = int(numbers[-1])


_TEXT = pa.large_string()
_PLACE = pa.int32()


def _parts(starts: Int64s) -> Iterator[tuple[int, int]]:
    """Cut tables into ranges of about BLOCK_CELLS tables and columns."""
    cost = starts + np.arange(len(starts))
    edges = np.unique(np.append(np.searchsorted(cost, np.arange(0, cost[-1], BLOCK_CELLS)), len(starts) - 1))
    return zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)


def _without_nul(texts: Any) -> Any:
    """Give texts as Postgres takes them."""
    return pc.replace_substring(texts.cast(_TEXT), "\0", "\\x00")


def _quoted(names: Any) -> Any:
    """Give texts as elements of an array's literal."""
    escaped = pc.replace_substring(pc.replace_substring(_without_nul(names), "\\", "\\\\"), '"', '\\"')
    return pc.binary_join_element_wise(pa.scalar('"', _TEXT), escaped, pa.scalar('"', _TEXT), pa.scalar("", _TEXT))


def _literals(starts: Int64s, elements: Any) -> Any:
    """Give lists of texts, that of i at [starts[i]:starts[i + 1]], as literals of arrays."""
    joined = pc.binary_join(pa.LargeListArray.from_arrays(pa.array(starts), elements), pa.scalar(",", _TEXT))
    return pc.binary_join_element_wise(pa.scalar("{", _TEXT), joined, pa.scalar("}", _TEXT), pa.scalar("", _TEXT))


def _read(cursor: Any, query: str, types: dict[str, Any]) -> Any:
    """Read what a query gives as an Arrow table, by COPY."""
    sink = io.BytesIO()
    cursor.copy_expert(f"COPY ({query}) TO STDOUT (FORMAT csv)", sink)
    if not sink.tell():
        return pa.schema(types).empty_table()
    size = sink.tell()
    sink.seek(0)
    return pacsv.read_csv(
        sink,
        pacsv.ReadOptions(column_names=list(types), block_size=size),
        pacsv.ParseOptions(newlines_in_values=True),
        pacsv.ConvertOptions(column_types=types, strings_can_be_null=False, null_values=[]),
    )


def _numbers(column: Any) -> NDArray[Any]:
    numbers: NDArray[Any] = column.combine_chunks().to_numpy(zero_copy_only=False)
    return numbers


def _text(column: Any) -> Any:
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) and combined.num_chunks else combined

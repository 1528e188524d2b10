"""Own `find_relationships`: foreign keys of tables that are at hand, without a state, a database or a service."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from service.core.canonical import canonical_text
from service.core.canonical_arrow import canonical_array
from service.core.csv_lines import csv_reader
from service.core.errors import RecordError, SourceError
from service.core.foreign_keys.plain_columns import measure, with_values
from service.core.foreign_keys.profiles import ColumnProfile
from service.core.foreign_keys.ranking import Method, rank
from service.core.value_order import ValueOrder

Source: TypeAlias = pa.Table | str | PathLike[str] | Iterable[Mapping[str, Any]]
"""A table: of Arrow, a CSV file with a header where '' is NULL, or rows that map a column's name to its value."""

Cells = dict[str, list[str | None]]
"""The canonical texts of each column, None for NULL."""


class Relationship(NamedTuple):
    """Say that a column refers to a key of one column.

    `multiplicity` is `m:1`, or `1:1` where no value is repeated; `coverage_from` the share of the referring column's
    distinct values that the key has (Φ), `coverage_to` the share of the key's values that are referred to. `score` is
    in [0, 1], of the method `combined` a probability; `suggested` that it is chosen among those that contradict it.
    """

    multiplicity: str
    from_table: str
    from_column: str
    to_table: str
    to_column: str
    coverage_from: float
    coverage_to: float
    score: float
    suggested: bool
    implied: bool


def find_relationships(
    tables: Mapping[str, Source],
    coverage_threshold: float = 1.0,
    name_similarity_threshold: float | None = None,
    *,
    method: str = "combined",
    only_suggested: bool = True,
) -> list[Relationship]:
    """Find the foreign keys among tables, by name, the likeliest first.

    A column refers to one that is unique and never NULL, and has at least a share `coverage_threshold` of its distinct
    values, above 0. With `name_similarity_threshold`, in [0, 1], those whose names are less alike are left out.
    `method` is one of `Method`. Raises ValueError for an argument out of range or a name that is no text, SourceError
    for a file that is no CSV or a value that has no text.
    """
    for name, given in (("coverage", coverage_threshold), ("name_similarity", name_similarity_threshold)):
        if given is not None and not 0 <= given <= 1:
            raise ValueError(f"{name}_threshold is {given}: it is a share, from 0 to 1")
    profiles, values = _columns(tables)
    keys = [place for place, column in enumerate(profiles) if column.distinct == column.rows > 0]
    measured = measure(profiles, values, keys, coverage_threshold)
    columns = dict(enumerate(profiles))
    alike = {}
    if name_similarity_threshold is not None:
        alike = {one.candidate: one.score for one in rank(measured, columns, [(key,) for key in keys], Method.NAMES)}
        measured = {
            candidate: of for candidate, of in measured.items() if alike[candidate] >= name_similarity_threshold
        }
    found = []
    for one in rank(measured, columns, [(key,) for key in keys], Method(method)):
        (own,), (key,) = ((columns[place] for place in side) for side in one.candidate)
        of = measured[one.candidate]
        if one.suggested or not only_suggested:
            multiplicity = "m:1" if own.has_repeats else "1:1"
            names = own.table, own.name, key.table, key.name
            found.append(Relationship(multiplicity, *names, of.phi, of.coverage, one.score, one.suggested, one.implied))
    return found


def _columns(tables: Mapping[str, Source]) -> tuple[list[ColumnProfile], list[set[str]]]:
    """Profile all columns, and give the distinct values of each."""
    profiles, values = [], []
    for table, source in tables.items():
        _require_name(table, "A table")
        for ordinal, (name, cells) in enumerate(_cells(table, source).items()):
            distinct = {cell for cell in cells if cell is not None}
            column = ColumnProfile(
                schema="",
                table=table,
                name=name,
                ordinal=ordinal,
                data_type="",
                rows=len(cells),
                nulls=sum(cell is None for cell in cells),
                distinct=len(distinct),
                order=ValueOrder.LEXICOGRAPHIC,
            )
            profiles.append(with_values(column, distinct))
            values.append(distinct)
    return profiles, values


def _cells(table: str, source: Source) -> Cells:
    if isinstance(source, pa.Table):
        if len(set(source.column_names)) != len(source.column_names):
            raise SourceError(f"{table} has two columns of one name: {', '.join(source.column_names)}. Rename one.")
        return {name: _of_arrow(table, name, source.column(name)) for name in source.column_names}
    if isinstance(source, str | PathLike):
        return _of_file(source)
    rows = list(source)
    names = dict.fromkeys(name for row in rows for name in row)
    for name in names:
        _require_name(name, f"A column of {table}")
    return {name: [_text(table, name, place, row.get(name)) for place, row in enumerate(rows)] for name in names}


def _require_name(name: object, what: str) -> None:
    if not isinstance(name, str):
        raise ValueError(f"{what} is called {name!r}: a name is a text; rename it.")


def _of_arrow(table: str, name: str, column: pa.ChunkedArray) -> list[str | None]:
    try:
        return [cell for chunk in column.chunks for cell in canonical_array(chunk).to_pylist()]
    except (RecordError, SourceError) as error:
        raise SourceError(f"{table}.{name}: {error}") from error


def _text(table: str, name: str, place: int, value: object) -> str | None:
    try:
        return canonical_text(_of_python(value) if isinstance(value, np.generic) else value)
    except RecordError as error:
        raise SourceError(f"{table}.{name}, row {place + 1}: {error}") from error


def _of_python(scalar: np.generic) -> object:
    # Times finer than Python's would be integers.
    is_finer = scalar.dtype.kind in "mM" and isinstance(scalar.item(), int)
    return (scalar.astype(f"{scalar.dtype.kind}8[us]") if is_finer else scalar).item()


def _of_file(path: str | PathLike[str]) -> Cells:
    try:
        with open(path, encoding="utf-8-sig", newline="") as lines:
            reader = csv_reader(lines)
            header: list[str] = next(reader, [])
            columns: list[list[str | None]] = [[] for _ in header]
            for row in filter(None, reader):
                if len(row) != len(header):
                    raise SourceError(
                        f"{path}, line {reader.line_num}: it has {len(row)} cells, and the header {len(header)}."
                    )
                for column, cell in zip(columns, row, strict=True):
                    column.append(cell or None)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SourceError(f"{path} cannot be read as CSV: {error}") from error
    if len(set(header)) != len(header):
        raise SourceError(f"{path} has two columns of one name in its header: {', '.join(header)}.")
    return dict(zip(header, columns, strict=True))

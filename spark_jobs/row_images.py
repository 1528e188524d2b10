"""Own the row images of a bootstrap: which tables get them, and the writing of rows while their values are counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from service.core.canonical_arrow import key_array
from service.core.errors import SourceError
from service.core.sql_names import sql_name
from service.store.row_images import CELL_ESCAPES, clear_row_images, count_row_images, write_row_images
from spark_jobs.kernels import any_match, column_texts, join_texts, json_texts
from spark_jobs.sources import Options, SourceTable

MODES = ("auto", "always", "never")

_QUOTE, _LEFT, _RIGHT = (pa.scalar(mark, pa.large_string()) for mark in '"[]')
_OF_ARRAYS = '["\\\\\t\n\r]'


def choose_row_images(tables: Sequence[SourceTable], options: Options) -> tuple[list[SourceTable], list[str]]:
    """Say of each table whether its rows are kept, as `--row-images` and `--key` want it; with what to warn of.

    A key of a name without a schema is that of all tables of this name that have none of their own.

    By itself (`auto`) a table of Postgres gets images unless it has REPLICA IDENTITY FULL, a table of files when its
    key is given, any other when its source asks for it. A check keeps none, and tells rows apart as the state does.
    Raises SourceError for a key that the table does not have, for a table without a key where images are wanted, and
    where either is given where no rows are kept.
    """
    if options.check:
        keys = dict(options.keys)
        return [replace(t, key_columns=keys.get(str(t), t.key_columns), row_images=False) for t in tables], []
    if options.insert_only or options.sketch_only:
        kind = "a sketch-only" if options.sketch_only else "an insert-only"
        if options.row_images == "always":
            raise SourceError(f"--row-images always: {kind} source keeps no rows; leave out one of the two options.")
        if options.keys:
            raise SourceError(
                f"--key {options.keys[0][0]}: {kind} source keeps no rows, so nothing is told apart by a key; leave it "
                "out. Its changes need whole rows before (Postgres: REPLICA IDENTITY FULL), unless they only insert."
            )
    if options.keys and options.row_images == "never":
        raise SourceError(
            f"--key {options.keys[0][0]}: with --row-images never no rows are kept that a key could tell apart; leave "
            "out one of the two options."
        )
    given = dict(options.keys)
    chosen, warnings = [], []
    for found in tables:
        table = found
        columns = given.get(str(table), given.get(table.name))
        if columns is not None:
            unknown = [column for column in columns if column not in dict(table.columns)]
            if unknown:
                names = ", ".join(name for name, _ in table.columns)
                raise SourceError(f"--key {table}: the table has no column {unknown[0]!r}. It has: {names}.")
            if table.replica_identity not in (None, "full") and not set(columns) <= set(table.key_columns):
                told = ", ".join(table.key_columns) or "nothing"
                raise SourceError(
                    f"--key {table}: its changes tell the row before by its replica identity, which is {told}. Name "
                    f"columns of it, or run on the source: {_whole_rows(table)}"
                )
            table = replace(table, key_columns=columns)
        is_wanted = table.row_images or columns is not None or table.replica_identity not in (None, "full")
        if options.row_images != "auto":
            is_wanted = options.row_images == "always"
        if is_wanted and (options.insert_only or options.sketch_only):
            is_wanted = False
        elif is_wanted and not table.key_columns:
            if options.row_images == "always" or table.row_images:
                raise SourceError(
                    f"{table}: no key of it is known, so its rows cannot be kept: say which columns tell them apart "
                    f"with --key {table}=COLUMN,..., or give --row-images auto."
                )
            warnings.append(
                f"{table} has neither a primary key nor whole before-images: updates and deletes of it will be "
                f"refused. Run on the source: {_whole_rows(table)}"
            )
            is_wanted = False
        elif not is_wanted and table.replica_identity not in (None, "full") and not options.insert_only:
            warnings.append(
                f"{table} sends no whole before-images, and no rows are kept: updates and deletes of it will be "
                f"refused. Run on the source: {_whole_rows(table)}"
            )
        chosen.append(replace(table, row_images=is_wanted))
    unknown_tables = given.keys() - {name for table in tables for name in (str(table), table.name)}
    if unknown_tables:
        raise SourceError(f"--key {min(unknown_tables)}: the source has no such table.")
    return chosen, warnings


def _whole_rows(table: SourceTable) -> str:
    """Say how Postgres is told to send whole rows; whether a table has partitions is not known here."""
    return (
        f"ALTER TABLE {sql_name(table.schema, table.name)} REPLICA IDENTITY FULL (and so for each of its partitions, "
        f"if it has some: it does not pass on to them)"
    )


def told_choice(tables: Sequence[SourceTable]) -> list[str]:
    """Tell in lines which tables' rows are kept and which need not be; nothing where no changes are known to come."""
    groups = {
        "row images kept": [f"{t} (by {', '.join(t.key_columns)})" for t in tables if t.row_images],
        "no row images needed (REPLICA IDENTITY FULL)": [
            str(t) for t in tables if t.replica_identity == "full" and not t.row_images
        ],
    }
    return [f"{what}: {', '.join(names)}" for what, names in groups.items() if names]


@dataclass(frozen=True, slots=True)
class ImageWriter:
    """Write the rows of tables on executors; picklable.

    `tables` has, by the table's place in the source's list, the id under which its rows are kept and the places of
    its key columns.
    """

    database_url: str
    tables: Mapping[int, tuple[int, tuple[int, ...]]]
    null_tokens: Sequence[str]

    @staticmethod
    def of(url: str, tables: Sequence[SourceTable], ids: Mapping[int, int], null_tokens: Sequence[str]) -> ImageWriter:
        """Make one for tables whose rows are kept under `ids`, by their places."""
        keyed = {}
        for place, table_id in ids.items():
            names = [name for name, _ in tables[place].columns]
            keyed[place] = table_id, tuple(names.index(column) for column in tables[place].key_columns)
        return ImageWriter(url, keyed, null_tokens)

    def write(
        self, connection: Any, place: int, rows: pa.Table, decoders: Sequence[Callable[[object], str | None] | None]
    ) -> None:
        """Write some rows of a table, and commit; `decoders` make texts of documents, None where arrays do."""
        table_id, key = self.tables[place]
        if not len(rows):
            return
        columns = [
            column_texts(column, self.null_tokens, decode)
            for column, decode in zip(rows.columns, decoders, strict=True)
        ]
        keys = row_keys([columns[at] for at in key]).astype(">u8").tobytes().hex()
        cells = join_texts([_element(column) for column in columns], ",").to_pylist()
        write_row_images(
            connection, (f"{table_id}\t{keys[32 * i : 32 * i + 32]}\t{{{row}}}\n" for i, row in enumerate(cells))
        )
        connection.commit()


def require_told_apart(
    connection: Any, tables: Sequence[SourceTable], ids: Mapping[int, int], row_counts: NDArray[np.int64]
) -> None:
    """Raise SourceError for a table, of those whose rows are kept under `ids`, of which two rows have one key."""
    kept = count_row_images(connection, list(ids.values()))
    for place, table_id in ids.items():
        if kept[table_id] != row_counts[place]:
            clear_row_images(connection)
            raise SourceError(
                f"{tables[place]}: its key {', '.join(tables[place].key_columns)} does not tell its rows apart: "
                f"{row_counts[place]:,} rows have {kept[table_id]:,} keys. Give other columns with --key, or "
                f"--row-images never."
            )


def row_keys(columns: Sequence[pa.Array]) -> NDArray[np.uint64]:
    """Give the row keys of columns of canonical texts as uint64[n, 2]; equal to `core.row_key`, row by row."""
    cells = [pc.fill_null(json_texts(column), "null") for column in columns]
    return key_array(join_texts([_LEFT, join_texts(cells, ","), _RIGHT], ""))


def _element(texts: pa.Array) -> pa.Array:
    """Write a column's cells as elements of arrays in COPY's text format."""
    if any_match(texts, _OF_ARRAYS):
        escaped = [None if text is None else text.translate(CELL_ESCAPES) for text in texts.to_pylist()]
        texts = pa.array(escaped, pa.large_string())
    return pc.fill_null(join_texts([_QUOTE, texts, _QUOTE], ""), "NULL")

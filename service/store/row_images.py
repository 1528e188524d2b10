"""Own the kept rows in the store: reading those of a batch, writing them with it, and a bootstrap's COPY of them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from service.core.model import Row, Table
from service.usecases.row_images import Image

STAGING = """
create temporary table if not exists staged_row_image (
    table_id integer not null, row_key uuid not null, cells text[], version bigint, record_offset bigint
) on commit delete rows;
"""

READ = "select row_key::text, cells, version, record_offset from row_image where table_id = %s and row_key = any (%s)"

# A row that is gone is kept as such while records are set aside: one of them may be an older change of it.
MERGE = """
merge into row_image as stored using (
    select *, cells is null and not exists (select from dead_letter) as vanishes from staged_row_image
) as staged on stored.table_id = staged.table_id and stored.row_key = staged.row_key
when matched and staged.vanishes then delete
when matched then update set
    cells = staged.cells, version = staged.version, record_offset = staged.record_offset
when not matched and not staged.vanishes then insert
    values (staged.table_id, staged.row_key, staged.cells, staged.version, staged.record_offset)
"""

CELL_ESCAPES = str.maketrans({"\\": "\\\\\\\\", '"': '\\\\"', "\t": "\\t", "\n": "\\n", "\r": "\\r"})
"""Escape a cell of an array in COPY's text format: once for the array, and its backslashes again for COPY."""

# Steps from table to table by the index: reading all rows to find none that is left over would take minutes.
CLEAR = """
with recursive kept as (
    select min(table_id) as table_id from row_image
    union all
    select (select min(table_id) from row_image as next where next.table_id > kept.table_id)
    from kept where table_id is not null
)
delete from row_image where table_id in (select table_id from kept except select table_id from tracked_table)
"""

FORGET_GONE = "delete from row_image where cells is null and not exists (select from dead_letter)"


def read_images(cursor: Any, wanted: Mapping[Table, Iterable[bytes]]) -> dict[Table, dict[bytes, Image]]:
    """Read the kept rows of these keys, also those that are kept as gone."""
    found: dict[Table, dict[bytes, Image]] = {}
    for table, keys in wanted.items():
        ordinals = [attribute.ordinal for attribute in table.attributes]
        listed = "{" + ",".join(sorted(key.hex() for key in keys)) + "}"
        cursor.execute(READ, (table.table_id, listed))
        found[table] = {
            bytes.fromhex(key.replace("-", "")): Image(_row(cells, ordinals), version, offset)
            for key, cells, version, offset in cursor
        }
    return found


def write_images(cursor: Any, images: Mapping[Table, Mapping[bytes, Image]]) -> None:
    """Write what became of kept rows in a batch; dead letters of the batch must be written before."""
    lines = []
    for table, of_table in images.items():
        ordinals = [attribute.ordinal for attribute in table.attributes]
        width = max(ordinals, default=-1) + 1
        for key, image in sorted(of_table.items()):
            cells = "\\N" if image.cells is None else _array(image.cells, ordinals, width)
            lines.append(f"{table.table_id}\t{key.hex()}\t{cells}\t{image.version}\t{image.offset}\n")
    if lines:
        cursor.copy_expert("copy staged_row_image from stdin", io.StringIO("".join(lines)))
        cursor.execute(MERGE)


def forget_cells(cursor: Any, attribute_ids: Sequence[int]) -> None:
    """Take the cells of columns that are dropped out of kept rows, whose other cells keep their places."""
    cursor.execute(
        "select table_id, array_agg(ordinal + 1) from attribute join tracked_table "
        "using (source_id, schema_name, table_name) where attribute_id = any (%s) and parts is null and row_images "
        "group by table_id",
        (list(attribute_ids),),
    )
    for table_id, places in cursor.fetchall():
        cursor.execute(
            "update row_image set cells = array(select case when place <> all (%(places)s) then cell end "
            "from unnest(cells) with ordinality as c (cell, place) order by place) "
            "where table_id = %(table_id)s and cells is not null",
            {"places": places, "table_id": table_id},
        )


def empty_table(cursor: Any, version: int, table: Table) -> None:
    """Forget the kept rows of a table that was emptied, and remember that it was."""
    cursor.execute("delete from row_image where table_id = %s", (table.table_id,))
    cursor.execute("update tracked_table set begun_version = %s where table_id = %s", (version, table.table_id))


def new_table_ids(connection: Any, count: int) -> list[int]:
    """Take ids for tables whose rows are to be kept, and commit."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select nextval(pg_get_serial_sequence('tracked_table', 'table_id')) from generate_series(1, %s)", (count,)
        )
        ids = [int(number) for (number,) in cursor.fetchall()]
    connection.commit()
    return ids


def write_row_images(connection: Any, rows: Iterable[str]) -> None:
    """Write rows of bootstrapped tables, given as lines of COPY: table_id, row_key, cells; the caller commits.

    A row that is there already is left as it is, so that a task may be run again; whether keys are unique,
    `count_row_images` shows. Of a table that is tracked by now nothing is written: an attempt that comes so late would
    bring rows back that changes have deleted since.
    """
    with connection.cursor() as cursor:
        cursor.execute(STAGING)
        cursor.copy_expert("copy staged_row_image (table_id, row_key, cells) from stdin", io.StringIO("".join(rows)))
        cursor.execute(
            "insert into row_image select table_id, row_key, cells from staged_row_image "
            "where table_id not in (select table_id from tracked_table) order by row_key on conflict do nothing"
        )
        cursor.execute("truncate staged_row_image")


def count_row_images(connection: Any, table_ids: Sequence[int]) -> dict[int, int]:
    """Count the kept rows of tables."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select table_id, count(*) from row_image where table_id = any (%s) group by table_id", (list(table_ids),)
        )
        counts = dict(cursor.fetchall())
    connection.commit()
    return {table_id: int(counts.get(table_id, 0)) for table_id in table_ids}


def clear_row_images(connection: Any) -> None:
    """Delete the rows of tables that are tracked no more, or not yet and never will be, and commit."""
    with connection.cursor() as cursor:
        cursor.execute(CLEAR)
    connection.commit()


def _row(cells: Sequence[str | None] | None, ordinals: Sequence[int]) -> Row | None:
    """Give a kept row by its table's attributes; it is short where columns were added since."""
    if cells is None:
        return None
    return tuple([cells[ordinal] if ordinal < len(cells) else None for ordinal in ordinals])


def _array(row: Row, ordinals: Sequence[int], width: int) -> str:
    """Write a row as an array in COPY's text format."""
    cells: list[str] = ["NULL"] * width
    for ordinal, cell in zip(ordinals, row, strict=True):
        if cell is not None:
            cells[ordinal] = '"' + cell.translate(CELL_ESCAPES) + '"'
    return "{" + ",".join(cells) + "}"

"""Own the sketches of a bootstrap's generation: written by its tasks beside what is served, put in place with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from psycopg2.extras import execute_values

from service.core.errors import StateError
from service.core.sketch_upkeep import SketchForm
from service.core.sketches.column import ColumnSketch
from service.store.sketches import LOCK, read_form, write_empty

WHOLE = -1
"""In the place of a key range's number: the sketch of an attribute is whole."""

PAGE = 200
"""Sketches that one statement writes."""


def sketch_table(generation: int) -> str:
    """Name the table that a generation's sketches are gathered in."""
    return f"gen_sketch_g{generation}"


def require_form(connection: Any, source: str, form: SketchForm | None) -> None:
    """Raise StateError when sketches cannot have this form: those of sketch-only sources cannot be made of records."""
    with connection.cursor() as cursor:
        stored = read_form(cursor)
        cursor.execute("SELECT name FROM source WHERE sketch_only AND name <> %s ORDER BY name", (source,))
        others = [name for (name,) in cursor]
    connection.commit()
    if others and form != stored and stored is not None:
        raise StateError(
            f"The sketches of the state have 2^{stored.bucket_bits} buckets and {stored.k} smallest hashes, and those "
            f"of the sketch-only source {others[0]!r} can only be made from its data: set SUBSETD_SKETCHES=on, "
            f"SUBSETD_SKETCH_BUCKET_BITS={stored.bucket_bits} and SUBSETD_SKETCH_K={stored.k}."
        )


def create_sketch_table(connection: Any, generation: int) -> None:
    """Make the table of a generation's sketches; the caller commits."""
    table = sketch_table(generation)
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE UNLOGGED TABLE {table} (attribute_id integer, number integer, sketch bytea NOT NULL, "
            "needs_rescan boolean NOT NULL DEFAULT false, PRIMARY KEY (attribute_id, number))"
        )
        cursor.execute(f"ALTER TABLE {table} ALTER COLUMN sketch SET STORAGE EXTERNAL")


def write_parts(connection: Any, generation: int, number: int, parts: Iterable[tuple[int, bytes]]) -> None:
    """Write what a key range gives to sketches; a task that is run again writes the same. The caller commits."""
    _write(connection, generation, ((attribute_id, number, part, False) for attribute_id, part in parts))


def write_whole(connection: Any, generation: int, sketches: Iterable[tuple[int, ColumnSketch]]) -> None:
    """Write the sketches of attributes; the caller commits."""
    rows = ((attribute_id, WHOLE, sketch.to_bytes(), sketch.needs_rescan) for attribute_id, sketch in sketches)
    _write(connection, generation, rows)


def read_parts(connection: Any, generation: int) -> Iterator[tuple[int, Iterator[bytes]]]:
    """Give the parts of each attribute that has some, one attribute after the other."""
    with connection.cursor("read_parts") as cursor:
        cursor.itersize = PAGE
        cursor.execute(
            f"SELECT attribute_id, sketch FROM {sketch_table(generation)} WHERE number <> %s "
            "ORDER BY attribute_id, number",
            (WHOLE,),
        )
        for attribute_id, rows in groupby(cursor, lambda row: row[0]):
            yield attribute_id, (bytes(part) for _, part in rows)


def read_whole(cursor: Any, generation: int) -> dict[int, ColumnSketch]:
    """Read the sketches that are whole, by attribute id."""
    cursor.execute(f"SELECT attribute_id, sketch FROM {sketch_table(generation)} WHERE number = %s", (WHOLE,))
    return {attribute_id: ColumnSketch.from_bytes(bytes(sketch)) for attribute_id, sketch in cursor}


def put_sketches(cursor: Any, generation: int, version: int, form: SketchForm | None) -> None:
    """Put the whole sketches of a generation in place, those of other sketch-only sources left as they are.

    The attributes must be in place already. One without a sketch is without a value.
    """
    cursor.execute(LOCK)
    cursor.execute("DELETE FROM sketch_form")
    cursor.execute(
        "DELETE FROM sketch WHERE attribute_id NOT IN (SELECT attribute_id FROM attribute JOIN source "
        "USING (source_id) WHERE sketch_only AND bootstrapped_version <> %s AND dropped_version IS NULL)",
        (version,),
    )
    if form is None:
        return
    cursor.execute("INSERT INTO sketch_form VALUES (%s, %s, %s)", form)
    cursor.execute(
        "INSERT INTO sketch (attribute_id, version, sketch, needs_rescan) "
        f"SELECT attribute_id, %s, sketch, needs_rescan FROM {sketch_table(generation)} JOIN attribute "
        "USING (attribute_id) WHERE number = %s AND dropped_version IS NULL",
        (version, WHOLE),
    )
    cursor.execute(f"DROP TABLE {sketch_table(generation)}")
    cursor.execute(
        "SELECT attribute_id FROM attribute a WHERE dropped_version IS NULL "
        "AND NOT EXISTS (SELECT FROM sketch s WHERE s.attribute_id = a.attribute_id)"
    )
    write_empty(cursor, version, [attribute_id for (attribute_id,) in cursor])


def _write(connection: Any, generation: int, rows: Iterable[tuple[int, int, bytes, bool]]) -> None:
    with connection.cursor() as cursor:
        execute_values(
            cursor,
            f"INSERT INTO {sketch_table(generation)} VALUES %s ON CONFLICT (attribute_id, number) "
            "DO UPDATE SET sketch = excluded.sketch, needs_rescan = excluded.needs_rescan",
            rows,
            page_size=PAGE,
        )

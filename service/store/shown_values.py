"""Own how SQL cuts a stored text to what may be shown of an attribute's values; see `core/shown_values`."""

from __future__ import annotations

from typing import Any

from service.core.errors import ConflictError
from service.core.shown_values import WHOLE, parse_shown

RESTRICTED = "select attribute_id from attribute where shown_characters is not null and dropped_version is null"


def shown_value(value: str = "value", characters: str = "shown_characters") -> str:
    """Give the expression for what may be shown of a text: NULL for nothing."""
    return f"case when {characters} = 0 then null else left({value}, coalesce({characters}, {WHOLE})) end"


def refuse_shards(cursor: Any, *, withholds: bool = False) -> None:
    """Raise ConflictError where a state has shards and does not keep all values: a shard keeps whole texts to go back.

    To be called behind a change of either, in its transaction; with `withholds` in front of one that keeps less.
    """
    cursor.execute(f"select (%s or exists ({RESTRICTED})) and exists (select from shard)", (withholds,))
    if cursor.fetchone()[0]:
        raise ConflictError(
            "A state with shards keeps all values: what a shard needs in order to take a batch back holds whole texts. "
            "Keep one shard, or all values (--store-values full)."
        )


def shown_of_source(cursor: Any, source_name: str) -> int | None:
    """Read how many characters of values are kept of columns of a source of which nothing was said by itself."""
    cursor.execute("SELECT settings ->> 'store_values' FROM source WHERE name = %s", (source_name,))
    row = cursor.fetchone()
    return None if row is None or row[0] is None else parse_shown(row[0])


def read_shown(connection: Any, source_name: str) -> tuple[str | None, dict[str, int | None]]:
    """Read what was said of keeping a source's values (its `store_values`; None: nothing), and of each column of it.

    A column that is dropped is remembered by its name.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT settings ->> 'store_values' FROM source WHERE name = %s", (source_name,))
        row = cursor.fetchone()
        cursor.execute(
            "SELECT concat_ws('.', schema_name, table_name, column_name), shown_characters FROM attribute "
            "JOIN source USING (source_id) WHERE name = %s AND parts IS NULL "
            "ORDER BY dropped_version IS NULL, attribute_id",
            (source_name,),
        )
        columns = dict(cursor.fetchall())
    connection.commit()
    return (None if row is None else row[0]), columns


def read_shown_by_id(connection: Any) -> dict[int, int]:
    """Read how much is kept of the values of attributes of which not all is, by id."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT attribute_id, shown_characters FROM attribute "
            "WHERE shown_characters IS NOT NULL AND dropped_version IS NULL"
        )
        found = dict(cursor.fetchall())
    connection.commit()
    return found

"""Own tables whose rows the state keeps, in tests: what a bootstrap would have stored of them, and what stands now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from service.core.row_key import row_key
from tests import states
from tests.states import Tables

Rows = dict[str, list[str | None]]


def keep(url: str, tables: Tables, keys: Mapping[str, Sequence[str]]) -> None:
    """Let the stored state of tables (`states.store`) keep the rows of those that have a key."""
    with states.transaction(url) as cursor:
        for table, columns in tables.columns.items():
            key = list(keys.get(table, ()))
            cursor.execute(
                "insert into tracked_table (source_id, schema_name, table_name, source_schema, source_table, "
                "key_columns, row_images, begun_version) select source_id, 's', %s, 's', %s, %s, %s, 1 from source "
                "returning table_id",
                (table, table, key, bool(key)),
            )
            (table_id,) = cursor.fetchone() or (0,)
            for row in tables.rows.get(table, ()) if key else ():
                cells = [row[list(columns).index(column)] for column in key]
                cursor.execute(
                    "insert into row_image (table_id, row_key, cells) values (%s, %s, %s)",
                    (table_id, row_key(cells).hex(), list(row)),
                )


def read(url: str, table: str) -> Rows:
    """Read the kept rows of a table by their row key; rows that are kept as gone are left out."""
    found = states.query(
        url,
        "select replace(row_key::text, '-', ''), cells from row_image join tracked_table using (table_id) "
        f"where table_name = '{table}' and cells is not null",
    )
    return dict(found)


def expected(tables: Tables, table: str, key: Sequence[str]) -> Rows:
    """Give the kept rows that there should be."""
    places = [list(tables.columns[table]).index(column) for column in key]
    return {row_key([row[i] for i in places]).hex(): list(row) for row in +tables.rows.get(table, states.Counter())}

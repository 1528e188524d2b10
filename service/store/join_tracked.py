"""Own which tracked tables are indexed for joins, and the reading of their kept rows as value keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from sqlalchemy import Engine, text

from service.core.canonical import POSTGRES_KEY_EXPRESSION
from service.core.errors import NotFoundError, StateError
from service.core.join_parts import CellRows
from service.core.records import Keys
from service.store.checks import ROW_KEY
from service.store.database import make_engine
from service.usecases.join_tracked import TrackedIndex

COMMAND_NAME = "subsetd join index"

LOCK_OUT_BATCHES = "lock table join_tracked in share row exclusive mode"

TABLES = "select table_id, row_images and key_columns <> '{}' as has_images, schema_name, table_name from tracked_table"
ADD = "insert into join_tracked (table_id) values (:table_id) on conflict do nothing"
NAMES = """
select schema_name || '.' || table_name from join_tracked join tracked_table using (table_id) where source_id = %s
"""
ADD_AGAIN = """
insert into join_tracked (table_id) select table_id from tracked_table
where source_id = %s and schema_name || '.' || table_name = any (%s) and row_images
"""
REMOVE = "delete from join_tracked where table_id = any (:table_ids)"
LISTED = """
select schema_name || '.' || table_name as name, built_version, row_count,
    (select count(*) from join_segment s where s.table_id = t.table_id) as segments,
    (select coalesce(sum(octet_length(row_keys)), 0) / 16 from join_change c where c.table_id = t.table_id) as changed
from join_tracked t join tracked_table using (table_id) order by 1
"""

WIDTH = """
select max(ordinal) + 1 from attribute join tracked_table using (source_id, schema_name, table_name)
where table_id = %s and dropped_version is null and parts is null
"""

KEY = """
with key as (
    select array_agg(ordinal order by place) as key_places
    from tracked_table cross join unnest(key_columns) with ordinality as key (column_name, place)
    join attribute using (source_id, schema_name, table_name, column_name)
    where table_id = %(table_id)s and dropped_version is null and parts is null
)
"""
# Only what is under its own row's key: between the two halves of a key change, a row waits under another one.
KEPT = f"""
from row_image, key
where table_id = %(table_id)s and cells is not null and row_key = {POSTGRES_KEY_EXPRESSION(ROW_KEY)}
"""
CELLS = f"""{KEY} select uuid_send(row_key), (
    select string_agg(
        case when cells[n] <> '' then substring(sha256(convert_to(cells[n], 'UTF8')) for 16) else %(empty)s end,
        '' order by n
    ) from generate_series(1, %(width)s) as n
) {KEPT}
"""
COUNT = f"{KEY} select count(*) {KEPT}"
OF_KEYS = CELLS + " and row_key = any (%(row_keys)s) order by row_key"
OF_ALL = CELLS + " order by row_key"


def names_of(cursor: Any, source_id: int) -> list[str]:
    """Name the tables of a source that are indexed."""
    cursor.execute(NAMES, (source_id,))
    return [name for (name,) in cursor]


def index_anew(cursor: Any, source_id: int, names: Sequence[str]) -> None:
    """Have those tables of a source indexed that were before its bootstrap, as far as their rows are kept."""
    cursor.execute(ADD_AGAIN, (source_id, list(names)))


def read_width(cursor: Any, table_id: int) -> int:
    """Give how many cells the rows of a table may have, stale columns among them."""
    cursor.execute(WIDTH, (table_id,))
    return int(cursor.fetchone()[0] or 0)


def read_rows(cursor: Any, table_id: int, width: int, row_keys: Keys) -> CellRows:
    """Read those of some kept rows that are there, as keys of their values."""
    listed = row_keys_to_bytes(row_keys).hex()
    among = "{" + ",".join(listed[at : at + 32] for at in range(0, len(listed), 32)) + "}"
    cursor.execute(OF_KEYS, _asked(table_id, width) | {"row_keys": among})
    return _rows(cursor.fetchall(), width)


def count_rows(cursor: Any, table_id: int) -> int:
    """Count the kept rows of a table."""
    cursor.execute(COUNT, {"table_id": table_id})
    return int(cursor.fetchone()[0])


def stream_rows(cursor: Any, table_id: int, width: int, portion: int) -> Iterator[CellRows]:
    """Read all kept rows of a table by a named cursor, so many at a time: at least one portion, the first by itself."""
    cursor.itersize = portion
    cursor.execute(OF_ALL, _asked(table_id, width))
    yield _rows(cursor.fetchmany(portion), width)
    while rows := cursor.fetchmany(portion):
        yield _rows(rows, width)


def row_keys_to_bytes(keys: Keys) -> bytes:
    """Give keys as 16 bytes each."""
    return np.stack([keys.high, keys.low], axis=1).astype(">u8").tobytes()


def row_keys_of(data: Any) -> Keys:
    """Take what `row_keys_to_bytes` gives."""
    return Keys.of([bytes(data)])


@contextmanager
def _writing(url: str) -> Iterator[Engine]:
    engine = make_engine(url, COMMAND_NAME, pool_size=1, max_overflow=0)
    try:
        yield engine
    finally:
        engine.dispose()


def add_tables(url: str, names: Sequence[str]) -> list[int]:
    """Have tables indexed, and the changes of their rows logged from now on; give their ids.

    Raises NotFoundError, and StateError for one whose rows the state does not keep; then none is added.
    """
    with _writing(url) as engine, engine.begin() as connection:
        connection.execute(text(LOCK_OUT_BATCHES))
        found = _named({f"{row[2]}.{row[3]}": row for row in connection.execute(text(TABLES))}, names)
        for name, row in zip(names, found, strict=True):
            if not row.has_images:
                raise StateError(
                    f"{name}: the state does not keep its rows, which the index is made of; bootstrap its source again "
                    "with --replace and --row-images always."
                )
            connection.execute(text(ADD), {"table_id": row.table_id})
    return [row.table_id for row in found]


def remove_tables(url: str, names: Sequence[str]) -> None:
    """Have tables indexed no longer. Raises NotFoundError for one that is none."""
    with _writing(url) as engine, engine.begin() as connection:
        found = _named({f"{row[2]}.{row[3]}": row for row in connection.execute(text(TABLES))}, names)
        connection.execute(text(LOCK_OUT_BATCHES))
        connection.execute(text(REMOVE), {"table_ids": [row.table_id for row in found]})


def list_tables(engine: Engine) -> list[TrackedIndex]:
    """List the tables that are indexed, by name."""
    with engine.connect() as connection:
        return [TrackedIndex(*row) for row in connection.execute(text(LISTED))]


def _named(tables: Mapping[str, Any], names: Iterable[str]) -> list[Any]:
    unknown = next((name for name in names if name not in tables), None)
    if unknown is not None:
        raise NotFoundError(f"There is no table {unknown!r} that is followed; tables are named as schema.table.")
    return [tables[name] for name in names]


def _asked(table_id: int, width: int) -> dict[str, Any]:
    return {"table_id": table_id, "width": width, "empty": bytes(16)}


def _rows(rows: Sequence[tuple[Any, Any]], width: int) -> CellRows:
    return CellRows(Keys.of(key for key, _ in rows), Keys.of(cells for _, cells in rows), width)

"""Own which tracked tables are indexed for joins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, text

from service.core.errors import NotFoundError, StateError
from service.store.database import make_engine
from service.store.locks import JOIN_COMPACTION_LOCK
from service.usecases.join_tracked import TrackedIndex

COMMAND_NAME = "subsetd join index"

LOCK_OUT_BATCHES = "lock table join_tracked in share row exclusive mode"
LOCK_OUT_COMPACTOR = "select pg_advisory_xact_lock(:lock, :table_id)"
"""Before batches are: they would wait for a compaction at work, and it for this."""

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


def names_of(cursor: Any, source_id: int) -> list[str]:
    """Name the tables of a source that are indexed."""
    cursor.execute(NAMES, (source_id,))
    return [name for (name,) in cursor]


def index_anew(cursor: Any, source_id: int, names: Sequence[str]) -> None:
    """Have those tables of a source indexed that were before its bootstrap, as far as their rows are kept."""
    cursor.execute(ADD_AGAIN, (source_id, list(names)))


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
        table_ids = sorted({row.table_id for row in found})
        for table_id in table_ids:
            connection.execute(text(LOCK_OUT_COMPACTOR), {"lock": JOIN_COMPACTION_LOCK, "table_id": table_id})
        connection.execute(text(LOCK_OUT_BATCHES))
        connection.execute(text(REMOVE), {"table_ids": table_ids})


def list_tables(engine: Engine) -> list[TrackedIndex]:
    """List the tables that are indexed, by name."""
    with engine.connect() as connection:
        return [TrackedIndex(*row) for row in connection.execute(text(LISTED))]


def _named(tables: Mapping[str, Any], names: Iterable[str]) -> list[Any]:
    unknown = next((name for name in names if name not in tables), None)
    if unknown is not None:
        raise NotFoundError(f"There is no table {unknown!r} that is followed; tables are named as schema.table.")
    return [tables[name] for name in names]

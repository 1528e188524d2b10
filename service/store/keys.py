"""Own the tracked keys of the state: which columns, or tuples of them, are kept as keys, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from psycopg2.extras import execute_values

DECLARED, PINNED = "declared", "pinned"
"""Kinds of keys: a source's constraint, a person's choice; beside them there is `discovered`."""

TUPLES = """
select schema_name, table_name,
    (select array_agg(c.column_name order by array_position(a.parts, c.ordinal)) from attribute c
     where c.parts is null and c.dropped_version is null and c.ordinal = any (coalesce(a.parts, array[a.ordinal]))
       and (c.schema_name, c.table_name) = (a.schema_name, a.table_name)),
    tracked_key.kind
from attribute a join source using (source_id) left join tracked_key using (attribute_id)
where source.name = %s and dropped_version is null and (parts is not null or tracked_key.kind is not null)
order by attribute_id
"""


class TrackedKey(NamedTuple):
    """Name columns that are tracked as a key of their table, and why they are."""

    columns: tuple[str, ...]
    kind: str
    is_primary: bool = False


class KnownTuple(NamedTuple):
    """Name columns of a table of the state whose tuples are followed, or one tracked column; `kind` if it is a key."""

    schema: str
    table: str
    columns: tuple[str, ...]
    kind: str | None


class NewKey(NamedTuple):
    """Hold a key of the source that is bootstrapped, by its attribute."""

    attribute_id: int
    kind: str
    is_primary: bool


def read_tuples(connection: Any, source_name: str) -> list[KnownTuple]:
    """Read what tuples of a source are followed and which keys of it are tracked."""
    with connection.cursor() as cursor:
        cursor.execute(TUPLES, (source_name,))
        found = [KnownTuple(schema, table, tuple(columns), kind) for schema, table, columns, kind in cursor]
    connection.commit()
    return found


def put_keys(cursor: Any, source_id: int, keys: Sequence[NewKey], version: int) -> None:
    """Store the tracked keys of a source in the place of those it had; one that stays keeps the version it is since."""
    cursor.execute(
        "delete from tracked_key using attribute where attribute.attribute_id = tracked_key.attribute_id "
        "and source_id = %s and tracked_key.attribute_id <> all (%s)",
        (source_id, [key.attribute_id for key in keys]),
    )
    execute_values(
        cursor,
        "insert into tracked_key (attribute_id, kind, is_primary, since_version) values %s on conflict (attribute_id) "
        "do update set kind = excluded.kind, is_primary = excluded.is_primary",
        [(*key, version) for key in keys],
    )

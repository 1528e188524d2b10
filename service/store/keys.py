"""Own the tracked keys of the state: which columns, or tuples of them, are kept as keys, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from psycopg2.extras import execute_values
from sqlalchemy import Connection, Row, text

from service.core.model import AttributeName
from service.store.shard_reading import RECORD_CLUSTERS
from service.store.shown_values import shown_value
from service.usecases.answers import AttributeInfo, Key
from service.usecases.key_values import KeyFilter, KeyInfo, KeyKind, RepeatedValue, TupleInfo

TUPLES = """
select schema_name, table_name, columns, coalesce(tracked_key.chosen, nullif(tracked_key.kind, 'declared')),
    exists (select from contract c where (schema_name, table_name, columns) in (
        (c.dependent_schema, c.dependent_table, c.dependent_columns),
        (c.referenced_schema, c.referenced_table, c.referenced_columns)
    ))
from attribute a join source using (source_id) left join tracked_key using (attribute_id), lateral (
    select array_agg(c.column_name order by array_position(a.parts, c.ordinal)) as columns from attribute c
    where c.parts is null and c.dropped_version is null and c.ordinal = any (coalesce(a.parts, array[a.ordinal]))
      and (c.schema_name, c.table_name) = (a.schema_name, a.table_name)
) named
where source.name = %s and dropped_version is null and (parts is not null or tracked_key.kind is not null)
order by attribute_id
"""

KEYS = """
select a.attribute_id, a.schema_name, a.table_name, a.column_name, s.name as source, a.ordinal, a.data_type,
    s.insert_only, a.row_count, a.null_count, a.distinct_count, a.repeated_count, s.bootstrapped_version,
    a.stale_version as stale_since, s.sketch_only, a.shown_characters, k.kind,
    coalesce(k.is_primary, false) as is_primary,
    case when a.parts is null then array[a.column_name] else (
        select array_agg(c.column_name order by array_position(a.parts, c.ordinal)) from attribute c
        where c.parts is null and c.dropped_version is null and c.ordinal = any (a.parts)
            and (c.schema_name, c.table_name) = (a.schema_name, a.table_name)) end as columns
from attribute a join source s using (source_id) left join tracked_key k using (attribute_id)
where a.dropped_version is null and (k.kind is not null or (
        not :tracked_only and a.stale_version is null and a.distinct_count > 0
        and coalesce(a.repeated_count, a.row_count - a.null_count - a.distinct_count) <= :nearly * a.distinct_count))
    and (cast(:schema as text) is null or a.schema_name = :schema)
    and (cast(:table as text) is null or a.table_name = :table)
    and (a.schema_name collate "C", a.table_name collate "C", a.ordinal, a.attribute_id)
        > (cast(:after_schema as text), cast(:after_table as text), :after_ordinal, :after_id)
order by a.schema_name collate "C", a.table_name collate "C", a.ordinal, a.attribute_id limit :limit
"""
BEFORE_ALL = ("", "", -1, -1)

KNOWN_TUPLES = """
select a.attribute_id, k.kind, array_agg(c.attribute_id order by array_position(a.parts, c.ordinal)) as parts
from attribute a left join tracked_key k using (attribute_id)
join attribute c on c.schema_name = a.schema_name and c.table_name = a.table_name and c.ordinal = any (a.parts)
where a.dropped_version is null and c.parts is null and c.dropped_version is null
group by a.attribute_id, k.kind order by a.attribute_id
"""

# A shard's server knows of no attribute: a state with shards keeps its values whole.
REPEATED = f"""
select {shown_value()} as value, value_key::text as value_key,
    frequencies[array_position(attribute_ids, :attribute_id)] as frequency
from gen_rec left join (select shown_characters from attribute where attribute_id = :attribute_id) a on true
where cluster_id in (
        select cluster_id from {RECORD_CLUSTERS} c where attribute_ids @> array[cast(:attribute_id as integer)]
    ) and frequencies[array_position(attribute_ids, :attribute_id)] > 1
order by 3 desc, gen_rec.value_key limit :limit
"""


class TrackedKey(NamedTuple):
    """Name columns that are tracked as a key of their table, and why they are; `chosen` as in NewKey."""

    columns: tuple[str, ...]
    kind: str
    is_primary: bool = False
    chosen: str | None = None


class KnownTuple(NamedTuple):
    """Name columns of a table of the state whose tuples are followed, or one tracked column.

    `chosen`: the kind of key that somebody chose it as, whether its source declares it or not. `has_contract`: they are
    a side of one.
    """

    schema: str
    table: str
    columns: tuple[str, ...]
    chosen: str | None
    has_contract: bool


class NewKey(NamedTuple):
    """Hold a key of the source that is bootstrapped, by its attribute.

    `chosen`: the kind of a declared one that somebody chose as well, which it is again when it is declared no longer.
    """

    attribute_id: int
    kind: str
    is_primary: bool
    chosen: str | None = None


def read_tuples(connection: Any, source_name: str) -> list[KnownTuple]:
    """Read what tuples of a source are followed and which keys of it are tracked."""
    with connection.cursor() as cursor:
        cursor.execute(TUPLES, (source_name,))
        found = [KnownTuple(schema, table, tuple(columns), *told) for schema, table, columns, *told in cursor]
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
        "insert into tracked_key (attribute_id, kind, is_primary, chosen, since_version) values %s "
        "on conflict (attribute_id) do update set kind = excluded.kind, is_primary = excluded.is_primary, "
        "chosen = excluded.chosen",
        [(*key, version) for key in keys],
    )


def read_keys(connection: Connection, chosen: KeyFilter, after: Key | None, limit: int) -> list[KeyInfo]:
    """List keys by (schema, table, ordinal, attribute_id)."""
    names = {"schema": chosen.schema, "table": chosen.table}
    if any("\x00" in name for name in names.values() if name is not None):
        return []  # Postgres keeps no text with NUL and takes none as a parameter.
    behind = dict(zip(("after_schema", "after_table", "after_ordinal", "after_id"), after or BEFORE_ALL, strict=True))
    asked = {**names, **behind, "nearly": chosen.nearly, "tracked_only": chosen.tracked_only, "limit": limit}
    return [_key(row) for row in connection.execute(text(KEYS), asked)]


def read_known_tuples(connection: Connection) -> list[TupleInfo]:
    """List the attributes that are tuples of columns by (attribute_id)."""
    return [
        TupleInfo(row.attribute_id, tuple(row.parts), row.kind is not None, row.kind == KeyKind.DECLARED)
        for row in connection.execute(text(KNOWN_TUPLES))
    ]


def read_repeated(connection: Connection, attribute_id: int, limit: int) -> list[RepeatedValue]:
    """List values that an attribute has more than once, the most frequent first."""
    rows = connection.execute(text(REPEATED), {"attribute_id": attribute_id, "limit": limit})
    return [RepeatedValue(*row) for row in rows]


def _key(row: Row[Any]) -> KeyInfo:
    told = dict(row._mapping)
    kind, is_primary, columns = (told.pop(name) for name in ("kind", "is_primary", "columns"))
    name = AttributeName(told.pop("schema_name"), told.pop("table_name"), told.pop("column_name"))
    return KeyInfo(AttributeInfo(name=name, **told), tuple(columns), kind, is_primary)

"""Own the foreign keys that sources declare, in Postgres: by ids of columns, which stay when names change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from psycopg2.extras import execute_values
from sqlalchemy import Connection, text

from service.store.contract_upkeep import BINDING
from service.store.side_columns import NAMED, foreign_key_of
from service.usecases.key_values import DeclaredForeignKey

COLUMNS = """
(select array_agg(column_name order by place) from unnest({side}_ids) with ordinality as given (id, place)
 join attribute on attribute_id = id) as {side}_columns
"""

DECLARED = f"""
with c as (
    select reference_id, source.name as source, d.schema_name as dependent_schema, d.table_name as dependent_table,
        {COLUMNS.format(side="dependent")}, r.schema_name as referenced_schema, r.table_name as referenced_table,
        {COLUMNS.format(side="referenced")}
    from declared_reference join source using (source_id)
    join attribute d on d.attribute_id = dependent_ids[1] join attribute r on r.attribute_id = referenced_ids[1]
    where reference_id > :after and not exists (
        select from attribute
        where attribute_id = any (dependent_ids || referenced_ids) and dropped_version is not null)
    order by reference_id limit :limit
)
select reference_id, source, {NAMED},
    case when d.attribute_id is not null and r.attribute_id is not null then d.distinct_count = 0 or exists (
        select from uind where (dependent_id, referenced_id) = (d.attribute_id, r.attribute_id)
        and until_version is null) end as holds
from c {BINDING} order by reference_id
"""


class NewReference(NamedTuple):
    """Hold a foreign key that the bootstrapped source declares: ids of columns, those of both sides in one order."""

    dependent_ids: Sequence[int]
    referenced_ids: Sequence[int]


def put_references(cursor: Any, source_id: int, references: Sequence[NewReference]) -> None:
    """Store the foreign keys that a source declares in the place of those that it had."""
    cursor.execute("delete from declared_reference where source_id = %s", (source_id,))
    execute_values(
        cursor,
        "insert into declared_reference (source_id, dependent_ids, referenced_ids) values %s",
        [(source_id, list(dependent), list(referenced)) for dependent, referenced in references],
    )


def read_references(connection: Connection, after: int, limit: int) -> list[DeclaredForeignKey]:
    """List the foreign keys that sources declare by (reference_id)."""
    rows = connection.execute(text(DECLARED), {"after": after, "limit": limit})
    return [DeclaredForeignKey(row.reference_id, row.source, foreign_key_of(row), row.holds) for row in rows]

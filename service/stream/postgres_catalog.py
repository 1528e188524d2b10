"""Own what a Postgres feed asks of its source's catalog: the slot, and what a Relation message does not say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from service.stream.pgoutput import parse_relation, renamed_relation

# Texts are made by base types: a domain, and an array of one, may stand on others; the modifier at any level.
_TYPES = """
WITH RECURSIVE resolved AS (
  SELECT place, kind, modifier FROM unnest(%s::oid[], %s::integer[]) WITH ORDINALITY AS sent (kind, modifier, place)
  UNION ALL
  SELECT r.place, coalesce(of_array.typarray, t.typbasetype),
    CASE WHEN r.modifier = -1 THEN coalesce(element.typtypmod, t.typtypmod) ELSE r.modifier END
  FROM resolved r JOIN pg_type t ON t.oid = r.kind
  LEFT JOIN pg_type element ON element.oid = t.typelem AND element.typtype = 'd' AND t.typcategory = 'A'
  LEFT JOIN pg_type of_array ON of_array.oid = element.typbasetype AND of_array.typarray <> 0
  WHERE t.typtype = 'd' OR of_array.oid IS NOT NULL
)
SELECT DISTINCT ON (place) format_type(kind, modifier)
FROM (SELECT *, row_number() OVER () AS step FROM resolved) AS steps ORDER BY place, step DESC
"""

# A generated column is filled from the others, one that may not be NULL by something, and an old default by itself.
_FILLED = """
SELECT attname FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
AND (atthasdef OR atthasmissing OR attnotnull OR attidentity <> '')
"""

_ROOT = """
SELECT c.oid, n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = pg_partition_root(%s)
"""

_SLOT = """
SELECT current_setting('wal_level'), EXISTS (SELECT FROM pg_publication WHERE pubname = s.slot_name),
  (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint, (s.confirmed_flush_lsn - '0/0'::pg_lsn)::bigint,
  s.wal_status, coalesce(pg_current_wal_lsn() - s.restart_lsn, 0)::bigint
FROM pg_replication_slots s WHERE s.slot_name = %s AND s.database = current_database()
"""


class SlotState(NamedTuple):
    """Tell how a slot stands; `current` is the end of the log, `confirmed` up to where the slot's reader has it."""

    wal_level: str
    has_publication: bool
    current: int
    confirmed: int
    wal_status: str
    held_back: int


class DescribedRelation(NamedTuple):
    """Describe a table of the source: what its changes carry as headers, and the root that it is a partition of."""

    headers: tuple[tuple[str, bytes], ...]
    name: str
    root_oid: int


def read_slot(cursor: Any, slot: str) -> SlotState | None:
    """Read how a slot of this database stands; None where there is no such slot."""
    cursor.execute(_SLOT, (slot,))
    row = cursor.fetchone()
    return None if row is None else SlotState(*row)


def source_identity(cursor: Any) -> dict[str, object]:
    """Read what tells one database from all others, wherever it runs."""
    cursor.execute("SELECT system_identifier::text, current_database() FROM pg_control_system()")
    system, database = cursor.fetchone()
    return {"system": system, "database": database}


def describe_relation(cursor: Any, message: bytes) -> DescribedRelation:
    """Add to a Relation message what the catalog knows of its columns; a partition goes by the name of its root.

    That is the names of their types, and which of them may have a value in rows that were there before them.
    """
    relation = parse_relation(message)
    columns = relation.columns
    cursor.execute(_TYPES, ([column.type_oid for column in columns], [column.modifier for column in columns]))
    types = [name for (name,) in cursor.fetchall()]
    cursor.execute(_FILLED, (relation.oid,))
    filled = [name for (name,) in cursor.fetchall()]
    cursor.execute(_ROOT, (relation.oid,))
    root_oid, schema, name = cursor.fetchone() or (relation.oid, relation.schema, relation.name)
    headers = (
        ("relation", renamed_relation(message, schema, name)),
        ("types", orjson.dumps(types)),
        ("filled", orjson.dumps(filled)),
    )
    return DescribedRelation(headers, f"{relation.schema}.{relation.name}", root_oid)


def partitions_left(cursor: Any, root_oid: int, emptied: Sequence[int]) -> bool:
    """Tell whether a partitioned table has partitions beside those that were emptied."""
    cursor.execute(
        "SELECT EXISTS (SELECT FROM pg_partition_tree(%s) WHERE isleaf AND relid <> ALL (%s::oid[]))",
        (root_oid, list(emptied)),
    )
    return bool(cursor.fetchone()[0])


def emit_mark(cursor: Any) -> int:
    """Write a message into the log, in a transaction of its own, which is on disk behind it; return its place."""
    cursor.execute(
        "SELECT (pg_logical_emit_message(true, 'subsetd', '') - '0/0'::pg_lsn)::bigint, "
        "set_config('synchronous_commit', 'local', true)"
    )
    return int(cursor.fetchone()[0])

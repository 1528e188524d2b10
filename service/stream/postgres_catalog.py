"""Own what a Postgres feed asks of its source's catalog: the slot, and what a Relation message does not say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from service.core.sql_names import TYPE_NAME
from service.stream.pgoutput import parse_relation, renamed_relation

# Texts are made by base types: a domain, and an array of one, may stand on others; the modifier at any level.
_TYPES = f"""
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
SELECT DISTINCT ON (place) {TYPE_NAME}
FROM (SELECT *, row_number() OVER () AS step FROM resolved) AS steps ORDER BY place, step DESC
"""

# A generated column is filled from the others, one that may not be NULL by something, and an old default by itself. A
# partition that is gone had the columns of its root.
_UNFILLED = """
SELECT attname FROM pg_attribute WHERE attrelid = ANY (%s::oid[]) AND attnum > 0 AND NOT attisdropped
GROUP BY attname HAVING NOT bool_or(atthasdef OR atthasmissing OR attnotnull OR attidentity <> '')
"""

_ROOT = """
SELECT c.oid, n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = pg_partition_root(%s)
"""

_ROOTS = """
SELECT part.oid, root.oid, n.nspname, root.relname FROM pg_class part
JOIN pg_class root ON root.oid = pg_partition_root(part.oid) JOIN pg_namespace n ON n.oid = root.relnamespace
WHERE part.relispartition AND part.relkind = 'r'
"""

# Of a table that is no partition: does the publication have it, and which partitioned tables does it have?
_PUBLISHED = """
SELECT EXISTS (SELECT FROM pg_class t WHERE t.oid = %(oid)s
    AND (p.puballtables OR EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = t.oid))),
  ARRAY(SELECT ARRAY[n.nspname, c.relname]::text[] FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'p' AND NOT c.relispartition
    AND (p.puballtables OR EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid))
    ORDER BY n.nspname, c.relname)
FROM pg_publication p WHERE p.pubname = %(slot)s
"""

# Whoever empties a table and whoever gives it a partition wait for each other: of these two the later one has the
# higher number, unless it had begun to write before. Numbers go round: what lies between two of them is compared.
_PARTITIONS_LEFT = """
SELECT EXISTS (
  SELECT FROM pg_partition_tree(%(root)s) AS part LEFT JOIN pg_inherits AS attached ON attached.inhrelid = part.relid
  WHERE part.isleaf AND part.relid <> ALL (%(emptied)s::oid[]) AND (part.relid = ANY (%(told)s::oid[])
    OR attached.xmin::text::bigint - %(transaction)s & x'ffffffff'::bigint
      > txid_snapshot_xmax(txid_current_snapshot()) - %(transaction)s & x'ffffffff'::bigint))
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


class Root(NamedTuple):
    """Name the partitioned table that a partition belongs to."""

    oid: int
    schema: str
    name: str


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


def read_roots(cursor: Any) -> dict[int, Root]:
    """Read the root of every partition that there is, by the partition's oid."""
    cursor.execute(_ROOTS)
    return {oid: Root(*root) for oid, *root in cursor.fetchall()}


def describe_relation(cursor: Any, message: bytes, slot: str, roots: dict[int, Root]) -> DescribedRelation:
    """Add to a Relation message what the catalog knows of its columns; a partition goes by the name of its root.

    That is the names of their types, and which of them may have a value in rows that were there before them. Changes
    may be older than the catalog: of a column that was dropped or renamed since nothing says that it had no default,
    and `roots` has the root of each partition that was ever seen, and grows. Where a table may have been a partition
    that nobody has seen, a header says of which tables.
    """
    relation = parse_relation(message)
    columns = relation.columns
    cursor.execute(_TYPES, ([column.type_oid for column in columns], [column.modifier for column in columns]))
    types = [name for (name,) in cursor.fetchall()]
    root, of_these = _root(cursor, relation.oid, slot, roots)
    root_oid, schema, name = root or (relation.oid, relation.schema, relation.name)
    cursor.execute(_UNFILLED, ([relation.oid, root_oid],))
    unfilled = {name for (name,) in cursor.fetchall()}
    filled = [column.name for column in columns if column.name not in unfilled]
    headers = (
        ("relation", renamed_relation(message, schema, name)),
        ("types", orjson.dumps(types)),
        ("filled", orjson.dumps(filled)),
        *([("gone_from", orjson.dumps(of_these))] if of_these else []),
    )
    return DescribedRelation(headers, f"{relation.schema}.{relation.name}", root_oid)


def _root(cursor: Any, oid: int, slot: str, roots: dict[int, Root]) -> tuple[Root | None, Sequence[Sequence[str]]]:
    """Give the root of a partition, or else the partitioned tables of which a table may have been one."""
    cursor.execute(_ROOT, (oid,))
    found = cursor.fetchone()
    if found is not None:
        if oid not in roots:
            roots.update(read_roots(cursor))
        roots[oid] = Root(*found)
        return roots[oid], ()
    cursor.execute(_PUBLISHED, {"oid": oid, "slot": slot})
    is_published, partitioned = cursor.fetchone() or (False, [])
    if is_published:
        return None, ()
    return (roots[oid], ()) if oid in roots else (None, partitioned)


def partitions_left(
    cursor: Any, root_oid: int, emptied: Sequence[int], told: Sequence[int], transaction_id: int
) -> bool:
    """Tell whether a partitioned table had partitions beside those that a transaction emptied.

    `told` are tables that had changes before. A partition without any, which came with the transaction or later, was
    not there.
    """
    cursor.execute(
        _PARTITIONS_LEFT,
        {"root": root_oid, "emptied": list(emptied), "told": list(told), "transaction": transaction_id},
    )
    return bool(cursor.fetchone()[0])


def emit_mark(cursor: Any) -> int:
    """Write a message into the log, in a transaction of its own, which is on disk behind it; return its place."""
    cursor.execute(
        "SELECT (pg_logical_emit_message(true, 'subsetd', '') - '0/0'::pg_lsn)::bigint, "
        "set_config('synchronous_commit', 'local', true)"
    )
    return int(cursor.fetchone()[0])

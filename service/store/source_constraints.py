"""Own the keys and foreign keys that a Postgres source declares, as its catalog has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

# A unique index tells rows apart as a constraint does, unless it is of some rows or of expressions, or being built.
_KEYS = """
SELECT i.indrelid, i.indisprimary, array_agg(a.attname ORDER BY k.place)
FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (attnum, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = ANY (%s) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
  AND k.place <= i.indnkeyatts
GROUP BY i.indexrelid, i.indrelid, i.indisprimary ORDER BY i.indrelid, NOT i.indisprimary, i.indexrelid
"""

# Those of partitions are their root's.
_REFERENCES = """
SELECT c.conrelid, array_agg(f.attname ORDER BY k.place), n.nspname, r.relname, array_agg(p.attname ORDER BY k.place)
FROM pg_constraint c CROSS JOIN LATERAL unnest(c.conkey, c.confkey) WITH ORDINALITY AS k (own, referenced, place)
JOIN pg_attribute f ON f.attrelid = c.conrelid AND f.attnum = k.own
JOIN pg_attribute p ON p.attrelid = c.confrelid AND p.attnum = k.referenced
JOIN pg_class r ON r.oid = c.confrelid JOIN pg_namespace n ON n.oid = r.relnamespace
WHERE c.contype = 'f' AND c.conparentid = 0 AND c.conrelid = ANY (%s)
GROUP BY c.oid, c.conrelid, n.nspname, r.relname ORDER BY c.conrelid, c.oid
"""


class DeclaredKey(NamedTuple):
    """Name columns that a source declares to tell rows apart, in its order; NULL may stand where it is not primary."""

    columns: tuple[str, ...]
    is_primary: bool


class DeclaredReference(NamedTuple):
    """Name columns with a foreign key, and those that they refer to, side by side."""

    columns: tuple[str, ...]
    schema: str
    table: str
    referenced: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Constraints:
    """Hold what a table declares: keys, the primary one first, each set of columns once; and foreign keys."""

    keys: tuple[DeclaredKey, ...] = ()
    references: tuple[DeclaredReference, ...] = ()


UNCONSTRAINED = Constraints()


def read_constraints(cursor: Any, tables: Iterable[int]) -> Mapping[int, Constraints]:
    """Read what tables declare, by their oids; nothing of one that declares nothing."""
    oids = list(tables)
    found: dict[int, Constraints] = {}
    cursor.execute(_KEYS, (oids,))
    for oid, is_primary, columns in cursor.fetchall():
        of = found.get(oid, UNCONSTRAINED)
        if set(columns) not in [set(key.columns) for key in of.keys]:
            found[oid] = replace(of, keys=(*of.keys, DeclaredKey(tuple(columns), is_primary)))
    cursor.execute(_REFERENCES, (oids,))
    for oid, columns, schema, table, referenced in cursor.fetchall():
        of = found.get(oid, UNCONSTRAINED)
        declared = DeclaredReference(tuple(columns), schema, table, tuple(referenced))
        found[oid] = replace(of, references=(*of.references, declared))
    return found

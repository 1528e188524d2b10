"""Own what landing writes: versions of tables, and the difference between a load and the INDs that are served.

All functions run in the landing's transaction; the lock of the corpus is held.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from service.core.errors import DamagedStateError
from service.core.records import Int32s
from service.store.corpus_cleaning import change_table, load_table
from service.store.corpus_tables import write_tables
from service.usecases.corpora import TableVersions

LANDING_TIMEOUT = "60s"
"""How long a landing waits for others that change which loads there are."""

LARGE_SHARE = 4
"""A full load that differs in more than one of so many INDs takes the place of the others as it is."""

LOOKUP_SHARE = 20
"""INDs are found by index where there are so many times more than lookups.

Measured with all in memory, 16.1 million INDs in one load: a lookup takes 4 us, each IND read whole 0.2 to 0.4 us.
"""

# Each load, in the order of both sides: without the load's id in them they are a third smaller than the parent's
# would be.
PAIR_INDEXES = (
    "CREATE UNIQUE INDEX {table}_pair ON {table} (dependent, referenced)",
    "CREATE INDEX {table}_referenced ON {table} (referenced, dependent)",
)
GONE_INDEX = "CREATE INDEX {table}_gone ON {table} (dependent, referenced) WHERE gone IS NOT NULL"

SAME = """
DELETE FROM staged s USING corpus_table t
WHERE t.corpus_id = s.corpus_id AND t.table_number = s.table_number AND t.until IS NULL
AND (t.path, t.row_count, t.first_column, t.column_names, t.distinct_counts, t.dependent_reasons, t.referenced_reasons)
  = (s.path, s.row_count, s.first_column, s.column_names, s.distinct_counts, s.dependent_reasons, s.referenced_reasons)
"""

REPLACED = """
UPDATE corpus_table t SET until = %(generation)s WHERE corpus_id = %(corpus_id)s AND until IS NULL
AND (table_number = ANY (%(gone)s) OR EXISTS (SELECT FROM staged s WHERE s.table_number = t.table_number))
RETURNING first_column, column_count,
          EXISTS (SELECT FROM staged s WHERE s.table_number = t.table_number AND s.first_column = t.first_column)
"""

NEXT = """
UPDATE corpus SET
  next_table = greatest(next_table, (SELECT max(table_number) + 1 FROM staged)),
  next_column = greatest(next_column, (SELECT max(first_column + column_count) FROM staged))
WHERE corpus_id = %s
"""

# INDs that are served and in the load no more (new is null), in the load alone (old is null), or in both with
# different overlaps.
DIFFERENCE = """
CREATE TEMPORARY TABLE difference ON COMMIT DROP AS
SELECT v.load_id, dependent, referenced, v.overlap AS old, n.overlap AS new
FROM {served} v FULL JOIN {table} n USING (dependent, referenced) WHERE v.overlap IS DISTINCT FROM n.overlap
"""
COUNTED = """
SELECT count(new), count(old), count(*) FILTER (WHERE old IS NULL), count(*) FILTER (WHERE new IS NULL) FROM difference
"""
TOUCHED = """
(SELECT i.* FROM {served} i JOIN changed ON i.dependent = column_id UNION ALL
 SELECT i.* FROM {served} i JOIN changed ON i.referenced = column_id
 WHERE NOT EXISTS (SELECT FROM changed c WHERE c.column_id = i.dependent))
"""
# The same, with each changed column looked up in both indexes: OFFSET 0 keeps Postgres, which cannot foresee how few
# INDs changed columns have, from reading all of them instead.
LOOKED_UP = """
(SELECT i.* FROM changed CROSS JOIN LATERAL (SELECT * FROM {served} v WHERE dependent = column_id OFFSET 0) i UNION ALL
 SELECT i.* FROM changed CROSS JOIN LATERAL (SELECT * FROM {served} v WHERE referenced = column_id OFFSET 0) i
 WHERE NOT EXISTS (SELECT FROM changed c WHERE c.column_id = i.dependent))
"""


def put_tables(cursor: Any, corpus_id: int, generation: int, tables: TableVersions, gone: Int32s) -> Int32s:
    """Write versions of tables as since a generation, and end those that they replace or that are gone.

    Gives the ids of columns that are no more.
    """
    cursor.execute("CREATE TEMPORARY TABLE staged (LIKE corpus_table) ON COMMIT DROP")
    write_tables(cursor, "staged", corpus_id, generation, tables)
    cursor.execute("CREATE UNIQUE INDEX ON staged (table_number); ANALYZE staged")
    cursor.execute(SAME)
    values = {"corpus_id": corpus_id, "generation": generation, "gone": gone.tolist()}
    cursor.execute(REPLACED, values)
    ended = np.array([(first, count) for first, count, stays in cursor if not stays], np.int64).reshape(-1, 2)
    cursor.execute("INSERT INTO corpus_table SELECT * FROM staged")
    cursor.execute(NEXT, (corpus_id,))
    first, count = ended.T
    return (np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())).astype(np.int32)


def served_loads(cursor: Any, corpus_id: int, generation: int) -> list[int]:
    """Name the loads that some of a generation's INDs are in."""
    cursor.execute(
        "SELECT load_id FROM corpus_load WHERE corpus_id = %(corpus_id)s AND generation <= %(generation)s "
        "AND (gone IS NULL OR gone > %(generation)s) ORDER BY load_id",
        {"corpus_id": corpus_id, "generation": generation},
    )
    return [load_id for (load_id,) in cursor.fetchall()]


def served_inds(loads: Sequence[int], generation: int) -> str:
    """Give the INDs of a generation, which are in these loads, as a subquery."""
    chosen = ", ".join(map(str, loads)) or "NULL"
    return f"(SELECT * FROM corpus_ind WHERE load_id IN ({chosen}) AND (gone IS NULL OR gone > {generation}))"


def put_inds(
    cursor: Any,
    corpus_id: int,
    load_id: int,
    table: str,
    served: int | None,
    inds_before: int,
    changed_columns: Int32s | None,
) -> tuple[int, int, list[str]]:
    """Make a load (`table`) the difference to the served INDs, and give how many INDs appeared and went.

    `changed_columns` as `Load.land` has it. A load that differs much is taken as it is, and the others end. Gives, too,
    the statements that attach what was made. They come last: other landings wait from then on until the commit.
    """
    if served is None:
        count = _count(cursor, table)
        return count, 0, _make_ready(cursor, corpus_id, load_id, table, 1, count)
    loads, generation = served_loads(cursor, corpus_id, served), served + 1
    inds = served_inds(loads, served)
    if changed_columns is not None:
        cursor.execute("CREATE TEMPORARY TABLE changed (column_id integer PRIMARY KEY) ON COMMIT DROP")
        cursor.copy_expert("COPY changed FROM STDIN", io.StringIO("".join(f"{c}\n" for c in changed_columns.tolist())))
        cursor.execute("ANALYZE changed")
        _require_touched(cursor, load_id, table)
        few = LOOKUP_SHARE * len(changed_columns) * len(loads) < inds_before
        inds = (LOOKED_UP if few else TOUCHED).format(served=inds)
    cursor.execute("SET LOCAL work_mem = '256MB'")
    cursor.execute(DIFFERENCE.format(served=inds, table=table))
    cursor.execute("ANALYZE difference")
    cursor.execute(COUNTED)
    came, left, appeared, went = cursor.fetchone()
    attaching = _put_changes(cursor, load_id) if appeared or went else []
    if changed_columns is None and LARGE_SHARE * (came + left) > inds_before:
        cursor.execute("UPDATE corpus_load SET gone = %s WHERE load_id = ANY (%s)", (generation, loads))
        attaching += _make_ready(cursor, corpus_id, load_id, table, generation, _count(cursor, table))
        return appeared, went, attaching
    _end(cursor, loads, generation)
    cursor.execute(f"DROP TABLE {table}")
    if came:
        _create(cursor, table, "corpus_ind", load_id)
        cursor.execute(
            f"INSERT INTO {table} SELECT {load_id}, dependent, referenced, new FROM difference "
            "WHERE new IS NOT NULL ORDER BY dependent, referenced"
        )
        for statement in (*PAIR_INDEXES, GONE_INDEX):
            cursor.execute(statement.format(table=table))
        cursor.execute(f"ANALYZE {table}")
        attaching += _make_ready(cursor, corpus_id, load_id, table, generation, came)
    return appeared, went, attaching


def _put_changes(cursor: Any, load_id: int) -> list[str]:
    """Keep what appeared and what went, in its order; give the statement that attaches it."""
    name = change_table(load_id)
    _create(cursor, name, "corpus_change", load_id)
    cursor.execute(
        f"INSERT INTO {name} SELECT {load_id}, dependent, referenced, coalesce(new, old), old IS NULL FROM difference "
        "WHERE old IS NULL OR new IS NULL ORDER BY dependent, referenced"
    )
    cursor.execute(f"CREATE UNIQUE INDEX {name}_pair ON {name} (dependent, referenced); ANALYZE {name}")
    return [_attaching("corpus_change", name, load_id)]


def _create(cursor: Any, name: str, parent: str, load_id: int) -> None:
    """Make a table that is attached without being read: the constraint says that all its rows are of the load."""
    cursor.execute(
        f"CREATE TABLE {name} (LIKE {parent} INCLUDING COMMENTS, CONSTRAINT {name}_load CHECK (load_id = {load_id}))"
    )


def _attaching(parent: str, name: str, load_id: int) -> str:
    return (
        f"ALTER TABLE {parent} ATTACH PARTITION {name} FOR VALUES IN ({load_id}); "
        f"ALTER TABLE {name} DROP CONSTRAINT {name}_load"  # the bound says it from now on
    )


def _require_touched(cursor: Any, load_id: int, table: str) -> None:
    """Raise DamagedStateError for a load with INDs of which nothing changed: they could be served twice."""
    cursor.execute(
        f"SELECT dependent, referenced FROM {table} n WHERE NOT EXISTS "
        "(SELECT FROM changed WHERE column_id = n.dependent) AND NOT EXISTS "
        "(SELECT FROM changed WHERE column_id = n.referenced) LIMIT 1"
    )
    found = cursor.fetchone()
    if found:
        raise DamagedStateError(
            f"The refresh {load_id} brought the pair of columns {found}, of which none changed, which is a fault of "
            "subsetd. The generation before is still served."
        )


def _end(cursor: Any, loads: Sequence[int], generation: int) -> None:
    """Mark the INDs that went, load by load: each is found by its own index."""
    for load_id in loads:
        cursor.execute(
            f"UPDATE {load_table(load_id)} i SET gone = {generation} FROM difference d WHERE d.load_id = {load_id} "
            "AND i.dependent = d.dependent AND i.referenced = d.referenced AND i.gone IS NULL"
        )


def _make_ready(cursor: Any, corpus_id: int, load_id: int, table: str, generation: int, count: int) -> list[str]:
    """Give a load's table the name that it keeps; give the statement that attaches it."""
    name = load_table(load_id)
    cursor.execute(f"ALTER TABLE {table} RENAME CONSTRAINT {table}_load TO {name}_load")
    cursor.execute(f"ALTER TABLE {table} RENAME TO {name}")
    for index in ("pair", "referenced", "gone"):
        cursor.execute(f"ALTER INDEX {table}_{index} RENAME TO {name}_{index}")
    cursor.execute(f"ALTER TABLE {name} ALTER load_id DROP DEFAULT, RESET (autovacuum_enabled)")
    cursor.execute(
        "INSERT INTO corpus_load (load_id, corpus_id, generation, ind_count) VALUES (%s, %s, %s, %s)",
        (load_id, corpus_id, generation, count),
    )
    return [_attaching("corpus_ind", name, load_id)]


def _count(cursor: Any, table: str) -> int:
    cursor.execute(f"SELECT count(*) FROM {table}")
    return int(cursor.fetchone()[0])

"""Own what landing writes: versions of tables, and the difference between a load and the INDs that are served.

All functions run in the landing's transaction; the lock of the corpus is held.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from service.core.column_sets import Int32s
from service.store.corpus_cleaning import load_table
from service.store.corpus_tables import write_tables
from service.usecases.corpora import TableVersions

LANDING_TIMEOUT = "60s"
"""How long a landing waits for others that change which loads there are."""

LARGE_SHARE = 4
"""A full load that differs in more than one of so many INDs takes the place of the others as it is."""

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

# What is served and is not in the load as it is; what is in the load and is not served as it is.
WENT = """
CREATE TEMPORARY TABLE went ON COMMIT DROP AS
SELECT v.load_id, v.dependent, v.referenced, n.overlap IS NOT NULL AS again
FROM {served} v LEFT JOIN {table} n USING (dependent, referenced) WHERE n.overlap IS DISTINCT FROM v.overlap
"""
CAME = """
CREATE TEMPORARY TABLE came ON COMMIT DROP AS
SELECT n.dependent, n.referenced, n.overlap, v.overlap IS NOT NULL AS again
FROM {table} n LEFT JOIN {served} v USING (dependent, referenced) WHERE v.overlap IS DISTINCT FROM n.overlap
"""
TOUCHED = """
(SELECT i.* FROM {served} i JOIN changed ON i.dependent = column_id UNION ALL
 SELECT i.* FROM {served} i JOIN changed ON i.referenced = column_id
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
) -> tuple[int, int]:
    """Make a load (`table`) the difference to the served INDs, and give how many INDs appeared and went.

    `changed_columns` as `Load.land` has it. A load that differs much is taken as it is, and the others end.
    """
    if served is None:
        count = _count(cursor, table)
        _attach(cursor, corpus_id, load_id, table, 1, count)
        return count, 0
    loads, generation = served_loads(cursor, corpus_id, served), served + 1
    inds = served_inds(loads, served)
    touched = inds
    if changed_columns is not None:
        cursor.execute("CREATE TEMPORARY TABLE changed (column_id integer PRIMARY KEY) ON COMMIT DROP")
        cursor.copy_expert("COPY changed FROM STDIN", io.StringIO("".join(f"{c}\n" for c in changed_columns.tolist())))
        cursor.execute("ANALYZE changed")
        touched = TOUCHED.format(served=inds)
    cursor.execute("SET LOCAL work_mem = '256MB'")
    cursor.execute(WENT.format(served=touched, table=table))
    cursor.execute(CAME.format(served=inds, table=table))
    cursor.execute("ANALYZE went; ANALYZE came")
    counted = []
    for difference in ("came", "went"):
        cursor.execute(f"SELECT count(*), count(*) FILTER (WHERE NOT again) FROM {difference}")
        counted.append(cursor.fetchone())
    (came, appeared), (left, went) = counted
    if changed_columns is None and LARGE_SHARE * (came + left) > inds_before:
        cursor.execute("UPDATE corpus_load SET gone = %s WHERE load_id = ANY (%s)", (generation, loads))
        _attach(cursor, corpus_id, load_id, table, generation, _count(cursor, table))
        return appeared, went
    _end(cursor, loads, generation)
    cursor.execute(f"DROP TABLE {table}")
    if came:
        cursor.execute(f"CREATE TABLE {table} (LIKE corpus_ind INCLUDING COMMENTS)")
        cursor.execute(
            f"INSERT INTO {table} SELECT {load_id}, dependent, referenced, overlap FROM came "
            "ORDER BY dependent, referenced"
        )
        for statement in (*PAIR_INDEXES, GONE_INDEX):
            cursor.execute(statement.format(table=table))
        cursor.execute(f"ANALYZE {table}")
        _attach(cursor, corpus_id, load_id, table, generation, came)
    return appeared, went


def _end(cursor: Any, loads: Sequence[int], generation: int) -> None:
    """Mark the INDs that went, load by load: each is found by its own index."""
    for load_id in loads:
        cursor.execute(
            f"UPDATE {load_table(load_id)} i SET gone = {generation} FROM went w WHERE w.load_id = {load_id} "
            f"AND i.dependent = w.dependent AND i.referenced = w.referenced AND i.gone IS NULL"
        )


def _attach(cursor: Any, corpus_id: int, load_id: int, table: str, generation: int, count: int) -> None:
    """Make a load's table a partition, under the name that it keeps."""
    name = load_table(load_id)
    cursor.execute(f"ALTER TABLE {table} RENAME TO {name}")
    for index in ("pair", "referenced", "gone"):
        cursor.execute(f"ALTER INDEX {table}_{index} RENAME TO {name}_{index}")
    cursor.execute(f"ALTER TABLE {name} ALTER load_id DROP DEFAULT, RESET (autovacuum_enabled)")
    cursor.execute(f"ALTER TABLE corpus_ind ATTACH PARTITION {name} FOR VALUES IN ({load_id})")
    cursor.execute(f"ALTER TABLE {name} DROP CONSTRAINT IF EXISTS {table}_load")  # the bound says it from now on
    cursor.execute(
        "INSERT INTO corpus_load (load_id, corpus_id, generation, ind_count) VALUES (%s, %s, %s, %s)",
        (load_id, corpus_id, generation, count),
    )


def _count(cursor: Any, table: str) -> int:
    cursor.execute(f"SELECT count(*) FROM {table}")
    return int(cursor.fetchone()[0])

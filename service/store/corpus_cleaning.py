"""Own what is left over of corpora: loads of refreshes that died, INDs and tables of past generations, small loads.

Partitions are dropped in transactions of their own that wait for nobody long: what is in use stays for the next time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg2

from service.store.corpus_locks import CLEANER_NAME
from service.store.database import connect
from service.store.join_clearing import clear
from service.store.locks import CORPUS_LOCK, JOIN_INDEX_LOCK, end_sessions

TASK_NAME = "subsetd corpus task"

MOST_LOADS = 16
"""Loads of one corpus; when there are more, the smallest are put together, until half of it are left."""

DROP_TIMEOUT = "1s"
"""How long a drop waits for readers, and others wait behind it."""

LOAD_TABLES = r"""
SELECT relname, (regexp_match(relname, '\d+'))[1]::integer AS load_id, relname ~ 'change' AS has_changes, relispartition
FROM pg_class
WHERE relkind = 'r' AND relnamespace = quote_ident(current_schema())::regnamespace
AND relname ~ '^corpus_(ind|change)_l\d+(_x\d+)?$'
"""

# Loads of refreshes of this corpus that did not land, or of past generations, and changes to past generations.
LEFT_OF_CORPUS = f"""
SELECT relname FROM ({LOAD_TABLES}) t JOIN corpus_refresh r ON r.refresh_id = t.load_id JOIN corpus c USING (corpus_id)
WHERE corpus_id = %s AND CASE WHEN has_changes THEN r.generation IS DISTINCT FROM c.generation
                              ELSE NOT EXISTS (SELECT FROM corpus_load l WHERE l.load_id = t.load_id) END
ORDER BY relispartition, t.load_id, relname
"""
LEFT_OF_REMOVED = f"""
SELECT relname FROM ({LOAD_TABLES}) t
WHERE NOT EXISTS (SELECT FROM corpus_refresh r WHERE r.refresh_id = t.load_id) ORDER BY relispartition, load_id, relname
"""

# There may be as many faults as files, and all come again with each refresh.
FAULTS_OF_THE_PAST = """
DELETE FROM corpus_fault WHERE refresh_id IN (SELECT refresh_id FROM corpus_refresh WHERE corpus_id = %(corpus_id)s
AND refresh_id < (SELECT refresh_id FROM corpus_refresh WHERE corpus_id = %(corpus_id)s AND generation = %(oldest)s))
"""
FAULTS_OF_FAILED = """
DELETE FROM corpus_fault USING corpus_refresh r WHERE r.refresh_id = corpus_fault.refresh_id
AND corpus_id = %(corpus_id)s AND state = 'failed'
AND r.refresh_id < (SELECT max(refresh_id) FROM corpus_refresh WHERE corpus_id = %(corpus_id)s AND state = 'failed')
"""


def load_table(load_id: int) -> str:
    """Name the partition of a load."""
    return f"corpus_ind_l{load_id}"


def change_table(load_id: int) -> str:
    """Name the partition of what a load changed."""
    return f"corpus_change_l{load_id}"


def clear_remains(connection: Any, corpus_id: int) -> list[str]:
    """Remove what refreshes of a corpus left behind that died, and commit; name what was dropped.

    The lock of the corpus must be held. Whoever holds it knows that sessions of other refreshes' tasks are orphans:
    they are ended first, because they could still commit.
    """
    with connection.cursor() as cursor:
        end_sessions(cursor, f"{TASK_NAME} {corpus_id}")
        cursor.execute(
            "DELETE FROM corpus_load_task USING corpus_refresh WHERE refresh_id = load_id AND corpus_id = %s",
            (corpus_id,),
        )
        connection.commit()
    return _drop(connection, LEFT_OF_CORPUS, (corpus_id,))


def tidy(connection: Any, corpus_id: int) -> list[str]:
    """Remove what belongs to past generations alone, put small loads together, and commit; name what was dropped.

    The lock of the corpus must be held. Two generations are kept, and the faults of the last refresh that failed.
    """
    with connection.cursor() as cursor:
        cursor.execute(FAULTS_OF_FAILED, {"corpus_id": corpus_id})
        connection.commit()
        cursor.execute("SELECT generation - 1 FROM corpus WHERE corpus_id = %s", (corpus_id,))
        row = cursor.fetchone()
        if row is None or row[0] is None:  # it was removed meanwhile, or has no generation yet
            return []
        (oldest,) = row
        cursor.execute("DELETE FROM corpus_load WHERE corpus_id = %s AND gone <= %s", (corpus_id, oldest))
        cursor.execute("DELETE FROM corpus_table WHERE corpus_id = %s AND until <= %s", (corpus_id, oldest))
        cursor.execute(FAULTS_OF_THE_PAST, {"corpus_id": corpus_id, "oldest": oldest})
        for load_id in _loads(cursor, corpus_id):
            _delete_gone(cursor, load_id, oldest)
        connection.commit()
        _consolidate(cursor, corpus_id, oldest)
        connection.commit()
        cursor.execute("ANALYZE corpus_table (corpus_id, table_number, since, until, first_column, column_count)")
        connection.commit()
    return _drop(connection, LEFT_OF_CORPUS, (corpus_id,))


def clean(url: str) -> list[str]:
    """Do for each corpus that nobody works on what its next refresh would do, and drop what removed ones left."""
    with connect(url, CLEANER_NAME) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT corpus_id FROM corpus ORDER BY corpus_id")
        found = [corpus_id for (corpus_id,) in cursor.fetchall()]
        dropped = drop_removed(connection)
        for corpus_id in found:
            cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", (CORPUS_LOCK, corpus_id))
            if cursor.fetchone()[0]:
                dropped += clear_remains(connection, corpus_id) + tidy(connection, corpus_id)
                cursor.execute("SELECT pg_advisory_unlock(%s, %s)", (CORPUS_LOCK, corpus_id))
            cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", (JOIN_INDEX_LOCK, corpus_id))
            if cursor.fetchone()[0]:
                clear(cursor, corpus_id)
                cursor.execute("SELECT pg_advisory_unlock(%s, %s)", (JOIN_INDEX_LOCK, corpus_id))
            connection.commit()
    return dropped


def drop_removed(connection: Any) -> list[str]:
    """Drop the loads of corpora that were removed, and commit; name what was dropped."""
    return _drop(connection, LEFT_OF_REMOVED, ())


def _loads(cursor: Any, corpus_id: int) -> list[int]:
    cursor.execute("SELECT load_id FROM corpus_load WHERE corpus_id = %s ORDER BY load_id", (corpus_id,))
    return [load_id for (load_id,) in cursor.fetchall()]


def _delete_gone(cursor: Any, load_id: int, oldest: int) -> None:
    cursor.execute(f"DELETE FROM {load_table(load_id)} WHERE gone <= {oldest}")
    cursor.execute("UPDATE corpus_load SET ind_count = ind_count - %s WHERE load_id = %s", (cursor.rowcount, load_id))


def _consolidate(cursor: Any, corpus_id: int, oldest: int) -> None:
    """Put the smallest loads into the largest of them; the caller drops the others.

    Of loads that are there since the oldest kept generation, rows that are left hold in it: at most one for a pair.
    """
    cursor.execute(
        "SELECT load_id, generation, ind_count FROM corpus_load WHERE corpus_id = %s AND gone IS NULL "
        "AND generation <= %s ORDER BY ind_count, load_id",
        (corpus_id, oldest),
    )
    loads = cursor.fetchall()
    if len(loads) <= MOST_LOADS:
        return
    *small, (target, _, _) = loads[: len(loads) - MOST_LOADS // 2 + 1]
    for load_id, _, _ in small:
        cursor.execute(
            f"INSERT INTO {load_table(target)} SELECT {target}, dependent, referenced, overlap, gone "
            f"FROM {load_table(load_id)}"
        )
    cursor.execute(
        "UPDATE corpus_load SET generation = %s, ind_count = ind_count + %s WHERE load_id = %s",
        (oldest, sum(count for _, _, count in small), target),
    )
    cursor.execute("DELETE FROM corpus_load WHERE load_id = ANY (%s)", ([load_id for load_id, _, _ in small],))


def _drop(connection: Any, query: str, values: Sequence[object]) -> list[str]:
    """Drop the tables that a query names, each in a transaction of its own, up to the first that is in use.

    Whoever reads one partition keeps all of them in use.
    """
    dropped = []
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        names = [name for (name,) in cursor.fetchall()]
        connection.commit()
        for name in names:
            cursor.execute(f"SET LOCAL lock_timeout = '{DROP_TIMEOUT}'")
            try:
                cursor.execute(f"DROP TABLE IF EXISTS {name}")
            except psycopg2.errors.LockNotAvailable:
                connection.rollback()
                break
            connection.commit()
            dropped.append(name)
    return dropped

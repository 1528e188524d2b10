"""Own the advisory locks of the state: their numbers, who holds one, and the end of those whose job has died."""

from __future__ import annotations

from typing import Any

from service.core.errors import StateError

END_SECONDS = 60
"""How long a session may take to end: as long as what it has in hand cannot be interrupted, a write to a slow disk."""

FINDING_NAME = "subsetd finding"
"""Name of the session (application_name) that finds foreign keys: whoever needs its locks waits for its end."""

WRITER_LOCK = 0x73756273657464
"""Session advisory lock (pg_advisory_lock) of the state's one writer: a consumer or a bootstrap's end."""

FEED_LOCK = 0x73756276
"""First half of the advisory lock (two keys: this and `FEED_KEY`) of the writer that follows a feed."""

FEED_KEY = "hashtext({feed}) & 2147483647"
"""Second half of it: an expression for what a feed's name makes."""

BOOTSTRAP_LOCK = 0x73756273657465
"""Session advisory lock of the one bootstrap that may build a generation."""

BOOTSTRAP_RUN_LOCK = 0x73756275
"""First half of the advisory lock (two keys: this and run_id) by which a bootstrap is known to live."""

CORPUS_LOCK = 0x73756273
"""First half of the advisory lock (two keys: this and corpus_id) of the one refresh that works on a corpus."""

JOIN_INDEX_LOCK = 0x73756274
"""First half of the advisory lock (two keys: this and corpus_id) of the one job that builds a corpus' join index."""

COMPACTION_LOCK = 0x73756273657466
"""Session advisory lock of the one compactor that folds sketch_change into sketches."""

RETENTION_LOCK = 0x73756273657468
"""Transaction advisory lock of the one who drops old history."""

JOIN_COMPACTION_LOCK = 0x73756277
"""First half of the advisory lock (two keys: this and table_id) of the one who indexes rows of a table for joins."""

SAMPLE_LOCK = 0x73756273657469
"""Transaction advisory lock of the one who looks at coefficients."""

SHARDS_LOCK = 0x73756273657471
"""Session advisory lock of a batch that shards apply one by one; whoever reads records between waits for it."""

SENDING_LOCK = 0x73756273657472
"""Transaction advisory lock, in the database of a shard's server, of the one who sends shards there."""

AUDIT_LOCK = 0x73756273657461
"""Session advisory lock of the one service that runs an audit by its schedule."""

WATCH_LOCK = 0x73756273657470
"""Session advisory lock of the one process in which watches look and alerts are sent."""

MIGRATION_LOCK = 0x6D696772617465
"""Transaction advisory lock: of two processes that migrate at once, the second waits and finds the work done."""


def is_held(lock: int, second: str | None = None) -> str:
    """Give the condition that a lock is held; `second` is an expression for the second key, of a lock that has two."""
    return f"exists (select from pg_locks where granted and {_is_lock(lock, second)})"


def sessions(lock: int, second: str | None = None, *, waiting: bool = False) -> str:
    """Give the query for the sessions (pid, application_name) that hold a lock, or wait for it."""
    return f"""
    select pid, application_name from pg_locks join pg_stat_activity using (pid)
    where {"not " if waiting else ""}granted and {_is_lock(lock, second)}
    """


def end_sessions(cursor: Any, application_name: str) -> None:
    """End the sessions of tasks that no job waits for: whoever holds their job's lock knows that they are left over.

    Raises StateError where one does not end: it could commit still.
    """
    cursor.execute(
        "select pid, pg_terminate_backend(pid, %s) from pg_stat_activity "
        "where datname = current_database() and application_name = %s and pid <> pg_backend_pid()",
        (END_SECONDS * 1000, application_name),
    )
    doubtful = [pid for pid, has_ended in cursor.fetchall() if not has_ended]  # or had ended before it was asked to
    if not doubtful:
        return
    cursor.execute("select pg_stat_clear_snapshot()")  # else the same sessions are seen until the transaction ends
    cursor.execute("select pid from pg_stat_activity where pid = any (%s)", (doubtful,))
    if left := [str(pid) for (pid,) in cursor.fetchall()]:
        raise StateError(
            f"Sessions of a job that has died, {application_name!r}, could commit still, and did not end within "
            f"{END_SECONDS} s of being asked to: see what the database's server does with the processes "
            f"{', '.join(left)}, and begin again when they have ended."
        )


def _is_lock(lock: int, second: str | None) -> str:
    keys = f"{lock >> 32}, {lock & 0xFFFFFFFF}, 1" if second is None else f"{lock}, {second}, 2"
    return f"""locktype = 'advisory' and (classid, objid, objsubid) = ({keys})
    and database = (select oid from pg_database where datname = current_database())"""

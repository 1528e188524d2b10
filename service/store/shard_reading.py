"""Own how records are read that several shards write: by the clusters that they are in, all shards at one version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, text

from service.core.errors import StateError
from service.store.tables import SHARDS_LOCK

RECORD_CLUSTERS = """(
    select cluster_id, attribute_ids, value_count from cluster where not exists (select from shard)
    union all select cluster_id, attribute_ids, value_count from shard_cluster
)"""
"""The clusters that records are in: to be read as `cluster` is, in a snapshot that sees one version of all shards."""

AHEAD = """
select shard, batch, (select max(version) from state_version) from shard
where batch > (select max(version) from state_version) order by shard limit 1
"""


def lock_records(connection: Connection) -> None:
    """Begin to read records in a new REPEATABLE READ transaction, all of them of one version and generation.

    LOCK takes no snapshot: the first statement behind it does. It keeps a bootstrap from swapping partitions, which no
    snapshot hides. Where a batch is under way in some shards, this waits for its end; raises StateError when it was
    left there half done.
    """
    connection.execute(text("lock table gen_rec in access share mode"))
    if connection.execute(text(AHEAD)).one_or_none() is None:
        return
    connection.rollback()
    connection.execute(text("select pg_advisory_lock_shared(:lock)"), {"lock": SHARDS_LOCK})
    connection.rollback()  # the lock is the session's, the snapshot is to be newer
    try:
        connection.execute(text("lock table gen_rec in access share mode"))
        ahead = connection.execute(text(AHEAD)).one_or_none()
        connection.execute(text("select pg_advisory_unlock_shared(:lock)"), {"lock": SHARDS_LOCK})
    except BaseException:
        connection.invalidate()  # the lock goes with the session, which is not to come back to the pool with it
        raise
    _require_whole(ahead)


@contextmanager
def between_batches(connection: Any) -> Iterator[Any]:
    """Keep shards from beginning a batch until a raw connection's transaction has its snapshot; gives a cursor.

    Raises StateError when a batch was left half done.
    """
    with connection.cursor() as cursor:
        cursor.execute("select pg_advisory_lock_shared(%s)", (SHARDS_LOCK,))
        connection.commit()
        yield cursor
        cursor.execute(AHEAD)
        ahead = cursor.fetchone()
        cursor.execute("select pg_advisory_unlock_shared(%s)", (SHARDS_LOCK,))
        _require_whole(ahead)


def keep_shards(cursor: Any) -> None:
    """Keep shards from beginning a batch until the cursor's READ COMMITTED transaction ends.

    Raises StateError when a batch was left half done.
    """
    cursor.execute("select pg_advisory_xact_lock_shared(%s)", (SHARDS_LOCK,))
    cursor.execute(AHEAD)
    _require_whole(cursor.fetchone())


def _require_whole(ahead: Any) -> None:
    if ahead is not None:
        shard, batch, version = ahead
        raise StateError(
            f"Shard {shard} holds version {batch} and the state {version}: following ended between the two. What is "
            f"asked of values waits until it goes on; all else is answered at version {version}."
        )

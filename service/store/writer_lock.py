"""Own the locks that keep writers apart: one process writes the state, one bootstrap builds a generation.

A consumer looks now and then whether somebody waits for the writer's lock (`is_wanted`), lets it go between two
batches, and takes it again behind whoever waited: the server gives a lock in the order in which it was asked for.
Whoever becomes the writer takes the shards over, if there are any, from the one before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg2
import psycopg2.errors
from sqlalchemy import Connection, text

from service.core.errors import StateError
from service.store.locks import BOOTSTRAP_LOCK, FEED_KEY, FEED_LOCK, WRITER_LOCK, sessions

CONSUMER_NAME = "subsetd consumer"
HAND_OVER_SECONDS = 120.0
"""How long a consumer may take to end its batch and to hand the state over."""


def take_writer_lock(
    connection: Any, telling: Callable[[str], None] | None = None, *, taking_over: bool = True
) -> None:
    """Become the state's one writer until the connection closes; raise StateError that names who is already.

    With `telling` a consumer is asked to hand the state over and waited for, for at most two minutes; `telling`
    hears that it is. While a server of shards is away it keeps the state, for the others to go on: ShardAwayError.
    Whoever puts another state in the place of this one does not take its shards over.
    """
    holder = None
    is_ours = _try_lock(connection, WRITER_LOCK)
    if not is_ours:
        holder = _holder(connection, WRITER_LOCK)
        is_ours = holder is None and _try_lock(connection, WRITER_LOCK)  # who had it has let it go meanwhile
    if is_ours:
        if taking_over:
            _take_shards_over(connection)
        return
    if telling is None or holder is None or holder[1] != CONSUMER_NAME:
        raise _refusal(holder)
    if taking_over and _has_shards(connection):
        from service.store.shard_servers import require_servers

        require_servers(connection)
    telling(f"Waiting for the consumer (database session {holder[0]}) to hand the state over.")
    if not _lock_within(connection, HAND_OVER_SECONDS):
        raise StateError(
            f"The consumer (database session {holder[0]}) did not hand the state over within "
            f"{HAND_OVER_SECONDS:.0f} s: its batch takes longer, or it hangs. Try again, or stop it."
        )
    _take_shards_over(connection)


def take_feed_lock(cursor: Any, feed: str) -> None:
    """Let everybody see that the writer follows a feed, for as long as it is the writer; it waits for nobody."""
    cursor.execute(f"select pg_advisory_lock_shared(%s, {FEED_KEY.format(feed='%s')})", (FEED_LOCK, feed))


def is_led_by_consumer(connection: Any) -> bool:
    """Tell whether a consumer is the state's writer now; raise StateError that names any other who is."""
    holder = _holder(connection, WRITER_LOCK)
    if holder is None:
        return False
    if holder[1] != CONSUMER_NAME:
        raise _refusal(holder)
    return True


def take_back_writer_lock(connection: Any, stop: threading.Event) -> bool:
    """Become the writer again behind those to whom a consumer handed the state over; False when `stop` is set first.

    Raises StateError when another consumer has taken the place.
    """
    while not stop.is_set():
        if _lock_within(connection, 0.5):
            _take_shards_over(connection)
            return True
        holder = _holder(connection, WRITER_LOCK)
        if holder is not None and holder[1] == CONSUMER_NAME:
            raise _refusal(holder)
    return False


def take_bootstrap_lock(connection: Any) -> None:
    """Become the one bootstrap until the connection closes; raise StateError that names who is already."""
    if not _try_lock(connection, BOOTSTRAP_LOCK):
        raise _refusal(_holder(connection, BOOTSTRAP_LOCK))


def keep_writers_away(connection: Connection) -> None:
    """Let none begin to write until the transaction ends; raise StateError that names who does, by the older schema."""
    for lock in (WRITER_LOCK, BOOTSTRAP_LOCK):
        if not connection.scalar(text("select pg_try_advisory_xact_lock(:lock)"), {"lock": lock}):
            holder = connection.execute(text(sessions(lock))).first()
            raise StateError(
                f"The state is in use by its older schema: by {_named(holder)}. Nothing was migrated: stop it, or wait "
                "until it has ended, and start again."
            )


def is_wanted(connection: Any) -> bool:
    """Tell whether somebody waits for the writer's lock; a consumer that waits for its turn hurries nobody."""
    with connection.cursor() as cursor:
        cursor.execute(sessions(WRITER_LOCK, waiting=True))
        found = any(name != CONSUMER_NAME for _, name in cursor)
    connection.commit()
    return found


@contextmanager
def releasing_locks(connection: Any) -> Iterator[None]:
    """Give back at the end what locks were taken meanwhile."""
    try:
        yield
    finally:
        release_locks(connection)


def release_locks(connection: Any) -> None:
    """Give the locks back at once; the server would, but a moment after the connection is closed."""
    with suppress(psycopg2.Error), connection.cursor() as cursor:
        connection.rollback()
        cursor.execute("select pg_advisory_unlock_all()")
        connection.commit()


def end_session(connection: Connection) -> None:
    """End a session with its locks; one that was lost has none left."""
    if not connection.invalidated:
        release_locks(connection.connection.driver_connection)
    connection.invalidate()


def _take_shards_over(connection: Any) -> None:
    if _has_shards(connection):
        from service.store.shards import take_over_shards  # which loads what a batch needs

        take_over_shards(connection)


def _has_shards(connection: Any) -> bool:
    """Tell whether there are shards: a state of one has none, and an older schema not even their table."""
    with connection.cursor() as cursor:
        cursor.execute("select to_regclass('shard') is not null")
        (is_there,) = cursor.fetchone()
        if is_there:
            cursor.execute("select exists (select from shard)")
            (is_there,) = cursor.fetchone()
    connection.commit()
    return bool(is_there)


def _try_lock(connection: Any, lock: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("select pg_try_advisory_lock(%s)", (lock,))
        (is_ours,) = cursor.fetchone()
    connection.commit()
    return bool(is_ours)


def _lock_within(connection: Any, seconds: float) -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"set local statement_timeout = 0; set local lock_timeout = '{seconds * 1000:.0f}ms'")
            cursor.execute("select pg_advisory_lock(%s)", (WRITER_LOCK,))
    except psycopg2.errors.LockNotAvailable:
        connection.rollback()
        return False
    connection.commit()
    return True


def _holder(connection: Any, lock: int) -> tuple[int, str] | None:
    with connection.cursor() as cursor:
        cursor.execute(sessions(lock))
        found: tuple[int, str] | None = cursor.fetchone()
    connection.rollback()
    return found


def _refusal(holder: tuple[int, str] | None) -> StateError:
    return StateError(
        f"The state has another writer: {_named(holder)}. Only one may write: stop it, or wait until it has ended."
    )


def _named(holder: Any) -> str:
    return f"{holder[1] or 'a process without a name'} (database session {holder[0]})" if holder else "another process"

"""Own the records that were set aside: written with the batch that did it, read whole for another try, dropped."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from psycopg2.extras import execute_values
from sqlalchemy import Connection, Engine, text

from service.core.errors import ConflictError, NotFoundError
from service.core.model import BadRecord, RawRecord
from service.store.row_images import FORGET_GONE
from service.usecases.live_state import BatchCommit
from service.usecases.retry_dead_letters import DeadLetter
from service.usecases.withheld import table_named_by

WRITE = """
insert into dead_letter (feed, topic, partition, record_offset, error_class, message, record, version, record_key,
    record_value, headers, timestamp_ms, table_name) values %s
on conflict (feed, topic, partition, record_offset) do update
set error_class = excluded.error_class, message = excluded.message, table_name = excluded.table_name,
    record = excluded.record, record_key = excluded.record_key, record_value = excluded.record_value,
    headers = excluded.headers, timestamp_ms = excluded.timestamp_ms
"""
# A topic or a file that was made anew has another record at the same place.

MOVED = ", version = excluded.version"

# While a feed goes back for a source that has joined, records of others come once more, no newer than they were.
MOVED_WHEN_BEGUN = """, version = case when exists (
    select from tracked_table where source_schema || '.' || source_table = dead_letter.table_name
    and begun_version > dead_letter.version) then excluded.version else dead_letter.version end
"""

DELETE = """
delete from dead_letter using (values %s) as applied (feed, topic, partition, record_offset)
where dead_letter.feed = applied.feed and dead_letter.topic = applied.topic
and dead_letter.partition = applied.partition and dead_letter.record_offset = applied.record_offset
"""

IS_WITHHELD = "(record_value is null and record = '')"
"""Of a record that was set aside its place alone is kept: no record without a value is ever set aside."""

READ = """
select dead_letter_id, feed, topic, partition, record_offset, record_key,
       coalesce(record_value, convert_to(record, 'UTF8')), headers, timestamp_ms, version, message
from dead_letter where {where} order by dead_letter_id limit :most
"""

READ_FEEDS = """
select feed from dead_letter where {where} group by feed order by min(dead_letter_id)
"""

PORTION = 100
"""So many records are in memory that are not in a batch yet; each may be as large as its topic allows."""

WITHHELD = f"select min(dead_letter_id) from dead_letter where dead_letter_id = any (:ids) and {IS_WITHHELD}"


def write(cursor: Any, commit: BatchCommit, *, goes_back: bool = False) -> None:
    """Write the records that a batch sets aside; those that it has tried again and applied are no dead letters now.

    `goes_back` says that records of the feed are read again which were before.
    """
    if commit.retried is not None:
        dead = {bad.record.position for bad in commit.dead_letters}
        applied = [(commit.feed, *record.position) for record in commit.retried if record.position not in dead]
        if applied:
            execute_values(cursor, DELETE, applied)
    if commit.dead_letters:
        # A record that failed once more keeps the version at which it was set aside: it is its place among the others.
        also = "" if commit.retried is not None else MOVED_WHEN_BEGUN if goes_back else MOVED
        execute_values(cursor, WRITE + also, [_row(commit, bad) for bad in commit.dead_letters])


def _row(commit: BatchCommit, bad: BadRecord) -> tuple[Any, ...]:
    record = bad.record
    return (
        commit.feed,
        *record.position,
        type(bad.error).__name__,
        str(bad.error).replace("\0", "\\x00"),
        (record.value or b"").decode("utf-8", "backslashreplace").replace("\0", "\\x00"),
        commit.version,
        record.key,
        record.value,
        json.dumps([[name.replace("\0", "\\x00"), _text(value)] for name, value in record.headers]),
        record.timestamp_ms,
        table_named_by(record),
    )


def read(
    engine: Engine, ids: Sequence[int] | None = None, feed: str | None = None, after: int = 0, most: int | None = None
) -> list[DeadLetter]:
    """Read dead letters whole, in the order in which they were set aside, those alone whose records are kept.

    Raises NotFoundError for an id without a letter, ConflictError for one whose record is not kept. Of a `feed` those
    are given that are there: at `most` so many, behind the letter `after`.
    """
    where = _where(ids) + (" and feed = :feed and dead_letter_id > :after" if feed is not None else "")
    with engine.connect() as connection:
        _require_kept(connection, ids)
        rows = connection.execute(
            text(READ.format(where=where)),
            {"ids": None if ids is None else list(ids), "feed": feed, "after": after, "most": most},
        )
        letters = [
            DeadLetter(
                letter_id,
                of_feed,
                RawRecord(topic, partition, offset, _bytes(key), _bytes(value), timestamp or 0, _headers(headers)),
                version,
                message,
            )
            for letter_id, of_feed, topic, partition, offset, key, value, headers, timestamp, version, message in rows
        ]
    if feed is None:
        _require(ids or (), [letter.dead_letter_id for letter in letters])
    return letters


def feeds_of(engine: Engine, ids: Sequence[int] | None = None) -> list[str]:
    """Name the feeds of dead letters, of these or all whose records are kept; raises as `read` does."""
    told = {"ids": list(ids or ())}
    with engine.connect() as connection:
        _require_kept(connection, ids)
        found = connection.scalars(
            text("select dead_letter_id from dead_letter where dead_letter_id = any (:ids)"), told
        )
        _require(ids or (), list(found))
        return list(connection.scalars(text(READ_FEEDS.format(where=_where(ids))), told))


def _where(ids: Sequence[int] | None) -> str:
    return f"not {IS_WITHHELD}" + (" and dead_letter_id = any (:ids)" if ids is not None else "")


def _require_kept(connection: Connection, ids: Sequence[int] | None) -> None:
    withheld = connection.scalar(text(WITHHELD), {"ids": list(ids or ())})
    if withheld is not None:
        raise ConflictError(
            f"Of dead letter {withheld} the place in the feed alone is kept, as values of its table are not to be: "
            f"it cannot be tried again. Mend what it says at the source, then drop it with `subsetd dead-letters "
            f"drop`, or bootstrap the source again with --replace."
        )


def drop(engine: Engine, ids: Sequence[int]) -> None:
    """Delete dead letters, all or none; raise NotFoundError for an id without one."""
    with engine.begin() as connection:
        dropped = connection.scalars(
            text("delete from dead_letter where dead_letter_id = any (:ids) returning dead_letter_id"),
            {"ids": list(ids)},
        )
        _require(ids, list(dropped))
        connection.execute(text(FORGET_GONE))


def _require(ids: Sequence[int], found: Sequence[int]) -> None:
    missing = sorted(set(ids) - set(found))
    if missing:
        raise NotFoundError(f"There is no dead letter {missing[0]}; `subsetd dead-letters list` shows those there are.")


def _bytes(stored: Any) -> bytes | None:
    return None if stored is None else bytes(stored)


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _headers(stored: list[tuple[str, str | None]] | None) -> list[tuple[str, bytes | None]]:
    return [(name, None if value is None else base64.b64decode(value)) for name, value in stored or ()]

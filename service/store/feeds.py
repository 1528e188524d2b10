"""Own what the state keeps of feeds beside their positions: where they are, what they are known by, pause and fault."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Engine, text

from service.core.errors import NotFoundError, StateError
from service.core.model import FeedDescription
from service.store.feed_start import FeedStart

# A feed that was followed under this address, when the one that is there now never was. The address was the name once.
FEED_BEFORE = """
select old.feed from (select feed, address from feed union select feed, feed from feed_position) old
where address = %(address)s and feed <> %(feed)s
and exists (select from feed_position p where p.feed = old.feed)
and not exists (select from feed_position where feed = %(feed)s)
"""

PUT_FEED = """
insert into feed (feed, address, identity) values (%s, %s, %s)
on conflict (feed) do update set address = excluded.address, identity = excluded.identity
"""

PUT_FAULT = """
update feed set fault = said.fault, fault_at = case when said.fault is not null then now() end
from (select case when paused_at is null then left(:fault, 1000) end as fault from feed where feed = :feed) as said
where feed = :feed and (feed.fault is not null or said.fault is not null)
"""

FORGET_LAG = "delete from consumer_lag"
"""Whoever follows another feed tells its own again within a second."""


def put_feed(cursor: Any, feed: str, description: FeedDescription) -> None:
    """Remember a feed that is going to be followed; raise StateError when its address was another feed's."""
    cursor.execute(FEED_BEFORE, {"feed": feed, "address": description.address})
    before = cursor.fetchone()
    if before:
        raise StateError(
            f"{description.address} is another feed than the one that was followed there: it was {before[0]} and is "
            f"{feed} now. Give the address of the old one, or bootstrap again with --replace and with the positions at "
            f"which the data was read (--feed-position)."
        )
    cursor.execute(PUT_FEED, (feed, description.address, json.dumps(dict(description.identity))))


def is_paused(cursor: Any, feed: str) -> bool:
    """Tell whether a feed is not to be followed for now."""
    cursor.execute("select paused_at is not null from feed where feed = %s", (feed,))
    found = cursor.fetchone()
    return bool(found and found[0])


def is_followed(engine: Engine, feed: str) -> bool:
    """Tell whether the state knows where a feed stands."""
    with engine.connect() as connection:
        found = connection.execute(text("select exists (select from feed_position where feed = :feed)"), {"feed": feed})
        return bool(found.scalar())


def begins_at(engine: Engine, start: FeedStart) -> bool:
    """Tell whether the state follows a feed from a start on, which no other feed of that name has had."""
    statement = text(
        "select exists (select from feed_position where feed = :feed and topic = :topic "
        "and source_position @> cast(:kept as jsonb) - 'first')"
    )
    told = {"feed": start.feed, "topic": start.topic, "kept": json.dumps(dict(start.source_position))}
    with engine.connect() as connection:
        return bool(connection.execute(statement, told).scalar())


def put_fault(engine: Engine, feed: str, fault: str | None) -> None:
    """Keep why a feed is not followed as it should be, or (None) that it is. While all is well nothing is written.

    A feed that is paused stands still as it is to.
    """
    with engine.begin() as connection:
        connection.execute(text(PUT_FAULT), {"feed": feed, "fault": fault})


def is_known(engine: Engine, feed: str) -> bool:
    """Tell whether the state knows of a feed, whether or not it is followed."""
    known = "select exists (select from feed where feed = :feed union all select from feed_position where feed = :feed)"
    with engine.connect() as connection:
        return bool(connection.execute(text(known), {"feed": feed}).scalar())


def tables_of(engine: Engine, source: str) -> dict[tuple[str, str], str]:
    """Give the state's names of a source's tables by (schema, table), as its changes name them."""
    statement = (
        "select source_schema, source_table, schema_name || '.' || table_name from tracked_table "
        "join source using (source_id) where name = :source"
    )
    with engine.connect() as connection:
        return {
            (schema, table): name for schema, table, name in connection.execute(text(statement), {"source": source})
        }


def address_of(engine: Engine, feed: str, source: str) -> str | None:
    """Give where a feed was followed, or else where its source was read; None when neither is known."""
    statement = (
        "select coalesce((select address from feed where feed = :feed), "
        "(select location from source where name = :source and kind = 'postgres'))"
    )
    with engine.connect() as connection:
        found: str | None = connection.execute(text(statement), {"feed": feed, "source": source}).scalar()
    return found


def forget(engine: Engine, feed: str) -> None:
    """Delete what the state knows of a feed; what it has applied stays."""
    with engine.begin() as connection:
        for table in ("feed_catch_up", "feed_position", "feed"):
            connection.execute(text(f"delete from {table} where feed = :feed"), {"feed": feed})
        connection.execute(text(FORGET_LAG))


def set_paused(engine: Engine, feed: str | None, paused: bool) -> list[str]:
    """Pause or resume a feed, by its name or its address, or (None) all; give the names of those that it concerns.

    A consumer that runs looks once a second. Raises NotFoundError when there is no such feed.
    """
    statement = (
        f"update feed set paused_at = {'coalesce(paused_at, now())' if paused else 'null'} "
        "where cast(:feed as text) is null or feed = :feed or address = :feed returning feed"
    )
    with engine.begin() as connection:
        found = sorted(connection.execute(text(statement), {"feed": feed}).scalars())
    if not found:
        named = "was followed yet" if feed is None else f"of the name or address {feed!r} was followed"
        raise NotFoundError(f"No feed {named}; `subsetd status` lists those that were.")
    return found

"""Own where feeds go on after a bootstrap, and how far each source's data is ahead of them (`feed_catch_up`).

A feed may serve several sources, and one that is read anew stands elsewhere than the others. So the feed goes back to
the one that stands first, and of a source that stands further on the records before that are in its data already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from psycopg2.extras import execute_values

from service.core.errors import StateError
from service.core.model import slot_feed

Given = Sequence[tuple[str, str, int, int]]
"""(feed, topic, partition, offset): where the user or the source says that the data was read."""


class Place(NamedTuple):
    """Name one partition of a feed."""

    feed: str
    topic: str
    partition: int


POSITIONS = "select feed, topic, partition, next_offset from feed_position"


def read_positions(connection: Any) -> dict[Place, int]:
    """Read where all feeds stand; what is committed in a source afterwards is behind these positions."""
    with connection.cursor() as cursor:
        found = _positions(cursor)
    connection.commit()
    return found


def put_positions(
    cursor: Any,
    source_id: int,
    source_name: str,
    version: int,
    given: Given,
    stood: Mapping[Place, int] | None,
    *,
    is_followed: bool = False,
) -> None:
    """Store where feeds go on after the bootstrap of a source, in the bootstrap's transaction.

    `given` says at which offsets the data was read. For feeds that it does not name, `stood` are the positions
    before the data was read, where changes say by themselves whether the data holds them (a snapshot's fence); None
    where they do not: then the feed keeps its position. The positions of the only source, which speak of data that
    is no more, are dropped, unless a consumer followed it meanwhile (`is_followed`) and `stood` says where to.
    Raises StateError where the source's own slot, which cannot go back, went on while it was read.
    """
    cursor.execute("select source_id from source where source_id <> %s", (source_id,))
    others = [other for (other,) in cursor]
    if not others and (stood is None or given or not is_followed):
        cursor.execute("delete from feed_position; delete from feed_catch_up")
    present = _positions(cursor)
    cursor.execute("select feed, topic, partition, source_id, until_offset from feed_catch_up")
    until = {(Place(*place), of_source): offset for *place, of_source, offset in cursor}
    named = {Place(feed, topic, partition): offset for feed, topic, partition, offset in given}
    moved: list[tuple[Any, ...]] = [
        (*place, offset, version) for place, offset in named.items() if place not in present
    ]
    ahead: list[tuple[Any, ...]] = []
    for place, at in present.items():
        stands = {other: max(until.get((place, other), at), at) for other in others}
        if place in named:
            stands[source_id] = named[place]
        elif stood is None or given or place.feed.startswith("postgres"):
            if place.feed == slot_feed(source_name) and stood is not None and stood.get(place, at) < at:
                raise StateError(told_passed(source_name))
            stands[source_id] = at  # a slot cannot go back, and serves one database
        else:
            stands[source_id] = stood.get(place, _begun(cursor, place, at))
        first = min(stands.values())
        if first != at:
            moved.append((*place, first, version))
        ahead += [(*place, other, offset) for other, offset in stands.items() if offset > first]
    cursor.execute("delete from feed_catch_up")
    if moved:
        execute_values(
            cursor,
            "insert into feed_position (feed, topic, partition, next_offset, version) values %s "
            "on conflict (feed, topic, partition) do update set next_offset = excluded.next_offset, "
            "version = excluded.version",
            moved,
        )
    if ahead:
        execute_values(
            cursor, "insert into feed_catch_up (feed, topic, partition, source_id, until_offset) values %s", ahead
        )
    for place in named:  # the data may have been read behind a topic that was made anew
        cursor.execute(
            "update feed_position set topic_id = null where feed = %s and topic = %s and partition = %s", place
        )
    # What was seen of the source's order is of before it was read anew.
    cursor.execute("update feed_position set source_position = source_position #- %s", (["seen", source_name],))


def told_passed(source_name: str) -> str:
    """Say why a source may not be read beside those who follow its slot, and what to do."""
    return (
        f"What {source_name} tells while it is read goes to the state that this bootstrap takes the place of, and is "
        f"told once. Nothing was changed: stop its consumer, and read the source anew by `subsetd follow ... --name "
        f"{source_name} --replace`, which goes on behind what it reads."
    )


def read_catch_up(cursor: Any, feed: str) -> dict[tuple[str, int], dict[str, int]]:
    """Read, by (topic, partition) of a feed, before which offset the data of a source holds all records."""
    cursor.execute(
        "select topic, partition, name, until_offset from feed_catch_up join source using (source_id) where feed = %s",
        (feed,),
    )
    found: dict[tuple[str, int], dict[str, int]] = {}
    for topic, partition, source, offset in cursor:
        found.setdefault((topic, partition), {})[source] = offset
    return found


def forget_passed(cursor: Any, feed: str) -> None:
    """Delete what the positions of a feed have passed."""
    cursor.execute(
        "delete from feed_catch_up c using feed_position p where c.feed = %s and p.feed = c.feed and p.topic = c.topic "
        "and p.partition = c.partition and c.until_offset <= p.next_offset",
        (feed,),
    )


def _begun(cursor: Any, place: Place, present: int) -> int:
    """Give where a partition began that was not followed yet when the source was read."""
    cursor.execute(
        "select min(first_offset) from batch_position where feed = %s and topic = %s and partition = %s", tuple(place)
    )
    (first,) = cursor.fetchone()
    return present if first is None else int(first)


def _positions(cursor: Any) -> dict[Place, int]:
    cursor.execute(POSITIONS)
    return {Place(*place): offset for *place, offset in cursor}

"""Own where a feed begins that was made for a bootstrap: its first position, in the bootstrap's transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class FeedStart:
    """Name a feed and its one topic, and what the state keeps of its first position; see ports.Feed."""

    feed: str
    topic: str
    source_position: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> FeedStart:
        """Read what `str` of one gives."""
        return cls(**json.loads(text))

    def __str__(self) -> str:
        return json.dumps({"feed": self.feed, "topic": self.topic, "source_position": dict(self.source_position)})


def put_feed_start(cursor: Any, start: FeedStart, version: int) -> None:
    """Store a feed's first position; numbers that an earlier feed of that name gave are not given again."""
    cursor.execute(
        "select greatest(0, (select max(next_offset) from batch_position where feed = %(feed)s and topic = %(topic)s), "
        "(select max(next_offset) from feed_position where feed = %(feed)s and topic = %(topic)s), "
        "(select max(record_offset) + 1 from dead_letter where feed = %(feed)s and topic = %(topic)s))",
        {"feed": start.feed, "topic": start.topic},
    )
    (first,) = cursor.fetchone()
    cursor.execute("delete from feed_position where feed = %s", (start.feed,))
    cursor.execute("delete from feed_catch_up where feed = %s", (start.feed,))
    cursor.execute(
        "insert into feed_position (feed, topic, partition, next_offset, source_position, version) "
        "values (%s, %s, 0, %s, %s, %s)",
        (start.feed, start.topic, first, json.dumps({**start.source_position, "first": first}), version),
    )

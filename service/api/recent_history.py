"""Own what happened lately, in memory for those who poll: the newest version, and the transitions before it."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from dataclasses import dataclass

from service.api.cursors import CHANGES
from service.api.schemas import ChangesPage, Transition
from service.usecases.answers import NOTHING_KNOWN, Key, News
from service.usecases.ports import NewsReader

MOST_BYTES = 4 << 20
"""Of the transitions that are kept, as they are answered."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Hold a transition as it is answered, and its place in the order of pages."""

    key: Key
    version: int
    content: bytes


class RecentHistory:
    """Hold the newest version, and all transitions of columns later than `begin`.

    `era` is another one whenever the history does not go on: what was answered in an earlier one holds no more.
    `shown_since` is the newest version of this era at which an IND appeared or broke: answers about INDs that are not
    older differ in their version alone.
    """

    def __init__(self) -> None:
        self.head = NOTHING_KNOWN
        self.era = 0
        self.shown_since = 0
        self.begin = 0
        self._transitions: list[Kept] = []
        self._bytes = 0

    def take(self, news: News) -> None:
        """Go on to what was new since `head`."""
        self.head = news.head
        if not news.goes_on:
            self.era += 1
            self.shown_since = self.begin = news.head.version
            self._transitions, self._bytes = [], 0
            return
        for one in news.transitions:
            key = one.version, one.dependent.attribute_id, one.referenced.attribute_id
            content = Transition.of(one).model_dump_json().encode()
            self._transitions.append(Kept(key, one.version, content))
            self._bytes += len(content)
        self.shown_since = max(self.shown_since, news.turned_at)
        if self._bytes > MOST_BYTES:
            self._forget()

    def changes(self, since: int, limit: int) -> bytes | None:
        """Answer what changed after a version as /changes does without a filter; None when that is not all here."""
        if not max(1, self.begin) <= since <= self.head.version:
            return None
        at = bisect_right(self._transitions, since, key=lambda one: one.version)
        found = self._transitions[at : at + limit]
        has_more = len(self._transitions) > at + limit
        page = ChangesPage(
            version=self.head.version,
            transaction_consistent=self.head.transaction_consistent,
            next_cursor=CHANGES.encode(found[-1].key if has_more else None),
            since=since,
            items=[],
        )
        return page.model_dump_json().encode().removesuffix(b"]}") + b",".join(one.content for one in found) + b"]}"

    def _forget(self) -> None:
        """Forget the oldest half, up to the end of a version."""
        self.begin = self._transitions[len(self._transitions) // 2].version
        gone = bisect_right(self._transitions, self.begin, key=lambda one: one.version)
        self._bytes -= sum(len(one.content) for one in self._transitions[:gone])
        del self._transitions[:gone]


class NewestHistory:
    """Read what is new for many at once: all who ask while it is being read share the next reading.

    So nobody is told a version that was the newest only before they asked.
    """

    def __init__(self, reader: NewsReader) -> None:
        self.history = RecentHistory()
        self._reader = reader
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def __call__(self) -> RecentHistory:
        """Give a history whose head was the newest at a moment since this was called; raises what reading raises."""
        if self._next is None:
            self._next = asyncio.create_task(self._read_after(self._running))
        await asyncio.shield(self._next)
        return self.history

    async def _read_after(self, running: asyncio.Task[None] | None) -> None:
        if running is not None and not running.done():
            await asyncio.wait([running])
        self._running, self._next = self._next, None
        self.history.take(await self._reader.read(self.history.head))

    def close(self) -> None:
        """Release the reader's connection."""
        self._reader.close()

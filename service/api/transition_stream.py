"""Own the stream of transitions: the state is read once for all clients, and each client has its own place in it."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, islice, takewhile
from typing import NamedTuple

import orjson
from starlette.concurrency import run_in_threadpool

from service.api.schemas import Transition
from service.core.errors import NotFoundError, StateError
from service.usecases.answers import TransitionFilter
from service.usecases.ports import StateReader, StateSnapshot
from service.usecases.queries import check_since

MOST_CLIENTS = 500
LOOK_SECONDS = 0.25
"""How often the state is looked at while there are clients."""

AWAY_SECONDS = 2.0
"""How long a database that does not answer is left alone, and a client is asked to wait before it comes back."""

PING_SECONDS = 15.0
PAGE = 200
"""Most transitions of an event."""

RING_BYTES = 4 << 20
EVENT_BYTES = 500
"""What an event takes beside what is sent of it, about."""

CHUNK_BYTES = 1 << 16
REPLAYS_AT_ONCE = 2
WHOLE = (1 << 63) - 1


class Place(NamedTuple):
    """Name the last transition that a client has; of a version that it has whole, the sides are WHOLE."""

    version: int
    dependent_id: int = WHOLE
    referenced_id: int = WHOLE

    def __str__(self) -> str:
        return str(self.version) if self.is_whole else ".".join(map(str, self))

    @property
    def is_whole(self) -> bool:
        """Tell whether it is the end of a version."""
        return self.dependent_id == WHOLE

    @classmethod
    def parse(cls, text: str) -> Place:
        """Read what `str` writes."""
        return cls(*map(int, text.split(".")))


@dataclass(frozen=True, slots=True)
class Event:
    """Hold what is sent, with the places of its first and last transition; without one, both are the version's."""

    first: Place
    last: Place
    content: bytes

    @property
    def size(self) -> int:
        """Give about the bytes that it takes."""
        return EVENT_BYTES + len(self.content)


def version_event(version: int) -> Event:
    """Say that all was sent up to a version."""
    place = Place(version)
    return Event(place, place, _content("version", place, {"version": version}))


def read_events(snapshot: StateSnapshot, after: Place) -> tuple[list[Event], bool]:
    """Read the transitions behind a place, at most PAGE, an event for each version; tell whether there are more.

    The last event of all names the state's version. A version with more than PAGE transitions comes in parts, and
    its number alone is the id of the last part. Raises NotFoundError as `check_since` does.
    """
    check_since(snapshot, after.version, is_whole=after.is_whole)
    chosen = TransitionFilter(since=after.version if after.is_whole else after.version - 1)
    found = snapshot.transitions(chosen, None if after.is_whole else after, PAGE)
    head = Place(snapshot.head.version)
    has_more = len(found) == PAGE
    events = []
    for version, group in groupby(found, lambda one: one.version):
        items = list(group)
        places = [Place(version, one.dependent.attribute_id, one.referenced.attribute_id) for one in items]
        last = places[-1] if has_more and items[-1] is found[-1] else Place(version)
        told = {"version": version, "items": [Transition.of(one).model_dump(mode="json") for one in items]}
        events.append(Event(places[0], last, _content("transitions", last, told)))
    if not has_more and (events[-1].last if events else after) < head:
        events.append(version_event(head.version))
    return events, has_more


def _content(kind: str, place: Place, told: object) -> bytes:
    return b"event: %b\nid: %b\ndata: %b\n\n" % (kind.encode(), str(place).encode(), orjson.dumps(told))


class Ring:
    """Hold the newest events, bounded in bytes; who is behind them reads the state."""

    def __init__(self, begin: Place) -> None:
        self.begin = begin
        self.end = begin
        self.has_ended = False
        self.changed = asyncio.Event()
        self._events: list[Event] = []
        self._bytes = 0

    def put(self, events: Sequence[Event]) -> None:
        """Append events and wake who waits for them."""
        if not events:
            return
        for one in events:
            if self._events and self._events[-1].first.dependent_id == WHOLE:
                self._bytes -= self._events.pop().size  # that up to a version all was sent, a later event says as well
            self._events.append(one)
            self._bytes += one.size
        self.end = events[-1].last
        gone = 0
        while self._bytes > RING_BYTES:
            self._bytes -= self._events[gone].size
            self.begin = self._events[gone].last
            gone += 1
        del self._events[:gone]
        self._wake()

    def forget(self) -> None:
        """Keep no event: who is behind reads the state, as it is now."""
        self.begin = self.end
        self._events, self._bytes = [], 0

    def close(self) -> None:
        """Let all who wait go."""
        self.has_ended = True
        self._wake()

    def after(self, place: Place) -> list[Event] | None:
        """Give the next events after a place, together small; None when the ring does not reach back so far."""
        if place < self.begin:
            return None
        at = bisect_right(self._events, place, key=lambda one: one.last)
        sizes = accumulate(len(one.content) for one in islice(self._events, at + 1, None))
        found = self._events[at : at + 1 + sum(1 for _ in takewhile(lambda size: size <= CHUNK_BYTES, sizes))]
        # A place inside an event was got when this version was cut elsewhere.
        return None if found and found[0].first <= place < found[0].last else found

    def _wake(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class TransitionStream:
    """Send transitions to clients as they come; while there are clients, one task reads the state."""

    def __init__(self, reader: StateReader, most_clients: int = MOST_CLIENTS) -> None:
        self._reader = reader
        self._most_clients = most_clients
        self._clients = 0
        self._ring: Ring | None = None
        self._reading: asyncio.Task[None] | None = None
        self._has_ended = False
        self._replays = asyncio.Semaphore(REPLAYS_AT_ONCE)

    @property
    def is_full(self) -> bool:
        """Tell whether there is no room for one more client."""
        return self._has_ended or self._clients >= self._most_clients

    def head(self, after: Place | None) -> Place:
        """Give the state's own place, to be called from a thread; it may raise StateError.

        Raises NotFoundError as `check_since` does of the place of a client.
        """
        with self._reader.snapshot() as snapshot:
            if after is not None:
                check_since(snapshot, after.version, is_whole=after.is_whole)
            return Place(snapshot.head.version)

    def end(self) -> None:
        """Let all clients go, and take no more: the server ends."""
        self._has_ended = True
        if self._reading is not None:
            self._reading.cancel()
        if self._ring is not None:
            self._ring.close()

    async def events(self, given: Place | None, head: Place) -> AsyncIterator[bytes]:
        """Give the events behind a given place for as long as the client stays; who gives none is told the state's."""
        self._clients += 1
        after = given or head
        try:
            # Who is cut before the first transition must know where to go on.
            begin = version_event(head.version).content if given is None else b""
            yield b"retry: %d\n\n" % (AWAY_SECONDS * 1000) + begin
            ring = self._joined(head)
            while not ring.has_ended:
                changed = ring.changed
                kept = ring.after(after)
                events = await self._replayed(after) if kept is None else kept
                if events:
                    yield b"".join(one.content for one in events)
                    after = events[-1].last
                else:
                    try:
                        await asyncio.wait_for(changed.wait(), PING_SECONDS)
                    except TimeoutError:
                        yield b": ping\n\n"
        except (NotFoundError, StateError):  # the former where history ends, or a state is replaced, under a slow one
            return  # the client comes back, and is told what is wrong
        finally:
            self._clients -= 1

    async def _replayed(self, after: Place) -> list[Event]:
        """Read what comes behind a place that the ring does not reach back to."""
        async with self._replays:
            return await run_in_threadpool(self._events_behind, after)

    def _events_behind(self, after: Place) -> list[Event]:
        with self._reader.snapshot() as snapshot:
            return read_events(snapshot, after)[0]

    def _news_behind(self, after: Place) -> tuple[list[Event], bool, bool]:
        """Read events; tell whether there are more, and whether those before are as they were: masks cut them."""
        with self._reader.snapshot() as snapshot:
            return *read_events(snapshot, after), snapshot.goes_on(after.version)

    def _joined(self, head: Place) -> Ring:
        """Give the ring that is being filled, or begin one."""
        if self._ring is None or self._ring.has_ended:
            self._ring = Ring(head)
            if self._has_ended:
                self._ring.close()
            else:
                self._reading = asyncio.create_task(self._read(self._ring))
        return self._ring

    async def _read(self, ring: Ring) -> None:
        """Fill a ring until no client is left."""
        try:
            while self._clients:
                try:
                    events, has_more, goes_on = await run_in_threadpool(self._news_behind, ring.end)
                except NotFoundError:
                    return  # another state stands here, or history ends behind the ring: clients have to look anew
                except StateError:
                    await asyncio.sleep(AWAY_SECONDS)
                    continue
                if not goes_on:
                    ring.forget()
                ring.put(events)
                if not has_more:
                    await asyncio.sleep(LOOK_SECONDS)
        finally:
            ring.close()

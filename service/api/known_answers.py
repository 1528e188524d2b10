"""Own the answers that many clients poll: computed once for each version, whoever asks, and 304 to who has them.

An answer about INDs is computed anew only when one appeared or broke, and what changed lately is answered from memory.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote_to_bytes

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.asking import CACHE_CONTROL
from service.api.recent_history import NewestHistory, RecentHistory
from service.core.errors import StateError
from service.usecases.queries import MAX_LIMIT

CHANGES = "/api/v1/changes"
UINDS = "/api/v1/uinds"
PATHS = frozenset({"/api/v1/attributes", CHANGES, "/api/v1/clusters", UINDS})
"""Routes whose answers the version alone decides: nothing that is put or set beside it, and not who asks."""

MOST_BYTES = 16 << 20
"""Of all answers that are kept, with their questions."""

ENTRY_BYTES = 1000
"""About what an answer takes beside its body and its question."""

LARGEST = 1 << 20
"""An answer of more bytes is not kept."""

ITEMS = b'"items":['
"""Where the items of a page begin: what stands before them are numbers and a cursor."""

Question = tuple[str, bytes]
"""Path and query string, as they were sent."""


class Route(NamedTuple):
    """Name the route that answers, as the metrics count it."""

    path: str


class Known(NamedTuple):
    """Hold an answer, the version that it is of, and the era of the history in which it was asked for.

    `named_further` is what its tag has behind the version, which is the same in all of an era.
    """

    version: int
    era: int
    body: bytes
    named_further: bytes = b""

    def moved_to(self, history: RecentHistory, question: Question) -> Known | None:
        """Give the answer to the same question at a later version, if it shows the same; None else."""
        path, query = question
        if self.version < history.shown_since or path not in (CHANGES, UINDS):
            return None
        if b"as_of" in unquote_to_bytes(query):  # as the route reads it: any letter may be percent-encoded
            return None
        at = self.body.index(ITEMS) + len(ITEMS)
        told = orjson.loads(self.body[:at] + b"]}")
        told |= {"version": history.head.version, "transaction_consistent": history.head.transaction_consistent}
        if path == UINDS:
            told["as_of"] = history.head.version
        body = orjson.dumps(told).removesuffix(b"]}") + self.body[at:]
        return self._replace(version=history.head.version, body=body)


class KnownAnswers:
    """Answer what was asked before from memory, while it holds; pure ASGI.

    Of many who ask the same of a new version one goes on to the route, and the others wait for its answer. Where that
    is none to keep, they go on to the route as well.
    """

    def __init__(self, app: ASGIApp, newest: NewestHistory) -> None:
        self._app = app
        self._newest = newest
        self._known: OrderedDict[Question, Known] = OrderedDict()
        self._bytes = 0
        self._at_work: dict[Question, asyncio.Event] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or scope["path"] not in PATHS:
            await self._app(scope, receive, send)
            return
        question = scope["path"], scope["query_string"]
        try:
            known = await self._find(question)
        except StateError:
            known = None  # the route says what is wrong
        if known is None:
            known = await self._ask(question, scope, receive, send)
        if known is not None:
            scope["route"] = Route(scope["path"])
            await _give(known, scope, send)

    async def _find(self, question: Question) -> Known | None:
        """Give an answer of a version that was the newest since it was asked for, if there is one, or will be soon."""
        history = await self._newest()
        asked_at = history.head.version
        waits = 0
        while True:
            known = self._known.get(question)
            if known is not None and known.era != history.era:
                known = None
            if known is not None and known.version < asked_at:
                known = known.moved_to(history, question)
                if known is not None:
                    self._keep(question, known)
            if known is not None:
                self._known.move_to_end(question)
                return known
            known = _from_history(history, question)
            if known is not None or question not in self._at_work or waits == 2:
                return known
            # The first who is waited for may have begun before the version that this one has to be told; where nothing
            # is kept of the second, who waited on would be answered one behind the other.
            await self._at_work[question].wait()
            waits += 1

    async def _ask(self, question: Question, scope: Scope, receive: Receive, send: Send) -> Known | None:
        """Let the route answer; give its answer, or None when it is none to keep and has been sent."""
        mine = asyncio.Event()
        self._at_work.setdefault(question, mine)
        # All of the answer is wanted here, also when this client has it.
        asked = {**scope, "headers": [one for one in scope["headers"] if one[0] != b"if-none-match"]}
        tag, era = b"", self._newest.history.era
        body = bytearray()
        is_kept = True

        async def keep(message: Message) -> None:
            nonlocal is_kept, tag
            if message["type"] == "http.response.start":
                is_kept = message["status"] == 200
                if is_kept:
                    tag = dict(message["headers"])[b"etag"].strip(b'"')
            elif is_kept:
                body.extend(message.get("body", b""))
                return
            if not is_kept:
                await send(message)

        try:
            await self._app(asked, receive, keep)
        finally:
            scope["route"] = asked.get("route")
            mine.set()
            if self._at_work.get(question) is mine:
                del self._at_work[question]
        if not is_kept:
            return None
        version, dash, further = tag.partition(b"-")
        known = Known(int(version), era, bytes(body), dash + further)
        self._keep(question, known)
        return known

    def _keep(self, question: Question, known: Known) -> None:
        old = self._known.pop(question, None)
        self._bytes -= 0 if old is None else _size(question, old)
        if len(known.body) <= LARGEST:
            self._known[question] = known
            self._bytes += _size(question, known)
        while self._bytes > MOST_BYTES:
            self._bytes -= _size(*self._known.popitem(last=False))


def _size(question: Question, known: Known) -> int:
    """Give about the bytes that an entry takes: a question may be longer than its answer."""
    return ENTRY_BYTES + len(question[1]) + len(known.body)


def _from_history(history: RecentHistory, question: Question) -> Known | None:
    """Answer what changed since a young version, where nothing else is asked."""
    path, query = question
    if path != CHANGES:
        return None
    parts = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    asked = {"limit": "100", **dict(parts)}
    if len(parts) != len(dict(parts)) or set(asked) != {"since", "limit"}:
        return None
    if not all(one.isascii() and one.isdigit() and len(one) < 16 for one in asked.values()):
        return None
    limit = int(asked["limit"])
    body = history.changes(int(asked["since"]), limit) if 1 <= limit <= MAX_LIMIT else None
    return None if body is None else Known(history.head.version, history.era, body)


async def _give(known: Known, scope: Scope, send: Send) -> None:
    told = dict(scope["headers"]).get(b"if-none-match", b"")
    etag = b'"%d%b"' % (known.version, known.named_further)
    headers = [(b"etag", etag), (b"cache-control", CACHE_CONTROL.encode())]
    if {etag, b"W/" + etag, b"*"} & {one.strip() for one in told.split(b",")}:
        await send({"type": "http.response.start", "status": 304, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
    else:
        headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(known.body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": known.body})

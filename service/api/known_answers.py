"""Own the answers that many clients poll: computed once for each version, whoever asks, and 304 to who has them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.core.errors import StateError

PATHS = frozenset({"/api/v1/attributes", "/api/v1/changes", "/api/v1/clusters", "/api/v1/uinds"})
"""Routes whose answers the version alone decides: nothing that is put or set beside it, and not who asks."""

MOST_BYTES = 16 << 20
"""Of all answers that are kept, with their questions."""

ENTRY_BYTES = 1000
"""About what an answer takes beside its body and its question."""

LARGEST = 1 << 20
"""An answer of more bytes is not kept."""

Question = tuple[str, bytes]
"""Path and query string, as they were sent."""


class Known(NamedTuple):
    """Hold an answer: the version that it is of, its headers and body, and the route that gave it."""

    version: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    route: Any


class NewestVersion:
    """Read the newest version for many at once: all who ask while it is being read share the next reading.

    So nobody is told a version that was the newest only before they asked.
    """

    def __init__(self, read: Callable[[], int]) -> None:
        self._read = read
        self._thread = ThreadPoolExecutor(1, "subsetd-version")
        self._running: asyncio.Future[int] | None = None
        self._next: asyncio.Task[int] | None = None

    async def __call__(self) -> int:
        """Give a version that was the newest at a moment since this was called; raises what reading raises."""
        if self._next is None:
            self._next = asyncio.create_task(self._read_after(self._running))
        return await asyncio.shield(self._next)

    async def _read_after(self, running: asyncio.Future[int] | None) -> int:
        if running is not None:
            await asyncio.wait([running])
        self._running = asyncio.get_running_loop().run_in_executor(self._thread, self._read)
        self._next = None
        return await self._running


class KnownAnswers:
    """Answer what was asked before from memory, while the version is the same; pure ASGI.

    Of many who ask the same of a new version one goes on to the route, and the others wait for its answer.
    """

    def __init__(self, app: ASGIApp, read_version: Callable[[], int]) -> None:
        self._app = app
        self._version = NewestVersion(read_version)
        self._known: OrderedDict[Question, Known] = OrderedDict()
        self._bytes = 0
        self._at_work: dict[Question, asyncio.Event] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or scope["path"] not in PATHS:
            await self._app(scope, receive, send)
            return
        question = scope["path"], scope["query_string"]
        try:
            known = await self._newest(question)
            if known is None and question in self._at_work:
                await self._at_work[question].wait()
                known = await self._newest(question)
        except StateError:
            known = None  # the route says what is wrong
        if known is None:
            known = await self._ask(question, scope, receive, send)
        if known is not None:
            scope["route"] = known.route
            await _give(known, scope, send)

    async def _newest(self, question: Question) -> Known | None:
        """Give what is known, if it is of the newest version."""
        version = await self._version()
        known = self._known.get(question)
        if known is None or known.version != version:
            return None
        self._known.move_to_end(question)
        return known

    async def _ask(self, question: Question, scope: Scope, receive: Receive, send: Send) -> Known | None:
        """Let the route answer; give its answer, or None when it is none to keep and has been sent."""
        mine = self._at_work.setdefault(question, asyncio.Event())
        # All of the answer is wanted here, also when this client has it.
        asked = {**scope, "headers": [one for one in scope["headers"] if one[0] != b"if-none-match"]}
        headers: list[tuple[bytes, bytes]] = []
        body = bytearray()
        is_kept = True

        async def keep(message: Message) -> None:
            nonlocal is_kept
            if message["type"] == "http.response.start":
                is_kept = message["status"] == 200
                headers.extend(message["headers"])
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
        known = Known(int(dict(headers)[b"etag"].strip(b'"')), headers, bytes(body), asked.get("route"))
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


async def _give(known: Known, scope: Scope, send: Send) -> None:
    told = dict(scope["headers"]).get(b"if-none-match", b"")
    etag = b'"%d"' % known.version
    if {etag, b"W/" + etag, b"*"} & {one.strip() for one in told.split(b",")}:
        headers = [one for one in known.headers if one[0] in (b"etag", b"cache-control")]
        await send({"type": "http.response.start", "status": 304, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
    else:
        await send({"type": "http.response.start", "status": 200, "headers": known.headers})
        await send({"type": "http.response.body", "body": known.body})

"""Own how much may be asked: how often by each client, bytes of addresses, headers and bodies, time of bodies."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.problems import respond

MOST_TARGET_BYTES = 60 * 1024
"""Of path and query: one name of 4,096 characters fits in, whatever they are. httptools takes no 64 KiB apart."""

MOST_HEADER_BYTES = 32 * 1024
MOST_BODY_BYTES = 1024 * 1024
"""Of JSON; routes that take files have bounds of their own, which they hold to while they read."""


MOST_CLIENTS = 10_000


class TokenBuckets:
    """Let each client ask `rate` times a second in the long run, and `burst` times at once after a pause."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst = rate, burst
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Take a token of a client's; give the seconds until there is one, 0 when it was there."""
        now = self._clock()
        left, at = self._left.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        waiting = 0.0 if left >= 1 else (1 - left) / self._rate
        self._left[client] = (left if waiting else left - 1, now)
        if len(self._left) > MOST_CLIENTS:
            self._left.popitem(last=False)  # who has not asked for longest has most likely all of them again
        return waiting

    def give_back(self, client: str) -> None:
        """Give a token back."""
        if client in self._left:
            left, at = self._left[client]
            self._left[client] = (min(self._burst, left + 1), at)


class RequestBounds:
    """Refuse what is too large, packed, or too slow to come; pure ASGI."""

    def __init__(self, app: ASGIApp, body_seconds: float) -> None:
        self._app = app
        self._body_seconds = body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = _refused(scope)
        if refused is not None:
            # The rest of what was sent is not read: the connection ends.
            answer = respond(
                Request(scope), refused.status_code, "about:blank", refused.detail, {"Connection": "close"}
            )
            await answer(scope, receive, send)
            return
        await self._app(scope, self._bounded(scope, receive), send)

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        most = None if _takes_files(scope["path"]) else MOST_BODY_BYTES
        read, is_whole = 0, False
        ends_at: float | None = None

        async def bounded() -> Message:
            nonlocal read, is_whole, ends_at
            if is_whole:  # only the client's leaving is waited for
                return await receive()
            if ends_at is None:
                ends_at = time.monotonic() + self._body_seconds
            try:
                message = await asyncio.wait_for(receive(), ends_at - time.monotonic())
            except TimeoutError:
                raise HTTPException(
                    408, f"The body did not come within {self._body_seconds:g} s.", {"Connection": "close"}
                ) from None
            read += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if most is not None and read > most:
                raise _too_large()
            return message

        return bounded


def _refused(scope: Scope) -> HTTPException | None:
    target = len(scope.get("raw_path") or scope["path"]) + len(scope["query_string"])
    if target > MOST_TARGET_BYTES:
        return HTTPException(414, f"An address of more than {MOST_TARGET_BYTES:,} bytes is not taken.")
    if sum(len(name) + len(value) for name, value in scope["headers"]) > MOST_HEADER_BYTES:
        return HTTPException(431, f"Headers of more than {MOST_HEADER_BYTES:,} bytes are not taken.")
    headers = dict(scope["headers"])
    if headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
        return HTTPException(415, "Bodies are sent as they are, without Content-Encoding: nothing is unpacked.")
    length = headers.get(b"content-length", b"0")
    if not _takes_files(scope["path"]) and length.isdigit() and int(length) > MOST_BODY_BYTES:
        return _too_large()
    return None


def _takes_files(path: str) -> bool:
    return path == "/api/v1/joinable" or path.startswith("/api/v1/sketches/")


def _too_large() -> HTTPException:
    return HTTPException(413, f"A body of more than {MOST_BODY_BYTES:,} bytes is not taken.", {"Connection": "close"})


def seconds_of(waiting: float) -> str:
    """Write how long to wait as whole seconds, for Retry-After."""
    return str(max(1, math.ceil(waiting)))

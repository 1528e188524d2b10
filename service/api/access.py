"""Own who may ask: with a key set, every route but health, readiness and the dashboard's own files wants it."""

from __future__ import annotations

import hashlib
import hmac

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.problems import respond

OPEN_PATHS = frozenset({"/healthz", "/readyz"})

PAGE = "/"
PAGE_FILES = "/dashboard/"
"""Where the dashboard's files are: they hold no data, and the page asks for the key that its data want."""


class BearerKey:
    """Let a request pass that has `Authorization: Bearer KEY`, answer 401 otherwise; pure ASGI."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._digest = hashlib.sha256(key.encode()).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_open(scope["path"]) and not self._is_known(scope):
            response = respond(
                Request(scope),
                401,
                "key-required",
                "This service wants its key: send the header `Authorization: Bearer KEY`.",
                {"WWW-Authenticate": "Bearer"},
            )
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)

    @staticmethod
    def _is_open(path: str) -> bool:
        return path in OPEN_PATHS or path == PAGE or path.startswith(PAGE_FILES)

    def _is_known(self, scope: Scope) -> bool:
        given = dict(scope["headers"]).get(b"authorization", b"")
        scheme, _, key = given.partition(b" ")
        digest = hashlib.sha256(key.strip()).digest()
        return scheme.lower() == b"bearer" and hmac.compare_digest(digest, self._digest)

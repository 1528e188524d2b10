"""Own how paths are split: before they are decoded, so that a name may contain a slash (RFC 3986, section 2.4)."""

from __future__ import annotations

from urllib.parse import quote

from starlette.types import ASGIApp, Receive, Scope, Send


class EncodedPath:
    """Route on the path as it was sent, with its percent-encoding; handlers decode each segment once.

    ASGI servers decode the path before it is split, which makes `%2F` inside a name look like a border.
    The scope that comes in is left as it is, for the server's log.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            raw = scope.get("raw_path") or quote(scope["path"]).encode()
            scope = {**scope, "path": raw.decode("latin-1")}
        await self._app(scope, receive, send)

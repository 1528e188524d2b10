"""Own the headers by which browsers keep every answer to itself; a route that needs others sets its own."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    # No answer of the API is a page: nothing in one runs, loads or is framed.
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    # What has an ETag says by itself how it is kept.
    "Cache-Control": "no-store",
}

_RAW = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


class SecurityHeaders:
    """Add the headers that an answer lacks; pure ASGI."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = list(message.get("headers", ()))
                known = {name.lower() for name, _ in own}
                message["headers"] = own + [one for one in _RAW if one[0] not in known]
            await send(message)

        await self._app(scope, receive, with_headers)

"""Own the door: who asks, whether he may, how often, and whether a page of somebody else asks in his name."""

from __future__ import annotations

import hmac
import re
from functools import lru_cache, partial
from ipaddress import ip_address
from urllib.parse import urlsplit

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.access_scopes import READING, SESSION, STREAM, is_written, needed_scope
from service.api.limits import TokenBuckets, seconds_of
from service.api.problems import respond
from service.core.errors import StateError
from service.usecases import access
from service.usecases.access import ANYONE, AccessControl, AccessError, Caller, Credential
from service.usecases.write_log import LONGEST_TARGET, Write, WriteLog

log = structlog.get_logger("subsetd.access")

COOKIE = "subsetd_session"
"""Of a service at the usual port; see `cookie_of`."""
CSRF_HEADER = "X-CSRF-Token"

BURST_SECONDS = 2
"""A client may ask at once as often as in so many seconds."""

STRANGERS_RATE, STRANGERS_BURST = 20.0, 200.0
"""Requests of an address that show no key, or a wrong one: nobody finds a key by trying."""


class Refusal(Exception):
    """The request is answered here."""

    def __init__(self, status: int, kind: str, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.respond = partial(respond, status=status, kind=kind, detail=detail, headers=headers)


class Access:
    """Let a request pass whose caller has the scope that its route needs, and log what it changed; pure ASGI.

    The caller is in the request's state, as `caller`. `rate` is of requests a second of each key.
    """

    def __init__(self, app: ASGIApp, control: AccessControl, write_log: WriteLog, rate: float) -> None:
        self._app = app
        self._control = control
        self._write_log = write_log
        self._clients = TokenBuckets(rate, max(1.0, rate * BURST_SECONDS))
        self._strangers = TokenBuckets(STRANGERS_RATE, STRANGERS_BURST)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        try:
            caller = await self._admit(request)
        except Refusal as refusal:
            await refusal.respond(request)(scope, receive, send)
            return
        if scope["path"] == STREAM:
            send = self._while_known(request, send)
        if caller is None or not is_written(request.method, scope["path"]):
            await self._app(scope, receive, send)
            return
        await self._logged(request, caller, receive, send)

    async def _admit(self, request: Request) -> Caller | None:
        """Give who asks, None where everybody may; raises Refusal for who may not."""
        path, address = request.scope["path"], _address(request)
        needed = needed_scope(request.method, path)
        if needed is None and path != SESSION:
            return None
        _refuse_other_pages(request)
        if needed is None:
            self._take(self._strangers, address)  # of who logs in
            return None
        caller = await self._caller(request, address)
        request.state.caller = caller
        self._take(self._clients, caller.name)
        try:
            if caller.csrf_token is not None and request.method not in READING:
                _require_token(request, caller.csrf_token)
            if not caller.scope.holds(needed):
                raise Refusal(
                    403,
                    "scope-required",
                    f"This wants a key with the scope {needed.value}; that of {caller.name!r} is {caller.scope.value}.",
                )
        except Refusal as refusal:
            if is_written(request.method, path):
                await self._log(request, caller, refusal.respond(request))
            raise
        return caller

    async def _caller(self, request: Request, address: str) -> Caller:
        try:
            if not await self._wants_keys():
                _refuse_other_names(request)
                return Caller(ANYONE, access.Scope.ADMIN)
            shown = _shown(request)
            # Others of his address may have used up its strangers' tokens: whoever was known is looked at all the same.
            is_stranger = shown is None or not self._control.is_acquainted(shown)
            caller = None if shown is None else self._control.recall(shown)
            if caller is not None:
                return caller
            if is_stranger:
                self._take(self._strangers, address)
            if shown is None:
                raise Refusal(
                    401,
                    "key-required",
                    "This service wants a key: send the header `Authorization: Bearer KEY`.",
                    {"WWW-Authenticate": "Bearer"},
                )
            caller = await run_in_threadpool(self._control.verify, shown)
            if is_stranger:
                self._strangers.give_back(address)
            return caller
        except AccessError as error:
            raise unauthorized(error) from None
        except StateError as error:
            raise Refusal(503, "unavailable", str(error), {"Retry-After": "2"}) from None

    async def _wants_keys(self) -> bool:
        wanted = self._control.wants_keys()
        return await run_in_threadpool(self._control.look_for_keys) if wanted is None else wanted

    @staticmethod
    def _take(buckets: TokenBuckets, client: str) -> None:
        waiting = buckets.take(client)
        if waiting:
            raise Refusal(
                429,
                "too-many-requests",
                f"Too many requests of {client}; the next one is answered in {waiting:.1f} s.",
                {"Retry-After": seconds_of(waiting)},
            )

    def _while_known(self, request: Request, send: Send) -> Send:
        """Give what sends as long as the caller may ask, and then ends the answer, of which the app is told."""
        shown = _shown(request)
        has_ended = False

        async def sending(message: Message) -> None:
            nonlocal has_ended
            if has_ended:
                return
            if message["type"] == "http.response.body" and not await self._is_known(shown):
                has_ended = True
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        return sending

    async def _is_known(self, shown: Credential | None) -> bool:
        try:
            if not await self._wants_keys():
                return True
            if shown is None:
                return False
            return bool(self._control.recall(shown) or await run_in_threadpool(self._control.verify, shown))
        except AccessError:
            return False
        except StateError:
            return True  # while the database is away there is nothing new to hear

    async def _logged(self, request: Request, caller: Caller, receive: Receive, send: Send) -> None:
        """Answer, and log the write before its answer is sent: who has that finds it logged."""
        is_logged = False

        async def logging(message: Message) -> None:
            nonlocal is_logged
            if message["type"] == "http.response.start" and not is_logged:
                is_logged = True
                headers = dict(message.get("headers", ()))
                target = headers.get(b"location", b"").decode("latin-1")
                await self._log(request, caller, message["status"], target)
            await send(message)

        try:
            await self._app(request.scope, receive, logging)
        finally:
            if not is_logged:  # the server answers 500 when the app raises
                await self._log(request, caller, 500)

    async def _log(self, request: Request, caller: Caller, answer: Response | int, target: str = "") -> None:
        status = answer if isinstance(answer, int) else answer.status_code
        await run_in_threadpool(keep_write, self._write_log, request, caller, status, target)


def keep_write(write_log: WriteLog, request: Request, caller: Caller, status: int, target: str = "") -> None:
    """Log a write; where the log's database is away, it goes to the service's own log."""
    path = request.scope["path"]
    write = Write(
        caller.name,
        caller.session,
        _address(request),
        request.method,
        getattr(request.scope.get("route"), "path", "") or path[:LONGEST_TARGET],
        (target or path)[:LONGEST_TARGET],
        status,
    )
    try:
        write_log.add(write)
    except StateError as error:
        told = {"who": write.who, "method": write.method, "target": write.target, "status": status}
        log.error("a write could not be logged", error=str(error), **told)


def unauthorized(error: AccessError) -> Refusal:
    """Refuse who shows a key or a session that is not good."""
    match error:
        case access.ExpiredKeyError():
            kind = "expired-key"
        case access.RevokedKeyError():
            kind = "revoked-key"
        case _:
            kind = "unknown-key"
    return Refusal(401, kind, str(error), {"WWW-Authenticate": 'Bearer error="invalid_token"'})


def _shown(request: Request) -> Credential | None:
    """Give what the request shows: a key in its header, which goes before a session in its cookie."""
    given = dict(request.scope["headers"]).get(b"authorization")
    if given is not None:
        scheme, _, key = given.partition(b" ")
        return Credential(key.strip()) if scheme.lower() == b"bearer" and key.strip() else None
    session_id = request.cookies.get(cookie_of(request))
    return Credential(session_id.encode(), is_session=True) if session_id else None


def cookie_of(request: Request) -> str:
    """Name the cookie of a session: of a host's services each has its own, as cookies are of a host, whatever port."""
    port = re.search(r":(\d+)$", request.headers.get("host", ""))
    return COOKIE if port is None else f"{COOKIE}_{port[1]}"


def _address(request: Request) -> str:
    return "an unknown address" if request.client is None else request.client.host


def _require_token(request: Request, token: str) -> None:
    if not hmac.compare_digest(request.headers.get(CSRF_HEADER, "").encode(), token.encode()):
        raise Refusal(
            403,
            "csrf-token-required",
            f"What changes something wants the session's token in the header {CSRF_HEADER}: GET {SESSION} gives it.",
        )


def _refuse_other_pages(request: Request) -> None:
    """Refuse what the page of another host lets a browser send: browsers say from where it comes."""
    if request.method in READING:
        return
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        is_foreign = site not in ("same-origin", "none")
    else:
        is_foreign = origin is not None and origin.partition("://")[2] != request.headers.get("host")
    if is_foreign:
        raise Refusal(403, "foreign-page", "A page of another host cannot change anything here.")


def _refuse_other_names(request: Request) -> None:
    """Refuse names that somebody else makes lead to this machine: without a key his page could read everything."""
    host = request.headers.get("host")
    if host is not None and not _is_own(host):
        raise Refusal(
            421,
            "foreign-name",
            "Without a key the service is asked by its address, or as localhost: make a key to ask it by another name.",
        )


@lru_cache(maxsize=100)
def _is_own(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or name.endswith(".localhost") or bool(ip_address(name))
    except ValueError:
        return False

"""Own the routes about who may ask: keys, the sessions of browsers, and the log of writes."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from urllib.parse import quote, unquote

from fastapi import APIRouter, Path, Query, Request, Response

from service.api import access_schemas as shapes
from service.api import cursors, schemas
from service.api.access import cookie_of, keep_write, unauthorized
from service.api.access_scopes import KEYS, SESSION, WRITES
from service.api.problems import documented
from service.usecases.access import AccessControl, AccessError, Caller
from service.usecases.queries import page_of
from service.usecases.write_log import WriteLog

router = APIRouter(tags=["access"])

KEY_CURSORS = cursors.Cursors("api_keys", "i")
WRITE_CURSORS = cursors.Cursors("write_log", "i")

KeyNamePath = Annotated[
    str, Path(description="name of a key, percent-encoded", openapi_examples={"a key": {"value": "grafana"}})
]


@router.get(KEYS, responses=documented(422, 500, 503))
def list_api_keys(request: Request, question: Annotated[schemas.PageQuestion, Query()]) -> shapes.ApiKeysPage:
    """List the keys of this service, by id; what is revoked stays in the list."""
    after = KEY_CURSORS.decode(question.cursor)
    found = _control(request).keys(0 if after is None else int(after[0]), question.limit + 1)
    page = page_of(found, question.limit, lambda one: (one.key_id,))
    return shapes.ApiKeysPage.listing(KEY_CURSORS, page, shapes.ApiKey.of)


@router.post(KEYS, status_code=201, responses=documented(409, 422, 500, 503))
def create_api_key(request: Request, response: Response, body: shapes.NewApiKey) -> shapes.MadeApiKey:
    """Make a key; the answer alone has its text. From the first key on, one is wanted of everybody."""
    lifetime = None if body.days is None else timedelta(days=body.days)
    made, key = _control(request).create(body.name, body.scope, lifetime)
    response.headers["Location"] = f"{KEYS}/{quote(made.name, safe='')}"
    return shapes.MadeApiKey(**shapes.ApiKey.of(made).model_dump(), key=key)


@router.delete(f"{KEYS}/{{name}}", status_code=204, responses=documented(404, 422, 500, 503))
def revoke_api_key(request: Request, name: KeyNamePath) -> None:
    """Take a key back, with the sessions that began with it. Other processes notice within seconds."""
    _control(request).revoke(unquote(name))


@router.get(SESSION, responses=documented(422, 500, 503))
def show_session(request: Request, _: Annotated[schemas.Question, Query()]) -> shapes.Session:
    """Tell who asks, and what for he may."""
    caller: Caller = request.state.caller
    return shapes.Session.of(caller)


@router.post(SESSION, response_model=shapes.Session, responses=documented(401, 422, 500, 503))
def log_in(request: Request, response: Response, body: shapes.NewSession) -> Response | shapes.Session:
    """Log a browser in by a key: from then on it shows a cookie, which no script can read, in the place of the key."""
    try:
        login = _control(request).log_in(body.key)
    except AccessError as error:
        return unauthorized(error).respond(request)
    response.set_cookie(
        cookie_of(request),
        login.session_id,
        max_age=int(login.lifetime.total_seconds()),
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    keep_write(_write_log(request), request, login.caller, 200)
    return shapes.Session.of(login.caller)


@router.delete(SESSION, status_code=204, responses=documented(422, 500, 503))
def log_out(request: Request, response: Response) -> None:
    """End the session of the cookie."""
    session_id, caller = request.cookies.get(cookie_of(request)), request.state.caller
    if session_id is not None and caller.session is not None:
        _control(request).log_out(session_id)
        keep_write(_write_log(request), request, caller, 204)
    is_secure = request.url.scheme == "https"
    response.delete_cookie(cookie_of(request), path="/", secure=is_secure, httponly=True, samesite="strict")


@router.get(WRITES, responses=documented(422, 500, 503))
def list_writes(request: Request, question: Annotated[schemas.PageQuestion, Query()]) -> shapes.WritesPage:
    """List the requests that were to change something, newest first: who asked, and what became of it."""
    before = WRITE_CURSORS.decode(question.cursor)
    found = _write_log(request).writes(None if before is None else int(before[0]), question.limit + 1)
    page = page_of(found, question.limit, lambda one: (one.write_id,))
    return shapes.WritesPage.listing(WRITE_CURSORS, page, shapes.Write.of)


def _control(request: Request) -> AccessControl:
    control: AccessControl = request.app.state.access
    return control


def _write_log(request: Request) -> WriteLog:
    write_log: WriteLog = request.app.state.write_log
    return write_log

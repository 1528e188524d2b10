"""Own the problems: every error of the API as application/problem+json (RFC 9457)."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from service.api.cursors import CursorError
from service.api.security_headers import HEADERS
from service.core.errors import (
    ConflictError,
    FeedError,
    NotFoundError,
    SketchError,
    SourceError,
    StateError,
    SubsetdError,
)
from service.core.foreign_keys.sides import ForeignKeyError
from service.core.watch_rules import WatchError
from service.usecases.access import KeyNameError
from service.usecases.coefficient_table import TooManyColumnsError
from service.usecases.foreign_key_answers import FindingGoneError, UnknownForeignKeyError
from service.usecases.ind_graphs import UnknownTableError
from service.usecases.queries import (
    AmbiguousNameError,
    HistoryGoneError,
    NoValuesError,
    TrivialPairError,
    UnknownVersionError,
)
from service.usecases.sketched_columns import NoSketchError

MEDIA_TYPE = "application/problem+json"

EXPLANATIONS = {
    "unknown-attribute": "No attribute has this full name or id in the version that was read, or no sketch this name.",
    "ambiguous-attribute": "Several attributes have this full name, as names may contain dots; name one as id:17.",
    "unknown-table": "No table has this name, or no component of the graph this number, in what was read.",
    "not-in-corpora": "There is no corpus, refresh, generation, table or column of this name; the detail says which.",
    "refused-corpus": "A corpus cannot be like this, or a column not be named so; the detail names the option.",
    "unknown-foreign-key": "These columns are no candidate, or no candidates were found by this method yet.",
    "finding-gone": "The candidates were found anew since the page before this one; begin at the first page again.",
    "unknown-tracking": "This service was not asked for a tracking of this id, or has forgotten it.",
    "unknown-search": "This service was not asked for a search of this id, or has forgotten it.",
    "refused-query": "Joinable tables cannot be searched with such rows, or such key columns; the detail says why.",
    "unknown-dead-letter": "No record of this id is set aside: it was applied, or dropped, or never was.",
    "unknown-contract": "There is no contract of this id.",
    "refused-foreign-key": "These columns cannot be the two sides of a foreign key; the detail says why.",
    "conflict": "It does not go with what is there: a name that is taken, a refresh at work, another's decision.",
    "unknown-watch": "There is no watch of this id, silence or load in force, or nothing that the rule names.",
    "refused-watch": "A watch, a silence or a load cannot be like this; the detail says why.",
    "unknown-version": "as_of or since is newer than the state, or older than its first version.",
    "history-gone": "What came after `since` is not all kept any more; read what holds now, and follow from there.",
    "values-not-stored": "Of this column only a sketch is kept: ask for estimates, at /api/v1/coefficients.",
    "no-sketch": "This column has no sketch that could be used; the detail says why, and what to do.",
    "too-many-columns": "The question is about more columns, or pairs, than one answer computes; choose fewer.",
    "refused-sketch": "The bytes are no sketch that can be compared with those here, or its name cannot be one.",
    "same-attribute": "Both sides of a pair are one attribute; that it contains itself is not reported.",
    "invalid-cursor": "The cursor was not given by this route.",
    "invalid-request": "A parameter is unknown, missing, or outside its bounds; `errors` names each.",
    "too-many-streams": "The stream has as many clients as the service bears; poll /api/v1/changes, or come later.",
    "unavailable": "The state's database is away or too slow, and the service comes back by itself when it does; or "
    "what a dead letter's feed needs is away or set wrongly, as the detail says.",
    "not-ready": "The service is not ready; `checks` names what is missing.",
    "key-required": "The service wants a key; send it in the header Authorization: Bearer KEY.",
    "unknown-key": "The service does not know this key, or this session has ended.",
    "expired-key": "The time of this key, or of this session, is over.",
    "revoked-key": "This key was taken back.",
    "scope-required": "The key is good, but not for this: the detail names the scope that it needs.",
    "csrf-token-required": "A browser that is logged in sends the session's token with what changes something.",
    "foreign-page": "A page of another host let the browser send this.",
    "foreign-name": "Without a key the service is asked by its address alone, or as localhost.",
    "too-many-requests": "Who has this key, or this address, asks too often; Retry-After says when to go on.",
    "unknown-api-key": "There is no key of this name.",
    "refused-key-name": "A key cannot have this name; the detail says why.",
    "about:blank": "The HTTP status says all.",
    "internal-error": "A defect of the service; its log has the cause.",
}
"""The types of problems, as fragments of /docs, where they are explained."""


class InvalidParameter(BaseModel):
    """Name one parameter that was refused."""

    location: list[str | int] = Field(examples=[["query", "limit"]])
    message: str


class Candidate(BaseModel):
    """Name one attribute that an ambiguous name may mean."""

    attribute_id: int
    name_parts: list[str] = Field(description="schema, table, column")


class Check(BaseModel):
    """Tell of one condition of readiness whether it holds."""

    name: str
    ok: bool
    detail: str


class Problem(BaseModel):
    """Describe an error (RFC 9457)."""

    type: str = Field(description="a reference to the explanation of this type", examples=["/docs#unknown-attribute"])
    title: str
    status: int
    detail: str
    instance: str | None = Field(default=None, description="the path that was asked")
    errors: list[InvalidParameter] | None = None
    candidates: list[Candidate] | None = None
    checks: list[Check] | None = None


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe these statuses as problems, for a route's `responses`."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {one: {"description": HTTPStatus(one).phrase, "content": content} for one in statuses}


def accepted(description: str) -> dict[int | str, dict[str, Any]]:
    """Describe the answer to what is begun and goes on, for a route's `responses`."""
    location = {"Location": {"description": "where it is", "schema": {"type": "string"}}}
    return {202: {"description": description, "headers": location}}


def respond(
    request: Request, status: int, kind: str, detail: str, headers: dict[str, str] | None = None, **more: Any
) -> Response:
    """Answer with a problem of this type; `more` are its extension members."""
    problem = Problem(
        type=kind if kind == "about:blank" else f"/docs#{kind}",
        title=HTTPStatus(status).phrase if kind == "about:blank" else kind.replace("-", " ").capitalize(),
        status=status,
        detail=detail,
        instance=request.url.path,
        **more,
    )
    return JSONResponse(problem.model_dump(exclude_none=True), status, headers, MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Make every error of this app a problem."""
    app.add_exception_handler(SubsetdError, _of_the_service)
    app.add_exception_handler(RequestValidationError, _of_validation)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(Exception, _of_a_defect)


async def _of_the_service(request: Request, error: Exception) -> Response:
    detail = str(error)
    match error:
        case UnknownVersionError():
            return respond(request, 404, "unknown-version", detail)
        case HistoryGoneError():
            return respond(request, 410, "history-gone", detail)
        case UnknownTableError():
            return respond(request, 404, "unknown-table", detail)
        case NotFoundError() if request.url.path.startswith("/api/v1/corpora/"):
            return respond(request, 404, "not-in-corpora", detail)
        case NotFoundError() if request.url.path.startswith("/api/v1/dead_letters/"):
            return respond(request, 404, "unknown-dead-letter", detail)
        case NotFoundError() if request.url.path == "/api/v1/joinable":
            return respond(request, 404, "not-in-corpora", detail)
        case NotFoundError() if request.url.path.startswith("/api/v1/joinable/"):
            return respond(request, 404, "unknown-search", detail)
        case NotFoundError() if request.url.path.startswith("/api/v1/keys/trackings/"):
            return respond(request, 404, "unknown-tracking", detail)
        case FindingGoneError():
            return respond(request, 410, "finding-gone", detail)
        case UnknownForeignKeyError():
            return respond(request, 404, "unknown-foreign-key", detail)
        case NotFoundError() if request.url.path.startswith("/api/v1/api-keys/"):
            return respond(request, 404, "unknown-api-key", detail)
        case KeyNameError():
            return respond(request, 422, "refused-key-name", detail)
        case NotFoundError() if request.url.path.startswith("/api/v1/contracts/"):
            return respond(request, 404, "unknown-contract", detail)
        case NotFoundError() if request.url.path.startswith("/api/v1/watches"):
            return respond(request, 404, "unknown-watch", detail)
        case WatchError():
            return respond(request, 422, "refused-watch", detail)
        case NotFoundError():
            return respond(request, 404, "unknown-attribute", detail)
        case AmbiguousNameError():
            candidates = [
                Candidate(attribute_id=one.attribute_id, name_parts=list(one.name)) for one in error.candidates
            ]
            return respond(request, 409, "ambiguous-attribute", detail, candidates=candidates)
        case NoValuesError():
            return respond(request, 409, "values-not-stored", detail)
        case NoSketchError():
            return respond(request, 409, "no-sketch", detail)
        case TooManyColumnsError():
            return respond(request, 422, "too-many-columns", detail)
        case SketchError():
            return respond(request, 422, "refused-sketch", detail)
        case TrivialPairError():
            return respond(request, 422, "same-attribute", detail)
        case CursorError():
            return respond(request, 422, "invalid-cursor", detail)
        case ForeignKeyError():
            return respond(request, 422, "refused-foreign-key", detail)
        case SourceError() if request.url.path == "/api/v1/joinable":
            return respond(request, 422, "refused-query", detail)
        case SourceError():
            return respond(request, 422, "refused-corpus", detail)
        case ConflictError():
            return respond(request, 409, "conflict", detail)
        case StateError() | FeedError():
            return respond(request, 503, "unavailable", detail, {"Retry-After": "2"})
    return respond(request, 500, "internal-error", detail)


async def _of_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    # What was sent is not repeated: it may be long, or hold what JSON cannot.
    errors = [InvalidParameter(location=list(one["loc"]), message=one["msg"]) for one in error.errors()]
    detail = "; ".join(f"{one.location[-1]}: {one.message}" for one in errors)
    return respond(request, 422, "invalid-request", detail, errors=errors)


async def _of_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 400:  # FastAPI's, of bytes that it does not get as far as JSON with
        return respond(request, 422, "invalid-request", "The body is no JSON in UTF-8, or is nested too deeply.")
    detail = str(error.detail)
    if error.status_code == 404:
        detail = "There is nothing at this path; /docs lists what there is. Write / inside an attribute's name as %2F."
    if error.status_code == 405:
        detail = f"{request.method} is not possible here; see the header Allow."
    headers = None if error.headers is None else dict(error.headers)
    return respond(request, error.status_code, "about:blank", detail, headers)


async def _of_a_defect(request: Request, _error: Exception) -> Response:
    detail = "The service failed on this request; its log has the cause."
    # The server ends the connection after a defect; a client that kept it would meet a reset.
    # It also answers outside of what adds the headers.
    return respond(request, 500, "internal-error", detail, {**HEADERS, "Connection": "close"})

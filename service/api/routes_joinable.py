"""Own the routes about joinable tables: a CSV or a tracked table is asked with, at once or as a job."""

from __future__ import annotations

import io
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from starlette.exceptions import HTTPException

from service.api import corpus_schemas, schemas
from service.api import joinable_schemas as shapes
from service.api.problems import accepted, documented
from service.core.errors import SourceError
from service.usecases.joinable import JoinQuery, read_query
from service.usecases.joinable_searches import JoinSearches

router = APIRouter(prefix="/api/v1/joinable", tags=["joinable tables"])

CSV = "text/csv"
EXAMPLE = "city,guests\nberlin,3\nrome,2\n"

SearchPath = Annotated[
    int, Path(ge=0, lt=1 << 31, description="id of a search", openapi_examples={"a search": {"value": 1}})
]


def _searches(request: Request) -> JoinSearches:
    searches: JoinSearches = request.app.state.joinable
    return searches


Searches = Annotated[JoinSearches, Depends(_searches)]


async def _body(request: Request, searches: Searches) -> bytes:
    """Read the CSV, which may be missing. Nothing is unpacked, so that what is sent bounds what is held."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > searches.most_bytes:
            raise HTTPException(413, f"A CSV of more than {searches.most_bytes:,} bytes is not taken.")
    # No page of a browser sends this type to another host without asking that host first.
    if body and request.headers.get("content-type", "").partition(";")[0].strip().lower() != CSV:
        raise HTTPException(415, f"Rows are sent as Content-Type: {CSV}, in UTF-8 and with a header.")
    if body and request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise HTTPException(415, "Rows are sent as they are, without Content-Encoding: nothing is unpacked.")
    return bytes(body)


@router.post(
    "",
    responses={200: {"description": "It was short, and is answered"}}
    | accepted("It is long, and waits")
    | documented(404, 409, 413, 415, 422, 500, 503),
    openapi_extra={
        "requestBody": {"content": {CSV: {"schema": {"type": "string"}, "example": EXAMPLE}}},
    },
)
def search_joinable(
    response: Response,
    searches: Searches,
    question: Annotated[shapes.JoinableQuestion, Query()],
    body: Annotated[bytes, Depends(_body)],
) -> shapes.JoinableSearch:
    """Search a corpus, or the tracked tables, for those whose rows have most of the distinct keys of a CSV.

    The CSV is the body, with a header; without a body `schema` and `table` name a tracked table whose rows are asked
    with. A long search is a job: ask at Location how far it is, and what it found. A row with an empty key cell joins
    nothing.
    """
    found = searches.ask(_query(searches, question, body), question.to_core())
    if found.job is not None:
        response.status_code = 202
        response.headers["Location"] = f"{router.prefix}/{found.job.job_id}"
    return shapes.JoinableSearch.of(found)


@router.get("/{search_id}", responses=documented(404, 422, 500, 503))
def show_joinable(
    searches: Searches, search_id: SearchPath, _: Annotated[schemas.Question, Query()]
) -> shapes.JoinableSearch:
    """Show how far a search is, or what it found; this service forgets it when it ends, or after some hundred."""
    return shapes.JoinableSearch.of(searches.find(search_id))


@router.post("/{search_id}/cancel", status_code=202, responses=documented(404, 409, 422, 500, 503))
def cancel_joinable(searches: Searches, search_id: SearchPath, _: corpus_schemas.Nothing) -> shapes.JoinableSearch:
    """Let a search end that waits or runs."""
    return shapes.JoinableSearch.of(searches.cancel(search_id))


def _query(searches: JoinSearches, question: shapes.JoinableQuestion, body: bytes) -> JoinQuery:
    named = question.schema_ is not None or question.table is not None
    if bool(body) == named:
        raise SourceError("Send rows as a CSV, or name a tracked table by `schema` and `table`: one of the two.")
    if body:
        with io.TextIOWrapper(io.BytesIO(body), "utf-8-sig", newline="") as lines:
            return read_query(lines, question.key, searches.most_rows)
    if question.schema_ is None or question.table is None:
        raise SourceError("A tracked table is named by both `schema` and `table`.")
    return searches.tracked_rows(
        question.schema_, question.table, question.key, searches.most_rows, searches.most_bytes
    )

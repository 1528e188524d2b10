"""Own the route that sends transitions as they come: server-sent events."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from service.api import schemas
from service.api.problems import documented, respond
from service.api.transition_stream import AWAY_SECONDS, Place, TransitionStream

router = APIRouter(prefix="/api/v1", tags=["inclusion dependencies"])

PATH = "/api/v1/stream"
MEDIA_TYPE = "text/event-stream"
# Whoever stands between keeps nothing back, changes nothing and compresses nothing.
HEADERS = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}
ANSWERED: dict[int | str, dict[str, Any]] = {
    200: {"description": "Events, without end", "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}
}

LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        pattern=r"^[0-9]{1,15}(\.[0-9]{1,9}\.[0-9]{1,9})?$",
        description="the id of the last event that was received: those behind it are sent first",
    ),
]


@router.get("/stream", response_class=Response, responses=ANSWERED | documented(404, 410, 422, 500, 503))
async def stream_transitions(
    request: Request, question: Annotated[schemas.StreamQuestion, Query()], last_event_id: LastEventId = None
) -> Response:
    """Send each inclusion dependency that appears or breaks from now on, once and in order, as server-sent events.

    An event `transitions` holds those of a version, as in /changes, and its id is the version; of more than 200 there
    are several events, and the id of all but the last goes on with a point. An event `version` says that all was sent
    up to a version. A comment comes every 15 seconds. With Last-Event-ID, or `since`, what came later is sent first.
    """
    stream: TransitionStream = request.app.state.stream
    since = None if question.since is None else Place(question.since)
    given = since if last_event_id is None else Place.parse(last_event_id)
    head = await run_in_threadpool(stream.head, given)
    if stream.is_full:
        detail = "As many clients as this service bears are following the stream; ask /api/v1/changes."
        return respond(request, 503, "too-many-streams", detail, {"Retry-After": f"{AWAY_SECONDS:.0f}"})
    return StreamingResponse(stream.events(given, head), media_type=MEDIA_TYPE, headers=HEADERS)

"""Own the routes about keys: list them, track one, drop one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from service.api import cursors, examples, key_schemas, schemas
from service.api.asking import Asked
from service.api.problems import accepted, documented
from service.usecases.foreign_key_names import side_named
from service.usecases.key_values import KeyFilter
from service.usecases.keys import keys
from service.usecases.tracked_keys import TrackedKeys, Tracking, require_trackable

router = APIRouter(prefix="/api/v1/keys", tags=["foreign keys and contracts"])

KEYS = cursors.Cursors("keys", "ssii")

AttributePath = Annotated[
    int,
    Path(
        ge=0,
        lt=1 << 31,
        description="of the column, or of the tuple of columns",
        openapi_examples={"an attribute": {"value": 1}},
    ),
]
TrackingPath = Annotated[
    int, Path(ge=0, lt=1 << 31, description="id of a tracking", openapi_examples={"a tracking": {"value": 1}})
]


def _tracked_keys(request: Request) -> TrackedKeys:
    tracked: TrackedKeys = request.app.state.tracked_keys
    return tracked


Tracked = Annotated[TrackedKeys, Depends(_tracked_keys)]


@router.get("", responses=examples.answered("A page of keys") | documented(409, 422, 500, 503))
def list_keys(asked: Asked, question: Annotated[key_schemas.KeysQuestion, Query()]) -> key_schemas.KeysPage:
    """List keys: columns that are unique or nearly, as their values are now, and all that are tracked."""
    after = KEYS.decode(question.cursor)
    chosen = KeyFilter(question.schema_, question.table, question.nearly, question.tracked_only)
    with asked.snapshot(with_values=question.values > 0) as snapshot:
        asked.stop_if_known()
        page = keys(snapshot, chosen, after, question.limit, question.values)
    return key_schemas.KeysPage.page(snapshot.head, KEYS, page, key_schemas.KeyAnswer.of)


@router.post("", status_code=202, responses=accepted("It waits, or runs") | documented(404, 409, 422, 500, 503))
def track_key(
    response: Response, asked: Asked, tracked: Tracked, body: key_schemas.NewTracking
) -> key_schemas.Tracking:
    """Track columns as a key: a job reads their tuples, and from then on the consumer follows them.

    A tracking that waits or runs already is given instead. Ask at Location what becomes of it.
    """
    key = body.to_core()
    with asked.snapshot() as snapshot:
        require_trackable(snapshot, key)
    return _told(response, tracked.track(key, body.source))


@router.get("/trackings/{tracking_id}", responses=documented(404, 422, 500, 503))
def show_tracking(
    tracked: Tracked, tracking_id: TrackingPath, _: Annotated[schemas.Question, Query()]
) -> key_schemas.Tracking:
    """Show what became of a key that this service was asked to track since it started."""
    return key_schemas.Tracking.of(tracked.tracking(tracking_id))


@router.delete("/{attribute_id}", status_code=204, responses=documented(404, 409, 422, 500, 503))
def drop_key(asked: Asked, tracked: Tracked, attribute_id: AttributePath) -> None:
    """Track a key no longer; the tuples of several columns go out of the state. A consumer hands it over for that."""
    with asked.snapshot() as snapshot:
        key = side_named(snapshot, f"id:{attribute_id}")
    tracked.drop(key)


def _told(response: Response, one: Tracking) -> key_schemas.Tracking:
    response.headers["Location"] = f"{router.prefix}/trackings/{one.tracking_id}"
    return key_schemas.Tracking.of(one)

"""Own the routes about watches: add, list, replace, remove, test; their alerts, silences and announced loads."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel

from service.api import cursors, examples, schemas
from service.api import watch_schemas as shapes
from service.api.asking import IfNoneMatch, Polled, who_says
from service.api.problems import accepted, documented
from service.usecases.queries import page_of
from service.usecases.watch_register import WatchRegister

router = APIRouter(prefix="/api/v1/watches", tags=["watches"])

WATCHES = cursors.Cursors("watches", "i")
ALERTS = cursors.Cursors("watch_alerts", "i")

Shape = TypeVar("Shape", bound=BaseModel)

_answered = partial(examples.answered, etag=("digest of the answer, quoted", '"9f86d081884c7d65"'))


def _register(request: Request) -> WatchRegister:
    register: WatchRegister = request.app.state.watches
    return register


async def _polled(response: Response, if_none_match: IfNoneMatch = None) -> Polled:
    return Polled(response, if_none_match)


Register = Annotated[WatchRegister, Depends(_register)]
Asked = Annotated[Polled, Depends(_polled)]
NoQuestion = Annotated[schemas.Question, Query()]


WatchPath = Annotated[
    int, Path(ge=0, lt=1 << 31, description="id of a watch", openapi_examples={"a watch": {"value": 1}})
]
SilencePath = Annotated[
    int, Path(ge=0, lt=1 << 31, description="id of a silence", openapi_examples={"a silence": {"value": 1}})
]
LoadPath = Annotated[int, Path(ge=0, lt=1 << 31, description="id of a load", openapi_examples={"a load": {"value": 1}})]


@router.get("", responses=_answered("A page of watches") | documented(422, 500, 503))
def list_watches(
    asked: Asked, register: Register, question: Annotated[schemas.PageQuestion, Query()]
) -> shapes.WatchesPage:
    """List the watches by id."""
    after = WATCHES.decode(question.cursor)
    found = register.watches.all(0 if after is None else int(after[0]), question.limit + 1)
    page = page_of(found, question.limit, lambda one: (one.watch_id,))
    return _named(asked, shapes.WatchesPage.listing(WATCHES, page, shapes.Watch.of))


@router.post("", status_code=201, responses=documented(404, 409, 422, 500, 503))
def add_watch(request: Request, response: Response, register: Register, body: shapes.NewWatch) -> shapes.Watch:
    """Watch something from now on, and say where alerts go; its addresses and its secret are not shown again."""
    added = register.add(body.to_core(who_says(request, body.created_by)))
    response.headers["Location"] = f"{router.prefix}/{added.watch_id}"
    return shapes.Watch.of(added)


@router.get("/alerts", responses=_answered("A page of alerts") | documented(422, 500, 503))
def list_alerts(
    asked: Asked, register: Register, question: Annotated[shapes.AlertsQuestion, Query()]
) -> shapes.AlertsPage:
    """List what was told, to be told, or kept silent, newest first: the last 10,000 alerts."""
    before = ALERTS.decode(question.cursor)
    found = register.watches.alerts(
        question.watch_id, question.state, None if before is None else int(before[0]), question.limit + 1
    )
    page = page_of(found, question.limit, lambda one: (one.alert_id,))
    return _named(asked, shapes.AlertsPage.listing(ALERTS, page, shapes.Alert.model_validate))


@router.get("/silences", responses=_answered("The silences") | documented(422, 500, 503))
def list_silences(asked: Asked, register: Register, _: NoQuestion) -> shapes.SilencesAnswer:
    """List silences, those in force and the last that were."""
    found = register.watches.silences()
    return _named(asked, shapes.SilencesAnswer(items=[shapes.Silence.model_validate(one) for one in found]))


@router.post("/silences", status_code=201, responses=documented(404, 422, 500, 503))
def add_silence(request: Request, register: Register, body: shapes.NewSilence) -> shapes.Silence:
    """Let a watch, or all that a pattern matches, be silent until a time; what still stands then is told then."""
    by = who_says(request, body.created_by)
    made = register.silence(body.watch_id, body.pattern, body.until, body.reason, by)
    return shapes.Silence.model_validate(made)


@router.delete("/silences/{silence_id}", status_code=204, responses=documented(404, 422, 500, 503))
def end_silence(register: Register, silence_id: SilencePath) -> None:
    """End a silence now."""
    register.watches.end_silence(silence_id)


@router.get("/loads", responses=_answered("The announced loads") | documented(422, 500, 503))
def list_loads(asked: Asked, register: Register, _: NoQuestion) -> shapes.LoadsAnswer:
    """List announced loads, those that are waited for and the last that were."""
    found = register.watches.loads()
    return _named(asked, shapes.LoadsAnswer(items=[shapes.Load.model_validate(one) for one in found]))


@router.post("/loads", status_code=201, responses=documented(404, 422, 500, 503))
def announce_load(request: Request, register: Register, body: shapes.NewLoad) -> shapes.Load:
    """Let watches wait for the load of a table, or of a schema: what is half loaded is not told of."""
    by = who_says(request, body.created_by)
    return shapes.Load.model_validate(register.announce(body.schema_, body.table, body.until, by))


@router.delete("/loads/{load_id}", status_code=204, responses=documented(404, 422, 500, 503))
def end_load(register: Register, load_id: LoadPath) -> None:
    """Say that a load has ended."""
    register.watches.end_load(load_id)


@router.get("/{watch_id}", responses=_answered("A watch") | documented(404, 422, 500, 503))
def show_watch(asked: Asked, register: Register, watch_id: WatchPath, _: NoQuestion) -> shapes.Watch:
    """Show a watch."""
    return _named(asked, shapes.Watch.of(register.watches.get(watch_id)))


@router.put("/{watch_id}", responses=documented(404, 409, 422, 500, 503))
def replace_watch(request: Request, register: Register, watch_id: WatchPath, body: shapes.OtherWatch) -> shapes.Watch:
    """Put another watch in its place; without a secret it keeps its own, if its address is the same."""
    return shapes.Watch.of(register.replace(watch_id, body.to_core(who_says(request, body.created_by))))


@router.delete("/{watch_id}", status_code=204, responses=documented(404, 422, 500, 503))
def remove_watch(register: Register, watch_id: WatchPath) -> None:
    """Forget a watch; its alerts stay in the history, and what was on its way has failed."""
    register.watches.remove(watch_id)


@router.post(
    "/{watch_id}/test", status_code=202, responses=accepted("It is on its way") | documented(404, 422, 500, 503)
)
def test_watch(response: Response, register: Register, watch_id: WatchPath) -> shapes.Alert:
    """Send an alert that says it is a test, once; what became of it is in the history."""
    alert = shapes.Alert.model_validate(register.test(watch_id))
    response.headers["Location"] = f"{router.prefix}/alerts?watch_id={watch_id}"
    return alert


def _named(asked: Polled, answer: Shape) -> Shape:
    """Name an answer after all that it says: watches are beside all versions."""
    asked.name_answer(hashlib.sha256(answer.model_dump_json().encode()).hexdigest()[:16])
    asked.stop_if_known()
    return answer

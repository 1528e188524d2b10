"""Own the routes about the service itself: health, readiness, metrics, and the page of routes."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import BaseModel

from service.api import docs_page
from service.api.problems import Check, documented, respond
from service.core.errors import StateError
from service.usecases.ports import StateReader

router = APIRouter(tags=["service"])


class Health(BaseModel):
    """Tell that the process answers."""

    status: str


class Readiness(BaseModel):
    """Tell that all conditions hold, each with what was found."""

    ready: bool
    checks: list[Check]


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """Show the routes and problems."""
    page = docs_page.render(request.app.openapi(), request.app.openapi_url)
    return HTMLResponse(page, headers={"Content-Security-Policy": docs_page.SECURITY_POLICY})


@router.get(
    "/healthz",
    responses=documented(500),
)
async def healthz() -> Health:
    """Tell that the process answers; it asks nothing of the database."""
    return Health(status="ok")


@router.get(
    "/readyz",
    response_model=Readiness,
    responses=documented(500, 503),
)
def readyz(request: Request) -> Response | Readiness:
    """Tell whether answers can be had: database there, bootstrapped, and a consumer's lag under its bound."""
    checks = readiness_checks(request)
    failing = [one.name for one in checks if not one.ok]
    if failing:
        detail = f"Not ready: {', '.join(failing)}."
        return respond(request, 503, "not-ready", detail, {"Retry-After": "2"}, checks=checks)
    return Readiness(ready=True, checks=checks)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}, **documented(500)},
)
def metrics(request: Request) -> Response:
    """Show the metrics in Prometheus' text format."""
    return Response(generate_latest(request.app.state.registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)


def readiness_checks(request: Request) -> list[Check]:
    """Look at each condition of readiness."""
    return [*_state_checks(request.app.state.reader), *(check() for check in request.app.state.ready_checks)]


def _state_checks(reader: StateReader) -> list[Check]:
    try:
        with reader.snapshot() as snapshot:
            version = snapshot.head.version
    except StateError as error:
        return [Check(name="database", ok=False, detail=str(error))]
    detail = f"state version {version}" if version else "nothing was bootstrapped; run `subsetd bootstrap`"
    return [
        Check(name="database", ok=True, detail="answers"),
        Check(name="bootstrapped", ok=version > 0, detail=detail),
    ]

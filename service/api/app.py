"""Own the app factory: the routes, errors and middleware of the HTTP service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from prometheus_client import CollectorRegistry

from service.api import asking, examples, problems, routes_service, routes_state, routes_uinds
from service.api.metrics import HttpMetrics, StateMetrics
from service.api.problems import Check
from service.api.segments import EncodedPath
from service.usecases.ports import StateReader

DESCRIPTION = (
    "Which columns are contained in which, since when, by how much the others miss, and which values break them. "
    "Every answer is computed from one version of the state, which it names; its ETag is that version."
)


def create_app(
    reader: StateReader,
    *,
    registry: CollectorRegistry,
    service_version: str,
    ready_checks: Sequence[Callable[[], Check]] = (),
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None = None,
) -> FastAPI:
    """Make the HTTP service over this reader.

    `registry` gets the HTTP metrics and the state's, and is what /metrics shows. `ready_checks` are asked by
    /readyz, from a thread, beside the database and the bootstrap; they must neither block nor raise.
    """
    app = FastAPI(
        title="subsetd",
        description=DESCRIPTION,
        version=service_version,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # FastAPI's own page loads its script from another host.
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        lifespan=lifespan,
    )
    app.state.reader = reader
    app.state.registry = registry
    app.state.ready_checks = tuple(ready_checks)
    problems.install(app)
    app.add_exception_handler(asking.NotModified, asking.not_modified)
    for router in (routes_service.router, routes_state.router, routes_uinds.router):
        app.include_router(router)
    app.add_middleware(HttpMetrics, registry=registry)
    app.add_middleware(EncodedPath)  # Added last, so it is the outer one.
    registry.register(StateMetrics(reader))
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    """Add to FastAPI's document the schema of problems, which no route returns as its model, and the examples."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        problem = problems.Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas = document["components"]["schemas"]
        schemas |= {name: part for name, part in problem.pop("$defs").items() if name not in schemas}
        schemas["Problem"] = problem
        examples.put_into(document)
        app.openapi_schema = document
    return app.openapi_schema

"""Own the app factory: the routes, errors and middleware of the HTTP service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from prometheus_client import CollectorRegistry

from service.api import (
    asking,
    examples,
    problems,
    routes_audits,
    routes_coefficients,
    routes_contracts,
    routes_corpora,
    routes_corpus_answers,
    routes_dashboard,
    routes_foreign_keys,
    routes_graph,
    routes_joinable,
    routes_keys,
    routes_service,
    routes_sketches,
    routes_state,
    routes_stream,
    routes_uinds,
)
from service.api.access import OPEN_PATHS, BearerKey
from service.api.corpus_metrics import CorpusMetrics
from service.api.known_answers import KnownAnswers
from service.api.metrics import HttpMetrics, StateMetrics
from service.api.problems import Check
from service.api.segments import EncodedPath
from service.api.transition_stream import TransitionStream
from service.usecases.foreign_key_answers import ForeignKeyFinder
from service.usecases.foreign_key_decisions import Contracts
from service.usecases.ind_graphs import IndGraphs
from service.usecases.joinable_searches import JoinSearches
from service.usecases.ports import StateReader, Uploads
from service.usecases.register_corpora import CorpusRegister
from service.usecases.tracked_keys import TrackedKeys

DESCRIPTION = (
    "Which columns are contained in which, since when, by how much the others miss, and which values break them. "
    "Every answer is computed from one version of the state, which it names; its ETag is that version."
)


def create_app(
    reader: StateReader,
    uploads: Uploads,
    corpus_register: CorpusRegister,
    contracts: Contracts,
    foreign_keys: ForeignKeyFinder,
    tracked_keys: TrackedKeys,
    joinable: JoinSearches,
    *,
    registry: CollectorRegistry,
    service_version: str,
    ready_checks: Sequence[Callable[[], Check]] = (),
    api_key: str | None = None,
) -> FastAPI:
    """Make the HTTP service over this reader, and what keeps and finds all that it serves beside the state.

    `registry` gets the HTTP metrics and the state's, and is what /metrics shows. `ready_checks` are asked by
    /readyz, from a thread, beside the database and the bootstrap; they must neither block nor raise. With an
    `api_key` every route but health and readiness wants it.
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
    )
    app.state.reader = reader
    app.state.uploads = uploads
    app.state.corpora = corpus_register.corpora
    app.state.corpus_register = corpus_register
    app.state.contracts = contracts
    app.state.foreign_keys = foreign_keys
    app.state.tracked_keys = tracked_keys
    app.state.joinable = joinable
    app.state.graphs = IndGraphs()
    app.state.stream = TransitionStream(reader)
    app.state.registry = registry
    app.state.ready_checks = tuple(ready_checks)
    problems.install(app)
    app.add_exception_handler(asking.NotModified, asking.not_modified)
    for routes in (
        routes_service,
        routes_dashboard,
        routes_state,
        routes_uinds,
        routes_stream,
        routes_coefficients,
        routes_sketches,
        routes_graph,
        routes_keys,
        routes_foreign_keys,
        routes_contracts,
        routes_audits,
        routes_corpora,
        routes_corpus_answers,
        routes_joinable,
    ):
        app.include_router(routes.router)
    app.include_router(routes_graph.corpus_router)
    # Innermost, so that whoever may not ask is not answered from memory either.
    app.add_middleware(KnownAnswers, read_version=reader.version)
    # What is added later is further out: the key is asked for where its refusal is counted.
    if api_key is not None:
        app.add_middleware(BearerKey, key=api_key)
    app.add_middleware(HttpMetrics, registry=registry)
    app.add_middleware(EncodedPath)
    registry.register(StateMetrics(reader))
    registry.register(CorpusMetrics(corpus_register.corpora))
    app.openapi = lambda: _openapi(app, has_key=api_key is not None)  # type: ignore[method-assign]
    return app


def _openapi(app: FastAPI, has_key: bool) -> dict[str, Any]:
    """Add to FastAPI's document the schema of problems, which no route returns as its model, examples, and the key."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        problem = problems.Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas = document["components"]["schemas"]
        schemas |= {name: part for name, part in problem.pop("$defs").items() if name not in schemas}
        schemas["Problem"] = problem
        examples.put_into(document)
        if has_key:
            document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            for path in document["paths"].keys() - OPEN_PATHS:
                for operation in document["paths"][path].values():
                    operation["security"] = [{"key": []}]
                    operation["responses"]["401"] = problems.documented(401)[401]
        app.openapi_schema = document
    return app.openapi_schema

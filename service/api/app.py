"""Own the app factory: the routes, errors and middleware of the HTTP service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from prometheus_client import CollectorRegistry
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from service.api import (
    asking,
    examples,
    problems,
    routes_access,
    routes_audits,
    routes_bootstraps,
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
    routes_watches,
)
from service.api.access import COOKIE, CSRF_HEADER, Access
from service.api.access_scopes import needed_scope
from service.api.corpus_metrics import CorpusMetrics
from service.api.known_answers import KnownAnswers
from service.api.limits import RequestBounds
from service.api.metrics import HttpMetrics, StateMetrics
from service.api.problems import Check
from service.api.recent_history import NewestHistory
from service.api.security_headers import SecurityHeaders
from service.api.segments import EncodedPath
from service.api.transition_stream import TransitionStream
from service.usecases.access import AccessControl
from service.usecases.foreign_key_answers import ForeignKeyFinder
from service.usecases.foreign_key_decisions import Contracts
from service.usecases.ind_graphs import IndGraphs
from service.usecases.joinable_searches import JoinSearches
from service.usecases.ports import NewsReader, StateReader, Uploads
from service.usecases.register_corpora import CorpusRegister
from service.usecases.retry_dead_letters import Tried
from service.usecases.tracked_keys import TrackedKeys
from service.usecases.watch_register import WatchRegister
from service.usecases.write_log import WriteLog

SESSION_COOKIE = f"{COOKIE}_PORT where the address has a port; writes want {CSRF_HEADER} too"

DESCRIPTION = (
    "Which columns are contained in which, since when, by how much the others miss, and which values break them. "
    "Every answer is computed from one version of the state, which it names; its ETag is that version."
)


def create_app(
    reader: StateReader,
    news: NewsReader,
    uploads: Uploads,
    corpus_register: CorpusRegister,
    contracts: Contracts,
    foreign_keys: ForeignKeyFinder,
    tracked_keys: TrackedKeys,
    joinable: JoinSearches,
    access: AccessControl,
    write_log: WriteLog,
    watches: WatchRegister,
    retry_dead_letter: Callable[[int], Tried],
    *,
    registry: CollectorRegistry,
    service_version: str,
    ready_checks: Sequence[Callable[[], Check]] = (),
    requests_per_second: float = 1000.0,
    body_seconds: float = 120.0,
    trusted_proxies: Sequence[str] = (),
) -> FastAPI:
    """Make the HTTP service over this reader, and what keeps and finds all that it serves beside the state.

    `registry` gets the HTTP metrics and the state's, and is what /metrics shows. `ready_checks` are asked by
    /readyz, from a thread, beside the database and the bootstrap; they must neither block nor raise. What
    `trusted_proxies` say of who asks, and by which scheme, is believed.
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
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},  # ours: /metrics
    )
    app.state.reader = reader
    app.state.uploads = uploads
    app.state.corpora = corpus_register.corpora
    app.state.corpus_register = corpus_register
    app.state.contracts = contracts
    app.state.foreign_keys = foreign_keys
    app.state.tracked_keys = tracked_keys
    app.state.joinable = joinable
    app.state.watches = watches
    app.state.retry_dead_letter = retry_dead_letter
    app.state.access = access
    app.state.write_log = write_log
    app.state.graphs = IndGraphs()
    app.state.stream = TransitionStream(reader)
    app.state.newest = NewestHistory(news)
    app.state.registry = registry
    app.state.ready_checks = tuple(ready_checks)
    app.state.lag_unit = None  # no consumer runs in this process; who has one puts what its feed counts
    app.state.overview_checks = ()  # of what makes nothing unready; who runs beside the service puts them
    app.state.shards_away = tuple  # who looks for servers puts what it found
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
        routes_bootstraps,
        routes_corpora,
        routes_corpus_answers,
        routes_joinable,
        routes_watches,
        routes_access,
    ):
        app.include_router(routes.router)
    app.include_router(routes_graph.corpus_router)
    # Innermost, so that whoever may not ask is not answered from memory either.
    app.add_middleware(KnownAnswers, newest=app.state.newest)
    # What is added later is further out: refusals are counted, and have all headers.
    app.add_middleware(Access, control=access, write_log=write_log, rate=requests_per_second)
    app.add_middleware(RequestBounds, body_seconds=body_seconds)
    app.add_middleware(HttpMetrics, registry=registry)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(EncodedPath)
    if trusted_proxies:
        app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=list(trusted_proxies))
    registry.register(StateMetrics(reader))
    registry.register(CorpusMetrics(corpus_register.corpora))
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    """Add to FastAPI's document the schema of problems, which no route returns as its model, examples, and access."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        problem = problems.Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas = document["components"]["schemas"]
        schemas |= {name: part for name, part in problem.pop("$defs").items() if name not in schemas}
        schemas["Problem"] = problem
        examples.put_into(document)
        _document_access(document)
        app.openapi_schema = document
    return app.openapi_schema


def _document_access(document: dict[str, Any]) -> None:
    """Say of each route which scope it needs, and what the door may answer in its place."""
    document["components"]["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer"},
        "session": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": SESSION_COOKIE},
    }
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            needed = needed_scope(method.upper(), path)
            refusals = [414, 431]
            if needed is not None:
                operation["security"] = [{"key": [needed.value]}, {"session": [needed.value]}]
                refusals += [401, 403, 421, 429, 503]
            if method not in ("get", "head"):
                refusals += [403, 408, 413, 415, 429]
            for status, described in problems.documented(*refusals).items():
                operation["responses"].setdefault(str(status), described)

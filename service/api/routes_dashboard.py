"""Own the dashboard's files, and the route that tells its first view how everything is."""

from __future__ import annotations

import hashlib
import math
from functools import cache, partial
from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from prometheus_client import CollectorRegistry

from service.api import dashboard_schemas as shapes
from service.api import examples, schemas
from service.api.asking import CACHE_CONTROL, Asked, IfNoneMatch, NotModified
from service.api.problems import documented, respond
from service.api.routes_service import readiness_checks
from service.core.model import TransitionKind
from service.usecases import queries
from service.usecases.answers import TransitionFilter

router = APIRouter(tags=["service"])

BROKEN_SHOWN = 5
"""Newest INDs that broke."""

MEDIA_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "txt": "text/plain",
}

HEADERS = {
    "Cache-Control": CACHE_CONTROL,
    # Whatever gets into the page, nothing but its own files runs in it, and no other host is asked or told anything.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

_answered = partial(examples.answered, etag=("digest of the answer, quoted", '"9f86d081884c7d65"'))


@router.get("/", include_in_schema=False)
async def page(request: Request, if_none_match: IfNoneMatch = None) -> Response:
    """Give the dashboard."""
    return _file(request, "index.html", if_none_match)


@router.get("/dashboard/{name}", include_in_schema=False)
async def page_file(request: Request, name: str, if_none_match: IfNoneMatch = None) -> Response:
    """Give a file of the dashboard."""
    return _file(request, name, if_none_match)


def _file(request: Request, name: str, if_none_match: str | None) -> Response:
    found = _files().get(name)
    if found is None:
        return respond(request, 404, "about:blank", "The dashboard has no such file.")
    content, etag = found
    headers = {**HEADERS, "ETag": etag}
    if if_none_match is not None and etag in if_none_match:
        raise NotModified(headers)
    return Response(content, media_type=MEDIA_TYPES[name.rpartition(".")[2]], headers=headers)


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    """Read the files once: they are of one version, whatever is installed meanwhile."""
    folder = files("service.api") / "dashboard"
    contents = {one.name: one.read_bytes() for one in folder.iterdir() if one.name.rpartition(".")[2] in MEDIA_TYPES}
    # The page names all modules: otherwise a browser hears of each only when it has read the one that needs it.
    modules = "".join(
        f'<link rel="modulepreload" href="/dashboard/{name}">\n' for name in sorted(contents) if name.endswith(".js")
    )
    contents["index.html"] = contents["index.html"].replace(b"</head>", modules.encode() + b"</head>")
    return {name: (content, f'"{_digest(content)}"') for name, content in contents.items()}


@router.get("/api/v1/overview", responses=_answered("How everything is") | documented(422, 500, 503))
def get_overview(request: Request, asked: Asked, _: Annotated[schemas.Question, Query()]) -> shapes.Overview:
    """Tell how everything is at a glance: what was applied lately, how far behind it is, what broke last."""
    state = request.app.state
    # Before the snapshot: who holds a connection waits for no second one of the same pool.
    checks = [*readiness_checks(request), *(told for check in state.overview_checks if (told := check()) is not None)]
    lag = _lag(state.registry)
    corpora = sorted(state.corpora.standings(), key=lambda one: not one.is_at_fault)
    with asked.snapshot() as snapshot:
        head, activity, audits = snapshot.head, snapshot.activity(), snapshot.audits(None, 1)
        broken = queries.transitions(
            snapshot, TransitionFilter(kind=TransitionKind.BROKE, newest_first=True), None, BROKEN_SHOWN
        )
        overview = shapes.Overview.at(
            head,
            generation=head.generation,
            committed_at=head.committed_at,
            freshness_seconds=shapes.freshness_of(head),
            lag_records=lag.get("subsetd_consumer_lag_records"),
            lag_unit=state.lag_unit,
            lag_seconds=lag.get("subsetd_consumer_lag_seconds"),
            changes_per_second=activity.changes_per_second,
            minutes=[shapes.Minute.model_validate(one) for one in activity.minutes],
            counts=schemas.Counts.model_validate(snapshot.counts()),
            contracts={str(one): count for one, count in snapshot.contract_counts().items()},
            checks=checks,
            feeds=[shapes.Feed.model_validate(one) for one in snapshot.feeds()],
            audit=shapes.NewestAudit.model_validate(audits[0]) if audits else None,
            corpora=[shapes.CorpusHealth.model_validate(one) for one in corpora[: shapes.CORPORA_SHOWN]],
            corpora_beyond=len(corpora[shapes.CORPORA_SHOWN :]),
            corpora_at_fault=sum(one.is_at_fault for one in corpora),
            broken=[schemas.Transition.of(one) for one in broken.items],
        )
    # Lag and rates change without a version, so that the answer is named after all that it says.
    asked.name_answer(_digest(overview.model_dump_json().encode()))
    asked.stop_if_known()
    return overview


def _lag(registry: CollectorRegistry) -> dict[str, float]:
    """Read the consumer's gauges, and those alone; they are absent or no number where none runs in this process."""
    names = ["subsetd_consumer_lag_records", "subsetd_consumer_lag_seconds"]
    samples = (one for metric in registry.restricted_registry(names).collect() for one in metric.samples)
    return {one.name: round(one.value, 1) for one in samples if not math.isnan(one.value)}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]

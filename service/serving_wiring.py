"""Own the composition of the HTTP service."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine

from service import __version__, wiring
from service.api.app import create_app
from service.api.problems import Check
from service.config import ConfigError, Settings, is_loopback
from service.corpus_wiring import make_corpus_register
from service.observe import ConsumerObserver
from service.store.foreign_key_refreshes import PostgresForeignKeys
from service.store.news import PostgresNews
from service.usecases.foreign_key_answers import ForeignKeyFinder
from service.usecases.joinable_searches import JoinSearches
from service.usecases.retry_dead_letters import Tried
from service.usecases.tracked_keys import TrackedKeys
from service.watch_wiring import make_watches


def make_service(
    engine: Engine,
    settings: Settings,
    tracked_keys: TrackedKeys,
    joinable: JoinSearches,
    retry_dead_letter: Callable[[int], Tried],
    registry: CollectorRegistry,
    observer: ConsumerObserver | None = None,
) -> FastAPI:
    """Make the HTTP service; `observer` when a consumer runs in this process, whose lag then counts for /readyz."""
    access = wiring.make_access(engine, settings)
    if not is_loopback(settings.host) and not access.look_for_keys():
        raise ConfigError(
            f"The service would listen on {settings.host} without a key, where others could reach it: "
            "set SUBSETD_API_KEY, make a key with `subsetd api-key create`, or set SUBSETD_HOST=127.0.0.1."
        )
    checks = () if observer is None else (lambda: consumer_check(observer, settings.ready_lag_seconds),)
    service = create_app(
        wiring.make_reader(engine),
        PostgresNews(engine),
        wiring.make_uploads(engine),
        make_corpus_register(engine, settings),
        wiring.make_contracts(engine),
        ForeignKeyFinder(PostgresForeignKeys(engine)),
        tracked_keys,
        joinable,
        access,
        wiring.make_write_log(engine),
        make_watches(engine, settings),
        retry_dead_letter,
        registry=registry,
        service_version=__version__,
        ready_checks=checks,
        requests_per_second=settings.requests_per_second,
        body_seconds=settings.body_seconds,
        trusted_proxies=[one.strip() for one in (settings.trusted_proxies or "").split(",") if one.strip()],
    )
    if observer is not None:
        service.state.lag_unit = observer.lag_unit
    return service


def consumer_check(observer: ConsumerObserver, bound: float) -> Check:
    """Tell whether the consumer of this process follows its feed, and what failed last if it does not."""
    fault = observer.fault(bound)
    if observer.last_error is None and observer.following_since is None:
        fault = "The consumer has not begun to follow its feed yet."
    return Check(name="consumer", ok=fault is None, detail=fault or observer.told(bound))


def transitions_check(observer: ConsumerObserver) -> Check | None:
    """Tell why transitions do not go out to their topic; nothing while they do, and nothing else is unready."""
    fault = observer.transitions_fault
    return None if fault is None else Check(name="outgoing transitions", ok=False, detail=fault)

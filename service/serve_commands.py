"""Own the commands that serve: serve, run.

What only answers need is loaded within them: in `run` behind the fork of its consumer, which follows the sooner.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from prometheus_client import CollectorRegistry

from service import feed_wiring, wiring
from service.config import Settings, place_of
from service.consumer_process import ConsumerProcess
from service.core.errors import FeedError
from service.feed_options import OnErrorOption, SourcesOption, feed_settings
from service.observe import ConsumerObserver
from service.server import serve_until
from service.terminal import err

if TYPE_CHECKING:
    from fastapi import FastAPI


def serve() -> None:
    """Serve the answers over HTTP, at SUBSETD_HOST and SUBSETD_PORT: http://127.0.0.1:8321 if neither is set."""
    settings = wiring.configured_settings()
    with (
        wiring.state_database(settings) as url,
        _ready_to_serve(url, settings, CollectorRegistry()) as service,
    ):
        serve_until(service, settings.host, settings.port, threading.Event(), _say_address(settings))


def run(
    feed: Annotated[
        str | None, typer.Option("--feed", help="Feed to follow, as consume takes it; default SUBSETD_FEED.")
    ] = None,
    on_error: OnErrorOption = None,
    source: SourcesOption = None,
) -> None:
    """Bring the state's schema up to date, follow a feed and serve the answers, with one command."""
    settings = wiring.configured_settings(**feed_settings(on_error, source))
    address = feed or settings.feed
    if address is None:
        with wiring.state_database(settings, migrate=True):
            pass  # a state that no feed goes to is brought up to date by this alone
        raise FeedError(
            "No feed is named, so the state's schema is up to date and no more: give --feed or SUBSETD_FEED "
            "(kafka://host:port/topic,..., postgresql://...?name=NAME or file:PATH), or start `subsetd serve`."
        )
    feed_wiring.require_feed(address)
    settings = settings.model_copy(update={"feed": address})  # so that no alert is sent to what is followed
    with (
        ConsumerProcess() as consumer,
        wiring.state_database(settings, migrate=True) as url,
        consumer.following(url, address, settings),
    ):
        registry = CollectorRegistry()
        observer = ConsumerObserver(registry, lag_unit=feed_wiring.lag_unit(address))
        with (
            _ready_to_serve(url, settings, registry, observer) as service,
            consumer.heard_by(observer) as failed,
        ):
            serve_until(service, settings.host, settings.port, failed, _say_address(settings))


@contextmanager
def _ready_to_serve(
    url: str, settings: Settings, registry: CollectorRegistry, observer: ConsumerObserver | None = None
) -> Iterator[FastAPI]:
    """Give the service with all that works beside it; an observer is told of the consumer that runs beside it."""
    # Here, so that a consumer is on its way before: they take a good second of a processor.
    from service import serving_wiring
    from service.beside_service import beside_the_service
    from service.joinable_runner import searching_joinable
    from service.key_runner import tracking_keys

    with (
        wiring.reading_engine(url, settings) as engine,
        tracking_keys(url, settings) as tracked,
        searching_joinable(url, engine, settings) as searches,
    ):
        retry = partial(feed_wiring.retry_dead_letter, url, settings)
        service = serving_wiring.make_service(engine, settings, tracked, searches, retry, registry, observer)
        if observer is not None:
            feed_wiring.settle_process()
        with beside_the_service(url, engine, settings, registry, service, observer) as checks:
            of_consumer = () if observer is None else (partial(serving_wiring.transitions_check, observer),)
            service.state.overview_checks = (*checks, *of_consumer)
            yield service


def _say_address(settings: Settings) -> Callable[[int], None]:
    return lambda port: err.print(
        f"Serving on http://{place_of(settings.host, port)} (dashboard: /, routes: /docs)", highlight=False
    )

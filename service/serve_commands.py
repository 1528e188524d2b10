"""Own the commands that serve: serve, run.

What only answers need is loaded within them: in `run` behind the fork of its consumer, which follows the sooner.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Annotated

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


def serve() -> None:
    """Serve the answers over HTTP, at SUBSETD_HOST and SUBSETD_PORT: http://127.0.0.1:8321 if neither is set."""
    from service import serving_wiring
    from service.beside_service import beside_the_service
    from service.joinable_runner import searching_joinable
    from service.key_runner import tracking_keys

    settings = wiring.configured_settings()
    with (
        wiring.state_database(settings) as url,
        wiring.reading_engine(url, settings) as engine,
        tracking_keys(url, settings) as tracked,
        searching_joinable(url, engine, settings) as searches,
    ):
        registry = CollectorRegistry()
        retry = partial(feed_wiring.retry_dead_letter, url, settings)
        service = serving_wiring.make_service(engine, settings, tracked, searches, retry, registry)
        with beside_the_service(url, engine, settings, registry, service) as checks:
            service.state.overview_checks = checks
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
        # Not before the consumer is on its way: they take a good second of a processor.
        from service import serving_wiring
        from service.beside_service import beside_the_service
        from service.joinable_runner import searching_joinable
        from service.key_runner import tracking_keys

        with (
            wiring.reading_engine(url, settings) as engine,
            tracking_keys(url, settings) as tracked,
            searching_joinable(url, engine, settings) as searches,
        ):
            registry = CollectorRegistry()
            observer = ConsumerObserver(registry, lag_unit=feed_wiring.lag_unit(address))
            retry = partial(feed_wiring.retry_dead_letter, url, settings)
            service = serving_wiring.make_service(engine, settings, tracked, searches, retry, registry, observer)
            feed_wiring.settle_process()
            with (
                beside_the_service(url, engine, settings, registry, service, observer) as checks,
                consumer.heard_by(observer) as failed,
            ):
                service.state.overview_checks = (*checks, partial(serving_wiring.transitions_check, observer))
                serve_until(service, settings.host, settings.port, failed, _say_address(settings))


def _say_address(settings: Settings) -> Callable[[int], None]:
    return lambda port: err.print(
        f"Serving on http://{place_of(settings.host, port)} (dashboard: /, routes: /docs)", highlight=False
    )

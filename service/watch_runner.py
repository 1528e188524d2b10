"""Own what lets watches look, and sends their alerts, beside a service or a consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import structlog
from prometheus_client import CollectorRegistry

from service.config import Settings
from service.core.errors import StateError, SubsetdError
from service.feed_wiring import beside
from service.observe import ConsumerObserver
from service.store import feeds
from service.store.watch_looks import PostgresLooks
from service.store.watches import PostgresWatches
from service.usecases.watch_sender import WatchSender
from service.watch_wiring import watch_sender

if TYPE_CHECKING:  # a consumer alone serves nothing
    from service.api.problems import Check

log = structlog.get_logger("subsetd.watches")


@contextmanager
def watching(
    url: str,
    settings: Settings,
    registry: CollectorRegistry,
    observer: ConsumerObserver | None = None,
    *,
    has_read_all: Callable[[], bool] = lambda: False,
) -> Iterator[Callable[[], Check]]:
    """Let watches look and send on a thread of their own; gives what tells how they are.

    With an `observer` its consumer's lag is told to whoever looks, here or in another process. It falls behind when
    that has ended, unless it has then read all that it was to read. What ails the feed is kept with it, for every
    service over the state, also what ended its consumer.
    """
    with watch_sender(url, settings, registry) as (sender, looks, engine):

        def report() -> None:
            if observer is not None and observer.following_since is not None:
                report_lag(looks, observer)
                feeds.put_fault(engine, observer.feed, observer.fault(settings.ready_lag_seconds))

        try:
            with beside(partial(sender.run, before=report), "subsetd-watches"):
                yield partial(_check, sender, PostgresWatches(engine))
        except SubsetdError as error:
            if observer is not None:
                with suppress(StateError):  # the database may be what failed
                    feeds.put_fault(engine, observer.feed, str(error))
            raise
        if observer is not None and has_read_all():
            try:
                looks.forget_lag()
            except StateError as error:
                log.warning("watches may hear of a lag that is over", error=str(error))


def report_lag(looks: PostgresLooks, observer: ConsumerObserver) -> None:
    """Let whoever looks know how far a consumer is behind; one that does not follow yet is as far as it was."""
    if observer.following_since is not None:
        looks.report_lag(observer.lag, observer.lag_seconds(), observer.lag_unit)


def _check(sender: WatchSender, watches: PostgresWatches) -> Check:
    """Tell how watches are, for the overview; a channel that fails makes nothing else unready."""
    from service.api.problems import Check

    if sender.fault is not None:
        return Check(name="watches", ok=False, detail=f"They do not work: {sender.fault}")
    try:
        retried, given_up, fault = watches.health()
    except StateError as error:
        return Check(name="watches", ok=False, detail=str(error))
    if not retried and not given_up:
        return Check(name="watches", ok=True, detail="all alerts were delivered")
    detail = f"{retried} alerts are tried again, {given_up} were given up within a day; the last: {fault}"
    return Check(name="watches", ok=False, detail=detail)

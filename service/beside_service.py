"""Own what a service does beside answering, and what its overview tells of that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry
from sqlalchemy import Engine

from service.audit_runner import auditing
from service.config import Settings
from service.foreign_key_runner import finding_foreign_keys
from service.observe import ConsumerObserver
from service.refresh_service import refreshing_corpora
from service.shard_lookout import looking_for_servers
from service.watch_runner import watching

if TYPE_CHECKING:
    from service.api.problems import Check


@contextmanager
def beside_the_service(
    url: str,
    engine: Engine,
    settings: Settings,
    registry: CollectorRegistry,
    service: Any,
    observer: ConsumerObserver | None = None,
) -> Iterator[tuple[Callable[[], Check | None], ...]]:
    """Do what is scheduled and look at what is watched until the end of the block; gives what tells how that is.

    `service` is the application, whose answers tell of what is away, too.
    """
    from service.clock_lookout import clock_check  # with FastAPI, which takes a good second of a processor

    with (
        watching(url, settings, registry, observer) as check_watches,
        looking_for_servers(url, service) as check_shards,
        refreshing_corpora(url, settings),
        auditing(url, settings) as check_audits,
        finding_foreign_keys(engine, settings, service.state.foreign_keys) as check_foreign_keys,
    ):
        yield check_watches, check_shards, check_audits, check_foreign_keys, partial(clock_check, engine)

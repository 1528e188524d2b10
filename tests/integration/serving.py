"""Own how tests serve an app: over a database, by real uvicorn on a free loopback port, in a thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import uvicorn
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine

from service import corpus_wiring, feed_wiring
from service.api.app import create_app
from service.config import Settings
from service.core.foreign_keys.sides import Side
from service.scheduler import next_time
from service.server import UVICORN, end_streams_with
from service.store.api_keys import PostgresApiKeys
from service.store.contracts import PostgresContracts
from service.store.corpora import PostgresCorpora
from service.store.foreign_key_refreshes import PostgresForeignKeys
from service.store.news import PostgresNews
from service.store.reader import PostgresStateReader
from service.store.tracked_rows import PostgresTrackedRows
from service.store.uploaded_sketches import PostgresUploads
from service.store.watches import PostgresWatches
from service.store.write_log import PostgresWriteLog
from service.usecases.access import AccessControl
from service.usecases.foreign_key_answers import ForeignKeyFinder
from service.usecases.joinable_searches import JoinLimits, JoinSearches
from service.usecases.register_corpora import CorpusRegister
from service.usecases.tracked_keys import TrackedKeys
from service.usecases.watch_register import WatchRegister
from tests.waiting import BOUND_SECONDS
from tests.watching import channels_to


def app_over(
    engine: Engine, *, api_key: str | None = None, access: AccessControl | None = None, **options: Any
) -> FastAPI:
    """Make the service over a database; `api_key` is the environment's."""
    register = CorpusRegister(
        PostgresCorpora(engine), next_time, lambda: datetime.now(UTC), lambda _: None, lambda _: None
    )
    url = engine.url.render_as_string(hide_password=False)
    tracked = TrackedKeys(_no_job, lambda key: feed_wiring.drop_key(url, *key, print), lambda: datetime.now(UTC))
    options = {"registry": CollectorRegistry(), "service_version": "0.1.0", **options}
    return create_app(
        PostgresStateReader(engine),
        PostgresNews(engine),
        PostgresUploads(engine),
        register,
        PostgresContracts(engine),
        ForeignKeyFinder(PostgresForeignKeys(engine)),
        options.pop("tracked_keys", tracked),
        options.pop("joinable", None) or searches_over(engine),
        access or AccessControl(PostgresApiKeys(engine), api_key, timedelta(hours=1)),
        PostgresWriteLog(engine),
        WatchRegister(PostgresWatches(engine), channels_to(), lambda: datetime.now(UTC)),
        lambda letter: feed_wiring.retry_dead_letter(url, Settings(), letter),
        **options,
    )


def searches_over(engine: Engine, at_once: int = 1_000_000) -> JoinSearches:
    """Search at once, and let jobs wait for ever."""
    return JoinSearches(
        corpus_wiring.make_join_search(engine),
        PostgresTrackedRows(engine),
        lambda query, question: NeverBegun(),
        JoinLimits(4096, 50, at_once, timedelta(seconds=60)),
        lambda: datetime.now(UTC),
    )


class NeverBegun:
    """Be a search whose job nobody begins."""

    def start(self) -> NoReturn:
        raise AssertionError("nobody looks for jobs here")

    def answer(self) -> NoReturn:
        raise AssertionError("its job never ends")

    def forget(self) -> None:
        pass


def _no_job(key: Side, source: str | None) -> NoReturn:
    raise AssertionError(f"nobody starts jobs here: {key}")


def a_place() -> socket.socket:
    """Listen on a free port of the loopback."""
    # With the protocol named asyncio sets TCP_NODELAY; without it each answer waits 40 ms for an acknowledgement.
    listener = socket.socket(proto=socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener


@contextmanager
def serving(app: FastAPI, place: socket.socket | None = None) -> Iterator[str]:
    """Serve the app, at a place that outlives it if one is given, and give its address.

    It takes connections at once, and answers when it has started.
    """
    listener = a_place() if place is None else place.dup()
    server = uvicorn.Server(uvicorn.Config(app, **UVICORN))
    end_streams_with(server, app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(BOUND_SECONDS)
        listener.close()
    assert not thread.is_alive()

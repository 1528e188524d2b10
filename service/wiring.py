"""Own the composition that most commands share: the settings, the state's database, the readers of answers.

What only some commands need is loaded when it is asked for here, or composed in a room of its own: feeds, corpora and
the HTTP service in `feed_wiring`, `corpus_wiring` and `serving_wiring`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import structlog
from sqlalchemy import Engine

from service.config import Settings, load_settings
from service.core.errors import StateError
from service.log import configure_logging
from service.store.database import make_engine
from service.store.embedded import EmbeddedPostgres
from service.store.migrate import require_current, upgrade
from service.store.tables import SCHEMA_REVISION

if TYPE_CHECKING:
    from service.store.checks import PostgresVerifier
    from service.store.contracts import PostgresContracts
    from service.store.reader import PostgresStateReader
    from service.store.uploaded_sketches import PostgresUploads
    from service.store.write_log import PostgresWriteLog
    from service.usecases.access import AccessControl

log = structlog.get_logger("subsetd")


@contextmanager
def state_database(settings: Settings, *, migrate: bool = False) -> Iterator[str]:
    """Give the address of the state's database: the given one, or the embedded one for as long as it is needed.

    The embedded database is always brought to the present revision, a given one only with `migrate`.
    """
    if settings.database_url is not None:
        if migrate:
            _upgrade(settings.database_url)
        else:
            require_current(settings.database_url)
        yield settings.database_url
        return
    with EmbeddedPostgres(settings.data_dir) as server:
        _upgrade(server.url)
        try:
            yield server.url
        except StateError as error:
            cause = server.cause_of_death()
            if cause is None:
                raise
            raise StateError(
                f"The embedded Postgres in {server.data_dir} has ended. Its log, {server.log}, says last: {cause}\n"
                "What was not committed was not applied, all else is kept: mend the cause, and start again."
            ) from error


def _upgrade(url: str) -> None:
    """Bring the state's schema up to date, and say so where there was an older one."""
    begin = time.monotonic()
    before = upgrade(url)
    if before not in (None, SCHEMA_REVISION):
        seconds = round(time.monotonic() - begin, 3)
        log.warning("schema migrated", before=before, now=SCHEMA_REVISION, seconds=seconds)


def is_there(settings: Settings) -> bool:
    """Tell whether there is a database to be looked at; an embedded one would be made."""
    return settings.database_url is not None or (settings.data_dir / "postgres").is_dir()


@contextmanager
def database_as_it_is(settings: Settings) -> Iterator[str]:
    """Give the address of the state's database, whatever revision it is at, or without a state."""
    if settings.database_url is not None:
        yield settings.database_url
        return
    with EmbeddedPostgres(settings.data_dir) as server:
        yield server.url


@contextmanager
def reading_engine(url: str, settings: Settings | None = None) -> Iterator[Engine]:
    """Give the engine that answers are read with; with settings, statements are bounded in time."""
    timeout = None if settings is None else settings.statement_timeout_ms
    engine = make_engine(url, "subsetd service", statement_timeout_ms=timeout)
    try:
        yield engine
    finally:
        engine.dispose()


def make_reader(engine: Engine) -> PostgresStateReader:
    """Make the reader of answers."""
    from service.store.reader import PostgresStateReader

    return PostgresStateReader(engine)


def make_uploads(engine: Engine) -> PostgresUploads:
    """Make what keeps uploaded sketches."""
    from service.store.uploaded_sketches import PostgresUploads

    return PostgresUploads(engine)


def make_contracts(engine: Engine) -> PostgresContracts:
    """Make what keeps decisions about foreign keys, and contracts."""
    from service.store.contracts import PostgresContracts

    return PostgresContracts(engine)


def make_access(engine: Engine, settings: Settings) -> AccessControl:
    """Make what knows who may ask."""
    from service.store.api_keys import PostgresApiKeys
    from service.usecases.access import AccessControl

    key = None if settings.api_key is None else settings.api_key.get_secret_value()
    return AccessControl(PostgresApiKeys(engine), key, timedelta(hours=settings.session_hours))


def make_write_log(engine: Engine) -> PostgresWriteLog:
    """Make the log of writes."""
    from service.store.write_log import PostgresWriteLog

    return PostgresWriteLog(engine)


def make_verifier(engine: Engine) -> PostgresVerifier:
    """Make the checker of the stored state."""
    from service.store.checks import PostgresVerifier

    return PostgresVerifier(engine)


def configured_settings(**changed: Any) -> Settings:
    """Read the settings, but for those that are changed, and set the log up as they say."""
    settings = load_settings(**changed)
    configure_logging(settings.log_level)
    return settings

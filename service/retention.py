"""Own the thread that drops old history beside a consumer, if the settings say for how long it is kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from service import wiring
from service.config import Settings
from service.scheduler import running_every
from service.store.retention import drop_piece

log = structlog.get_logger("subsetd.retention")

LOOK_SECONDS = 60.0
MOST_PIECES = 20
"""In one look: a backlog of years goes in hours, and a consumer hardly notices."""

DAY = 24 * 60 * 60


@contextmanager
def dropping_history(url: str, settings: Settings) -> Iterator[None]:
    """Drop versions and transitions that are older than the settings say, beside the consumer; nothing without them."""
    days = settings.history_days
    if days is None:
        yield
        return
    with wiring.reading_engine(url) as engine:

        def look() -> None:
            went = 0
            for _ in range(MOST_PIECES):
                of_piece = drop_piece(engine, days * DAY)
                went += of_piece
                if not of_piece:
                    break
            if went:
                log.info("history dropped", versions=went, older_than_days=days)

        with running_every({"retention of history": (LOOK_SECONDS, look)}):
            yield

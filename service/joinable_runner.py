"""Own what searches for joinable tables for a service: at once, and long ones as jobs beside it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from sqlalchemy import Engine

from service import corpus_wiring
from service.config import Settings
from service.joinable_job import SearchFolder
from service.scheduler import running_every
from service.store.tracked_rows import PostgresTrackedRows
from service.usecases.joinable_searches import JoinLimits, JoinSearches


@contextmanager
def searching_joinable(url: str, engine: Engine, settings: Settings) -> Iterator[JoinSearches]:
    """Search for joinable tables, beside the service; a search that runs at the end is ended."""
    with tempfile.TemporaryDirectory(prefix="subsetd-joinable-") as folder:
        searches = JoinSearches(
            corpus_wiring.make_join_search(engine),
            PostgresTrackedRows(engine),
            partial(SearchFolder, Path(folder), url),
            JoinLimits(
                settings.joinable_upload_bytes,
                settings.joinable_rows,
                settings.joinable_at_once_postings,
                timedelta(seconds=settings.joinable_seconds),
            ),
            partial(datetime.now, UTC),
        )
        try:
            with running_every({"searches for joinable tables": (0.2, searches.look)}):
                yield searches
        finally:
            searches.close()

"""Own the findings of foreign keys that a service makes by the schedule of its settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

from sqlalchemy import Engine

from service import wiring
from service.config import ConfigError, Settings
from service.core.errors import SourceError
from service.scheduler import next_time, running_every
from service.usecases.foreign_key_answers import ForeignKeyFinder
from service.usecases.foreign_key_schedule import FindingSchedule


@contextmanager
def finding_foreign_keys(engine: Engine, settings: Settings, finder: ForeignKeyFinder) -> Iterator[None]:
    """Find foreign keys when the schedule of the settings says so, if there is one, beside the service."""
    if settings.foreign_key_schedule is None:
        yield
        return
    now = partial(datetime.now, UTC)
    try:
        next_time(settings.foreign_key_schedule, now())
    except SourceError as error:
        raise ConfigError(f"SUBSETD_FOREIGN_KEY_SCHEDULE: {error}") from error
    schedule = FindingSchedule(settings.foreign_key_schedule, wiring.make_reader(engine), finder, next_time, now)
    with running_every({"finding of foreign keys": (5, schedule.look)}):
        try:
            yield
        finally:
            finder.cancel()

"""Own the findings of foreign keys that a service makes by the schedule of its settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from service import wiring
from service.config import ConfigError, Settings
from service.core.errors import SourceError
from service.scheduler import next_time, running_every
from service.usecases.foreign_key_answers import ForeignKeyFinder
from service.usecases.foreign_key_schedule import FindingSchedule

if TYPE_CHECKING:
    from service.api.problems import Check


@contextmanager
def finding_foreign_keys(
    engine: Engine, settings: Settings, finder: ForeignKeyFinder
) -> Iterator[Callable[[], Check | None]]:
    """Find foreign keys when the schedule of the settings says so, if there is one, beside the service.

    Gives what tells how that goes, None where there is no schedule.
    """
    schedule = _schedule(engine, settings, finder)
    with ExitStack() as ends:
        if schedule is not None:
            ends.enter_context(running_every({"finding of foreign keys": (5, schedule.look)}))
        # Before that is waited for, and also what somebody asked for: the process does not end before its thread.
        ends.callback(finder.cancel)
        yield lambda: None if schedule is None else _check(schedule)


def _schedule(engine: Engine, settings: Settings, finder: ForeignKeyFinder) -> FindingSchedule | None:
    if settings.foreign_key_schedule is None:
        return None
    now = partial(datetime.now, UTC)
    try:
        next_time(settings.foreign_key_schedule, now())
    except SourceError as error:
        raise ConfigError(f"SUBSETD_FOREIGN_KEY_SCHEDULE: {error}") from error
    return FindingSchedule(settings.foreign_key_schedule, wiring.make_reader(engine), finder, next_time, now)


def _check(schedule: FindingSchedule) -> Check:
    """Tell how scheduled findings go, for the overview."""
    from service.api.problems import Check

    fault = schedule.fault
    detail = "none has failed" if fault is None else f"The last finding failed: {fault}"
    return Check(name="scheduled foreign keys", ok=fault is None, detail=detail)

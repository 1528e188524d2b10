"""Own the scheduler: when schedules in cron's five fields are due (by APScheduler), and what runs now and then."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from service.core.errors import SourceError, SubsetdError

log = structlog.get_logger("subsetd.scheduler")

DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
"""Days as cron counts them; 7 is Sunday as well. APScheduler counts from Monday, so it is given names."""


def next_time(schedule: str, after: datetime) -> datetime | None:
    """Give the first time of a schedule later than `after`, in UTC; None when it never comes.

    Raises SourceError for a text that is no schedule.
    """
    found: datetime | None = _trigger(schedule).get_next_fire_time(
        None, after.astimezone(UTC) + timedelta(microseconds=1)
    )
    return found


def _trigger(schedule: str) -> Any:
    from apscheduler.triggers.combining import OrTrigger
    from apscheduler.triggers.cron import CronTrigger

    fields = schedule.split()
    try:
        if len(fields) != 5:
            raise ValueError(f"it has {len(fields)} fields")
        minute, hour, day, month, week = fields
        times = {"minute": minute, "hour": hour, "month": month, "timezone": UTC}
        days = _days(week)
        if day.startswith("*") or week.startswith("*"):
            return CronTrigger(day=day, day_of_week=days, **times)
        # Of two restrictions on the day cron wants either, APScheduler both.
        return OrTrigger([CronTrigger(day=day, **times), CronTrigger(day_of_week=days, **times)])
    except ValueError as error:
        raise SourceError(
            f"The schedule {schedule!r} is not cron's five fields (minute hour day month weekday, in UTC, as in "
            f"'30 2 * * 1-5'): {error}"
        ) from error


def _days(field: str) -> str:
    """Write cron's field of weekdays as a list of names."""
    chosen: set[int] = set()
    for part in field.lower().split(","):
        span, is_stepped, step = part.partition("/")
        first, is_range, last = ("0", "-", "6") if span == "*" else span.partition("-")
        low = _day(first)
        high = _day(last) if is_range else 6 if is_stepped else low
        chosen |= {day % 7 for day in range(low, high + 1, int(step) if is_stepped else 1)}
    if not chosen:
        raise ValueError(f"no weekday is in {field!r}")
    return ",".join(DAYS[day] for day in sorted(chosen))


def _day(text: str) -> int:
    number = DAYS.index(text) if text in DAYS else int(text) if text.isdecimal() else None
    if number is None or number > 7:
        raise ValueError(f"{text!r} is no weekday: 0 to 7, or sun to sat")
    return number


@contextmanager
def running_every(tasks: Mapping[str, tuple[float, Callable[[], None]]]) -> Iterator[None]:
    """Run each task again and again, so many seconds apart and never twice at once, on a thread of its own.

    A task that fails is logged, and runs again when its time comes. Nobody waits for a time of the clock, which may be
    set back meanwhile.
    """
    stop = threading.Event()
    # Threads that the interpreter does not wait for at its end would be cut off in mid-task: it waits for these.
    threads = [
        threading.Thread(target=_repeat, args=(stop, name, seconds, task), name=name)
        for name, (seconds, task) in tasks.items()
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _repeat(stop: threading.Event, name: str, seconds: float, task: Callable[[], None]) -> None:
    fault: str | None = None
    while not stop.is_set():
        try:
            task()
            fault = None
        except Exception as error:
            # Told once for as long as it fails in the same way: a database is away for many seconds.
            if str(error) != fault:
                fault = str(error)
                trace = {} if isinstance(error, SubsetdError) else {"trace": traceback.format_exc()}
                log.error("task failed", task=name, error=fault, **trace)
        stop.wait(seconds)

"""Schedules: cron's five fields in UTC, held against counting minute by minute; tasks run on, whatever fails."""

from __future__ import annotations

import itertools
import sys
import threading
from datetime import UTC, datetime, timedelta, tzinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from service.core.errors import SourceError, StateError
from service.scheduler import next_time, running_every
from tests.waiting import BOUND_SECONDS

START = datetime(2026, 11, 21, 10, 30, tzinfo=UTC)  # a Saturday


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("*/15 * * * *", "2026-11-21 10:45"),
        ("30 2 * * *", "2026-11-22 02:30"),
        ("30 10 * * *", "2026-11-22 10:30"),
        ("0 0 * * 0", "2026-11-22 00:00"),
        ("0 0 * * 7", "2026-11-22 00:00"),
        ("0 0 * * sun", "2026-11-22 00:00"),
        ("0 0 * * 1", "2026-11-23 00:00"),
        ("0 0 * * 2-4", "2026-11-24 00:00"),
        ("0 0 * * mon,FRI", "2026-11-23 00:00"),
        ("0 0 * * */3", "2026-11-22 00:00"),
        ("0 0 29 2 *", "2028-02-29 00:00"),
        ("0 0 25 * 1", "2026-11-23 00:00"),
    ],
)
def test_the_next_time_of_a_schedule(schedule: str, expected: str) -> None:
    assert next_time(schedule, START) == datetime.fromisoformat(expected).replace(tzinfo=UTC)


def matches(moment: datetime, minutes: int, hour: int, day: int | None, week: int | None) -> bool:
    on_day, on_weekday = moment.day == day, moment.isoweekday() % 7 == week
    right_day = (day is None and week is None) or on_day or on_weekday
    return moment.minute % minutes == 0 and moment.hour == hour and right_day


@given(
    st.integers(1, 59),
    st.integers(0, 23),
    st.none() | st.integers(1, 28),
    st.none() | st.integers(0, 6),
    st.integers(0, 60 * 24 * 400),
)
def test_the_next_time_is_the_first_minute_that_matches(
    minutes: int, hour: int, day: int | None, week: int | None, shift: int
) -> None:
    after = START + timedelta(minutes=shift)
    fields = [f"*/{minutes}", str(hour), *("*" if one is None else str(one) for one in (day,)), "*"]
    found = next_time(" ".join([*fields, "*" if week is None else str(week)]), after)
    moment = after + timedelta(minutes=1)
    while not matches(moment, minutes, hour, day, week):
        moment += timedelta(minutes=1)
    assert found == moment


def test_the_moment_itself_is_not_due_again() -> None:
    first = next_time("0 * * * *", START)
    assert first is not None
    assert next_time("0 * * * *", first) == first + timedelta(hours=1)


def test_the_next_time_may_be_a_moment_away() -> None:
    first = next_time("0 * * * *", START)
    assert first is not None
    assert next_time("0 * * * *", first - timedelta(microseconds=1)) == first


@pytest.mark.parametrize(
    "schedule", ["", "daily", "* * * *", "60 * * * *", "* * * * 8", "* * 0 * *", "* * * * 1-", "* * * * 5-2"]
)
def test_what_is_no_schedule_is_refused_with_an_example(schedule: str) -> None:
    with pytest.raises(SourceError, match="five fields"):
        next_time(schedule, START)


def test_a_time_that_never_comes() -> None:
    assert next_time("0 0 31 2 *", START) is None


def test_a_task_that_fails_runs_again_and_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    failures, runs = threading.Semaphore(0), threading.Semaphore(0)
    ends = itertools.chain([StateError("The database is away.")] * 3, [None], itertools.repeat(RuntimeError("a slip")))

    def fail() -> None:
        failures.release()
        end = next(ends)
        if end is not None:
            raise end

    with capture_logs() as logs, running_every({"failing": (0.01, fail), "other": (0.01, runs.release)}):
        for _ in range(7):
            assert failures.acquire(timeout=BOUND_SECONDS)
            assert runs.acquire(timeout=BOUND_SECONDS)
    told = [(one["task"], one["error"], "trace" in one) for one in logs]
    assert told == [("failing", "The database is away.", False), ("failing", "a slip", True)], "each once"
    assert caplog.records == []


class AnHourBack(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> AnHourBack:
        return super().now(tz) - timedelta(hours=1)


def test_a_clock_that_is_set_back_holds_up_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, clock = threading.Semaphore(0), datetime
    with running_every({"a task": (0.01, runs.release)}):
        assert runs.acquire(timeout=BOUND_SECONDS)
        for module in list(sys.modules.values()):
            if vars(module).get("datetime") is clock:
                monkeypatch.setattr(module, "datetime", AnHourBack)
        while runs.acquire(blocking=False):
            pass
        for _ in range(3):
            assert runs.acquire(timeout=BOUND_SECONDS)

"""When audits run: at their times, one at a time, what was missed once, and what failed not again at once."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from service.scheduler import next_time
from service.usecases.audit_schedule import AuditSchedule

MIDNIGHT = datetime(2026, 11, 21, tzinfo=UTC)
NIGHTLY = "30 2 * * *"


class FakeJob:
    def __init__(self) -> None:
        self.code: int | None = None
        self.ends_when_asked = True
        self.told: list[str] = []

    def exit_code(self) -> int | None:
        return self.code

    def end(self) -> None:
        self.told.append("end")
        self.code = 143 if self.ends_when_asked else None

    def kill(self) -> None:
        self.told.append("kill")
        self.code = 137

    def said(self) -> str:
        return "what it said"

    def close(self) -> None:
        assert self.code is not None
        self.told.append("close")


class FakeTurn:
    def __init__(self, lock: threading.Lock) -> None:
        self.lock, self.is_ours = lock, False

    def take(self) -> bool:
        self.is_ours = self.lock.acquire(blocking=False)
        return self.is_ours

    def give_back(self) -> None:
        if self.is_ours:
            self.lock.release()
        self.is_ours = False

    def is_taken(self) -> bool:
        return self.lock.locked()


class World:
    """Hold the clock, the audits that are kept, and the jobs that were started."""

    def __init__(self, newest: datetime | None = None) -> None:
        self.now, self.newest = MIDNIGHT, newest
        self.jobs: list[FakeJob] = []
        self.ended: list[tuple[int, str]] = []
        self.lock = threading.Lock()
        self.schedule = self.service()

    def service(self) -> AuditSchedule:
        """Be another service over the same state."""
        return AuditSchedule(
            NIGHTLY,
            lambda: self.newest,
            self.start,
            next_time,
            lambda: self.now,
            lambda *told: self.ended.append(told),
            FakeTurn(self.lock),
        )

    def start(self) -> FakeJob:
        self.jobs.append(FakeJob())
        return self.jobs[-1]

    def at(self, **after: float) -> int:
        """Look at a time after midnight; give how many jobs were started so far."""
        self.now = MIDNIGHT + timedelta(**after)
        self.schedule.look()
        return len(self.jobs)


def test_an_audit_runs_at_its_time_and_once() -> None:
    world = World()
    assert [world.at(hours=hours) for hours in (1, 2, 2.4, 2.5, 2.6, 3)] == [0, 0, 0, 1, 1, 1]
    world.jobs[0].code, world.newest = 0, world.now
    assert [world.at(hours=hours) for hours in (4, 5, 26, 26.6, 27)] == [1, 1, 1, 2, 2]
    assert world.ended == [(0, "what it said")]
    assert world.jobs[0].told == ["close"]


def test_what_was_missed_is_made_up_for_once() -> None:
    world = World(newest=MIDNIGHT - timedelta(days=5))
    assert world.at(minutes=1) == 1
    world.jobs[0].code, world.newest = 0, world.now
    assert [world.at(minutes=minutes) for minutes in (2, 3, 100)] == [1, 1, 1]


def test_one_that_fails_waits_for_the_next_time() -> None:
    world = World()
    assert world.at(hours=2.5) == 1
    world.jobs[0].code = 1  # nothing is kept
    assert [world.at(hours=hours) for hours in (2.6, 2.7, 20, 26.4)] == [1, 1, 1, 1]
    assert world.ended == [(1, "what it said")]
    assert world.at(hours=26.5) == 2


def test_one_that_failed_is_told_until_there_is_another() -> None:
    world = World()
    assert world.at(hours=2.5) == 1
    world.jobs[0].code = 1
    world.at(hours=2.6)
    assert "what it said" in (world.schedule.fault() or "")
    world.newest = MIDNIGHT + timedelta(hours=2.7)
    assert world.schedule.fault() is None, "somebody has made one"
    assert world.at(hours=26.5) == 2
    world.jobs[1].code, world.newest = 1, world.now
    world.at(hours=27)
    assert world.schedule.fault() is None, "it found differences, and is told of itself"


def test_one_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.now = MIDNIGHT + timedelta(hours=2.5)
    monkeypatch.setattr(world.schedule, "_start", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        world.schedule.look()
    assert world.schedule.fault() == "The last audit failed: division by zero"


def test_one_that_is_overdue_is_told_while_none_is_at_work() -> None:
    world = World(newest=MIDNIGHT - timedelta(days=2))
    assert world.schedule.fault() == (
        "An audit was due at 2026-11-19 02:30 UTC, the last one began at 2026-11-19 00:00 UTC."
    )
    world.at(minutes=1)
    assert world.schedule.fault() is None, "it is at work"
    assert world.service().fault() is None, "whoever asks"
    new = World()
    assert new.schedule.fault() is None, "the first is not due yet"
    new.now = MIDNIGHT + timedelta(hours=3.5)
    assert new.schedule.fault() == "An audit was due at 2026-11-21 02:30 UTC, there was none yet."


def test_another_service_s_audit_counts() -> None:
    world = World()
    world.newest = MIDNIGHT + timedelta(hours=2.5)
    assert world.at(hours=2.6) == 0


def test_of_two_services_one_runs_the_audit_that_is_due() -> None:
    world = World()
    other = world.service()
    assert world.at(hours=2.5) == 1
    world.now += timedelta(seconds=3)
    other.look()
    assert len(world.jobs) == 1
    world.jobs[0].code = 1  # nothing is kept of it, and the other does not try again what failed a moment ago
    assert world.at(hours=2.6) == 1
    other.look()
    assert world.ended == [(1, "what it said")]
    assert len(world.jobs) == 1
    other.close()
    world.now = MIDNIGHT + timedelta(hours=26.5)
    other.look()
    assert len(world.jobs) == 2, "the turn was given back"


def test_a_turn_is_given_back_where_another_service_s_audit_landed_or_none_could_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    other = world.service()
    world.now = MIDNIGHT + timedelta(hours=2.5)
    newest = iter([None, world.now])
    monkeypatch.setattr(other, "_newest", lambda: next(newest))
    other.look()
    assert (world.jobs, world.lock.locked()) == ([], False)
    monkeypatch.setattr(world.schedule, "_start", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        world.schedule.look()
    assert not world.lock.locked()
    world.schedule.look()
    assert world.jobs == [], "it is tried at the next time"


@pytest.mark.parametrize("ends_when_asked", [True, False])
def test_the_end_of_the_service_ends_its_audit(ends_when_asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.usecases.refresh_corpora.END_SECONDS", 0.1)
    world = World()
    world.at(hours=2.5)
    world.jobs[0].ends_when_asked = ends_when_asked
    world.schedule.close()
    assert world.jobs[0].told == (["end", "close"] if ends_when_asked else ["end", "kill", "close"])
    world.schedule.close()
    assert world.ended == []

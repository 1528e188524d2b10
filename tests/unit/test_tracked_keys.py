"""Keys that a service is asked to track: one job at a time, and what became of each is told."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from service.core.errors import ConflictError, NotFoundError
from service.core.foreign_keys.sides import Side
from service.usecases import tracked_keys
from service.usecases.tracked_keys import TrackedKeys, TrackingState

LINES, LOTS = Side("s", "lines", ("a", "b")), Side("s", "lots", ("a", "b"))
NOW = datetime(2026, 11, 22, tzinfo=UTC)


class GivenJob:
    """Be a job that ends as it is told."""

    def __init__(self) -> None:
        self.code: int | None = None
        self.text = ""
        self.was_asked_to_end = self.is_closed = False

    def exit_code(self) -> int | None:
        return self.code

    def said(self) -> str:
        return self.text

    def end(self) -> None:
        self.was_asked_to_end, self.code = True, 1

    def kill(self) -> None:
        raise AssertionError("it ended when it was asked to")

    def close(self) -> None:
        self.is_closed = True


class House:
    def __init__(self) -> None:
        self.begun: list[tuple[Side, str | None, GivenJob]] = []
        self.dropped: list[Side] = []
        self.fault: OSError | None = None
        self.keys = TrackedKeys(self.start, self.dropped.append, lambda: NOW)
        self.keys._jobs._newest = 0  # numbers begin anywhere

    def start(self, key: Side, source: str | None) -> GivenJob:
        if self.fault is not None:
            raise self.fault
        job = GivenJob()
        self.begun.append((key, source, job))
        return job

    def states(self) -> list[TrackingState]:
        return [self.keys.tracking(number + 1).state for number in range(self.keys._jobs._newest)]


@pytest.fixture
def house() -> House:
    return House()


def test_one_job_runs_at_a_time_in_the_order_of_the_asking(house: House) -> None:
    first = house.keys.track(LINES, None)
    second = house.keys.track(LOTS, "postgresql://ada@host/shop")
    assert house.keys.track(LINES, None) == first, "one that waits is given instead"
    house.keys.look()
    house.keys.look()
    assert house.states() == [TrackingState.RUNNING, TrackingState.QUEUED]
    assert house.keys.track(LINES, None).tracking_id == 1, "and one that runs"
    job = house.begun[0][2]
    job.code, job.text = 0, "a warning\ns.lines(a, b) is tracked as a key since version 2: 5 rows have 5 tuples"
    house.keys.look()
    done = house.keys.tracking(first.tracking_id)
    assert (done.state, done.ended_at, done.message) == (TrackingState.TRACKED, NOW, job.text.splitlines()[1])
    assert job.is_closed
    assert house.states() == [TrackingState.TRACKED, TrackingState.RUNNING]
    assert [one[:2] for one in house.begun] == [(LINES, None), (LOTS, "postgresql://ada@host/shop")]
    assert house.keys.tracking(second.tracking_id).ended_at is None


def test_a_job_that_fails_says_why_and_its_key_may_be_asked_for_again(house: House) -> None:
    house.keys.track(LINES, None)
    house.keys.look()
    house.begun[0][2].code, house.begun[0][2].text = 1, "starting Spark\nerror: The source has no table lines.\n"
    house.keys.look()
    failed = house.keys.tracking(1)
    assert (failed.state, failed.message) == (TrackingState.FAILED, "The source has no table lines.")
    assert house.keys.track(LINES, None).tracking_id == 2


def test_one_whose_job_cannot_be_started_waits_on(house: House) -> None:
    house.keys.track(LINES, None)
    house.fault = OSError("no memory")
    with pytest.raises(OSError, match="no memory"):
        house.keys.look()
    assert house.states() == [TrackingState.QUEUED]
    house.fault = None
    house.keys.look()
    assert house.states() == [TrackingState.RUNNING]


def test_the_job_that_runs_at_the_end_is_ended(house: House) -> None:
    house.keys.close()
    house.keys.track(LINES, None)
    house.keys.look()
    house.keys.close()
    assert house.begun[0][2].was_asked_to_end
    assert house.begun[0][2].is_closed


def test_what_waits_is_bounded_and_what_is_kept_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracked_keys, "MOST_WAITING", 2)
    monkeypatch.setattr(tracked_keys, "MOST_KEPT", 3)
    house = House()
    for number in range(4):
        house.keys.track(Side("s", f"t{number}", ("a",)), None)
        house.keys.look()
        house.begun[number][2].code = 0
    house.keys.look()
    with pytest.raises(NotFoundError, match="was not asked for the tracking 1 since it started, or too long ago"):
        house.keys.tracking(1)
    assert house.keys.tracking(2).state is TrackingState.TRACKED
    house.keys.track(LINES, None)
    house.keys.track(LOTS, None)
    with pytest.raises(ConflictError, match="2 jobs wait already"):
        house.keys.track(Side("s", "more", ("a",)), None)

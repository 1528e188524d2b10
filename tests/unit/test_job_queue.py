"""Jobs that a service runs one at a time: cancelled, ended at their limit, killed, and forgotten."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from service.core.errors import ConflictError
from service.usecases.job_queue import JobQueue, JobState
from service.usecases.refresh_corpora import END_SECONDS

BEGIN = datetime(2026, 11, 22, tzinfo=UTC)


class GivenJob:
    """Be a job that ends as it is told."""

    def __init__(self, *, obeys: bool = True) -> None:
        self.code: int | None = None
        self.obeys = obeys
        self.was_killed = self.was_asked = self.is_closed = False

    def exit_code(self) -> int | None:
        return self.code

    def said(self) -> str:
        return "half of it\nis done"

    def end(self) -> None:
        self.was_asked = True
        if self.obeys:
            self.code = 143

    def kill(self) -> None:
        self.was_killed, self.code = True, 137

    def close(self) -> None:
        self.is_closed = True


class House:
    def __init__(self) -> None:
        self.now = BEGIN
        self.passed = 0.0
        self.forgotten: list[str] = []
        limit = timedelta(seconds=60)
        self.queue = JobQueue[str](lambda: self.now, 5, 3, limit, self.forgotten.append, lambda: self.passed)

    def state(self, job_id: int) -> tuple[JobState, str | None]:
        found = self.queue.find(job_id)
        assert found is not None
        return found.state, found.message

    def run(self, what: str, *, obeys: bool = True) -> tuple[int, GivenJob]:
        job = GivenJob(obeys=obeys)
        job_id = self.queue.add(what, lambda: job).job_id
        self.queue.look()
        return job_id, job


@pytest.fixture
def house() -> House:
    return House()


def test_one_that_waits_and_is_cancelled_never_begins(house: House) -> None:
    _, first = house.run("a")
    begun: list[GivenJob] = []

    def never() -> GivenJob:
        raise AssertionError("it was cancelled")

    second = house.queue.add("b", never).job_id
    third = house.queue.add("c", lambda: begun.append(GivenJob()) or begun[0]).job_id
    cancelled = house.queue.cancel(second)
    assert cancelled is not None
    assert (cancelled.state, cancelled.ended_at) == (JobState.CANCELLED, BEGIN)
    first.code = 0
    house.queue.look()
    assert house.state(third)[0] is JobState.RUNNING
    assert len(begun) == 1


def test_one_that_runs_is_asked_to_end_and_killed_when_it_does_not(house: House) -> None:
    job_id, job = house.run("a", obeys=False)
    assert house.queue.said(job_id) == "half of it\nis done"
    house.queue.cancel(job_id)
    house.queue.cancel(job_id)
    house.queue.look()
    assert (job.was_asked, job.was_killed, house.state(job_id)[0]) == (True, False, JobState.RUNNING)
    house.passed += END_SECONDS
    house.queue.look()
    house.queue.look()
    assert (job.was_killed, job.is_closed) == (True, True)
    assert house.state(job_id) == (JobState.CANCELLED, "It was cancelled.")
    assert house.queue.said(job_id) == ""
    with pytest.raises(ConflictError, match="It has ended already: cancelled"):
        house.queue.cancel(job_id)
    assert house.queue.cancel(99) is None


def test_one_that_was_done_before_it_heard_of_it_is_done(house: House) -> None:
    job_id, job = house.run("a", obeys=False)
    house.queue.cancel(job_id)
    job.code = 0
    house.queue.look()
    assert house.state(job_id) == (JobState.DONE, "is done")


def test_one_that_takes_too_long_is_ended_and_says_so(house: House) -> None:
    job_id, job = house.run("a")
    house.passed += 60
    house.queue.look()
    assert not job.was_asked
    house.passed += 1
    house.queue.look()
    house.queue.look()
    assert house.state(job_id) == (JobState.FAILED, "It took longer than 60 s, the most that it may take.")


def test_a_clock_that_jumps_ends_and_kills_nothing_and_keeps_nothing_from_its_end(house: House) -> None:
    job_id, job = house.run("a", obeys=False)
    house.now += timedelta(days=1)
    house.queue.look()
    assert not job.was_asked
    house.queue.cancel(job_id)
    house.now += timedelta(days=1)
    house.queue.look()
    assert not job.was_killed
    house.now -= timedelta(days=9)
    house.passed += END_SECONDS
    house.queue.look()
    assert job.was_killed


def test_one_that_runs_or_waits_is_not_given_up_however_many_are_asked_for(house: House) -> None:
    first, job = house.run("a")
    waiting = house.queue.add("b", GivenJob).job_id
    for what in "cdef":
        house.queue.cancel(house.queue.add(what, GivenJob).job_id)
    assert house.state(first) == (JobState.RUNNING, None)
    assert house.state(waiting) == (JobState.QUEUED, None)
    assert house.forgotten == ["c", "d", "e"]
    house.passed += 61
    house.queue.look()
    assert job.was_asked
    house.queue.look()
    assert house.state(first)[0] is JobState.FAILED
    assert house.state(waiting)[0] is JobState.RUNNING


def test_those_that_are_told_no_more_are_given_up(house: House) -> None:
    asked = []
    for what in "abcde":
        job_id, job = house.run(what)
        asked.append(job_id)
        job.code = 0
        house.queue.look()
    assert house.forgotten == ["a", "b"]
    assert [house.queue.find(job_id) is None for job_id in asked] == [True, True, False, False, False]


def test_no_number_is_given_again_after_a_restart(house: House) -> None:
    of_before = {house.run(what)[0] for what in "abc"}
    after = House()
    assert not of_before & {after.run(what)[0] for what in "abc"}
    assert [after.queue.find(job_id) for job_id in of_before] == [None] * 3

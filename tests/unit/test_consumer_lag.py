"""Since when a consumer is behind: since the newest commit, not since it was started, until its feed has been read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry

from service.observe import ConsumerObserver
from service.serving_wiring import consumer_check
from service.usecases.batches import BatchReport
from service.usecases.live_state import Accesses, BatchCounts
from tests.watching import Clock

PLACE = ("feed", 0)


def following(committed_at: datetime | None) -> ConsumerObserver:
    observer = ConsumerObserver(CollectorRegistry())
    observer.following(7, committed_at, 2, 3, {PLACE: 0})
    return observer


def test_one_that_was_just_started_is_as_old_as_its_state_until_the_feed_is_read() -> None:
    observer = following(datetime.now(UTC) - timedelta(hours=1))
    assert observer.lag_seconds() >= 3600
    observer.waiting(None)
    assert observer.lag_seconds() >= 3600, "the feed is away"
    observer.waiting({PLACE: 5})
    assert observer.lag_seconds() >= 3600, "records wait"
    assert not consumer_check(observer, 60).ok
    observer.waiting({PLACE: 0})
    assert observer.lag_seconds() == 0
    assert consumer_check(observer, 60).ok
    observer.waiting(None)
    assert consumer_check(observer, 60).ok, "it was current a moment ago"


def test_one_that_was_current_stays_so_when_the_state_is_loaded_anew() -> None:
    observer = following(datetime.now(UTC) - timedelta(hours=1))
    observer.waiting({PLACE: 0})
    observer.following(7, datetime.now(UTC) - timedelta(hours=1), 2, 3, {PLACE: 0})
    assert consumer_check(observer, 60).ok


def test_a_database_whose_clock_is_ahead_makes_no_lag_below_nothing() -> None:
    assert following(datetime.now(UTC) + timedelta(hours=1)).lag_seconds() >= 0
    assert following(None).lag_seconds() >= 0


class Clocks:
    """Be a machine's two clocks: one that somebody sets, and one that only counts."""

    def __init__(self) -> None:
        self.wall, self.passed = Clock(), Clock()
        self.wall.now = datetime(2026, 11, 24, tzinfo=UTC).timestamp()
        self.observer = ConsumerObserver(CollectorRegistry(), self.wall, self.passed)
        self.follow(7)

    def follow(self, version: int, age: float = 0) -> None:
        self.observer.following(version, datetime.fromtimestamp(self.wall.now - age, UTC), 2, 3, {PLACE: 0})

    def commit(self, version: int) -> None:
        report = BatchReport(version, BatchCounts(), Accesses(), {}, {PLACE: 5}, None, 0, 0, 0, 0)
        self.observer.committed(report)

    def lag_after(self, seconds: float, jump: float = 0) -> float:
        self.wall.now += seconds + jump
        self.passed.now += seconds
        return self.observer.lag_seconds()


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_clock_that_jumps_neither_hides_a_consumer_that_is_stuck_nor_makes_one(jump: float) -> None:
    clocks = Clocks()
    clocks.commit(8)
    assert clocks.lag_after(1, jump) == 1
    assert consumer_check(clocks.observer, 60).ok
    assert clocks.lag_after(90) == 91
    assert not consumer_check(clocks.observer, 60).ok, "it is stuck, whatever the clock says"
    clocks.follow(8, age=91 + jump)
    assert clocks.lag_after(1) == 92, "when it committed that version is known by the clock that counts"
    clocks.commit(9)
    assert clocks.lag_after(0) == 0


def test_how_old_the_state_of_another_is_is_told_by_the_clock_that_is_set_and_is_never_below_nothing() -> None:
    clocks = Clocks()
    clocks.follow(9, age=30)
    assert clocks.lag_after(1) == 31
    clocks.follow(10, age=-3600)
    assert clocks.lag_after(1) == 1

"""Since when a consumer is behind: since the newest commit, not since it was started, until its feed has been read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from prometheus_client import CollectorRegistry

from service.observe import ConsumerObserver
from service.serving_wiring import consumer_check

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

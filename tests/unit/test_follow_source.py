"""How a stream of topics is planned beside the driver, where the broker tells of less than it did."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from spark_jobs import follow_source
from spark_jobs.follow_source import ChangesReader, Positions, from_offsets, plan_of
from spark_jobs.telling import MARK

BEGIN: Positions = {("p.a", 0): 100, ("p.b", 0): 100}
LIMIT = ReadMaxRows(1000)


class Topics:
    """Be a feed that is never polled, as a planner's is; `gone` topics are those that the broker does not tell of."""

    def __init__(self) -> None:
        self.ends: Positions = dict.fromkeys(BEGIN, 150)
        self.gone: set[str] = set()
        self.is_away = False

    def rest(self) -> None:
        pass

    def positions(self) -> Positions:
        return dict(BEGIN)

    def lag(self) -> Positions | None:
        if self.is_away:
            return None
        return {place: 0 if place[0] in self.gone else self.ends[place] - at for place, at in BEGIN.items()}


@pytest.fixture
def topics() -> Topics:
    return Topics()


@pytest.fixture
def reader(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> ChangesReader:
    monkeypatch.setattr(follow_source, "LOOK_SECONDS", 0.0)
    reader = ChangesReader(plan_of("kafka://broker/?prefix=p.", BEGIN, {}, 1000, 1 << 20))
    reader._feed = topics  # type: ignore[assignment]
    return reader


def test_a_topic_that_is_not_told_of_for_a_moment_is_not_read_again(topics: Topics, reader: ChangesReader) -> None:
    first = reader.latestOffset(reader.initialOffset(), LIMIT)
    assert set(from_offsets(first).values()) == {150}
    topics.gone = {"p.b"}
    topics.ends = {("p.a", 0): 160, ("p.b", 0): 170}
    second = reader.latestOffset(first, LIMIT)
    assert from_offsets(second) == {("p.a", 0): 160, ("p.b", 0): 150}
    topics.gone = set()
    third = reader.latestOffset(second, LIMIT)
    assert [part.value for part in reader.partitions(second, third)] == [("p.b", 0, 150, 170)]


def test_what_is_there_now_is_not_nothing_where_the_broker_is_away(topics: Topics, reader: ChangesReader) -> None:
    topics.is_away = True
    with pytest.raises(RuntimeError, match=rf"{MARK}.*FeedAwayError.*no broker tells where the topics end"):
        reader.prepareForTriggerAvailableNow()
    topics.is_away = False
    reader.prepareForTriggerAvailableNow()
    topics.ends = dict.fromkeys(BEGIN, 900)
    assert set(from_offsets(reader.latestOffset(reader.initialOffset(), LIMIT)).values()) == {150}

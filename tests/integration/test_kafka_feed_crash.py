"""A feed from a real broker that goes and comes loses nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from service.stream.kafka_feed import KafkaFeed
from tests.broker import KafkaBroker
from tests.cluster import Cluster
from tests.integration.test_kafka_feed import follow, numbered, poll_until, to_the_end, values

__all__ = ["follow"]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_broker_that_goes_and_comes_loses_nothing(
    broker: KafkaBroker, cluster: Cluster, follow: Callable[..., KafkaFeed], end: str
) -> None:
    topic = cluster.topic()
    cluster.send(topic, numbered(10))
    feed = follow(topic, group_id="hinted")
    records = to_the_end(feed)
    getattr(broker, end)()
    try:
        records += poll_until(feed, lambda _: feed.disconnected)
        assert feed.lag() is None, "nobody knows what waits"
        assert feed.poll(1000, 1_000_000, 0.1) == []
        feed.committed(feed.positions())
        assert feed.positions() == {(topic, 0): 10}
    finally:
        broker.start()
    records += poll_until(feed, lambda _: not feed.disconnected)
    cluster.send(topic, numbered(10, 10))
    records += poll_until(feed, lambda more: len(more) == 10)
    assert values(records) == numbered(20)
    assert not feed.disconnected

"""Alerts go to topics of their own: none that the service itself reads or writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.config import Settings
from service.core.watch_rules import WatchError
from service.store.database import make_engine
from service.usecases.watches import Channel, ChannelKind
from service.watch_wiring import make_watches
from tests import states
from tests.broker import KafkaBroker
from tests.following import shop_tables
from tests.watching import new_watch, pair_rule


def test_a_topic_of_another_cluster_may_have_the_name_of_one_that_is_followed(
    database_url: str, broker: KafkaBroker, tmp_path: Path
) -> None:
    states.store(database_url, shop_tables())
    other = KafkaBroker(tmp_path, "subsetdBAAAAAAAAAAAAAA")
    other.start()
    engine = make_engine(database_url, "test-topics")

    def is_taken(feed: str | None) -> bool:
        register = make_watches(engine, Settings(alert_broker=broker.bootstrap_servers, feed=feed))
        channel = Channel(ChannelKind.KAFKA, topic="orders")
        try:
            register.watches.remove(register.add(new_watch(pair_rule(), channel=channel)).watch_id)
        except WatchError:
            return True
        return False

    try:
        assert not is_taken(f"kafka://{other.bootstrap_servers}/orders")
        assert is_taken(f"kafka://localhost:{broker.port}/orders"), "it is the same one by another name"
        states.execute(
            database_url,
            f"insert into feed (feed, address) values ('kafka:b', 'kafka://{other.bootstrap_servers}');"
            "insert into feed_position (feed, topic, partition, next_offset, version)"
            " values ('kafka:b', 'orders', 0, 7, 1)",
        )
        assert not is_taken(None)
        other.kill()
        assert is_taken(None), "nobody knows whether it is the same"
    finally:
        other.kill()
        engine.dispose()


@pytest.mark.parametrize(
    ("topic", "use"),
    [
        ("app.public.orders", "one of a feed that is followed"),
        ("shop.new", "one of a feed that is followed"),
        ("transitions", "that of transitions"),
        ("sent", "that of transitions"),
        ("letters", "that of dead letters"),
        ("alerts", None),
        ("orders", None),
    ],
)
def test_a_topic_that_the_service_reads_or_writes_itself_takes_no_alerts(
    database_url: str, topic: str, use: str | None
) -> None:
    """An alert is no change: in a topic that is followed it would stop the consumer."""
    states.store(database_url, shop_tables())
    states.execute(
        database_url,
        "insert into feed_position (feed, topic, partition, next_offset, version) "
        "values ('kafka c', 'app.public.orders', 0, 7, 1);"
        "insert into outgoing (sink, version) values ('kafka://b:9092/sent', 1), ('kafka://b:9092/sent contracts', 1)",
    )
    settings = Settings(
        alert_broker="b:9092",
        feed="kafka://b:9092/?prefix=shop.",
        transitions_topic="kafka://b:9092/transitions",
        dead_letter_topic="kafka://b:9092/letters",
    )
    engine = make_engine(database_url, "test-topics")
    try:
        register = make_watches(engine, settings)
        watch = new_watch(pair_rule(), channel=Channel(ChannelKind.KAFKA, topic=topic))
        if use is None:
            assert register.add(watch).channel.topic == topic
        else:
            with pytest.raises(WatchError, match=f"The topic {topic} is {use}: .* Give alerts a topic of their own"):
                register.add(watch)
            assert register.watches.all(0, 10) == []
    finally:
        engine.dispose()

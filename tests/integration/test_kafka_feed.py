"""Hold the feed from Kafka to a real broker: positions, transactions, retention."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from uuid import uuid4

import pytest
import structlog
from kafka import KafkaProducer, TopicPartition
from kafka.errors import LogTruncationError
from kafka.future import Future

from service.core.errors import FeedError
from service.core.model import RawRecord, StoredPosition
from service.stream.addresses import open_feed
from service.stream.kafka_feed import KafkaFeed
from service.stream.kafka_sockets import CLOSING
from service.usecases.bounded_feed import BoundedFeed
from tests.cluster import LARGE, Cluster
from tests.ports import free_ports
from tests.waiting import BOUND_SECONDS, wait_for

Positions = dict[tuple[str, int], int]


@pytest.fixture
def follow(cluster: Cluster) -> Iterator[Callable[..., KafkaFeed]]:
    """Start feeds of topics at positions; close them in the end."""
    feeds: list[KafkaFeed] = []

    def start(*topics: str, at: Positions | None = None, query: str = "", group_id: str | None = None) -> KafkaFeed:
        feed = open_feed(f"kafka://{cluster.servers}/{','.join(topics)}{query}", group_id=group_id)
        assert isinstance(feed, KafkaFeed)
        feeds.append(feed)
        feed.start({place: StoredPosition(offset) for place, offset in (at or {}).items()})
        return feed

    yield start
    for feed in feeds:
        feed.close()


def poll_until(feed: KafkaFeed, done: Callable[[list[RawRecord]], bool]) -> list[RawRecord]:
    """Poll until `done` says so of all records together; fail after a bound."""
    records: list[RawRecord] = []
    deadline = time.monotonic() + BOUND_SECONDS
    while not done(records):
        assert time.monotonic() < deadline, f"{len(records)} records, positions {feed.positions()}"
        records.extend(feed.poll(1000, 1_000_000, 0.2))
    return records


def to_the_end(feed: KafkaFeed) -> list[RawRecord]:
    return poll_until(feed, lambda _: feed.at_end())


def values(records: Sequence[RawRecord]) -> list[bytes | None]:
    return [record.value for record in records]


def numbered(count: int, start: int = 0) -> list[bytes | None]:
    return [b"%d" % number for number in range(start, start + count)]


# Following


def test_all_partitions_are_read_from_their_beginning(cluster: Cluster, follow: Callable[..., KafkaFeed]) -> None:
    topic, other = cluster.topic(2), cluster.topic()
    cluster.send(topic, numbered(50))
    cluster.send(topic, numbered(30, 50), partition=1)
    cluster.send(other, [b"x", None])
    feed = follow(topic, other)
    assert (feed.address, feed.at_end(), sum((feed.lag() or {}).values())) == (f"kafka://{cluster.servers}", False, 82)
    records = to_the_end(feed)
    assert values([r for r in records if (r.topic, r.partition) == (topic, 0)]) == numbered(50)
    assert values([r for r in records if (r.topic, r.partition) == (topic, 1)]) == numbered(30, 50)
    last = records[[r.topic for r in records].index(other) + 1]
    assert (last.value, last.key, last.offset) == (None, b"k", 1)
    assert last.timestamp_ms > 1_600_000_000_000
    assert feed.positions() == {(topic, 0): 50, (topic, 1): 30, (other, 0): 2}
    assert set((feed.lag() or {}).values()) == {0}


def test_waiting_leaves_nothing_to_the_search_for_garbage(cluster: Cluster, follow: Callable[..., KafkaFeed]) -> None:
    """Else what was read stays until then, and what a consumer needs of memory is left to chance."""
    topic = cluster.topic()
    cluster.send(topic, numbered(50))
    feed = follow(topic)
    to_the_end(feed)
    gc.collect()
    gc.disable()
    try:
        for waited in (0.0, 0.01) * 20:
            assert feed.poll(1000, 1_000_000, waited) == []
        cluster.send(topic, numbered(50))
        assert len(poll_until(feed, lambda records: len(records) == 50)) == 50
        assert gc.collect() < 100, "each wait left 60"
    finally:
        gc.enable()


def test_stored_positions_are_gone_on_from_and_the_groups_are_not(
    cluster: Cluster, follow: Callable[..., KafkaFeed]
) -> None:
    topic = cluster.topic()
    cluster.send(topic, numbered(10))
    first = follow(topic, group_id="hinted")
    to_the_end(first)
    first.committed({(topic, 0): 10})
    assert values(to_the_end(follow(topic, at={(topic, 0): 4}, group_id="hinted"))) == numbered(6, 4)


def test_an_empty_topic_is_at_its_end(cluster: Cluster, follow: Callable[..., KafkaFeed]) -> None:
    topic = cluster.topic()
    feed = follow(topic)
    assert feed.at_end()
    assert feed.positions() == {(topic, 0): 0}


def test_what_comes_later_is_followed_but_not_needed_for_the_end(
    cluster: Cluster, follow: Callable[..., KafkaFeed]
) -> None:
    topic = cluster.topic()
    cluster.send(topic, [b"before"])
    feed = follow(topic)
    cluster.send(topic, [b"after"])
    assert values(poll_until(feed, lambda records: len(records) == 2)) == [b"before", b"after"]
    assert feed.at_end()


@pytest.mark.parametrize(("most_records", "most_bytes"), [(7, 1_000_000), (1000, 25)])
def test_after_every_poll_a_new_feed_goes_on_without_loss_or_repetition(
    cluster: Cluster, follow: Callable[..., KafkaFeed], most_records: int, most_bytes: int
) -> None:
    topic = cluster.topic(2)
    cluster.send(topic, numbered(20))
    cluster.send(topic, numbered(20, 20), partition=1)
    got: list[RawRecord] = []
    positions: Positions = {}
    deadline = time.monotonic() + BOUND_SECONDS
    while len(got) < 40:
        assert time.monotonic() < deadline
        feed = follow(topic, at=positions)
        records = feed.poll(most_records, most_bytes, 5.0)
        assert len(records) <= most_records
        assert sum(len(r.value or b"") for r in records[:-1]) < most_bytes
        got.extend(records)
        positions = feed.positions()
        feed.close()
    assert sorted(values(got), key=lambda value: int(value or b"-1")) == numbered(40)


def test_only_what_a_transaction_committed_is_read_and_its_markers_are_passed(
    cluster: Cluster, follow: Callable[..., KafkaFeed]
) -> None:
    topic = cluster.topic()
    producer = KafkaProducer(bootstrap_servers=cluster.servers, proxy_url=CLOSING, transactional_id=f"t-{uuid4().hex}")
    try:
        producer.init_transactions()
        for value, ends in ((b"kept", producer.commit_transaction), (b"dropped", producer.abort_transaction)):
            producer.begin_transaction()
            producer.send(topic, value)
            producer.flush(timeout=BOUND_SECONDS)
            ends()
    finally:
        producer.close(timeout=5)
    feed = follow(topic)
    assert values(to_the_end(feed)) == [b"kept"]
    assert feed.positions() == {(topic, 0): 4}, "two records and two markers"
    assert set((feed.lag() or {}).values()) == {0}


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_read(cluster: Cluster, follow: Callable[..., KafkaFeed], codec: str) -> None:
    topic = cluster.topic()
    producer = KafkaProducer(bootstrap_servers=cluster.servers, proxy_url=CLOSING, compression_type=codec, linger_ms=50)
    for value in numbered(100):
        producer.send(topic, value)
    producer.close(timeout=BOUND_SECONDS)
    assert values(to_the_end(follow(topic))) == numbered(100)


def test_a_record_of_ten_megabytes_is_read(cluster: Cluster, follow: Callable[..., KafkaFeed]) -> None:
    topic = cluster.topic(**{"max.message.bytes": str(LARGE)})
    cluster.send(topic, [b"small", b"x" * 10_000_000, b"last"])
    assert [len(value or b"") for value in values(to_the_end(follow(topic)))] == [5, 10_000_000, 4]


def test_partitions_and_topics_that_appear_are_picked_up(cluster: Cluster, follow: Callable[..., KafkaFeed]) -> None:
    prefix = f"shop-{uuid4().hex}."
    topic = cluster.topic(name=prefix + "a")
    feed = follow(query=f"?prefix={prefix}")
    cluster.admin.create_partitions({topic: 2})
    other = cluster.topic(name=prefix + "b")
    poll_until(feed, lambda _: len(feed.positions()) == 3)
    cluster.send(topic, [b"first"], partition=0)
    cluster.send(topic, [b"second"], partition=1)
    cluster.send(other, [b"third"])
    assert set(values(poll_until(feed, lambda records: len(records) == 3))) == {b"first", b"second", b"third"}


def test_a_part_of_a_feed_stands_before_the_records_of_a_topic_that_appears(cluster: Cluster) -> None:
    prefix = f"shop-{uuid4().hex}."
    topic = cluster.topic(name=prefix + "a")
    cluster.send(topic, numbered(3))
    whole = open_feed(f"kafka://{cluster.servers}/?prefix={prefix}")
    polled: list[RawRecord] = []

    def reads_to(place: tuple[str, int], offset: int) -> bool:
        polled.extend(feed.poll(1000, 1_000_000, 0.2))
        return whole.positions().get(place) == offset

    with closing(BoundedFeed(whole, {(topic, 0): 2})) as feed:
        feed.start({})
        other = cluster.topic(name=prefix + "b")
        wait_for(lambda: reads_to((other, 0), 0))
        cluster.send(other, numbered(5))
        wait_for(lambda: reads_to((other, 0), 5))
        assert values(polled) == numbered(2)
        assert feed.positions() == {(topic, 0): 2, (other, 0): 0}


def test_a_topic_that_a_broker_does_not_tell_of_at_first_is_gone_on_from_its_position(
    cluster: Cluster, follow: Callable[..., KafkaFeed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that has just come back may not know all of them yet."""
    prefix = f"shop-{uuid4().hex}."
    topic, other = (cluster.topic(name=prefix + name) for name in "ab")
    cluster.send(other, numbered(5))
    find = KafkaFeed._find_partitions
    monkeypatch.setattr(KafkaFeed, "_find_partitions", lambda feed: {p for p in find(feed) if p.topic == topic})
    feed = follow(query=f"?prefix={prefix}", at={(topic, 0): 0, (other, 0): 3})
    monkeypatch.undo()
    assert values(poll_until(feed, lambda records: len(records) >= 2)) == numbered(2, 3)


def test_what_is_behind_is_told_of_the_topics_that_are_left_when_one_is_deleted(
    cluster: Cluster, follow: Callable[..., KafkaFeed]
) -> None:
    prefix = f"shop-{uuid4().hex}."
    topic, other = (cluster.topic(name=prefix + name) for name in "ab")
    cluster.send(other, numbered(2))
    feed = follow(query=f"?prefix={prefix}")
    cluster.admin.delete_topics([other])
    wait_for(lambda: other not in cluster.admin.list_topics())
    cluster.send(topic, numbered(3))
    with structlog.testing.capture_logs() as logs:
        feed.rest()
        feed.rest()
    assert feed.lag() == {(topic, 0): 3, (other, 0): 0}
    assert [log["topics"] for log in logs if log["event"] == "feed topics missing"] == [[other]]
    assert values(poll_until(feed, lambda records: len(records) >= 3))[-3:] == numbered(3)
    assert feed.at_end(), "what is gone does not come"


# Hints for lag tools


def test_the_group_shows_what_the_state_committed(cluster: Cluster, follow: Callable[..., KafkaFeed]) -> None:
    topic, group = cluster.topic(), f"group-{uuid4().hex}"
    cluster.send(topic, numbered(5))
    feed = follow(topic, group_id=group)
    to_the_end(feed)
    feed.committed({(topic, 0): 3})
    # The coordinator of a new group may not be there yet: the hint waits for an idle poll.
    poll_until(feed, lambda _: not feed._hints)
    feed.committed({(topic, 0): 5})
    feed.close()
    offsets = cluster.admin.list_group_offsets([group])[group]
    assert offsets[TopicPartition(topic, 0)].offset == 5


def test_the_group_shows_where_the_state_stands_though_nothing_new_is_committed(
    cluster: Cluster, follow: Callable[..., KafkaFeed]
) -> None:
    """What the feed before could not write is written, and what the broker has forgotten."""
    topic, group = cluster.topic(partitions=2), f"group-{uuid4().hex}"
    cluster.send(topic, numbered(5))
    feed = follow(topic, at={(topic, 0): 3}, group_id=group)
    feed.poll(1, 1_000_000, 0.0)
    poll_until(feed, lambda _: not feed._hints)
    assert cluster.admin.list_group_offsets([group])[group].keys() == {TopicPartition(topic, 0)}
    feed.close()
    assert cluster.admin.list_group_offsets([group])[group][TopicPartition(topic, 0)].offset == 3


# What a feed refuses


def test_a_missing_topic_is_named(cluster: Cluster, follow: Callable[..., KafkaFeed]) -> None:
    topic = cluster.topic()
    with pytest.raises(FeedError, match=rf"has no topic '{topic}x'; there are: .*{topic}"):
        follow(topic, topic + "x")
    with pytest.raises(FeedError, match=r"no topic begins with 'nothing-'"):
        follow(query="?prefix=nothing-")


def test_a_broker_that_is_not_there_is_named_after_a_bounded_wait() -> None:
    (port,) = free_ports(1)
    feed = open_feed(f"kafka://127.0.0.1:{port}/x", start_timeout=0.3)
    with pytest.raises(FeedError, match=rf"no Kafka broker within 0.3 s \(127.0.0.1:{port}: Connection refused\)"):
        feed.start({})


def test_a_position_that_retention_removed_is_refused_with_both_offsets(
    cluster: Cluster, follow: Callable[..., KafkaFeed]
) -> None:
    topic = cluster.topic()
    cluster.send(topic, numbered(10))
    cluster.admin.delete_records({TopicPartition(topic, 0): 6})
    assert values(to_the_end(follow(topic))) == numbered(4, 6), "without a position, reading begins at what is there"
    with pytest.raises(FeedError, match=r"stands at offset 2, but the broker's log now begins at 6.*--replace"):
        follow(topic, at={(topic, 0): 2})


def test_a_position_beyond_the_end_is_refused_with_both_offsets(
    cluster: Cluster, follow: Callable[..., KafkaFeed]
) -> None:
    topic = cluster.topic()
    cluster.send(topic, numbered(3))
    with pytest.raises(FeedError, match=r"stands at offset 4, but the broker's log ends at 3.*--replace"):
        follow(topic, at={(topic, 0): 4})


def test_records_removed_before_they_are_read_stop_the_feed(cluster: Cluster, follow: Callable[..., KafkaFeed]) -> None:
    topic = cluster.topic()
    feed = follow(topic)
    cluster.send(topic, numbered(10))
    cluster.admin.delete_records({TopicPartition(topic, 0): 10})
    with pytest.raises(FeedError, match=r"stands at offset 0, but the broker's log now begins at 10"):
        poll_until(feed, lambda _: False)


def test_records_that_the_brokers_lost_after_they_were_read_stop_the_feed(
    cluster: Cluster, follow: Callable[..., KafkaFeed]
) -> None:
    topic = cluster.topic()
    cluster.send(topic, numbered(3))
    feed = follow(topic)
    to_the_end(feed)
    assert feed._consumer is not None
    for look in (feed._note_positions, lambda: feed.poll(10, 1_000_000, 0.1)):
        feed._consumer._fetcher._cached_log_truncation = LogTruncationError({TopicPartition(topic, 0): None})
        with pytest.raises(FeedError, match=rf"lost records that were read before \(topic '{topic}', partition 0\)"):
            look()


def test_a_leader_that_does_not_say_what_it_has_is_not_waited_for(
    cluster: Cluster, follow: Callable[..., KafkaFeed], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.topic(2)
    cluster.send(topic, numbered(3))
    feed = follow(topic)
    to_the_end(feed)
    assert feed._consumer is not None
    never: Future = Future()
    waited_for: list[object] = []
    monkeypatch.setattr(feed._consumer._fetcher, "validate_offsets_if_needed", lambda timeout_ms=None: never)
    monkeypatch.setattr(feed._consumer._net, "run", lambda _, future, *more: waited_for.append(future))
    feed._note_positions()
    monkeypatch.undo()
    assert waited_for == []
    assert feed.positions() == {(topic, 0): 3, (topic, 1): 0}

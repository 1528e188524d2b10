"""Own the reading of topics between fixed offsets, for a bootstrap: what there is, and its records on any machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError, OffsetOutOfRangeError

from service.core.errors import FeedAwayError, FeedError
from service.core.model import RawRecord
from service.stream.kafka_address import open_topics
from service.stream.kafka_sockets import CLOSING

SILENT_SECONDS = 60.0
"""How long a broker may give nothing before the offset at which reading is to end."""


class TopicRange(NamedTuple):
    """Name the records of one partition between two offsets."""

    topic: str
    partition: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """Hold what the topics of an address are at one moment: the feed's name, and from where to where partitions go.

    `cut` names the topics whose first records are gone although the broker keeps no last record of each key.
    """

    feed: str
    servers: tuple[str, ...]
    ranges: tuple[TopicRange, ...]
    cut: tuple[str, ...]


def plan_topics(address: str) -> TopicPlan:
    """Find out what the topics of an address hold now; raise FeedError as a feed does at its start."""
    feed = open_topics(address)
    try:
        name = feed.name
        feed.start({})
        ranges = tuple(
            TopicRange(topic, partition, first, end)
            for (topic, partition), (first, end) in sorted(feed.extent().items())
        )
        compacted = feed.compacted({part.topic for part in ranges})
        cut = sorted({part.topic for part in ranges if part.first > 0} - compacted)
        return TopicPlan(name, tuple(feed.servers), ranges, tuple(cut))
    finally:
        feed.close()


def read_range(servers: tuple[str, ...], part: TopicRange) -> Iterator[RawRecord]:
    """Read the committed records of a range in their order; raise FeedError when it cannot be read to its end."""
    if part.first >= part.end:
        return
    consumer = _range_consumer(servers)
    try:
        yield from _read_records(consumer, part)
    finally:
        consumer.close()


def read_again(servers: tuple[str, ...], part: TopicRange) -> Iterator[RawRecord]:
    """Do what `read_range` does over a connection that is kept for the next range."""
    if servers not in _kept:
        _kept[servers] = _range_consumer(servers)
    try:
        yield from _read_records(_kept[servers], part)
    except FeedError:
        _kept.pop(servers).close()
        raise


_kept: dict[tuple[str, ...], KafkaConsumer] = {}


def _range_consumer(servers: tuple[str, ...]) -> KafkaConsumer:
    """Connect to read ranges, one after the other; raise FeedAwayError when no broker answers."""
    try:
        return KafkaConsumer(
            bootstrap_servers=list(servers),
            bootstrap_timeout_ms=10_000,
            request_timeout_ms=10_000,
            reconnect_backoff_max_ms=500,
            proxy_url=CLOSING,
            client_id="subsetd ranges",
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            allow_auto_create_topics=False,
            max_partition_fetch_bytes=4 * 1024 * 1024,
        )
    except KafkaError as error:
        raise FeedAwayError(f"no broker answers at {','.join(servers)} ({error!r}). Start it, and again.") from error


def _read_records(consumer: KafkaConsumer, part: TopicRange) -> Iterator[RawRecord]:
    """Read the committed records of a range, without headers; raises as `read_range` does."""
    place = f"topic {part.topic!r}, partition {part.partition}"
    try:
        partition = TopicPartition(part.topic, part.partition)
        consumer.assign([partition])
        consumer.seek(partition, part.first)
        quiet_since = time.monotonic()
        # The last offset may be a marker of the broker's own, which only the position passes.
        while (consumer.position(partition, timeout_ms=10_000) or part.first) < part.end:
            records = consumer.poll(timeout_ms=1000).get(partition, [])
            if records:
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since > SILENT_SECONDS:
                raise FeedAwayError(
                    f"{place}: nothing came for {SILENT_SECONDS:.0f} s before offset {part.end}. See what the broker "
                    f"says, and start again."
                )
            for record in records:
                if record.offset >= part.end:
                    return
                yield RawRecord(
                    part.topic, part.partition, record.offset, record.key, record.value, max(0, record.timestamp or 0)
                )
    except OffsetOutOfRangeError as error:
        raise FeedError(
            f"{place}: records before offset {part.end} were removed while they were read. Let the broker keep them "
            f"longer (retention.ms, retention.bytes), and bootstrap again."
        ) from error
    except KafkaError as error:
        raise FeedAwayError(f"{place}: it cannot be read ({error!r}). Mend that, and start again.") from error

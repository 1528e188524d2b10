"""Own what preflight reads of topics: are they there, what do they keep, and have their records keys."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

from service.core.errors import FeedError
from service.stream.kafka_address import open_topics
from service.stream.kafka_sockets import CLOSING
from service.usecases.preflight_facts import TopicFacts

REQUEST_MS = 10_000


def read_topics(address: str, start_timeout: float = 10.0) -> tuple[str, list[TopicFacts]]:
    """Read the feed's name and what its topics are; one that is missing has no partitions.

    Raises FeedError where no broker answers, or the address is not Kafka's.
    """
    with closing(open_topics(address, start_timeout)) as feed:
        name = feed.name
    options = {
        "bootstrap_servers": feed.servers,
        "bootstrap_timeout_ms": max(2000, int(start_timeout * 1000)),
        "reconnect_backoff_max_ms": 500,
        "proxy_url": CLOSING,
    }
    try:
        with (
            closing(KafkaAdminClient(**options)) as admin,
            closing(KafkaConsumer(**options, group_id=None, auto_offset_reset="earliest")) as consumer,
        ):
            there = set(admin.list_topics())
            wanted = sorted(t for t in there if t.startswith(feed.prefix)) if feed.prefix is not None else feed.topics
            present = [topic for topic in wanted if topic in there]
            settings = _settings(admin, present)
            return name, [
                _read(consumer, topic, settings[topic]) if topic in settings else TopicFacts(topic, 0, "", 0)
                for topic in wanted
            ]
    except KafkaError as error:
        raise FeedError(f"feed {feed.address} does not tell of its topics: {error!r}; try again") from error


def _settings(admin: KafkaAdminClient, topics: list[str]) -> dict[str, Any]:
    if not topics:
        return {}
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in topics]
    return dict(admin.describe_configs(resources, config_filter="all")["topic"])


def _read(consumer: KafkaConsumer, topic: str, settings: Any) -> TopicFacts:
    partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
    begins = consumer.beginning_offsets(partitions, timeout_ms=REQUEST_MS)
    ends = consumer.end_offsets(partitions, timeout_ms=REQUEST_MS)
    full = [partition for partition in partitions if ends[partition] > begins[partition]]
    is_keyed = None
    if full:
        consumer.assign(full)
        for partition in full:
            consumer.seek(partition, max(begins[partition], ends[partition] - 10))
        records = [
            record for found in consumer.poll(timeout_ms=REQUEST_MS, max_records=100).values() for record in found
        ]
        # A truncate has no key although its table has one, and comes alone.
        is_keyed = any(record.key is not None for record in records) if records else None
    return TopicFacts(
        topic,
        len(partitions),
        str(settings["cleanup.policy"]["value"]),
        int(settings["retention.ms"]["value"]),
        {partition.partition: begins[partition] for partition in partitions},
        is_keyed,
        {partition.partition: ends[partition] for partition in partitions},
        int(settings["min.compaction.lag.ms"]["value"]),
    )

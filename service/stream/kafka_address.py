"""Own the addresses of topics, `kafka://host:port/topic1,topic2`, apart from all that reads other feeds.

What plans a stream of Spark's is a new process whenever one begins, which waits for all that it imports.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

from service.core.errors import FeedError

if TYPE_CHECKING:
    from service.stream.kafka_feed import KafkaFeed

WAY_OUT = "give kafka://host:port/topic1,topic2 or kafka://host:port/?prefix=topics., postgresql://...?name=, file:PATH"

_SERVER = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def open_topics(address: str, start_timeout: float = 10.0) -> KafkaFeed:
    """Make the feed of an address of topics, which shows its positions nowhere; FeedError for any other address."""
    if not address.startswith("kafka://"):
        raise FeedError(f"{without_password(address)} names no topics; give kafka://host:port/topic,...")
    from service.stream.kafka_feed import KafkaFeed  # loads Kafka's client

    servers, topics, prefix = parse_kafka(address)
    return KafkaFeed(servers, topics, prefix=prefix, start_timeout=start_timeout, group_id=None)


def parse_topic(address: str) -> tuple[list[str], str]:
    """Split the address of one topic into its servers and its name; raise FeedError for any other address."""
    way_out = "give kafka://host:port/topic"
    if not address.startswith("kafka://"):
        raise FeedError(f"address {without_password(address)!r} is no topic of Kafka; {way_out}")
    servers, topics, prefix = parse_kafka(address)
    if prefix is not None or len(topics) != 1:
        raise FeedError(f"address {without_password(address)!r} does not name one topic; {way_out}")
    return servers, topics[0]


def names_topic(address: str, topic: str) -> bool:
    """Tell whether an address of Kafka names a topic, by itself or by its prefix; raise FeedError for one that is none.

    Any other address names none.
    """
    if not address.startswith("kafka://"):
        return False
    _, topics, prefix = parse_kafka(address)
    return topic in topics or (prefix is not None and topic.startswith(prefix))


def may_be_one_cluster(brokers: str, address: str | None) -> bool:
    """Tell whether `host:port,...` and an address of Kafka may be of one cluster; None is an address nobody knows.

    Where their names differ both are asked, for a broker has several: who does not answer may be the same.
    """
    if address is None:
        return True
    if not address.startswith("kafka://"):
        return False
    servers, _, _ = parse_kafka(address)
    ours, _, _ = parse_kafka(f"kafka://{brokers}/any")
    if not set(servers).isdisjoint(ours):
        return True
    try:
        return _cluster_of(servers) == _cluster_of(ours)
    except FeedError:
        return True


def _cluster_of(servers: Sequence[str]) -> str:
    feed = open_topics(f"kafka://{','.join(servers)}/any", start_timeout=3.0)
    try:
        return feed.name
    finally:
        feed.close()


def parse_kafka(address: str) -> tuple[list[str], list[str], str | None]:
    """Split a Kafka address into its servers (`host:port`), topics and the prefix of topics."""
    place, _, query = address.removeprefix("kafka://").partition("?")
    hosts, _, names = place.partition("/")
    shown = without_password(address)
    if "@" in place:
        raise FeedError(f"feed address {shown!r} holds a user, and brokers are asked without one: leave it out")
    servers = []
    for host in hosts.split(","):
        match = _SERVER.fullmatch(host)
        if match is None or int(match[2] or 9092) not in range(1, 65536):
            raise FeedError(f"feed address {shown!r}: {host!r} is not host:port; {WAY_OUT}")
        servers.append(f"{match[1].lower()}:{int(match[2] or 9092)}")
    topics = [unquote(name) for name in names.split(",")] if names else []
    options = dict(parse_qsl(query, keep_blank_values=True))
    prefix = options.pop("prefix", None) or None
    if options:
        raise FeedError(f"feed address {shown!r}: unknown option {next(iter(options))!r}; only prefix= is known")
    for topic in [*topics, *([prefix] if prefix else [])]:
        if not _TOPIC.fullmatch(topic):
            raise FeedError(f"feed address {shown!r}: {topic!r} is no name of a topic; {WAY_OUT}")
    if not topics and not prefix:
        raise FeedError(f"feed address {shown!r} names no topic; {WAY_OUT}")
    return sorted(set(servers)), list(dict.fromkeys(topics)), prefix


def without_password(address: str) -> str:
    """Give an address as it may be shown."""
    return re.sub(r"//.*@", "//***@", address, flags=re.DOTALL)  # a password may have a slash or an @ in it

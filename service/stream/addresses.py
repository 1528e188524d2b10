"""Own the addresses of feeds: `kafka://host:port/topic1,topic2`, `postgresql://...?name=NAME`, `file:PATH`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast
from urllib.parse import parse_qsl, unquote

from service.core.errors import FeedError
from service.stream.file_feed import FileFeed
from service.stream.postgres_address import parse_address, source_of
from service.stream.postgres_catalog import Root
from service.stream.postgres_feed import PostgresFeed

if TYPE_CHECKING:
    from service.stream.kafka_feed import KafkaFeed

WAY_OUT = "give kafka://host:port/topic1,topic2 or kafka://host:port/?prefix=topics., postgresql://...?name=, file:PATH"

_SERVER = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def open_feed(
    address: str,
    *,
    start_timeout: float = 10.0,
    group_id: str | None = "subsetd",
    client_options: Mapping[str, object] | None = None,
    retry_seconds: float = 60.0,
    slot_warning_bytes: int = 1 << 30,
    transaction_records: int = 100_000,
    transaction_wait_seconds: float = 5.0,
    tell_held_back: Callable[[int], None] = lambda held_back: None,
    seen_roots: dict[int, Root] | None = None,
) -> KafkaFeed | FileFeed | PostgresFeed:
    """Make the feed that an address names; nothing is connected or opened before its `start`.

    `start_timeout` bounds, in seconds, how long a broker may be away at the start. `group_id` is the group
    under which positions are shown to lag tools (None: nowhere). `client_options` go to kafka-python as
    they are (`security_protocol`, `sasl_mechanism`, ...). A Postgres source that goes away is tried again for
    `retry_seconds`. Its feed tells how many bytes of log its slot holds back, and warns of more than
    `slot_warning_bytes`; its transactions of at most `transaction_records` are given in one poll, unless nothing more
    of one comes for `transaction_wait_seconds`; `seen_roots` are for all feeds of a consumer, see PostgresFeed. An
    address of another shape raises FeedError.
    """
    if address.startswith("kafka://"):
        from service.stream.kafka_feed import KafkaFeed  # loads Kafka's client

        servers, topics, prefix = _parse_kafka(address)
        return KafkaFeed(
            servers,
            topics,
            prefix=prefix,
            start_timeout=start_timeout,
            group_id=group_id,
            client_options=client_options or {},
        )
    if address.startswith("file:"):
        return FileFeed(_parse_file(address))
    if source_of(address) is not None:
        return PostgresFeed(
            parse_address(address),
            start_timeout=start_timeout,
            retry_seconds=retry_seconds,
            slot_warning_bytes=slot_warning_bytes,
            transaction_records=transaction_records,
            transaction_wait_seconds=transaction_wait_seconds,
            tell_held_back=tell_held_back,
            seen_roots=seen_roots,
        )
    raise FeedError(
        f"feed address {_without_password(address)!r} is neither kafka:// nor postgresql:// nor file:; {WAY_OUT}"
    )


def open_topics(address: str, start_timeout: float = 10.0) -> KafkaFeed:
    """Make the feed of an address of topics, which shows its positions nowhere; FeedError for any other address."""
    if not address.startswith("kafka://"):
        raise FeedError(f"{_without_password(address)} names no topics; give kafka://host:port/topic,...")
    return cast("KafkaFeed", open_feed(address, start_timeout=start_timeout, group_id=None))


def parse_topic(address: str) -> tuple[list[str], str]:
    """Split the address of one topic into its servers and its name; raise FeedError for any other address."""
    way_out = "give kafka://host:port/topic"
    if not address.startswith("kafka://"):
        raise FeedError(f"address {_without_password(address)!r} is no topic of Kafka; {way_out}")
    servers, topics, prefix = _parse_kafka(address)
    if prefix is not None or len(topics) != 1:
        raise FeedError(f"address {_without_password(address)!r} does not name one topic; {way_out}")
    return servers, topics[0]


def names_topic(address: str, topic: str) -> bool:
    """Tell whether an address of Kafka names a topic, by itself or by its prefix; raise FeedError for one that is none.

    Any other address names none.
    """
    if not address.startswith("kafka://"):
        return False
    _, topics, prefix = _parse_kafka(address)
    return topic in topics or (prefix is not None and topic.startswith(prefix))


def may_be_one_cluster(brokers: str, address: str | None) -> bool:
    """Tell whether `host:port,...` and an address of Kafka may be of one cluster; None is an address nobody knows.

    Where their names differ both are asked, for a broker has several: who does not answer may be the same.
    """
    if address is None:
        return True
    if not address.startswith("kafka://"):
        return False
    servers, _, _ = _parse_kafka(address)
    ours, _, _ = _parse_kafka(f"kafka://{brokers}/any")
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


def _parse_kafka(address: str) -> tuple[list[str], list[str], str | None]:
    """Split a Kafka address into its servers (`host:port`), topics and the prefix of topics."""
    place, _, query = address.removeprefix("kafka://").partition("?")
    hosts, _, names = place.partition("/")
    shown = _without_password(address)
    if "@" in hosts:
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


def _parse_file(address: str) -> str:
    """Give the absolute path of a file's address."""
    path = address.removeprefix("file:")
    if path.startswith("//"):
        path = unquote(path.removeprefix("//"))
        if not path.startswith("/"):
            raise FeedError(f"feed address {address!r} names another machine; give file:PATH of a file on this one")
    if not path or path == "-" or "\0" in path:
        raise FeedError(f"feed address {address!r} names no file; give file:PATH, or file:./- for a file of that name")
    return os.path.abspath(os.path.expanduser(path))


def _without_password(address: str) -> str:
    return re.sub(r"//[^/@]*@", "//***@", address)

"""Own the addresses of feeds: `kafka://host:port/topic1,topic2`, `postgresql://...?name=NAME`, `file:PATH`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

from service.core.errors import FeedError
from service.stream.file_feed import FileFeed
from service.stream.kafka_address import WAY_OUT, parse_kafka, without_password
from service.stream.postgres_address import parse_address, source_of
from service.stream.postgres_catalog import Root
from service.stream.postgres_feed import PostgresFeed

if TYPE_CHECKING:
    from service.stream.kafka_feed import KafkaFeed


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

        servers, topics, prefix = parse_kafka(address)
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
        f"feed address {without_password(address)!r} is neither kafka:// nor postgresql:// nor file:; {WAY_OUT}"
    )


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

"""Own the sending of records to one topic: idempotent, and waited for until the broker has them."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import NamedTuple

from kafka import KafkaProducer

from service.stream.kafka_address import parse_topic
from service.stream.kafka_sockets import CLOSING

LARGEST_RECORD = 256 * 1024 * 1024


class Outgoing(NamedTuple):
    """Hold one record to send."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


class TopicProducer:
    """Send records to the topic of a `kafka://host:port/topic` address; connected with the first of them."""

    def __init__(self, address: str, *, timeout: float) -> None:
        """Take an address; raise FeedError for one that names no single topic."""
        self._servers, self._topic = parse_topic(address)
        self.address = f"kafka://{','.join(self._servers)}/{self._topic}"
        self._timeout = timeout
        self._producer: KafkaProducer | None = None

    def send(self, records: Iterable[Outgoing]) -> None:
        """Send records, and wait until the broker has them all; raise KafkaError or OSError when it has not in time."""
        producer = self._producer or self._connect()
        sent = [producer.send(self._topic, one.value, key=one.key, headers=one.headers) for one in records]
        for future in sent:
            future.get(timeout=self._timeout)

    def close(self) -> None:
        """Release the connection; the next record opens another."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(timeout=1)

    def _connect(self) -> KafkaProducer:
        """Make the producer; a socket of our own asks first, because a client that fails leaves its thread behind."""
        for last, server in enumerate(self._servers, 1 - len(self._servers)):
            host, _, port = server.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), self._timeout).close()
                break
            except OSError:
                if last == 0:
                    raise
        self._producer = KafkaProducer(
            bootstrap_servers=self._servers,
            acks="all",
            enable_idempotence=True,
            max_request_size=LARGEST_RECORD,
            max_block_ms=int(self._timeout * 1000),
            bootstrap_timeout_ms=int(self._timeout * 1000),
            proxy_url=CLOSING,
        )
        return self._producer

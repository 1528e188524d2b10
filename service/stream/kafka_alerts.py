"""Own the topics of alerts: each alert as JSON under the key of its watch."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import orjson
from kafka.errors import KafkaError

from service.stream.kafka_producer import Outgoing, TopicProducer
from service.usecases.watches import ChannelError


class AlertTopic:
    """Send alerts to a topic with an idempotent producer; several threads may."""

    def __init__(self, broker: str, topic: str, *, timeout: float = 10.0) -> None:
        """Take `host:port,...` and a topic's name; raise FeedError for what is none."""
        self._producer = TopicProducer(f"kafka://{broker}/{topic}", timeout=timeout)
        self._lock = threading.Lock()

    def send(self, key: str, message: Mapping[str, Any]) -> None:
        """Send an alert and wait until the broker has it; raise ChannelError when it has not."""
        try:
            with self._lock:
                self._producer.send([Outgoing(key.encode(), orjson.dumps(message), [])])
        except (KafkaError, OSError) as error:
            self.close()
            raise ChannelError(f"The topic {self._producer.address} did not take it: {type(error).__name__}") from error

    def close(self) -> None:
        """Release the connection; the next alert opens another."""
        with self._lock:
            self._producer.close()

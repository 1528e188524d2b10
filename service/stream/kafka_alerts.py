"""Own the topics of alerts: each alert as JSON under the key of its watch."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import orjson
from kafka.errors import KafkaError

from service.stream.kafka_producer import Outgoing, TopicProducer
from service.usecases.watches import ChannelError

TURN_SECONDS = 10.0
"""How long an alert waits for one before it that the broker takes its time over."""


class AlertTopic:
    """Send alerts to a topic with an idempotent producer; several threads may."""

    def __init__(self, broker: str, topic: str, *, timeout: float = 10.0) -> None:
        """Take `host:port,...` and a topic's name; raise FeedError for what is none."""
        self._producer = TopicProducer(f"kafka://{broker}/{topic}", timeout=timeout)
        self._lock = threading.Lock()

    def send(self, key: str, message: Mapping[str, Any]) -> None:
        """Send an alert and wait until the broker has it; raise ChannelError when it has not."""
        address = self._producer.address
        # Whoever waits holds one of the threads that the alerts of all channels go out by.
        if not self._lock.acquire(timeout=TURN_SECONDS):
            raise ChannelError(f"The topic {address} has not taken another alert yet")
        try:
            self._producer.send([Outgoing(key.encode(), orjson.dumps(message), [])])
        except (KafkaError, OSError) as error:
            self._producer.close()
            raise ChannelError(f"The topic {address} did not take it: {type(error).__name__}") from error
        finally:
            self._lock.release()

    def close(self) -> None:
        """Release the connection; the next alert opens another."""
        with self._lock:
            self._producer.close()

"""Own the topic of transitions: each as JSON under the key of its pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson
from kafka.errors import KafkaError

from service.core.errors import FeedAwayError
from service.stream.kafka_producer import Outgoing, TopicProducer


class TransitionTopic:
    """Implement ports.TransitionSink with an idempotent producer; connected with the first transition."""

    def __init__(self, address: str, *, timeout: float = 10.0) -> None:
        """Take a `kafka://host:port/topic` address; raise FeedError for any other."""
        self._producer = TopicProducer(address, timeout=timeout)

    @property
    def name(self) -> str:
        """Identify the topic among the sinks of the state."""
        return self._producer.address

    def send(self, messages: Sequence[tuple[str, Mapping[str, object]]]) -> None:
        """Send messages with their keys and wait until the broker has them; raise FeedAwayError when it has not."""
        try:
            self._producer.send(Outgoing(key.encode(), orjson.dumps(message), []) for key, message in messages)
        except (KafkaError, OSError) as error:
            self.close()
            raise FeedAwayError(
                f"The topic of transitions, {self.name}, does not take them: {error!r}. They are kept and sent later: "
                f"make the topic, let its broker run, or unset SUBSETD_TRANSITIONS_TOPIC."
            ) from error

    def close(self) -> None:
        """Release the connection; the next transition opens another."""
        self._producer.close()

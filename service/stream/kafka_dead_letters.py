"""Own the topic of dead letters: records that were set aside go to it as they came, with headers that say why."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

from kafka import KafkaProducer
from kafka.errors import KafkaError

from service.core.errors import FeedAwayError
from service.core.model import BadRecord
from service.stream.addresses import parse_topic
from service.stream.kafka_sockets import CLOSING

LARGEST_RECORD = 256 * 1024 * 1024


class DeadLetterTopic:
    """Implement ports.DeadLetterSink with an idempotent producer; connected with the first letter.

    Letters are sent before the batch that sets them aside is committed: a crash between the two sends them twice.
    """

    def __init__(
        self, address: str, *, timeout: float = 30.0, client_options: Mapping[str, object] | None = None
    ) -> None:
        """Take a `kafka://host:port/topic` address; raise FeedError for any other."""
        self._servers, self._topic = parse_topic(address)
        self._timeout = timeout
        self._options = dict(client_options or {})
        self._producer: KafkaProducer | None = None

    def send(self, letters: Sequence[BadRecord]) -> None:
        """Send letters and wait until the broker has them; raise FeedAwayError when it has not in time."""
        try:
            producer = self._producer or self._connect()
            sent = [
                producer.send(self._topic, letter.record.value, key=letter.record.key, headers=headers(letter))
                for letter in letters
            ]
            for future in sent:
                future.get(timeout=self._timeout)
        except (KafkaError, OSError) as error:
            self.close()
            raise FeedAwayError(
                f"The topic of dead letters, kafka://{','.join(self._servers)}/{self._topic}, does not take them: "
                f"{error!r}. Nothing of their batch is stored: make the topic, let its broker run, or unset "
                f"SUBSETD_DEAD_LETTER_TOPIC."
            ) from error

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
            **self._options,
        )
        return self._producer

    def close(self) -> None:
        """Release the connection; the next letter opens another."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(timeout=1)


def headers(letter: BadRecord) -> list[tuple[str, bytes]]:
    """Give the headers of a letter: the record's own, and Kafka Connect's that say where it was and why it is here."""
    record, error = letter
    told = {
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "exception.class.name": type(error).__name__,
        "exception.message": str(error),
    }
    ours = [(f"__connect.errors.{name}", text.encode(errors="backslashreplace")) for name, text in told.items()]
    return [*record.headers, *ours]

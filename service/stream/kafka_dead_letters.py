"""Own the topic of dead letters: records that were set aside go to it as they came, with headers that say why."""

from __future__ import annotations

from collections.abc import Sequence

from kafka.errors import KafkaError

from service.core.errors import FeedAwayError
from service.core.model import BadRecord
from service.stream.kafka_producer import Outgoing, TopicProducer


class DeadLetterTopic:
    """Implement ports.DeadLetterSink with an idempotent producer; connected with the first letter.

    Letters are sent before the batch that sets them aside is committed: a crash between the two sends them twice.
    """

    def __init__(self, address: str, *, timeout: float = 30.0) -> None:
        """Take a `kafka://host:port/topic` address; raise FeedError for any other."""
        self._producer = TopicProducer(address, timeout=timeout)

    def send(self, letters: Sequence[BadRecord]) -> None:
        """Send letters and wait until the broker has them; raise FeedAwayError when it has not in time."""
        try:
            self._producer.send(Outgoing(one.record.key, _value(one), headers(one)) for one in letters)
        except (KafkaError, OSError) as error:
            self.close()
            raise FeedAwayError(
                f"The topic of dead letters, {self._producer.address}, does not take them: {error!r}. Nothing of their "
                f"batch is stored: make the topic, let its broker run, or unset SUBSETD_DEAD_LETTER_TOPIC."
            ) from error

    def close(self) -> None:
        """Release the connection; the next letter opens another."""
        self._producer.close()


def _value(letter: BadRecord) -> bytes | None:
    """Give the value of a letter; an empty one where its place alone may be kept: the producer takes no bare record."""
    record = letter.record
    return b"" if record.key is None and record.value is None else record.value


def headers(letter: BadRecord) -> list[tuple[str, bytes]]:
    """Give the headers of a letter: the record's own, and Kafka Connect's that say where it was and why it is here.

    A header without a value gets an empty one: the producer knows no other.
    """
    record, error = letter
    told = {
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "exception.class.name": type(error).__name__,
        "exception.message": str(error),
    }
    ours = [(f"__connect.errors.{name}", text.encode(errors="backslashreplace")) for name, text in told.items()]
    return [*((name, value or b"") for name, value in record.headers), *ours]

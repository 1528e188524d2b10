"""Following on Spark sets records aside as the consumer does: some of the consumer's own tests, run over both."""

from __future__ import annotations

from tests.following import Stream
from tests.integration import test_dead_letters
from tests.integration.test_dead_letters import (
    stream,
)
from tests.spark.topic_streams import make_stream

__all__ = [
    "make_stream",
    "stream",
]


def test_a_running_consumer_hands_the_state_over_to_a_retry(database_url: str, stream: Stream) -> None:
    test_dead_letters.test_a_running_consumer_hands_the_state_over_to_a_retry(database_url, stream, over_http=False)

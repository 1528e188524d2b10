"""Following on Spark bears what the consumer bears: the consumer's own tests of crashes and outages, run over it."""

from __future__ import annotations

from tests.following import Stream
from tests.integration import test_consumer
from tests.integration.test_consumer import (
    test_a_database_session_that_dies_in_mid_batch_is_replaced,
    test_an_idle_consumer_outlives_any_number_of_short_outages,
)
from tests.spark.test_followed_alike import stream
from tests.spark.topic_streams import make_stream

__all__ = [
    "make_stream",
    "stream",
    "test_a_database_session_that_dies_in_mid_batch_is_replaced",
    "test_an_idle_consumer_outlives_any_number_of_short_outages",
]


def test_a_crash_at_any_step_loses_nothing_and_applies_nothing_twice(database_url: str, stream: Stream) -> None:
    """All shards have the batch by then."""
    test_consumer.test_a_crash_at_any_step_loses_nothing_and_applies_nothing_twice(database_url, stream, "merge", 3)

"""Following on Spark applies once what comes twice, as the consumer does: the consumer's own tests, run over both."""

from __future__ import annotations

from tests.integration.test_screening import (
    connector,
    stream,
    test_changes_are_skipped_exactly_when_their_transaction_is_visible_to_the_bootstrap,
    test_repeats_are_known_after_a_restart,
)
from tests.spark.topic_streams import make_stream

__all__ = [
    "connector",
    "make_stream",
    "stream",
    "test_changes_are_skipped_exactly_when_their_transaction_is_visible_to_the_bootstrap",
    "test_repeats_are_known_after_a_restart",
]

"""Following on Spark keeps rows as the consumer does: some of the consumer's own tests, run over both."""

from __future__ import annotations

from tests.integration.test_row_images import (
    stream,
    test_a_change_of_the_key_moves_the_row,
)
from tests.spark.topic_streams import make_stream

__all__ = [
    "make_stream",
    "stream",
    "test_a_change_of_the_key_moves_the_row",
]

"""Following on Spark changes columns as the consumer does: some of the consumer's own tests, run over both."""

from __future__ import annotations

from tests.integration.test_schema_changes import (
    stream,
    test_a_new_column_becomes_an_attribute_that_is_null_in_all_rows_there_are,
)
from tests.spark.topic_streams import make_stream

__all__ = [
    "make_stream",
    "stream",
    "test_a_new_column_becomes_an_attribute_that_is_null_in_all_rows_there_are",
]

"""Own the following of a topic on Spark in tests: what the consumer's own tests are given to run over it, too."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
from pyspark.sql import SparkSession

from service.core.cell_decoding import WireSettings
from service.store.writer import PostgresWriter
from service.stream.addresses import open_feed
from service.usecases import ports
from service.usecases.feed_session import Session
from service.usecases.following import Following
from spark_jobs.follow_tasks import Decoding
from spark_jobs.stream import Stream as SparkStream
from spark_jobs.streamed_session import StreamedSession
from tests import states
from tests.cluster import Cluster
from tests.following import MakeStream, Stream
from tests.states import Tables
from tests.waiting import BOUND_SECONDS

SHARDS = 2
MakeSession = Callable[[Following], Session]


def on_spark(spark: SparkSession, writer: PostgresWriter, url: str, address: str, records: int) -> MakeSession:
    """Give the session that follows an address on Spark."""

    def make(following: Following) -> Session:
        decoding = Decoding(WireSettings(), None, "refuse")
        stream = SparkStream(spark, writer, url, address, records, decoding, following.cache_bytes)
        # Spark waits 10 s for a Python to start, not more.
        following.retry_seconds = following.retry_seconds or BOUND_SECONDS
        return StreamedSession(following, stream)

    return make


class TopicStream(Stream):
    """Keep tables in step with a topic of their changes, which is followed on Spark."""

    key: ClassVar[bytes | None] = b"k"

    def __init__(self, spark: SparkSession, url: str, cluster: Cluster, tables: Tables) -> None:
        super().__init__(Path("/nowhere"), tables, dict(tables.columns))
        self.spark, self.url, self.cluster = spark, url, cluster
        self.topic = cluster.topic()
        self.address = f"kafka://{cluster.servers}/{self.topic}"
        self.records = 0

    def end(self) -> int:
        return self.records

    def write(self, line: bytes) -> int:
        self.cluster.send(self.topic, [line])
        self.records += 1
        return self.records - 1

    def open_feed(self) -> ports.Feed:
        return open_feed(self.address, group_id=None)

    def sessions(self, writer: PostgresWriter, records: int) -> MakeSession:
        return on_spark(self.spark, writer, self.url, self.address, records)

    @staticmethod
    def of_shards(spark: SparkSession, url: str, cluster: Cluster, tables: Tables) -> TopicStream:
        """Deal the state out, and make the topic of its tables."""
        states.deal(url, SHARDS)
        return TopicStream(spark, url, cluster, tables)


@pytest.fixture
def make_stream(database_url: str, cluster: Cluster, spark: SparkSession) -> MakeStream:
    """Give what deals the state out and makes a topic, where tests of the consumer are given a feed file."""
    return partial(TopicStream.of_shards, spark, database_url, cluster)

"""Following on Spark does what the consumer does: some of the consumer's own tests, run over both."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from service.core.cell_decoding import WireSettings
from service.store.writer import PostgresWriter
from service.stream.addresses import open_feed
from service.usecases import ports
from service.usecases.feed_session import Following, Session
from service.usecases.follow_feed import Consumer
from spark_jobs import streamed_session
from spark_jobs.follow_tasks import Decoding
from spark_jobs.streamed_session import StreamedSession
from tests import states
from tests.cluster import Cluster
from tests.following import Stream, shop_tables
from tests.integration.test_consumer import (
    test_a_delete_of_what_was_never_inserted_stops_the_feed_in_front_of_it,
    test_a_record_that_cannot_be_applied_stops_the_feed_in_front_of_it,
    test_a_second_consumer_is_refused_and_told_who_is_the_first,
    test_a_truncate_extracts_every_attribute_of_its_table,
    test_inserts_updates_and_deletes_change_the_state_and_its_inds,
    test_records_that_cannot_be_applied_are_set_aside_on_request,
)
from tests.integration.test_kafka_following import (
    Shop,
    test_a_tracked_composite_key_is_followed_over_topics_with_a_contract_on_it,
)
from tests.states import Tables
from tests.waiting import BOUND_SECONDS

__all__ = [
    "test_a_delete_of_what_was_never_inserted_stops_the_feed_in_front_of_it",
    "test_a_record_that_cannot_be_applied_stops_the_feed_in_front_of_it",
    "test_a_second_consumer_is_refused_and_told_who_is_the_first",
    "test_a_tracked_composite_key_is_followed_over_topics_with_a_contract_on_it",
    "test_a_truncate_extracts_every_attribute_of_its_table",
    "test_inserts_updates_and_deletes_change_the_state_and_its_inds",
    "test_records_that_cannot_be_applied_are_set_aside_on_request",
]

SHARDS = 2
MakeSession = Callable[[Following], Session]


def on_spark(spark: SparkSession, writer: PostgresWriter, url: str, address: str, records: int) -> MakeSession:
    """Give the session that follows an address on Spark."""
    decoding = Decoding(WireSettings(), None, "refuse")
    stream = streamed_session.Stream(spark, writer, url, address, records, decoding, 1 << 20)

    def make(following: Following) -> Session:
        following.retry_seconds = BOUND_SECONDS  # Spark waits 10 s for a Python to start, not more
        return StreamedSession(following, stream)

    return make


class TopicStream(Stream):
    """Keep tables in step with a topic of their changes, which is followed on Spark."""

    def __init__(self, spark: SparkSession, url: str, cluster: Cluster, tables: Tables) -> None:
        super().__init__(Path("/nowhere"), tables)
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


@pytest.fixture
def stream(database_url: str, cluster: Cluster, spark: SparkSession) -> TopicStream:
    tables = shop_tables()
    states.store(database_url, tables)
    states.deal(database_url, SHARDS)
    return TopicStream(spark, database_url, cluster, tables)


class ShardedShop(Shop):
    """Be a shop whose topics are followed on Spark."""

    def __init__(self, spark: SparkSession, url: str, cluster: Cluster, tuples: dict[str, list[tuple[str, ...]]]):
        super().__init__(url, cluster, tuples)
        self.spark = spark
        states.deal(url, SHARDS)

    def consumer(self, address: str | None = None, **options: object) -> Consumer:
        consumer = super().consumer(address, **options)
        assert isinstance(consumer.writer, PostgresWriter)
        consumer.make_session = on_spark(self.spark, consumer.writer, self.url, self.feed, 1000)
        return consumer


@pytest.fixture
def make_shop(
    spark: SparkSession, database_url: str, cluster: Cluster
) -> Callable[[dict[str, list[tuple[str, ...]]]], Shop]:
    return partial(ShardedShop, spark, database_url, cluster)

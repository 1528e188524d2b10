"""Following on Spark does what the consumer does: the consumer's own tests, run over both."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from pyspark.sql import SparkSession

from service.store.writer import PostgresWriter
from service.usecases.follow_feed import Consumer
from tests import states
from tests.cluster import Cluster
from tests.following import MakeStream, Stream, shop_tables
from tests.integration import test_causes, test_consumer
from tests.integration.test_consumer import (
    test_a_batch_that_always_fails_is_given_up,
    test_a_delete_of_what_was_never_inserted_stops_the_feed_in_front_of_it,
    test_a_record_that_cannot_be_applied_stops_the_feed_in_front_of_it,
    test_a_second_consumer_is_refused_and_told_who_is_the_first,
    test_a_truncate_extracts_every_attribute_of_its_table,
    test_an_insert_only_source_keeps_members_and_refuses_deletes,
    test_consuming_before_any_bootstrap_says_what_to_do,
    test_each_version_is_told_to_whoever_listens,
    test_inserts_updates_and_deletes_change_the_state_and_its_inds,
    test_null_is_no_value_and_a_column_without_values_is_in_no_ind,
    test_records_that_cannot_be_applied_are_set_aside_on_request,
)
from tests.integration.test_kafka_following import (
    Shop,
    test_a_paused_consumer_ends_its_batch_keeps_its_lock_and_shows_a_growing_lag,
    test_a_topic_made_anew_while_it_is_followed_stops_the_feed,
    test_a_tracked_composite_key_is_followed_over_topics_with_a_contract_on_it,
    test_topics_are_known_by_their_ids_and_one_made_anew_is_refused_at_the_start,
)
from tests.spark.topic_streams import SHARDS, make_stream, on_spark

__all__ = [
    "make_stream",
    "test_a_batch_that_always_fails_is_given_up",
    "test_a_delete_of_what_was_never_inserted_stops_the_feed_in_front_of_it",
    "test_a_paused_consumer_ends_its_batch_keeps_its_lock_and_shows_a_growing_lag",
    "test_a_record_that_cannot_be_applied_stops_the_feed_in_front_of_it",
    "test_a_second_consumer_is_refused_and_told_who_is_the_first",
    "test_a_topic_made_anew_while_it_is_followed_stops_the_feed",
    "test_a_tracked_composite_key_is_followed_over_topics_with_a_contract_on_it",
    "test_a_truncate_extracts_every_attribute_of_its_table",
    "test_an_insert_only_source_keeps_members_and_refuses_deletes",
    "test_consuming_before_any_bootstrap_says_what_to_do",
    "test_each_version_is_told_to_whoever_listens",
    "test_inserts_updates_and_deletes_change_the_state_and_its_inds",
    "test_null_is_no_value_and_a_column_without_values_is_in_no_ind",
    "test_records_that_cannot_be_applied_are_set_aside_on_request",
    "test_topics_are_known_by_their_ids_and_one_made_anew_is_refused_at_the_start",
]


@pytest.fixture
def stream(make_stream: MakeStream, database_url: str) -> Stream:
    tables = shop_tables()
    states.store(database_url, tables)
    return make_stream(tables)


def test_any_history_in_any_batches_equals_recomputing(database_url: str, stream: Stream) -> None:
    test_consumer.test_any_history_in_any_batches_equals_recomputing(database_url, stream, records=40, cache_bytes=2000)


def test_the_position_is_that_of_the_change_among_many(database_url: str, make_stream: MakeStream) -> None:
    stream = test_causes.keyed(database_url, make_stream)
    test_causes.test_the_position_is_that_of_the_change_among_many(database_url, stream)


class ShardedShop(Shop):
    """Be a shop whose topics are followed on Spark."""

    def __init__(
        self, spark: SparkSession, url: str, cluster: Cluster, tuples: dict[str, list[tuple[str, ...]]] | None = None
    ) -> None:
        super().__init__(url, cluster, tuples)
        self.spark = spark
        states.deal(url, SHARDS)

    def consumer(self, address: str | None = None, **options: object) -> Consumer:
        consumer = super().consumer(address, **options)
        assert isinstance(consumer.writer, PostgresWriter)
        consumer.make_session = on_spark(self.spark, consumer.writer, self.url, address or self.feed, 1000)
        return consumer


@pytest.fixture
def shop(spark: SparkSession, database_url: str, cluster: Cluster) -> Shop:
    return ShardedShop(spark, database_url, cluster)


@pytest.fixture
def make_shop(
    spark: SparkSession, database_url: str, cluster: Cluster
) -> Callable[[dict[str, list[tuple[str, ...]]]], Shop]:
    return partial(ShardedShop, spark, database_url, cluster)

"""Own what topics are streamed with, and of how many records a micro-batch is."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from service.store.writer import PostgresWriter
from service.usecases.netted_ranges import BatchFacts
from service.usecases.warm_up import WarmUpPolicy
from spark_jobs.follow_source import RANGE_BYTES
from spark_jobs.follow_tasks import Decoding

SHARD_RECORDS = 25_000
"""Records of a micro-batch for each shard: what a micro-batch costs before it does anything is a tenth of it then."""


@dataclass(slots=True)
class Stream:
    """Say how topics are streamed: on which Spark, at most so many records in a micro-batch, how they are decoded.

    `database_url` is the state's address as executors reach it, of which `writer` is the consumer's. Of `batch_records`
    None are SHARD_RECORDS for each shard: that is `limit` once it has begun. `most_records` are as many as are in one
    now: fewer where a range of theirs would be above `range_bytes`.
    `checkpoint` is a folder for Spark's own log, of which `has_begun` tells whether a stream of ours was the last in
    it; None: one that nobody looks at again.
    """

    spark: SparkSession
    writer: PostgresWriter
    database_url: str
    address: str
    batch_records: int | None
    decoding: Decoding
    cache_bytes: int
    warm_up: WarmUpPolicy = WarmUpPolicy.BESIDE
    checkpoint: str | None = None
    has_begun: bool = False
    range_bytes: int = RANGE_BYTES
    limit: int = field(init=False, default=0)
    most_records: int = field(init=False, default=0)

    def begin(self, shards: int) -> None:
        """Begin a session with the state in so many shards."""
        limit = self.batch_records or SHARD_RECORDS * shards
        if limit != self.limit:
            self.limit = self.most_records = limit

    def fit(self, facts: BatchFacts) -> bool:
        """Learn from a micro-batch how many records one has at most; tells whether the stream is to begin anew."""
        planned = [one for one in facts.ranges if one.planned is not None and one.planned > one.first]
        kept = min(((one.end - one.first) / (one.planned - one.first) for one in planned if one.planned), default=1.0)
        if kept < 1:
            self.most_records = max(1, int(0.75 * kept * self.most_records))
            return True
        is_full = facts.counts.records >= self.most_records
        is_light = max((one.bytes for one in facts.ranges), default=0) < self.range_bytes // 4
        if is_full and is_light and self.most_records < self.limit:
            self.most_records = min(self.limit, 2 * self.most_records)
            return True
        return False

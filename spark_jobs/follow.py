"""Own the job that follows topics on Spark, until it is ended.

    python -m spark_jobs.follow --database-url URL --feed kafka://host:port/topic,... [--master local[*]]

What else a consumer's process does goes on beside it: transitions are sent, sketches kept short, watches looked at.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

from service import feed_wiring, terminal, wiring
from service.core.cell_decoding import WireSettings
from service.core.errors import FeedError
from service.follow_commands import beside_the_consumer
from service.observe import ConsumerObserver
from service.signals import ending_on_signals
from service.store.writer import PostgresWriter
from service.stream.kafka_address import without_password
from service.usecases.batches import ErrorPolicy, Totals
from service.usecases.warm_up import WarmUpPolicy
from spark_jobs.command_line import add_engine_options, parse_job
from spark_jobs.follow_tasks import Decoding
from spark_jobs.job import run_job
from spark_jobs.stream import SHARD_RECORDS, Stream
from spark_jobs.streamed_session import StreamedSession


def follow(start: Callable[[], SparkSession], given: argparse.Namespace, stop: threading.Event) -> Totals:
    """Follow topics until `stop` is set, or to their end; `start` starts Spark. Raises as `Consumer.run` does."""
    if not given.feed.startswith("kafka://"):
        feed = without_password(given.feed)
        raise FeedError(f"feed {feed}: on Spark topics alone are followed; use `subsetd consume` for all else")
    sources = {} if given.sources is None else {"feed_sources": ",".join(given.sources)}
    policy = {} if given.on_error is None else {"on_error": given.on_error}
    # What a driver has in memory of values an ordinary session has read, of few batches.
    settings = wiring.configured_settings(**sources, **policy, warm_up="off")
    registry = CollectorRegistry()
    observer = ConsumerObserver(registry)
    consumer = feed_wiring.make_consumer(given.database_url, given.feed, settings, observer)
    decoding = Decoding(
        WireSettings(settings.decimal_handling, settings.binary_handling, settings.time_precision),
        settings.schema_registry,
        settings.unknown_tables,
        feed_wiring.wanted_sources(settings),
    )
    spark = start()
    spark.conf.set("spark.sql.adaptive.enabled", "false")  # two stages, of as many tasks as they need
    writer = consumer.writer
    assert isinstance(writer, PostgresWriter)
    stream = Stream(
        spark,
        writer,
        given.database_url,
        given.feed,
        given.batch_records,
        decoding,
        settings.cache_bytes,
        WarmUpPolicy(wiring.configured_settings().warm_up),
        given.checkpoint,
    )
    consumer.make_session = lambda following: StreamedSession(following, stream)
    try:
        with beside_the_consumer(
            given.database_url, settings, registry, observer, lambda: given.until_end and not stop.is_set()
        ):
            return consumer.run(stop, given.until_end)
    finally:
        if given.stats_json is not None:
            given.stats_json.write_text(json.dumps(asdict(consumer.totals), indent=1))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m spark_jobs.follow", description="Follow topics on Spark, and keep the state current."
    )
    add = parser.add_argument
    add_engine_options(parser)
    add("--feed", required=True, help="kafka://host:port/topic,...")
    add("--until-end", action="store_true", help="end when all that is there now is applied")
    add("--on-error", choices=[policy.value for policy in ErrorPolicy], help="what becomes of a bad record")
    # Not `source`: that is where a job's source is, for which `run_job` looks on the executors.
    add(
        "--source", dest="sources", action="append", metavar="SOURCE",
        help="source that the feed is of, where several could be; repeatable",
    )  # fmt: skip
    add("--batch-records", type=int, help=f"most records of a batch (default: {SHARD_RECORDS} for each shard)")
    add("--checkpoint", help="folder for Spark's own log, which nothing rests on (default: one that is thrown away)")
    add("--stats-json", type=Path, help="write the run's figures to this file")
    add("--until-closed", action="store_true", help="end when standard input does")
    return parse_job(parser, arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job from the command line; returns the exit code."""
    given = _parse(arguments)
    stop = threading.Event()
    if given.until_closed:

        def wait_for_the_end() -> None:
            sys.stdin.read()
            stop.set()

        threading.Thread(target=wait_for_the_end, name="subsetd-closed", daemon=True).start()

    def job(start: Callable[[], SparkSession]) -> Totals:
        with ending_on_signals(stop.set):
            return follow(start, given, stop)

    def tell(totals: Totals) -> int:
        terminal.show_totals(totals)
        return 0

    return run_job(given, "follow", job, tell)


if __name__ == "__main__":
    sys.exit(main())

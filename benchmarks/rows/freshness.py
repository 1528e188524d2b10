"""Own the row `freshness`: how long a change takes from its arrival in Kafka until the API shows it."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory

import httpx

from benchmarks import tpch
from benchmarks.context import Context
from benchmarks.feeds import envelope
from benchmarks.http_answers import serving
from benchmarks.results_file import Result
from benchmarks.state import environment, server, tpch_state

SEED = 5
RATE = 1_000
SECONDS = 60
WARM_UP = 5
"""Seconds' worth of changes behind a start, which do not count: the service has caught up before the others are made.

Where they came without a pause, those of 13 seconds waited for those of the start on a machine that was half as fast.
"""

PATIENCE = 120
TOPIC = "tpch.lineitem"


def run(context: Context) -> list[Result]:
    """Offer changes of lineitem at a steady rate and watch the positions that the API names."""
    count = RATE * (WARM_UP + max(5, round(SECONDS * context.size)))
    folder = tpch.tables(context.work, context.scale_factor)
    columns = tpch.lineitem_columns(folder)
    by_kind = tpch.lineitem_changes(folder, -(-count // 3), context)
    in_turn = [change for three in zip(*by_kind.values(), strict=True) for change in three][:count]
    records = [envelope(change, tpch.NAME, columns, number) for number, change in enumerate(in_turn, 1)]
    log = context.logs / "freshness.log"
    with (
        server(context) as postgres,
        broker() as address,
        postgres.clone(tpch_state(context, postgres), "freshness") as url,
        serving(["run", "--feed", f"kafka://{address}/{TOPIC}"], environment(url), log) as client,
    ):
        cold = WARM_UP * RATE
        offered(client, address, records[:cold], 0)
        appended, delays = offered(client, address, records[cold:], cold)
    cuts = quantiles(delays, n=100)
    return [
        Result("p50 from Kafka to the API", cuts[49], "s"),
        Result("p99 from Kafka to the API", cuts[98], "s", goal="value <= 1"),
        Result("longest", max(delays), "s"),
        Result("offered", len(appended) / (appended[-1] - appended[0]), "tuples/s"),
    ]


def offered(
    client: httpx.Client, address: str, records: Sequence[bytes], before: int, at_once: int = 1, every: float = 0.005
) -> tuple[list[float], list[float]]:
    """Offer the records behind `before` others; give each one's append time, and how long it took from then.

    `at_once` is how many are sent together, `every` the pause between two questions, in seconds.
    """
    with watching(client, TOPIC, before + len(records), every) as seen:
        appended = offer(address, records, at_once)
    return appended, delays_of(appended, [(time_of, reached - before) for time_of, reached in seen])


def delays_of(appended: Sequence[float], seen: Sequence[tuple[float, int]]) -> list[float]:
    """Return, for each offset, the seconds from its append until the first answer whose position is behind it.

    `seen` holds (time, next offset) in the order of time; raise ValueError if an offset was never passed.
    """
    if not seen or seen[-1][1] < len(appended):
        raise ValueError(f"the API reached offset {seen[-1][1] if seen else 0} of {len(appended)} in {PATIENCE} s")
    offsets = [next_offset for _, next_offset in seen]
    return [seen[bisect_right(offsets, offset)][0] - time_of for offset, time_of in enumerate(appended)]


@contextmanager
def watching(client: httpx.Client, topic: str, until: int, every: float = 0.005) -> Iterator[list[tuple[float, int]]]:
    """Ask the API for its position again and again while the block runs, and then until it has reached `until`.

    `every` is the pause between two questions, in seconds.
    """
    seen: list[tuple[float, int]] = []
    giving_up = threading.Event()

    def watch() -> None:
        while not giving_up.is_set() and (not seen or seen[-1][1] < until):
            positions = client.get("/api/v1/state").raise_for_status().json()["positions"]
            reached = sum(one["next_offset"] for one in positions if one["topic"] == topic)
            seen.append((time.time(), reached))
            time.sleep(every)

    watcher = threading.Thread(target=watch, name="watcher")
    watcher.start()
    try:
        yield seen
        watcher.join(PATIENCE)
    finally:
        giving_up.set()
        watcher.join()


def offer(address: str, records: Sequence[bytes], at_once: int = 1) -> list[float]:
    """Produce the records at RATE, so many at once, and return the broker's append time of each, in seconds."""
    from kafka import KafkaProducer

    whole = {"batch_size": 4 << 20, "linger_ms": 50} if at_once > 1 else {"linger_ms": 1}
    producer = KafkaProducer(bootstrap_servers=address, acks="all", bootstrap_timeout_ms=10_000, **whole)
    try:
        started = time.perf_counter()
        sent = []
        for number, record in enumerate(records):
            ahead = started + number // at_once * at_once / RATE - time.perf_counter()
            if ahead > 0.002:
                time.sleep(ahead)
            sent.append(producer.send(TOPIC, value=record, partition=0))
        answers = [future.get(timeout=30) for future in sent]
    finally:
        producer.close()
    appended = [0.0] * len(records)
    first = min(answer.offset for answer in answers)
    for answer in answers:
        appended[answer.offset - first] = answer.timestamp / 1000
    return appended


@contextmanager
def broker(partitions: int = 1) -> Iterator[str]:
    """Run the tests' broker, a real one, with the row's topic, for a block; give its address."""
    from tests.broker import KafkaBroker

    with TemporaryDirectory(prefix="subsetd-broker-") as folder:
        broker = KafkaBroker(Path(folder))
        broker.start()
        try:
            broker.create_topic(partitions, name=TOPIC, message_timestamp_type="LogAppendTime")
            yield broker.bootstrap_servers
        finally:
            broker.stop()

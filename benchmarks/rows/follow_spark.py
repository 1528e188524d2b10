"""Own the row `follow-spark`: topics followed on Spark beside the single consumer, and what more shards would bring."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks import tpch
from benchmarks.context import Context, subsetd
from benchmarks.feeds import Change, envelope
from benchmarks.processes import run as run_process
from benchmarks.results_file import Result, exponent
from benchmarks.rows.freshness import TOPIC, broker
from benchmarks.state import Server, consume, environment, server, tpch_state
from service.core.canonical import value_keys
from service.core.shards import cuts
from spark_jobs.stream import SHARD_RECORDS

SEED = 11
TUPLES = 100_000
WARM_TUPLES = 50_000
"""In front of those that are timed: workers of Spark are started, and compile, with the first records."""

PARTITIONS = 4
SHARDS = 2
SIMULATED = (1, 2, 4, 8, 16)
"""Shards, each with a processor and a share of the feed, so that a micro-batch of n shards has n times the records."""

TABLE = "lineitem"
NOBODYS_ORDER = "-1"

SMALL = 100
"""Micro-batches of one record, which show what all of them cost."""


@dataclass(frozen=True, slots=True)
class Followed:
    """Hold the tuples a second behind the warm-up, the steps' seconds of all tuples, and those of a small batch.

    `small_alone` are those of a small batch in which nobody but the driver is at work.
    """

    rate: float
    steps: dict[str, float]
    small_batch: float
    small_alone: float
    turned: int
    """How many versions made or broke an IND."""


def run(context: Context) -> list[Result]:
    """Follow topics, each time on a copy of a state: in one process, two shards, turning INDs, and sixteen."""
    folder = tpch.tables(context.work, context.scale_factor)
    warm, tuples = context.scaled(WARM_TUPLES), context.scaled(TUPLES)
    records_of_two, records_of_many = (shards * context.scaled(SHARD_RECORDS) for shards in (SHARDS, SIMULATED[-1]))
    count = warm + tuples
    changes = tpch.lineitem_changes(folder, max(count, records_of_many) + SMALL, context)["insert"]
    columns = tpch.lineitem_columns(folder)
    records = as_records(changes, columns)
    with server(context) as postgres:
        database = tpch_state(context, postgres)
        with broker(PARTITIONS) as address:
            send(address, records[:count])
            feed = f"kafka://{address}/{TOPIC}"
            with postgres.clone(database, "follow_one"):
                consume(context, postgres, "follow_one", feed)
                single = rate(postgres, "follow_one", warm)
            few = follow(context, postgres, database, feed, SHARDS, records_of_two, (address, records[-SMALL:]))
        with broker(PARTITIONS) as address:
            turning_changes = turning(changes[:count], records_of_two, columns.index("l_orderkey"))
            send(address, as_records(turning_changes, columns))
            feed = f"kafka://{address}/{TOPIC}"
            turned = follow(context, postgres, database, feed, SHARDS, records_of_two, name="follow_turning")
        with broker(SIMULATED[-1]) as address:
            # One micro-batch as sixteen shards have it, and behind it a small one, which waits for its commit.
            send(address, records[:records_of_many] + records[-SMALL:], SIMULATED[-1])
            many = follow(context, postgres, database, f"kafka://{address}/{TOPIC}", SIMULATED[-1], records_of_many)
    batches = count / records_of_two
    if turned.turned < batches:
        raise ValueError(f"{turned.turned} of {batches:.1f} micro-batches turned an IND: the row measures all of them")
    causes = turned.steps["causes (processor)"] / count
    costs = Costs(
        few.steps["net (processor)"] / count,
        few.steps["apply (processor)"] / count,
        # Once in each of both micro-batches, whatever they have, which is in the time of a small one.
        max(0.0, alone(many.steps) - 2 * few.small_alone) / records_of_many,
        few.small_batch,
    )
    skews = [key_skew(changes[:records_of_many], shards) for shards in SIMULATED]
    rates = [costs.rate(shards, skew) for shards, skew in zip(SIMULATED, skews, strict=True)]
    ideal = SIMULATED[-1] / (costs.net + costs.applied)
    # What a second job takes beside its tasks, which two processors share.
    job = max(0.0, turned.steps["causes"] / batches - causes * records_of_two / 2)
    dear = replace(costs, net=costs.net + causes, batch=costs.batch + job)
    dear_ideal = SIMULATED[-1] / (dear.net + dear.applied)
    return [
        Result("inserts", few.rate, "tuples/s", "the single consumer", single, "ratio >= 0.6"),
        Result("reading, decoding, netting: a tuple, of a processor", 1e6 * costs.net, "µs"),
        Result("applying: a tuple, of a processor", 1e6 * costs.applied, "µs"),
        Result("16 shards, the driver alone: a tuple", 1e6 * costs.alone, "µs"),
        Result("a micro-batch of one tuple", few.small_batch, "s"),
        Result("16 shards: the largest share of netted cells, beside the mean", skews[-1], ""),
        *(
            Result(f"{shards} shards, simulated", rate, "tuples/s")
            for shards, rate in zip(SIMULATED, rates, strict=True)
        ),
        Result("shards, simulated: exponent of tuples/s", exponent(SIMULATED, rates), ""),
        Result("16 shards, simulated: efficiency", rates[-1] / ideal, "", goal="value >= 0.85"),
        Result("where each micro-batch turns an IND: tuples", turned.rate, "tuples/s", "without", few.rate),
        Result("where each micro-batch turns an IND: causes, a tuple, of a processor", 1e6 * causes, "µs"),
        Result("where each micro-batch turns an IND: the driver's second job beside its tasks", job, "s"),
        Result(
            "where each micro-batch turns an IND: 16 shards, simulated: efficiency",
            dear.rate(SIMULATED[-1], skews[-1]) / dear_ideal,
            "",
        ),
    ]


@dataclass(frozen=True, slots=True)
class Costs:
    """Hold what a tuple costs, in seconds of a processor: to net, to apply, the driver `alone`; and any micro-batch."""

    net: float
    applied: float
    alone: float
    batch: float

    def rate(self, shards: int, skew: float) -> float:
        """Simulate n shards with a processor each: give their tuples a second.

        Ranges are netted beside each other, then shards applied, until the largest is done; then the driver
        concludes what all did. The largest has `skew` times the mean.
        """
        together = SHARD_RECORDS * (self.net + self.applied * skew)
        records = shards * SHARD_RECORDS
        return records / (together + self.alone * records + self.batch)


def follow(
    context: Context,
    postgres: Server,
    database: str,
    feed: str,
    shards: int,
    batch_records: int,
    small: tuple[str, Sequence[bytes]] | None = None,
    name: str | None = None,
) -> Followed:
    """Follow the topic on Spark, on a copy of a state that is dealt out; then `small` records, which are sent now."""
    copy = name or f"follow_{shards}"
    with postgres.clone(database, copy) as url:
        run_process(
            [subsetd(), "shards", "set", str(shards)],
            log=context.logs / f"{copy}-shards.log",
            environment=environment(url),
        )
        steps = _follow(context, url, copy, feed, batch_records)
        warm = context.scaled(WARM_TUPLES)
        behind = rate(postgres, copy, warm) if batch_records <= warm else 0.0
        seconds = by_driver = 0.0
        if small is not None:
            send(*small)
            by_driver = alone(_follow(context, url, copy, feed, 1)) / SMALL
            seconds = statistics.median(gaps(postgres, copy)[-SMALL // 2 :])
        turned = turning_versions(postgres, copy)
    return Followed(behind, steps, seconds, by_driver, turned)


def alone(steps: dict[str, float]) -> float:
    """Give the seconds that nobody but the driver was at work in: of commits those in which Spark waited for them."""
    return steps["conclude"] + steps["wait"]


def _follow(context: Context, url: str, copy: str, feed: str, batch_records: int) -> dict[str, float]:
    stats = context.work / "stats.json"
    stats.unlink(missing_ok=True)
    told = ["--until-end", "--batch-records", str(batch_records), "--stats-json", stats]
    run_process(
        [subsetd(), "follow-spark", "--feed", feed, "--master", "local[2]", *told],
        log=context.logs / f"{copy}.log",
        environment={**environment(url), "SUBSETD_WARM_UP": "before"},  # as `consume` is measured
    )
    steps: dict[str, float] = json.loads(stats.read_text())["seconds"]
    context.say(f"{copy}: {', '.join(f'{step} {seconds:.2f}' for step, seconds in steps.items())}")
    return steps


def versions(postgres: Server, database: str) -> list[tuple[float, int]]:
    """Give of each version when it was committed, in seconds, and its tuples."""
    with postgres.connection(database) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM committed_at)::float, records FROM state_version WHERE kind = 'batch'"
            " ORDER BY version"
        )
        return [(seconds, int(count)) for seconds, count in cursor]


def rate(postgres: Server, database: str, warm: int) -> float:
    """Give the tuples a second from the version on that ends the warm-up; raise ValueError where none comes behind."""
    found = versions(postgres, database)
    counts = list(itertools.accumulate(count for _, count in found))
    first = next(place for place, count in enumerate(counts) if count >= warm)
    if first == len(found) - 1:
        raise ValueError(f"{database}: all {len(found)} batches are of the warm-up, none to be timed: raise --size")
    return (counts[-1] - counts[first]) / (found[-1][0] - found[first][0])


def turning_versions(postgres: Server, database: str) -> int:
    """Count the versions of batches that made or broke an IND."""
    with postgres.connection(database) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(DISTINCT version) FROM ind_transition JOIN state_version v USING (version)"
            " WHERE v.kind = 'batch'"
        )
        ((count,),) = cursor
        return int(count)


def turning(changes: Sequence[Change], every: int, order_key: int) -> list[Change]:
    """Let the change in the middle of each `every` be a line of an order that nobody has, or its deletion."""
    woven = list(changes)
    for number, place in enumerate(range(every // 2, len(woven), every)):
        row = changes[every // 2].after
        assert row is not None
        row = (*row[:order_key], NOBODYS_ORDER, *row[order_key + 1 :])
        woven[place] = Change("d", TABLE, row, None) if number % 2 else Change("c", TABLE, None, row)
    return woven


def gaps(postgres: Server, database: str) -> list[float]:
    """Give the seconds from each version to the next."""
    return [after - before for (before, _), (after, _) in itertools.pairwise(versions(postgres, database))]


def as_records(changes: Sequence[Change], columns: Sequence[str]) -> list[bytes]:
    return [envelope(change, tpch.NAME, columns, number) for number, change in enumerate(changes, 1)]


def key_skew(changes: Sequence[Change], shards: int) -> float:
    """Give how many times the mean the largest shard's share of the cells is, in one micro-batch of all changes.

    Cells are netted before they are dealt out: a value that every tuple has is one of them.
    """
    cells = {(text, column) for change in changes for column, text in enumerate(change.after or ()) if text is not None}
    keys = value_keys([text for text, _ in cells])
    sizes = np.diff(cuts(keys.take(keys.order()), shards))
    return float(sizes.max() / sizes.mean())


def send(address: str, records: Sequence[bytes], partitions: int = PARTITIONS) -> None:
    """Send records to the topic's partitions in turn."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address, acks="all", linger_ms=20, bootstrap_timeout_ms=10_000)
    try:
        sent = [
            producer.send(TOPIC, value=record, partition=number % partitions) for number, record in enumerate(records)
        ]
        for future in sent:
            future.get(timeout=60)
    finally:
        producer.close()

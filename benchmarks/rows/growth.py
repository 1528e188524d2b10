"""Own the row `growth`: how a bootstrap, the consumer and its memory grow with values, attributes and clusters."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarks import wide
from benchmarks.context import Context
from benchmarks.feeds import write_feed
from benchmarks.results_file import Result, exponent
from benchmarks.state import Server, bootstrap, consume, counts, server
from benchmarks.wide import Shape

SEED = 24
CHANGES = 20_000
DATABASE = "growth"

MIDDLE = Shape(tables=100, columns=5, clusters=20_000, values=1_000_000, inds=20)
GROWING: Mapping[str, Sequence[Shape]] = {
    "values": [replace(MIDDLE, values=values) for values in (250_000, 1_000_000, 4_000_000)],
    "attributes": [replace(MIDDLE, tables=tables) for tables in (25, 100, 400)],
    "clusters": [replace(MIDDLE, clusters=clusters) for clusters in (5_000, 20_000, 80_000)],
}
"""Three sizes of each, four times the one before, the others as in the middle."""

UNITS = {"bootstrap, CPU": "s", "consumer": "µs/value", "memory of the consumer": "GB"}


def run(context: Context) -> list[Result]:
    """Measure each size once, and fit a power of the size to what it took."""
    results = []
    with server(context) as postgres:
        for growing, shapes in GROWING.items():
            sizes, taken = [], []
            for shape in shapes:
                found, took = _measure(context, postgres, shape)
                sizes.append(found[growing])
                taken.append(took)
                context.say(f"{found}: {took}")
                results += [
                    Result(f"{found[growing]:,} {growing}: {what}", value, UNITS[what]) for what, value in took.items()
                ]
            results += [
                Result(f"{growing}, exponent: {what}", exponent(sizes, [took[what] for took in taken]), "")
                for what in UNITS
            ]
    return results


def _measure(context: Context, postgres: Server, shape: Shape) -> tuple[dict[str, int], dict[str, float]]:
    data = wide.make(context, shape)
    changes = wide.changes(data, context.scaled(CHANGES), context)
    feed = write_feed(context.work / "growth.jsonl", changes, wide.NAME, data.columns)
    folder = context.work / "growth"
    try:
        loaded = bootstrap(context, postgres, wide.write(data, folder), wide.NAME, DATABASE)
        found = counts(postgres, DATABASE)
        consumed = consume(context, postgres, DATABASE, feed)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        postgres.drop(DATABASE)
    return found, {
        "bootstrap, CPU": loaded.usage.cpu_seconds,
        "consumer": consumed.seconds / consumed.values * 1e6,
        "memory of the consumer": consumed.measured.usage.peak_bytes / 1e9,
    }

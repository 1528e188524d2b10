"""Own the row `million-clusters`: the consumer and the answers on 5,000 attributes and a million clusters."""

from __future__ import annotations

import shutil

from benchmarks import wide
from benchmarks.context import Context
from benchmarks.feeds import write_feed
from benchmarks.http_answers import answer_seconds, serving
from benchmarks.results_file import Result
from benchmarks.state import bootstrap, consume, counts, environment, server

SEED = 23
DATABASE = "million_clusters"
CHANGES = 100_000
PAGES = {
    "first page of INDs": "uinds?limit=100",
    "page of INDs, a thousand": "uinds?limit=1000",
    "INDs of one attribute": "uinds?limit=100&dependent=wide.t0.c0",
}


def run(context: Context) -> list[Result]:
    """Bootstrap the made tables, ask for pages of INDs, then apply changes in one run of the consumer."""
    shape = wide.MANY_TABLES
    data = wide.make(context, shape)
    changes = wide.changes(data, context.scaled(CHANGES), context)
    feed = write_feed(context.work / f"{DATABASE}.jsonl", changes, wide.NAME, data.columns)
    folder = context.work / DATABASE
    shutil.rmtree(folder, ignore_errors=True)
    with server(context) as postgres:
        loaded = bootstrap(context, postgres, wide.write(data, folder), wide.NAME, DATABASE)
        found = counts(postgres, DATABASE)
        context.say(f"made: {found}, in {loaded.seconds:.0f} s")
        with serving(["serve"], environment(postgres.url(DATABASE)), context.logs / f"serve-{DATABASE}.log") as client:
            pages = {name: answer_seconds(client, f"/api/v1/{path}") for name, path in PAGES.items()}
        consumed = consume(context, postgres, DATABASE, feed)
        steps = ", ".join(f"{step} {seconds:.2f}" for step, seconds in consumed.steps.items())
        context.say(f"{consumed.tuples_per_second:,.0f} tuples/s in {consumed.batches} batches; seconds: {steps}")
        postgres.drop(DATABASE)
    shutil.rmtree(folder)
    return [
        Result("attributes", found["attributes"], "", goal=f"value = {shape.attributes}"),
        Result("clusters", found["clusters"], "", goal=f"value = {data.clusters}"),
        Result("INDs", found["inds"], "", goal=f"value = {shape.inds}"),
        Result("bootstrap", loaded.seconds, "s"),
        Result("the consumer, tables of 5 columns", consumed.tuples_per_second, "tuples/s", goal="value >= 5000"),
        Result("peak of the consumer", consumed.measured.usage.peak_bytes / 1e9, "GB", goal="value <= 4"),
        *(Result(f"answer: {name}", seconds * 1e3, "ms", goal="value <= 50") for name, seconds in pages.items()),
    ]

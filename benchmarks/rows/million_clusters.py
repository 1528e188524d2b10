"""Own the row `million-clusters`: the consumer and the answers on 5,000 attributes and a million clusters."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor

from benchmarks import wide
from benchmarks.context import Context
from benchmarks.feeds import write_feed
from benchmarks.http_answers import answer_seconds, percentile_99, serving, walked_seconds
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
WALKED = ("uinds?limit=10", "uinds?limit=10&as_of=1")
"""Lists of which every page is asked for, from the first to the last."""


def run(context: Context) -> list[Result]:
    """Bootstrap the made tables, ask for pages of INDs, then apply changes: alone, and beside pages."""
    shape = wide.MANY_TABLES
    data = wide.make(context, shape)
    changes = wide.changes(data, 2 * context.scaled(CHANGES), context)
    feed, later = (
        write_feed(context.work / f"{DATABASE}{name}.jsonl", part, wide.NAME, data.columns)
        for name, part in (("", changes[: len(changes) // 2]), ("-later", changes[len(changes) // 2 :]))
    )
    folder = context.work / DATABASE
    shutil.rmtree(folder, ignore_errors=True)
    with server(context) as postgres:
        loaded = bootstrap(context, postgres, wide.write(data, folder), wide.NAME, DATABASE)
        found = counts(postgres, DATABASE)
        context.say(f"made: {found}, in {loaded.seconds:.0f} s")
        with serving(["serve"], environment(postgres.url(DATABASE)), context.logs / f"serve-{DATABASE}.log") as client:
            pages = {name: answer_seconds(client, f"/api/v1/{path}") for name, path in PAGES.items()}
            still = [seconds for path in WALKED for seconds in walked_seconds(client, f"/api/v1/{path}")]
        consumed = consume(context, postgres, DATABASE, feed)
        steps = ", ".join(f"{step} {seconds:.2f}" for step, seconds in consumed.steps.items())
        context.say(f"{consumed.tuples_per_second:,.0f} tuples/s in {consumed.batches} batches; seconds: {steps}")
        with feed.open("ab") as whole:
            whole.write(later.read_bytes())
        meanwhile: list[float] = []
        with (
            serving(["serve"], environment(postgres.url(DATABASE)), context.logs / f"serve-{DATABASE}.log") as client,
            ThreadPoolExecutor(1) as pool,
        ):
            beside = pool.submit(consume, context, postgres, DATABASE, feed)
            while not beside.done():
                meanwhile += walked_seconds(client, f"/api/v1/{WALKED[0]}")
            context.say(f"{beside.result().tuples_per_second:,.0f} tuples/s beside {len(meanwhile):,} pages")
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
        Result("answer: any page of INDs, p99", percentile_99(still) * 1e3, "ms", goal="value <= 50"),
        Result("answer: the same while changes are applied, p99", percentile_99(meanwhile) * 1e3, "ms"),
    ]

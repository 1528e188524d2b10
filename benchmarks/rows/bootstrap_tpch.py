"""Own the row `bootstrap-tpch`: TPC-H into a stored and indexed state, beside a discovery that stores nothing."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks import profilers, tpch
from benchmarks.context import Context
from benchmarks.processes import Measured
from benchmarks.processes import run as run_command
from benchmarks.results_file import Result
from benchmarks.state import Server, bootstrap, counts, server, tpch_database

SEED = 1
GB = 1e9


def run(context: Context) -> list[Result]:
    """Measure the baseline, the whole bootstrap and the clusters alone, one after the other."""
    folder = tpch.tables(context.work, context.scale_factor)
    found_anew = list(profilers.installed(context, folder))
    if not any(one.name == profilers.SPIDER for one in found_anew):
        context.say("the goals' baseline is missing: in its place stands the reference in plain Python")
        reference = profilers.run_module(context, folder, "reference C (no Desbordante)", "benchmarks.reference")
        found_anew = [reference, *found_anew]
    for name, beside, inds in found_anew:
        context.say(f"{name}: {beside.seconds:.1f} s, {inds} INDs")
    (name, beside, inds), *others = found_anew
    with server(context) as postgres:
        database = tpch_database(context)
        whole = bootstrap(context, postgres, folder, tpch.NAME, database)
        found = counts(postgres, database)
        context.say(f"bootstrap: {whole.seconds:.1f} s, {found}")
        clusters = _clusters_only(context, postgres, folder)
        context.say(f"clusters only: {clusters.seconds:.1f} s")
    goals = {what: f"value = {number}" for what, number in tpch.EXPECTED.items() if context.scale_factor == 1}
    memory, server_memory = whole.usage.peak_bytes / GB, whole.beside["postgres"].peak_bytes / GB
    return [
        Result("attributes", found["attributes"], "", goal=goals.get("attributes")),
        Result("clusters", found["clusters"], "", goal=goals.get("clusters")),
        Result("INDs", found["inds"], "", name, inds, goal=goals.get("inds")),
        Result("values", found["values"], ""),
        Result("stored and indexed", whole.seconds, "s", name, beside.seconds, "ratio <= 2.5"),
        *(Result("stored and indexed", whole.seconds, "s", one.name, one.measured.seconds) for one in others),
        Result("clusters only", clusters.seconds, "s", name, beside.seconds, "ratio <= 1.5"),
        Result("CPU without Postgres", whole.usage.cpu_seconds, "s", name, beside.usage.cpu_seconds),
        Result("CPU of Postgres", whole.beside["postgres"].cpu_seconds, "s"),
        Result("peak of driver and executors", memory, "GB", name, beside.usage.peak_bytes / GB, "value <= 8"),
        Result("peak of Postgres", server_memory, "GB"),
    ]


def _clusters_only(context: Context, postgres: Server, folder: Path) -> Measured:
    """Run the job without storing anything, into a database of its own."""
    options = ["--name", tpch.NAME, "--database-url", postgres.create("clusters_only"), "--clusters-only"]
    try:
        return run_command(
            [sys.executable, "-m", "spark_jobs.bootstrap", folder, *options],
            log=context.logs / "bootstrap-clusters-only.log",
            beside={"postgres": postgres.pid},
        )
    finally:
        postgres.drop("clusters_only")

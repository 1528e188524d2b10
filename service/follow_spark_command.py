"""Own `subsetd follow-spark`: topics followed by a Spark job, a process of its own that ends with the command."""

from __future__ import annotations

from typing import Annotated

import typer

from service import wiring
from service.feed_options import OnErrorOption, SourcesOption
from service.follow_commands import StatsOption
from service.job_process import run_attached, spark_command
from service.reading_options import MasterOption, job_told


def follow_spark(
    feed: Annotated[str, typer.Option("--feed", help="kafka://host:port/topic,...")],
    master: MasterOption = None,
    until_end: Annotated[bool, typer.Option("--until-end", help="End when all that is there now is applied.")] = False,
    on_error: OnErrorOption = None,
    source: SourcesOption = None,
    batch_records: Annotated[
        int | None,
        typer.Option("--batch-records", min=1, help="Most records of a micro-batch; default 25000 for each shard."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", help="Folder for Spark's own log, which nothing rests on; default: thrown away."),
    ] = None,
    driver_memory: Annotated[
        str | None, typer.Option("--driver-memory", help="Heap of the driver; default 2g.")
    ] = None,
    stats_json: StatsOption = None,
) -> None:
    """Follow topics of Kafka on a Spark cluster, whose executors apply each batch, each a share of the values."""
    settings = wiring.configured_settings()
    given = [
        ("--on-error", on_error and on_error.value),
        ("--batch-records", batch_records),
        ("--checkpoint", checkpoint),
        ("--driver-memory", driver_memory),
        ("--stats-json", stats_json),
        *(("--source", name) for name in source or ()),
    ]
    told = [f"{option}={value}" for option, value in given if value is not None]
    told += [*job_told(master), *(["--until-end"] if until_end else [])]
    with wiring.state_database(settings) as url:
        command = spark_command("spark_jobs.follow", settings.spark_master, [f"--feed={feed}", *told, "--until-closed"])
        code = run_attached(command, [url], stays_open=True)
    if code:
        raise typer.Exit(code)

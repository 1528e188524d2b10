"""Own `subsetd keys discover`: search a source for keys of several columns, and for foreign keys that refer to them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from service import wiring
from service.core.foreign_keys.candidates import THETA
from service.core.key_search import MEMORY, MOST_COMBINATIONS, WIDTH
from service.job_process import run_attached, spark_command
from service.key_runner import backfill_told
from service.reading_options import MasterOption
from service.terminal import DocumentFormat
from service.usecases.key_values import KeyKind
from service.usecases.queries import unknown_source


def discover(
    name: Annotated[str, typer.Argument(help="Name of the source.")],
    source: Annotated[
        str | None,
        typer.Option("--source", help="Where it is, with a password if it needs one; default: where it was read."),
    ] = None,
    width: Annotated[int, typer.Option("--width", min=1, max=6, help="Most columns of a key.")] = WIDTH,
    min_coefficient: Annotated[
        float, typer.Option("--min-coefficient", min=0, max=1, help="Least coefficient of a composite foreign key.")
    ] = THETA,
    min_column_coefficient: Annotated[
        float | None,
        typer.Option(
            "--min-column-coefficient",
            min=0,
            max=1,
            help="Least coefficient of its columns, which in dirty data can be below that of the tuples; "
            "default: as --min-coefficient.",
        ),
    ] = None,
    most: Annotated[
        int, typer.Option("--most", min=1, help="Combinations of a table's columns to try at most.")
    ] = MOST_COMBINATIONS,
    memory: Annotated[int, typer.Option("--memory", min=1, help="MB of hashes that a task holds at once.")] = MEMORY
    >> 20,
    track: Annotated[
        bool,
        typer.Option(
            "--track",
            help="Track what is found from now on: of each table without a shorter or declared key the smallest, and "
            "both sides of the foreign keys that are suggested.",
        ),
    ] = False,
    master: MasterOption = None,
    format_: Annotated[DocumentFormat, typer.Option("--format", help="How to print what was found.")] = (
        DocumentFormat.TABLE
    ),
) -> None:
    """Find the smallest sets of columns that tell a table's rows apart, and composite foreign keys to them."""
    settings = wiring.configured_settings()
    given = source
    with wiring.state_database(settings) as url, TemporaryDirectory() as folder:
        if source is None:
            with wiring.reading_engine(url) as engine, wiring.make_reader(engine).snapshot() as snapshot:
                places = {one.name: one.location for one in snapshot.sources()}
            if name not in places:
                raise unknown_source(name)
            source = places[name]
        told = {
            "name": name, "width": width, "most": most, "memory": memory, "min-coefficient": min_coefficient,
            "min-column-coefficient": min_coefficient if min_column_coefficient is None else min_column_coefficient,
            "format": "json" if format_ is DocumentFormat.JSON else "text",
        }  # fmt: skip
        to_track = Path(folder) / "keys.json"
        if track:
            told["track-file"] = to_track
        on = master or settings.spark_master
        arguments = ["-", *(f"--{option}={value}" for option, value in told.items())]
        code = run_attached(spark_command("spark_jobs.key_discovery", on, arguments), [url, source])
        keys = json.loads(to_track.read_text()) if track and not code else []
        if keys:
            backfill, secrets = backfill_told(keys, given, KeyKind.DISCOVERED)
            # A document stands alone on standard output.
            output = sys.stderr if format_ is DocumentFormat.JSON else None
            code = run_attached(spark_command("spark_jobs.backfill", on, backfill), [url, *secrets], output=output)
    if code:
        raise typer.Exit(code)

"""Own `subsetd audit`: find the INDs of the tracked tables anew, and list what earlier audits found."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from service import terminal, wiring
from service.audit_runner import audit_options
from service.core.corpus_choices import Algorithm
from service.job_process import run_attached, spark_command
from service.reading_options import MasterOption
from service.terminal import Format
from service.usecases.audits import Audit

HISTORY = 20
FIELDS = (
    "audit_id",
    "version",
    "ended_at",
    "attributes",
    "value_count",
    "inds",
    "not_served",
    "not_holding",
    "algorithm",
)


def audit(
    filters: Annotated[
        str | None,
        typer.Option(
            "--filters",
            help="Give an account of these: none, paper, or names with commas between; see corpus add. Default: paper.",
            show_default=False,
        ),
    ] = None,
    algorithm: Annotated[
        Algorithm | None,
        typer.Option(
            "--algorithm",
            help="How INDs are found; signatures need all values in one process' memory. Default: "
            "SUBSETD_AUDIT_ALGORITHM, or what costs less.",
            show_default=False,
        ),
    ] = None,
    master: MasterOption = None,
    history: Annotated[bool, typer.Option("--history", help=f"List the newest {HISTORY} audits instead.")] = False,
    format_: Annotated[Format, typer.Option("--format", help="How --history prints the list.")] = Format.TABLE,
) -> None:
    """Hold the served INDs against those of all stored values, found anew; exit code 1 when something differs."""
    if history and (filters is not None or algorithm is not None or master is not None):
        raise typer.BadParameter("--history lists audits as they were: leave --filters, --algorithm and --master out")
    if not history and format_ is not Format.TABLE:
        raise typer.BadParameter(
            f"an audit tells what it finds as it goes on: --history --format {format_.value} lists it behind its end",
            param_hint="--format",
        )
    settings = wiring.configured_settings()
    with wiring.state_database(settings) as url:
        if history:
            with wiring.reading_engine(url) as engine, wiring.make_reader(engine).snapshot() as snapshot:
                _show(snapshot.audits(None, HISTORY), format_)
            return
        options = audit_options(algorithm or settings.audit_algorithm)
        if filters is not None:
            options.append(f"--filters={filters}")
        command = spark_command("spark_jobs.audit", master or settings.spark_master, options)
        code = run_attached(command, [url])
    if code:
        raise typer.Exit(code)


def _show(audits: list[Audit], format_: Format) -> None:
    if format_ is Format.JSON:
        json.dump([asdict(one) for one in audits], sys.stdout, default=str, ensure_ascii=False)
        print()
    else:
        terminal.print_list(FIELDS, ([getattr(one, field) for field in FIELDS] for one in audits), format_)

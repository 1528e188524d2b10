"""Own `subsetd preflight`: look at everything that a feed depends on, and say what would go wrong."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.text import Text

from service import feed_wiring, wiring
from service.terminal import DocumentFormat, out
from service.usecases.preflight_facts import Finding, Level

STYLES = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


def preflight(
    source: Annotated[
        str | None, typer.Option("--source", help="postgresql://... that is or will be followed.")
    ] = None,
    feed: Annotated[str | None, typer.Option("--feed", help="kafka://host:port/topic,... as consume takes it.")] = None,
    connect: Annotated[str | None, typer.Option("--connect", help="REST address of Kafka Connect.")] = None,
    format_: Annotated[DocumentFormat, typer.Option("--format", help="How to print it.")] = DocumentFormat.TABLE,
) -> None:
    """Say what would go wrong with a feed: source, connector, topics, state; exit code 1 if something would."""
    findings = feed_wiring.preflight(wiring.configured_settings(), source, feed, connect)
    if format_ is DocumentFormat.JSON:
        print(json.dumps([finding._asdict() for finding in findings], indent=1))
    else:
        for finding in findings:
            show_finding(finding)
    if any(finding.level is Level.FAIL for finding in findings):
        raise typer.Exit(1)


def show_finding(finding: Finding) -> None:
    """Print a finding in a line, and the way out below it."""
    line = Text(f"{finding.level.value:<5}", style=STYLES[finding.level])
    line.append(f"{finding.about}: {finding.found}", style="default")
    out.print(line, soft_wrap=True)
    if finding.way_out:
        out.print(Text(f"      {finding.way_out}"), soft_wrap=True)

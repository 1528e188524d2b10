"""Own `subsetd verify`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from service import wiring
from service.bootstrap_command import spark_bootstrap
from service.core.errors import NotFoundError
from service.job_process import STOPPED
from service.terminal import out
from service.usecases import queries
from service.usecases.verify import verify as verify_state


def verify(
    source: Annotated[
        list[str] | None,
        typer.Option("--source", help="NAME=ADDRESS: recompute this source from its present data; repeatable."),
    ] = None,
    sql_only: Annotated[bool, typer.Option("--sql-only", help="Check the stored state alone.")] = False,
) -> None:
    """Check the state's invariants, and hold it against a fresh recomputation; exit code 1 when something differs.

    A source is recomputed from where it was read, unless changes have been applied since: files are as they were then.
    Then give the present data with --source NAME=ADDRESS. A database that is read again must stand still meanwhile.
    """
    if sql_only and source:
        raise typer.BadParameter("it recomputes no source, so none is given with --source", param_hint="--sql-only")
    settings = wiring.configured_settings()
    given = dict(_named_address(text) for text in source or ())
    with wiring.state_database(settings) as url, wiring.reading_engine(url) as engine:
        with wiring.make_reader(engine).snapshot() as snapshot:
            state = queries.state(snapshot)
        broken = 0
        with wiring.make_verifier(engine).checks() as checks:
            newest_change = checks.newest_change
            out.print(f"Verifying version {checks.version}.")
            for finding in verify_state(checks):
                mark = "[green]holds[/]" if finding.holds else f"[bold red]{finding.violations:,} violations[/]"
                out.print(f"{finding.invariant}  {finding.statement} ({finding.checked:,} checked): {mark}")
                for example in finding.examples:
                    out.print(Text(f"      {example}"))
                broken += not finding.holds
        for one in () if sql_only else state.sources:
            has_changed = newest_change > one.bootstrapped_version
            place = "the address that was given" if one.name in given else one.location  # an address has secrets
            address = given.pop(one.name, None if has_changed else one.location)
            if address is None:
                out.print(
                    Text(
                        f"I4  {one.name} is not recomputed: changes have been applied since it was read from "
                        f"{one.location}. Give its present data: --source {one.name}=ADDRESS"
                    )
                )
                continue
            out.print(Text(f"I4  recomputing {one.name} from {place}"))
            ended = spark_bootstrap(url, settings, address, ["--name", one.name, "--check"])
            if ended in STOPPED:
                raise typer.Exit(ended)
            out.print("      [green]equal[/]" if ended == 0 else "      [bold red]it differs, or could not be read[/]")
            broken += ended != 0
    if given:
        raise queries.unknown_source(next(iter(given)))
    if broken:
        raise typer.Exit(1)


def _named_address(text: str) -> tuple[str, str]:
    name, is_given, address = text.partition("=")
    if not (name and is_given and address):
        raise NotFoundError(f"--source {text!r} is not NAME=ADDRESS.")
    return name, address

"""Own `subsetd doctor`: say what is wrong with what runs, and how to mend it."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from service import doctor as looks
from service import wiring
from service.preflight_command import show_finding
from service.usecases.preflight_facts import Level

EXIT_CODES = {Level.OK: 0, Level.WARN: 1, Level.FAIL: 2}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Say what is wrong and how to mend it: machine, settings, database, what runs, feeds; exit code 1 or 2."""
    findings = looks.examine(wiring.configured_settings())
    if as_json:
        print(json.dumps([finding._asdict() for finding in findings], indent=1))
    else:
        for finding in findings:
            show_finding(finding)
    worst = max((EXIT_CODES[finding.level] for finding in findings), default=0)
    if worst:
        raise typer.Exit(worst)

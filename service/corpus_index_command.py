"""Own `subsetd corpus index`: build what is searched for tables that join on several columns."""

from __future__ import annotations

from typing import Annotated

import typer

from service import wiring
from service.bootstrap_command import run_spark
from service.core.errors import SourceError
from service.reading_options import MasterOption


def index(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the corpus.")],
    wait: Annotated[bool, typer.Option("--wait", help="Build it here, and wait for its end.")] = False,
    master: MasterOption = None,
) -> None:
    """Index the cells of a corpus' served generation, for `subsetd joinable`; until then the one before is searched."""
    if not wait:
        raise SourceError(
            f"--wait builds the index here; a service builds it with each refresh, after subsetd corpus set {name} "
            "--joinable."
        )
    settings = wiring.configured_settings(**({} if master is None else {"spark_master": master}))
    with wiring.state_database(settings) as url:
        code = run_spark("spark_jobs.join_index", settings, [f"--corpus={name}"], [url])
    if code:
        raise typer.Exit(code)

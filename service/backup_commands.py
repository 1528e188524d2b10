"""Own `subsetd backup` and `subsetd restore`: a state with its positions in one file, and back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from service import wiring
from service.store.backup import BackupReport, back_up
from service.store.backup import restore as restore_state
from service.terminal import err, out


def backup(file: Annotated[Path, typer.Argument(help="File to write; it must not be there yet.")]) -> None:
    """Write the whole state, with the feeds' positions, to a file; a consumer goes on meanwhile.

    A state of an older release is backed up as it is: do it before an upgrade.
    """
    begin = time.monotonic()
    with wiring.database_as_it_is(wiring.configured_settings()) as url:
        report = back_up(url, file)
    _tell(report, f"are in {file} ({file.stat().st_size / 1e6:,.1f} MB)", begin)


def restore(
    file: Annotated[Path, typer.Argument(help="File that `subsetd backup` wrote.")],
    replace: Annotated[bool, typer.Option("--replace", help="Drop the state that is there.")] = False,
    without_watches: Annotated[
        bool, typer.Option("--without-watches", help="Leave watches out: a copy beside the state itself tells nobody.")
    ] = False,
) -> None:
    """Make the state that of a backup, all or nothing, and bring it to this release's schema; feeds go on from there.

    Stop consumer and service first. Alerts that waited to be sent are given up.
    """
    begin = time.monotonic()
    with wiring.database_as_it_is(wiring.configured_settings()) as url:
        report = restore_state(
            url, file, replace=replace, telling=lambda told: err.print(Text(told)), without_watches=without_watches
        )
    _tell(report, "are restored", begin)


def _tell(report: BackupReport, done: str, begin: float) -> None:
    seconds = time.monotonic() - begin
    out.print(
        Text(
            f"{report.rows:,} rows of {report.tables} tables ({report.bytes / 1e6:,.1f} MB), version {report.version}, "
            f"schema revision {report.revision}, {done}; {seconds:.1f} s."
        )
    )

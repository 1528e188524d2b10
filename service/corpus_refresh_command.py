"""Own `subsetd corpus refresh`: ask for a refresh, run it here or wait for who does, and show how far it is."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from service import corpus_wiring, wiring
from service.reading_options import MasterOption
from service.refresh_service import refresh_runner
from service.signals import ending_on_signals
from service.terminal import err, out
from service.usecases.corpora import Refresh, RefreshState
from service.usecases.refresh_corpora import WAITING

BY_COMMAND = "command line"
"""Who asks for a refresh here."""
LOOK_SECONDS = 0.1


def refresh(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the corpus.")],
    full: Annotated[bool, typer.Option("--full", help="Read everything anew, also what is unchanged.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Run it here, unless a service has taken it up, and wait for its end.")
    ] = False,
    master: MasterOption = None,
) -> None:
    """Find the inclusion dependencies of a corpus anew; what is served stays until all of it is there."""
    if master is not None and not wait:
        raise typer.BadParameter("--master is for --wait: a service runs refreshes on its own SUBSETD_SPARK_MASTER")
    settings = wiring.configured_settings(**({} if master is None else {"spark_master": master}))
    with wiring.state_database(settings) as url, wiring.reading_engine(url) as engine:
        corpora = corpus_wiring.make_corpus_register(engine, settings).corpora
        asked = corpora.request_refresh(name, full=full, requested_by=BY_COMMAND)
        if not wait:
            out.print(Text(f"refresh {asked.refresh_id} waits for `subsetd serve` or `run`; --wait runs it here"))
            return
        stop = threading.Event()
        with (
            _Shown() as shown,
            ending_on_signals(stop.set),
            refresh_runner(url, settings, cancel=True) as runner,
        ):
            ended = runner.attend(asked.refresh_id, shown, lambda: stop.wait(LOOK_SECONDS))
        if ended.state in WAITING:
            ended = corpora.refresh(asked.refresh_id)
        if ended.state is RefreshState.QUEUED:
            ended = corpora.cancel(asked.refresh_id)
    _tell(ended)
    if stop.is_set():
        raise typer.Exit(130)
    if ended.state is not RefreshState.LANDED:
        raise typer.Exit(1)


class _Shown:
    """Show on standard error how far a refresh is: a bar on a terminal, a line for each stage elsewhere."""

    def __init__(self) -> None:
        columns = [TextColumn("{task.description:<22}"), BarColumn(), TextColumn("{task.completed}/{task.total}")]
        self._bars = Progress(*columns, TimeElapsedColumn(), TextColumn("{task.fields[note]}"), console=err)
        self._stage: tuple[int, str | None] = (0, None)
        self._fault: str | None = None

    def __enter__(self) -> _Shown:
        if err.is_terminal:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def __call__(self, refresh: Refresh) -> None:
        if refresh.state is RefreshState.QUEUED and refresh.fault != self._fault:
            self._fault = refresh.fault
            again = "" if refresh.not_before is None else f" Again at {refresh.not_before:%H:%M:%S %Z}."
            err.print(Text(f"attempt {refresh.attempt}: {refresh.fault}{again}"))
        if refresh.state is not RefreshState.RUNNING:
            return
        if (refresh.attempt, refresh.stage) != self._stage:
            self._stage = refresh.attempt, refresh.stage
            if refresh.stage is not None and not err.is_terminal:
                err.print(Text(f"{refresh.stage}: {refresh.total:,}" if refresh.total else refresh.stage))
            if refresh.stage is not None and err.is_terminal:
                self._bars.add_task(refresh.stage, total=refresh.total, note="")
        if self._bars.task_ids:
            end = refresh.expected_end
            note = "" if end is None else f"until about {end.astimezone():%H:%M:%S}"
            self._bars.update(self._bars.task_ids[-1], completed=refresh.done or 0, total=refresh.total, note=note)


def _tell(refresh: Refresh) -> None:
    if refresh.state is RefreshState.LANDED:
        out.print(Text(f"generation {refresh.generation} of {refresh.corpus}: {_found(refresh.report or {})}"))
    elif refresh.state is RefreshState.RUNNING:
        err.print(Text(f"refresh {refresh.refresh_id} goes on; `subsetd corpus cancel {refresh.corpus}` ends it"))
    else:
        fault = f": {refresh.fault}" if refresh.fault else ""
        err.print(Text(f"refresh {refresh.refresh_id} is {refresh.state}{fault}"))


def _found(report: Mapping[str, Any]) -> str:
    """Tell in a few words what a refresh read and found."""
    told = [f"{report[name]:,} {words}" for name, words in _COUNTS.items() if name in report]
    if report.get("joinable"):
        told.append(f"{report['joinable']['tables']:,} tables indexed for joins")
    files = report.get("files", {})
    told += [f"{files[name]:,} files {words}" for name, words in _FILES.items() if files.get(name)]
    return ", ".join(told)


_COUNTS = {
    "tables": "tables",
    "columns": "columns",
    "inds": "inclusion dependencies",
    "appeared": "appeared",
    "went": "went",
}
_FILES = {"read": "read", "unchanged": "unchanged", "gone": "gone", "faults": "could not be read"}

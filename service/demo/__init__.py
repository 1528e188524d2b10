"""Own the demonstration: real tables, real changes, and what to show of them."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from rich.console import Console

from service.config import Settings, place_of
from service.usecases import queries
from service.usecases.answers import AttributeFilter, TransitionFilter, TransitionInfo
from service.usecases.foreign_key_ports import KeySnapshot
from service.usecases.foreign_keys import Question, find_foreign_keys
from service.usecases.ports import StateReader

NAME = "chinook"
TABLES = Path(__file__).parent / NAME
CHANGES = Path(__file__).parent / "changes.jsonl"
PAUSE_SECONDS = 0.15

Row = Mapping[str, str | None]
Change = tuple[str, Row | None, Row | None]
"""A table, and a row of it before and after."""


class Source(Protocol):
    """Be the database that the demonstration changes."""

    def changes_made(self) -> int:
        """Count the changes of all rounds."""

    def change(self, table: str, before: Row | None, after: Row | None) -> None:
        """Make one change, as a transaction."""


FOREIGN_KEYS = (
    ("Album.ArtistId", "Artist.ArtistId"),
    ("Customer.SupportRepId", "Employee.EmployeeId"),
    ("Employee.ReportsTo", "Employee.EmployeeId"),
    ("Invoice.CustomerId", "Customer.CustomerId"),
    ("InvoiceLine.InvoiceId", "Invoice.InvoiceId"),
    ("InvoiceLine.TrackId", "Track.TrackId"),
    ("PlaylistTrack.PlaylistId", "Playlist.PlaylistId"),
    ("PlaylistTrack.TrackId", "Track.TrackId"),
    ("Track.AlbumId", "Album.AlbumId"),
    ("Track.GenreId", "Genre.GenreId"),
    ("Track.MediaTypeId", "MediaType.MediaTypeId"),
)
"""The foreign keys that Chinook's schema declares, and that nobody tells subsetd."""


def settings_of(settings: Settings) -> Settings:
    """Give the demonstration a state of its own beside the user's."""
    return settings.model_copy(update={"database_url": None, "data_dir": settings.data_dir / "demo"})


def show_declared(reader: StateReader, out: Console) -> None:
    """Show what was found, and that the declared foreign keys are among it."""
    with reader.snapshot() as snapshot:
        counts = queries.state(snapshot).counts
        found = queries.walk(lambda key: queries.uinds(snapshot, AttributeFilter(schema=NAME), after=key))
        held = {(_short(str(one.dependent.name)), _short(str(one.referenced.name))) for one in found}
    known = [pair for pair in FOREIGN_KEYS if pair in held]
    out.print(
        f"   {counts.tables} tables, {counts.attributes} columns, {counts.values:,} values in {counts.clusters} "
        f"clusters: {counts.uinds} inclusion dependencies hold.\n"
        f"   Of the {len(FOREIGN_KEYS)} foreign keys that Chinook's schema declares (and nobody told us), "
        f"{len(known)} are among them:"
    )
    for dependent, referenced in known:
        out.print(f"     {dependent} ⊆ {referenced}")


def show_suggested(snapshot: KeySnapshot, out: Console) -> None:
    """Show how many of the declared foreign keys are suggested as such, and how many others."""
    ranking = find_foreign_keys(snapshot, Question())
    suggested = {
        tuple(", ".join(_short(str(ranking.attributes[column].name)) for column in side) for side in one.candidate)
        for one in ranking.ranked
        if one.suggested
    }
    right = suggested.intersection(FOREIGN_KEYS)
    out.print(
        f"   Ranked by names and by how their values lie among the key's, {len(right)} of these are\n"
        f"   suggested as foreign keys, and {len(suggested) - len(right) or 'nothing'} else (`subsetd foreign-keys`)."
    )


def play(
    source: Source, applied: Callable[[], int | None], reader: StateReader, out: Console, failed: threading.Event
) -> None:
    """Make a round of changes in the database, slowly, and show every foreign key that breaks or comes to hold.

    `applied` counts the changes that the consumer has applied, None while it has not begun.
    """
    while applied() is None and not failed.wait(0.05):
        pass
    seen = _version(reader)
    others = 0
    for made, change in enumerate(rest_of_round(source.changes_made()), start=1):
        source.change(*change)
        time.sleep(PAUSE_SECONDS)
        # Two changes in one batch may cancel each other out, and then nothing of them is to be seen.
        while (applied() or 0) < made and not failed.wait(0.05):
            pass
        if failed.is_set():
            return
        seen, more = _show_transitions(reader, seen, out)
        others += more
    out.print(f"   ... and {others} dependencies that are no foreign key turned on the way (version {seen}).")


def show_next(host: str, port: int, out: Console) -> None:
    """Say where the answers are, and what to try."""
    base = f"http://{place_of(host, port)}"
    # Whoever came by `make demo` has no `subsetd` on the PATH.
    command = "subsetd" if shutil.which("subsetd") else sys.argv[0]
    out.print(
        f"\n[bold]3.[/] The answers are served at [bold]{base}[/] until you press Ctrl-C. Try next:\n"
        f"   {base} in a browser: the dashboard; {base}/docs: the routes\n"
        f"   curl '{base}/api/v1/uinds?limit=5'\n"
        f"   curl '{base}/api/v1/uinds/chinook.Track.TrackId/chinook.InvoiceLine.TrackId'\n"
        f"   curl '{base}/api/v1/changes?since=0&limit=5'\n"
        f"   {command} bootstrap FOLDER-OF-YOUR-CSV-FILES --name mine, then {command} inds\n"
        f"   {command} foreign-keys --suggested",
        highlight=False,
    )


def rest_of_round(made: int) -> list[Change]:
    """Give the changes that the present round lacks: all of a new one, or what an interrupted one left out.

    A first round sells and an even one takes everything back, so that a later run begins where this one ends.
    """
    forth = [
        (line["source"]["table"], line["before"], line["after"])
        for line in map(json.loads, CHANGES.read_bytes().splitlines())
    ]
    back = [(table, after, before) for table, before, after in reversed(forth)]
    rounds, done = divmod(made, len(forth))
    return (back if rounds % 2 else forth)[done:]


def _version(reader: StateReader) -> int:
    with reader.snapshot() as snapshot:
        return snapshot.head.version


def _show_transitions(reader: StateReader, seen: int, out: Console) -> tuple[int, int]:
    """Show the foreign keys among the transitions behind version `seen`; give the newest version and how many not."""
    with reader.snapshot() as snapshot:
        version = snapshot.head.version
        chosen = TransitionFilter(since=seen)
        found = list(queries.walk(lambda key: queries.transitions(snapshot, chosen, key)))
    shown = [
        one for one in found if (_short(str(one.dependent.name)), _short(str(one.referenced.name))) in FOREIGN_KEYS
    ]
    for one in shown:
        out.print(_line(one), highlight=False)
    return version, len(found) - len(shown)


def _line(one: TransitionInfo) -> str:
    dependent, referenced = _short(str(one.dependent.name)), _short(str(one.referenced.name))
    if one.kind == "broke":
        return f"   [bold red]broke[/]       {dependent} ⊄ {referenced}: [bold]{one.witness_value}[/] is missing"
    return f"   [bold green]holds again[/] {dependent} ⊆ {referenced}, thanks to [bold]{one.witness_value}[/]"


def _short(name: str) -> str:
    return name.removeprefix(f"{NAME}.")

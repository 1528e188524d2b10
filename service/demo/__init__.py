"""Own the demonstration: real tables, real changes, and what to show of them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from service.config import Settings
from service.usecases import queries
from service.usecases.answers import AttributeFilter, TransitionFilter, TransitionInfo
from service.usecases.ports import StateReader

NAME = "chinook"
TABLES = Path(__file__).parent / NAME
CHANGES = Path(__file__).parent / "changes.jsonl"
PAUSE_SECONDS = 0.15

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


def feed_file(settings: Settings) -> Path:
    """Return the file that the demonstration's changes are appended to, made if it is not there."""
    path = settings.data_dir.absolute() / "changes.jsonl"
    path.touch()
    return path


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


def play(feed: Path, reader: StateReader, out: Console, failed: threading.Event) -> None:
    """Append a round of changes to the feed, slowly, and show every foreign key that breaks or comes to hold."""
    seen = _version(reader)
    others = 0
    for line in rest_of_round(feed):
        with feed.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        time.sleep(PAUSE_SECONDS)
        if failed.is_set():
            return
        seen, more = _show_transitions(reader, seen, out)
        others += more
    size = feed.stat().st_size
    deadline = time.monotonic() + 30
    while _applied(reader) < size and not failed.is_set() and time.monotonic() < deadline:
        time.sleep(0.05)
    seen, more = _show_transitions(reader, seen, out)
    out.print(f"   ... and {others + more} dependencies that are no foreign key turned on the way (version {seen}).")


def show_next(host: str, port: int, out: Console) -> None:
    """Say where the answers are, and what to try."""
    base = f"http://{host}:{port}"
    out.print(
        f"\n[bold]3.[/] The answers are served at [bold]{base}[/] until you press Ctrl-C. Try next:\n"
        f"   {base}/docs\n"
        f"   curl '{base}/api/v1/uinds?limit=5'\n"
        f"   curl '{base}/api/v1/uinds/chinook.Track.TrackId/chinook.InvoiceLine.TrackId'\n"
        f"   curl '{base}/api/v1/changes?since=0&limit=5'\n"
        f"   subsetd bootstrap FOLDER-OF-YOUR-CSV-FILES --name mine, then subsetd inds",
        highlight=False,
    )


def rest_of_round(feed: Path) -> list[str]:
    """Give the changes that the feed's present round lacks: all of a new one, or what an interrupted one left out.

    A first round sells and an even one takes everything back, so that a later run begins where this one ends.
    """
    rounds, done = divmod(feed.read_bytes().count(b"\n"), CHANGES.read_bytes().count(b"\n"))
    return list(_changes(backwards=rounds % 2 == 1))[done:]


def _changes(backwards: bool) -> Iterator[str]:
    lines = CHANGES.read_text(encoding="utf-8").splitlines()
    if not backwards:
        yield from lines
        return
    for line in reversed(lines):
        change = json.loads(line)
        before, after = change["after"], change["before"]
        op = "u" if before and after else "c" if after else "d"
        yield json.dumps({**change, "before": before, "after": after, "op": op}, ensure_ascii=False)


def _version(reader: StateReader) -> int:
    with reader.snapshot() as snapshot:
        return snapshot.head.version


def _applied(reader: StateReader) -> int:
    with reader.snapshot() as snapshot:
        return max((position.next_offset for position in snapshot.positions()), default=0)


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

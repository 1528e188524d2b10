"""Own `subsetd dead-letters`: what a person does with records that were set aside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.text import Text

from service import feed_wiring, terminal, wiring
from service.feed_options import SourcesOption, feed_settings
from service.terminal import Format, FormatOption, err, out
from service.usecases import queries

app = typer.Typer(help="Records that were set aside: list, show, retry, drop.", invoke_without_command=True)

FeedOption = Annotated[str | None, typer.Option("--feed", help="Only of this feed.")]
HEADER = ["id", "feed", "topic", "partition", "offset", "version", "message", "record"]


@app.callback()
def _list_by_default(context: typer.Context, feed: FeedOption = None, format_: FormatOption = Format.TABLE) -> None:
    command = context.invoked_subcommand
    if command is None:
        list_(feed, format_)
    elif feed is not None or format_ is not Format.TABLE:
        raise typer.BadParameter(
            "--feed and --format are of the list: `subsetd dead-letters list --feed FEED` shows the ids, by which the "
            "others take records",
            param_hint=command,
        )


@app.command("list")
def list_(feed: FeedOption = None, format_: FormatOption = Format.TABLE) -> None:
    """List the records that were set aside."""
    with (
        wiring.state_database(wiring.configured_settings()) as url,
        wiring.reading_engine(url) as engine,
        wiring.make_reader(engine).snapshot() as snapshot,
    ):
        found = queries.walk(lambda key: queries.dead_letters(snapshot, feed, key))
        rows: Iterator[list[Any]] = (
            [
                one.dead_letter_id,
                one.feed,
                one.topic,
                one.partition,
                one.record_offset,
                one.version,
                one.message,
                one.record,
            ]
            for one in found
        )
        if format_ is Format.TABLE:
            terminal.print_table(HEADER[:-1], (row[:-1] for row in rows))
        else:
            terminal.print_rows(HEADER, rows, format_)


@app.command()
def show(dead_letter_id: Annotated[int, typer.Argument(metavar="ID", help="Its number in the list.")]) -> None:
    """Show one record whole, as it was received."""
    with wiring.state_database(wiring.configured_settings()) as url, wiring.reading_engine(url) as engine:
        (letter,) = feed_wiring.read_dead_letters(engine, [dead_letter_id])
    record = letter.record
    told = {
        "feed": letter.feed,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "set aside at version": letter.version,
        "because": terminal.printable(letter.message, "\n\t"),
        **{f"header {name}": _shown(value) for name, value in record.headers},
        "key": _shown(record.key),
        "value": _shown(record.value),
    }
    for name, value in told.items():
        out.print(Text(f"{terminal.printable(name)}: {value}"), soft_wrap=True)


@app.command()
def retry(
    ids: Annotated[list[int] | None, typer.Argument(metavar="[ID...]", help="Numbers in the list.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    source: SourcesOption = None,
) -> None:
    """Try to apply records again, in their order; those that fail stay, with their new message."""
    if bool(ids) == all_:
        raise typer.BadParameter("name the records by their ids, or give --all")
    settings = wiring.configured_settings(**feed_settings(None, source))
    with wiring.state_database(settings) as url:
        runs = feed_wiring.retry_dead_letters(url, settings, ids or None, lambda text: err.print(Text(text)))
    if not runs:
        out.print("No record is set aside that can be tried again.")
        return
    records, skipped, dead = (sum(getattr(run, name) for run in runs) for name in ("records", "skipped", "dead"))
    out.print(
        f"{records:,} records tried again: {records - skipped - dead:,} applied, {skipped:,} skipped, {dead:,} still "
        f"set aside; the state is at version {runs[-1].version}"
    )
    if dead:
        raise typer.Exit(1)


@app.command()
def drop(ids: Annotated[list[int], typer.Argument(metavar="ID...", help="Numbers in the list.")]) -> None:
    """Forget records that were set aside."""
    with wiring.state_database(wiring.configured_settings()) as url, wiring.reading_engine(url) as engine:
        feed_wiring.drop_dead_letters(engine, ids)
    out.print(f"{len(set(ids)):,} records dropped.")


def _shown(value: bytes | None) -> str:
    """Show bytes as text, what cannot be shown escaped."""
    if value is None:
        return "none"
    return terminal.printable(value.decode(errors="backslashreplace"), "\n\t")

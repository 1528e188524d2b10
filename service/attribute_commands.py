"""Own `subsetd attribute`: what a person decides of columns and tables, most of which changed at their source."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from service import feed_wiring, wiring
from service.terminal import err, out

app = typer.Typer(help="Attributes: drop and rename what changed at its source, mask values.", no_args_is_help=True)


@app.command()
def drop(
    name: Annotated[str, typer.Argument(help="schema.table.column, or schema.table for all of a table")],
    force: Annotated[
        bool, typer.Option("--force", help="Also what its source still has, as far as changes tell.")
    ] = False,
) -> None:
    """Take an attribute, or a whole table, with its values out of the state."""
    with wiring.state_database(wiring.configured_settings()) as url:
        version, gone = feed_wiring.drop_attributes(url, name, force, _say)
    for one in gone:
        out.print(Text(f"{one.schema}.{one.table}.{one.column} is gone since version {version}."))


@app.command()
def rename(
    old: Annotated[str, typer.Argument(help="schema.table.column or schema.table, as the state knows it")],
    new: Annotated[str, typer.Argument(help="schema.table.column or schema.table, as its source calls it now")],
) -> None:
    """Say that a column or table has another name now, or (of a column, better before) that it is going to."""
    with wiring.state_database(wiring.configured_settings()) as url:
        out.print(Text(feed_wiring.rename_attribute(url, old, new, _say)))


@app.command()
def mask(
    name: Annotated[str, typer.Argument(help="schema.table.column")],
    keep: Annotated[str, typer.Option("--keep", help="What to keep of its values: none, prefix or prefix:N.")] = "none",
) -> None:
    """Keep less of a column's values from now on, and remove what is stored of them."""
    with wiring.state_database(wiring.configured_settings()) as url:
        out.print(Text(feed_wiring.mask_attribute(url, name, keep, _say)))


def _say(text: str) -> None:
    err.print(Text(text))

"""Own `subsetd join-index`: which tracked tables are indexed for joins, and kept so."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from service import wiring
from service.join_tracking import drop_indexes, index_tables, list_indexes
from service.terminal import Format, FormatOption, out, print_list

app = typer.Typer(help="Tracked tables that are searched for joins: list, track, untrack.", no_args_is_help=True)

TablesArgument = Annotated[list[str], typer.Argument(help="schema.table, as `subsetd attributes` names them.")]
HEADER = ["table", "built_version", "rows", "segments", "changed"]


@app.command()
def track(tables: TablesArgument) -> None:
    """Index the rows of tables, beside a consumer, which keeps the index current from then on."""
    with wiring.state_database(wiring.configured_settings()) as url:
        for index in index_tables(url, tables):
            out.print(Text(f"{index.table}: {index.rows:,} rows are indexed."))


@app.command()
def untrack(tables: TablesArgument) -> None:
    """Drop the index of tables."""
    with wiring.state_database(wiring.configured_settings()) as url:
        drop_indexes(url, tables)


@app.command("list")
def list_(
    format_: FormatOption = Format.TABLE,
) -> None:
    """List the tables that are indexed; `changed` are changes of rows that every search still reads."""
    with wiring.state_database(wiring.configured_settings()) as url:
        found = list_indexes(url)
    print_list(HEADER, [list(asdict(one).values()) for one in found], format_)

"""Own `subsetd shards`: into how many shares the key space is dealt, and how they stand."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from service import feed_wiring, wiring
from service.terminal import Format, FormatOption, err, out, print_list

app = typer.Typer(
    help="Shares of the key space, each with clusters and transactions of its own: list, set.", no_args_is_help=True
)

HEADER = ["shard", "clusters", "values", "half done", "server", "away"]


@app.command("list")
def list_(format_: FormatOption = Format.TABLE) -> None:
    """List the shards: their clusters and values, which version a batch that was left half done would be, their server.

    A shard whose server is away says why.
    """
    with wiring.state_database(wiring.configured_settings()) as url:
        found = feed_wiring.read_shards(url)
    if format_ is Format.JSON:
        json.dump([asdict(one) for one in found], sys.stdout)
        print()
        return
    rows = [[one.shard, one.clusters, one.values, one.ahead, one.server, one.away] for one in found]
    print_list(HEADER, rows, format_)


@app.command("set")
def set_(
    number: Annotated[int, typer.Argument(min=1, help="How many shards there are to be; 1 is a state without any")],
    servers: Annotated[
        Path | None, typer.Option("--servers", help="Shard map: which shards are on which servers (default: on none)")
    ] = None,
) -> None:
    """Deal the key space out to another number of shards, or to other servers: a version of its own, nothing read anew.

    Waits for a consumer to hand the state over.
    """
    with wiring.state_database(wiring.configured_settings()) as url:
        version = feed_wiring.set_shards(url, number, servers, lambda said: err.print(Text(said)))
    out.print(Text(f"The state is in {number} shard{'s' if number > 1 else ''} since version {version}."))

"""Own `subsetd keys`: which columns, and tuples of them, tell rows apart."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.text import Text

from service import feed_wiring, wiring
from service.bootstrap_command import run_spark
from service.core.foreign_keys.sides import Side
from service.key_runner import track_told
from service.reading_options import MasterOption
from service.terminal import Format, FormatOption, err, out, print_rows, print_table
from service.usecases.foreign_key_names import side_named
from service.usecases.key_values import KeyFilter, RepeatedValue
from service.usecases.keys import NamedKey, keys
from service.usecases.queries import walk

app = typer.Typer(help="Columns, and tuples of them, that tell rows apart: list, track, drop.", no_args_is_help=True)

KeyArgument = Annotated[str, typer.Argument(help="schema.table(a, b), or schema.table.column")]
HEADER = ["schema", "table", "columns", "tracked", "unique", "not null", "rows", "nulls", "distinct", "repeated"]


@app.command("list")
def list_(
    schema: Annotated[str | None, typer.Option("--schema", help="Only of this schema.")] = None,
    table: Annotated[str | None, typer.Option("--table", help="Only of tables of this name.")] = None,
    nearly: Annotated[
        float, typer.Option("--nearly", min=0, max=1, help="Share of the distinct values that may repeat.")
    ] = 0.0,
    tracked: Annotated[bool, typer.Option("--tracked", help="Only those that are tracked.")] = False,
    values: Annotated[
        int, typer.Option("--values", min=0, max=100, help="Name so many of the values that repeat.")
    ] = 3,
    format_: FormatOption = Format.TABLE,
) -> None:
    """List keys: what is unique or nearly, as the values are now, and all that is tracked."""
    chosen = KeyFilter(schema, table, nearly, tracked)
    with (
        wiring.state_database(wiring.configured_settings()) as url,
        wiring.reading_engine(url) as engine,
        wiring.make_reader(engine).snapshot(with_values=values > 0) as snapshot,
    ):
        found = list(walk(lambda after: keys(snapshot, chosen, after, values=values)))
    if format_ is Format.JSON:
        json.dump([_document(one) for one in found], sys.stdout, ensure_ascii=False)
        print()
        return
    rows = [_row(one) for one in found]
    if format_ is Format.CSV:
        print_rows(HEADER, rows, format_)
    else:
        shown = (
            [*row, "; ".join(f"{_told(v)} {v.frequency:,} times" for v in one.repeated)]
            for row, one in zip(rows, found, strict=True)
        )
        print_table([*HEADER, "values that repeat"], shown)


@app.command()
def track(
    key: KeyArgument,
    source: Annotated[
        str | None, typer.Option("--source", help="Where its source is, with the password if it needs one.")
    ] = None,
    master: MasterOption = None,
) -> None:
    """Track columns as a key; the tuples of several are read, beside a consumer, and followed from then on."""
    settings = wiring.configured_settings()
    with wiring.state_database(settings) as url:
        told, secrets = track_told(_named(url, key), source)
        told += [] if master is None else ["--master", master]
        code = run_spark("spark_jobs.backfill", settings, told, [url, *secrets])
    if code:
        raise typer.Exit(code)


@app.command()
def drop(key: KeyArgument) -> None:
    """Track columns no longer as a key; the tuples of several go out of the state."""
    with wiring.state_database(wiring.configured_settings()) as url:
        side = _named(url, key)
        version = feed_wiring.drop_key(url, *side, lambda text: err.print(Text(text)))
    out.print(Text(f"{side} is not tracked since version {version}."))


def _told(one: RepeatedValue) -> str:
    return f"key {one.value_key}" if one.value is None else repr(one.value)


def _named(url: str, key: str) -> Side:
    with wiring.reading_engine(url) as engine, wiring.make_reader(engine).snapshot() as snapshot:
        return side_named(snapshot, key)


def _row(one: NamedKey) -> list[object]:
    key, counted = one.key, one.key.attribute
    tracked = "primary" if key.is_primary else key.kind
    return [
        counted.name.schema, counted.name.table, ", ".join(key.columns), tracked, key.is_unique,
        not counted.null_count, counted.row_count, counted.null_count, counted.distinct_count, counted.repeated_count,
    ]  # fmt: skip


def _document(one: NamedKey) -> dict[str, object]:
    counted = one.key.attribute
    return {
        "schema": counted.name.schema,
        "table": counted.name.table,
        "columns": list(one.key.columns),
        "kind": one.key.kind,
        "is_primary": one.key.is_primary,
        "is_unique": one.key.is_unique,
        "is_key": one.key.is_key,
        "row_count": counted.row_count,
        "null_count": counted.null_count,
        "distinct_count": counted.distinct_count,
        "repeated_count": counted.repeated_count,
        "stale_since": counted.stale_since,
        "repeated_values": [value._asdict() for value in one.repeated],
    }

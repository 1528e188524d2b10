"""Own the commands that answer: status, inds, explain, attributes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any

import typer

from service import terminal, wiring
from service.core.tuples import MOST_PARTS
from service.terminal import DocumentFormat, Format, FormatOption
from service.usecases import queries
from service.usecases.answers import AttributeFilter
from service.usecases.ports import StateSnapshot

SchemaOption = Annotated[str | None, typer.Option("--schema", help="Only attributes of this schema.")]
TableOption = Annotated[str | None, typer.Option("--table", help="Only attributes of this table.")]
ArityOption = Annotated[
    int, typer.Option("--arity", min=1, max=MOST_PARTS, help="Tuples of so many columns, as tracked keys have them.")
]


def status(
    format_: Annotated[DocumentFormat, typer.Option("--format", help="How to print it.")] = DocumentFormat.TABLE,
) -> None:
    """Tell what the state holds, its version, and where its feeds stand."""
    from service.store.shard_servers import servers_away

    with wiring.state_database(wiring.configured_settings()) as url:
        with wiring.reading_engine(url) as engine, wiring.make_reader(engine).snapshot() as snapshot:
            answer = queries.state(snapshot)
        away = servers_away(url) or []
    if format_ is DocumentFormat.JSON:
        print(json.dumps({**asdict(answer), "shards_away": away}, default=str, indent=1))
        return
    terminal.show_state(answer, away)


def inds(
    schema: SchemaOption = None,
    table: TableOption = None,
    contains: Annotated[str | None, typer.Option("--contains", help="Text in a dependent's full name.")] = None,
    referenced_table: Annotated[str | None, typer.Option("--referenced-table", help="Only into this table.")] = None,
    as_of: Annotated[int | None, typer.Option("--as-of", help="As they stood at this version.")] = None,
    arity: ArityOption = 1,
    format_: FormatOption = Format.TABLE,
) -> None:
    """List the inclusion dependencies that hold."""
    with _snapshot() as snapshot:
        dependent = AttributeFilter(schema=schema, table=table, contains=contains, arity=arity)
        referenced = AttributeFilter(table=referenced_table, arity=arity)
        found = queries.walk(lambda key: queries.uinds(snapshot, dependent, referenced, as_of=as_of, after=key))
        rows = ([*one.dependent.name, *one.referenced.name] for one in found)
        if format_ is Format.TABLE:
            pairs = ([".".join(row[:3]), "⊆", ".".join(row[3:])] for row in rows)
            terminal.print_table(["dependent", "", "referenced"], pairs)
        else:
            terminal.print_rows(terminal.PAIR_HEADER, rows, format_)


def explain(
    dependent: Annotated[str, typer.Argument(help="schema.table.column, or id:N")],
    referenced: Annotated[str, typer.Argument(help="schema.table.column, or id:N")],
    missing: Annotated[int, typer.Option("--missing", min=0, max=1000, help="How many missing values to show.")] = 10,
) -> None:
    """Say of two attributes whether one is in the other, since when, by how much it misses, and which values miss."""
    with _snapshot(with_values=True) as snapshot:
        first, second = queries.resolve(snapshot, dependent), queries.resolve(snapshot, referenced)
        answer = queries.explain(snapshot, first, second, missing_limit=missing)
    terminal.show_pair(answer)


def attributes(
    schema: SchemaOption = None, table: TableOption = None, arity: ArityOption = 1, format_: FormatOption = Format.TABLE
) -> None:
    """List the attributes with their counters."""
    with _snapshot() as snapshot:
        chosen = AttributeFilter(schema=schema, table=table, arity=arity)
        found = queries.walk(lambda key: queries.attributes(snapshot, chosen, key))
        header = ["schema", "table", "column", "type", "rows", "nulls", "distinct", "repeated", "unique", "stale"]
        rows: Iterator[list[Any]] = (
            [
                *one.name,
                one.data_type,
                one.row_count,
                one.null_count,
                one.distinct_count,
                one.repeated_count,
                one.is_unique,
                one.stale_since,
            ]
            for one in found
        )
        terminal.print_list(header, rows, format_)


@contextmanager
def _snapshot(*, with_values: bool = False) -> Iterator[StateSnapshot]:
    with (
        wiring.state_database(wiring.configured_settings()) as url,
        wiring.reading_engine(url) as engine,
        wiring.make_reader(engine).snapshot(with_values=with_values) as snapshot,
    ):
        yield snapshot

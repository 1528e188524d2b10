"""Own how answers look on a terminal, and as CSV or JSON for other programs."""

from __future__ import annotations

import getpass
import json
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from service.core.csv_lines import csv_lines
from service.core.errors import NoStateError

if TYPE_CHECKING:  # every command prints, few of them these
    from service.core.column_filters import Reason
    from service.usecases.answers import PairAnswer, StateAnswer
    from service.usecases.batches import Totals

# A name or a value may be `:key:`, which is no picture.
out = Console(soft_wrap=True, emoji=False)
err = Console(stderr=True, soft_wrap=True, emoji=False)

PAIR_HEADER = [f"{side}_{part}" for side in ("dependent", "referenced") for part in ("schema", "table", "column")]

NAMING = frozenset((
    "id", "audit_id", "watch", "refresh", "generation", "component", "shard", "partition", "position", "offset",
    "next offset", "version", "since version", "built_version", "violated since", "half done",
))  # fmt: skip
"""Columns whose numbers name something and are typed into other commands as they stand; those of others are counts."""

SINCE_REASONS = {
    "appeared": "it came to hold then",
    "broke": "it broke then",
    "bootstrap": "as the bootstrap found it",
}


class Format(StrEnum):
    """How a list is printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


FormatOption = Annotated[Format, typer.Option("--format", help="How to print the list.")]


class DocumentFormat(StrEnum):
    """How an answer that is no list is printed."""

    TABLE = "table"
    JSON = "json"


def show_state(answer: StateAnswer, shards_away: Sequence[str] = ()) -> None:
    """Show version, counts, sources, where the feeds stand, and which servers of shards are away."""
    if answer.head.version == 0:
        out.print(NoStateError())
        return
    counts = answer.counts
    out.print(
        f"[bold]version {answer.head.version}[/], committed {answer.head.committed_at:%Y-%m-%d %H:%M:%S %Z}: "
        f"{counts.tables:,} tables, {counts.attributes:,} attributes, {counts.values:,} values, "
        f"{counts.clusters:,} clusters, {counts.uinds:,} INDs, {counts.dead_letters:,} dead letters"
        + (f", {counts.short_sketches:,} sketches short of hashes" if counts.short_sketches else "")
    )
    print_table(
        ["source", "kind", "location", "tables", "attributes", "since version"],
        [
            [s.name, s.kind, s.location, s.table_count, s.attribute_count, s.bootstrapped_version]
            for s in answer.sources
        ],
    )
    if answer.positions:
        print_table(
            ["feed", "topic", "partition", "next offset", "version", ""],
            [
                [p.feed, p.topic, p.partition, p.next_offset, p.version, "paused" if p.paused_at else ""]
                for p in answer.positions
            ],
        )
    for told in shards_away:
        out.print(Text(f"shards are away, and answers stay at this version: {told}", style="bold"))


def show_pair(answer: PairAnswer) -> None:
    """Show whether one attribute is in the other, by how much it misses, since when, and which values miss."""
    relation = "⊆" if answer.holds else "⊄"
    out.print(Text(printable(f"{answer.dependent.name} {relation} {answer.referenced.name}"), style="bold"))
    coefficient = answer.coefficient
    exact = coefficient.coefficient
    phi = "undefined: the dependent has no values" if exact is None else told_share(exact, ".6g")
    out.print(f"inclusion coefficient {phi} ({coefficient.overlap:,} of {coefficient.distinct_count:,} values)")
    since = answer.since
    at = "" if since.committed_at is None else f" ({since.committed_at:%Y-%m-%d %H:%M:%S %Z})"
    out.print(f"since version {since.version}{at}: {SINCE_REASONS[answer.since_reason]}")
    if answer.missing_count:
        out.print(f"{answer.missing_count:,} values are missing:")
        for value in answer.missing_values.items:
            told = f"key {value.value_key}" if value.value is None else repr(value.value) + " ..." * value.is_cut
            out.print(Text(f"  {told}"))
        if len(answer.missing_values.items) < answer.missing_count:
            out.print("  ...")


def show_totals(totals: Totals) -> None:
    """Show on stderr what a run of the consumer did."""
    tuples = totals.inserted + totals.updated + totals.deleted
    speed = f", {tuples / totals.elapsed:,.0f} changes/s" if totals.elapsed and tuples else ""
    err.print(
        f"{totals.records:,} records in {totals.batches:,} batches: {totals.inserted:,} inserted, "
        f"{totals.updated:,} updated, {totals.deleted:,} deleted, {totals.skipped:,} skipped, "
        f"{totals.dead:,} set aside{speed}; the state is at version {totals.version}"
    )


def told_share(value: float, form: str) -> str:
    """Write a share in a form such as `.4g`; one below 1 never as 1, which says that nothing is missing."""
    told = format(value, form)
    return f"0.{'9' * int(form[1])}" if value < 1 and float(told) == 1 else told


def reasons(found: Reason) -> str:
    """Name the filters that leave something out."""
    return ", ".join(reason.name.lower().replace("_", " ") for reason in found if reason.name)


def print_list(
    header: Sequence[str], rows: Iterable[Sequence[Any]], format_: Format, *, one_word: bool = False
) -> None:
    """Print a list as it is asked for; with `one_word`, names in CSV and JSON have `_` for a space."""
    if format_ is Format.TABLE:
        print_table(header, rows)
    else:
        print_rows([name.replace(" ", "_") for name in header] if one_word else header, rows, format_)


def print_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows in columns, a thousand at a time: the beginning of a long list should not wait for its end."""
    remaining = iter(rows)
    widths = [cell_len(name) for name in header]
    style: str | None = "bold"
    shown: list[Sequence[str]] = [header]
    while True:
        portion = list(islice(remaining, 1000))
        shown += [[_cell(*cell) for cell in zip(header, row, strict=True)] for row in portion]
        for row in shown:
            widths = [max(width, cell_len(cell)) for width, cell in zip(widths, row, strict=True)]
        for row in shown:
            line = "  ".join(set_cell_size(cell, width) for cell, width in zip(row, widths, strict=True))
            out.print(Text(line.rstrip(), style or ""))
            style = None
        if len(portion) < 1000:
            return
        shown = []


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,}" if type(value) is int and name not in NAMING else printable(str(value))


def printable(text: str, kept: str = "") -> str:
    """Give a text of a source as a terminal may be given it: no letter of it acts there but those `kept`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else ascii(c)[1:-1] for c in text)


def print_rows(header: Sequence[str], rows: Iterable[Sequence[Any]], format_: Format) -> None:
    """Print rows as CSV or JSON."""
    if format_ is Format.CSV:
        sys.stdout.writelines(csv_lines(chain([header], rows)))
    else:
        json.dump([dict(zip(header, row, strict=True)) for row in rows], sys.stdout, ensure_ascii=False)
        print()


def user_name() -> str:
    """Name who runs this process."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return "unknown"

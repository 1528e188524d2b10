"""Own `subsetd joinable`: which tables of a corpus join with a CSV on several columns at once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from service import terminal, wiring
from service.core.errors import SourceError
from service.core.typed_names import read_list
from service.terminal import Format, err
from service.usecases.joinable import JoinAnswer, find_joinable, read_query

HEADER = ("table", "columns", "matched_keys", "share", "positions")


def joinable(
    file: Annotated[Path, typer.Argument(help="CSV in UTF-8 with a header: the rows to join with.")],
    key: Annotated[str, typer.Option("--key", help="Its key columns, as a,b; a name with a comma quoted.")],
    corpus: Annotated[str, typer.Option("--corpus", help="Name of the corpus whose tables are searched.")],
    k: Annotated[int, typer.Option("-k", min=1, help="How many tables.")] = 10,
    format_: Annotated[Format, typer.Option("--format", help="How to print the list.")] = Format.TABLE,
) -> None:
    """List the tables that have most of a file's distinct keys in their rows, with the columns that are the key's.

    A row with an empty key cell joins nothing. Equal tables stand by their paths.
    """
    columns = read_list(key)
    if columns is None:
        raise SourceError(f"--key {key!r} is no list of column names, as in a,b.")
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            query = read_query(lines, columns)
    except OSError as error:
        raise SourceError(f"{file} cannot be read: {error.strerror or error}.") from error
    except SourceError as error:
        raise SourceError(f"{file}: {error}") from None
    settings = wiring.configured_settings()
    with wiring.state_database(settings) as url, wiring.reading_engine(url) as engine:
        answer = find_joinable(wiring.make_join_indexes(engine), corpus, query, k)
    _tell(answer)
    if format_ is Format.JSON:
        told = [{name: getattr(table, name) for name in HEADER} for table in answer.tables]
        json.dump(told, sys.stdout, ensure_ascii=False)
        print()
        return
    rows = ([t.table, ", ".join(t.columns), t.matched_keys, t.share] for t in answer.tables)
    if format_ is Format.CSV:
        terminal.print_rows(HEADER[:4], rows, format_)
    else:
        terminal.print_table(HEADER[:4], ([*told, f"{share:.4g}"] for *told, share in rows))


def _tell(answer: JoinAnswer) -> None:
    """Say on standard error what the list does not."""
    if answer.empty:
        err.print(Text(f"{answer.empty:,} of {answer.rows:,} rows have an empty key cell, which joins nothing"))
    for table in answer.unfinished:
        err.print(Text(f"{table}: too many mappings to try them all; it may join with more keys, or be missing"))

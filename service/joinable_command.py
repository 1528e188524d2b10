"""Own `subsetd joinable`: which tables, of a corpus or tracked, join with a CSV on several columns at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from service import corpus_wiring, terminal, wiring
from service.core.corpus import read_fraction
from service.core.errors import SourceError
from service.core.near_matches import Near
from service.core.typed_names import read_list
from service.terminal import Format, FormatOption, err
from service.usecases.joinable import DEFAULT_PREVIEW, JoinAnswer, JoinQuery, JoinQuestion, read_query

HEADER = ("table", "columns", "matched_keys", "share")


def joinable(
    file: Annotated[Path, typer.Argument(help="CSV in UTF-8 with a header: the rows to join with.")],
    key: Annotated[str, typer.Option("--key", help="Its key columns, as a,b; a name with a comma quoted.")],
    corpus: Annotated[
        str | None, typer.Option("--corpus", help="Name of the corpus whose tables are searched.")
    ] = None,
    tracked: Annotated[
        bool, typer.Option("--tracked", help="Search the tracked tables of `subsetd join-index list`.")
    ] = False,
    k: Annotated[
        int | None, typer.Option("-k", min=1, help="How many tables at most: 10, or with --min-share 1,000.")
    ] = None,
    min_share: Annotated[
        str | None,
        typer.Option("--min-share", help="List the tables that have such a share of the keys, as 0.5 or 1/2."),
    ] = None,
    preview: Annotated[
        int | None, typer.Option("--preview", min=0, max=100, help="How many joined rows of each table JSON shows: 3.")
    ] = None,
    through: Annotated[
        int,
        typer.Option("--through", min=0, max=100, help="How many tables that each one leads to JSON names."),
    ] = 0,
    near: Annotated[
        list[Near] | None,
        typer.Option(
            "--near", help="Refuse an index that folds cells otherwise; `corpus set --near` says how it does."
        ),
    ] = None,
    format_: FormatOption = Format.TABLE,
) -> None:
    """List the tables that have most of a file's distinct keys in their rows, with the columns that are the key's.

    A row with an empty key cell joins nothing. Equal tables stand by their paths.
    """
    columns = read_list(key)
    if columns is None:
        raise SourceError(f"--key {key!r} is no list of column names, as in a,b.")
    if tracked == (corpus is not None):
        raise typer.BadParameter("one of them says what is searched", param_hint="--corpus NAME, --tracked")
    if preview is None:
        preview = DEFAULT_PREVIEW if format_ is Format.JSON else 0
    share = None if min_share is None else _share(min_share)
    question = JoinQuestion(corpus, k, share, preview, through, near or None)
    query = _read(file, columns)
    settings = wiring.configured_settings()
    with wiring.state_database(settings) as url, wiring.reading_engine(url) as engine:
        answer = corpus_wiring.make_join_search(engine).answer(query, question)
    _tell(answer)
    if format_ is Format.JSON:
        json.dump([asdict(table) for table in answer.tables], sys.stdout, ensure_ascii=False)
        print()
        return
    rows = ((t.table, ", ".join(t.columns), t.matched_keys, t.share) for t in answer.tables)
    if format_ is Format.CSV:
        terminal.print_rows(HEADER, rows, format_)
    else:
        terminal.print_table(HEADER, ((*told, terminal.told_share(share, ".4g")) for *told, share in rows))


def _read(file: Path, columns: Sequence[str]) -> JoinQuery:
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            return read_query(lines, columns)
    except OSError as error:
        raise SourceError(f"{file} cannot be read: {error.strerror or error}.") from error
    except SourceError as error:
        raise SourceError(f"{file}: {error}") from None


def _share(text: str) -> Fraction:
    try:
        return read_fraction(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no share, as in 0.5 or 1/2", param_hint="--min-share") from None


def _tell(answer: JoinAnswer) -> None:
    """Say on standard error what the list does not."""
    if answer.version is not None:
        err.print(Text(f"as of version {answer.version}"))
    for table in answer.not_indexed:
        err.print(Text(f"{table}: it is not searched, as its rows are not indexed yet"))
    if answer.empty:
        err.print(Text(f"{answer.empty:,} of {answer.rows:,} rows have an empty key cell, which joins nothing"))
    if answer.is_cut:
        err.print(Text("more tables have such a share of the keys than are listed"))
    for table in answer.unfinished:
        err.print(Text(f"{table}: too many mappings to try them all; it may join with more keys, or be missing"))
    for one in answer.tables:
        if one.preview_fault is not None:
            err.print(Text(f"{one.table}: {one.preview_fault}"))

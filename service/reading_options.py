"""Own the options of all commands that read a source with Spark, and how its job is told of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

MasterOption = Annotated[
    str | None, typer.Option("--master", help="Spark master; default SUBSETD_SPARK_MASTER, or local[*].")
]
ExcludeOption = Annotated[
    list[str] | None, typer.Option("--exclude", help="Table to leave out, table or schema.table; repeatable.")
]
NullTokenOption = Annotated[
    list[str] | None, typer.Option("--null-token", help="Text that means NULL, after unquoting; repeatable.")
]
DelimiterOption = Annotated[
    str | None,
    typer.Option("--delimiter", help="Between the cells of CSV files; default: a comma, or a tab if all end in .tsv."),
]
QuoteOption = Annotated[
    str | None,
    typer.Option("--quote", help="Quoting character of CSV files; '' for none; default: the double quote."),
]
HeaderOption = Annotated[bool, typer.Option("--header/--no-header", help="Whether CSV files begin with a header.")]
EncodingOption = Annotated[str | None, typer.Option("--encoding", help="Encoding of CSV files; default utf-8.")]


def csv_told(
    null_tokens: Sequence[str] | None, delimiter: str | None, quoting: str | None, header: bool, encoding: str | None
) -> list[str]:
    """Give the arguments that tell a job how CSV files are read."""
    given = [("--delimiter", delimiter), ("--quote", quoting), ("--encoding", encoding)]
    given += [("--null-token", token) for token in null_tokens or ()]
    return [f"{option}={value}" for option, value in given if value is not None] + ([] if header else ["--no-header"])


def job_told(master: str | None, exclude: Sequence[str] | None = None) -> list[str]:
    """Give the arguments that tell a job its Spark master, and which tables it leaves out."""
    return [*([] if master is None else [f"--master={master}"]), *(f"--exclude={table}" for table in exclude or ())]

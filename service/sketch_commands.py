"""Own `subsetd sketch`: sketches of files, without a database, of a lake, and those that are uploaded."""

from __future__ import annotations

import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, unquote

import typer
from rich.text import Text
from typer.core import TyperGroup

from service import terminal, wiring
from service.bootstrap_command import sketch_sizes, spark_job
from service.config import load_settings
from service.core.errors import SketchError, SourceError
from service.core.sketches.prefixes import LEAST_BUDGET, MOST_BUDGET
from service.reading_options import (
    DelimiterOption,
    EncodingOption,
    ExcludeOption,
    HeaderOption,
    MasterOption,
    NullTokenOption,
    QuoteOption,
    csv_told,
    job_told,
)
from service.terminal import Format, FormatOption, out
from service.usecases import queries, sketched_columns
from service.usecases.sketched_columns import UPLOADED, name_of

ENDING, PACKED = ".sketch", ".zip"
"""Of a file of one sketch, and of one that packs many."""


class FileByDefault(TyperGroup):
    """Take what is no command's name for a file to sketch."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["file", *args]
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed


app = typer.Typer(
    cls=FileByDefault,
    help="Sketches: of a FILE of CSV or Parquet (without a database), of a lake; upload, download, list, drop.",
    no_args_is_help=True,
)

Bytes = Annotated[
    int | None,
    typer.Option(
        "--bytes", min=LEAST_BUDGET, max=MOST_BUDGET, help="A fixed size: as much of each hash as fits into so many."
    ),
]
Error = Annotated[
    float | None, typer.Option("--error", help="As many buckets as keep coefficients within this, at 95 %.")
]


@app.command("file")
def file_(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A file of CSV or Parquet, or a folder of them.")],
    column: Annotated[
        list[str] | None, typer.Option("--column", help="column or table.column; repeatable; default: all.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--out", help="A .zip of all sketches (default), a .sketch of one column, or a folder."),
    ] = None,
    null_token: NullTokenOption = None,
    delimiter: DelimiterOption = None,
    quoting: QuoteOption = None,
    header: HeaderOption = True,
    encoding: EncodingOption = None,
    most_bytes: Bytes = None,
    error: Error = None,
) -> None:
    """Sketch the columns of a file; `subsetd sketch FILE` is the same."""
    arguments = [str(source), *(f"--column={one}" for one in column or ())]
    arguments += [] if to is None else [f"--out={to}"]
    arguments += csv_told(null_token, delimiter, quoting, header, encoding) + _form(most_bytes, error)
    command = [sys.executable, "-m", "spark_jobs.sketch_files", *sketch_sizes(load_settings()), *arguments]
    raise typer.Exit(subprocess.run(command, check=False).returncode)


@app.command()
def lake(
    source: Annotated[str, typer.Argument(help="A folder of CSV or Parquet files, or postgresql://...")],
    name: Annotated[str, typer.Option("--name", help="Name of the lake: sketches are sketch:NAME.table.column.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Forget other sketches whose names begin with NAME.")
    ] = False,
    master: MasterOption = None,
    exclude: ExcludeOption = None,
    null_token: NullTokenOption = None,
    delimiter: DelimiterOption = None,
    quoting: QuoteOption = None,
    header: HeaderOption = True,
    encoding: EncodingOption = None,
    most_bytes: Bytes = None,
    error: Error = None,
) -> None:
    """Sketch every column of a lake of files with one Spark job, and keep the sketches with the uploaded ones."""
    settings = wiring.configured_settings()
    arguments = ["-", "--name", name, *(["--replace"] if replace else []), *job_told(master, exclude)]
    arguments += csv_told(null_token, delimiter, quoting, header, encoding) + _form(most_bytes, error)
    with wiring.state_database(settings, migrate=True) as url:
        raise typer.Exit(spark_job("spark_jobs.sketch_lake", settings, arguments, [url, source]))


def _form(most_bytes: int | None, error: float | None) -> list[str]:
    if most_bytes is not None and error is not None:
        raise typer.BadParameter("a sketch has a fixed size (--bytes) or an error, not both", param_hint="--error")
    if most_bytes is not None:
        return [f"--bytes={most_bytes}"]
    return [] if error is None else [f"--error={error}"]


@app.command()
def upload(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files: .sketch, or .zip of many.")],
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the one sketch; default: that of the file.")
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", help="Put in front of the names.")] = "",
) -> None:
    """Keep sketches of columns that live elsewhere; each is then `sketch:NAME` wherever a column is named."""
    found = [one for path in paths for one in _read(path)]
    if name is not None and len(found) != 1:
        raise typer.BadParameter(f"it names one sketch, and there are {len(found)}", param_hint="--name")
    with wiring.state_database(wiring.configured_settings()) as url, wiring.reading_engine(url) as engine:
        uploads = wiring.make_uploads(engine)
        for own, data in found:
            column = f"{UPLOADED}{prefix}{own if name is None else name}"
            try:
                info, is_new = sketched_columns.upload(uploads, column, data)
            except SketchError as error:
                raise SketchError(f"{column}: {error}") from error
            out.print(Text(f"{column}: {info.distinct_count:,.0f} distinct values, {'new' if is_new else 'replaced'}"))


@app.command()
def download(
    column: Annotated[str, typer.Argument(help="schema.table.column, id:N, or sketch:NAME")],
    to: Annotated[Path | None, typer.Option("--out", help="File to write; default: the column's name.sketch.")] = None,
    most_bytes: Bytes = None,
) -> None:
    """Write a column's sketch, as it is now, to a file; with --bytes one that is made of its values, if stored."""
    with (
        wiring.state_database(wiring.configured_settings()) as url,
        wiring.reading_engine(url) as engine,
        wiring.make_reader(engine).snapshot(with_values=most_bytes is not None) as snapshot,
    ):
        found = sketched_columns.resolve(snapshot, column)
        if most_bytes is None:
            data = sketched_columns.read_sketch(snapshot, found).to_bytes()
        else:
            data = sketched_columns.fixed_size(snapshot, found, most_bytes).to_bytes()
    path = to or Path(quote(name_of(found).removeprefix(UPLOADED), safe=" ") + ENDING)
    try:
        path.write_bytes(data)
    except OSError as error:
        raise SourceError(f"{path}: it cannot be written: {error.strerror}. Name another file by --out.") from error
    out.print(Text(f"{path}: {len(data):,} bytes"))


@app.command("list")
def list_(
    format_: FormatOption = Format.TABLE,
) -> None:
    """List the sketches of attributes, and the uploaded ones."""
    with (
        wiring.state_database(wiring.configured_settings()) as url,
        wiring.reading_engine(url) as engine,
        wiring.make_reader(engine).snapshot() as snapshot,
    ):
        fields = (
            "distinct_count", "low", "high", "bucket_bits", "k", "spares_left", "needs_rescan", "prefix_bits", "fault"
        )  # fmt: skip
        found = queries.walk(lambda key: sketched_columns.sketches(snapshot, key))
        rows = ([name_of(one.column), *(getattr(one, field) for field in fields)] for one in found)
        if format_ is Format.TABLE:
            shown = ([round(cell) if isinstance(cell, float) else cell for cell in row] for row in rows)
            terminal.print_table(["column", *fields], shown)
        else:
            terminal.print_rows(["column", *fields], rows, format_)


@app.command()
def drop(name: Annotated[str, typer.Argument(help="sketch:NAME")]) -> None:
    """Forget an uploaded sketch."""
    with wiring.state_database(wiring.configured_settings()) as url, wiring.reading_engine(url) as engine:
        wiring.make_uploads(engine).delete(sketched_columns.upload_name(name))
    out.print(Text(f"{name} is gone."))


def _read(path: Path) -> Iterator[tuple[str, bytes]]:
    """Give the sketches of a file with their names."""
    try:
        if path.suffix != PACKED:
            yield unquote(path.stem), path.read_bytes()
            return
        with zipfile.ZipFile(path) as archive:
            for entry in archive.namelist():
                yield unquote(entry.removesuffix(ENDING)), archive.read(entry)
    except (OSError, zipfile.BadZipFile, zlib.error, RuntimeError) as error:
        # The last two are of an entry: damaged, and encrypted or compressed in a way that is not known.
        raise SourceError(f"{path}: it cannot be read: {error}.") from error

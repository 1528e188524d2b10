"""Own `subsetd corpus`: bodies of many small tables, their refreshes, and what these found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from service import corpus_wiring, terminal
from service.core.errors import SourceError
from service.corpus_index_command import index
from service.corpus_refresh_command import refresh
from service.corpus_settings_commands import NameArgument, add, set_
from service.terminal import Format, FormatOption, out, print_list
from service.usecases import corpus_answers
from service.usecases.corpora import ColumnFilter, ColumnRef, Refresh
from service.usecases.corpora_ports import CorpusSnapshot
from service.usecases.corpus_export import ExportFormat, export
from service.usecases.queries import walk
from service.usecases.refresh_corpora import cancel_all

app = typer.Typer(
    help="Bodies of many small tables: their inclusion dependencies are found anew at each refresh.",
    no_args_is_help=True,
)

GenerationOption = Annotated[
    int | None, typer.Option("--generation", help="The one before the served one; default: the served one.")
]
COLUMN_HELP = "TABLE, or TABLE:POSITION with positions from 0, as in 2019/orders.csv:1"


app.command()(add)
app.command("set")(set_)


@app.command("list")
def list_(format_: FormatOption = Format.TABLE) -> None:
    """List the corpora, each with its served generation and its last refresh."""
    header = ["name", "kind", "location", "generation", "schedule", "last refresh", "state"]
    with corpus_wiring.corpus_register() as register:
        rows = []
        for one in register.corpora.all():
            newest = register.corpora.refreshes(one.name, limit=1)
            last = [newest[0].queued_at.isoformat(" ", "seconds"), newest[0].state] if newest else [None, None]
            rows.append([one.name, one.kind, one.location, one.generation, one.schedule, *last])
    print_list(header, rows, format_)


app.command()(refresh)
app.command()(index)


@app.command()
def history(
    name: NameArgument,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many refreshes.")] = 20,
    format_: FormatOption = Format.TABLE,
) -> None:
    """List the refreshes of a corpus, newest first."""
    header = ["refresh", "state", "generation", "asked by", "queued", "began", "ended", "attempt"]
    with corpus_wiring.corpus_register() as register:
        found = corpus_answers.refreshes(register.corpora, name, limit=limit).items
    print_list([*header, "inds", "faults", "fault"], map(_refresh_row, found), format_)


@app.command()
def show(name: NameArgument) -> None:
    """Show a corpus with its settings and what its last refresh told, as JSON."""
    with corpus_wiring.corpus_register() as register:
        corpus = register.corpora.named(name)
        newest = register.corpora.refreshes(name, limit=1)
    shown = {field: getattr(corpus, field) for field in corpus.__dataclass_fields__}
    shown["settings"] = corpus.settings.to_json()
    last = None if not newest else {field: getattr(newest[0], field) for field in newest[0].__dataclass_fields__}
    print(json.dumps({**shown, "last_refresh": last}, default=str, indent=1, ensure_ascii=False))


@app.command()
def faults(
    name: NameArgument,
    refresh_id: Annotated[int | None, typer.Option("--refresh", help="Id of a refresh; default: the newest.")] = None,
    format_: FormatOption = Format.TABLE,
) -> None:
    """List the files and tables that a refresh could not read, and why."""
    with corpus_wiring.corpus_register() as register:
        newest = register.corpora.refreshes(name, limit=1)
        if refresh_id is not None:
            chosen = corpus_answers.refresh(register.corpora, name, refresh_id).refresh_id
        elif newest:
            chosen = newest[0].refresh_id
        else:
            raise SourceError(f"{name} was never refreshed: subsetd corpus refresh {name}")
        found = walk(lambda key: corpus_answers.faults(register.corpora, chosen, key))
        print_list(["path", "message"], ([one.path, one.message] for one in found), format_)


@app.command()
def tables(
    name: NameArgument,
    table: Annotated[str | None, typer.Argument(help="Path of a table: list its columns.")] = None,
    generation: GenerationOption = None,
    format_: FormatOption = Format.TABLE,
) -> None:
    """List the tables of a corpus; or a table's columns, with the filters that leave them out."""
    with _snapshot(name, generation) as snapshot:
        if table is None:
            rows = walk(lambda key: corpus_answers.tables(snapshot, key))
            print_list(["table", "rows", "columns"], ([t.path, t.row_count, t.column_count] for t in rows), format_)
            return
        columns = walk(lambda key: corpus_answers.columns(snapshot, table, key))
        header = ["position", "name", "distinct", "not examined as dependent", "not examined as referenced"]
        found = (
            [
                one.column.position,
                one.column.name,
                one.distinct_count,
                terminal.reasons(one.dependent_reasons),
                terminal.reasons(one.referenced_reasons),
            ]
            for one in columns
        )
        print_list(header, found, format_)


@app.command()
def inds(
    name: NameArgument,
    dependent: Annotated[str | None, typer.Option("--dependent", help=COLUMN_HELP)] = None,
    referenced: Annotated[str | None, typer.Option("--referenced", help=COLUMN_HELP)] = None,
    generation: GenerationOption = None,
    format_: FormatOption = Format.TABLE,
) -> None:
    """List the inclusion dependencies of a corpus."""
    with _snapshot(name, generation) as snapshot:
        sides = _side(dependent), _side(referenced)
        found = walk(lambda key: corpus_answers.inds(snapshot, *sides, key))
        if format_ is Format.TABLE:
            rows = (
                [_told(i.dependent), "⊆", _told(i.referenced), i.overlap, terminal.told_share(i.coverage, ".4g")]
                for i in found
            )
            terminal.print_table(["dependent", "", "referenced", "overlap", "coverage"], rows)
            return
        header = [*_sides_header(), "overlap", "coefficient", "coverage"]
        full = ([*_cells(i.dependent), *_cells(i.referenced), i.overlap, i.coefficient, i.coverage] for i in found)
        terminal.print_rows(header, full, format_)


@app.command()
def pair(
    name: NameArgument,
    dependent: Annotated[str, typer.Argument(help="TABLE:POSITION, positions from 0")],
    referenced: Annotated[str, typer.Argument(help="TABLE:POSITION, positions from 0")],
    generation: GenerationOption = None,
) -> None:
    """Say of two columns whether one is in the other; if it is not listed, whether that was examined at all."""
    with _snapshot(name, generation) as snapshot:
        answer = snapshot.pair(_column(dependent), _column(referenced))
    relation = "⊆" if answer.holds else "⊄" if answer.examined else "?"
    out.print(Text(f"{dependent} {relation} {referenced}", style="bold"))
    if answer.holds:
        out.print(f"overlap {answer.overlap:,}, coverage {terminal.told_share(float(answer.coverage or 0), '.4g')}")
    elif answer.fault is not None:
        out.print(Text(f"not examined: {answer.fault}"))
    elif answer.beyond_top:
        out.print("not known: the corpus keeps only the best referenced columns of each dependent, and has enough")
    elif not answer.examined:
        out.print(f"not examined, left out by: {terminal.reasons(answer.reasons)}")
    else:
        out.print("examined: it does not hold")


@app.command()
def changes(name: NameArgument, format_: FormatOption = Format.TABLE) -> None:
    """List the inclusion dependencies that appeared or went with the last refresh that landed."""
    with _snapshot(name, None) as snapshot:
        found = walk(lambda key: corpus_answers.changes(snapshot, key))
        rows = ([one.kind, *_cells(one.dependent), *_cells(one.referenced), one.overlap] for one in found)
        print_list(["change", *_sides_header(), "overlap"], rows, format_)


@app.command("export")
def export_(
    name: NameArgument,
    file: Annotated[Path, typer.Argument(help="File to write: .csv or .parquet.")],
    generation: GenerationOption = None,
) -> None:
    """Write all inclusion dependencies to a file: both columns by table and position, positions from 0."""
    try:
        format_ = ExportFormat(file.suffix.lower().removeprefix("."))
    except ValueError:
        raise typer.BadParameter(f"{file}: its name ends neither in .csv nor in .parquet", param_hint="FILE") from None
    # Nobody finds half a file: it gets its name when it is whole.
    part = file.with_name(f"{file.name}.part")
    with _snapshot(name, generation) as snapshot:
        try:
            with part.open("xb") as sink, ExitStack() as unfinished:
                unfinished.callback(part.unlink)
                for piece in export(snapshot, format_):
                    sink.write(piece)
                part.replace(file)
                unfinished.pop_all()
        except FileExistsError:
            raise SourceError(
                f"{part} is there: another export writes it, or died; remove it where none does."
            ) from None
        except OSError as error:
            raise SourceError(f"{file} cannot be written: {error.strerror or error}.") from error
    out.print(Text(f"{file}: generation {snapshot.generation} of {name}"))


@app.command()
def cancel(name: NameArgument) -> None:
    """Cancel what waits or runs of a corpus' refreshes; the generation that is served stays."""
    with corpus_wiring.corpus_register() as register:
        for one in cancel_all(register.corpora, name):
            state = "is cancelled" if one.ended_at else "is asked to end"
            out.print(f"refresh {one.refresh_id} {state}")


@app.command()
def remove(name: NameArgument) -> None:
    """Forget a corpus with all that was found in it; its files stay."""
    with corpus_wiring.corpus_register() as register:
        register.remove(name)
    out.print(Text(f"{name} is gone; its files are as they were."))


@contextmanager
def _snapshot(name: str, generation: int | None) -> Iterator[CorpusSnapshot]:
    with corpus_wiring.corpus_register() as register, register.corpora.snapshot(name, generation) as snapshot:
        yield snapshot


def _side(text: str | None) -> ColumnFilter:
    """Read TABLE or TABLE:POSITION; a path that itself ends in a colon and digits needs the position behind it."""
    table, _, position = (text or "").rpartition(":")
    if table and position.isdecimal() and len(position) < 10:
        return ColumnFilter(table, int(position))
    return ColumnFilter(text)


def _column(text: str) -> ColumnFilter:
    side = _side(text)
    if side.position is None:
        raise SourceError(f"{text!r} is not TABLE:POSITION, as in 2019/orders.csv:1 (positions from 0).")
    return side


def _told(column: ColumnRef) -> str:
    return f"{column.table}:{column.position} ({column.name})"


def _cells(column: ColumnRef) -> list[Any]:
    return [column.table, column.position, column.name]


def _sides_header() -> list[str]:
    return [f"{side}_{part}" for side in ("dependent", "referenced") for part in ("table", "position", "name")]


def _refresh_row(one: Refresh) -> list[Any]:
    report = one.report or {}
    moments = (one.queued_at, one.started_at, one.ended_at)
    times = [None if moment is None else moment.isoformat(" ", "seconds") for moment in moments]
    found = [report.get("inds"), report.get("files", {}).get("faults")]
    return [one.refresh_id, one.state, one.generation, one.requested_by, *times, one.attempt, *found, one.fault]

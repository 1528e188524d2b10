"""Own `subsetd coefficients`: inclusion coefficients of all chosen pairs, exact and estimated, on the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from service import wiring
from service.core.model import AttributeName
from service.terminal import PAIR_HEADER, Format, FormatOption, err, print_rows, print_table, told_share
from service.usecases.answers import AttributeFilter, AttributeRef, EstimatedCoefficient, UploadedSketch
from service.usecases.coefficient_table import Coefficients, Method, MethodName, Question
from service.usecases.coefficients import refuse_trivial
from service.usecases.sketched_columns import UPLOADED, choices_of, choose, name_of, resolve

NUMBERS = ["phi", "low", "high", "method", "exact"]


def coefficients(
    dependent: Annotated[
        str | None, typer.Option("--dependent", help="schema.table.column, id:N or sketch:NAME; default: all.")
    ] = None,
    referenced: Annotated[str | None, typer.Option("--referenced", help="The same, of the other side.")] = None,
    schema: Annotated[str | None, typer.Option("--schema", help="Only dependents of this schema.")] = None,
    table: Annotated[str | None, typer.Option("--table", help="Only dependents of this table.")] = None,
    contains: Annotated[str | None, typer.Option("--contains", help="Text in a dependent's full name.")] = None,
    referenced_table: Annotated[str | None, typer.Option("--referenced-table", help="Only into this table.")] = None,
    with_uploaded: Annotated[
        bool, typer.Option("--with-uploaded", help="Uploaded sketches too, on a side that names nothing.")
    ] = False,
    method: Annotated[
        MethodName | None,
        typer.Option("--method", help="How; default: exactly where values are stored, elsewhere estimated."),
    ] = None,
    level: Annotated[float, typer.Option("--level", help="Of the estimates' intervals, between 0 and 1.")] = 0.95,
    min_distinct: Annotated[
        int, typer.Option("--min-distinct", min=0, help="Only columns with so many distinct values, on both sides.")
    ] = 0,
    min_coefficient: Annotated[
        float | None,
        typer.Option("--min-coefficient", min=0, max=1, help="Only those above 0 that reach it; default: all."),
    ] = None,
    top: Annotated[int | None, typer.Option("--top", min=1, help="Only so many, the largest of all.")] = None,
    format_: FormatOption = Format.TABLE,
) -> None:
    """List inclusion coefficients: which share of a column's distinct values is in another; each with its interval."""
    if not 0 < level < 1:
        raise typer.BadParameter("it is between 0 and 1", param_hint="--level")
    settings = wiring.configured_settings()
    with (
        wiring.state_database(settings) as url,
        wiring.reading_engine(url) as engine,
        wiring.make_reader(engine).snapshot() as snapshot,
    ):
        of_dependent = AttributeFilter(schema=schema, table=table, contains=contains)
        sides = (dependent, of_dependent), (referenced, AttributeFilter(table=referenced_table))
        question = Question(
            *choices_of(snapshot, *sides, with_uploaded),
            Method(method, level),
            0.0 if top is not None and min_coefficient is None else min_coefficient,
            min_distinct,
        )
        if dependent is not None and referenced is not None:
            refuse_trivial(resolve(snapshot, dependent), resolve(snapshot, referenced))
        asked = choose(snapshot, question.dependents), choose(snapshot, question.referenced)
        answers = Coefficients(snapshot, *asked, question)
        for reason in answers.left_out.values():
            err.print(f"left out: {reason}", markup=False)
        found = answers.all() if top is None else answers.largest(top)
        if format_ is Format.TABLE:
            rows = ([name_of(one.dependent), name_of(one.referenced), *map(_shown, _numbers(one))] for one in found)
            print_table(["dependent", "referenced", *NUMBERS, "reason"], rows)
        elif format_ is Format.CSV:
            print_rows([*PAIR_HEADER, *NUMBERS, "level"], (_row(one)[:-1] for one in found), format_)
        else:
            print_rows([*PAIR_HEADER, *NUMBERS, "level", "reason"], map(_row, found), format_)


def _row(one: EstimatedCoefficient) -> list[Any]:
    *numbers, reason = _numbers(one)
    level = None if one.estimate.method == MethodName.EXACT else one.estimate.level
    return [*_parts(one.dependent), *_parts(one.referenced), *numbers, level, reason]


def _parts(column: AttributeRef | UploadedSketch) -> Iterable[str]:
    """Name a column in three parts; an uploaded sketch has `sketch:` for a schema and no table."""
    return column.name if isinstance(column, AttributeRef) else AttributeName(UPLOADED, "", column.name)


def _numbers(one: EstimatedCoefficient) -> list[Any]:
    found = one.estimate
    interval = (None, None) if found.phi is None else (found.low, found.high)
    exact = None if one.exact is None else one.exact.coefficient
    return [found.phi, *interval, found.method, exact, found.reason]


def _shown(cell: float | str | None) -> str | None:
    return told_share(cell, ".4f") if isinstance(cell, float) else cell

"""Own `subsetd contract`, and what a person says of foreign keys: accept, reject, pin, decisions."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

import typer
from rich.text import Text

from service import wiring
from service.core.errors import SubsetdError
from service.core.foreign_keys.sides import ForeignKey
from service.core.shown_values import row_text
from service.terminal import DocumentFormat, Format, FormatOption, err, out, print_list, told_share, user_name
from service.usecases import queries
from service.usecases.foreign_key_decisions import (
    Contract,
    Contracts,
    ContractState,
    Decision,
    Verdict,
    check_bound,
)
from service.usecases.foreign_key_names import side_named
from service.usecases.ports import StateSnapshot

app = typer.Typer(help="Inclusions that are to hold, watched live: add, list, check, remove.", no_args_is_help=True)

SIDE_HELP = "schema.table.column, schema.table(a, b) for several columns, or id:N"
DependentArgument = Annotated[str, typer.Argument(help=SIDE_HELP)]
ReferencedArgument = Annotated[str, typer.Argument(help=f"The same; as many columns, in the same order: {SIDE_HELP}")]
ByOption = Annotated[str | None, typer.Option("--by", help="Who says so; default: the user of this process.")]
NoteOption = Annotated[str | None, typer.Option("--note", help="Why.")]

HEADER = ["id", "dependent", "referenced", "state", "coefficient", "least coefficient", "missing", "violated since"]
CANNOT_TELL = 2


@app.command()
def add(
    dependent: DependentArgument,
    referenced: ReferencedArgument,
    least: Annotated[
        str, typer.Option("--least", help="Least share of the dependent's distinct values that are referenced, to 1.")
    ] = "1",
    by: ByOption = None,
) -> None:
    """Demand that columns are contained in others, all of their values or a share; say how it stands."""
    try:
        bound = Decimal(least)
    except InvalidOperation:
        raise typer.BadParameter(f"{least!r} is no number", param_hint="--least") from None
    check_bound(bound)
    with _keeping() as (contracts, snapshot):
        made = contracts.add(_foreign_key(snapshot, dependent, referenced), bound, by or user_name())
    out.print(Text(f"Contract {made.contract_id}, {made.foreign_key}: {_said(made)}."))


@app.command("list")
def list_(format_: FormatOption = Format.TABLE) -> None:
    """List the contracts and how they stand."""
    with _keeping() as (_, snapshot):
        print_list(HEADER, map(_row, _all(snapshot)), format_, one_word=True)


@app.command()
def check(
    ids: Annotated[list[int] | None, typer.Argument(help="Ids of contracts; default: all.")] = None,
    format_: Annotated[DocumentFormat, typer.Option("--format", help="How to print it.")] = DocumentFormat.TABLE,
) -> None:
    """Say by the exit code whether contracts are held: 0 all, 1 one is violated, 2 it cannot be told, for pipelines."""
    try:
        with _keeping() as (_, snapshot):
            found = [snapshot.contract(one) for one in ids] if ids else _all(snapshot)
            version = snapshot.head.version
            rows = {one.contract_id: _violating_row(snapshot, one) for one in found}
    except SubsetdError as error:
        err.print("[bold red]cannot tell:[/]", Text(str(error)))
        raise typer.Exit(CANNOT_TELL) from error
    if format_ is DocumentFormat.JSON:
        document = {
            "version": version,
            "contracts": [{**_document(one), "row": rows[one.contract_id]} for one in found],
        }
        json.dump(document, sys.stdout, ensure_ascii=False)
        print()
    else:
        for one in found:
            style = {ContractState.HELD: "green", ContractState.VIOLATED: "bold red"}.get(one.state, "yellow")
            row = rows[one.contract_id]
            by = "" if row is None else f", by row {row_text(row)}"
            out.print(Text(f"{one.contract_id}  {one.foreign_key}: {_said(one)}{by}", style))
        if not found:
            out.print("There are no contracts.")
    states = {one.state for one in found}
    if ContractState.VIOLATED in states:
        raise typer.Exit(1)
    if ContractState.UNKNOWN in states:
        raise typer.Exit(CANNOT_TELL)


@app.command()
def remove(contract_id: Annotated[int, typer.Argument(help="Id of a contract.")]) -> None:
    """Forget a contract with what became of it."""
    with _keeping() as (contracts, _):
        contracts.remove(contract_id)
    out.print(f"Contract {contract_id} is gone.")


def accept(
    dependent: DependentArgument, referenced: ReferencedArgument, note: NoteOption = None, by: ByOption = None
) -> None:
    """Say that columns are a foreign key; it is watched as a contract from now on."""
    _decide(dependent, referenced, Verdict.ACCEPT, note, by)


def reject(
    dependent: DependentArgument, referenced: ReferencedArgument, note: NoteOption = None, by: ByOption = None
) -> None:
    """Say that columns are no foreign key; a contract that an acceptance made ends."""
    _decide(dependent, referenced, Verdict.REJECT, note, by)


def pin(
    dependent: DependentArgument, referenced: ReferencedArgument, note: NoteOption = None, by: ByOption = None
) -> None:
    """Keep a candidate in sight, without a contract."""
    _decide(dependent, referenced, Verdict.PIN, note, by)


def decisions(format_: FormatOption = Format.TABLE) -> None:
    """List what was decided of foreign keys, newest first; of each pair the newest counts."""
    with _keeping() as (_, snapshot):
        found = queries.walk(
            lambda after: queries.page_of(
                snapshot.decisions(None if after is None else int(after[0]), queries.MAX_LIMIT + 1),
                queries.MAX_LIMIT,
                lambda one: (one.decision_id,),
            )
        )
        header = ["id", "dependent", "referenced", "verdict", "by", "at", "note", "current", "stale"]
        print_list(header, map(_decided, found), format_)


def _decide(dependent: str, referenced: str, verdict: Verdict, note: str | None, by: str | None) -> None:
    with _keeping() as (contracts, snapshot):
        made = contracts.decide(_foreign_key(snapshot, dependent, referenced), verdict, by or user_name(), note)
    out.print(Text(f"Decision {made.decision_id}: {verdict} {made.foreign_key}."))


@contextmanager
def _keeping() -> Iterator[tuple[Contracts, StateSnapshot]]:
    """Open what keeps contracts, and the newest version of the state."""
    with (
        wiring.state_database(wiring.configured_settings()) as url,
        wiring.reading_engine(url) as engine,
        wiring.make_reader(engine).snapshot() as snapshot,
    ):
        yield wiring.make_contracts(engine), snapshot


def _foreign_key(snapshot: StateSnapshot, dependent: str, referenced: str) -> ForeignKey:
    sides = side_named(snapshot, dependent), side_named(snapshot, referenced)
    return ForeignKey.of(sides[0].names, sides[1].names)


def _all(snapshot: StateSnapshot) -> list[Contract]:
    return list(
        queries.walk(
            lambda after: queries.page_of(
                snapshot.contracts(0 if after is None else int(after[0]), queries.MAX_LIMIT + 1),
                queries.MAX_LIMIT,
                lambda one: (one.contract_id,),
            )
        )
    )


def _violating_row(snapshot: StateSnapshot, one: Contract) -> Mapping[str, Any] | None:
    """Give the row whose change violated a contract; None where no change did, or it is kept no longer."""
    if one.violated_since is None or one.unknown:
        return None
    events = snapshot.contract_events(one.contract_id, (one.violated_since, 0), 1)
    return next((event.row for event in events if event.version == one.violated_since), None)


def _said(one: Contract) -> str:
    if one.unknown:
        return f"cannot be told, as {' and '.join(one.unknown)} is not kept current"
    phi = "no values"
    if one.coefficient is not None:
        phi = f"Φ {told_share(one.coefficient, '.6g')}, at least {one.least_coefficient:f}"
    if one.state is ContractState.HELD:
        return f"held ({phi})"
    return f"violated since version {one.violated_since} ({phi}; {one.missing_count:,} values are missing)"


def _row(one: Contract) -> list[Any]:
    key = one.foreign_key
    phi = None if one.coefficient is None else told_share(one.coefficient, ".6g")
    least = f"{one.least_coefficient:f}"
    sides = str(key.dependent), str(key.referenced)
    return [one.contract_id, *sides, one.state.value, phi, least, one.missing_count, one.violated_since]


def _document(one: Contract) -> dict[str, Any]:
    return {
        "contract_id": one.contract_id,
        **{side: [list(name) for name in columns.names] for side, columns in one.foreign_key._asdict().items()},
        "state": one.state.value,
        "least_coefficient": float(one.least_coefficient),
        "coefficient": one.coefficient,
        "missing_count": one.missing_count,
        "violated_since": one.violated_since,
        "unknown": list(one.unknown),
    }


def _decided(one: Decision) -> list[Any]:
    key = one.foreign_key
    sides = str(key.dependent), str(key.referenced)
    at = one.decided_at.isoformat(timespec="seconds")
    return [one.decision_id, *sides, one.verdict.value, one.decided_by, at, one.note, one.is_current, one.is_stale]

"""Own `subsetd foreign-keys`: the candidates for foreign keys, ranked, on the terminal and as JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any

import orjson
import typer

from service import wiring
from service.core.errors import NoStateError
from service.core.foreign_keys import sides as sides_of
from service.core.foreign_keys.candidates import THETA, Columns
from service.core.foreign_keys.ranking import Method
from service.core.model import AttributeName
from service.core.quantile_grids import COMPOSITE_CELLS, SINGLE_CELLS
from service.terminal import err, print_table, told_share
from service.usecases.coefficient_table import MethodName
from service.usecases.finding_progress import Stage, Telling, untold
from service.usecases.foreign_key_answers import chosen
from service.usecases.foreign_key_evidence import Describing, ForeignKey, as_fields
from service.usecases.foreign_key_export import KeyFormat, export_keys
from service.usecases.foreign_keys import ForeignKeys, Keys, Question, find_foreign_keys

app = typer.Typer(help="Foreign keys: candidates ranked, with evidence.", invoke_without_command=True)


class ForeignKeyFormat(StrEnum):
    """How a list of candidates is printed; or, as a file for other tools, what is suggested or accepted."""

    TABLE = "table"
    JSON = "json"
    SQL = "sql"
    DBT = "dbt"
    MERMAID = "mermaid"
    GRAPHML = "graphml"


MethodOption = Annotated[Method, typer.Option("--method", help="What ranks candidates.")]
LeastOption = Annotated[
    float, typer.Option("--min-coefficient", min=0, max=1, help="Least inclusion coefficient of a candidate.")
]
KeysOption = Annotated[
    Keys,
    typer.Option(
        "--keys",
        help="What may be referred to: keys that sources declare, unique columns, or (known) these where a table "
        "declares none.",
    ),
]
CellsOption = Annotated[
    int, typer.Option("--cells", min=2, max=65_536, help="Quantiles of a key that randomness is measured on.")
]
TupleCellsOption = Annotated[
    int, typer.Option("--tuple-cells", min=2, max=256, help="The same of each column of a composite key.")
]
EstimatorOption = Annotated[
    MethodName | None,
    typer.Option("--estimator", help="How coefficients are found; default: exactly where values are stored."),
]


@app.callback()
def foreign_keys(
    context: typer.Context,
    method: MethodOption = Method.COMBINED,
    min_coefficient: LeastOption = THETA,
    keys: KeysOption = Keys.KNOWN,
    suggested: Annotated[bool, typer.Option("--suggested", help="Only those that are suggested.")] = False,
    schema: Annotated[str | None, typer.Option("--schema", help="Only dependents of this schema.")] = None,
    table: Annotated[str | None, typer.Option("--table", help="Only dependents of this table.")] = None,
    cells: CellsOption = SINGLE_CELLS,
    tuple_cells: TupleCellsOption = COMPOSITE_CELLS,
    estimator: EstimatorOption = None,
    missing: Annotated[
        int, typer.Option("--missing", min=0, max=1000, help="Missing values to show of what is suggested.")
    ] = 3,
    format_: Annotated[
        ForeignKeyFormat,
        typer.Option("--format", help="How to print the list; as a file: what is suggested or accepted."),
    ] = (ForeignKeyFormat.TABLE),
) -> None:
    """List candidates for foreign keys, the likeliest first."""
    if context.invoked_subcommand is not None:
        sources = ((name, context.get_parameter_source(name)) for name in context.params)
        given = [name.strip("_").replace("_", "-") for name, found in sources if found and found.name == "COMMANDLINE"]
        if given:
            raise typer.BadParameter(
                f"--{given[0]} is of the list of candidates; options of the command stand behind its name",
                param_hint=context.invoked_subcommand,
            )
        return
    with (
        wiring.state_database(wiring.configured_settings()) as url,
        wiring.reading_engine(url) as engine,
        wiring.make_reader(engine).snapshot(with_values=True) as snapshot,
    ):
        with _shown() as telling:
            question = Question(method, min_coefficient, keys, cells, tuple_cells, estimator)
            found = find_foreign_keys(snapshot, question, telling)
        for reason in found.left_out:
            err.print(f"left out: {reason}", markup=False)
        if not found.attributes:
            err.print(NoStateError())
        describing = Describing(snapshot, found, missing)
        described = (
            describing.describe(ranked, with_missing=ranked.suggested)
            for ranked in found.ranked
            if (ranked.suggested or not suggested)
            and _is_of(found.attributes[ranked.candidate.dependent[0]].name, schema, table)
        )
        if format_ is ForeignKeyFormat.JSON:
            _print_json(described)
        elif format_ is ForeignKeyFormat.TABLE:
            print_table(HEADER, map(_row, described))
        else:
            sides = (
                [_names(found, side) for side in one.candidate]
                for one in found.ranked
                if one.suggested and all(found.side(side)[0].stale_since is None for side in one.candidate)
            )
            exported = chosen(snapshot, [sides_of.ForeignKey.of(*names) for names in sides])
            of_table = (one for one in exported if _is_of(one.dependent, schema, table))
            sys.stdout.write(export_keys(of_table, KeyFormat(format_.value)))


SHOW_SECONDS = 0.1
"""How often it is shown how far a finding is."""

HEADER = ["dependent", "referenced", "score", "", "phi", "missing", "distance", "cardinality", "against"]


@contextmanager
def _shown() -> Iterator[Telling]:
    """Show on a terminal how far a finding is; elsewhere nothing."""
    if not err.is_terminal:
        yield untold
        return
    with err.status("") as status:
        last = -SHOW_SECONDS

        def tell(stage: Stage, done: int, total: int | None) -> None:
            nonlocal last
            if (now := time.monotonic()) - last >= SHOW_SECONDS:
                last = now
                status.update(f"{stage} {done:,}" + ("" if total is None else f" of {total:,}"))

        yield tell


def _names(found: ForeignKeys, columns: Columns) -> list[AttributeName]:
    return [found.attributes[column].name for column in columns]


def _is_of(name: Sequence[object], schema: str | None, table: str | None) -> bool:
    return schema in (None, name[0]) and table in (None, name[1])


def _row(one: ForeignKey) -> list[Any]:
    evidence = one.evidence
    return [
        str(sides_of.Side.of(one.dependent)),
        str(sides_of.Side.of(one.referenced)),
        f"{one.score:.3f}",
        "suggested" if one.suggested else "implied" if one.implied else "",
        told_share(evidence.inclusion.coefficient, ".4f"),
        evidence.inclusion.missing,
        None if evidence.distribution is None else f"{evidence.distribution.distance:.4f}",
        evidence.cardinality,
        "; ".join(evidence.against),
    ]


def _print_json(found: Iterable[ForeignKey]) -> None:
    """Print a list, one candidate after the other: evidence of all at once would be much."""
    begin = "["
    for text in _texts(found):
        sys.stdout.write(f"{begin}\n{text}")
        begin = ","
    sys.stdout.write("[]\n" if begin == "[" else "\n]\n")


def _texts(found: Iterable[ForeignKey]) -> Iterator[str]:
    for one in found:
        document = as_fields(one) | {
            side: [list(name) for name in getattr(one, side)] for side in ("dependent", "referenced")
        }
        yield orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY).decode()

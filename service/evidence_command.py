"""Own `subsetd foreign-keys explain`: the evidence of one candidate, with both distributions drawn."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from service import wiring
from service.contract_commands import DependentArgument, ReferencedArgument
from service.core.foreign_keys.candidates import THETA
from service.core.foreign_keys.ranking import Method
from service.core.foreign_keys.sides import ForeignKey
from service.core.quantile_grids import COMPOSITE_CELLS, SINGLE_CELLS
from service.foreign_key_commands import (
    CellsOption,
    EstimatorOption,
    KeysOption,
    LeastOption,
    MethodOption,
    TupleCellsOption,
)
from service.terminal import out, told_share
from service.usecases import foreign_key_evidence as evidence
from service.usecases.distribution_picture import as_blocks
from service.usecases.foreign_key_answers import no_candidate
from service.usecases.foreign_key_names import side_named
from service.usecases.foreign_keys import Keys, Question, find_foreign_keys


def explain(
    dependent: DependentArgument,
    referenced: ReferencedArgument,
    method: MethodOption = Method.COMBINED,
    min_coefficient: LeastOption = THETA,
    keys: KeysOption = Keys.KNOWN,
    cells: CellsOption = SINGLE_CELLS,
    tuple_cells: TupleCellsOption = COMPOSITE_CELLS,
    estimator: EstimatorOption = None,
    missing: Annotated[int, typer.Option("--missing", min=0, max=1000, help="Missing values to show.")] = 3,
) -> None:
    """Say of a candidate why it ranks where it does and what speaks against it, and draw both distributions.

    What a list with other options shows is a candidate with these options here.
    """
    with (
        wiring.state_database(wiring.configured_settings()) as url,
        wiring.reading_engine(url) as engine,
        wiring.make_reader(engine).snapshot(with_values=True) as snapshot,
    ):
        sides = side_named(snapshot, dependent), side_named(snapshot, referenced)
        wanted = ForeignKey.of(sides[0].names, sides[1].names)
        question = Question(method, min_coefficient, keys, cells, tuple_cells, estimator)
        found = find_foreign_keys(snapshot, question)
        names = [[found.attributes[column].name for column in side] for one in found.ranked for side in one.candidate]
        listed = [ForeignKey.of(*pair) for pair in zip(names[::2], names[1::2], strict=True)]
        if wanted not in listed:
            raise no_candidate(wanted, method, found.version)
        place = listed.index(wanted)
        one = evidence.Describing(snapshot, found, missing).describe(found.ranked[place])
    out.print(Text(f"{wanted}\n", "bold"), Text(_told(one, place, len(listed), method)), sep="", end="")


def _told(one: evidence.ForeignKey, place: int, number: int, method: Method) -> str:
    said, inclusion = one.evidence, one.evidence.inclusion
    verdict = "suggested" if one.suggested else "implied" if one.implied else "not suggested"
    missing = "" if inclusion.missing is None else f", {inclusion.missing:,} values missing"
    samples = f": {', '.join(map(repr, inclusion.missing_values))}" if inclusion.missing_values else ""
    lines = [
        f"score      {one.score:.3f}, {verdict} by {method}: number {place + 1} of {number} candidates",
        f"inclusion  Φ {told_share(inclusion.coefficient, '.6g')} ({inclusion.method}){missing}{samples}",
        f"coverage   {told_share(said.coverage, '.4f')} of the key's values, {said.cardinality}",
    ]
    if said.distribution is not None:
        spread = said.distribution
        blocks = as_blocks(spread.dependent, spread.referenced)
        lines += [
            f"distance   {spread.distance:.4f}, at most {spread.error:.4f} off",
            f"dependent  |{blocks[0]}|",
            f"key        |{blocks[1]}|  shares of distinct values, in the order of the key's",
        ]
    lines += [f"{'adds':<10} {term:+.3f} {name}" for name, term in sorted(said.terms.items(), key=lambda t: -abs(t[1]))]
    lines += [f"{'against':<10} {reason}" for reason in said.against]
    return "\n".join(lines) + "\n"

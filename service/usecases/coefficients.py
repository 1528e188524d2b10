"""Own the questions about inclusion coefficients: of one pair, one against all, the largest, a matrix.

A coefficient is exact where the values of both columns are stored, and estimated from sketches elsewhere, or on demand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from service.core import estimators
from service.core.estimators.model import Float64s
from service.usecases import queries
from service.usecases.answers import AttributeInfo, Coefficient, EstimatedCoefficient, Key, Page, SketchInfo
from service.usecases.coefficient_table import (
    EXACT,
    Coefficients,
    Method,
    MethodName,
    Question,
    TooManyColumnsError,
    as_estimate,
    known_exactly,
    rank_of,
    reference_of,
)
from service.usecases.ports import StateSnapshot
from service.usecases.sketched_columns import (
    ColumnInfo,
    ColumnKey,
    NoSketchError,
    choose,
    describe,
    has_values,
    key_of,
    known_column,
    name_of,
    order_of,
    read_sketch,
    read_sketches,
)

MAX_DEPENDENTS_A_PAGE = 256
"""The most dependents whose coefficients one page computes."""

MAX_WORK_A_PAGE = 2_000_000
"""The places of attributes in clusters after which such a page ends; about 0.2 s of Postgres' work."""

MAX_SKETCHES = 1000
"""The most columns whose sketches one answer reads."""

MAX_PAIRS = 250_000
"""The most pairs of a matrix, or among which the largest are looked for."""

BEHIND_ALL: Key = (2.0, 0, 0, "")
"""Behind the last pair of a dependent, by `rank_of`."""


@dataclass(frozen=True, slots=True)
class CoefficientPage(Page[EstimatedCoefficient]):
    """Hold a page of coefficients; `left_out` says of columns why the method has no answer for pairs of theirs."""

    left_out: Mapping[ColumnKey, str]


class Plane(StrEnum):
    """Name what a matrix holds: coefficients, or the lower or the upper ends of their intervals."""

    COEFFICIENT = "coefficient"
    LOW = "low"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class Matrix:
    """Hold the coefficients of all pairs, or an end of their intervals: float64[dependents, referenced]; NaN: none."""

    dependents: Sequence[ColumnInfo]
    referenced: Sequence[ColumnInfo]
    values: Float64s


@dataclass(frozen=True, slots=True)
class Comparison:
    """Hold what each method says of a pair, and the sketches that the estimates are made of."""

    dependent: SketchInfo
    referenced: SketchInfo
    coefficients: Sequence[EstimatedCoefficient]


def refuse_trivial(dependent: ColumnInfo, referenced: ColumnInfo) -> None:
    """Raise `TrivialPairError` for a pair of one column with itself."""
    if key_of(dependent) == key_of(referenced):
        raise queries.TrivialPairError(
            f"{name_of(dependent)} is on both sides; a column contains itself, which is not reported. Name two."
        )


def pair(
    snapshot: StateSnapshot, dependent: ColumnInfo, referenced: ColumnInfo, method: Method
) -> EstimatedCoefficient:
    """Give the coefficient of one pair.

    Raises NoValuesError where the method is exact and values are not stored, NoSketchError where there is no sketch.
    """
    refuse_trivial(dependent, referenced)
    exact = _exact_pair(snapshot, dependent, referenced)
    if not method.is_estimate(dependent, referenced):
        if exact is None:
            name = name_of(referenced if has_values(dependent) else dependent)
            raise queries.NoValuesError(queries.no_values(name))
        return as_estimate(exact, method)
    x, y = (known_column(read_sketch(snapshot, one)) for one in (dependent, referenced))
    return EstimatedCoefficient(reference_of(dependent), reference_of(referenced), method.estimate(x, y), exact)


def compare(snapshot: StateSnapshot, dependent: ColumnInfo, referenced: ColumnInfo, level: float) -> Comparison:
    """Give the coefficient of one pair by every method that has an answer: the exact one first, if it is known."""
    refuse_trivial(dependent, referenced)
    exact = _exact_pair(snapshot, dependent, referenced)
    found = [] if exact is None else [as_estimate(exact, Method(EXACT, level))]
    read = {key_of(one): sketch for one, sketch in read_sketches(snapshot, [dependent, referenced])}
    left, right = read[key_of(dependent)], read[key_of(referenced)]
    if not isinstance(left, str) and not isinstance(right, str):
        x, y = known_column(left), known_column(right)
        found += [
            EstimatedCoefficient(
                reference_of(dependent), reference_of(referenced), Method(MethodName(name), level).estimate(x, y), exact
            )
            for name in estimators.METHODS
            if not any(estimators.lacks(one, name) for one in (x, y))
        ]
    elif not found:
        raise NoSketchError(f"{left if isinstance(left, str) else right}.")
    return Comparison(describe(dependent, left), describe(referenced, right), found)


def page(
    snapshot: StateSnapshot, question: Question, after: Key | None = None, limit: int = queries.MAX_LIMIT
) -> CoefficientPage:
    """List coefficients by dependent, of each the largest first.

    The work of a page is bounded (`MAX_DEPENDENTS_A_PAGE`, `MAX_WORK_A_PAGE`), so it may be short, even empty, and
    still have a next one. Raises TooManyColumnsError for estimates of more than `MAX_SKETCHES` columns.
    """
    remaining = choose(snapshot, question.dependents)
    place, begin = ((), BEHIND_ALL) if after is None else (after[:6], after[6:])
    if begin == BEHIND_ALL:
        remaining = [one for one in remaining if order_of(one) > place]
    else:  # not all pairs of the dependent in which the last page ended may have been given
        remaining = [one for one in remaining if order_of(one) >= place]
    candidates = remaining[:MAX_DEPENDENTS_A_PAGE]
    table = Coefficients(snapshot, candidates, choose(snapshot, question.referenced), question, MAX_SKETCHES)
    found: list[tuple[ColumnInfo, EstimatedCoefficient]] = []
    work = 0
    for one in candidates:
        coefficients, cost = table.of(one)
        found += [(one, each) for each in coefficients if order_of(one) != place or rank_of(each) > begin]
        work += cost
        if len(found) > limit:
            last, each = found[limit - 1]
            kept = [each for _, each in found[:limit]]
            return CoefficientPage(kept, (*order_of(last), *rank_of(each)), table.left_out)
        if work > MAX_WORK_A_PAGE:
            break
    next_key = (*order_of(one), *BEHIND_ALL) if candidates and one is not remaining[-1] else None
    return CoefficientPage([each for _, each in found], next_key, table.left_out)


def top(snapshot: StateSnapshot, question: Question, count: int) -> CoefficientPage:
    """Give the largest coefficients among all pairs chosen.

    Raises TooManyColumnsError for more than `MAX_PAIRS`, or estimates of more than `MAX_SKETCHES` columns.
    """
    table = _bounded(snapshot, question)
    return CoefficientPage(table.largest(count), None, table.left_out)


def matrix(snapshot: StateSnapshot, question: Question, plane: Plane = Plane.COEFFICIENT) -> Matrix:
    """Give the coefficients of all pairs chosen, whatever the question's threshold, or an end of their intervals.

    It is 1 for a column with itself. For coefficients, but not for intervals, numbers of values that are estimated are
    taken for exact, which changes a coefficient by less than its interval. Raises TooManyColumnsError as `top` does.
    """
    table = _bounded(snapshot, question)
    table.are_sizes_trusted = plane is Plane.COEFFICIENT
    rows = {key_of(one): row for row, one in enumerate(table.dependents)}
    places = {key_of(one): place for place, one in enumerate(table.referenced)}
    values = np.full((len(rows), len(places)), np.nan)
    for each in table.all():
        found = each.estimate
        if found.phi is not None:
            told = {Plane.LOW: found.low, Plane.HIGH: found.high}.get(plane, found.phi)
            values[rows[key_of(each.dependent)], places[key_of(each.referenced)]] = told
    for one in table.dependents:
        if key_of(one) in places and table.distinct_count(one):
            values[rows[key_of(one)], places[key_of(one)]] = 1.0
    return Matrix(table.dependents, table.referenced, values)


def _bounded(snapshot: StateSnapshot, question: Question) -> Coefficients:
    dependents, referenced = choose(snapshot, question.dependents), choose(snapshot, question.referenced)
    if len(dependents) * len(referenced) > MAX_PAIRS:
        raise TooManyColumnsError(
            f"{len(dependents):,} by {len(referenced):,} columns are asked for, and an answer has {MAX_PAIRS:,} pairs "
            "at most; choose fewer by schema or table, or ask `subsetd coefficients`, which has no limit."
        )
    return Coefficients(snapshot, dependents, referenced, question, MAX_SKETCHES)


def _exact_pair(snapshot: StateSnapshot, dependent: ColumnInfo, referenced: ColumnInfo) -> Coefficient | None:
    if not (isinstance(dependent, AttributeInfo) and isinstance(referenced, AttributeInfo)):
        return None
    overlap = snapshot.overlap(dependent.attribute_id, referenced.attribute_id)
    return known_exactly(dependent, referenced, {referenced.attribute_id: overlap})

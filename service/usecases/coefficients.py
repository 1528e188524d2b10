"""Own the questions about inclusion coefficients: of one pair, one against all, the largest, a matrix.

A coefficient is exact where the values of both columns are stored, and estimated from sketches elsewhere, or on demand.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from service.core import estimators
from service.core.errors import SubsetdError
from service.core.estimators import Column, Estimate
from service.core.estimators.estimate import NO_VALUES
from service.core.estimators.model import Float64s
from service.core.records import Int64s
from service.usecases import queries
from service.usecases.answers import (
    AttributeInfo,
    AttributeRef,
    Coefficient,
    EstimatedCoefficient,
    Key,
    Page,
    SketchInfo,
    UploadedSketch,
)
from service.usecases.ports import StateSnapshot
from service.usecases.sketched_columns import (
    Choice,
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


class MethodName(StrEnum):
    """Name a way to a coefficient: exactly, or by one of `estimators.METHODS`."""

    EXACT = "exact"
    BML = "bml"
    BML_EXACT_LOAD = "bml-exact-load"
    JOINT_MLE = "joint-mle"
    BOTTOM_K = "bottom-k"
    ESTIMATED = "estimated"


EXACT, BEST = MethodName.EXACT, MethodName.ESTIMATED

MAX_DEPENDENTS_A_PAGE = 256
"""The most dependents whose coefficients one page computes."""

MAX_WORK_A_PAGE = 2_000_000
"""The places of attributes in clusters after which such a page ends; about 0.2 s of Postgres' work."""

ESTIMATE_WORK = 100
"""What an estimate counts as in this work."""

MAX_SKETCHES = 1000
"""The most columns whose sketches one answer reads."""

MAX_PAIRS = 250_000
"""The most pairs of a matrix, or among which the largest are looked for."""

BEHIND_ALL: Key = (2.0, 0, 0, "")
"""Behind the last pair of a dependent, by `_rank`."""


class TooManyColumnsError(SubsetdError):
    """A question is about more columns than one answer computes."""


@dataclass(frozen=True, slots=True)
class Method:
    """Say how coefficients are found: as it is named, or (None) exactly where that is possible, else estimated.

    `level` is that of the estimates' intervals.
    """

    name: MethodName | None = None
    level: float = 0.95

    def is_estimate(self, dependent: ColumnInfo, referenced: ColumnInfo) -> bool:
        """Tell whether the coefficient of this pair is an estimate."""
        if self.name is None:
            return not (has_values(dependent) and has_values(referenced))
        return self.name != EXACT

    def estimate(self, x: Column, y: Column) -> Estimate:
        """Estimate Φ(X, Y)."""
        return estimators.estimate(x, y, self.name or BEST, self.level)


@dataclass(frozen=True, slots=True)
class Question:
    """Ask for the coefficients of pairs of columns, both with `min_distinct` distinct values at least.

    Those show that are above 0 and reach `threshold`; with None all do, also those that are not defined.
    """

    dependents: Choice = field(default_factory=Choice)
    referenced: Choice = field(default_factory=Choice)
    method: Method = field(default_factory=Method)
    threshold: float | None = 0.0
    min_distinct: int = 0


@dataclass(frozen=True, slots=True)
class CoefficientPage(Page[EstimatedCoefficient]):
    """Hold a page of coefficients; `left_out` says of columns why the method has no answer for pairs of theirs."""

    left_out: Mapping[ColumnKey, str]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Hold the coefficients of all pairs, float64[dependents, referenced]; NaN where there is none."""

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
        return _exactly(exact, method)
    x, y = (known_column(read_sketch(snapshot, one)) for one in (dependent, referenced))
    return EstimatedCoefficient(_reference(dependent), _reference(referenced), method.estimate(x, y), exact)


def compare(snapshot: StateSnapshot, dependent: ColumnInfo, referenced: ColumnInfo, level: float) -> Comparison:
    """Give the coefficient of one pair by every method that has an answer: the exact one first, if it is known."""
    refuse_trivial(dependent, referenced)
    exact = _exact_pair(snapshot, dependent, referenced)
    found = [] if exact is None else [_exactly(exact, Method(EXACT, level))]
    read = {key_of(one): sketch for one, sketch in read_sketches(snapshot, [dependent, referenced])}
    left, right = read[key_of(dependent)], read[key_of(referenced)]
    if not isinstance(left, str) and not isinstance(right, str):
        x, y = known_column(left), known_column(right)
        found += [
            EstimatedCoefficient(
                _reference(dependent), _reference(referenced), Method(MethodName(name), level).estimate(x, y), exact
            )
            for name in estimators.METHODS
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
    table = Coefficients(snapshot, candidates, choose(snapshot, question.referenced), question)
    found: list[tuple[ColumnInfo, EstimatedCoefficient]] = []
    work = 0
    for one in candidates:
        coefficients, cost = table.of(one)
        found += [(one, each) for each in coefficients if order_of(one) != place or _rank(each) > begin]
        work += cost
        if len(found) > limit:
            last, each = found[limit - 1]
            kept = [each for _, each in found[:limit]]
            return CoefficientPage(kept, (*order_of(last), *_rank(each)), table.left_out)
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


def matrix(snapshot: StateSnapshot, question: Question) -> Matrix:
    """Give the coefficients of all pairs chosen, whatever the question's threshold; 1 for a column with itself.

    Raises TooManyColumnsError as `top` does.
    """
    table = _bounded(snapshot, question)
    places = {key_of(one): place for place, one in enumerate(table.referenced)}
    values = np.full((len(table.dependents), len(table.referenced)), np.nan)
    for row, one in zip(values, table.dependents, strict=True):
        for each in table.of(one)[0]:
            if each.estimate.phi is not None:
                row[places[key_of(each.referenced)]] = each.estimate.phi
        if key_of(one) in places and table.distinct_count(one):
            row[places[key_of(one)]] = 1.0
    return Matrix(table.dependents, table.referenced, values)


class Partners(NamedTuple):
    """Hold the columns that a dependent is estimated with, and their places in the stack: int64[n], -1 for none."""

    columns: Sequence[ColumnInfo]
    places: Int64s


class Coefficients:
    """Answer for pairs of columns from one snapshot; their sketches are read once, where they are needed.

    `left_out` says of columns why the method has no answer for pairs of theirs.
    """

    def __init__(
        self,
        snapshot: StateSnapshot,
        dependents: Sequence[ColumnInfo],
        referenced: Sequence[ColumnInfo],
        question: Question,
        most_sketches: int | None = MAX_SKETCHES,
    ) -> None:
        """Read what answers need; raise TooManyColumnsError when that are more than `most_sketches` sketches."""
        self._snapshot = snapshot
        self._method = question.method
        self._threshold = question.threshold
        self._columns: dict[ColumnKey, Column] = {}
        sides = {key_of(one): one for one in (*dependents, *referenced)}
        self.left_out: dict[ColumnKey, str] = {}
        if self._method.name == EXACT:
            self.left_out = {key: queries.no_values(name_of(one)) for key, one in sides.items() if not has_values(one)}
        elif self._method.name is not None or not all(map(has_values, sides.values())):
            if most_sketches is not None and len(sides) > most_sketches:
                raise TooManyColumnsError(
                    f"Estimates of {len(sides):,} columns are asked for, and an answer has those of {most_sketches:,} "
                    "at most; choose fewer by schema or table, or ask `subsetd coefficients`, which has no limit."
                )
            self._read_sketches(sides.values())
        self._least = question.min_distinct
        self.dependents = list(filter(self._is_large, dependents))
        self.referenced = list(filter(self._is_large, referenced))
        self._by_id = {one.attribute_id: one for one in self.referenced if isinstance(one, AttributeInfo)}

    def distinct_count(self, one: ColumnInfo) -> float | None:
        """Give the number of distinct values, as well as it is known."""
        if isinstance(one, AttributeInfo) and one.distinct_count is not None:
            return one.distinct_count
        column = self._columns.get(key_of(one))
        return None if column is None else column.size

    def of(self, dependent: ColumnInfo) -> tuple[list[EstimatedCoefficient], int]:
        """Give a dependent's coefficients, the largest first, and the work that they were."""
        if not self._is_large(dependent):
            return [], 0
        shared: dict[int, int] = {}
        work = 0
        if isinstance(dependent, AttributeInfo) and has_values(dependent):
            for other_id, overlap, cluster_count in self._snapshot.overlaps(dependent.attribute_id):
                shared[other_id] = overlap
                work += cluster_count
        found = [_exactly(one, self._method) for one in self._exact(dependent, shared)]
        if self._columns:
            found += self._estimates(dependent, shared)
            work += ESTIMATE_WORK * len(self._asked(dependent).columns)
        if self._threshold is not None:
            found = [one for one in found if one.estimate.phi and one.estimate.phi >= self._threshold]
        return sorted(found, key=_rank), work

    def all(self) -> Iterator[EstimatedCoefficient]:
        """Give the coefficients of all dependents, one after the other."""
        return (each for one in self.dependents for each in self.of(one)[0])

    def largest(self, count: int) -> list[EstimatedCoefficient]:
        """Give so many of all, the largest first; of equal ones in the order of their dependents."""
        return heapq.nsmallest(count, self.all(), key=lambda one: _rank(one)[0])

    def _read_sketches(self, sides: Iterable[ColumnInfo]) -> None:
        for one, sketch in read_sketches(self._snapshot, sides):
            if isinstance(sketch, str):
                self.left_out[key_of(one)] = sketch
            else:
                self._columns[key_of(one)] = known_column(sketch)

    def _is_large(self, one: ColumnInfo) -> bool:
        count = self.distinct_count(one)
        return count is not None and count >= self._least

    def _exact(self, dependent: ColumnInfo, shared: Mapping[int, int]) -> Iterator[Coefficient]:
        """Give the exact coefficients that are asked for; of pairs that share nothing only where all are."""
        if self._threshold is None:
            partners: Iterable[ColumnInfo] = self.referenced
        else:
            partners = (self._by_id[one] for one in shared if one in self._by_id)
        for one in partners:
            known = _known(dependent, one, shared)
            if known is not None and not self._method.is_estimate(dependent, one):
                yield known

    def _asked(self, dependent: ColumnInfo) -> Partners:
        """Give the columns whose coefficients with a dependent are estimates."""
        return self._asked_beside_values if self._method.name is None and has_values(dependent) else self._asked_all

    def _estimates(self, dependent: ColumnInfo, shared: Mapping[int, int]) -> Iterator[EstimatedCoefficient]:
        x = self._columns.get(key_of(dependent))
        if x is None:
            return
        asked = self._asked(dependent)
        place = self._stack[1].get(key_of(dependent))
        for one, found in self._estimates_at_once(place, asked) if place is not None else ():
            yield EstimatedCoefficient(_reference(dependent), _reference(one), found, _known(dependent, one, shared))
        for one, of_one in zip(asked.columns, asked.places.tolist(), strict=True):
            y = self._columns[key_of(one)]
            if (place is not None and of_one >= 0) or key_of(one) == key_of(dependent):
                continue
            if self._threshold and x.is_size_exact and y.is_size_exact and y.size < self._threshold * x.size:
                continue  # Φ is at most |Y| / |X|
            found = self._method.estimate(x, y)
            yield EstimatedCoefficient(_reference(dependent), _reference(one), found, _known(dependent, one, shared))

    def _estimates_at_once(self, place: int, asked: Partners) -> Iterator[tuple[ColumnInfo, Estimate]]:
        """Estimate the pairs of a column of the stack with others of it, in the kernel, that reach the threshold."""
        stack, _ = self._stack
        assert stack is not None
        size, least = stack.sizes[place], self._threshold or 0.0
        others = np.flatnonzero((asked.places >= 0) & (asked.places != place))
        others = others[stack.sizes[asked.places[others]] >= least * size]
        of_place = np.full(len(stack.sizes), -1)
        of_place[asked.places[others]] = others
        pairs = np.full(len(others), place), asked.places[others]
        found = estimators.estimate_pairs(stack, *pairs, self._method.level, least)
        shares = np.stack([found.overlap, found.low, found.high], axis=1) / size
        if self._threshold is None:
            shown = np.arange(len(shares))
        else:
            shown = np.flatnonzero((shares[:, 0] > 0) & (shares[:, 0] >= least))
        for other, (phi, low, high) in zip(of_place[found.y[shown]].tolist(), shares[shown].tolist(), strict=True):
            estimate = Estimate(phi, max(low, 0.0), min(high, 1.0), BEST, self._method.level)
            yield asked.columns[other], estimate

    @cached_property
    def _asked_all(self) -> Partners:
        return self._partners(self.referenced)

    @cached_property
    def _asked_beside_values(self) -> Partners:
        return self._partners([one for one in self.referenced if not has_values(one)])

    def _partners(self, columns: Sequence[ColumnInfo]) -> Partners:
        known = [one for one in columns if key_of(one) in self._columns]
        _, places = self._stack
        return Partners(known, np.array([places.get(key_of(one), -1) for one in known], np.int64))

    @cached_property
    def _stack(self) -> tuple[estimators.Stack | None, dict[ColumnKey, int]]:
        """Stack the columns of which the number of values is known, those of the most common number of registers."""
        known = {key: one for key, one in self._columns.items() if one.size and one.is_size_exact}
        if self._method.name not in (None, BEST) or not known:
            return None, {}
        ((m, _),) = Counter(one.bucket_bits for one in known.values()).most_common(1)
        alike = {key: one for key, one in known.items() if one.bucket_bits == m}
        return estimators.stack(list(alike.values())), {key: place for place, key in enumerate(alike)}


def _bounded(snapshot: StateSnapshot, question: Question) -> Coefficients:
    dependents, referenced = choose(snapshot, question.dependents), choose(snapshot, question.referenced)
    if len(dependents) * len(referenced) > MAX_PAIRS:
        raise TooManyColumnsError(
            f"{len(dependents):,} by {len(referenced):,} columns are asked for, and an answer has {MAX_PAIRS:,} pairs "
            "at most; choose fewer by schema or table, or ask `subsetd coefficients`, which has no limit."
        )
    return Coefficients(snapshot, dependents, referenced, question)


def _exact_pair(snapshot: StateSnapshot, dependent: ColumnInfo, referenced: ColumnInfo) -> Coefficient | None:
    if not (isinstance(dependent, AttributeInfo) and isinstance(referenced, AttributeInfo)):
        return None
    overlap = snapshot.overlap(dependent.attribute_id, referenced.attribute_id)
    return _known(dependent, referenced, {referenced.attribute_id: overlap})


def _known(dependent: ColumnInfo, referenced: ColumnInfo, shared: Mapping[int, int]) -> Coefficient | None:
    """Give the exact coefficient, None where it is not known or trivial."""
    if not (isinstance(dependent, AttributeInfo) and isinstance(referenced, AttributeInfo)):
        return None
    if dependent.distinct_count is None or not has_values(referenced) or key_of(dependent) == key_of(referenced):
        return None
    overlap = shared.get(referenced.attribute_id, 0)
    return Coefficient(queries.reference(dependent), queries.reference(referenced), overlap, dependent.distinct_count)


def _exactly(exact: Coefficient, method: Method) -> EstimatedCoefficient:
    phi = exact.coefficient
    known = Estimate(phi, phi or 0.0, phi or 0.0, EXACT, method.level, None if phi is not None else NO_VALUES)
    return EstimatedCoefficient(exact.dependent, exact.referenced, known, exact)


def _reference(column: ColumnInfo) -> AttributeRef | UploadedSketch:
    return queries.reference(column) if isinstance(column, AttributeRef) else column


def _rank(one: EstimatedCoefficient) -> Key:
    """Order the coefficients of a dependent: the largest first, those that are not defined last."""
    referenced = one.referenced
    phi = -1.0 if one.estimate.phi is None else one.estimate.phi
    if isinstance(referenced, UploadedSketch):
        return -phi, 1, 0, referenced.name
    return -phi, 0, referenced.attribute_id, ""

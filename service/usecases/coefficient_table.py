"""Own the coefficients of many pairs of columns: exact ones by their overlaps, estimates by a kernel where it can."""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from service.core import estimators
from service.core.errors import SubsetdError
from service.core.estimators import Column, Estimate
from service.core.estimators.estimate import NO_VALUES
from service.core.estimators.model import Float64s
from service.core.estimators.rows import NEARLY
from service.core.records import Flags, Int64s
from service.usecases import queries
from service.usecases.answers import (
    AttributeInfo,
    AttributeRef,
    Coefficient,
    EstimatedCoefficient,
    Key,
    UploadedSketch,
)
from service.usecases.ports import StateSnapshot
from service.usecases.sketched_columns import (
    Choice,
    ColumnInfo,
    ColumnKey,
    has_values,
    key_of,
    known_column,
    name_of,
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

ESTIMATE_WORK, ALONE_WORK = 500, 10_000
"""What an estimate counts as in the work of an answer, and one that is made of the pair alone."""


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


class Row(NamedTuple):
    """Hold the estimates of a dependent with others, by their places in the stack: int64[n], float64[n] each.

    Those that are not final are to be made of the pair alone: here sizes are taken for exact, prefixes for registers.
    """

    others: Int64s
    phi: Float64s
    low: Float64s
    high: Float64s
    is_final: Flags


class Coefficients:
    """Answer for pairs of columns from one snapshot; their sketches are read once, where they are needed.

    `left_out` says of columns why the method has no answer for pairs of theirs. With `are_sizes_trusted` numbers of
    values that are estimated are taken for exact: a hundred times faster, but intervals are too narrow.
    """

    are_sizes_trusted = False

    def __init__(
        self,
        snapshot: StateSnapshot,
        dependents: Sequence[ColumnInfo],
        referenced: Sequence[ColumnInfo],
        question: Question,
        most_sketches: int | None = None,
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
        self._sides = sides
        self._references = {key: reference_of(one) for key, one in sides.items()}

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
        shared, work = self._shared(dependent)
        (row,) = self._rows([dependent])
        if key_of(dependent) in self._columns:
            alone = len(self._outside(dependent)) + (0 if row is None else int((~row.is_final).sum()))
            work += ESTIMATE_WORK * len(self._asked) + ALONE_WORK * alone
        return self._ranked(dependent, row, shared), work

    def all(self) -> Iterator[EstimatedCoefficient]:
        """Give the coefficients of all dependents, one after the other; pairs of two dependents are estimated once."""
        for one, row in zip(self.dependents, self._rows(self.dependents), strict=True):
            yield from self._ranked(one, row, self._shared(one)[0])

    def largest(self, count: int) -> list[EstimatedCoefficient]:
        """Give so many of all, the largest first; of equal ones in the order of their dependents.

        Of the estimates that are not final only those are made of the pair alone that may be among them.
        """
        best: list[tuple[Key, EstimatedCoefficient]] = []

        def least() -> float:
            return (best[-1][1].estimate.phi or 0.0) if len(best) == count else -math.inf

        for number, (one, row) in enumerate(zip(self.dependents, self._rows(self.dependents), strict=True)):
            for found in filter(self._is_shown, self._found(one, row, self._shared(one)[0], least)):
                rank, *place = rank_of(found)
                insort(best, ((rank, number, *place), found), key=itemgetter(0))
                del best[count:]
        return [found for _, found in best]

    def _shared(self, dependent: ColumnInfo) -> tuple[dict[int, int], int]:
        """Count the values that a dependent shares with others, by their ids; and the work that this was."""
        if not (isinstance(dependent, AttributeInfo) and has_values(dependent)):
            return {}, 0
        overlaps = self._snapshot.overlaps(dependent.attribute_id)
        return {other: overlap for other, overlap, _ in overlaps}, sum(clusters for *_, clusters in overlaps)

    def _ranked(self, dependent: ColumnInfo, row: Row | None, shared: Mapping[int, int]) -> list[EstimatedCoefficient]:
        return sorted(filter(self._is_shown, self._found(dependent, row, shared)), key=rank_of)

    def _is_shown(self, one: EstimatedCoefficient) -> bool:
        phi = one.estimate.phi
        return self._threshold is None or (phi is not None and phi > 0 and phi >= self._threshold)

    def _read_sketches(self, sides: Iterable[ColumnInfo]) -> None:
        for one, sketch in read_sketches(self._snapshot, sides):
            if isinstance(sketch, str):
                self.left_out[key_of(one)] = sketch
                continue
            column = known_column(sketch)
            reason = estimators.lacks(column, self._method.name or BEST)
            if reason is None:
                self._columns[key_of(one)] = column
            else:
                self.left_out[key_of(one)] = f"{name_of(one)}: {reason}"

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
            known = known_exactly(dependent, one, shared)
            if known is not None and not self._method.is_estimate(dependent, one):
                yield known

    def _found(
        self,
        dependent: ColumnInfo,
        row: Row | None,
        shared: Mapping[int, int],
        least: Callable[[], float] = lambda: -math.inf,
    ) -> Iterator[EstimatedCoefficient]:
        """Give a dependent's coefficients in no order, but for those that are surely below `least` at their turn."""
        for known in self._exact(dependent, shared):
            yield as_estimate(known, self._method)
        if row is not None:
            yield from self._found_in(row, dependent, shared, least)
        for one in self._outside(dependent):
            yield self._alone(dependent, one, shared)

    def _found_in(
        self, row: Row, dependent: ColumnInfo, shared: Mapping[int, int], least: Callable[[], float]
    ) -> Iterator[EstimatedCoefficient]:
        final = np.flatnonzero(row.is_final)
        numbers = np.stack([row.phi[final], row.low[final], row.high[final]], axis=1).tolist()
        for other, (phi, low, high) in zip(row.others[final].tolist(), numbers, strict=True):
            if phi >= least():
                yield self._told(
                    dependent, self._stacked[other], Estimate(phi, low, high, BEST, self._method.level), shared
                )
        rest = np.flatnonzero(~row.is_final)
        rest = rest[np.argsort(-row.phi[rest], kind="stable")]
        for other, high in zip(row.others[rest].tolist(), row.high[rest].tolist(), strict=True):
            if high >= NEARLY * least():
                yield self._alone(dependent, self._stacked[other], shared)

    def _alone(self, dependent: ColumnInfo, referenced: ColumnInfo, shared: Mapping[int, int]) -> EstimatedCoefficient:
        x, y = self._columns[key_of(dependent)], self._columns[key_of(referenced)]
        return self._told(dependent, referenced, self._method.estimate(x, y), shared)

    def _told(
        self, dependent: ColumnInfo, referenced: ColumnInfo, found: Estimate, shared: Mapping[int, int]
    ) -> EstimatedCoefficient:
        sides = self._references[key_of(dependent)], self._references[key_of(referenced)]
        return EstimatedCoefficient(*sides, found, known_exactly(dependent, referenced, shared))

    def _outside(self, dependent: ColumnInfo) -> list[ColumnInfo]:
        """List the columns that a dependent is to be estimated with, and the stack has not both."""
        x = self._columns.get(key_of(dependent))
        if x is None:
            return []

        def can_reach(y: Column) -> bool:
            """Tell whether the sizes let Φ, at most |Y| / |X|, reach the threshold."""
            return not (x.is_size_exact and y.is_size_exact) or y.size / max(x.size, 1) >= (self._threshold or 0)

        is_stacked = key_of(dependent) in self._places
        return [
            one
            for one in (self._not_stacked if is_stacked else self._asked)
            if key_of(one) != key_of(dependent)
            and self._method.is_estimate(dependent, one)
            and can_reach(self._columns[key_of(one)])
        ]

    def _rows(self, dependents: Sequence[ColumnInfo]) -> Iterator[Row | None]:
        """Estimate the dependents of the stack with what it has of the columns asked for; None for the others."""
        places = [self._places.get(key_of(one), -1) for one in dependents]
        if self._stack is None:
            yield from (None for _ in places)
            return
        columns = [self._columns[key_of(one)] for one in self._stacked]
        is_exact = self._method.name is None
        wanted = estimators.Wanted(
            self._threshold,
            self._method.level,
            is_unsized=np.array([not (self.are_sizes_trusted or one.is_size_exact) for one in columns]),
            has_prefixes=np.array([one.prefixes is not None for one in columns]),
            is_left_out=np.array([is_exact and has_values(one) for one in self._stacked]),
        )
        stacked = np.array([place for place in places if place >= 0], np.int64)
        others = np.array([self._places[key_of(one)] for one in self._asked if key_of(one) in self._places], np.int64)
        rows = estimators.estimate_rows(self._stack, stacked, others, wanted)
        for place in places:
            yield None if place < 0 else self._row(place, next(rows), wanted)

    def _row(self, place: int, found: estimators.Overlaps, wanted: estimators.Wanted) -> Row:
        """Give overlaps as shares of the dependent's values, whose number may be an estimate itself."""
        assert self._stack is not None
        column = self._columns[key_of(self._stacked[place])]
        least = most = column.size
        if wanted.is_unsized[place]:
            least, most = estimators.size_bounds(column, self._method.level)
        phi = found.overlap / column.size
        low, high = np.clip(found.low / most, 0, phi), np.maximum(np.minimum(found.high / least, 1), phi)
        return Row(found.y, phi, low, high, wanted.is_final(self._stack, found.x, found.y))

    @cached_property
    def _asked(self) -> list[ColumnInfo]:
        """List the referenced columns that estimates can be made with."""
        return [one for one in self.referenced if key_of(one) in self._columns]

    @cached_property
    def _not_stacked(self) -> list[ColumnInfo]:
        return [one for one in self._asked if key_of(one) not in self._places]

    @cached_property
    def _stacked(self) -> list[ColumnInfo]:
        """List the columns that have values, those of the most common number of registers."""
        known = {key: one for key, one in self._columns.items() if one.size}
        if self._method.name not in (None, BEST) or not known:
            return []
        ((m, _),) = Counter(one.bucket_bits for one in known.values()).most_common(1)
        return [self._sides[key] for key, one in known.items() if one.bucket_bits == m]

    @cached_property
    def _places(self) -> dict[ColumnKey, int]:
        return {key_of(one): place for place, one in enumerate(self._stacked)}

    @cached_property
    def _stack(self) -> estimators.Stack | None:
        return estimators.stack([self._columns[key_of(one)] for one in self._stacked]) if self._stacked else None


def known_exactly(dependent: ColumnInfo, referenced: ColumnInfo, shared: Mapping[int, int]) -> Coefficient | None:
    """Give the exact coefficient, None where it is not known or trivial."""
    if not (isinstance(dependent, AttributeInfo) and isinstance(referenced, AttributeInfo)):
        return None
    if dependent.distinct_count is None or not has_values(referenced) or key_of(dependent) == key_of(referenced):
        return None
    overlap = shared.get(referenced.attribute_id, 0)
    return Coefficient(queries.reference(dependent), queries.reference(referenced), overlap, dependent.distinct_count)


def as_estimate(exact: Coefficient, method: Method) -> EstimatedCoefficient:
    """Give an exact coefficient as the answer of the exact method."""
    phi = exact.coefficient
    known = Estimate(phi, phi or 0.0, phi or 0.0, EXACT, method.level, None if phi is not None else NO_VALUES)
    return EstimatedCoefficient(exact.dependent, exact.referenced, known, exact)


def reference_of(column: ColumnInfo) -> AttributeRef | UploadedSketch:
    """Give a column's name alone."""
    return queries.reference(column) if isinstance(column, AttributeRef) else column


def rank_of(one: EstimatedCoefficient) -> Key:
    """Order the coefficients of a dependent: the largest first, those that are not defined last."""
    referenced = one.referenced
    phi = -1.0 if one.estimate.phi is None else one.estimate.phi
    if isinstance(referenced, UploadedSketch):
        return -phi, 1, 0, referenced.name
    return -phi, 0, referenced.attribute_id, ""

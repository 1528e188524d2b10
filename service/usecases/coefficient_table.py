"""Own the coefficients of many pairs of columns: exact ones by their overlaps, estimates by a kernel where it can."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from service.core import estimators
from service.core.errors import SubsetdError
from service.core.estimators import Column, Estimate
from service.core.estimators.estimate import NO_VALUES
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

ESTIMATE_WORK, UNSIZED_WORK = 500, 30_000
"""What an estimate counts as in this work, and one that the kernel does not make (`Column.fits_stack`)."""

NEARLY = 0.8
"""So much of the threshold lets a pair be estimated anew that the kernel takes for simpler than it is."""


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


class Partners(NamedTuple):
    """Hold the columns that a dependent is estimated with, and their places in the stack: int64[n], -1 for none."""

    columns: Sequence[ColumnInfo]
    places: Int64s


class Coefficients:
    """Answer for pairs of columns from one snapshot; their sketches are read once, where they are needed.

    `left_out` says of columns why the method has no answer for pairs of theirs. With `are_sizes_trusted` numbers of
    values that are estimated are taken for exact: a thousand times faster, but intervals are too narrow. `is_rough`
    goes further: hash prefixes are taken for the registers in them.
    """

    are_sizes_trusted = is_rough = False

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
        found = [as_estimate(one, self._method) for one in self._exact(dependent, shared)]
        if self._columns:
            estimated = list(self._estimates(dependent, shared))
            found += estimated
            work += ESTIMATE_WORK * len(self._asked(dependent).columns)
            work += UNSIZED_WORK * sum(not self._fits_stack(one.dependent, one.referenced) for one in estimated)
        return sorted(filter(self._is_shown, found), key=rank_of), work

    def all(self) -> Iterator[EstimatedCoefficient]:
        """Give the coefficients of all dependents, one after the other."""
        return (each for one in self.dependents for each in self.of(one)[0])

    def largest(self, count: int) -> list[EstimatedCoefficient]:
        """Give so many of all, the largest first; of equal ones in the order of their dependents."""
        self.is_rough = True
        found = heapq.nsmallest(count, self.all(), key=lambda one: rank_of(one)[0])
        self.is_rough = False
        known = [one if one.estimate.method == EXACT else self._again(one) for one in found]
        return sorted(filter(self._is_shown, known), key=lambda one: rank_of(one)[0])

    def _is_shown(self, one: EstimatedCoefficient) -> bool:
        phi = one.estimate.phi
        return self._threshold is None or (phi is not None and phi > 0 and phi >= self._threshold)

    def _again(self, one: EstimatedCoefficient) -> EstimatedCoefficient:
        x, y = self._columns[key_of(one.dependent)], self._columns[key_of(one.referenced)]
        return replace(one, estimate=self._method.estimate(x, y))

    def _fits_stack(self, dependent: AttributeRef | UploadedSketch, referenced: AttributeRef | UploadedSketch) -> bool:
        """Tell whether the kernel's estimate of a pair is as good as that of the pair alone."""
        return all(self._columns[key_of(one)].fits_stack for one in (dependent, referenced))

    def _is_final(self, dependent: ColumnInfo, referenced: ColumnInfo) -> bool:
        """Tell whether the kernel's estimate of a pair will do."""
        if self.is_rough or self._fits_stack(dependent, referenced):
            return True
        sides = (self._columns[key_of(one)] for one in (dependent, referenced))
        return self.are_sizes_trusted and all(one.prefixes is None for one in sides)

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
            is_final = self._is_final(dependent, one)
            yield _of(
                dependent, one, found if is_final else self._method.estimate(x, self._columns[key_of(one)]), shared
            )
        for one, of_one in zip(asked.columns, asked.places.tolist(), strict=True):
            y = self._columns[key_of(one)]
            if (place is not None and of_one >= 0) or key_of(one) == key_of(dependent):
                continue
            if self._threshold and x.is_size_exact and y.is_size_exact and y.size < self._threshold * x.size:
                continue  # Φ is at most |Y| / |X|
            yield _of(dependent, one, self._method.estimate(x, y), shared)

    def _estimates_at_once(self, place: int, asked: Partners) -> Iterator[tuple[ColumnInfo, Estimate]]:
        """Estimate the pairs of a column of the stack with others of it, in the kernel, that reach the threshold.

        Those of which the kernel does not read all that is known need not reach it wholly.
        """
        stack, _ = self._stack
        assert stack is not None
        size = stack.sizes[place]
        others = np.flatnonzero((asked.places >= 0) & (asked.places != place))
        is_final = self._fit_stack & self._fit_stack[place]
        least = (self._threshold or 0.0) * np.where(is_final, 1.0, NEARLY)
        others = others[stack.sizes[asked.places[others]] >= least[asked.places[others]] * size]
        of_place = np.full(len(stack.sizes), -1)
        of_place[asked.places[others]] = others
        pairs = np.full(len(others), place), asked.places[others]
        found = estimators.estimate_pairs(stack, *pairs, self._method.level, NEARLY * (self._threshold or 0.0))
        shares = np.stack([found.overlap, found.low, found.high], axis=1) / size
        if self._threshold is None:
            shown = np.arange(len(shares))
        else:
            reached = np.where(is_final[found.y], shares[:, 0], shares[:, 2])
            shown = np.flatnonzero((reached > 0) & (reached >= least[found.y]))
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
        """Stack the columns that have values, those of the most common number of registers."""
        known = {key: one for key, one in self._columns.items() if one.size}
        if self._method.name not in (None, BEST) or not known:
            return None, {}
        ((m, _),) = Counter(one.bucket_bits for one in known.values()).most_common(1)
        alike = {key: one for key, one in known.items() if one.bucket_bits == m}
        return estimators.stack(list(alike.values())), {key: place for place, key in enumerate(alike)}

    @cached_property
    def _fit_stack(self) -> Flags:
        """Tell of each column of the stack whether all that is known of it is there."""
        return np.array([self._columns[key].fits_stack for key in self._stack[1]])


def known_exactly(dependent: ColumnInfo, referenced: ColumnInfo, shared: Mapping[int, int]) -> Coefficient | None:
    """Give the exact coefficient, None where it is not known or trivial."""
    if not (isinstance(dependent, AttributeInfo) and isinstance(referenced, AttributeInfo)):
        return None
    if dependent.distinct_count is None or not has_values(referenced) or key_of(dependent) == key_of(referenced):
        return None
    overlap = shared.get(referenced.attribute_id, 0)
    return Coefficient(queries.reference(dependent), queries.reference(referenced), overlap, dependent.distinct_count)


def _of(
    dependent: ColumnInfo, referenced: ColumnInfo, found: Estimate, shared: Mapping[int, int]
) -> EstimatedCoefficient:
    exact = known_exactly(dependent, referenced, shared)
    return EstimatedCoefficient(reference_of(dependent), reference_of(referenced), found, exact)


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

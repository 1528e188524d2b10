"""Own the evidence of foreign-key candidates: what was measured, why one ranks where it does, what is against it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from service.core.foreign_keys.candidates import Candidate, Columns
from service.core.foreign_keys.names import NameSimilarity, Vocabulary
from service.core.foreign_keys.ranking import Ranked
from service.core.model import AttributeName
from service.core.quantile_grids import GridHistogram
from service.usecases.foreign_key_ports import KeySnapshot
from service.usecases.foreign_keys import ForeignKeys

PICTURE_CELLS = 64
"""The most cells of a picture of a distribution."""

FEW = 2
"""Values that a flag has."""

RIVAL = 0.5
"""Share of a candidate's score from which another reference of its column speaks against it."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Hold a candidate's randomness, and how both sides spread over the key's values, as shares by cell.

    Neighbouring cells are joined until there are at most `PICTURE_CELLS`.
    """

    distance: float
    error: float
    dependent: Sequence[float]
    referenced: Sequence[float]


@dataclass(frozen=True, slots=True)
class Inclusion:
    """Hold Φ, its interval and the method that found it; how many values are missing (None: not known), and some."""

    coefficient: float
    low: float
    high: float
    method: str
    missing: int | None
    missing_values: Sequence[str]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Hold what speaks for and against a candidate.

    `cardinality` is `1:1` where the dependent repeats no value, else `1:n`; `coverage` the share of the key's values
    that are referred to. `terms` add up, with `intercept`, to the log-odds of a score that is a probability; of other
    methods, and of several columns, they are the score. `distribution` is None where no randomness was measured.
    """

    inclusion: Inclusion
    distribution: Distribution | None
    names: NameSimilarity
    cardinality: str
    coverage: float
    intercept: float
    terms: Mapping[str, float]
    against: Sequence[str] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """Hold a candidate by the names of its columns, side by side, with its rank and evidence."""

    dependent: Sequence[AttributeName]
    referenced: Sequence[AttributeName]
    score: float
    suggested: bool
    implied: bool
    evidence: Evidence


def as_fields(one: Any) -> dict[str, Any]:
    """Give the fields of a dataclass by name, as they are: JSON takes those below, which to copy costs most of it."""
    return {each.name: getattr(one, each.name) for each in fields(one)}


class Describing:
    """Describe candidates of one finding, in the snapshot that it was made in."""

    def __init__(self, snapshot: KeySnapshot, found: ForeignKeys, missing_values: int = 3) -> None:
        """Give so many missing values of a suggested candidate, where they are stored."""
        self._snapshot, self._found, self._missing = snapshot, found, missing_values
        self._references: dict[Columns, list[Ranked]] = defaultdict(list)
        for ranked in found.ranked:
            self._references[ranked.candidate.dependent].append(ranked)

    def describe(self, ranked: Ranked, with_missing: bool = True) -> ForeignKey:
        """Describe one candidate."""
        (_, own), (_, key) = map(self._found.side, ranked.candidate)
        inclusion = self._inclusion(ranked.candidate, with_missing)
        return ForeignKey(
            dependent=self._names(ranked.candidate.dependent),
            referenced=self._names(ranked.candidate.referenced),
            score=ranked.score,
            suggested=ranked.suggested,
            implied=ranked.implied,
            evidence=Evidence(
                inclusion=inclusion,
                distribution=self._distribution(ranked.candidate),
                names=self._similarity(ranked.candidate),
                cardinality="1:n" if own.has_repeats else "1:1",
                coverage=min(inclusion.coefficient * own.distinct / key.distinct, 1.0),
                intercept=ranked.intercept,
                terms=ranked.terms,
                against=tuple(self._against(ranked, inclusion)),
            ),
        )

    @cached_property
    def _words(self) -> Vocabulary:
        tables: dict[str, list[str]] = defaultdict(list)
        for one in self._found.profiles.values():
            tables[one.table].append(one.name)
        return Vocabulary(tables)

    def _similarity(self, candidate: Candidate) -> NameSimilarity:
        """Compare names, of several columns the mean over the pairs."""
        profiles, words = self._found.profiles, self._words
        found = [
            words.similarity(*(words.column(profiles[one].table, profiles[one].name) for one in pair))
            for pair in zip(*candidate, strict=True)
        ]
        if len(found) == 1:
            return found[0]
        means: dict[str, Any] = {
            one.name: float(np.mean([getattr(of, one.name) for of in found])) for one in fields(NameSimilarity)
        }
        return replace(found[0], **means | {"equal": all(one.equal for one in found)})

    def _names(self, columns: Columns) -> tuple[AttributeName, ...]:
        return tuple(self._found.attributes[column].name for column in columns)

    def _inclusion(self, candidate: Candidate, with_missing: bool) -> Inclusion:
        found = self._found.estimates[candidate]
        exact, estimate = found.exact, found.estimate
        missing = None if exact is None else exact.distinct_count - exact.overlap
        values: tuple[str, ...] = ()
        if missing and with_missing and self._missing:
            a, b = (self._found.side(columns)[0].attribute_id for columns in candidate)
            found_values = (one.value for one in self._snapshot.missing_values(a, b, None, self._missing))
            values = tuple(value for value in found_values if value is not None)
        return Inclusion(estimate.phi or 0.0, estimate.low, estimate.high, str(estimate.method), missing, values)

    def _distribution(self, candidate: Candidate) -> Distribution | None:
        spread = self._found.spreads.get(candidate)
        if spread is None:
            return None
        return Distribution(*spread.randomness, _picture(spread.of_dependent), _picture(spread.of_key.tuples))

    def _against(self, ranked: Ranked, inclusion: Inclusion) -> Iterator[str]:
        found = self._found
        (own_attribute, own), (key_attribute, key) = map(found.side, ranked.candidate)
        if inclusion.coefficient < 1:
            missing = "some" if inclusion.missing is None else f"{inclusion.missing:,} of {own.distinct:,}"
            yield f"{missing} values are missing"
        if own.is_integer and key.counts_up:
            yield f"the key counts from {key.least} to {key.greatest}: whole numbers that stay below are all in it"
        if own.distinct <= FEW:
            yield f"it has {own.distinct} distinct value{'s' if own.distinct > 1 else ''}, as a flag has"
        if len(ranked.candidate.referenced) > 1 and key.has_repeats:
            yield f"the key is none: {key.distinct:,} distinct tuples are in {key.rows - key.nulls:,} rows"
        for a, b in zip(*ranked.candidate, strict=True):
            types = found.profiles[a].data_type, found.profiles[b].data_type
            if types[0] != types[1]:
                which = "it" if len(ranked.candidate.dependent) == 1 else found.profiles[a].name
                yield f"{which} is of type {types[0]}, the key of {types[1]}"
        if own.schema != key.schema and (own.table, own.name) == (key.table, key.name):
            yield "the same column of the same table in another schema"
        if ranked.ruled_out_by is not None:
            other = ranked.ruled_out_by
            yield f"{self._said(other.dependent)} refers to {self._said(other.referenced)}, which is at odds with it"
        for other_ranked in self._references[ranked.candidate.dependent]:
            # The best one alone: the list is in the order of scores.
            if other_ranked is not ranked and not ranked.ruled_out_by:
                if other_ranked.score >= RIVAL * ranked.score > 0:
                    yield f"{self._said(other_ranked.candidate.referenced)} scores {other_ranked.score:.3f}"
                break
        for attribute in (own_attribute, key_attribute):
            if attribute.stale_since is not None:
                yield f"{attribute.name} is not kept current since version {attribute.stale_since}"

    def _said(self, columns: Columns) -> str:
        return ", ".join(map(str, self._names(columns)))


def _picture(histogram: GridHistogram) -> tuple[float, ...]:
    """Give the shares of all values by cell, row by row, neighbouring cells joined until they are few enough."""
    cells = prod(histogram.shape)
    joined = -(-cells // PICTURE_CELLS)
    shares = np.bincount(histogram.cells // joined, histogram.counts / histogram.total, -(-cells // joined))
    return tuple(shares.tolist())

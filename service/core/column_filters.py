"""Own the filters of a corpus (MANY, section 3.2): which columns and pairs are not examined, and why.

A filter says what it left out, so that "absent" (examined, does not hold) and "not examined" can be told apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from service.core.records import Flags, Int64s

NULL_TOKENS = ("", "—", "-", "–", "N/A", "?", "Unknown", "- -", "n/a", "•", "- - -", ".", "??", "(n/a)")
"""What stands for NULL in web tables (MANY, Table 2)."""

INTEGER = r"\A[+-]?[0-9]+\z"
"""An integer: a sign or none, then ASCII digits and nothing else, neither blanks nor separators of thousands."""


class Reason(IntFlag):
    """Name why a column or a pair was not examined; several can hold."""

    NO_VALUES = 1
    NULL_COLUMN = 2
    INTEGER_COLUMN = 4
    FEW_VALUES = 8
    NOT_UNIQUE = 16
    LOW_COVERAGE = 32


@dataclass(frozen=True, slots=True)
class Filters:
    """Say what is not examined; the defaults leave out columns without values alone.

    `null_columns` leaves out columns whose values are all null tokens, `integer_columns` those whose values are all
    integers; `non_unique_referenced` refuses referenced columns in which a value repeats or a cell is NULL; `coverage`
    refuses pairs with |dependent| < coverage · |referenced|; dependents have at least `min_values` distinct values.
    """

    null_columns: bool = False
    integer_columns: bool = False
    non_unique_referenced: bool = False
    coverage: Fraction = Fraction(0)
    min_values: int = 1

    def covers_too_little(self, dependent: int | Int64s, referenced: int | Int64s) -> Any:
        """Tell by numbers of distinct values, of one pair or many, whether a dependent cannot reach the coverage."""
        return dependent * self.coverage.denominator < self.coverage.numerator * referenced


PAPER = Filters(null_columns=True, integer_columns=True, non_unique_referenced=True, coverage=Fraction(1, 5))
"""All four filters, with the paper's coverage."""


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """Hold what the filters ask of n columns: distinct values, rows of the table, and what all values are."""

    distinct: Int64s
    rows: Int64s
    null_only: Flags
    integers_only: Flags


@dataclass(frozen=True, slots=True)
class Exclusions:
    """Hold the Reasons, uint8[n], why each column is examined as dependent or as referenced not at all; 0 if it is."""

    filters: Filters
    distinct: Int64s
    dependent: NDArray[np.uint8]
    referenced: NDArray[np.uint8]

    def why_not(self, dependent: int, referenced: int) -> Reason:
        """Say why a pair was not examined; Reason(0) when it was: an IND that is not there does not hold."""
        reasons = Reason(int(self.dependent[dependent]) | int(self.referenced[referenced]))
        if self.filters.covers_too_little(int(self.distinct[dependent]), int(self.distinct[referenced])):
            reasons |= Reason.LOW_COVERAGE
        return reasons

    def summary(self) -> dict[str, dict[Reason, int]]:
        """Count the columns that each reason left out, by their side; a column with two reasons counts for both."""
        sides = {"dependent": self.dependent, "referenced": self.referenced}
        return {
            side: {reason: count for reason in Reason if (count := int(np.count_nonzero(why & reason)))}
            for side, why in sides.items()
        }


def exclude(facts: ColumnFacts, filters: Filters) -> Exclusions:
    """Apply the filters that concern single columns; coverage concerns pairs, and is applied to the sizes of each."""
    both = np.where(facts.distinct == 0, Reason.NO_VALUES, 0).astype(np.uint8)
    for applied, flags, reason in (
        (filters.null_columns, facts.null_only, Reason.NULL_COLUMN),
        (filters.integer_columns, facts.integers_only, Reason.INTEGER_COLUMN),
    ):
        if applied:
            both[flags] |= np.uint8(reason)
    dependent, referenced = both.copy(), both.copy()
    dependent[(facts.distinct > 0) & (facts.distinct < filters.min_values)] |= np.uint8(Reason.FEW_VALUES)
    if filters.non_unique_referenced:
        referenced[(facts.distinct > 0) & (facts.distinct != facts.rows)] |= np.uint8(Reason.NOT_UNIQUE)
    return Exclusions(filters, facts.distinct, dependent, referenced)


def are_null_tokens(texts: pa.Array, tokens: tuple[str, ...] = NULL_TOKENS) -> Flags:
    """Say of each text whether it stands for NULL, bool[n]."""
    return _flags(pc.is_in(texts, value_set=pa.array(tokens, texts.type)))


def are_integers(texts: pa.Array) -> Flags:
    """Say of each text whether it is an integer, bool[n]."""
    return _flags(pc.match_substring_regex(texts, INTEGER))


def all_of(starts: Int64s, flags: Flags) -> Flags:
    """Say of each list, flags[starts[i]:starts[i + 1]], whether it has flags and all of them are set."""
    set_before = np.concatenate(([0], np.cumsum(flags)))
    all_set: Flags = (np.diff(starts) > 0) & (np.diff(set_before[starts]) == np.diff(starts))
    return all_set


def _flags(array: Any) -> Flags:
    flags: Flags = array.to_numpy(zero_copy_only=False)
    return flags

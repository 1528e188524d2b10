"""Own what an audit says: how INDs found anew differ from those that are served, and what filters leave out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from service.core.column_filters import ColumnFacts, Filters, Reason, are_integers, are_null_tokens, exclude
from service.core.group_inds import Inds
from service.core.records import Flags, Int32s, Int64s


@dataclass(frozen=True, slots=True)
class ValueFacts:
    """Hold what one part of the values says of n columns: distinct values here, and what all of them are.

    Of a column without values here all values are whatever one likes: `null_only` and `integers_only` are True.
    """

    distinct: Int64s
    null_only: Flags
    integers_only: Flags

    @staticmethod
    def of(columns: Int32s, starts: Int64s, texts: pa.Array, count: int) -> ValueFacts:
        """Look at values that are each once here: value i has the text texts[i] and is in columns[starts[i]:…]."""
        widths = np.diff(starts)
        null_only, integers_only = np.ones(count, np.bool_), np.ones(count, np.bool_)
        null_only[columns[np.repeat(~are_null_tokens(texts), widths)]] = False
        integers_only[columns[np.repeat(~are_integers(texts), widths)]] = False
        return ValueFacts(np.bincount(columns, minlength=count), null_only, integers_only)

    def merge(self, other: ValueFacts) -> ValueFacts:
        """Put two parts together that share no value."""
        return ValueFacts(
            self.distinct + other.distinct,
            self.null_only & other.null_only,
            self.integers_only & other.integers_only,
        )

    def with_rows(self, rows: Int64s) -> ColumnFacts:
        """Give what the filters ask, once all parts are together; a column without values is nothing at all."""
        has_values = self.distinct > 0
        return ColumnFacts(self.distinct, rows, self.null_only & has_values, self.integers_only & has_values)


@dataclass(frozen=True, slots=True)
class Differences:
    """Hold pairs (dependent, referenced), int32[n, 2] and ascending: INDs that are served wrongly, and that are not."""

    not_served: Int32s
    not_holding: Int32s

    def __len__(self) -> int:
        return len(self.not_served) + len(self.not_holding)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Count what one filter leaves out: columns on either side, INDs, and INDs that no other filter leaves out."""

    dependent_columns: int
    referenced_columns: int
    inds: int
    inds_alone: int


@dataclass(frozen=True, slots=True)
class FilterAccount:
    """Say what the filters that are on leave out, by their reasons, and how many INDs are left by all of them."""

    by_reason: Mapping[Reason, LeftOut]
    inds_left: int


def compare(found: Inds, served: Int32s) -> Differences:
    """Hold INDs that were found against those that are served, int32[n, 2] of (dependent, referenced)."""
    pairs = np.column_stack((found.dependent, found.referenced)).astype(np.int64)
    holding = pairs[:, 0] << 32 | pairs[:, 1]
    standing = served[:, 0].astype(np.int64) << 32 | served[:, 1]
    return Differences(_pairs(np.setdiff1d(holding, standing)), _pairs(np.setdiff1d(standing, holding)))


def account(found: Inds, facts: ColumnFacts, filters: Filters) -> FilterAccount:
    """Say what filters would leave out of the INDs that hold; columns are numbered as in `facts`."""
    excluded = exclude(facts, filters)
    why = excluded.dependent[found.dependent] | excluded.referenced[found.referenced]
    is_low = filters.covers_too_little(facts.distinct[found.dependent], facts.distinct[found.referenced])
    why = np.where(is_low, why | np.uint8(Reason.LOW_COVERAGE), why)
    summary = excluded.summary()
    by_reason: dict[Reason, LeftOut] = {
        reason: LeftOut(
            summary["dependent"].get(reason, 0),
            summary["referenced"].get(reason, 0),
            int(np.count_nonzero(why & reason)),
            int(np.count_nonzero(why == reason)),
        )
        for reason, is_on in (
            (Reason.NULL_COLUMN, filters.null_columns),
            (Reason.INTEGER_COLUMN, filters.integer_columns),
            (Reason.FEW_VALUES, filters.min_values > 1),
            (Reason.NOT_UNIQUE, filters.non_unique_referenced),
            (Reason.LOW_COVERAGE, filters.coverage > 0),
        )
        if is_on
    }
    return FilterAccount(by_reason, int(np.count_nonzero(why == 0)))


def _pairs(codes: Int64s) -> Int32s:
    return np.column_stack((codes >> 32, codes & 0xFFFFFFFF)).astype(np.int32)

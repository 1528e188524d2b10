"""Own what the ranking of foreign keys is told: of each column, and of each candidate."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

from service.core.value_order import ValueOrder


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """Hold what is known of a column: its name, its counters, and the ends of its values.

    `least` and `greatest` are the first and last value in `order`, and `mean_length` is over the distinct values; None
    where no record knows them. `is_primary` says that the column is in its table's declared primary key: False where
    nothing is declared.
    """

    schema: str
    table: str
    name: str
    ordinal: int
    data_type: str
    rows: int
    nulls: int
    distinct: int
    order: ValueOrder
    least: str | None = None
    greatest: str | None = None
    mean_length: float | None = None
    is_integer: bool = False
    is_primary: bool = False

    @property
    def has_repeats(self) -> bool:
        """Tell whether a value is in more than one row."""
        return self.distinct < self.rows - self.nulls

    @property
    def density(self) -> float:
        """Give which share of the whole numbers between its ends a column of integers has; 0 for one of others."""
        if not self.is_integer or self.least is None or self.greatest is None:
            return 0.0
        return self.distinct / (int(self.greatest) - int(self.least) + 1)

    @property
    def counts_up(self) -> bool:
        """Tell whether its values number something: 1..n or 0..n, with few left out."""
        return self.least in ("0", "1") and self.density > 0.8

    def length_difference(self, other: ColumnProfile) -> float:
        """Give how far the mean lengths of both columns' values are apart, NaN where one is not known."""
        if self.mean_length is None or other.mean_length is None:
            return nan
        return abs(self.mean_length - other.mean_length)


@dataclass(frozen=True, slots=True)
class Measured:
    """Hold what was measured of a candidate, of one column or of more; each number is in [0, 1].

    `phi` is its inclusion coefficient, `coverage` the share of the key's values that it has, `distance` its randomness
    and `outside` as in `randomness.outside`: None where they were not measured, 1 where they cannot be (numbers are no
    sample of strings).
    """

    phi: float
    coverage: float
    distance: float | None = None
    outside: float | None = None

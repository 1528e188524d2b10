"""Own the order of a column's values in which its ranks and quantiles are taken.

After Zhang et al., On Multi-Column Foreign Key Discovery (2010), section 3, "Domain Order": numbers numerically,
strings lexicographically, and a column that has both as the Unix command `sort -n` would.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from enum import StrEnum

OrderKey = tuple[Decimal, str]
"""What values are compared by: a number, then the text, code point by code point."""

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_LEADING_NUMBER = re.compile(r"[ \t]*(-?[0-9]*\.?[0-9]+|-?[0-9]+)")
_ZERO = Decimal(0)
_BEYOND = {"-Infinity": Decimal("-Infinity"), "Infinity": Decimal("Infinity"), "NaN": Decimal("Infinity")}
"""Canonical texts of numbers that have no digits; NaN comes behind Infinity by its text, as in Postgres."""


class ValueOrder(StrEnum):
    """Name how the values of a column are ordered."""

    NUMERIC = "numeric"
    LEXICOGRAPHIC = "lexicographic"
    MIXED = "mixed"

    def key(self, value: str) -> OrderKey:
        """Give what a value is compared by; a value that does not fit a numeric order has its leading number, or 0."""
        if self is ValueOrder.LEXICOGRAPHIC:
            return _ZERO, value
        if self is ValueOrder.NUMERIC and value in _BEYOND:
            return _BEYOND[value], value
        number = _LEADING_NUMBER.match(value)
        return (Decimal(number[1]) if number else _ZERO), value

    def is_comparable_with(self, key: ValueOrder) -> bool:
        """Tell whether a column of this order can be a sample of a key of that one: numbers are none of strings.

        Numbers ordered as strings can look spread over a key of which they are a prefix (Figure 3).
        """
        return not (self is ValueOrder.NUMERIC and key is ValueOrder.LEXICOGRAPHIC)


def order_of(values: Iterable[str]) -> ValueOrder:
    """Find the order of a column with these values, in canonical text; without values it is lexicographic."""
    numbers = others = False
    for value in values:
        if _NUMBER.fullmatch(value):
            numbers = True
        elif value not in _BEYOND:
            others = True
        if numbers and others:
            return ValueOrder.MIXED
    return ValueOrder.NUMERIC if numbers else ValueOrder.LEXICOGRAPHIC

"""Own which references of a column are looked at where it has more than can be: a cheap look at names and coverage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from service.core.foreign_keys.names import IDENTIFIERS, split_name

MOST_CANDIDATES = 1 << 17
"""About how many candidates are measured and ranked, in equal shares of columns: it bounds the memory of a finding."""

LEAST_REFERENCES = 16
"""Every column may have so many candidates, however many columns there are."""


class Reference(NamedTuple):
    """Name a key that a column may refer to, with the share of its values that the column has."""

    table: str
    column: str
    coverage: float


def most_references(columns: int) -> int:
    """Give how many candidates each of so many columns may have."""
    return max(LEAST_REFERENCES, MOST_CANDIDATES // max(columns, 1))


def likeliest(dependent: str, references: Sequence[Reference], most: int) -> list[int]:
    """Give the places of at most `most` references, ascending: those with the most words of the dependent's name.

    Of equally many the best covered are taken. Words that only say that something is identified do not count.
    """
    if len(references) <= most:
        return list(range(len(references)))
    words = {*split_name(dependent)} - IDENTIFIERS

    def rank(place: int) -> tuple[int, float]:
        table, column, coverage = references[place]
        return -len(words.intersection((*split_name(table), *split_name(column)))), -coverage

    return sorted(sorted(range(len(references)), key=rank)[:most])

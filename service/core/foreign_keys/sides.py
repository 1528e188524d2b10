"""Own how foreign keys are named: two lists of columns, each of one table, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from service.core.errors import SubsetdError
from service.core.model import AttributeName
from service.core.typed_names import written


class ForeignKeyError(SubsetdError):
    """Two lists of columns cannot be a foreign key."""


class Side(NamedTuple):
    """Name columns of one table; `str()` writes them so that they can be typed back, see `typed_names`."""

    schema: str
    table: str
    columns: tuple[str, ...]

    @classmethod
    def of(cls, names: Sequence[AttributeName]) -> Side:
        """Put columns together; raise ForeignKeyError when they are none, of several tables, or one comes twice."""
        if not names:
            raise ForeignKeyError("A foreign key has a column at least on each side.")
        columns = tuple(name.column for name in names)
        others = [name for name in names if name[:2] != names[0][:2]]
        if others:
            raise ForeignKeyError(f"{names[0]} and {others[0]} are of two tables: the columns of a side are of one.")
        if len(set(columns)) < len(columns):
            raise ForeignKeyError(f"{names[0].schema}.{names[0].table}: a column comes twice among {list(columns)}.")
        return cls(names[0].schema, names[0].table, columns)

    @property
    def names(self) -> list[AttributeName]:
        """Give the full name of each column."""
        return [AttributeName(self.schema, self.table, column) for column in self.columns]

    def __str__(self) -> str:
        return written(*self)


class ForeignKey(NamedTuple):
    """Name dependent columns and those that they refer to, in the same order; `str()` puts an arrow between."""

    dependent: Side
    referenced: Side

    @classmethod
    def of(cls, dependent: Sequence[AttributeName], referenced: Sequence[AttributeName]) -> ForeignKey:
        """Put two sides together; raise ForeignKeyError for sides that cannot be, or not together."""
        sides = Side.of(dependent), Side.of(referenced)
        if len(dependent) != len(referenced):
            raise ForeignKeyError(f"{sides[0]} and {sides[1]} are not of as many columns.")
        if sides[0] == sides[1]:
            raise ForeignKeyError(f"{sides[0]} is on both sides; columns contain themselves. Name two.")
        return cls(*sides)

    def __str__(self) -> str:
        return f"{self.dependent} → {self.referenced}"

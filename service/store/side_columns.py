"""Own how tables keep the two sides of a foreign key: schema, table and columns of each."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row

from service.core.foreign_keys.sides import ForeignKey, Side

SIDES = [f"{side}_{part}" for side in ("dependent", "referenced") for part in ("schema", "table", "columns")]
NAMED = ", ".join(SIDES)


def same(one: str, other: str) -> str:
    """Give the condition that the rows of two tables have the same sides."""
    return " and ".join(f"{one}.{side} = {other}.{side}" for side in SIDES)


def side_values(foreign_key: ForeignKey) -> dict[str, Any]:
    """Give the cells of a row by their columns."""
    sides = zip(("dependent", "referenced"), foreign_key, strict=True)
    return {f"{name}_{part}": value for name, side in sides for part, value in side_parts(side).items()}


def side_parts(side: Side) -> dict[str, Any]:
    """Give the cells of one side."""
    return {"schema": side.schema, "table": side.table, "columns": list(side.columns)}


def foreign_key_of(row: Row[Any]) -> ForeignKey:
    """Read the sides of a row."""
    return ForeignKey(
        Side(row.dependent_schema, row.dependent_table, tuple(row.dependent_columns)),
        Side(row.referenced_schema, row.referenced_table, tuple(row.referenced_columns)),
    )

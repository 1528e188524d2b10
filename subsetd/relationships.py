"""Own `find_relationships` for whoever has tables at hand: frames of pandas or polars beside what the service takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service import relationships
from service.relationships import Relationship
from subsetd._tables import taken_over

__all__ = ["Relationship", "find_relationships"]


def find_relationships(
    tables: Mapping[str, Any],
    coverage_threshold: float = 1.0,
    name_similarity_threshold: float | None = None,
    *,
    method: str = "combined",
    only_suggested: bool = True,
) -> list[Relationship]:
    """Find the foreign keys among tables, by name, the likeliest first; nothing but this process is asked.

    A table is of Arrow, a frame that gives itself as Arrow (pandas 2.2, polars), the path of a CSV file with a header,
    or rows that map a column's name to its value. An index without a name is no column. A
    column refers to one that is unique and never NULL, and has at least a share `coverage_threshold` of its distinct
    values. With `name_similarity_threshold`, in [0, 1], those whose names are less alike are left out. Raises
    ValueError for an argument out of range, and the service's SourceError for a file that is no CSV.
    """
    plain = {name: taken_over(one) if hasattr(one, "__arrow_c_stream__") else one for name, one in tables.items()}
    return relationships.find_relationships(
        plain, coverage_threshold, name_similarity_threshold, method=method, only_suggested=only_suggested
    )

"""Own when the rows that changed of indexed tables become segments of the index: beside the consumer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from service.core.errors import StateError

MOST_CHANGED = 40_000
"""Changed rows of a table that may be in the log: a search reads all of them, of 16 columns in half a second."""

MOST_LOOKS = 300
"""How often fewer may be found and left."""


class Backlog(NamedTuple):
    """Say what is not indexed yet of a table: all (`is_new`), or so many changes of rows."""

    table_id: int
    is_new: bool
    changed: int


@dataclass(frozen=True, slots=True)
class TrackedIndex:
    """Describe the index of a table: as of which version it was built last (None: not yet), of how many rows.

    `changed` counts the changes of rows that are in none of its `segments` yet.
    """

    table: str
    built_version: int | None
    rows: int
    segments: int
    changed: int


class TrackedIndexes(Protocol):
    """Index rows of tables, each table in a transaction of its own. May raise `StateError`."""

    def backlog(self) -> list[Backlog]:
        """Say of each table what is not indexed yet."""

    def compact(self, table_id: int, *, waiting: bool = False) -> bool:
        """Index what is not; False when somebody else is at it (`waiting`: he is waited for), or is in the way.

        Raises StateError for a table whose values cannot be numbered.
        """


class JoinCompactor:
    """Keep the log of changed rows short, as the one that does (there may be more who would)."""

    def __init__(self, indexes: TrackedIndexes) -> None:
        self._indexes = indexes
        self._looks: dict[int, int] = {}

    def look(self) -> None:
        """Index tables that are new, and those of which the log is long or old.

        May raise `StateError`: of a table that cannot be indexed when all others have been.
        """
        failed = None
        for table_id, is_new, changed in self._indexes.backlog():
            looks = self._looks[table_id] = self._looks.get(table_id, 0) + 1 if changed else 0
            try:
                if (is_new or changed > MOST_CHANGED or looks >= MOST_LOOKS) and self._indexes.compact(table_id):
                    self._looks[table_id] = 0
            except StateError as error:
                failed = error
        if failed is not None:
            raise failed


def build(indexes: TrackedIndexes, table_id: int) -> None:
    """Index a table now, and what changed of it. Raises StateError where others are in the way again and again."""
    for _ in range(10):
        if indexes.compact(table_id, waiting=True):
            return
    raise StateError("Others empty the table, or hold its locks, again and again while it is indexed; try again later.")

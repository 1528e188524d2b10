"""Own what is said of keys: columns, or tuples of them, that tell the rows of their table apart, or nearly do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from service.core.foreign_keys.sides import ForeignKey
from service.usecases.answers import AttributeInfo


class DeclaredForeignKey(NamedTuple):
    """Hold a foreign key that a source declares, and whether its values bear it out.

    `holds` is None where that is not known: a side is not kept current, or its tuples are not followed.
    """

    reference_id: int
    source: str
    foreign_key: ForeignKey
    holds: bool | None


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """Describe a key by its attribute's counters; `columns` are its parts, in their order.

    `kind` says why it is tracked: declared, discovered, pinned; None: it is not, its values show it.
    """

    attribute: AttributeInfo
    columns: tuple[str, ...]
    kind: str | None
    is_primary: bool

    @property
    def is_unique(self) -> bool | None:
        """Tell whether no value repeats, whatever of NULL; None where values are not counted.

        Of an insert-only attribute the occurrences say it: as many as there are distinct values.
        """
        one = self.attribute
        if one.distinct_count is None:
            return None
        return one.distinct_count == one.row_count - one.null_count

    @property
    def is_key(self) -> bool | None:
        """Tell whether it tells all rows apart: unique, and never NULL; None where that is not known."""
        return False if self.attribute.null_count else self.is_unique


class KeyKind(StrEnum):
    """Say why a key is tracked: its source declares it, it was found in the values, or somebody chose it."""

    DECLARED = "declared"
    DISCOVERED = "discovered"
    PINNED = "pinned"


class TupleInfo(NamedTuple):
    """Name the attribute that tuples of a table's columns are, and its parts' attributes in their order.

    They are a key where they `are_tracked`; `are_declared` tells that their source says so.
    """

    attribute_id: int
    parts: tuple[int, ...]
    are_tracked: bool
    are_declared: bool


class RepeatedValue(NamedTuple):
    """Hold a value that an attribute has more than once: what may be shown of its text, its key, and how often."""

    value: str | None
    value_key: str
    frequency: int


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Choose keys: of a schema, of a table, and how nearly unique those are that nobody tracks.

    `nearly` is the share of distinct values that may repeat; those that are tracked are listed whatever they are.
    """

    schema: str | None = None
    table: str | None = None
    nearly: float = 0.0
    tracked_only: bool = False

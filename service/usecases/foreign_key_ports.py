"""Own what the finding of foreign keys asks of stored values: the Protocol that the store implements, its answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from service.core.histogram_changes import Histograms, Switched
from service.core.memberships import Memberships
from service.core.quantile_grids import GridHistogram, KeyHistogram
from service.core.value_order import ValueOrder
from service.usecases.ports import StateSnapshot


@dataclass(frozen=True, slots=True)
class ValueStatistics:
    """Tell how the values of an attribute look: their order, the first and last in it, their mean length in characters.

    The ends of numbers are numbers of equal value, not always of the same text; those of a mixed order are not known.
    `is_cut`: some may be beginnings of longer ones, as no more is stored, so that they have no exact ranks.
    """

    order: ValueOrder
    first: str | None
    last: str | None
    is_integer: bool
    mean_length: float
    is_cut: bool


class KeptStatistics(NamedTuple):
    """Hold what is kept of an attribute's values, as of a version: how many distinct ones it had, and how they look."""

    version: int
    distinct: int
    statistics: ValueStatistics


@dataclass(frozen=True, slots=True)
class WantedGrid:
    """Ask for the quantile grids of a key, none of whose values are cut: `cells` of each of its columns at most.

    `columns` are the attributes of its parts, of a key of one column itself; `distinct` and `orders` are of them.
    """

    key_id: int
    columns: tuple[int, ...]
    distinct: tuple[int, ...]
    orders: tuple[ValueOrder, ...]
    cells: int


class DeclaredKey(NamedTuple):
    """Name columns of a table that its source declares as a key, by their places in it."""

    schema: str
    table: str
    ordinals: tuple[int, ...]
    is_primary: bool


class KeySnapshot(StateSnapshot, Protocol):
    """Read of one version of the state also what foreign keys are ranked by; opened `with_values`."""

    def value_statistics(self, attribute_ids: Sequence[int]) -> Iterator[tuple[int, ValueStatistics]]:
        """Tell how the values of attributes look, by (attribute_id); nothing of one without stored values."""

    def kept_statistics(self) -> dict[int, KeptStatistics]:
        """Give what is kept of attributes beside their histograms, by id."""

    def memberships(self) -> Memberships:
        """Give which attributes are in which clusters; they are read once, and overlaps answered from them then."""

    def spreads(
        self, wanted: WantedGrid, attribute_ids: Sequence[int]
    ) -> tuple[KeyHistogram, dict[int, GridHistogram]]:
        """Give a key's exact histogram, and those of attributes over its grid, of all values that are stored."""

    def histograms(self, key_id: int) -> tuple[int, Histograms] | None:
        """Give the histograms of a key that are kept, and as of which version; None where there are none."""

    def value_changes(self) -> list[tuple[int, dict[int, Switched]]]:
        """Give what is logged of the values of followed attributes, by version, behind kept histograms and before."""

    def declared_keys(self) -> list[DeclaredKey]:
        """List the keys that sources declare."""

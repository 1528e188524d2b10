"""Own the history of a pair's inclusion coefficient: when it was what, as far as that is known."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from service.usecases.answers import AttributeInfo, Key, Page
from service.usecases.queries import MAX_LIMIT, page_of, refuse_trivial, require_values

if TYPE_CHECKING:
    from service.usecases.ports import StateSnapshot

LOOK_SECONDS = 60.0
"""So far apart are the looks at coefficients."""

LOST_SECONDS = 3 * LOOK_SECONDS
"""Where nobody looked for so long while versions came, it is not known what was in between: there is a gap."""

NEAR = 0.9
"""The least coefficient of a pair that nobody watches, whose IND broke, that is kept."""


@dataclass(frozen=True, slots=True)
class CoefficientSpan:
    """Hold what the coefficient of a pair was from one version to another, both included.

    While the IND `holds` it is 1 in each of these versions, and counts are not kept. Otherwise it was looked at now and
    then, in the first and the last of them for certain, and found the same each time. `since_at` is when the first
    was committed (None: so long ago that it is not kept), `until_at` when the version behind the last was (None: the
    last is the newest).
    """

    since_version: int
    until_version: int
    since_at: datetime | None
    until_at: datetime | None
    holds: bool
    overlap: int | None
    distinct_count: int | None

    @property
    def coefficient(self) -> float | None:
        """Give Φ; None where the dependent has no values."""
        if self.overlap is None or self.distinct_count is None:
            return 1.0
        return self.overlap / self.distinct_count if self.distinct_count else None


def history(
    snapshot: StateSnapshot,
    dependent: AttributeInfo,
    referenced: AttributeInfo,
    after: Key | None = None,
    limit: int = MAX_LIMIT,
) -> Page[CoefficientSpan]:
    """List what is known of a pair's coefficient, newest first: between two spans it is not known."""
    refuse_trivial(dependent, referenced)
    require_values(dependent, referenced)
    behind = None if after is None else int(after[0])
    found = snapshot.coefficient_spans(dependent.attribute_id, referenced.attribute_id, behind, limit + 1)
    return page_of(found, limit, lambda one: (one.since_version,))

"""Own what is told of the consumer's work in the last half hour: changes and transitions, minute by minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Minute:
    """Count what was committed in the minute from `begin` on: changes applied, INDs that appeared and broke."""

    begin: datetime
    changes: int
    appeared: int
    broke: int


@dataclass(frozen=True, slots=True)
class Activity:
    """Hold the last minutes, ascending, without a gap, the present one last; and changes applied per second now.

    There are less than 30 where so many versions were committed that not all of them were looked at.
    """

    minutes: Sequence[Minute]
    changes_per_second: float

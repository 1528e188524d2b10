"""Own the log of writes: who changed what over HTTP, when, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

LONGEST_TARGET = 1000
"""Characters of a path that are kept."""


@dataclass(frozen=True, slots=True)
class Write:
    """Describe a request that was to change something.

    `route` is the template of its path, `target` the path of what was changed or made, percent-encoded, `status` that
    of the answer. `session` tells sessions of one key apart.
    """

    who: str
    session: str | None
    address: str | None
    method: str
    route: str
    target: str
    status: int | None


@dataclass(frozen=True, slots=True)
class LoggedWrite(Write):
    """Be a write that was logged."""

    write_id: int
    written_at: datetime


class WriteLog(Protocol):
    """Keep the log of writes."""

    def add(self, write: Write) -> None:
        """Keep a write; the oldest of very many are forgotten."""
        ...

    def writes(self, before: int | None, limit: int) -> list[LoggedWrite]:
        """List writes, newest first, those with an id below `before`."""
        ...

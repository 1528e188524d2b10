"""Own how far a finding of foreign keys is, who is told, and how one is ended before its time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from service.core.errors import ConflictError
from service.core.foreign_keys.ranking import Method

One = TypeVar("One")


class Stage(StrEnum):
    """Name what a finding is at, in the order of its stages."""

    CLUSTERS = "clusters"
    INCLUSIONS = "inclusions"
    VALUES = "values"
    RANDOMNESS = "randomness"
    RANKING = "ranking"
    EVIDENCE = "evidence"


Telling = Callable[[Stage, int, int | None], None]
"""Hear the stage, how much of it is done, and of how much (None: not known); what it raises ends the finding."""


class FindingCancelledError(ConflictError):
    """A finding was cancelled; what was found before is still served."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Describe a finding at work.

    INCLUSIONS count candidates found so far, RANDOMNESS keys, RANKING dependent columns, EVIDENCE candidates.
    """

    method: Method
    stage: Stage
    done: int
    total: int | None
    seconds: float
    is_cancelled: bool


def untold(_stage: Stage, _done: int, _total: int | None) -> None:
    """Tell nobody."""


def told(telling: Telling, stage: Stage, ones: Iterable[One], total: int | None) -> Iterator[One]:
    """Yield each one, telling how many were done before it."""
    for done, one in enumerate(ones):
        telling(stage, done, total)
        yield one

"""Own the values of candidates for foreign keys that are kept, and of the findings that they are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from service.core.foreign_keys.ranking import Method
from service.core.foreign_keys.sides import ForeignKey
from service.usecases.foreign_key_decisions import Verdict


@dataclass(frozen=True, slots=True)
class NewCandidate:
    """Hold a candidate with its rank and evidence, as JSON has it."""

    foreign_key: ForeignKey
    score: float
    suggested: bool
    implied: bool
    evidence: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Candidate(NewCandidate):
    """Hold a candidate that is kept: its place from 0, the likeliest first, and what was decided of it last."""

    place: int
    verdict: Verdict | None


@dataclass(frozen=True, slots=True)
class Refresh:
    """Describe a finding of candidates; `left_out` says of columns why they have none, or no randomness.

    `question` has the options it was asked with, None where they were not kept yet.
    """

    refresh_id: int
    method: Method
    version: int
    made_at: datetime
    seconds: float
    left_out: Sequence[str]
    candidates: int
    suggested: int
    question: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class CandidateFilter:
    """Choose candidates: suggested ones alone, those whose dependent is of a schema or table, or one pair.

    `followed`: those alone of whose columns none was dropped or is stale.
    """

    suggested: bool = False
    schema: str | None = None
    table: str | None = None
    foreign_key: ForeignKey | None = None
    followed: bool = False

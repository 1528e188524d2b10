"""Own the shapes of what the dashboard's overview is told."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from service.api.problems import Check
from service.api.schemas import Answer, Counts, Transition, Versioned
from service.usecases.answers import StateHead
from service.usecases.corpora import RefreshState
from service.usecases.ports import LagUnit

CORPORA_SHOWN = 20


class Minute(Answer):
    begin: datetime
    changes: int = Field(description="applied: rows inserted, updated and deleted")
    appeared: int = Field(description="inclusion dependencies")
    broke: int


class Feed(Answer):
    feed: str
    partitions: int = Field(description="of which something was applied")
    version: int | None = Field(description="the batch that moved it last; null: none has")
    paused_at: datetime | None
    is_followed: bool = Field(description="a consumer is at work on it, in whichever process")
    fault: str | None = Field(
        description="why it is not followed as it should be, as its consumer said last, wherever it runs; null: it is"
    )
    fault_at: datetime | None = Field(description="when that was said last")


class NewestAudit(Answer):
    audit_id: int
    version: int
    ended_at: datetime
    differences: int = Field(description="should be 0")


class CorpusHealth(Answer):
    corpus: str
    generation: int | None = Field(description="the one that is served; null before the first refresh has landed")
    state: RefreshState | None = Field(description="of its newest refresh; null: there was none")
    ended_at: datetime | None
    fault: str | None = Field(description="why it, or its last attempt, failed")


class Overview(Versioned):
    generation: int = Field(description="one more for each bootstrap; 0 before the first")
    committed_at: datetime | None
    freshness_seconds: float | None = Field(
        description="from the change at the source to the commit, of the newest batch; null: not known"
    )
    lag_records: float | None = Field(
        description="records (of a file or a slot: bytes) behind the feed's end; "
        "null: not known, or no consumer runs in this process"
    )
    lag_unit: LagUnit | None = Field(description="what lag_records counts; null: no consumer runs in this process")
    lag_seconds: float | None = Field(description="for how long nothing was committed while records wait")
    changes_per_second: float = Field(description="in the last 10 seconds")
    minutes: list[Minute] = Field(description="the last 30, or as many as were counted; the present one last")
    counts: Counts
    contracts: dict[str, int] = Field(description="how many are held, violated, unknown")
    checks: list[Check] = Field(
        description="as of /readyz, and of what makes nothing unready: watches, servers of shards"
    )
    feeds: list[Feed]
    audit: NewestAudit | None = Field(description="the newest; null: none was made")
    corpora: list[CorpusHealth] = Field(description=f"the first {CORPORA_SHOWN}: those at fault, then others, by name")
    corpora_beyond: int = Field(description="how many there are beside these")
    corpora_at_fault: int = Field(description="of all: their newest refresh, or an attempt of it, failed")
    broken: list[Transition] = Field(description="inclusion dependencies that broke last, newest first")


def freshness_of(head: StateHead) -> float | None:
    """Give the seconds from the newest change of a batch at its source to the batch's commit."""
    if head.committed_at is None or head.newest_source_ms is None:
        return None
    return round(max(head.committed_at.timestamp() - head.newest_source_ms / 1000, 0.0), 3)

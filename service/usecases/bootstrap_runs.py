"""Own what is said of bootstraps that run, or did not come to their end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class RunState(StrEnum):
    """Say whether a bootstrap is at work, said that it failed, or died without a word."""

    RUNNING = "running"
    FAILED = "failed"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class BootstrapRun:
    """Hold what a bootstrap told: its stage, how much of it is done and of how much (None: not known)."""

    run_id: int
    source_name: str
    stage: str
    done: int | None
    total: int | None
    started_at: datetime
    stage_started_at: datetime
    progressed_at: datetime
    ended_at: datetime | None
    fault: str | None
    is_alive: bool

    @property
    def state(self) -> RunState:
        """Say how it is."""
        if self.ended_at is not None:
            return RunState.FAILED
        return RunState.RUNNING if self.is_alive else RunState.GONE

    @property
    def expected_end(self) -> datetime | None:
        """Give when the present stage ends if it goes on at its pace; None while nothing can be said."""
        if self.state is not RunState.RUNNING or not self.done or not self.total:
            return None
        return self.stage_started_at + (self.progressed_at - self.stage_started_at) * (self.total / self.done)

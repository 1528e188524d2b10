"""Own the jobs that a service is asked for: one process after the other, and what became of each, kept in memory."""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Generic, TypeVar

from service.core.errors import ConflictError
from service.usecases.refresh_corpora import END_SECONDS, Job, end_jobs, fault_told

What = TypeVar("What")


class JobState(StrEnum):
    """Name where a job is: waiting, at work, or at one of its three ends."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


WAITING = frozenset((JobState.QUEUED, JobState.RUNNING))
"""The states of a job that has not ended."""


@dataclass(frozen=True, slots=True)
class QueuedJob(Generic[What]):
    """Describe a job; `message` is what it said last, once it has ended, or why it failed."""

    job_id: int
    what: What
    state: JobState
    asked_at: datetime
    began_at: datetime | None = None
    ended_at: datetime | None = None
    message: str | None = None


@dataclass(slots=True)
class _AtWork:
    """Hold the job that runs, and since when; asked to end, it is killed at `kill_at`, and ends as (state, message)."""

    job_id: int
    job: Job
    began: float
    kill_at: float | None = None
    outcome: tuple[JobState, str] | None = None


class JobQueue(Generic[What]):
    """Run jobs one at a time, in the order in which they were asked for; may be called from any thread.

    At most `most_waiting` wait, and of the last `most_kept` it is told what became of them; `forget` hears of those
    that are told no more, none of which waits or runs. A job may take `limit`, by a `clock` that never jumps. A service
    that ends forgets all of them; its successor begins with another number, so that no job is taken for one of before.
    """

    def __init__(
        self,
        now: Callable[[], datetime],
        most_waiting: int,
        most_kept: int,
        limit: timedelta | None = None,
        forget: Callable[[What], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        self._most_waiting = most_waiting
        self._most_kept = most_kept
        self._limit = limit
        self._forget = forget
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[int, QueuedJob[What]] = {}
        self._waiting: deque[tuple[int, Callable[[], Job]]] = deque()
        self._running: _AtWork | None = None
        self._newest = secrets.randbelow(1 << 30)  # below the largest number that paths take

    def add(
        self, what: What, start: Callable[[], Job], *, is_same: Callable[[What], bool] = lambda _: False
    ) -> QueuedJob[What]:
        """Ask for a job that `start` begins; one that waits or runs and is the same is given instead.

        Raises ConflictError when too many wait.
        """
        with self._lock:
            for one in self._known.values():
                if one.state in WAITING and is_same(one.what):
                    return one
            if len(self._waiting) >= self._most_waiting:
                raise ConflictError(f"{self._most_waiting} jobs wait already: ask again when one of them has ended.")
            self._newest += 1
            made = self._known[self._newest] = QueuedJob(self._newest, what, JobState.QUEUED, self._now())
            self._waiting.append((made.job_id, start))
            ended = [job_id for job_id, one in self._known.items() if one.state not in WAITING]
            for job_id in ended[: max(len(self._known) - self._most_kept, 0)]:
                self._forget(self._known.pop(job_id).what)
            return made

    def find(self, job_id: int) -> QueuedJob[What] | None:
        """Find a job; None for one that was not asked for, or too long ago."""
        with self._lock:
            return self._known.get(job_id)

    def said(self, job_id: int) -> str:
        """Give the end of what the job that runs has said; nothing of any other."""
        with self._lock:
            return self._running.job.said() if self._running is not None and self._running.job_id == job_id else ""

    def cancel(self, job_id: int) -> QueuedJob[What] | None:
        """Let a job that waits not begin, and ask one that runs to end; raise ConflictError for one that has ended."""
        with self._lock:
            known = self._known.get(job_id)
            if known is None:
                return None
            if known.state is JobState.QUEUED:
                self._waiting = deque(one for one in self._waiting if one[0] != job_id)
                self._end(job_id, JobState.CANCELLED, None)
            elif self._running is not None and self._running.job_id == job_id:
                self._ask_to_end(self._running, JobState.CANCELLED, "It was cancelled.")
            else:
                raise ConflictError(f"It has ended already: {known.state}.")
            return self._known[job_id]

    def look(self) -> None:
        """See what became of the job that runs, and start the next one."""
        with self._lock:
            if self._running is not None and self._tend(self._running):
                return
            if self._waiting:
                job_id, start = self._waiting[0]  # it waits on where its job cannot be started
                self._running = _AtWork(job_id, start(), self._clock())
                self._waiting.popleft()
                began = replace(self._known[job_id], state=JobState.RUNNING, began_at=self._now())
                self._known[job_id] = began

    def close(self) -> None:
        """End the job that runs."""
        with self._lock:
            running, self._running = self._running, None
        if running is not None:
            end_jobs([running.job])

    def _tend(self, running: _AtWork) -> bool:
        """Give whether the job still runs."""
        code = running.job.exit_code()
        if code is not None:
            self._running = None
            said = running.job.said()
            if not code:
                self._end(running.job_id, JobState.DONE, said.rpartition("\n")[2])
            elif running.outcome is not None:
                self._end(running.job_id, *running.outcome)
            else:
                self._end(running.job_id, JobState.FAILED, fault_told(code, said))
            running.job.close()
            return False
        if running.kill_at is not None:
            if self._clock() >= running.kill_at:
                running.job.kill()
        elif self._limit is not None and self._clock() - running.began > self._limit.total_seconds():
            message = f"It took longer than {self._limit.total_seconds():g} s, the most that it may take."
            self._ask_to_end(running, JobState.FAILED, message)
        return True

    def _ask_to_end(self, running: _AtWork, state: JobState, message: str) -> None:
        if running.kill_at is None:
            running.outcome = state, message
            running.kill_at = self._clock() + END_SECONDS
            running.job.end()

    def _end(self, job_id: int, state: JobState, message: str | None) -> None:
        self._known[job_id] = replace(self._known[job_id], state=state, ended_at=self._now(), message=message)

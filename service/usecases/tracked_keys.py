"""Own the tracking of keys that a service is asked for: one job after the other, and what became of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from service.core.errors import ConflictError, NotFoundError
from service.core.foreign_keys.sides import Side
from service.usecases import queries
from service.usecases.answers import AttributeFilter
from service.usecases.job_queue import JobQueue, JobState, QueuedJob
from service.usecases.key_values import KeyFilter
from service.usecases.keys import keys
from service.usecases.ports import StateSnapshot
from service.usecases.refresh_corpora import Job

MOST_WAITING = 100
MOST_KEPT = 1000
"""Trackings of which a service still tells what became of them."""


class TrackingState(StrEnum):
    """Say how far the tracking of a key is."""

    QUEUED = "queued"
    RUNNING = "running"
    TRACKED = "tracked"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Tracking:
    """Describe that a key is to be tracked; `message` is what its job said last, once it has ended."""

    tracking_id: int
    key: Side
    state: TrackingState
    asked_at: datetime
    ended_at: datetime | None = None
    message: str | None = None


class TrackedKeys:
    """Track keys, each by a job of its own and one at a time, and drop them; may be called from any thread.

    `start` begins the job that tracks a key, given where its source is if somebody said so; `drop` tracks columns no
    longer. What waits and what became of it is kept in memory: a service that ends forgets it, with nothing half done.
    """

    def __init__(
        self, start: Callable[[Side, str | None], Job], drop: Callable[[Side], object], now: Callable[[], datetime]
    ) -> None:
        self._start = start
        self._drop = drop
        self._jobs: JobQueue[Side] = JobQueue(now, MOST_WAITING, MOST_KEPT)

    def track(self, key: Side, source: str | None) -> Tracking:
        """Ask for a key to be tracked; one that waits or runs already is given instead.

        Raises ConflictError when too many wait.
        """
        return _tracking(self._jobs.add(key, lambda: self._start(key, source), is_same=lambda other: other == key))

    def tracking(self, tracking_id: int) -> Tracking:
        """Find what was asked for; raise NotFoundError for what this service does not know, or no longer."""
        found = self._jobs.find(tracking_id)
        if found is None:
            raise NotFoundError(
                f"This service was not asked for the tracking {tracking_id} since it started, or too long ago; "
                f"/api/v1/keys?tracked_only=true lists the keys that are tracked."
            )
        return _tracking(found)

    def drop(self, key: Side) -> None:
        """Track columns no longer; raise ConflictError when they are not tracked, NotFoundError when not followed."""
        self._drop(key)

    def look(self) -> None:
        """See what became of the job that runs, and start the next one."""
        self._jobs.look()

    def close(self) -> None:
        """End the job that runs; it has changed nothing, or all."""
        self._jobs.close()


def _tracking(job: QueuedJob[Side]) -> Tracking:
    state = TrackingState.TRACKED if job.state is JobState.DONE else TrackingState(job.state)
    return Tracking(job.job_id, job.what, state, job.asked_at, job.ended_at, job.message)


def require_trackable(snapshot: StateSnapshot, key: Side) -> None:
    """Raise NotFoundError for columns that are not followed, ConflictError for those that are tracked as a key."""
    of_table = AttributeFilter(schema=key.schema, table=key.table)
    followed = {one.name.column for one in queries.walk(lambda after: queries.attributes(snapshot, of_table, after))}
    lacking = [name for name in key.names if name.column not in followed]
    if lacking:
        raise NotFoundError(
            f"No attribute {lacking[0]} is followed in state version {snapshot.head.version}; write names as the list "
            f"of attributes has them."
        )
    tracked = KeyFilter(key.schema, key.table, tracked_only=True)
    if any(one.key.columns == key.columns for one in queries.walk(lambda after: keys(snapshot, tracked, after))):
        raise ConflictError(f"{key} is tracked as a key already.")

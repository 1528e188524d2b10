"""Own the tracking of keys that a service is asked for: one job after the other, and what became of each."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from service.core.errors import ConflictError, NotFoundError
from service.core.foreign_keys.sides import Side
from service.usecases import queries
from service.usecases.answers import AttributeFilter
from service.usecases.key_values import KeyFilter
from service.usecases.keys import keys
from service.usecases.ports import StateSnapshot
from service.usecases.refresh_corpora import Job, end_jobs, fault_told

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
        self._now = now
        self._lock = threading.Lock()
        self._known: dict[int, Tracking] = {}
        self._waiting: deque[tuple[int, str | None]] = deque()
        self._running: tuple[int, Job] | None = None
        self._newest = 0

    def track(self, key: Side, source: str | None) -> Tracking:
        """Ask for a key to be tracked; one that waits or runs already is given instead.

        Raises ConflictError when too many wait.
        """
        with self._lock:
            pending = {TrackingState.QUEUED, TrackingState.RUNNING}
            there = next((one for one in self._known.values() if one.key == key and one.state in pending), None)
            if there is not None:
                return there
            if len(self._waiting) >= MOST_WAITING:
                raise ConflictError(f"{MOST_WAITING} keys wait to be tracked: ask again when one of them is.")
            self._newest += 1
            made = self._known[self._newest] = Tracking(self._newest, key, TrackingState.QUEUED, self._now())
            self._waiting.append((made.tracking_id, source))
            self._forget()
            return made

    def tracking(self, tracking_id: int) -> Tracking:
        """Find what was asked for; raise NotFoundError for what this service does not know, or no longer."""
        with self._lock:
            if tracking_id not in self._known:
                raise NotFoundError(
                    f"This service was not asked for the tracking {tracking_id} since it started, or too long ago; "
                    f"/api/v1/keys?tracked_only=true lists the keys that are tracked."
                )
            return self._known[tracking_id]

    def drop(self, key: Side) -> None:
        """Track columns no longer; raise ConflictError when they are not tracked, NotFoundError when not followed."""
        self._drop(key)

    def look(self) -> None:
        """See what became of the job that runs, and start the next one."""
        with self._lock:
            if self._running is not None:
                tracking_id, job = self._running
                code = job.exit_code()
                if code is None:
                    return
                self._running = None
                self._end(tracking_id, code, job.said())
                job.close()
            if self._waiting:
                tracking_id, source = self._waiting[0]  # it waits on where its job cannot be started
                self._running = tracking_id, self._start(self._known[tracking_id].key, source)
                self._waiting.popleft()
                self._known[tracking_id] = replace(self._known[tracking_id], state=TrackingState.RUNNING)

    def close(self) -> None:
        """End the job that runs; it has changed nothing, or all."""
        with self._lock:
            running, self._running = self._running, None
        if running is not None:
            end_jobs([running[1]])

    def _end(self, tracking_id: int, code: int, said: str) -> None:
        state = TrackingState.FAILED if code else TrackingState.TRACKED
        message = fault_told(code, said) if code else said.rpartition("\n")[2]
        ended = replace(self._known[tracking_id], state=state, ended_at=self._now(), message=message)
        self._known[tracking_id] = ended

    def _forget(self) -> None:
        for tracking_id in list(self._known)[: max(len(self._known) - MOST_KEPT, 0)]:
            del self._known[tracking_id]


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

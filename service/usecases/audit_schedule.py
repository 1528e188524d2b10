"""Own the running of audits by schedule: when one is due, and its one process."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from service.usecases.refresh_corpora import Job, end_jobs


class AuditSchedule:
    """Start an audit as a process of its own when its time comes; not to be called from two threads at once.

    `newest` gives when the newest audit began, of any process; `next_time` a schedule's next time behind another, and
    `ended` hears a process' exit code and what it said last. An audit that was due while nobody was here is run once;
    one that fails is tried again when the next one is due.
    """

    def __init__(
        self,
        schedule: str,
        newest: Callable[[], datetime | None],
        start: Callable[[], Job],
        next_time: Callable[[str, datetime], datetime | None],
        now: Callable[[], datetime],
        ended: Callable[[int, str], None],
    ) -> None:
        self._schedule = schedule
        self._newest = newest
        self._start = start
        self._next_time = next_time
        self._now = now
        self._ended = ended
        self._begun = now()
        self._tried: datetime | None = None
        self._job: Job | None = None

    def look(self) -> None:
        """See what became of the audit that runs, or start one that is due."""
        if self._job is None:
            self._start_due()
        elif (code := self._job.exit_code()) is not None:
            job, self._job = self._job, None
            said = job.said()
            job.close()
            self._ended(code, said)

    def close(self) -> None:
        """End the audit that runs; it has left nothing behind."""
        if self._job is not None:
            end_jobs([self._job])
        self._job = None

    def _start_due(self) -> None:
        known = [moment for moment in (self._newest(), self._tried) if moment is not None]
        due = self._next_time(self._schedule, max(known, default=self._begun))
        if due is not None and due <= self._now():
            self._tried = self._now()
            self._job = self._start()

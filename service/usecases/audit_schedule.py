"""Own the running of audits by schedule: when one is due, and its one process, of all services of a state."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

from service.usecases.refresh_corpora import Job, end_jobs, fault_told

OVERDUE = timedelta(hours=1)
"""How long after its time an audit may begin without anybody being told."""


class Turn(Protocol):
    """Be that one of a state's services which runs the audit that is due. Both may raise `StateError`."""

    def take(self) -> bool:
        """Become it, until it is given back; False while another is."""

    def give_back(self) -> None:
        """Let others; does nothing for who has not taken it."""

    def is_taken(self) -> bool:
        """Tell whether an audit is at work, in whichever service."""


class AuditSchedule:
    """Start an audit as a process of its own when its time comes; not to be called from two threads at once.

    `newest` gives when the newest audit began, of any process; `next_time` a schedule's next time behind another, and
    `ended` hears a process' exit code and what it said last; of several services one has the `turn`. An audit that was
    due while nobody was here is run once; one that fails is tried again when the next one is due, by whomever it ran.
    """

    def __init__(
        self,
        schedule: str,
        newest: Callable[[], datetime | None],
        start: Callable[[], Job],
        next_time: Callable[[str, datetime], datetime | None],
        now: Callable[[], datetime],
        ended: Callable[[int, str], None],
        turn: Turn,
    ) -> None:
        self._schedule = schedule
        self._newest = newest
        self._start = start
        self._next_time = next_time
        self._now = now
        self._ended = ended
        self._turn = turn
        self._begun = now()
        self._tried: datetime | None = None
        self._known: datetime | None = None
        self._job: Job | None = None
        self._failed: tuple[str, datetime | None] | None = None
        """Why the last audit of here failed, and when the newest of then had begun."""

    def look(self) -> None:
        """See what became of the audit that runs, or start one that is due."""
        if self._job is None:
            self._start_due()
        elif (code := self._job.exit_code()) is not None:
            job, self._job = self._job, None
            said = job.said()
            job.close()
            self._failed = (fault_told(code, said), self._known) if code else None
            self._ended(code, said)
            self._turn.give_back()

    def fault(self) -> str | None:
        """Say what is wrong with the audits: the last one failed, or one is overdue; None when nothing is."""
        newest = self._newest()
        failed = self._failed  # another thread may look meanwhile
        if failed is not None and newest == failed[1]:  # else there is one since, whoever made it
            return f"The last audit failed: {failed[0]}"
        due = self._next_time(self._schedule, newest or self._begun)
        if due is None or due + OVERDUE > self._now() or self._turn.is_taken():
            return None
        last = "there was none yet" if newest is None else f"the last one began at {newest:%Y-%m-%d %H:%M} UTC"
        return f"An audit was due at {due:%Y-%m-%d %H:%M} UTC, {last}."

    def close(self) -> None:
        """End the audit that runs; it has left nothing behind."""
        if self._job is not None:
            end_jobs([self._job])
        self._job = None
        self._turn.give_back()

    def _start_due(self) -> None:
        if not self._is_due():
            return
        try:
            # Between the two looks another service's may have landed.
            is_ours = self._turn.take() and self._is_due()
            self._tried = self._now()
            if is_ours:
                self._job = self._begin()
        finally:
            if self._job is None:
                self._turn.give_back()

    def _begin(self) -> Job:
        self._known, self._failed = self._newest(), None
        try:
            return self._start()
        except Exception as error:
            self._failed = str(error), self._known
            raise

    def _is_due(self) -> bool:
        known = [moment for moment in (self._newest(), self._tried) if moment is not None]
        due = self._next_time(self._schedule, max(known, default=self._begun))
        return due is not None and due <= self._now()

"""Own the running of refreshes: what is due, one at a time for each corpus, cancel, time limit, and later attempts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from service.core.errors import NotFoundError
from service.usecases.corpora import Corpus, Refresh, RefreshState
from service.usecases.corpora_ports import Corpora

WAITING = frozenset((RefreshState.QUEUED, RefreshState.RUNNING))
"""The states of a refresh that has not ended."""

END_SECONDS = 30.0
"""How long a job may take to end after it was asked to; then it is killed."""
GONE_SECONDS = 60.0
"""How long a refresh may run without a process at work on it: a job takes the lock of its corpus when it starts."""
FIRST_PAUSE = timedelta(seconds=30)
LONGEST_PAUSE = timedelta(minutes=15)
"""Between attempts; each pause is twice the one before."""

SCHEDULE = "schedule"
"""Who asks for a refresh whose time has come."""


class Job(Protocol):
    """Be a process that runs one refresh."""

    def exit_code(self) -> int | None:
        """Give the exit code when it has ended, None while it runs."""

    def end(self) -> None:
        """Ask it to end."""

    def kill(self) -> None:
        """End it at once."""

    def said(self) -> str:
        """Give the end of what it said."""

    def close(self) -> None:
        """Free what is kept of it when it has ended."""


def end_jobs(jobs: Sequence[Job], clock: Callable[[], float] = time.monotonic) -> None:
    """Ask jobs to end, wait for them, and kill those that take too long."""
    for job in jobs:
        job.end()
    deadline = clock() + END_SECONDS
    for job in jobs:
        while job.exit_code() is None and clock() < deadline:
            time.sleep(0.05)
        if job.exit_code() is None:
            job.kill()
        job.close()


class Observer(Protocol):
    """Hear of refreshes."""

    def began(self, refresh: Refresh) -> None: ...

    def landed(self, refresh: Refresh) -> None: ...

    def failed(self, refresh: Refresh, fault: str, again_at: datetime | None) -> None: ...

    def cancelled(self, refresh: Refresh) -> None: ...


class Unobserved:
    """Tell nobody."""

    def began(self, refresh: Refresh) -> None:
        pass

    def landed(self, refresh: Refresh) -> None:
        pass

    def failed(self, refresh: Refresh, fault: str, again_at: datetime | None) -> None:
        pass

    def cancelled(self, refresh: Refresh) -> None:
        pass


@dataclass(slots=True)
class _Running:
    job: Job
    corpus: Corpus
    attempt: int
    since: float
    ending_since: float | None = None
    over_limit: bool = False


class RefreshRunner:
    """Run queued refreshes, each as a job of its own; not to be called from two threads at once.

    `start` begins a job, `next_time` gives a schedule's next time behind another, `clock` the seconds of a clock that
    never goes back, and at most `at_once` jobs run. Several runners may share one database: who claims a refresh runs
    it. One whose runner and job have died is taken up again by any other.
    """

    def __init__(
        self,
        corpora: Corpora,
        start: Callable[[Refresh], Job],
        next_time: Callable[[str, datetime], datetime | None],
        now: Callable[[], datetime],
        observer: Observer,
        *,
        at_once: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._corpora = corpora
        self._start = start
        self._next_time = next_time
        self._now = now
        self._observer = observer
        self._at_once = at_once
        self._clock = clock
        self._jobs: dict[int, _Running] = {}
        self._unattended: dict[int, float] = {}

    def request_due(self) -> None:
        """Ask for the refreshes whose time has come, also while nobody was here to see it, each once."""
        for corpus in self._corpora.all():
            if corpus.schedule is not None:
                with suppress(NotFoundError):  # it was removed a moment ago, or somebody is at it: the next call asks
                    self._request_if_due(corpus, corpus.schedule)

    def look(self) -> None:
        """See what became of the jobs and of those of others, and start what waits."""
        self._tend()
        self._take_up()
        while len(self._jobs) < self._at_once:
            refresh = self._corpora.next_queued()
            if refresh is None or not self.begin(refresh):
                return

    def begin(self, refresh: Refresh) -> bool:
        """Start a queued refresh; False when another runner has taken it, or one of its corpus runs."""
        if not self._corpora.claim(refresh.refresh_id):
            return False
        claimed, corpus = self._corpora.refresh(refresh.refresh_id), self._corpora.named(refresh.corpus)
        self._jobs[claimed.refresh_id] = _Running(self._start(claimed), corpus, claimed.attempt, self._clock())
        self._observer.began(claimed)
        return True

    def attend(self, refresh_id: int, tell: Callable[[Refresh], None], pause: Callable[[], bool]) -> Refresh:
        """Run one refresh here, unless another runner has it, and wait for its end; give what became of it.

        `tell` hears of it at each look; `pause` is called between two of them, and says whether to wait no longer.
        """
        while True:
            self._tend()
            self._take_up()  # one of the corpus that has died would be in the way for ever where no service runs
            refresh = self._corpora.refresh(refresh_id)
            tell(refresh)
            if refresh.state not in WAITING:
                return refresh
            if refresh.state is RefreshState.QUEUED and (
                refresh.not_before is None or refresh.not_before <= self._now()
            ):
                self.begin(refresh)
            if pause():
                return refresh

    def close(self, *, cancel: bool = False) -> None:
        """End the jobs that run; they wait for the next runner to make the same attempt, or are cancelled."""
        end_jobs([running.job for running in self._jobs.values()], self._clock)
        jobs, self._jobs = self._jobs, {}
        for refresh_id, running in jobs.items():
            refresh = self._find(refresh_id, running.attempt)
            if refresh is None or refresh.state is not RefreshState.RUNNING:
                continue
            if cancel or refresh.cancel_requested:
                self._corpora.end(refresh_id, RefreshState.CANCELLED, None)
            else:
                fault = "The service that ran it ended."
                self._corpora.requeue(refresh_id, running.attempt, fault, self._now(), counts=False)

    def _request_if_due(self, corpus: Corpus, schedule: str) -> None:
        newest = self._corpora.refreshes(corpus.name, limit=1)
        due = self._next_time(schedule, newest[0].queued_at if newest else corpus.created_at)
        if due is not None and due <= self._now() and not (newest and newest[0].state in WAITING):
            self._corpora.request_refresh(corpus.name, requested_by=SCHEDULE, due=due)

    def _tend(self) -> None:
        """See what became of the jobs. Where the database is away, the next look finds all as it is now."""
        for refresh_id, running in list(self._jobs.items()):
            code = running.job.exit_code()
            refresh = self._find(refresh_id, running.attempt)
            if refresh is None:
                running.job.kill()  # it has not taken the lock of the corpus: that is gone, or others work on it
            elif code is None:
                self._watch(refresh, running)
                continue
            elif refresh.state is RefreshState.LANDED:
                self._observer.landed(refresh)
            elif running.over_limit:
                limit = running.corpus.time_limit_seconds
                self._fail(refresh, f"It took longer than its time limit of {limit} s.")
            else:
                self._ended(refresh, running.corpus, fault_told(code, running.job.said()))
            running.job.close()
            del self._jobs[refresh_id]

    def _find(self, refresh_id: int, attempt: int) -> Refresh | None:
        """Find a refresh; None when its corpus was removed, or when another runner makes a later attempt by now."""
        try:
            refresh = self._corpora.refresh(refresh_id)
        except NotFoundError:
            return None
        return refresh if refresh.attempt == attempt else None

    def _watch(self, refresh: Refresh, running: _Running) -> None:
        limit = running.corpus.time_limit_seconds
        running.over_limit |= limit is not None and self._clock() - running.since > limit
        if not refresh.cancel_requested and not running.over_limit:
            return
        if running.ending_since is None:
            running.ending_since = self._clock()
            running.job.end()
        elif self._clock() - running.ending_since > END_SECONDS:
            running.job.kill()

    def _take_up(self) -> None:
        """See to refreshes whose runner is gone: a job that still works may end, one that is gone has failed."""
        unattended: dict[int, float] = {}
        for refresh, is_at_work in self._corpora.running():
            if refresh.refresh_id in self._jobs or is_at_work:
                continue
            since = unattended[refresh.refresh_id] = self._unattended.get(refresh.refresh_id, self._clock())
            if self._clock() - since > GONE_SECONDS:
                self._ended(refresh, self._corpora.named(refresh.corpus), "Its process is gone.")
        self._unattended = unattended

    def _ended(self, refresh: Refresh, corpus: Corpus, fault: str) -> None:
        """Say of a refresh whose process ended without landing that it is cancelled, or has failed."""
        if refresh.cancel_requested:
            self._corpora.end(refresh.refresh_id, RefreshState.CANCELLED, None)
            self._observer.cancelled(refresh)
        elif refresh.attempt <= corpus.retries:
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(refresh.attempt - 1, 10))
            again_at = self._now() + pause
            self._corpora.requeue(refresh.refresh_id, refresh.attempt, fault, again_at)
            self._observer.failed(refresh, fault, again_at)
        else:
            self._fail(refresh, fault)

    def _fail(self, refresh: Refresh, fault: str) -> None:
        self._corpora.end(refresh.refresh_id, RefreshState.FAILED, fault)
        self._observer.failed(refresh, fault, None)


def cancel_all(corpora: Corpora, name: str) -> list[Refresh]:
    """Cancel what waits or runs of a corpus; raise NotFoundError when nothing does."""
    newest = corpora.refreshes(name, limit=10)
    found = [corpora.cancel(refresh.refresh_id) for refresh in newest if refresh.state in WAITING]
    if not found:
        raise NotFoundError(
            f"No refresh of {name} waits or runs; `subsetd corpus history {name}` lists those there were."
        )
    return found


def fault_told(code: int, said: str) -> str:
    """Give the message of an error that a job told, or else how it ended and its last lines."""
    lines = [line for line in said.splitlines() if line.strip()]
    told = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    if told:
        return "\n".join(lines[told[-1] :]).removeprefix("error: ")
    return "\n".join([f"Its process ended with exit code {code}.", *lines[-5:]])

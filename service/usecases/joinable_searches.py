"""Own how a search for joinable tables is served: at once where it is short, else as a job of its own process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from service.core.errors import NotFoundError, SubsetdError
from service.core.joinability import Progress
from service.usecases.job_queue import JobQueue, JobState, QueuedJob
from service.usecases.joinable import JoinQuery, JoinQuestion, require_askable
from service.usecases.joinable_details import JoinSearch, TooLongError
from service.usecases.refresh_corpora import Job

AT_ONCE_ROWS = 20_000
AT_ONCE_SECONDS = 2.0
AT_ONCE_LOOKS = 10_000_000
"""A query of more rows is a job; so is one that is searched for so long, or would leave a table unfinished after so
many looks at a pair, some hundredths of a second."""
PAIRS_A_POSTING = 10
"""Pairs of row and key that a search at once may look at, for each posting that it may fetch."""

MOST_POSTINGS = 30_000_000
"""Postings that a search may fetch: some GB."""

MOST_WAITING = 20
MOST_KEPT = 100
"""Searches of which a service still tells what they found; their answers lie in files."""


class TooManyPostingsError(SubsetdError):
    """A search has more postings than memory is for."""


class JoinLimits(NamedTuple):
    """Bound what is asked: bytes of an upload, rows, postings that are fetched at once, and the time of a job."""

    upload_bytes: int
    rows: int
    at_once_postings: int
    time: timedelta


class TrackedRows(Protocol):
    """Read the key cells of a tracked table's rows, at most so many rows and bytes of cells.

    Raises NotFoundError, and SourceError where its rows cannot be had, or are too many.
    """

    def __call__(self, schema: str, table: str, key: Sequence[str], most_rows: int, most_bytes: int) -> JoinQuery: ...


class KeptSearch(Protocol):
    """Be a query that is kept for its job, and its answer."""

    def start(self) -> Job:
        """Begin its job."""

    def answer(self) -> Mapping[str, Any]:
        """Give the answer's fields, when the job is done."""

    def forget(self) -> None:
        """Let go of both."""


class Search(NamedTuple):
    """Tell of a search: its job, how far that is, as tables, and its answer; one that was answered at once has no job.

    The answer has the fields of `JoinAnswer`.
    """

    job: QueuedJob[KeptSearch] | None
    done: int | None = None
    total: int | None = None
    answer: Mapping[str, Any] | None = None


class JoinSearches:
    """Search, and tell what became of searches; may be called from any thread.

    What was asked is kept by `keep` until its job has been forgotten.
    """

    def __init__(
        self,
        search: JoinSearch,
        tracked_rows: TrackedRows,
        keep: Callable[[JoinQuery, JoinQuestion], KeptSearch],
        limits: JoinLimits,
        now: Callable[[], datetime],
    ) -> None:
        self.tracked_rows = tracked_rows
        self.most_bytes = limits.upload_bytes
        self.most_rows = limits.rows
        self._search = search
        self._keep = keep
        self._at_once = limits.at_once_postings
        self._jobs: JobQueue[KeptSearch] = JobQueue(
            now, MOST_WAITING, MOST_KEPT, limits.time, lambda kept: kept.forget()
        )

    def ask(self, query: JoinQuery, question: JoinQuestion) -> Search:
        """Answer at once, or begin a job.

        Raises NotFoundError, SourceError for what cannot be asked, and ConflictError where too many jobs wait.
        """
        require_askable(query, question)
        if self._at_once and len(query.columns[0]) <= AT_ONCE_ROWS:
            end = time.monotonic() + AT_ONCE_SECONDS
            try:
                answer = self._search.answer(
                    query, question, AT_ONCE_LOOKS, self._bounded(end), lambda: end - time.monotonic()
                )
            except TooLongError:
                pass
            else:
                if not answer.unfinished:
                    return Search(None, answer=asdict(answer))
        self._search.require_index(question.corpus, question.near)
        kept = self._keep(query, question)
        try:
            return Search(self._jobs.add(kept, kept.start))
        except SubsetdError:
            kept.forget()
            raise

    def find(self, search_id: int) -> Search:
        """Tell what became of a search; raise NotFoundError for one that this service does not know, or no longer."""
        return self._told(self._jobs.find(search_id), search_id)

    def cancel(self, search_id: int) -> Search:
        """Let a search end; raise ConflictError for one that has ended, and as `find` does."""
        return self._told(self._jobs.cancel(search_id), search_id)

    def look(self) -> None:
        """See what became of the search that runs, and start the next one."""
        self._jobs.look()

    def close(self) -> None:
        """End the search that runs."""
        self._jobs.close()

    def _told(self, job: QueuedJob[KeptSearch] | None, search_id: int) -> Search:
        if job is None:
            raise NotFoundError(
                f"This service was not asked for the search {search_id} since it started, or too long ago: ask again."
            )
        if job.state is JobState.DONE:
            return Search(job, answer=job.what.answer())
        return Search(job, *read_progress(self._jobs.said(search_id)))

    def _bounded(self, end: float) -> Callable[[Progress], None]:
        def tell(progress: Progress) -> None:
            if progress.postings > self._at_once or progress.pairs > PAIRS_A_POSTING * self._at_once:
                raise TooLongError
            if time.monotonic() > end:
                raise TooLongError

        return tell


def require_bounded(progress: Progress) -> None:
    """Raise TooManyPostingsError for a search that memory is not for."""
    if progress.postings > MOST_POSTINGS:
        raise TooManyPostingsError(
            f"Of the key column with the fewest, {progress.postings:,} cells of a corpus or table have its values; "
            f"at most {MOST_POSTINGS:,} are looked at. Ask with a further key column, or with fewer rows."
        )


def written_progress(progress: Progress) -> str:
    """Write a line that `read_progress` reads."""
    return json.dumps({"done": progress.done, "total": progress.tables})


def read_progress(said: str) -> tuple[int | None, int | None]:
    """Give done and total of the last line that tells them; None where none does."""
    for line in reversed(said.splitlines()):
        if line.startswith('{"done"'):
            told = json.loads(line)
            return told["done"], told["total"]
    return None, None

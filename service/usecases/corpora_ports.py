"""Own what the use cases need of corpora: the Protocols that the store implements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from service.usecases.corpora import (
    Change,
    ColumnFilter,
    Corpus,
    CorpusColumn,
    CorpusFault,
    CorpusInd,
    CorpusStanding,
    CorpusTable,
    NewCorpus,
    PairAnswer,
    Refresh,
    RefreshState,
    TableVersions,
)

if TYPE_CHECKING:  # what computes INDs is compiled, and what asks for them is not
    from service.core.group_inds import Inds


class CorpusSnapshot(Protocol):
    """Read one generation of a corpus; all methods of one snapshot see the same.

    Lists come in a fixed order, named in each method's first line, and hold at most `limit` items behind the key
    `after`, which is made of the columns of that order.
    """

    @property
    def corpus(self) -> Corpus:
        """Name the corpus as it was when the snapshot was opened."""

    @property
    def generation(self) -> int:
        """Name the generation that is read."""

    @property
    def generations(self) -> tuple[int, ...]:
        """Name the generations that can be read, ascending: the served one and, if there is one, that before it."""

    def counts(self) -> dict[str, int]:
        """Count `tables`, `columns` and `inds` of the generation."""

    def inds(
        self,
        dependent: ColumnFilter = ...,
        referenced: ColumnFilter = ...,
        *,
        after: tuple[int, int] | None = None,
        limit: int,
    ) -> list[CorpusInd]:
        """List INDs by (dependent column id, referenced column id).

        The other way round where fewer referenced columns are chosen than dependent ones; `after` names the dependent
        column first.
        """

    def pair(self, dependent: ColumnFilter, referenced: ColumnFilter) -> PairAnswer:
        """Say whether an IND holds; both filters name a table and a position.

        Raises NotFoundError, and TrivialPairError for a column with itself.
        """

    def tables(self, *, after: int | None = None, limit: int) -> list[CorpusTable]:
        """List tables by (table_number)."""

    def paths(self, numbers: Sequence[int]) -> dict[int, str]:
        """Give the paths of tables by their numbers."""

    def table(self, path: str) -> CorpusTable:
        """Find the table at a path; raise NotFoundError."""

    def columns(self, path: str, *, after: int | None = None, limit: int) -> list[CorpusColumn]:
        """List columns of the table at a path by (position); raise NotFoundError when there is no such table."""

    def changes(self, *, after: tuple[int, int] | None = None, limit: int) -> list[Change]:
        """List what changed from the generation before to this one by (dependent column id, referenced column id).

        Raises NotFoundError when the generation before is not kept.
        """

    def faults(self, *, after: int | None = None, limit: int) -> list[tuple[int, CorpusFault]]:
        """List what could not be read, with their numbers, by (number)."""

    def stream_pairs(self) -> Iterator[Inds]:
        """Give all INDs by (dependent, referenced) column id, in blocks of at most a million."""

    def stream_tables(self) -> Iterator[TableVersions]:
        """Give all tables by (table_number), in blocks of some ten thousand."""


class Corpora(Protocol):
    """Keep the register of corpora, the queue of their refreshes, and answer. Every method may raise `StateError`.

    Methods that take a name raise NotFoundError when no corpus has it, those that take an id of a refresh likewise.
    """

    def database(self) -> str:
        """Name the database that keeps the corpora, as no other one anywhere is called."""

    def add(self, new: NewCorpus) -> Corpus:
        """Register a corpus; raise `ConflictError` when the name is taken."""

    def change(self, name: str, changed: Callable[[Corpus], NewCorpus]) -> Corpus:
        """Let a corpus have other settings, schedule, time limit and retries; `changed` is given it as it is.

        Of two that change it at once the second is given what the first has made of it.
        """

    def remove(self, name: str) -> Corpus:
        """Forget a corpus with all of its INDs; raise `ConflictError` while a refresh of it runs."""

    def named(self, name: str) -> Corpus:
        """Find a corpus by its name."""

    def all(self) -> list[Corpus]:
        """List the corpora by name."""

    def standings(self) -> list[CorpusStanding]:
        """Tell of each corpus by name how it is."""

    def request_refresh(
        self, name: str, *, full: bool = False, requested_by: str, due: datetime | None = None
    ) -> Refresh:
        """Queue a refresh; one that waits already is given, made full when asked for, and waits for no next attempt.

        One that was `due` by a schedule counts as queued no earlier, and waits for nobody who changes or removes the
        corpus: there is none then.
        """

    def refreshes(self, name: str | None = None, *, before: int | None = None, limit: int) -> list[Refresh]:
        """List refreshes of one corpus or all, newest first: by descending (refresh_id), those below `before`."""

    def refresh(self, refresh_id: int) -> Refresh:
        """Find a refresh."""

    def cancel(self, refresh_id: int) -> Refresh:
        """Cancel a refresh that waits, or ask one that runs to end; raise `ConflictError` for one that has ended."""

    def next_queued(self) -> Refresh | None:
        """Give the oldest refresh that may begin now: none of its corpus runs, and its time has come."""

    def claim(self, refresh_id: int) -> bool:
        """Take a queued refresh to run it, one more attempt; False when it is not queued, or one of its corpus runs."""

    def progress(self, refresh_id: int, stage: str, done: int, total: int) -> bool:
        """Tell how far a refresh is; give whether it is asked to end."""

    def requeue(self, refresh_id: int, attempt: int, fault: str, not_before: datetime, *, counts: bool = True) -> None:
        """Put a refresh whose attempt of this number failed back in the queue; one that is at another stays there.

        An attempt that was broken off for no fault of its own does not count: it is made again. One that was to be
        cancelled is.
        """

    def end(self, refresh_id: int, state: RefreshState, fault: str | None) -> None:
        """End a refresh that did not land (failed or cancelled); one that has ended already stays as it is."""

    def running(self) -> list[tuple[Refresh, bool]]:
        """List the refreshes that run, each with whether a process is at work on it: holds the corpus' lock."""

    def faults(self, refresh_id: int, *, after: int | None = None, limit: int) -> list[tuple[int, CorpusFault]]:
        """List what a refresh could not read, with their numbers, by (number)."""

    def snapshot(
        self, name: str, generation: int | None = None, corpus_id: int | None = None
    ) -> AbstractContextManager[CorpusSnapshot]:
        """Open a generation of a corpus for reading, None: the served one; `corpus_id` is set where a page goes on.

        Raises NotFoundError when nothing landed yet, the generation is not kept any more, or the corpus of this name is
        another by now.
        """

    def clean(self) -> Sequence[str]:
        """Remove what refreshes that died, removed corpora and past generations left behind; name what it removed.

        Leaves what is in use for the next call.
        """

"""Own the finding of foreign keys by schedule: when it is due, and whether anything has changed since the last."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from service.core.errors import ConflictError
from service.core.foreign_keys.ranking import Method
from service.usecases.foreign_key_answers import ForeignKeyFinder
from service.usecases.foreign_keys import Question
from service.usecases.ports import StateReader


class FindingSchedule:
    """Find foreign keys by the combined method when their time comes and what is served is not what it would find.

    That is where the state is newer than the last finding, or somebody has asked for that with other options.
    `next_time` gives a schedule's next time behind another. A finding that was due while nobody was here, or nothing
    had changed, is made up for; one that fails is tried again when the next one is due.
    """

    def __init__(
        self,
        schedule: str,
        reader: StateReader,
        finder: ForeignKeyFinder,
        next_time: Callable[[str, datetime], datetime | None],
        now: Callable[[], datetime],
    ) -> None:
        self._schedule = schedule
        self._reader = reader
        self._finder = finder
        self._next_time = next_time
        self._now = now
        self._begun = now()
        self._tried: datetime | None = None
        self._newest: int | None = None
        self.fault: str | None = None
        """Why the last finding failed; None when it did not, or there is one since, whoever made it."""

    def look(self) -> None:
        """Find what is due."""
        with self._reader.snapshot() as snapshot:
            version = snapshot.head.version
            last = next((one for one in snapshot.foreign_key_refreshes() if one.method is Method.COMBINED), None)
        question = Question()
        newest = None if last is None else last.refresh_id
        if newest != self._newest:
            self._newest, self.fault = newest, None
        # Until one is tried here, what was due before this began counts as well.
        since = self._tried or (self._begun if last is None else last.made_at)
        due = self._next_time(self._schedule, since)
        is_served = last is not None and (last.version, last.question) == (version, question.options())
        if not version or due is None or due > self._now() or is_served:
            return
        self._tried = self._now()
        self.fault = None
        try:
            with suppress(ConflictError):  # somebody has asked for it at this very time
                self._finder.refresh(question)
        except Exception as error:
            self.fault = str(error)
            raise

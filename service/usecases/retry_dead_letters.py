"""Own another try of records that were set aside: a feed of them, to be followed by the very same consumer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from service.core.errors import RecordError
from service.core.model import (
    NOT_FOLLOWED,
    BadRecord,
    FeedDescription,
    FeedPosition,
    RawRecord,
    Skipped,
    StoredPosition,
)
from service.usecases.batches import Totals


class Outcome(StrEnum):
    """Say what became of a record that was tried again: skipped is one that the state holds already."""

    APPLIED = "applied"
    SKIPPED = "skipped"
    SET_ASIDE = "set_aside"


@dataclass(frozen=True, slots=True)
class Tried:
    """Tell what became of a letter, and at which state version."""

    dead_letter_id: int
    outcome: Outcome
    version: int


def tried(dead_letter_id: int, run: Totals) -> Tried:
    """Read what became of a letter from the run that tried it alone."""
    outcome = Outcome.SET_ASIDE if run.dead else Outcome.SKIPPED if run.skipped else Outcome.APPLIED
    return Tried(dead_letter_id, outcome, run.version)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Hold a record that was set aside, with the version of the batch in which it was."""

    dead_letter_id: int
    feed: str
    record: RawRecord
    version: int
    message: str

    @property
    def position(self) -> FeedPosition:
        """Give its place in its feed."""
        return self.record.position


def keep_unknown(skipped: Sequence[Skipped], records: Sequence[RawRecord]) -> tuple[list[Skipped], list[BadRecord]]:
    """Set letters of tables that are not followed (any more, or under their name) aside again; gives the others too.

    A feed passes such records over; a letter that is passed over is gone.
    """
    unknown = {one.position for one in skipped if one.reason == NOT_FOLLOWED}
    error = RecordError.plain(
        "is of a table that is not followed under the name that the record has. Try it again where it is, with the "
        "settings of its consumer; bootstrap its source again with --replace; or drop it."
    )
    bad = [BadRecord(record, error) for record in records if record.position in unknown]
    return [one for one in skipped if one.position not in unknown], bad


class DeadLetterFeed:
    """Implement ports.Feed over dead letters of one feed, in the order in which they were set aside.

    It has that feed's name and no positions: that a letter is applied is known from its being none any more, which
    is written in the transaction that applies it. `read` gives the first letters behind one of this id, few at once.
    """

    lag_unit: Final = "records"

    def __init__(self, name: str, read: Callable[[int], Sequence[DeadLetter]]) -> None:
        self.name = name
        self._read = read
        self._letters: deque[DeadLetter] = deque()
        self.versions: dict[FeedPosition, int] = {}
        """At which version each record that was given was set aside."""
        self._last = 0
        self._is_at_end = False

    def describe(self) -> FeedDescription:
        """Say nothing new of the feed."""
        return FeedDescription("")

    def start(self, positions: Mapping[tuple[str, int], StoredPosition]) -> None:
        """Begin with the first letter."""

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Sequence[RawRecord]:
        """Give the next letters, at most `max_records`, or up to the one that reaches `max_bytes`."""
        records: list[RawRecord] = []
        size = 0
        while len(records) < max_records and size < max_bytes and not self._is_at_end:
            if not self._letters:
                self._letters.extend(self._read(self._last))
                self._is_at_end = not self._letters
                continue
            letter = self._letters.popleft()
            self._last, self.versions[letter.position] = letter.dead_letter_id, letter.version
            size += len(letter.record.value or b"")
            records.append(letter.record)
        return records

    def positions(self) -> dict[tuple[str, int], int]:
        """Have none."""
        return {}

    def source_positions(
        self, positions: Mapping[tuple[str, int], int]
    ) -> Mapping[tuple[str, int], Mapping[str, object]]:
        """Keep nothing."""
        return {}

    def at_end(self) -> bool:
        """Tell whether all letters were given."""
        return self._is_at_end

    def is_whole(self, positions: Mapping[tuple[str, int], int]) -> bool | None:
        """Say nothing of transactions."""
        return None

    def lag(self) -> None:
        """Count nothing: whoever tries letters is told when they all were."""

    def rest(self) -> None:
        """Have no connection."""

    def committed(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Have no tools to tell."""

    def close(self) -> None:
        """Have nothing open."""

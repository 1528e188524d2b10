"""Own the candidates for foreign keys that are served: found by each method, and kept until they are found anew."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from service.core.errors import ConflictError, NoStateError, NotFoundError
from service.core.foreign_keys.ranking import Method
from service.core.foreign_keys.sides import ForeignKey
from service.core.histogram_changes import Histograms
from service.usecases.decided_pairs import Decided
from service.usecases.finding_progress import Finding, FindingCancelledError, Stage, told
from service.usecases.foreign_key_evidence import Describing, as_fields
from service.usecases.foreign_key_names import attribute_of
from service.usecases.foreign_key_ports import KeySnapshot, ValueStatistics
from service.usecases.foreign_keys import Question, find_foreign_keys
from service.usecases.kept_candidates import Candidate, CandidateFilter, NewCandidate, Refresh
from service.usecases.ports import StateSnapshot
from service.usecases.queries import MAX_LIMIT
from service.usecases.sketched_columns import has_values

MISSING_VALUES = 3
"""How many of a candidate's missing values are named: of a suggested one they are kept, of others read when asked."""


class UnknownForeignKeyError(NotFoundError):
    """Columns are no candidate, or no candidates were found."""


class FindingGoneError(NotFoundError):
    """The candidates that somebody pages through were found anew meanwhile."""


class ForeignKeyStore(Protocol):
    """Read the state for a finding, and keep what was found. Every method may raise `StateError`."""

    def follow_all(self) -> None:
        """Log from now on what all attributes change, until `follow` says which of them are concerned."""

    def follow_kept(self) -> None:
        """Log only what the attributes of kept histograms change, as before `follow_all`."""

    def snapshot(self) -> AbstractContextManager[KeySnapshot]:
        """Open the newest version, whose values may be read for as long as it takes."""

    def keep(
        self, question: Question, version: int, seconds: float, left_out: Sequence[str], found: Iterator[NewCandidate]
    ) -> int:
        """Keep a finding, the likeliest candidate first, in the place of the last one by its method; give its id."""

    def follow(self, version: int, histograms: Sequence[Histograms], statistics: Mapping[int, ValueStatistics]) -> None:
        """Keep histograms of a version in the place of all others, and how their values look.

        What their attributes change is logged from now on. Those of which something changed before that are not kept:
        the next finding measures them once more.
        """


class ForeignKeyFinder:
    """Find candidates anew, one finding at a time, and keep them; other threads may ask how far it is, and end it."""

    def __init__(self, store: ForeignKeyStore) -> None:
        self._store = store
        self._finding = threading.Lock()
        self._at_work: _AtWork | None = None

    def refresh(self, question: Question) -> int:
        """Find candidates and give the id of the refresh; raise ConflictError while another is at work.

        Raises FindingCancelledError when it was cancelled.
        """
        if not self._finding.acquire(blocking=False):
            raise ConflictError("Foreign keys are being found already; ask again when that has ended.")
        try:
            self._at_work = _AtWork(question.method, time.monotonic())
            # What changes while values are read has to be in the log already: which are read is not known yet.
            self._store.follow_all()
            try:
                return self._find(question, self._at_work)
            except BaseException:
                self._store.follow_kept()
                raise
        finally:
            self._at_work = None
            self._finding.release()

    def _find(self, question: Question, at_work: _AtWork) -> int:
        with self._store.snapshot() as snapshot:
            if not snapshot.head.version:
                raise NoStateError
            found = find_foreign_keys(snapshot, question, at_work.tell)
            describing = Describing(snapshot, found, MISSING_VALUES)
            described = (
                describing.describe(ranked, with_missing=ranked.suggested)
                for ranked in told(at_work.tell, Stage.EVIDENCE, found.ranked, len(found.ranked))
            )
            candidates = (
                NewCandidate(
                    ForeignKey.of(one.dependent, one.referenced),
                    one.score,
                    one.suggested,
                    one.implied,
                    as_fields(one.evidence),
                )
                for one in described
            )
            seconds = time.monotonic() - at_work.began
            kept = self._store.keep(question, found.version, seconds, found.left_out, candidates)
            self._store.follow(found.version, found.histograms, found.statistics)
            return kept

    def at_work(self) -> Finding | None:
        """Tell how far the finding at work is; None where there is none."""
        return None if (one := self._at_work) is None else one.described(time.monotonic())

    def cancel(self) -> Finding | None:
        """Let the finding at work end, by its next step; give it, or None where there is none."""
        if (one := self._at_work) is None:
            return None
        one.is_cancelled = True
        return one.described(time.monotonic())


@dataclass(slots=True)
class _AtWork:
    """Keep how far a finding is: written by its thread, but for `is_cancelled`."""

    method: Method
    began: float
    at: tuple[Stage, int, int | None] = (Stage.CLUSTERS, 0, None)
    is_cancelled: bool = False

    def tell(self, stage: Stage, done: int, total: int | None) -> None:
        self.at = stage, done, total
        if self.is_cancelled:
            raise FindingCancelledError("The finding of foreign keys was cancelled; what was found before is served.")

    def described(self, now: float) -> Finding:
        return Finding(self.method, *self.at, now - self.began, self.is_cancelled)


def last_refresh(snapshot: StateSnapshot, method: Method) -> Refresh:
    """Give the last finding by a method; raise UnknownForeignKeyError when there was none."""
    for one in snapshot.foreign_key_refreshes():
        if one.method is method:
            return one
    raise UnknownForeignKeyError(f"No foreign keys were found by {method} yet: POST /api/v1/foreign-keys/refreshes.")


def require_finding(refresh: Refresh, refresh_id: int) -> None:
    """Raise FindingGoneError where a page goes on in another finding: its places are of other candidates."""
    if refresh_id != refresh.refresh_id:
        raise FindingGoneError(
            f"The foreign keys by {refresh.method} were found anew since the page before this one, in version "
            f"{refresh.version}: begin at the first page again, without a cursor."
        )


def candidate(snapshot: StateSnapshot, refresh: Refresh, foreign_key: ForeignKey) -> Candidate:
    """Find a candidate of a finding by its columns; raise UnknownForeignKeyError when it is none."""
    found = snapshot.candidates(refresh.refresh_id, CandidateFilter(foreign_key=foreign_key), -1, 1)
    if not found:
        raise no_candidate(foreign_key, refresh.method, refresh.version)
    return found[0]


def with_missing(snapshot: StateSnapshot, found: Candidate) -> tuple[Candidate, int | None]:
    """Name values that are missing now where the finding named none; the snapshot must be opened `with_values`.

    Gives the version that they were read in, too: the values of the finding's own are no more. None where it named all.
    """
    inclusion = found.evidence["inclusion"]
    if inclusion["missing_values"] or not inclusion["missing"]:
        return found, None
    own, key = (attribute_of(snapshot, side) for side in found.foreign_key)
    if own is None or key is None or not (has_values(own) and has_values(key)):
        return found, None
    missing = snapshot.missing_values(own.attribute_id, key.attribute_id, None, MISSING_VALUES)
    values = [one.value for one in missing if one.value is not None]
    told = replace(found, evidence={**found.evidence, "inclusion": {**inclusion, "missing_values": values}})
    return told, snapshot.head.version


def no_candidate(foreign_key: ForeignKey, method: Method, version: int) -> UnknownForeignKeyError:
    """Say that columns were no candidate."""
    return UnknownForeignKeyError(
        f"{foreign_key} was no candidate by {method} in version {version}: too few values are contained, or nothing "
        "says that the other side is a key."
    )


def chosen(snapshot: StateSnapshot, suggested: Sequence[ForeignKey]) -> list[ForeignKey]:
    """Give what to export: what was accepted, and what is suggested and neither rejected nor in its place."""
    known = Decided(snapshot)
    accepted = set(known.accepted)
    return [*known.accepted, *(one for one in suggested if one not in accepted and not known.rules_out(one))]


def to_export(snapshot: StateSnapshot, refresh: Refresh | None) -> dict[ForeignKey, Candidate | None]:
    """Give what to export, with what a finding says of it: what it suggests is there as well."""
    suggested = {} if refresh is None else {one.foreign_key: one for one in all_suggested(snapshot, refresh)}
    found: dict[ForeignKey, Candidate | None] = {}
    for one in chosen(snapshot, list(suggested)):
        found[one] = suggested.get(one)
        if refresh is not None and one not in suggested:
            of_one = snapshot.candidates(refresh.refresh_id, CandidateFilter(foreign_key=one), -1, 1)
            found[one] = of_one[0] if of_one else None
    return found


def all_suggested(snapshot: StateSnapshot, refresh: Refresh) -> Iterator[Candidate]:
    """Give all that a finding suggests whose columns are followed still."""
    chosen = CandidateFilter(suggested=True, followed=True)
    after = -1
    while found := snapshot.candidates(refresh.refresh_id, chosen, after, MAX_LIMIT):
        yield from found
        after = found[-1].place

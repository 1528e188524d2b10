"""Own what decisions mean for pairs of columns: which are accepted, and which are to be suggested no more."""

from __future__ import annotations

from collections.abc import Iterator

from service.core.foreign_keys.sides import ForeignKey
from service.usecases.foreign_key_decisions import Decision, Verdict
from service.usecases.ports import StateSnapshot
from service.usecases.queries import MAX_LIMIT


def decided(snapshot: StateSnapshot) -> dict[ForeignKey, Verdict]:
    """Give what was decided last of each pair whose columns are followed."""
    return {one.foreign_key: one.verdict for one in _decisions(snapshot) if one.is_current and not one.is_stale}


class Decided:
    """Know what stands: a pair that was accepted, its dependent's one reference, and those that were rejected."""

    def __init__(self, snapshot: StateSnapshot) -> None:
        self._verdicts = decided(snapshot)
        self.accepted = [one for one, verdict in self._verdicts.items() if verdict is Verdict.ACCEPT]
        self._refer = {one.dependent for one in self.accepted}

    def __bool__(self) -> bool:
        return bool(self._verdicts)

    def rules_out(self, pair: ForeignKey) -> bool:
        """Tell whether a pair is not to be suggested: it was rejected, or its dependent refers to something else."""
        verdict = self._verdicts.get(pair)
        return verdict is Verdict.REJECT or (verdict is not Verdict.ACCEPT and pair.dependent in self._refer)


def _decisions(snapshot: StateSnapshot) -> Iterator[Decision]:
    before: int | None = None
    while found := snapshot.decisions(before, MAX_LIMIT):
        yield from found
        before = found[-1].decision_id

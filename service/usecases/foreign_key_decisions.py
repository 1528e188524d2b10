"""Own what people say of foreign keys, and the contracts that come of it: their values, and what keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Protocol

from service.core.contracts import ContractKind
from service.core.foreign_keys.sides import ForeignKey, ForeignKeyError

EXACT = Decimal(1)
"""The bound of a contract that allows no value to be missing."""

LONGEST_NOTE = 4096


class Verdict(StrEnum):
    """Say of a candidate that it is a foreign key, that it is none, or that it is to be kept in sight."""

    ACCEPT = "accept"
    REJECT = "reject"
    PIN = "pin"


class Undecided(StrEnum):
    """Say that nothing was decided of a candidate."""

    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Decision:
    """Hold what somebody said of a foreign key; the newest one of a pair `is_current`.

    It `is_stale` when one of the columns is not followed any more.
    """

    decision_id: int
    foreign_key: ForeignKey
    verdict: Verdict
    decided_by: str
    decided_at: datetime
    note: str | None
    is_current: bool
    is_stale: bool


class ContractState(StrEnum):
    """Say how a contract stands; it is unknown where one side is not kept current."""

    HELD = "held"
    VIOLATED = "violated"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Contract:
    """Describe a contract and how it stands at a version: `overlap` of the dependent's distinct values are there.

    `decision_id` is that of the acceptance that made it. Where its state is unknown there are no counts, and `unknown`
    names the sides that are not kept current.
    """

    contract_id: int
    decision_id: int | None
    foreign_key: ForeignKey
    least_coefficient: Decimal
    created_by: str
    created_at: datetime
    violated_since: int | None
    overlap: int | None
    distinct_count: int | None
    unknown: tuple[str, ...] = ()

    @property
    def state(self) -> ContractState:
        """Say how it stands."""
        if self.unknown:
            return ContractState.UNKNOWN
        return ContractState.HELD if self.violated_since is None else ContractState.VIOLATED

    @property
    def missing_count(self) -> int | None:
        """Count the distinct values of the dependent that the referenced lacks."""
        return None if self.overlap is None or self.distinct_count is None else self.distinct_count - self.overlap

    @property
    def coefficient(self) -> float | None:
        """Give Φ; None where it is not known, or there are no values."""
        return self.overlap / self.distinct_count if self.overlap is not None and self.distinct_count else None


@dataclass(frozen=True, slots=True)
class ContractEvent:
    """Describe that a contract was violated or mended, with a value that did it and the change that brought the value.

    Found by a bootstrap, or when it was added, it has no position, and no value when it was mended. `row` is as in
    `model.Cause`.
    """

    version: int
    committed_at: datetime | None
    contract_id: int
    foreign_key: ForeignKey
    kind: ContractKind
    witness_value: str | None
    witness_key: str | None
    cause_count: int
    position: Mapping[str, Any] | None
    row: Mapping[str, Any] | None


class Contracts(Protocol):
    """Keep decisions and contracts. Every method may raise `StateError`.

    Those that take a foreign key raise `NotFoundError` for columns that are not followed.
    """

    def decide(
        self,
        foreign_key: ForeignKey,
        verdict: Verdict,
        by: str,
        note: str | None = None,
        seen: Verdict | Undecided | None = None,
    ) -> Decision:
        """Keep a decision. To accept makes a contract, unless there is one; to reject ends one that was made so.

        Raise `ConflictError` where the pair's newest decision is not the one that was `seen`; None: whatever it is.
        """

    def add(self, foreign_key: ForeignKey, least: Decimal, by: str) -> Contract:
        """Add a contract and say how it stands; raise `ConflictError` when the pair has one."""

    def remove(self, contract_id: int) -> None:
        """Forget a contract with its transitions; raise `NotFoundError` when there is none."""


def check_bound(least: Decimal) -> None:
    """Raise ForeignKeyError for a bound that is no share of values."""
    if least.is_nan() or not Decimal("1e-99") <= least <= 1:  # the database has no place for much less
        raise ForeignKeyError(f"The least coefficient {least} is no share: give one above 0, and 1 at most.")

"""Own contracts in the writer's memory: inclusions that are to hold, and which of them a batch violates or mends.

A contract demands Φ(dependent, referenced) ≥ least. A dependent without values keeps each: none of them is missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from service.core.clustering import Moves
from service.core.overlap import Causes, Overlap
from service.core.records import distinct_of


class ContractKind(StrEnum):
    """Tell whether a contract came to be violated or was mended."""

    VIOLATED = "violated"
    MENDED = "mended"


@dataclass(frozen=True, slots=True)
class ContractTransition:
    """Describe what became of a contract in one batch, with its cause: see model.Transition."""

    contract_id: int
    dependent_id: int
    referenced_id: int
    kind: ContractKind
    witness: bytes
    cause_count: int


class BoundContract(NamedTuple):
    """Hold a contract with the attributes that it speaks of; None where no attribute that is kept current is one."""

    contract_id: int
    dependent_id: int | None
    referenced_id: int | None
    least: Fraction
    is_violated: bool

    def is_violated_by(self, overlap: Overlap) -> bool:
        """Tell whether too few of the dependent's values are in the referenced; exact, whatever the bound is."""
        assert self.dependent_id is not None
        assert self.referenced_id is not None
        shared = overlap.overlap(self.dependent_id, self.referenced_id)
        return shared < self.least * overlap.overlap(self.dependent_id, self.dependent_id)


class ContractWatch:
    """Hold contracts against the overlaps after each batch. Which those are, the store says: they come and go."""

    def __init__(self) -> None:
        self.known: frozenset[int] = frozenset()
        """Contracts whose transitions `apply` gives, and those that speak of nothing: the others are the store's."""
        self._watched: dict[int, BoundContract] = {}

    def renew(self, contracts: Iterable[BoundContract], overlap: Overlap) -> None:
        """Watch these contracts from now on.

        What the store says of a new one may be older than the overlaps: it is watched when both agree.
        """
        unbound, watched = set(), {}
        for one in contracts:
            if one.dependent_id is None or one.referenced_id is None:
                unbound.add(one.contract_id)
            elif one.contract_id in self._watched:
                watched[one.contract_id] = self._watched[one.contract_id]
            elif one.is_violated_by(overlap) == one.is_violated:
                watched[one.contract_id] = one
        self._watched = watched
        self.known = frozenset(unbound | watched.keys())

    def apply(self, moves: Moves, overlap: Overlap) -> list[ContractTransition]:
        """Give what became of the contracts by the moves of a batch, which the overlaps have in them."""
        if not self._watched or not len(moves.values):
            return []
        touched = set(distinct_of(np.concatenate([moves.old, moves.new])).tolist())
        causes = Causes(moves)
        found = []
        for contract_id, one in self._watched.items():
            if one.dependent_id not in touched and one.referenced_id not in touched:
                continue
            is_violated = one.is_violated_by(overlap)
            if is_violated != one.is_violated:
                self._watched[contract_id] = one._replace(is_violated=is_violated)
                assert one.dependent_id is not None
                assert one.referenced_id is not None
                sides = one.dependent_id, one.referenced_id
                cause = causes.of(*sides, not is_violated)
                assert cause.witness is not None
                kind = ContractKind.VIOLATED if is_violated else ContractKind.MENDED
                found.append(ContractTransition(contract_id, *sides, kind, cause.witness, cause.cause_count))
        return found

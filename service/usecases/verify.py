"""Own the verification: the invariants of the state, each with what was found against it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from service.core.clustering import derive_inds

EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """Say of one invariant whether it holds, over how many things it was checked, and what stands against it."""

    invariant: str
    statement: str
    checked: int
    violations: int
    examples: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        return self.violations == 0


@dataclass(frozen=True, slots=True)
class Count:
    """Hold what a check met: how many things it looked at, how many were wrong, and some of these in words."""

    checked: int
    violations: int
    examples: tuple[str, ...]


class StateChecks(Protocol):
    """Check one version of the stored state; each check gives at most EXAMPLES examples."""

    @property
    def version(self) -> int:
        """Name the version that is checked."""

    @property
    def newest_change(self) -> int:
        """Name the newest version that changes made, of whichever source; 0 where none was applied."""

    def records_fit_clusters(self) -> Count:
        """Check that each record's attributes are its cluster's, with a frequency for each, above 0 where counted."""

    def keys_fit_values(self) -> Count:
        """Check that each key is that of its value, where the value is stored whole."""

    def counts_fit_records(self) -> Count:
        """Check each cluster's value_count against the records."""

    def counters_fit_records(self) -> Count:
        """Check each attribute's distinct, repeated, row and null counts against records and clusters."""

    def kept_rows_fit_counters(self) -> Count:
        """Check each attribute's row and null counts against the kept rows, where its table has them."""

    def clusters(self) -> Iterator[tuple[Sequence[int], int]]:
        """Give (attribute ids, value count) of all clusters."""

    def inds(self) -> set[tuple[int, int]]:
        """Give the INDs that are served."""

    def name(self, attribute_id: int) -> str:
        """Name an attribute."""

    def sketches_fit_records(self) -> Count:
        """Check each attribute's sketch against one that is built from its records, or its counters if it has none."""

    def positions_fit_batches(self) -> Count:
        """Check that versions are dense, batches follow each other, and the stored positions are those of the last."""

    def join_indexes_fit_rows(self) -> Count:
        """Check the index of each tracked table that is searched for joins against the kept rows."""


class Verifier(Protocol):
    """Open the checks of the newest version."""

    def checks(self) -> AbstractContextManager[StateChecks]:
        """Open a transaction that sees one version."""


def verify(checks: StateChecks) -> Iterator[Finding]:
    """Check invariants I1 to I6 (architecture, section 4) of one version, and J, one finding after the other."""
    yield _finding("I1", "every value's cluster is the set of attributes that hold it", checks.records_fit_clusters())
    yield _finding("I1", "every value is stored under its own key", checks.keys_fit_values())
    yield _finding("I2", "every cluster counts its records", checks.counts_fit_records())
    yield _finding("I3", "every attribute's counters follow from records and clusters", checks.counters_fit_records())
    yield _finding("I3", "the rows that are kept are those that are counted", checks.kept_rows_fit_counters())
    yield _inds(checks)
    yield _finding("I5", "the sketches are those that the records give", checks.sketches_fit_records())
    yield _finding("I6", "the positions are those of exactly the changes applied", checks.positions_fit_batches())
    yield _finding("J", "the indexes for joins are those that the kept rows give", checks.join_indexes_fit_rows())


def _inds(checks: StateChecks) -> Finding:
    derived = {(int(a), int(b)) for a, b in np.asarray(derive_inds(checks.clusters()))}
    served = checks.inds()
    wrong = [
        *(f"{checks.name(a)} ⊆ {checks.name(b)} holds and is not served" for a, b in sorted(derived - served)),
        *(f"{checks.name(a)} ⊆ {checks.name(b)} is served and does not hold" for a, b in sorted(served - derived)),
    ]
    return _finding(
        "I4",
        "the INDs served are those of Lemma 4.2",
        Count(len(derived | served), len(wrong), tuple(wrong[:EXAMPLES])),
    )


def _finding(invariant: str, statement: str, count: Count) -> Finding:
    return Finding(invariant, statement, count.checked, count.violations, count.examples)

"""Own the spreads of foreign-key candidates: how the values of both sides lie over the key's quantiles.

Histograms that are kept are brought up by what was logged of their values since; others are measured anew, over all
values. So are those whose grid has drifted (2010 paper, the last section).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from service.core.estimators import Estimate
from service.core.foreign_keys.candidates import Candidate, Columns
from service.core.foreign_keys.profiles import ColumnProfile, Measured
from service.core.histogram_changes import Histograms, Switched
from service.core.quantile_grids import GridHistogram, KeyHistogram, cells_of_each
from service.core.randomness import Randomness, has_drifted, outside, randomness
from service.usecases.foreign_key_ports import KeySnapshot, ValueStatistics, WantedGrid


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """Hold the randomness of a candidate with the histograms that it was measured on."""

    randomness: Randomness
    of_dependent: GridHistogram
    of_key: KeyHistogram


Changes = Sequence[tuple[int, Mapping[int, Switched]]]
"""What is logged of the values of followed attributes, by version."""


def value_statistics(
    snapshot: KeySnapshot, attribute_ids: Collection[int], sizes: Mapping[int, int], changes: Changes
) -> dict[int, ValueStatistics]:
    """Tell how the values of attributes look: as is kept of those that have not changed since, the others are read."""
    found = {}
    for i, kept in snapshot.kept_statistics().items():
        has_changed = any(i in changed for version, changed in changes if version > kept.version)
        # Whatever wrote the state beside batches, the counters know of it.
        if i in attribute_ids and kept.distinct == sizes[i] and not has_changed:
            found[i] = kept.statistics
    unknown = sorted(set(attribute_ids) - found.keys())
    return found | dict(snapshot.value_statistics(unknown) if unknown else ())


class Spreads:
    """Measure how the values of attributes, columns and tuples of them, lie over those of keys."""

    def __init__(
        self,
        snapshot: KeySnapshot,
        parts: Mapping[int, Columns],
        profiles: Mapping[int, ColumnProfile],
        statistics: Mapping[int, ValueStatistics],
        changes: Changes,
    ) -> None:
        """Give all by attribute id: `parts` has the columns of tuples in their order, of a column itself."""
        self._snapshot = snapshot
        self._parts = parts
        self._profiles = profiles
        self._changes = changes
        self._orders = {i: looks.order for i, looks in statistics.items()}
        self.histograms: list[Histograms] = []
        self.not_measured: dict[Candidate, str] = {}
        self._whole = {i for i, looks in statistics.items() if not looks.is_cut}

    def of(
        self, candidates: Mapping[Candidate, tuple[int, int]], cells: int, tuple_cells: int
    ) -> dict[Candidate, Spread]:
        """Measure candidates, given their attributes, key by key; where a value is cut its rank is not known."""
        by_key: dict[int, list[tuple[int, Candidate]]] = defaultdict(list)
        for candidate, (a, b) in candidates.items():
            if self._is_ranked(a) and self._is_ranked(b) and self._are_comparable(a, b):
                by_key[b].append((a, candidate))
        found = {}
        for key, dependents in by_key.items():
            columns = self._parts[key]
            wanted = WantedGrid(
                key,
                columns,
                tuple(self._profiles[column].distinct for column in columns),
                tuple(self._orders[column] for column in columns),
                cells_of_each(len(columns), cells if len(columns) == 1 else tuple_cells),
            )
            current = self._kept(wanted, [a for a, _ in dependents]) or self._measured(
                wanted, [a for a, _ in dependents]
            )
            self.histograms.append(current)
            for a, candidate in dependents:
                of_dependent = current.others[a]
                try:
                    measured = randomness(of_dependent, current.of_key)
                except ArithmeticError as error:
                    self.not_measured[candidate] = str(error)
                    continue
                found[candidate] = Spread(measured, of_dependent, current.of_key)
        return found

    def _measured(self, wanted: WantedGrid, others: Sequence[int]) -> Histograms:
        return Histograms(wanted.key_id, wanted.columns, wanted.cells, *self._snapshot.spreads(wanted, others))

    def _kept(self, wanted: WantedGrid, wanted_ids: Sequence[int]) -> Histograms | None:
        """Bring kept histograms up to the snapshot's version; None where there are none, or none that can serve."""
        found = self._snapshot.histograms(wanted.key_id)
        if found is None:
            return None
        since, kept = found
        orders = tuple(grid.order for grid in kept.of_key.grids)
        if (kept.columns, orders, kept.cells) != (wanted.columns, wanted.orders, wanted.cells):
            return None
        if not kept.others.keys() >= set(wanted_ids):
            return None
        kept = replace(kept, others={i: kept.others[i] for i in wanted_ids})
        try:
            current = kept.after(changes for version, changes in self._changes if version > since)
        except ValueError:
            return None
        # Whatever wrote the state beside batches, the counters know of it.
        sums = [int(counts.sum()) for counts in current.of_key.columns]
        totals = {i: other.total for i, other in current.others.items()} | {kept.key_id: current.of_key.tuples.total}
        if sums != list(wanted.distinct) or any(self._profiles[i].distinct != of for i, of in totals.items()):
            return None
        others = current.others.values()
        return None if any(has_drifted(other, current.of_key, wanted.cells) for other in others) else current

    def measured(self, a: int, b: int, estimate: Estimate, spread: Spread | None) -> Measured:
        """Give what was measured of a candidate, given its attributes."""
        phi = min(estimate.phi or 0.0, 1.0)
        known = Measured(phi, min(phi * self._profiles[a].distinct / self._profiles[b].distinct, 1.0))
        if spread is not None:
            distance = spread.randomness.distance
            return replace(known, distance=distance, outside=outside(spread.of_dependent, spread.of_key))
        if {*self._parts[a], *self._parts[b]} <= self._orders.keys() and not self._are_comparable(a, b):
            return replace(known, distance=1.0, outside=1.0)
        return known

    def _is_ranked(self, side: int) -> bool:
        """Tell whether all values are stored whole, those of a tuple's columns as well."""
        return self._whole.issuperset((side, *self._parts[side]))

    def _are_comparable(self, a: int, b: int) -> bool:
        pairs = zip(self._parts[a], self._parts[b], strict=True)
        return all(self._orders[one].is_comparable_with(self._orders[other]) for one, other in pairs)

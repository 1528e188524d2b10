"""Own the INDs of some columns, the changed ones, with all others: from what the others have of their values alone.

An IND with a changed column on either side lies in the values of changed columns: |A ∩ B| is counted rightly when all
of A, or all of B, is there. So the other columns are read once, and what no changed column has is dropped at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from service.core.column_sets import ColumnSets, Groups, group_columns, number_keys, slot_of
from service.core.compiled import kernel
from service.core.corpus_choices import DEFAULT, EXACT, Algorithm, Parameters
from service.core.corpus_inds import Choice, choose_wanted, find_group_inds
from service.core.group_inds import Inds, as_columns
from service.core.records import Flags, Int32s, Int64s, Keys, UInt64s, starts_of
from service.core.signatures import Signed


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """Hold distinct keys, and where each is looked for: `table` has their places, or -1, and a power of 2 of slots."""

    keys: Keys
    table: Int32s

    @staticmethod
    def of(keys: Keys) -> KnownKeys:
        """Take keys in any order and as often as they occur."""
        distinct = keys.take(number_keys(keys.high, keys.low)[1])
        return KnownKeys(distinct, _table(distinct.high, distinct.low))

    def have(self, keys: Keys) -> Flags:
        """Say of each key whether it is known, bool[n]."""
        return _have(self.keys.high, self.keys.low, self.table, keys.high, keys.low)

    def restrict(self, starts: Int64s, keys: Keys) -> tuple[Int64s, Keys]:
        """Keep the known keys of columns, those of column c at [starts[c]:starts[c + 1]], and give the same of them."""
        known = self.have(keys)
        kept = starts_of(known.astype(np.int64))
        return kept[starts], keys.take(known)


def changed_sides(changed: Flags, dependent: Flags, referenced: Flags) -> tuple[tuple[Flags, Flags], ...]:
    """Give who can be dependent and who referenced, in two searches that have each pair with a changed column once."""
    return (dependent & changed, referenced), (dependent & ~changed, referenced & changed)


def find_changed_inds(
    columns: ColumnSets,
    sizes: Int64s,
    changed: Flags,
    dependent: Flags,
    referenced: Flags,
    *,
    coverage: Fraction = Fraction(0),
    threshold: Fraction = EXACT,
    algorithm: Algorithm | None = None,
    parameters: Parameters = DEFAULT,
    threads: int = 1,
    signed: Signed | None = None,
) -> tuple[Choice, Iterator[Inds]]:
    """Give the INDs with a changed column on either side, in blocks of at most a million; A ⊆ A is not among them.

    What chose the algorithm is told of the first of two searches; `algorithm` None leaves it to the estimates.
    Signatures are right here, too: of a dependent all values are here, and of a referenced column all that it may need;
    `signed` may have those of whole columns.

    `columns` has changed columns whole, and of the others at least the values that a changed column has; `sizes` are
    the numbers of all their values. Raises as `group_columns` does.
    """

    def searched(sides: tuple[Flags, Flags]) -> Groups:
        return group_columns(columns, *sides, coverage=coverage, threshold=threshold, sizes=sizes)

    first, second = changed_sides(changed, dependent, referenced)
    groups = searched(first)
    choice = choose_wanted(groups, algorithm, parameters)

    def found(groups: Groups) -> Iterator[Inds]:
        # The other search may be too large for signatures.
        able = choose_wanted(groups, choice.algorithm, parameters).algorithm
        return as_columns(groups, find_group_inds(groups, columns.keys, able, parameters, threads, signed))

    def both() -> Iterator[Inds]:
        yield from found(groups)
        yield from found(searched(second))

    return choice, both()


@kernel
def _table(high: UInt64s, low: UInt64s) -> Int32s:
    size = 16
    while size < 2 * len(high):
        size *= 2
    table = np.full(size, -1, np.int32)
    for i in range(len(high)):
        slot = slot_of(high[i], low[i], size)
        while table[slot] >= 0:
            slot = (slot + 1) & (size - 1)
        table[slot] = i
    return table


@kernel
def _have(high: UInt64s, low: UInt64s, table: Int32s, wanted_high: UInt64s, wanted_low: UInt64s) -> Flags:
    known = np.zeros(len(wanted_high), np.bool_)
    for i in range(len(wanted_high)):
        slot = slot_of(wanted_high[i], wanted_low[i], len(table))
        while table[slot] >= 0 and not known[i]:
            known[i] = high[table[slot]] == wanted_high[i] and low[table[slot]] == wanted_low[i]
            slot = (slot + 1) & (len(table) - 1)
    return known

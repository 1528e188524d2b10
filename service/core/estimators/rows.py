"""Own the estimates of columns with many others, row by row: a pair that is asked for both ways is estimated once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from service.core.estimators.all_pairs import Overlaps, Stack, estimate_pairs
from service.core.estimators.prefixes import FEW
from service.core.records import Flags, Int64s

BLOCK = 1 << 19
"""About so many pairs are estimated at once: enough for all threads, and few in memory."""

THREADS = 2

MOST_KEPT = 25_000_000
"""About so many overlaps are kept for later rows, 40 bytes each: all of 10,000 columns. Further pairs are estimated
twice."""

NEARLY = 0.8
"""So much of the threshold lets a pair be asked for whose estimate is not final."""


class Wanted(NamedTuple):
    """Say which coefficients are asked for: those above 0 that reach `threshold`, or (None) all.

    Of the columns `is_unsized` the stack has a size that is itself an estimate, of those `has_prefixes` not all that is
    known: Flags[columns]. Pairs of two columns that are both `is_left_out` are not asked for.
    """

    threshold: float | None
    level: float
    is_unsized: Flags
    has_prefixes: Flags
    is_left_out: Flags

    def is_final(self, columns: Stack, x: Int64s, y: Int64s) -> Flags:
        """Tell of which pairs the estimate is that of the pair alone, which may be better informed (`prefixes`)."""
        can_be = ~(self.has_prefixes[x] | self.has_prefixes[y])
        is_final = ~(self.is_unsized[x] | self.is_unsized[y])
        filled = 1 - columns.counts[:, 0] / columns.registers.shape[1]
        for few, many in ((x, y), (y, x)):
            # The few hashes are held against the registers one by one, whatever the size of the other column.
            is_held = columns.is_complete[few] & (FEW * columns.sizes[few] < columns.sizes[many])
            is_final |= is_held & (columns.sizes[few] * filled[many] >= (1 - self.level) / 2)
        return np.asarray(can_be & is_final)

    def can_reach(self, columns: Stack, x: Int64s, y: Int64s) -> Flags:
        """Tell of which pairs the sizes let Φ(x, y) reach the threshold: it is at most |Y| / |X|.

        Ratios are compared, here and below: a product of the threshold may be rounded up beyond what just reaches it.
        """
        if not self.threshold:
            return np.ones(len(x), np.bool_)
        is_sized = ~(self.is_unsized[x] | self.is_unsized[y])
        least = self.threshold * np.where(is_sized, 1.0, NEARLY)
        return np.asarray(columns.sizes[y] / columns.sizes[x] >= least)

    def reaches(self, columns: Stack, found: Overlaps) -> Flags:
        """Tell of which pairs Φ(x, y) reaches the threshold; what is not final need do so nearly, by its upper end.

        Where nothing but a size is missing an estimate of 0 stands: with the smallest hashes, which the pair alone does
        not read, it errs no more.
        """
        if self.threshold is None:
            return np.ones(len(found.x), np.bool_)
        is_final = self.is_final(columns, found.x, found.y)
        reached, least = np.where(is_final, found.overlap, found.high), np.where(is_final, 1.0, NEARLY)
        may_overlap = (found.overlap > 0) | self.has_prefixes[found.x] | self.has_prefixes[found.y]
        return np.asarray(may_overlap & (reached > 0) & (reached / columns.sizes[found.x] >= self.threshold * least))


def estimate_rows(columns: Stack, dependents: Int64s, referenced: Int64s, wanted: Wanted) -> Iterator[Overlaps]:
    """Give for each dependent, in their order, its overlaps with the referenced columns, itself left out.

    All columns have values. The x of a row is the dependent; its y are in no order.
    """
    in_a_block = max(BLOCK // max(len(referenced), 1), 1)
    blocks = [dependents[first : first + in_a_block] for first in range(0, len(dependents), in_a_block)]
    order = np.full(len(columns.sizes), -1)
    order[dependents] = np.arange(len(dependents))
    is_referenced = np.zeros(len(columns.sizes), np.bool_)
    is_referenced[referenced] = True
    is_done = np.zeros(len(columns.sizes), np.bool_)  # of these all overlaps with later dependents are kept
    kept: list[list[Overlaps]] = [[] for _ in blocks]
    count = 0
    threshold = (wanted.threshold or 0.0) * (NEARLY if (wanted.is_unsized | wanted.has_prefixes).any() else 1.0)
    for number, block in enumerate(blocks):
        begin, end = number * in_a_block, (number + 1) * in_a_block
        is_done[block] = is_keeping = count < MOST_KEPT
        x, y = np.repeat(block, len(referenced)), np.tile(referenced, len(block))
        is_estimated_once = is_referenced[x] & np.where(
            order[y] < begin, (order[y] >= 0) & is_done[y], (order[y] < end) | is_keeping
        )
        is_asked = (x != y) & ~(wanted.is_left_out[x] & wanted.is_left_out[y])
        is_asked &= ~(is_estimated_once & (order[y] < order[x]))
        is_asked &= wanted.can_reach(columns, x, y) | (is_estimated_once & wanted.can_reach(columns, y, x))
        x, y = x[is_asked], y[is_asked]
        # By place, so that an estimate does not depend on who asks.
        found = estimate_pairs(columns, np.minimum(x, y), np.maximum(x, y), wanted.level, threshold, THREADS)
        turned = found._replace(x=found.y, y=found.x)
        found = Overlaps._make(np.concatenate(parts) for parts in zip(found, turned, strict=True))
        of = order[found.x]
        is_given = (of >= begin) & ((of < end) | is_keeping) & is_referenced[found.y]
        found = _choose(found, np.flatnonzero(is_given & wanted.reaches(columns, found)))
        found = _choose(found, np.argsort(order[found.x], kind="stable"))
        bounds = np.searchsorted(order[found.x], np.arange(number, len(blocks) + 1) * in_a_block)
        for later in np.flatnonzero(np.diff(bounds)).tolist():
            kept[number + later].append(_choose(found, np.arange(bounds[later], bounds[later + 1])))
        count += len(found.x)
        yield from _rows_of(kept[number], order, block)
        count -= sum(len(part.x) for part in kept[number])
        kept[number] = []


def _choose(found: Overlaps, places: Int64s) -> Overlaps:
    return Overlaps._make(part[places] for part in found)


def _rows_of(parts: list[Overlaps], order: Int64s, block: Int64s) -> Iterator[Overlaps]:
    """Put together what is known of a block's columns, and give it column by column."""
    places, numbers = np.zeros(0, np.int64), np.zeros(0)
    nothing = Overlaps(places, places, numbers, numbers, numbers)
    found = Overlaps._make(np.concatenate(each) for each in zip(nothing, *parts, strict=True))
    found = _choose(found, np.argsort(order[found.x], kind="stable"))
    bounds = np.searchsorted(order[found.x], np.append(order[block], order[block[-1]] + 1))
    for first, last in pairwise(bounds.tolist()):
        yield Overlaps._make(part[first:last] for part in found)

"""Own the choice of the referenced columns that a dependent covers best, where all of them would be too many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from service.core.compiled import kernel
from service.core.group_inds import Inds, Members
from service.core.records import Int32s, Int64s


def top_referenced(groups: Members, blocks: Iterable[Inds], count: int) -> Iterator[Inds]:
    """Yield for each dependent column its `count` referenced columns of highest coverage, |A ∩ B| / |B|, best first.

    Of equal coverage those with the smaller number come first. `blocks` are INDs between groups, by ascending dependent
    as rarest-first gives them; a dependent's never lie in two blocks. Raises ValueError for a count below 1.
    """
    if count < 1:
        raise ValueError(f"the {count} best referenced columns: ask for at least 1")
    for inds in blocks:
        yield _top(
            inds.dependent, inds.referenced, inds.overlap, groups.sizes, groups.dependent_starts, groups.dependents,
            groups.referenced_starts, groups.referenced, count,
        )  # fmt: skip


@kernel
def _top(
    dependent: Int32s,
    referenced: Int32s,
    overlap: Int32s,
    sizes: Int32s,
    dependent_starts: Int64s,
    dependents: Int32s,
    referenced_starts: Int64s,
    referenced_columns: Int32s,
    count: int,
) -> Inds:
    room = there = 0
    for i in range(len(dependent)):
        there += referenced_starts[referenced[i] + 1] - referenced_starts[referenced[i]]
        if i + 1 == len(dependent) or dependent[i + 1] != dependent[i]:
            room += min(count, there) * (dependent_starts[dependent[i] + 1] - dependent_starts[dependent[i]])
            there = 0
    out = (np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.int32))
    written = first = 0
    while first < len(dependent):
        group, end, held = dependent[first], first, 0
        while end < len(dependent) and dependent[end] == group:
            in_group = referenced_starts[referenced[end] + 1] - referenced_starts[referenced[end]]
            held += min(in_group, count + 1)
            end += 1
        columns, overlaps, negated = np.empty(held, np.int32), np.empty(held, np.int32), np.empty(held, np.float64)
        at = 0
        for i in range(first, end):
            start = referenced_starts[referenced[i]]
            # All of a group have the same coverage; one more than asked for, for one may be the dependent itself.
            for k in range(start, min(referenced_starts[referenced[i] + 1], start + count + 1)):
                columns[at], overlaps[at] = referenced_columns[k], overlap[i]
                negated[at] = -overlap[i] / sizes[referenced[i]]
                at += 1
        by_column = np.argsort(columns)
        best = by_column[np.argsort(negated[by_column], kind="mergesort")]
        for k in range(dependent_starts[group], dependent_starts[group + 1]):
            taken = 0
            for place in best[: count + 1]:
                if taken < count and columns[place] != dependents[k]:
                    out[0][written], out[1][written], out[2][written] = dependents[k], columns[place], overlaps[place]
                    written += 1
                    taken += 1
        first = end
    return Inds(out[0][:written], out[1][:written], out[2][:written])

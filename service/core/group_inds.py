"""Own INDs between groups of equal columns: streaming them from kernels, and writing them out as columns.

The number of INDs can be the square of the number of columns, so that nothing here holds all of them: kernels fill
blocks, and at most one block a thread waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Protocol

import numpy as np

from service.core.column_sets import Groups
from service.core.compiled import kernel
from service.core.records import Int32s, Int64s, starts_of

BLOCK = 1 << 20
"""INDs of one block."""

_PARTS = 64
"""Parts for each thread: so many that a dear one at the end leaves nobody idle for long."""


class Inds(NamedTuple):
    """Hold n INDs of columns or of groups, int32[n] each: dependent ⊆ referenced with `overlap` values in both."""

    dependent: Int32s
    referenced: Int32s
    overlap: Int32s


class Members(Protocol):
    """Say how many values each group has, and which columns are in it on each side, ascending: as `Groups` does."""

    @property
    def sizes(self) -> Int32s: ...
    @property
    def dependent_starts(self) -> Int64s: ...
    @property
    def dependents(self) -> Int32s: ...
    @property
    def referenced_starts(self) -> Int64s: ...
    @property
    def referenced(self) -> Int32s: ...


Step = Callable[[int, int], tuple[Inds, int]]
"""Look at groups of [first:end); give a block, and the group to go on with: `end` once all are done."""


def stream(step: Step, cost: Int64s, threads: int = 1) -> Iterator[Inds]:
    """Run a step over all groups, in parts of equal cost (half-open), and yield its blocks in the groups' order.

    The blocks are the same for any number of threads, but for where they are cut.
    """
    bounds = equal_cost_parts(cost, threads * _PARTS)
    parts = iter(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
    running: deque[tuple[Future[tuple[Inds, int]], int]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="subsetd-inds") as pool:
        while True:
            while len(running) < threads and (part := next(parts, None)):
                running.append((pool.submit(step, *part), part[1]))
            if not running:
                return
            future, end = running.popleft()
            block, reached = future.result()
            if reached < end:
                running.appendleft((pool.submit(step, reached, end), end))
            if len(block.dependent):
                yield block


def equal_cost_parts(cost: Int64s, parts: int) -> Int64s:
    """Cut [0:n) into at most `parts` half-open ranges of about equal cost; give their bounds, ascending.

    MANY's Algorithm 8 cuts by width, and both neighbours look at the group on a bound.
    """
    total = starts_of(cost + 1)
    goals = np.linspace(0, int(total[-1]), parts + 1)[1:-1]
    return np.unique(np.concatenate(([0], np.searchsorted(total, goals), [len(cost)])))


def as_columns(groups: Members, blocks: Iterable[Inds], block: int = BLOCK) -> Iterator[Inds]:
    """Write INDs between groups out as INDs between their columns, in blocks of at most `block`, A ⊆ A left out."""
    for inds in blocks:
        dependents = np.diff(groups.dependent_starts)[inds.dependent]
        referenced = np.diff(groups.referenced_starts)[inds.referenced]
        total = starts_of(dependents * referenced)
        for start in range(0, int(total[-1]), block):
            yield _columns(
                total, start, min(start + block, int(total[-1])), *inds,
                groups.dependent_starts, groups.dependents, groups.referenced_starts, groups.referenced,
            )  # fmt: skip


def count_columns(groups: Groups, blocks: Iterable[Inds]) -> int:
    """Count the INDs between columns that INDs between groups stand for, without writing them out."""
    dependents, referenced = np.diff(groups.dependent_starts), np.diff(groups.referenced_starts)
    both = np.intersect1d(groups.dependents, groups.referenced, assume_unique=True)
    group_of = np.empty(int(max(groups.dependents.max(initial=-1), groups.referenced.max(initial=-1))) + 1, np.int32)
    group_of[groups.dependents] = np.repeat(np.arange(len(groups), dtype=np.int32), dependents)
    own = np.bincount(group_of[both], minlength=len(groups))
    count = 0
    for inds in blocks:
        count += int(np.dot(dependents[inds.dependent], referenced[inds.referenced]))
        count -= int(own[inds.dependent[inds.dependent == inds.referenced]].sum())
    return count


@kernel
def _columns(
    total: Int64s,
    start: int,
    end: int,
    dependent: Int32s,
    referenced: Int32s,
    overlap: Int32s,
    dependent_starts: Int64s,
    dependents: Int32s,
    referenced_starts: Int64s,
    referenced_columns: Int32s,
) -> Inds:
    """Write [start:end) of the pairs out, where pair i has the places from total[i]."""
    out = (np.empty(end - start, np.int32), np.empty(end - start, np.int32), np.empty(end - start, np.int32))
    pair = np.searchsorted(total, start, "right") - 1
    written, place = 0, start
    while place < end:
        while total[pair + 1] <= place:
            pair += 1
        right, right_end = referenced_starts[referenced[pair]], referenced_starts[referenced[pair] + 1]
        width = right_end - right
        skipped = place - total[pair]
        left = dependent_starts[dependent[pair]] + skipped // width
        right_from = right + skipped % width
        stop = min(end, total[pair + 1])
        while place < stop:
            column = dependents[left]
            taken = min(right_end - right_from, stop - place)
            for k in range(right_from, right_from + taken):
                if referenced_columns[k] != column:
                    out[0][written], out[1][written], out[2][written] = column, referenced_columns[k], overlap[pair]
                    written += 1
            place += taken
            left += 1
            right_from = right
    return Inds(out[0][:written], out[1][:written], out[2][:written])

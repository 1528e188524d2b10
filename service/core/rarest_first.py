"""Own IND discovery by an inverted index, rarest value first: the algorithm that is the default where it costs less.

A column's referenced columns all hold its rarest value, so these are its candidates; they are narrowed by the columns
of its next values, by growing frequency, until none is left (paper-notes.md on MANY, item 5). What keeps frequent
values from costing much: candidates are only as many as the rarest value has columns; the columns of a frequent
value are never walked but searched, from one candidate to the next; and a short list of candidates is checked
in the candidates' own values.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from service.core.column_sets import Groups
from service.core.compiled import kernel
from service.core.group_inds import BLOCK, Inds, stream
from service.core.records import Flags, Int32s, Int64s

SHORT_LIST = 16
"""So few candidates are checked in their own values: searching another value's columns would cost more."""


def find_inds(groups: Groups, threads: int = 1) -> Iterator[Inds]:
    """Yield all INDs between groups in blocks, by ascending dependent; those inside a group as (group, group)."""
    step = partial(_step, groups)
    return stream(step, candidate_counts(groups) + 4, threads)


def candidate_counts(groups: Groups) -> Int64s:
    """Give the number of candidates of each group, int64[g]: of those that its size and coverage allow."""
    return _candidate_counts(
        groups.starts, groups.values, groups.posting_starts, groups.postings, groups.first, groups.end,
        groups.allowance, np.diff(groups.dependent_starts) > 0,
    )  # fmt: skip


def _step(groups: Groups, first: int, end: int) -> tuple[Inds, int]:
    return _find(
        first, end, max(BLOCK, len(groups) + 1), groups.sizes, groups.starts, groups.values, groups.posting_starts,
        groups.postings, groups.first, groups.end, groups.allowance, groups.reflexive,
        np.diff(groups.dependent_starts) > 0, groups.coverage.numerator, groups.coverage.denominator,
    )  # fmt: skip


@kernel
def search(items: Int32s, start: int, end: int, wanted: int) -> int:
    """Give the first place of ascending items[start:end] that is at least `wanted`: gallop, then halve."""
    low, high, step = start, start, 1
    while high < end and items[high] < wanted:
        low = high + 1
        high += step
        step *= 2
    high = min(high, end)
    while low < high:
        middle = (low + high) >> 1
        if items[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def narrow(candidates: Int32s, count: int, postings: Int32s, start: int, end: int) -> int:
    """Keep those of the first `count` candidates that are in postings[start:end]; give how many. Both ascend."""
    kept = 0
    for i in range(count):
        start = search(postings, start, end, candidates[i])
        if start == end:
            break
        candidates[kept] = candidates[i]
        kept += postings[start] == candidates[i]
    return kept


@kernel
def missing(values: Int32s, start: int, end: int, other: int, other_end: int, most: int) -> int:
    """Count the values of values[start:end] that values[other:other_end] lacks, both ascending, up to `most` + 1."""
    count = 0
    for place in range(start, end):
        if end - place - (most - count) > other_end - other:
            return most + 1
        wanted = values[place]
        if other_end - other > 64:
            other = search(values, other, other_end, wanted)
        else:
            while other < other_end and values[other] < wanted:
                other += 1
        if other < other_end and values[other] == wanted:
            other += 1
        else:
            count += 1
            if count > most:
                return count
    return count


@kernel
def _candidate_counts(
    starts: Int64s,
    values: Int32s,
    posting_starts: Int64s,
    postings: Int32s,
    first: Int32s,
    end: Int32s,
    allowance: Int32s,
    dependent: Flags,
) -> Int64s:
    counts = np.zeros(len(first), np.int64)
    for group in range(len(first)):
        if dependent[group]:
            for place in range(starts[group], starts[group] + allowance[group] + 1):
                low, high = posting_starts[values[place]], posting_starts[values[place] + 1]
                low = search(postings, low, high, first[group])
                counts[group] += search(postings, low, high, end[group]) - low
    return counts


@kernel
def _find(
    group: int,
    last: int,
    room: int,
    sizes: Int32s,
    starts: Int64s,
    values: Int32s,
    posting_starts: Int64s,
    postings: Int32s,
    first: Int32s,
    end: Int32s,
    allowance: Int32s,
    reflexive: Flags,
    dependent: Flags,
    numerator: int,
    denominator: int,
) -> tuple[Inds, int]:
    """Look at groups of [group:last) while a block of `room` INDs has room for one group's answer."""
    groups = len(sizes)
    out = (np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.int32))
    written = 0
    candidates, misses = np.empty(groups, np.int32), np.empty(groups, np.int32)
    seen_by = np.full(groups if np.any(allowance[group:last]) else 0, -1, np.int32)
    while group < last:
        if not dependent[group]:
            group += 1
            continue
        start, stop, allowed = starts[group], starts[group + 1], allowance[group]
        # The columns of the rarest values: whoever lacks 1 + allowed of them is no candidate.
        count = 0
        for place in range(start, start + allowed + 1):
            low, high = posting_starts[values[place]], posting_starts[values[place] + 1]
            low = search(postings, low, high, first[group])
            high = search(postings, low, high, end[group])
            if allowed == 0:
                candidates[: high - low] = postings[low:high]
                count = high - low
            else:
                for k in range(low, high):
                    other = postings[k]
                    if seen_by[other] != group:
                        seen_by[other] = group
                        misses[other] = place - start
                        candidates[count] = other
                        count += 1
        if written + count + 1 > room:
            return Inds(out[0][:written], out[1][:written], out[2][:written]), group
        place = start + 1
        if allowed == 0:
            while count > SHORT_LIST and place < stop:
                rank = values[place]
                count = narrow(candidates, count, postings, posting_starts[rank], posting_starts[rank + 1])
                place += 1
        if reflexive[group]:
            out[0][written], out[1][written], out[2][written] = group, group, stop - start
            written += 1
        for i in range(count):
            other = candidates[i]
            if other == group:
                continue
            missed = 0
            if allowed > 0:  # it has this value, and none of those before
                missed = misses[other]
                place = start + missed
            if place < stop:
                missed += missing(values, place, stop, starts[other], starts[other + 1], allowed - missed)
            overlap = stop - start - missed
            if missed <= allowed and overlap * denominator >= numerator * sizes[other]:
                out[0][written], out[1][written], out[2][written] = group, other, overlap
                written += 1
        group += 1
    return Inds(out[0][:written], out[1][:written], out[2][:written]), group

"""Own the judgement of a soak by what was seen: differences, memory, freshness. Pure: numbers in, verdict out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from tests.endurance.soak.plan import AFTER_KILL, PARTS, RATES

JUDGED = 3600.0
"""Seconds that a soak must have taken for its memory to be judged, by its second half: in the first caches fill."""

QUARTER = 900
"""Seconds; in each of a soak that is judged so an audit must have begun that came to its end."""

MUST_BE_AUDITED = 600.0
"""Seconds in which an audit must have come to its end."""

LEAST_SAMPLES = 100
"""Samples of a feed's freshness that must be undisturbed in so long a soak: a p99 of fewer is their worst."""

LEAST_OF_HALF = 0.8
"""Share of a soak's second half over which a process must have been measured for its slope to count."""

STATE_POSTGRES = "state Postgres"
"""What audits and refreshes do not outlive."""

MOST_SLOPE = 1.0
"""MB an hour."""

MOST_P99 = 2.0
"""Seconds from the commit at the source until the API tells of it."""

Point = tuple[float, float]
"""(seconds since the load began, what was measured)"""


@dataclass
class Killed:
    """Hold one kill: when it was, and when the part was started again (a server: served again)."""

    part: str
    at: float
    back: float


class Failed(NamedTuple):
    """Tell of a job that failed, and of its time."""

    what: str
    began: float
    ended: float


@dataclass
class Seen:
    """Hold all that a soak saw; times in seconds since the load began."""

    seconds: float = 0.0
    changes: Counter[str] = field(default_factory=Counter)
    kills: list[Killed] = field(default_factory=list)
    paused: list[tuple[float, float]] = field(default_factory=list)
    freshness: dict[str, list[Point]] = field(default_factory=dict)
    memory: dict[str, list[Point]] = field(default_factory=dict)
    lag: dict[str, list[Point]] = field(default_factory=dict)
    disk: dict[str, list[Point]] = field(default_factory=dict)
    audited: list[float] = field(default_factory=list)
    """When the audits began that came to their end."""
    did: Counter[str] = field(default_factory=Counter)
    failed: list[Failed] = field(default_factory=list)
    exits: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)


def percentile(numbers: Iterable[float], share: float) -> float | None:
    """Give the smallest number that at least this share of all do not exceed; None of none."""
    ordered = sorted(numbers)
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)] if ordered else None


def undisturbed(points: Sequence[Point], kills: Sequence[Killed]) -> list[float]:
    """Give what was measured outside of kills and of the 10 s behind them, however long a part was away.

    What took 10 s more than these explain counts by the time outside of them: an answer that never comes back would
    else be left out with the next kill.
    """
    windows = [(one.at, one.at + AFTER_KILL) for one in kills]
    found = []
    for at, value in points:
        is_apart = not any(begin <= at + value and at <= end for begin, end in windows)
        outside = value if is_apart else _outside(windows, at, at + value)
        if is_apart or outside > AFTER_KILL:
            found.append(outside)
    return found


def _outside(windows: Iterable[tuple[float, float]], since: float, until: float) -> float:
    """Give the seconds between two moments that are in no window."""
    outside, seen = 0.0, since
    for begin, end in sorted(windows):
        outside += max(0.0, min(begin, until) - seen)
        seen = max(seen, min(end, until))
    return outside + until - seen


def slope(points: Sequence[Point]) -> float | None:
    """Give the median of the slopes between any two points (Theil and Sen), an hour; None of fewer than two."""
    thinned = points[:: max(1, len(points) // 500)]
    slopes = [
        (later - earlier) / (end - begin)
        for place, (begin, earlier) in enumerate(thinned)
        for end, later in thinned[place + 1 :]
        if end > begin
    ]
    return median(slopes) * 3600 if slopes else None


def slopes(seen: Seen) -> dict[str, float]:
    """Give the MB an hour by which each process grew in the second half, where there is enough to tell."""
    half = seen.seconds / 2
    later = {name: [point for point in points if point[0] >= half] for name, points in seen.memory.items()}
    found = {name: slope(of) for name, of in later.items() if of and of[-1][0] - of[0][0] >= LEAST_OF_HALF * half}
    return {name: one for name, one in found.items() if one is not None}


def freshness(seen: Seen) -> dict[str, float]:
    """Give the p99 of each feed's freshness, undisturbed."""
    found = {feed: percentile(undisturbed(points, seen.kills), 0.99) for feed, points in seen.freshness.items()}
    return {feed: one for feed, one in found.items() if one is not None}


def faults(seen: Seen, witness: str) -> list[str]:
    """Say what makes a soak red; nothing of a good one. `witness` is the process whose memory is judged."""
    found = list(seen.differences)
    if seen.seconds >= JUDGED:
        grown = slopes(seen).get(witness)
        if grown is None:
            found.append(f"the memory of {witness} was not measured")
        elif grown >= MOST_SLOPE:
            found.append(f"the memory of {witness} grows by {grown:.2f} MB an hour, allowed are {MOST_SLOPE:g}")
        found += [f"the memory is not of one process: {one}" for one in seen.exits if one.startswith(witness)]
    for feed, p99 in freshness(seen).items():
        if p99 >= MOST_P99:
            found.append(f"p99 freshness of {feed} is {p99:.2f} s, allowed are {MOST_P99:g}")
    wanted = LEAST_SAMPLES if seen.seconds >= MUST_BE_AUDITED else 1
    for feed in RATES:
        times = len(undisturbed(seen.freshness.get(feed, []), seen.kills))
        if times < wanted:
            found.append(f"the freshness of {feed} was measured {times} times, {wanted} are wanted")
    if seen.seconds >= MUST_BE_AUDITED:
        killed = {one.part for one in seen.kills}
        found += [f"{part} was never killed" for part in PARTS if part not in killed]
    servers_away = [(one.at, one.back) for one in seen.kills if one.part == STATE_POSTGRES]
    for what, began, ended in seen.failed:
        if not any(at <= ended and began <= back for at, back in servers_away):
            found.append(what)
    if not seen.did["comparisons"]:
        found.append("nothing was compared")
    if seen.seconds >= MUST_BE_AUDITED and not seen.did["audits"]:
        found.append("no audit came to its end")
    if seen.seconds >= JUDGED:
        found += _not_audited(seen)
    if not any(seen.changes.values()):
        found.append("nothing was changed")
    return found


def _not_audited(seen: Seen) -> Iterable[str]:
    """Say in which whole quarters of an hour no audit began that came to its end."""
    for begin in range(0, int(seen.seconds) - QUARTER + 1, QUARTER):
        if not any(begin <= at < begin + QUARTER for at in seen.audited):
            yield f"no audit that came to its end began from {begin} to {begin + QUARTER} s"

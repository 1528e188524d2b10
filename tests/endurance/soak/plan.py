"""Own what a soak is going to do, told by its seed: when what is killed, when all is compared, how fast it writes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

RATES = {"made": 570, "direct": 810, "debezium": 55}
"""Changes a second of each feed: 10 million in two hours of load, with room for the time in which a source is away.

A machine that has no processor to spare tells how long its queues are, not how fresh answers are: what is dear is less.
"""

SERVERS = ("broker", "state Postgres", "source Postgres", "Connect")
CONSUMERS = ("run made", "run direct", "run debezium")
JOBS = ("audit", "refresh", "consume file")
PARTS = (*CONSUMERS, "serve", *SERVERS, *JOBS)
"""What is killed. `run witness` is not: its memory is what is judged."""

LEAST = 0.6
"""Share of the mean time between two kills that is between any two of them."""

AFTER_KILL = 10.0
"""Seconds from a kill on in which freshness is not judged."""


class Kill(NamedTuple):
    """Say when, in seconds of load, which part is killed."""

    at: float
    part: str


def between_kills(seconds: float, parts: int = len(PARTS)) -> float:
    """Give the seconds between two kills, in the mean."""
    return min(31.0, seconds / (parts + 1))


def kills(seed: int, seconds: float, parts: Sequence[str] = PARTS) -> list[Kill]:
    """Kill each part once before any comes again, in an order of its own each time; a kill each 31 s, or more often.

    A soak of less than ten minutes comes to each part once.
    """
    rng = random.Random(f"kills {seed}")
    mean = between_kills(seconds, len(parts))
    planned: list[Kill] = []
    at, left = 0.0, []
    while True:
        at += rng.uniform(LEAST, 2 - LEAST) * mean
        if at >= seconds:
            return planned
        left = left or rng.sample(parts, len(parts))
        planned.append(Kill(at, left.pop()))


def chore_seconds(seconds: float) -> float:
    """Give the time from one chore to the next: every second one is an audit; a short soak comes to each kind.

    An audit starts Spark, which takes half a minute of a processor: more of them tell how long its queue is.
    """
    return 225.0 if seconds >= 3600 else 10.0


def comparisons(seconds: float) -> list[float]:
    """Give the seconds of load at which all is compared: each quarter of an hour, or each 3 minutes, and last."""
    period = 900.0 if seconds >= 3600 else 180.0
    return [*(number * period for number in range(1, int((seconds - 1) // period) + 1)), seconds]

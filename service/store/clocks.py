"""Own the look at the clock of the state's database: how far it is from ours, and whether it was set back."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Engine, text

LOOKED_AT = 1000
"""Newest versions: those of before a clock was set back are among them until so many were committed behind them."""

CLOCK = f"""
select extract(epoch from clock_timestamp())::float as at, newest.committed_at,
    extract(epoch from newest.committed_at - clock_timestamp())::float as ahead
from (select max(committed_at) as committed_at from (
    select committed_at from state_version order by version desc limit {LOOKED_AT}) one) newest
"""


class Clock(NamedTuple):
    """Tell of the database's clock: how many seconds it is ahead of ours for sure, and up to when it has versions.

    `ahead` is by how many seconds those are ahead of itself, None before the first.
    """

    skew_seconds: float
    committed_at: datetime | None
    ahead: float | None


def read_clock(engine: Engine, now: Callable[[], float] = time.time) -> Clock:
    """Look at the clock; may raise StateError. `now` gives our seconds since 1970."""
    with engine.connect() as connection:
        before = now()
        found = connection.execute(text(CLOCK)).one()
        return Clock(sure_skew(found.at, before, now()), found.committed_at, found.ahead)


def sure_skew(at: float, before: float, after: float) -> float:
    """Say how far a clock is off for sure that was asked and has answered between two moments of ours.

    A busy database answers late, and nobody knows when in between it looked.
    """
    return at - min(max(at, before), after)

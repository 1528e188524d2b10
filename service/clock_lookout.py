"""Own what the overview tells of the clocks, by which lags, ages and schedules are told: the database's and ours."""

from __future__ import annotations

import time
from collections.abc import Callable

from sqlalchemy import Engine

from service.api.problems import Check
from service.core.errors import StateError
from service.store.clocks import read_clock
from service.usecases.doctor import SKEW_SECONDS, skew_told


def clock_check(engine: Engine, now: Callable[[], float] = time.time) -> Check:
    """Tell whether the clocks agree, and whether one was set back; what is applied does not depend on them."""
    try:
        clock = read_clock(engine, now)
    except StateError as error:
        return Check(name="clock", ok=False, detail=str(error))
    told = skew_told(clock.skew_seconds)
    if told is not None:
        return Check(name="clock", ok=False, detail=f"the database: {told}")
    if clock.ahead is not None and clock.ahead > SKEW_SECONDS:
        detail = (
            "the database: its clock was set back: versions were committed up to "
            f"{clock.committed_at:%Y-%m-%d %H:%M:%S} UTC, which is still to come. "
            "Changes are applied as before; ages and rates are off until then"
        )
        return Check(name="clock", ok=False, detail=detail)
    return Check(name="clock", ok=True, detail="the database's is as this machine's")

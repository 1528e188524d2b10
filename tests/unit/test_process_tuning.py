"""The interpreter's settings of a consumer: what is in cycles is found, though it was in use when it was looked for."""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterator

import pytest

from service import feed_wiring

WAITS = 20_000
OBJECTS = 50


class Payload(list[object]):
    """Be what a wait holds: a list that is counted for as long as it is there."""

    alive = 0
    most = 0

    def __init__(self) -> None:
        super().__init__([] for _ in range(OBJECTS))
        Payload.alive += 1
        Payload.most = max(Payload.most, Payload.alive)

    def __del__(self) -> None:
        Payload.alive -= 1


@pytest.fixture
def tuned() -> Iterator[None]:
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    feed_wiring.tune_process()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)


@pytest.mark.usefixtures("tuned")
def test_cycles_that_were_in_use_when_they_were_looked_for_do_not_pile_up() -> None:
    in_use: deque[Payload] = deque(maxlen=100)  # as the Kafka client's timers keep a wait for a while
    for _ in range(WAITS):
        wait = Payload()
        wait.append(wait)
        in_use.append(wait)
    assert Payload.most < WAITS / 7

"""Own the order of the tests where several processes run them: each begins with long tests, and ends with short ones.

`--dist worksteal` hands each process an equal number of tests, in their order; one that is done takes tests from the
end of another's. In the order of their folders that end is Spark's: the last minutes would belong to one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import pytest

SECONDS = {"spark": 5.0, "endurance": 8.0, "e2e": 4.0, "browser": 4.0, "integration": 0.6}
"""What a test of a folder takes, about; one of another folder takes next to nothing."""


def dealt(items: Sequence[pytest.Item], processes: int) -> list[pytest.Item]:
    """Give the tests in an order of which each process gets one of `processes` equal parts, files kept whole.

    Files of long tests go first, each to who has the least so far; tests that take next to nothing fill up the parts.
    Those of Spark and of brokers go to half of the processes, and those of the dashboard to the others: each process
    that has one starts a Java, whose code is slow at first and which is never idle, or a browser.
    """
    half = (processes + 1) // 2
    files = [list(tests) for _, tests in groupby(items, lambda item: item.path)]
    files.sort(key=lambda file: (_seconds(file[:1]), len(file)), reverse=True)
    long = [file for file in files if _seconds(file)]
    short = [item for file in files if not _seconds(file) for item in file]
    parts: list[list[pytest.Item]] = [[] for _ in range(processes)]
    for file in long:
        of_browser = file[0].path.parent.name == "browser"
        chosen = parts[:half] if _of_java(file) else parts[half:] if of_browser else parts
        min(chosen, key=_seconds).extend(file)
    order: list[pytest.Item] = []
    for number, part in enumerate(parts):
        lacking = max((len(items) - len(order)) // (processes - number) - len(part), 0)
        order += [*part, *short[:lacking]]
        del short[:lacking]
    return order


def _of_java(file: Sequence[pytest.Item]) -> bool:
    asked = {name for item in file for name in getattr(item, "fixturenames", ())}
    return file[0].path.parent.name == "spark" or "running_broker" in asked


def _seconds(items: Sequence[pytest.Item]) -> float:
    return sum(SECONDS.get(item.path.parent.name, 0.0) for item in items)

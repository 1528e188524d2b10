"""A feed that ends: what is behind its ends is not polled, and stays in front of where it says that it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from service.core.model import RawRecord, StoredPosition
from service.usecases.bounded_feed import BoundedFeed

Place = tuple[str, int]


class Growing:
    """Be a feed that gives a record of each partition at each poll, from one behind that with which it appears."""

    def __init__(self, appears: Mapping[Place, tuple[int, int]], behind: int) -> None:
        """Take with which poll a partition appears, and where it begins."""
        self._appears = appears
        self._behind = behind
        self._polls = 0
        self._positions: dict[Place, int] = {}

    def start(self, _: Mapping[Place, StoredPosition]) -> None:
        self._find()

    def poll(self, *_: object) -> Sequence[RawRecord]:
        self._polls += 1
        self._find()
        places = [place for place, (poll, _) in self._appears.items() if poll + self._behind <= self._polls]
        records = [RawRecord(*place, self._positions[place], None, None, 0) for place in places]
        self._positions |= {(record.topic, record.partition): record.offset + 1 for record in records}
        return records

    def positions(self) -> dict[Place, int]:
        return dict(self._positions)

    def _find(self) -> None:
        for place, (poll, begin) in self._appears.items():
            if poll <= self._polls:
                self._positions.setdefault(place, begin)


@pytest.mark.parametrize("behind", [0, 1])
def test_a_partition_that_appears_stands_before_its_first_record(behind: int) -> None:
    """Its records are thrown away: whoever goes on from there is to have them."""
    known, new = ("t", 0), ("t", 1)
    growing: Any = Growing({known: (0, 5), new: (2, 100)}, behind)
    feed = BoundedFeed(growing, {known: 8})
    feed.start({})
    polled = [record for _ in range(5) for record in feed.poll(10, 100, 0.0)]
    assert [(r.topic, r.partition, r.offset) for r in polled] == [(*known, at) for at in (5, 6, 7)]
    assert feed.at_end()
    assert growing.positions()[new] > 102
    assert feed.positions() == {known: 8, new: 100}

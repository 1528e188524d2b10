"""Own a feed that ends: what another feed has in front of given offsets, for a session that takes a part of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from service.core.model import FeedDescription, RawRecord, StoredPosition
from service.usecases.ports import Feed, LagUnit

Partition = tuple[str, int]


class BoundedFeed:
    """Implement ports.Feed over another one as far as `ends`; a partition that has no end is not read at all."""

    def __init__(self, feed: Feed, ends: Mapping[Partition, int]) -> None:
        self._feed = feed
        self._ends = ends
        self._begins: dict[Partition, int] = {}
        """Where each partition began: one may appear while others are read."""

    @property
    def name(self) -> str:
        """Give the other feed's name."""
        return self._feed.name

    @property
    def lag_unit(self) -> LagUnit:
        """Count as the other feed does."""
        return self._feed.lag_unit

    def describe(self) -> FeedDescription:
        """Describe the other feed."""
        return self._feed.describe()

    def start(self, positions: Mapping[Partition, StoredPosition]) -> None:
        """Start the other feed."""
        self._feed.start(positions)
        self._begins = dict(self._feed.positions())

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Sequence[RawRecord]:
        """Give the next records that are in front of the ends; others are thrown away."""
        records = self._feed.poll(max_records, max_bytes, timeout)
        first = {(r.topic, r.partition): r.offset for r in reversed(records)}
        self._begins = {**self._feed.positions(), **first, **self._begins}
        return [r for r in records if r.offset < self._ends.get((r.topic, r.partition), 0)]

    def positions(self) -> dict[Partition, int]:
        """Give where the other feed stands, at the ends at most: in front of what was thrown away."""
        return {
            place: min(at, max(self._ends.get(place, 0), self._begins.get(place, at)))
            for place, at in self._feed.positions().items()
        }

    def source_positions(self, positions: Mapping[Partition, int]) -> Mapping[Partition, Mapping[str, object]]:
        """Say what the other feed says."""
        return self._feed.source_positions(positions)

    def at_end(self) -> bool:
        """Tell whether everything in front of the ends has been polled."""
        positions = self._feed.positions()
        return all(positions.get(place, 0) >= end for place, end in self._ends.items())

    def is_whole(self, positions: Mapping[Partition, int]) -> bool | None:
        """Say what the other feed says."""
        return self._feed.is_whole(positions)

    def lag(self) -> Mapping[Partition, int] | None:
        """Tell the other feed's."""
        return self._feed.lag()

    def rest(self) -> None:
        """Let the other feed rest."""
        self._feed.rest()

    def committed(self, positions: Mapping[Partition, int]) -> None:
        """Let the other feed hear of it."""
        self._feed.committed(positions)

    def close(self) -> None:
        """Close the other feed."""
        self._feed.close()

"""Own what is done to a range of a partition's records apart from all others, on any machine, and how they are summed.

A range is decoded, screened and netted by whoever has its partition; what is netted goes to the shards, by ranges of
the value keys. All of a batch's ranges are looked at together before any shard applies something: what is rare (a
record that cannot be applied, a truncate, a change of columns) is for a session, which takes them one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from service.core.model import FeedPosition, Operation, RawRecord, RowChange, Skipped
from service.core.records import Deltas, Int64s, Keys
from service.core.shards import cuts, joined_switches, part_of_deltas
from service.core.sketch_changes import SketchChanges
from service.usecases.batches import decode_each, separate
from service.usecases.live_state import BatchCounts
from service.usecases.netting import Netted, net
from service.usecases.ports import Decoder
from service.usecases.screening import Reader, Screen, Seen

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class RangeFacts:
    """Tell of the records of a partition from offset `first` to `end` what the head of the state is to know.

    `last` are the changes that the state's positions are told of: the newest by its time, and the last one.
    """

    partition: Partition
    first: int
    end: int
    counts: BatchCounts = field(default_factory=BatchCounts)
    begun: FeedPosition | None = None
    ended: FeedPosition | None = None
    last: Sequence[RowChange] = ()
    skipped: Sequence[Skipped] = ()
    seen: Mapping[Reader, Seen] | None = None
    rows: Mapping[int, int] = field(default_factory=dict)
    nulls: Mapping[int, int] = field(default_factory=dict)
    sketched: SketchChanges = field(default_factory=SketchChanges.none)
    rare: str | None = None
    """Why a session is to take the batch; then nothing is netted."""
    planned: int | None = None
    """Where it was to end: its records may have too many bytes to be taken together."""
    bytes: int = 0
    seconds: float = 0.0
    """What reading and netting took of a processor."""


class Valued(NamedTuple):
    """Hold deltas with the text of each of their values, in their order."""

    deltas: Deltas
    texts: Sequence[str]


def net_range(
    partition: Partition,
    first: int,
    end: int,
    records: Sequence[RawRecord],
    decoder: Decoder,
    screen: Screen,
    value_keys: Callable[[Sequence[str]], Keys],
) -> tuple[RangeFacts, Netted | None]:
    """Decode, screen and net the records of a range; `screen` knows what was seen before it in its partition."""
    changes, skipped, bad = separate(records, decode_each(decoder, records))
    screened = screen.screen(changes)
    rare = _rare([*(one.error for one in bad), *screened.bad.values(), *screened.rewound.values()], screened.changes)
    if rare is not None:
        return RangeFacts(partition, first, end, rare=rare), None
    changes = screened.changes
    skipped += screened.skipped
    netted = net(changes, value_keys)
    counts = BatchCounts(len(records), netted.inserted, netted.updated, netted.deleted, len(skipped))
    facts = RangeFacts(
        partition,
        first,
        end,
        counts,
        records[0].position if records else None,
        records[-1].position if records else None,
        _told(changes),
        skipped,
        screened.seen.get(partition),
        netted.rows,
        netted.nulls,
        netted.sketched,
    )
    return facts, netted


def _rare(errors: Sequence[Exception], changes: Sequence[RowChange]) -> str | None:
    if errors:
        return str(errors[0])
    for change in changes:
        if change.operation is Operation.TRUNCATE:
            return f"{change.position}: empties {change.table}"
        if change.table.row_images:
            return f"{change.position}: changes {change.table}, whose rows are kept"
    return None


def _told(changes: Sequence[RowChange]) -> list[RowChange]:
    """Give the newest change and the last, without their rows."""
    if not changes:
        return []
    newest = max(changes, key=_time)
    return [
        RowChange(change.table, change.operation, None, None, change.position, change.source_position)
        for change in (newest, changes[-1])
    ]


def _time(change: RowChange) -> int:
    time = change.source_position.get("ts_ms")
    return time if isinstance(time, int) else -1


def split_deltas(netted: Netted, of: int) -> list[Valued]:
    """Cut netted deltas into those of each of so many shards."""
    texts = [netted.texts[place] for place in netted.places.tolist()]
    return [
        Valued(part_of_deltas(netted.deltas, start, end), texts[start:end])
        for start, end in pairwise(cuts(netted.deltas.keys, of))
    ]


def sum_deltas(parts: Sequence[Valued]) -> Valued:
    """Net what several ranges were netted to; cells that cancel out are left out."""
    if len(parts) == 1:
        return parts[0]
    widths = np.concatenate([np.diff(part.deltas.starts) for part in parts] or [np.zeros(0, np.int64)])
    value = np.repeat(np.arange(len(widths)), widths)
    keys = Keys(
        *(np.concatenate([half, *(part.deltas.keys[i] for part in parts)])[value] for i, half in enumerate(Keys.of(())))
    )
    ids = _joined(part.deltas.attribute_ids for part in parts)
    order = keys.order(ids)
    keys, ids, value = keys.take(order), ids[order], value[order]
    is_key = np.ones(len(order), np.bool_)
    is_key[1:] = (keys.high[1:] != keys.high[:-1]) | (keys.low[1:] != keys.low[:-1])
    is_cell = is_key.copy()
    is_cell[1:] |= ids[1:] != ids[:-1]
    cells = np.flatnonzero(is_cell)
    found = _joined(part.deltas.differences for part in parts)[order]
    differences = np.add.reduceat(found, cells) if len(cells) else found
    cells, differences = cells[differences != 0], differences[differences != 0]
    # A key may have lost its first cell: what is left tells anew where each begins.
    number = np.cumsum(is_key)[cells]
    firsts = np.flatnonzero(np.append(True, number[1:] != number[:-1])) if len(cells) else cells
    starts = np.append(firsts, len(cells)).astype(np.int64)
    texts = list(chain.from_iterable(part.texts for part in parts))
    deltas = Deltas(keys.take(cells[firsts]), starts, ids[cells], differences)
    return Valued(deltas, [texts[place] for place in value[cells[firsts]].tolist()])


def _joined(arrays: Iterable[Int64s]) -> Int64s:
    return np.concatenate([np.zeros(0, np.int64), *arrays])


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """Hold what the ranges of one batch say together."""

    ranges: Sequence[RangeFacts]

    @property
    def counts(self) -> BatchCounts:
        counts = BatchCounts()
        for one in self.ranges:
            counts.records += one.counts.records
            counts.inserted += one.counts.inserted
            counts.updated += one.counts.updated
            counts.deleted += one.counts.deleted
            counts.skipped += one.counts.skipped
        return counts

    @property
    def rows(self) -> dict[int, int]:
        return _summed(one.rows for one in self.ranges)

    @property
    def nulls(self) -> dict[int, int]:
        return _summed(one.nulls for one in self.ranges)

    @property
    def sketched(self) -> SketchChanges:
        return joined_switches([one.sketched for one in self.ranges])

    @property
    def ends(self) -> dict[Partition, int]:
        return {one.partition: one.end for one in self.ranges}

    @property
    def has_records(self) -> bool:
        """Tell whether there is anything but a broker's own markers."""
        return any(one.begun is not None or one.rare is not None for one in self.ranges)

    def why_not_apart(self, null_counts: Mapping[int, int]) -> str | None:
        """Say why a session is to take the batch; None when the shards can apply it, each its share."""
        for one in self.ranges:
            if one.rare is not None:
                return one.rare
        for attribute_id, difference in self.nulls.items():
            if null_counts[attribute_id] + difference < 0:
                return f"attribute {attribute_id} would have fewer than 0 NULLs"
        return None


def _summed(parts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    total: Counter[int] = Counter()
    for part in parts:
        for attribute_id, difference in part.items():
            total[attribute_id] += difference
    return {attribute_id: difference for attribute_id, difference in total.items() if difference}

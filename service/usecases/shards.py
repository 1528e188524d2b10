"""Own what goes to a shard and comes back from it: a batch of its values, a summary of what it did, and its way back.

A shard applies its part of a batch in a transaction of its own. What the whole needs of it is sparse: how many values
went from which attribute set to which, what came to attributes and left them. What the shard needs in order to undo
the batch, if the whole never heard of it, are the records as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.core.clustering import Applied, Clusters, Moves
from service.core.histogram_changes import ValueSwitches
from service.core.record_kernels import take_lists
from service.core.records import Deltas, Flags, Int64s, Keys, NewRecords, Records, UInt64s, find_keys, starts_of
from service.core.shards import follow_moves, joined_switches, summed
from service.core.sketch_changes import SketchChanges
from service.usecases.live_state import Accesses, LiveState, StateDelta

_TYPES = {"q": np.int64, "Q": np.uint64, "?": np.bool_, "B": np.uint8}


@dataclass(frozen=True, slots=True)
class ShardPlace:
    """Say where a shard is, and which of how many, for a task on any machine; `epoch` is that of the one who asks.

    `batch` is the version that the state has it at; `server` is the name of the one that it is on, None: the state's
    own database.
    """

    address: str
    shard: int
    of: int
    epoch: int
    batch: int
    server: str | None = None


@dataclass(frozen=True, slots=True)
class ShardBatch:
    """Hold a shard's values of a batch, with the text of each; `uncounted` marks attributes of insert-only sources.

    `number` is the version that the batch will be, `behind` the one that the shard had last of the same writer, and
    `concluded` the one that the whole has: nothing of that is undone.
    """

    number: int
    behind: int
    concluded: int
    deltas: Deltas
    texts: Sequence[str]
    uncounted: Flags


@dataclass(frozen=True, slots=True)
class ShardSummary:
    """Hold what a batch did in a shard; `witnesses` are the texts of the moves' witnesses.

    `switched` are texts of values that came to an attribute or left one, by ascending hash in `hashes`. With
    `missing`, cells `(key, attribute_id, how many)` that were never there, and their `missing_texts`, nothing was done.
    """

    shard: int
    moves: Moves
    witnesses: Sequence[str]
    distinct: dict[int, int]
    repeated: dict[int, int]
    switches: SketchChanges
    hashes: UInt64s
    switched: Sequence[str]
    accesses: Accesses
    missing: Sequence[tuple[bytes, int, int]] = ()

    @staticmethod
    def of(shard: int, batch: ShardBatch, applied: Applied, accesses: Accesses) -> ShardSummary:
        """Sum up what was applied."""
        deltas, witnesses = batch.deltas, applied.moves.witnesses
        order = witnesses.order()
        places = np.empty(len(order), np.int64)
        places[order] = find_keys(deltas.keys, witnesses.take(order))
        switched = np.flatnonzero(np.isin(deltas.keys.high, applied.switches.hashes))
        return ShardSummary(
            shard,
            applied.moves,
            [batch.texts[place] for place in places.tolist()],
            applied.distinct,
            applied.repeated,
            applied.switches,
            deltas.keys.high[switched],
            [batch.texts[place] for place in switched.tolist()],
            accesses,
        )

    @staticmethod
    def refused(shard: int, missing: Sequence[tuple[bytes, int, int]]) -> ShardSummary:
        """Say which cells are missing, so that nothing was done."""
        none = np.zeros(0, np.uint64)
        return ShardSummary(shard, Moves.joined([]), (), {}, {}, SketchChanges.none(), none, (), Accesses(), missing)

    def to_bytes(self) -> bytes:
        """Give the summary of a batch that was applied as the shard keeps it."""
        counted = self.accesses
        return pack(
            np.array([self.shard, counted.values, counted.read, counted.written, counted.without_caches]),
            *self.moves[:5],
            *self.moves.witnesses,
            *pack_texts(self.witnesses),
            *_pack_differences(self.distinct),
            *_pack_differences(self.repeated),
            np.frombuffer(self.switches.to_bytes(), np.uint8),
            self.hashes,
            *pack_texts(self.switched),
        )

    @staticmethod
    def from_bytes(data: bytes) -> ShardSummary:
        """Read what `to_bytes` gave."""
        (head, old, old_starts, new, new_starts, values, high, low, data_of, lengths, *rest) = unpack(data)
        ids, distinct, repeated_ids, repeated, switches, hashes, switched, switched_lengths = rest
        shard, *counted = head.tolist()
        return ShardSummary(
            shard,
            Moves(old, old_starts, new, new_starts, values, Keys(high, low)),
            unpack_texts(data_of, lengths),
            dict(zip(ids.tolist(), distinct.tolist(), strict=True)),
            dict(zip(repeated_ids.tolist(), repeated.tolist(), strict=True)),
            SketchChanges.from_bytes(switches.tobytes()),
            hashes,
            unpack_texts(switched, switched_lengths),
            Accesses(*counted),
        )


@dataclass(frozen=True, slots=True)
class Before:
    """Hold records as they were before a batch; one without attributes was not there.

    `texts` are those of the records that the batch takes away, marked by `is_gone`.
    """

    keys: Keys
    is_gone: Flags
    starts: Int64s
    attribute_ids: Int64s
    frequencies: Int64s
    texts: Sequence[str]

    @staticmethod
    def of(batch: ShardBatch, present: Records, sets: tuple[Int64s, Int64s], applied: Applied) -> Before:
        """Keep what a batch changed; `sets` are the attributes of all `present` records before it, as they lay."""
        new = applied.records
        places = find_keys(batch.deltas.keys, new.keys)
        starts = starts_of(np.diff(present.starts)[places])
        is_gone = np.diff(new.starts) == 0
        return Before(
            new.keys,
            is_gone,
            starts,
            take_lists(places, sets[1], sets[0], starts),
            take_lists(places, present.starts, present.frequencies, starts),
            [batch.texts[place] for place in places[is_gone].tolist()],
        )

    def back(self, clusters: Clusters, moves: Moves) -> tuple[NewRecords, Int64s, Int64s]:
        """Undo the batch that made these moves: gives the records to write, and the clusters that changed and went."""
        back = Moves(moves.new, moves.new_starts, moves.old, moves.old_starts, moves.values, moves.witnesses)
        kept, dropped = follow_moves(clusters, back)
        cluster_ids = clusters.assign(self.starts, self.attribute_ids)
        records = NewRecords(self.keys, self.is_gone, cluster_ids, self.starts, self.attribute_ids, self.frequencies)
        return records, kept, dropped

    def to_bytes(self) -> bytes:
        """Give it as the shard keeps it."""
        cells = (self.starts, self.attribute_ids, self.frequencies)
        return pack(*self.keys, self.is_gone, *cells, *pack_texts(self.texts))

    @staticmethod
    def from_bytes(data: bytes) -> Before:
        """Read what `to_bytes` gave."""
        high, low, is_gone, starts, attribute_ids, frequencies, texts, lengths = unpack(data)
        return Before(Keys(high, low), is_gone, starts, attribute_ids, frequencies, unpack_texts(texts, lengths))


def conclude(
    state: LiveState,
    summaries: Sequence[ShardSummary],
    rows: dict[int, int],
    nulls: dict[int, int],
    sketched: SketchChanges,
) -> StateDelta:
    """Let the whole follow what all shards did of one batch; `rows` and `nulls` are differences by attribute id.

    `sketched` is what the batch changes in sketch-only attributes. Raises clustering.Underflow, with nothing changed
    in `state`, when the batch takes away NULLs that were never there. All shards must have applied the batch.
    """
    none = np.zeros(0, np.int64)
    ordered = sorted(summaries, key=lambda summary: summary.shard)
    switches = joined_switches([one.switches for one in ordered])
    applied = Applied(
        NewRecords.none(),
        Moves.joined([one.moves for one in ordered]),
        summed([one.distinct for one in ordered]),
        summed([one.repeated for one in ordered]),
        none,
        none,
        switches,
    )
    keys = applied.moves.witnesses
    texts = [text for one in ordered for text in one.witnesses]
    delta = state.conclude(applied, rows, nulls, {keys.key(i): text for i, text in enumerate(texts)})
    for one in ordered:
        state.accesses.count(one.accesses)
    switched = [text for one in ordered for text in one.switched]
    hashes = np.concatenate([one.hashes for one in ordered])
    delta = replace(delta, values=ValueSwitches(switches, hashes, switched, np.arange(len(switched))))
    if not len(sketched.hashes):
        return delta
    return replace(delta, switches=SketchChanges.joined([delta.switches, sketched]))


def pack(*arrays: NDArray[np.generic]) -> bytes:
    """Lay arrays behind each other: how many, then of each its type and length in bytes, then all of them."""
    heads = b"".join(
        array.dtype.char.replace("l", "q").replace("L", "Q").encode() + array.nbytes.to_bytes(8, "little")
        for array in arrays
    )
    return b"".join([len(arrays).to_bytes(4, "little"), heads, *(array.tobytes() for array in arrays)])


def unpack(data: bytes) -> list[Any]:
    """Read what `pack` gave."""
    count = int.from_bytes(data[:4], "little")
    at = 4 + 9 * count
    found: list[Any] = []
    for place in range(4, 4 + 9 * count, 9):
        size = int.from_bytes(data[place + 1 : place + 9], "little")
        kind = np.dtype(_TYPES[chr(data[place])])
        found.append(np.frombuffer(data, kind, size // kind.itemsize, at))
        at += size
    return found


def pack_texts(texts: Sequence[str]) -> tuple[NDArray[np.uint8], Int64s]:
    """Give texts end to end, and the length of each in bytes."""
    encoded = [text.encode() for text in texts]
    return np.frombuffer(b"".join(encoded), np.uint8), np.array([len(text) for text in encoded], np.int64)


def unpack_texts(data: NDArray[np.uint8], lengths: Int64s) -> list[str]:
    """Read what `pack_texts` gave."""
    whole, starts = data.tobytes(), starts_of(lengths).tolist()
    return [whole[start:end].decode() for start, end in pairwise(starts)]


def _pack_differences(differences: dict[int, int]) -> tuple[Int64s, Int64s]:
    return np.array(list(differences), np.int64), np.array(list(differences.values()), np.int64)

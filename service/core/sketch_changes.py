"""Own what a batch changes in the sketches of attributes: netted hashes by attribute, and their bytes in the log.

A sketch is kept current by what changes in the set that it stands for: +1 when a hash appears in an attribute, -1 when
it goes. In a sketch-only source, whose values nobody keeps, it is by how many more (or fewer) cells have the hash.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from service.core.errors import SketchError
from service.core.records import Int64s, UInt64s, starts_of

_MAGIC = b"SKCH\x01"
_LOW_HALF = 0xFFFFFFFF
_GROUP = np.dtype([("attribute_id", "<i4"), ("difference", "<i8"), ("length", "<u4")])


class SketchChanges(NamedTuple):
    """Hold hashes that come to attributes or leave them, in groups of one attribute and one difference.

    Group g has the hashes at [starts[g]:starts[g + 1]]; groups are by ascending attribute id.
    """

    attribute_ids: Int64s
    differences: Int64s
    starts: Int64s
    hashes: UInt64s

    @staticmethod
    def of(attribute_ids: Int64s, differences: Int64s, hashes: UInt64s) -> SketchChanges:
        """Group n changes: int64[n], int64[n] without 0, uint64[n]."""
        order = np.lexsort((differences, attribute_ids))
        attribute_ids, differences = attribute_ids[order], differences[order]
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = (attribute_ids[1:] != attribute_ids[:-1]) | (differences[1:] != differences[:-1])
        firsts = np.flatnonzero(is_first)
        return SketchChanges(
            attribute_ids[firsts], differences[firsts], np.append(firsts, len(order)).astype(np.int64), hashes[order]
        )

    @staticmethod
    def joined(parts: Sequence[SketchChanges]) -> SketchChanges:
        """Give the changes of all parts, of which no two have an attribute in common."""
        order = np.argsort(np.concatenate([part.attribute_ids for part in parts]), kind="stable")
        groups = [part.hashes[first:end] for part in parts for first, end in pairwise(part.starts.tolist())]
        return SketchChanges(
            np.concatenate([part.attribute_ids for part in parts])[order],
            np.concatenate([part.differences for part in parts])[order],
            starts_of(np.concatenate([np.diff(part.starts) for part in parts])[order]),
            np.concatenate([groups[place] for place in order] or [np.zeros(0, np.uint64)]),
        )

    @staticmethod
    def merged(parts: Sequence[SketchChanges]) -> SketchChanges:
        """Give the changes of all parts, which may be of the same attributes."""
        lengths = [np.diff(part.starts) for part in parts]
        return SketchChanges.of(
            np.concatenate([np.repeat(p.attribute_ids, n) for p, n in zip(parts, lengths, strict=True)]),
            np.concatenate([np.repeat(p.differences, n) for p, n in zip(parts, lengths, strict=True)]),
            np.concatenate([part.hashes for part in parts]),
        )

    @staticmethod
    def none() -> SketchChanges:
        """Give no change."""
        nothing = np.zeros(0, np.int64)
        return SketchChanges.of(nothing, nothing, np.zeros(0, np.uint64))

    def to_bytes(self) -> bytes:
        """Give the changes as the log keeps them: number of groups, groups, hashes, behind a checksum (CRC-32)."""
        groups = np.empty(len(self.attribute_ids), _GROUP)
        groups["attribute_id"], groups["difference"] = self.attribute_ids, self.differences
        groups["length"] = np.diff(self.starts)
        number = len(groups).to_bytes(4, "little")
        body = number + groups.tobytes() + self.hashes.astype("<u8", copy=False).tobytes()
        return _MAGIC + zlib.crc32(body).to_bytes(4, "little") + body

    @staticmethod
    def from_bytes(data: bytes) -> SketchChanges:
        """Read what `to_bytes` gave; raise SketchError for anything else."""
        body = len(_MAGIC) + 4
        checksum = int.from_bytes(data[len(_MAGIC) : body], "little")
        if data[: len(_MAGIC)] != _MAGIC or len(data) < body + 4 or zlib.crc32(data[body:]) != checksum:
            raise SketchError("A row of sketch_change was damaged, or written by another release of subsetd.")
        count, start = int.from_bytes(data[body : body + 4], "little"), body + 4
        groups = np.frombuffer(data, _GROUP, count, start)
        return SketchChanges(
            groups["attribute_id"].astype(np.int64),
            groups["difference"].astype(np.int64),
            starts_of(groups["length"].astype(np.int64)),
            np.frombuffer(data, "<u8", offset=start + groups.nbytes).astype(np.uint64, copy=False),
        )


def net_changes(changes: Iterable[SketchChanges], attribute_id: int) -> tuple[UInt64s, Int64s]:
    """Net what several versions changed in one attribute: ascending hashes and their differences, none of them 0.

    Raises SketchError when a difference would need more than 64 bits.
    """
    hashes, differences = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    for change in changes:
        first, last = np.searchsorted(change.attribute_ids, [attribute_id, attribute_id + 1])
        for group in range(first, last):
            found = change.hashes[change.starts[group] : change.starts[group + 1]]
            hashes.append(found)
            differences.append(np.full(len(found), change.differences[group]))
    together = np.concatenate(hashes)
    order = np.argsort(together)
    together, counted = together[order], np.concatenate(differences)[order]
    firsts = np.flatnonzero(np.append(True, together[1:] != together[:-1])) if len(together) else order
    netted = _sums(counted, firsts) if len(together) else counted
    kept = netted != 0
    return together[firsts][kept], netted[kept]


def _sums(numbers: Int64s, firsts: Int64s) -> Int64s:
    """Add up the numbers from each first place to the next, in halves of 32 bits, so that no sum wraps unseen."""
    low: Int64s = np.add.reduceat(numbers & _LOW_HALF, firsts)
    high: Int64s = np.add.reduceat(numbers >> 32, firsts) + (low >> 32)
    if ((high < -(1 << 31)) | (high >= 1 << 31)).any():
        raise SketchError(
            "a hash comes to or leaves one attribute more than 2^63 times in the versions netted together"
        )
    return (high << 32) + (low & _LOW_HALF)

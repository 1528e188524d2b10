"""Own the bytes of sketches: header, payload, CRC-32, all little-endian (docs/sketches.md has them for strangers).

Equal sketches have equal bytes. Bytes come from anywhere, so whatever they claim is checked before room is made for it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from service.core.compiled import kernel
from service.core.errors import SketchError
from service.core.records import UInt64s
from service.core.sketches.hashing import HASH_NAME, SEED, UInt8s, check_bucket_bits

MAGIC = b"SDSK"
FORMAT_VERSION = 1
HEADER = struct.Struct("<4sBBBB16sQIIQ")
"""Magic, version, kind, m, flags, name of the hash, its seed, k, spares, bytes of the payload."""
CHECKSUM = struct.Struct("<I")
KIND_AT = 5
"""The place of the byte that says the kind, in all versions of the format."""

PACKED, LISTED = 0, 1


class Kind(IntEnum):
    """Name what the bytes hold."""

    HLL = 1
    HEAPS = 2
    BOTTOM_K = 3
    COLUMN = 4
    PREFIXES = 5


KINDS = {
    Kind.HLL: "a HyperLogLog (Hll)",
    Kind.HEAPS: "a HyperLogLog with heaps (HllHeaps)",
    Kind.BOTTOM_K: "a bottom-k sketch (BottomK)",
    Kind.COLUMN: "a column's sketch (ColumnSketch)",
    Kind.PREFIXES: "hash prefixes (HashPrefixes)",
}
"""What the kinds are called in messages."""


class Parameters(NamedTuple):
    """Hold what the header says of a sketch; what its kind has no use for is 0."""

    m: int = 0
    k: int = 0
    spares: int = 0
    flags: int = 0


def seal(kind: Kind, parameters: Parameters, payload: Iterable[bytes]) -> bytes:
    """Put header and checksum around a payload."""
    body = b"".join(payload)
    m, k, spares, flags = parameters
    head = HEADER.pack(
        MAGIC, FORMAT_VERSION, kind, m, flags, HASH_NAME.encode().ljust(16, b"\0"), SEED, k, spares, len(body)
    )
    return head + body + CHECKSUM.pack(zlib.crc32(body, zlib.crc32(head)))


def unseal(data: bytes, kind: Kind) -> tuple[Parameters, Reader]:
    """Give the parameters and the payload of a sketch of this kind; SketchError names what else the bytes are."""
    if data[:4] != MAGIC:
        raise SketchError("these bytes are no sketch: they do not begin with SDSK")
    if len(data) > 4 and data[4] != FORMAT_VERSION:
        raise SketchError(
            f"the sketch has format version {data[4]}; version {FORMAT_VERSION} is read here: make it with this release"
        )
    if len(data) < HEADER.size + CHECKSUM.size:
        raise SketchError(f"the sketch is cut off: {len(data)} bytes are less than a header; copy it whole")
    _, _, number, m, flags, hash_name, seed, k, spares, size = HEADER.unpack_from(data)
    expected = HEADER.size + size + CHECKSUM.size
    if len(data) != expected:
        raise SketchError(f"the sketch has a length of {len(data)} bytes, its header says {expected}: copy it whole")
    if CHECKSUM.unpack_from(data, len(data) - CHECKSUM.size)[0] != zlib.crc32(data[: -CHECKSUM.size]):
        raise SketchError(
            "the bytes of the sketch are corrupt: their checksum is another; copy them once more, or make it anew"
        )
    name = hash_name.rstrip(b"\0").decode("ascii", "replace")
    if name != HASH_NAME:
        raise SketchError(f"the sketch is of hash function {name!r}, not {HASH_NAME!r}: the two cannot be compared")
    if seed != SEED:
        raise SketchError(f"the sketch is of hash seed {seed}, not {SEED}: the two cannot be compared")
    if number != kind:
        known = KINDS[Kind(number)] if number in set(Kind) else f"of an unknown kind ({number})"
        raise SketchError(f"the sketch is {known}, wanted is {KINDS[kind]}")
    return Parameters(check_bucket_bits(m), k, spares, flags), Reader(data[HEADER.size : -CHECKSUM.size])


class Reader:
    """Read a payload from its beginning to its end; SketchError where it says more than it holds."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """Give the next bytes."""
        if size > len(self._data) - self._at:
            raise _damaged("it ends too early")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, size: int) -> int:
        """Give the next unsigned number of so many bytes."""
        return int.from_bytes(self.take(size), "little")

    def hashes(self, count: int) -> UInt64s:
        """Give the next hashes, 8 bytes each; they must ascend."""
        hashes = np.frombuffer(self.take(8 * count), "<u8").astype(np.uint64)
        require(bool(np.all(hashes[1:] > hashes[:-1])), "its hashes do not ascend")
        return hashes

    def packed(self, count: int) -> UInt64s:
        """Give the next packed numbers (see `pack`)."""
        return self.bits(count, self.number(1))

    def plane(self, m: int) -> UInt64s:
        """Give the next 2^m numbers (see `write_plane`)."""
        form = self.number(1)
        if form == PACKED:
            return self.packed(1 << m)
        require(form == LISTED, f"a plane has the unknown form {form}")
        count = self.number(4)
        require(count <= 1 << m, "a plane lists more buckets than there are")
        buckets = self.bits(count, m).astype(np.int64)
        require(bool(np.all(buckets[1:] > buckets[:-1])), "the buckets of a plane do not ascend")
        numbers = self.packed(count)
        require(bool(np.all(numbers < np.iinfo(np.uint64).max)), "a count is beyond 64 bits")
        plane = np.zeros(1 << m, np.uint64)
        plane[buckets] = numbers + np.uint64(1)
        return plane

    def end(self) -> None:
        """Make sure that nothing is left."""
        require(self._at == len(self._data), "it is longer than what it says")

    def bits(self, count: int, width: int) -> UInt64s:
        """Give the next numbers of so many bits each."""
        require(width <= 64, f"numbers of {width} bits")
        return _unpack(np.frombuffer(self.take((count * width + 7) // 8), np.uint8), count, width)


def require(is_so: bool, otherwise: str) -> None:
    """Refuse a payload that says what cannot be."""
    if not is_so:
        raise _damaged(otherwise)


def _damaged(what: str) -> SketchError:
    return SketchError(f"the sketch was damaged before its checksum was made: {what}")


def pack(numbers: UInt64s) -> bytes:
    """Write numbers with the bits that the largest needs: the width in one byte, then the numbers, lowest bit first."""
    width = _width(numbers)
    return bytes([width]) + pack_bits(numbers, width).tobytes()


def write_plane(numbers: UInt64s, m: int) -> bytes:
    """Write a number for each of 2^m buckets: all packed, or buckets and numbers of those above 0, what is shorter.

    Listed numbers are one smaller than they are, so that ones take no room.
    """
    buckets = np.flatnonzero(numbers)
    above = numbers[buckets] - np.uint64(1)
    listed = (len(buckets) * m + 7) // 8 + (len(buckets) * _width(above) + 7) // 8 + 4
    if listed >= (len(numbers) * _width(numbers) + 7) // 8:
        return bytes([PACKED]) + pack(numbers)
    places = pack_bits(buckets.astype(np.uint64), m).tobytes()
    return bytes([LISTED]) + len(buckets).to_bytes(4, "little") + places + pack(above)


def _width(numbers: UInt64s) -> int:
    return int(numbers.max()).bit_length() if len(numbers) else 0


@kernel
def pack_bits(numbers: UInt64s, width: int) -> UInt8s:
    """Write numbers of so many bits each, lowest bit first."""
    out = np.zeros((len(numbers) * width + 7) // 8, np.uint8)
    at = 0
    for number in numbers:
        end = at + width
        rest = number
        while at < end:
            taken = min(8 - (at & 7), end - at)
            low = np.uint8(rest & np.uint64((1 << taken) - 1))
            out[at >> 3] |= np.uint8(low << np.uint8(at & 7))
            rest >>= np.uint64(taken)
            at += taken
    return out


@kernel
def _unpack(data: UInt8s, count: int, width: int) -> UInt64s:
    numbers = np.zeros(count, np.uint64)
    at = 0
    for i in range(count):
        done = 0
        while done < width:
            taken = min(8 - (at & 7), width - done)
            bits = (np.uint64(data[at >> 3]) >> np.uint64(at & 7)) & np.uint64((1 << taken) - 1)
            numbers[i] |= bits << np.uint64(done)
            done += taken
            at += taken
    return numbers

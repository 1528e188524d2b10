"""Own the coding of small numbers by Rice (1979; Golomb 1966): gaps between what lies at random take few bits so.

A number is its lowest `width` bits, and what is above them in unary. With the width that is best for the numbers at
hand the code of random gaps is within 0.03 bits of their entropy each, while fewer than half of the places are taken;
with a width of 0 it is a bitmap of the places.
"""

from __future__ import annotations

import numpy as np

from service.core.compiled import kernel
from service.core.records import UInt64s
from service.core.sketches.byte_format import Reader, pack_bits, require
from service.core.sketches.hashing import UInt8s

OVERHEAD = 7
"""Beside its bits a list of numbers has at most so many bytes: five, and two that are not full."""


def bits_of(numbers: UInt64s) -> int:
    """Give the bits of numbers with the width that is best for them."""
    width = _best_width(numbers)
    return len(numbers) * width + int(_unary_bits(numbers, width))


def write(numbers: UInt64s) -> bytes:
    """Write numbers, whose sum is below 2^64.

    The width; 4 bytes with the bytes of what follows; the upper parts, each as so many zeros and a one; the lower
    parts. Bits are numbered from the lowest of each byte.
    """
    width = _best_width(numbers)
    unary = _write_unary(numbers, width, _unary_bits(numbers, width)).tobytes()
    low = pack_bits(numbers & np.uint64((1 << width) - 1), width).tobytes()
    return bytes([width]) + len(unary).to_bytes(4, "little") + unary + low


def read(payload: Reader, count: int) -> UInt64s:
    """Read so many numbers."""
    width = payload.number(1)
    require(width < 64, f"numbers with {width} lower bits")
    unary = np.frombuffer(payload.take(payload.number(4)), np.uint8)
    ends = np.flatnonzero(np.unpackbits(unary, bitorder="little"))
    require(len(ends) == count, f"there are {len(ends)} numbers, not {count}")
    require(
        len(unary) == (int(ends[-1]) + 8) // 8 if count else not len(unary), "there are bits behind the last number"
    )
    high: UInt64s = np.diff(ends, prepend=-1).astype(np.uint64) - np.uint64(1)
    require(not count or int(high.max()) <= (1 << 64 - width) - 1, "a number has more than 64 bits")
    return (high << np.uint64(width)) | payload.bits(count, width)


@kernel
def _unary_bits(numbers: UInt64s, width: int) -> int:
    bits = len(numbers)
    for number in numbers:
        bits += int(number >> np.uint64(width))
    return bits


@kernel
def _best_width(numbers: UInt64s) -> int:
    """Give the least of the widths with the fewest bits: one bit more saves ever less, the wider it is."""
    width, n = 0, np.int64(len(numbers))
    while width < 63:
        # The next bit halves what is in unary, and so saves the upper half, rounded up, of every number.
        saved = np.uint64(0)
        for number in numbers:
            shifted = number >> np.uint64(width)
            saved += (shifted >> np.uint64(1)) + (shifted & np.uint64(1))
        if saved <= np.uint64(n):
            break
        width += 1
    return width


@kernel
def _write_unary(numbers: UInt64s, width: int, bits: int) -> UInt8s:
    out = np.zeros((bits + 7) // 8, np.uint8)
    at = np.int64(0)
    for number in numbers:
        at += np.int64(number >> np.uint64(width))
        out[at >> 3] |= np.uint8(1 << (at & 7))
        at += 1
    return out

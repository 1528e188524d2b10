"""Own XASH: hashes of cells whose few bits tell which values a row has (Esmailoghli et al., MATE, 2022, section 5).

A hash has one bit for the value's length and one for each of its rarest characters, placed by where in the value the
character stands. A row's super key is the OR of its cells' hashes, so that a key whose values are all in the row has no
bit that the super key lacks: a row that joins is never filtered out, whatever the parameters.

What the paper leaves open (paper-notes.md): characters are UTF-8's, counted from 1; capitals of ASCII are lowered;
characters outside the alphabet count in the length and set no bit, and a value with fewer characters of the alphabet
than bits sets fewer. Equally frequent characters are taken in the alphabet's order. The empty text, which joins
nothing, and NULL set no bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from service.core.canonical_arrow import text_buffers
from service.core.compiled import kernel
from service.core.records import Int64s, UInt64s

ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz "
"""The characters that have segments, in the order of these: Figure 3 has `u` at bits 108 to 110 of 128."""

ENGLISH = "zqxjk0123456789vbpygfwmucldrhsnioate "
"""The characters from the rarest to the most frequent of English; digits stand where years and counts put them."""

Bytes = NDArray[np.uint8]

_OUTSIDE = 255


@dataclass(frozen=True, slots=True)
class Xash:
    """Hold the parameters: `bits` of a hash (a multiple of 64), `ones` set at most, characters from the `rarest` on.

    The default is the paper's for 700 million values. Raises ValueError for what cannot be: fewer than 64 bits, no bit
    set, or an order that is not one of ALPHABET.
    """

    bits: int = 128
    ones: int = 6
    rarest: str = ENGLISH

    def __post_init__(self) -> None:
        if self.bits < 64 or self.bits % 64:
            raise ValueError(f"{self.bits} bits: a hash has 64, 128, 256, ... bits")
        if self.ones < 1:
            raise ValueError(f"{self.ones} bits set: at least the length's is")
        if sorted(self.rarest) != sorted(ALPHABET):
            raise ValueError(f"{self.rarest!r}: each character of {ALPHABET!r} has one place in the order of rarity")

    @property
    def positions(self) -> int:
        """Give β, the bits of a character's segment (Equation 6)."""
        return (self.bits - 1) // len(ALPHABET)

    @property
    def lengths(self) -> int:
        """Give the bits of the length's segment, which is the first."""
        return self.bits - len(ALPHABET) * self.positions

    def hashes(self, texts: pa.Array) -> UInt64s:
        """Hash a string or large_string array, uint64[n, bits / 64]; bit 0, the leftmost, is the highest of word 0."""
        offsets, data = text_buffers(texts)
        is_null = np.zeros(len(texts), np.bool_)
        if texts.null_count:
            is_null = texts.is_null().to_numpy(zero_copy_only=False)
        rank, order = _tables(self.rarest)
        return _hashes(offsets, data, is_null, rank, order, self.bits, self.positions, self.ones - 1)


def ones_for(values: int, bits: int) -> int:
    """Give α, the fewest bits set by which so many distinct values can all differ (Equation 5).

    Raises ValueError where no number of bits set tells them apart.
    """
    for ones in range(1, bits // 2 + 1):
        if comb(bits, ones) > values:
            return ones
    raise ValueError(f"{values} values: {bits} bits cannot tell them apart")


def rarest_first(counts: Sequence[int]) -> str:
    """Order ALPHABET by how often each of its characters occurs, equals in the alphabet's order."""
    return "".join(ALPHABET[place] for place in sorted(range(len(ALPHABET)), key=lambda place: counts[place]))


def character_counts(texts: pa.Array) -> Int64s:
    """Count the characters of ALPHABET in a string or large_string array, capitals as small ones: int64[37]."""
    offsets, data = text_buffers(texts)
    rank, _ = _tables(ALPHABET)
    counts = np.bincount(rank[data[offsets[0] : offsets[-1]]], minlength=_OUTSIDE + 1)
    return counts[: len(ALPHABET)]


def super_keys(hashes: UInt64s, cells: Int64s, starts: Int64s) -> UInt64s:
    """OR the hashes of each row's cells: uint64[rows, words].

    Cells are places in `hashes`, -1 for an empty one; those of row r are at [starts[r]:starts[r + 1]].
    """
    return _super_keys(hashes, cells, starts)


def _tables(rarest: str) -> tuple[Bytes, Bytes]:
    """Give the rank of each byte, _OUTSIDE for those without, and the place in ALPHABET of each rank."""
    rank = np.full(256, _OUTSIDE, np.uint8)
    for place, character in enumerate(rarest):
        rank[ord(character)] = rank[ord(character.upper())] = place
    return rank, np.array([ALPHABET.index(character) for character in rarest], np.uint8)


@kernel
def _hashes(
    offsets: Int64s, data: Bytes, is_null: NDArray[np.bool_], rank: Bytes, order: Bytes,
    bits: int, positions: int, most: int,
) -> UInt64s:  # fmt: skip
    characters = len(order) * positions
    first = bits - characters
    out = np.zeros((len(is_null), bits // 64), np.uint64)
    count, places = np.zeros(len(order), np.int64), np.zeros(len(order), np.int64)
    for i in range(len(is_null)):
        if is_null[i] or offsets[i] == offsets[i + 1]:
            continue
        length, present = 0, np.uint64(0)
        for at in range(offsets[i], offsets[i + 1]):
            byte = data[at]
            length += byte & 0xC0 != 0x80
            r = rank[byte]
            if r != _OUTSIDE:
                count[r] += 1
                places[r] += length
                present |= np.uint64(1) << np.uint64(r)
        bit = length % first
        out[i, bit // 64] |= np.uint64(1) << np.uint64(63 - bit % 64)
        left, r = most, 0
        while present:
            if present & np.uint64(1):
                if left > 0:
                    spread = count[r] * length
                    x = (places[r] * positions + spread - 1) // spread - 1
                    bit = first + (order[r] * positions + x - length) % characters
                    out[i, bit // 64] |= np.uint64(1) << np.uint64(63 - bit % 64)
                    left -= 1
                count[r] = places[r] = 0
            present >>= np.uint64(1)
            r += 1
    return out


@kernel
def _super_keys(hashes: UInt64s, cells: Int64s, starts: Int64s) -> UInt64s:
    out = np.zeros((len(starts) - 1, hashes.shape[1]), np.uint64)
    for row in range(len(out)):
        for at in range(starts[row], starts[row + 1]):
            if cells[at] >= 0:
                for word in range(hashes.shape[1]):
                    out[row, word] |= hashes[cells[at], word]
    return out

"""Own the hash functions that MATE compares XASH with, and XASH with parts of it left out (sections 7.1.2 and 7.5.2).

Murmur is MurmurHash3 for x64 with 128 bits, CityHash is CityHash128 of version 1.1, both of UTF-8. A hash of 128 bits
is uint64[n, 2] here, the lower half first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from service.core.canonical_arrow import text_buffers
from service.core.records import UInt64s
from service.core.xash import ALPHABET, Xash

Bytes = NDArray[np.uint8]
U = np.uint64

C1, C2 = U(0x87C37B91114253D5), U(0x4CF5AD432745937F)
"""Murmur's multipliers of the two halves of a block."""
M1, M2 = U(0xFF51AFD7ED558CCD), U(0xC4CEB9FE1A85EC53)
"""Murmur's multipliers of the end."""
K0, K1, K2 = U(0xC3A5C85C97CB3127), U(0xB492B66FBE98F273), U(0x9AE16A3B2F90404F)
"""CityHash's primes."""
K_MUL = U(0x9DDFEA08EB382D69)


def murmur(texts: pa.Array) -> UInt64s:
    """Hash by MurmurHash3."""
    return _each(murmur_of_bytes, texts)


def cityhash(texts: pa.Array) -> UInt64s:
    """Hash by CityHash128."""
    return _each(cityhash_of_bytes, texts)


def _each(one: Callable[[Bytes], tuple[np.uint64, np.uint64]], texts: pa.Array) -> UInt64s:
    offsets, data = text_buffers(texts)
    ends = zip(offsets.tolist(), offsets[1:].tolist(), strict=False)
    return np.array([one(data[start:end]) for start, end in ends], np.uint64).reshape(-1, 2)


@dataclass(frozen=True, slots=True)
class XashParts:
    """Make XASH of some of its parts, in plain Python; with all of them it is Xash (its bits are in the same places).

    Without `rare` the first characters of the alphabet are taken, whatever their frequency; without `location` a
    character has one place for all positions; without `length` its bit is not set, and `rotation` is the turning.
    """

    xash: Xash
    characters: bool = True
    rare: bool = True
    location: bool = True
    length: bool = True
    rotation: bool = True

    def hashes(self, texts: pa.Array) -> UInt64s:
        """Hash texts: uint64[n, bits / 64]."""
        bytes_ = self.xash.bits // 8
        whole = b"".join(self._bits(text).to_bytes(bytes_, "big") for text in texts.to_pylist())
        return np.frombuffer(whole, ">u8").astype(np.uint64).reshape(-1, bytes_ // 8)

    def _bits(self, text: str) -> int:
        """Give a hash as a number whose highest bit is bit 0."""
        if not text:
            return 0
        xash, length = self.xash, len(text)
        bits = {length % xash.lengths} if self.length else set()
        if self.characters:
            small = "".join(one.lower() if one.isascii() else one for one in text)
            present = sorted(set(small) & set(ALPHABET), key=(xash.rarest if self.rare else ALPHABET).index)
            segments = len(ALPHABET) * xash.positions
            for character in present[: xash.ones - 1]:
                places = [place for place, one in enumerate(small, 1) if one == character]
                spread = len(places) * length
                x = -(-sum(places) * xash.positions // spread) - 1 if self.location else 0
                turned = ALPHABET.index(character) * xash.positions + x - (length if self.rotation else 0)
                bits.add(xash.lengths + turned % segments)
        return sum(1 << (xash.bits - 1 - bit) for bit in bits)


@njit(cache=True)
def murmur_of_bytes(data: Bytes, seed: int = 0) -> tuple[np.uint64, np.uint64]:
    """Hash bytes by MurmurHash3, x64, 128 bits."""
    size = len(data)
    h1 = h2 = U(seed)
    for at in range(0, size - 15, 16):
        h1 ^= _left(_word(data, at, 8) * C1, 31) * C2
        h1 = (_left(h1, 27) + h2) * U(5) + U(0x52DCE729)
        h2 ^= _left(_word(data, at + 8, 8) * C2, 33) * C1
        h2 = (_left(h2, 31) + h1) * U(5) + U(0x38495AB5)
    rest = size // 16 * 16
    h2 ^= _left(_word(data, rest + 8, max(0, size - rest - 8)) * C2, 33) * C1
    h1 ^= _left(_word(data, rest, min(8, size - rest)) * C1, 31) * C2
    h1 ^= U(size)
    h2 ^= U(size)
    h1 += h2
    h2 += h1
    h1, h2 = _finished(h1), _finished(h2)
    h1 += h2
    return h1, h2 + h1


@njit(cache=True)
def cityhash_of_bytes(data: Bytes) -> tuple[np.uint64, np.uint64]:
    """Hash bytes by CityHash128."""
    if len(data) >= 16:
        return cityhash_with_seed(data[16:], _word(data, 0, 8), _word(data, 8, 8) + K0)
    return cityhash_with_seed(data, K0, K1)


@njit(cache=True)
def cityhash_with_seed(data: Bytes, low: np.uint64, high: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Hash bytes by CityHash128WithSeed."""
    size = len(data)
    if size < 128:
        return _city_murmur(data, low, high)
    x, y, z = low, high, U(size) * K1
    v1 = _right(y ^ K1, 49) * K1 + _word(data, 0, 8)
    v2 = _right(v1, 42) * K1 + _word(data, 8, 8)
    w1 = _right(y + z, 35) * K1 + x
    w2 = _right(x + _word(data, 88, 8), 53) * K1
    at = 0
    while size - at >= 128:
        for _ in range(2):
            x = _right(x + y + v1 + _word(data, at + 8, 8), 37) * K1
            y = _right(y + v2 + _word(data, at + 48, 8), 42) * K1
            x ^= w2
            y += v1 + _word(data, at + 40, 8)
            z = _right(z + w1, 33) * K1
            v1, v2 = _weak(data, at, v2 * K1, x + w1)
            w1, w2 = _weak(data, at + 32, z + w2, y + _word(data, at + 16, 8))
            z, x = x, z
            at += 64
    x += _right(v1 + z, 49) * K0
    y = y * K0 + _right(w2, 37)
    z = z * K0 + _right(w1, 27)
    w1 *= U(9)
    v1 *= K0
    end = size
    while end > at:
        end -= 32
        y = _right(x + y, 42) * K0 + v2
        w1 += _word(data, end + 16, 8)
        x = x * K0 + w1
        z += w2 + _word(data, end, 8)
        w2 += v1
        v1, v2 = _weak(data, end, v1 + z, v2)
        v1 *= K0
    x = _mixed(x, v1, K_MUL)
    y = _mixed(y + z, w1, K_MUL)
    return _mixed(x + v2, w2, K_MUL) + y, _mixed(x + w2, y + v2, K_MUL)


@njit(cache=True)
def _city_murmur(data: Bytes, a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    size = len(data)
    if size <= 16:
        a = _shifted(a * K1) * K1
        c = b * K1 + _city_short(data)
        d = _shifted(a + (_word(data, 0, 8) if size >= 8 else c))
    else:
        c = _mixed(_word(data, size - 8, 8) + K1, a, K_MUL)
        d = _mixed(b + U(size), c + _word(data, size - 16, 8), K_MUL)
        a += d
        for at in range(0, size - 16, 16):
            a = (a ^ _shifted(_word(data, at, 8) * K1) * K1) * K1
            b ^= a
            c = (c ^ _shifted(_word(data, at + 8, 8) * K1) * K1) * K1
            d ^= c
    a, b = _mixed(a, c, K_MUL), _mixed(d, b, K_MUL)
    return a ^ b, _mixed(b, a, K_MUL)


@njit(cache=True)
def _city_short(data: Bytes) -> np.uint64:
    """Hash at most 16 bytes to 64 bits."""
    size = len(data)
    multiplier = K2 + U(2 * size)
    if size >= 8:
        a, b = _word(data, 0, 8) + K2, _word(data, size - 8, 8)
        return _mixed(_right(b, 37) * multiplier + a, (_right(a, 25) + b) * multiplier, multiplier)
    if size >= 4:
        return _mixed(U(size) + (_word(data, 0, 4) << U(3)), _word(data, size - 4, 4), multiplier)
    if size:
        y = U(data[0]) + (U(data[size >> 1]) << U(8))
        z = U(size) + (U(data[size - 1]) << U(2))
        return _shifted(y * K2 ^ z * K0) * K2
    return K2


@njit(cache=True)
def _weak(data: Bytes, at: int, a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Mix 32 bytes from `at` on into two words."""
    last = _word(data, at + 24, 8)
    a += _word(data, at, 8)
    b = _right(b + a + last, 21)
    c = a
    a += _word(data, at + 8, 8) + _word(data, at + 16, 8)
    return a + last, b + _right(a, 44) + c


@njit(cache=True)
def _mixed(u: np.uint64, v: np.uint64, multiplier: np.uint64) -> np.uint64:
    """Hash 128 bits to 64."""
    a = _shifted((u ^ v) * multiplier)
    return _shifted((v ^ a) * multiplier) * multiplier


@njit(cache=True)
def _finished(h: np.uint64) -> np.uint64:
    h = (h ^ (h >> U(33))) * M1
    h = (h ^ (h >> U(33))) * M2
    return h ^ (h >> U(33))


@njit(cache=True)
def _shifted(h: np.uint64) -> np.uint64:
    return h ^ (h >> U(47))


@njit(cache=True)
def _left(h: np.uint64, bits: int) -> np.uint64:
    return (h << U(bits)) | (h >> U(64 - bits))


@njit(cache=True)
def _right(h: np.uint64, bits: int) -> np.uint64:
    return _left(h, 64 - bits)


@njit(cache=True)
def _word(data: Bytes, at: int, size: int) -> np.uint64:
    """Read so many bytes, the lowest first; 0 of none."""
    word = U(0)
    for place in range(size):
        word |= U(data[at + place]) << U(8 * place)
    return word

"""Own the compiled kernels over texts: SHA-256 keys, plain decimals, dates and times, hexadecimal digits, cuts.

A batch of texts is `data` (uint8) and `offsets` (int64[n + 1]), as in Arrow; what a kernel makes has the same form.
Each kernel releases the GIL and is compiled once, then loaded from numba's cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, uint32

from service.core.compiled import kernel

Offsets = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Texts = tuple[Offsets, Bytes]

DAY = 86_400_000_000_000
"""Nanoseconds of a day."""
DATE, TIME, TIMESTAMP = 1, 2, 3

_MOMENT_BYTES = 48
_NAN, _INFINITY = 1, 2
_ZERO, _POINT, _MINUS, _PLUS = ord("0"), ord("."), ord("-"), ord("+")
_WORDS = (np.frombuffer(b"NaN", np.uint8), np.frombuffer(b"Infinity", np.uint8))
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def _words(text: str) -> npt.NDArray[np.uint32]:
    return np.array([int(word, 16) for word in text.split()], np.uint32)


# SHA-256's constants: the first bits of the fractions of the cube and square roots of the first primes.
_ROUND = _words("""
    428A2F98 71374491 B5C0FBCF E9B5DBA5 3956C25B 59F111F1 923F82A4 AB1C5ED5
    D807AA98 12835B01 243185BE 550C7DC3 72BE5D74 80DEB1FE 9BDC06A7 C19BF174
    E49B69C1 EFBE4786 0FC19DC6 240CA1CC 2DE92C6F 4A7484AA 5CB0A9DC 76F988DA
    983E5152 A831C66D B00327C8 BF597FC7 C6E00BF3 D5A79147 06CA6351 14292967
    27B70A85 2E1B2138 4D2C6DFC 53380D13 650A7354 766A0ABB 81C2C92E 92722C85
    A2BFE8A1 A81A664B C24B8B70 C76C51A3 D192E819 D6990624 F40E3585 106AA070
    19A4C116 1E376C08 2748774C 34B0BCB5 391C0CB3 4ED8AA4A 5B9CCA4F 682E6FF3
    748F82EE 78A5636F 84C87814 8CC70208 90BEFFFA A4506CEB BEF9A3F7 C67178F2
""")
_START = _words("6A09E667 BB67AE85 3C6EF372 A54FF53A 510E527F 9B05688C 1F83D9AB 5BE0CD19")


# SHA-256 (FIPS 180-4), its first 128 bits


@njit(inline="always")
def _rotated(word: Any, count: int) -> Any:
    return uint32((word >> uint32(count)) | (word << uint32(32 - count)))


@kernel
def _compress(state: Any, schedule: Any) -> None:
    for t in range(16, 64):
        early, late = schedule[t - 15], schedule[t - 2]
        small0 = _rotated(early, 7) ^ _rotated(early, 18) ^ uint32(early >> uint32(3))
        small1 = _rotated(late, 17) ^ _rotated(late, 19) ^ uint32(late >> uint32(10))
        schedule[t] = uint32(schedule[t - 16] + small0 + schedule[t - 7] + small1)
    a, b, c, d = state[0], state[1], state[2], state[3]
    e, f, g, h = state[4], state[5], state[6], state[7]
    for t in range(64):
        big1 = _rotated(e, 6) ^ _rotated(e, 11) ^ _rotated(e, 25)
        choice = g ^ (e & (f ^ g))
        first = uint32(h + big1 + choice + _ROUND[t] + schedule[t])
        big0 = _rotated(a, 2) ^ _rotated(a, 13) ^ _rotated(a, 22)
        majority = (a & b) | (c & (a | b))
        h, g, f, e = g, f, e, uint32(d + first)
        d, c, b, a = c, b, a, uint32(first + big0 + majority)
    state[0] = uint32(state[0] + a)
    state[1] = uint32(state[1] + b)
    state[2] = uint32(state[2] + c)
    state[3] = uint32(state[3] + d)
    state[4] = uint32(state[4] + e)
    state[5] = uint32(state[5] + f)
    state[6] = uint32(state[6] + g)
    state[7] = uint32(state[7] + h)


@kernel
def keys(offsets: Offsets, data: Bytes, mark: int) -> tuple[npt.NDArray[np.uint64], int]:
    """Hash each text; give uint64[n, 2] and the index of a text with a NUL byte behind `mark` bytes, or -1."""
    count = len(offsets) - 1
    out = np.empty((count, 2), np.uint64)
    state = np.empty(8, np.uint32)
    schedule = np.empty(64, np.uint32)
    with_nul = -1
    for i in range(count):
        start, end = offsets[i], offsets[i + 1]
        for k in range(8):
            state[k] = _START[k]
        bits = np.uint64(end - start) * np.uint64(8)
        place = start
        while end - place >= 64:
            for k in range(16):
                p = place + 4 * k
                high = (uint32(data[p]) << uint32(24)) | (uint32(data[p + 1]) << uint32(16))
                schedule[k] = high | (uint32(data[p + 2]) << uint32(8)) | uint32(data[p + 3])
            _compress(state, schedule)
            place += 64
        held = end - place
        schedule[:16] = 0
        for k in range(held):
            schedule[k >> 2] |= uint32(data[place + k]) << uint32(24 - 8 * (k & 3))
        schedule[held >> 2] |= uint32(0x80) << uint32(24 - 8 * (held & 3))
        if held >= 56:
            _compress(state, schedule)
            schedule[:16] = 0
        schedule[14] = uint32(bits >> np.uint64(32))
        schedule[15] = uint32(bits & np.uint64(0xFFFFFFFF))
        _compress(state, schedule)
        out[i, 0] = (np.uint64(state[0]) << np.uint64(32)) | np.uint64(state[1])
        out[i, 1] = (np.uint64(state[2]) << np.uint64(32)) | np.uint64(state[3])
        nul = False
        for k in range(start + mark, end):
            nul |= data[k] == 0
        if nul and with_nul < 0:
            with_nul = i
    return out, with_nul


# Texts


@kernel
def _number_form(data: Bytes, start: int, end: int) -> tuple[int, bool, int, int, int, int, int]:
    """Read a number: (word, negative, first digit's place, digits before the point, first and last digit that is
    not 0, place of the point among those); the digits are counted without the point."""
    place = start
    negative = False
    if place < end and (data[place] == _MINUS or data[place] == _PLUS):
        negative = data[place] == _MINUS
        place += 1
    if place < end and (data[place] | 32) == ord("n"):
        return _NAN, False, place, 0, 0, 0, 0
    if place < end and (data[place] | 32) == ord("i"):
        return _INFINITY, negative, place, 0, 0, 0, 0
    digits_start, digits, whole, first, last = place, 0, -1, -1, -1
    exponent = 0
    while place < end and (data[place] | 32) != ord("e"):
        if data[place] == _POINT:
            whole = digits
        else:
            if data[place] != _ZERO:
                last = digits
                if first < 0:
                    first = digits
            digits += 1
        place += 1
    if whole < 0:
        whole = digits
    if place < end:
        place += 1
        down = place < end and data[place] == _MINUS
        while place < end:
            if data[place] >= _ZERO:
                exponent = exponent * 10 + (data[place] - _ZERO)
            place += 1
        if down:
            exponent = -exponent
    return 0, negative and first >= 0, digits_start, whole, first, last, whole + exponent - first


@kernel
def plain_decimals(offsets: Offsets, data: Bytes) -> Texts:
    """Rewrite numbers without exponent, without zeros at either end, `-0` as `0`, NaN and infinities by name."""
    count = len(offsets) - 1
    ends = np.zeros(count + 1, np.int64)
    for i in range(count):
        word, negative, _, _, first, last, point = _number_form(data, offsets[i], offsets[i + 1])
        figures = last - first + 1
        if word:
            length = len(_WORDS[0]) if word == _NAN else len(_WORDS[1])
        elif first < 0:
            length = 1
        elif point <= 0:
            length = 2 - point + figures
        else:
            length = point if point >= figures else figures + 1
        ends[i + 1] = ends[i] + length + negative
    out = np.full(ends[count], _ZERO, np.uint8)
    for i in range(count):
        word, negative, start, whole, first, last, point = _number_form(data, offsets[i], offsets[i + 1])
        to = ends[i]
        if negative:
            out[to] = _MINUS
            to += 1
        if word:
            name = _WORDS[0] if word == _NAN else _WORDS[1]
            out[to : to + len(name)] = name
            continue
        if first < 0:
            continue
        if point <= 0:
            out[to + 1] = _POINT
            to += 2 - point
        for k in range(first, last + 1):
            if k - first == point and point > 0:
                out[to] = _POINT
                to += 1
            out[to] = data[start + k + (k >= whole)]
            to += 1
    return ends, out


@kernel
def _put(out: Bytes, to: int, number: int, width: int) -> int:
    for k in range(width):
        out[to + width - 1 - k] = _ZERO + number % 10
        number //= 10
    return to + width


@kernel
def moments(counts: npt.NDArray[np.int64], per_day: int, unit: int, shape: int, zoned: bool) -> Texts:
    """Write dates, times or timestamps in ISO 8601.

    `counts` counts units of `unit` nanoseconds from 1970-01-01 (from midnight for a time), `per_day` of them make a
    day. Years beyond 0 to 9999 have a sign; six digits of a second's fraction, or nine where the last are not 0.
    """
    ends = np.zeros(len(counts) + 1, np.int64)
    out = np.empty(len(counts) * _MOMENT_BYTES, np.uint8)
    to = 0
    for i in range(len(counts)):
        days, rest = (0, counts[i]) if shape == TIME else (counts[i] // per_day, counts[i] % per_day)
        if shape != TIME:
            # days to year, month, day in the proleptic Gregorian calendar, as in canonical_forms.civil_from_days
            era, day_of_era = (days + 719_468) // 146_097, (days + 719_468) % 146_097
            year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
            day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
            shifted = (5 * day_of_year + 2) // 153
            month = shifted + 3 if shifted < 10 else shifted - 9
            year = era * 400 + year_of_era + (1 if month <= 2 else 0)
            if year < 0 or year > 9999:
                out[to] = _MINUS if year < 0 else _PLUS
                to += 1
                year = abs(year)
            width, bound = 4, 10_000
            while year >= bound:
                width, bound = width + 1, bound * 10
            to = _put(out, to, year, width)
            out[to] = _MINUS
            to = _put(out, to + 1, month, 2)
            out[to] = _MINUS
            to = _put(out, to + 1, day_of_year - (153 * shifted + 2) // 5 + 1, 2)
        if shape == TIMESTAMP:
            out[to] = ord("T")
            to += 1
        if shape != DATE:
            nanoseconds = rest * unit
            seconds, fraction = nanoseconds // 1_000_000_000, nanoseconds % 1_000_000_000
            to = _put(out, to, seconds // 3600, 2)
            out[to] = ord(":")
            to = _put(out, to + 1, seconds // 60 % 60, 2)
            out[to] = ord(":")
            to = _put(out, to + 1, seconds % 60, 2)
            out[to] = _POINT
            to = _put(out, to + 1, fraction, 9) if fraction % 1000 else _put(out, to + 1, fraction // 1000, 6)
        if zoned:
            out[to] = ord("Z")
            to += 1
        ends[i + 1] = to
    return ends, out[:to].copy()


@kernel
def hexadecimal(data: Bytes) -> Bytes:
    """Write each byte as two lower-case digits."""
    out = np.empty(2 * len(data), np.uint8)
    for i in range(len(data)):
        out[2 * i] = _DIGITS[data[i] >> 4]
        out[2 * i + 1] = _DIGITS[data[i] & 15]
    return out


@kernel
def cut(offsets: Offsets, data: Bytes, limit: int) -> Texts:
    """Cut each text to at most `limit` bytes, before the character that would cross them."""
    count = len(offsets) - 1
    ends = np.zeros(count + 1, np.int64)
    for i in range(count):
        length = offsets[i + 1] - offsets[i]
        if length > limit:
            length = limit
            while length > 0 and (data[offsets[i] + length] & 0xC0) == 0x80:
                length -= 1
        ends[i + 1] = ends[i] + length
    out = np.empty(ends[count], np.uint8)
    for i in range(count):
        length = ends[i + 1] - ends[i]
        out[ends[i] : ends[i + 1]] = data[offsets[i] : offsets[i] + length]
    return ends, out

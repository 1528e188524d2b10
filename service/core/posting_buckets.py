"""Own how postings are stored: buckets of values by the first bits of their keys, places as coded differences.

A bucket is one run of bytes: how many values, their keys of 16 bytes, ascending, then the length in bytes of each
value's places, and the places. Numbers have seven bits a byte, lowest first, and a byte of 128 or more says that
another follows; of a value's ascending places the first stands itself, the others as distances from the one before.

A value's number is that of its bucket and, in the last eight bits, its rank in it: numbers ascend as keys do, fit into
32 bits with up to 2^24 buckets, and each task that codes some buckets knows them without the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.compiled import kernel
from service.core.records import Int64s, Keys, UInt64s, distinct_of, starts_of

Bytes = NDArray[np.uint8]

MEAN_VALUES = 64
MOST_VALUES = 255
"""A bucket is meant for so many values, and has room for so many: of one more in the last bucket the number would be
that of an empty cell (`join_layout.EMPTY_CELL`).

Keys are evenly distributed, so that none gets it, but of values that were chosen for their keys: see `least_bits`.
"""

RANKS = 256

MOST_BITS = 24
"""Of a bucket's number, where values are numbered."""

SAMPLE = 1024
"""So many keys tell how many there are, to about 3 %."""


class CrowdedError(ValueError):
    """A bucket has more values than it has room for; by the first `bits` of keys none has, which may be too many."""

    def __init__(self, values: int, bits: int) -> None:
        super().__init__(f"{values} values in a bucket of {MOST_VALUES}, as only values have that are chosen for it")
        self.bits = bits


class TooManyValuesError(ValueError):
    """There are more values than can be numbered."""


class Buckets(NamedTuple):
    """Hold buckets end to end: that of number numbers[i], ascending, is data[starts[i]:starts[i + 1]]."""

    numbers: Int64s
    starts: Int64s
    data: Bytes


class Found(NamedTuple):
    """Hold n asked values: `numbers`, -1 where unknown, how many places each has, and these as they are coded.

    Those of value i are data[starts[i]:starts[i + 1]].
    """

    numbers: Int64s
    counts: Int64s
    starts: Int64s
    data: Bytes

    @staticmethod
    def joined(parts: Sequence[Found]) -> Found:
        """Put the values of several parts one behind the other."""
        none = np.zeros(0, np.int64)
        numbers, counts = (np.concatenate([none, *(part[place] for part in parts)]) for place in (0, 1))
        lengths = np.concatenate([none, *(np.diff(part.starts) for part in parts)])
        data = np.concatenate([np.zeros(0, np.uint8), *(part.data for part in parts)])
        return Found(numbers, counts, starts_of(lengths), data)

    def places(self, chosen: Int64s) -> Int64s:
        """Decode the places of some values, end to end."""
        return _places(self.data, self.starts, self.counts, chosen)


def bucket_numbers(keys: Keys, bits: int) -> Int64s:
    """Give the bucket of each key: its first `bits` bits, from 1 to 32."""
    return (keys.high >> np.uint64(64 - bits)).astype(np.int64)


def bits_for(values: int) -> int:
    """Give the bits of bucket numbers for at most so many values; TooManyValuesError where not all can be numbered."""
    bits = max(1, (max(values - 1, 0) // MEAN_VALUES).bit_length())
    if bits > MOST_BITS:
        raise TooManyValuesError(f"{values:,} values: at most {MEAN_VALUES << MOST_BITS:,} can be numbered")
    return bits


def least_bits(keys: Keys) -> int:
    """Give the least bits of bucket numbers by which all values have room; keys by ascending order, each once."""
    if len(keys.high) <= MOST_VALUES:
        return 1
    closest = int((keys.high[MOST_VALUES:] ^ keys.high[:-MOST_VALUES]).min())
    return 65 - closest.bit_length()


def smallest_halves(high: UInt64s) -> UInt64s:
    """Give the smallest first halves of keys, ascending and each once: at most SAMPLE of them."""
    if len(high) > 8 * SAMPLE:  # of so many distinct keys about 4 * SAMPLE are below this
        few = distinct_of(high[high < np.uint64(4 * SAMPLE * 2**64 // len(high))])
        if len(few) >= SAMPLE:
            return few[:SAMPLE]
    return distinct_of(high)[:SAMPLE]


def values_estimated(smallest: UInt64s) -> int:
    """Tell how many keys there are by what `smallest_halves` gives of all of them: exactly below SAMPLE, or about.

    Of n evenly distributed keys the k-th smallest is about k / n of the greatest (bottom-k sketches). It depends on the
    keys alone, and not on how they were found: the same cells have the same buckets.
    """
    if len(smallest) < SAMPLE:
        return len(smallest)
    return int((SAMPLE - 1) * 2**64 / int(smallest[-1]))


def value_numbers(keys: Keys, bits: int) -> Int64s:
    """Number all values of some buckets, by ascending key, each once; CrowdedError where a bucket has too many."""
    buckets = bucket_numbers(keys, bits)
    lengths = np.unique(buckets, return_counts=True)[1]
    if lengths.max(initial=0) > MOST_VALUES:
        raise CrowdedError(int(lengths.max()), least_bits(keys))
    ranks = np.arange(len(buckets)) - np.repeat(starts_of(lengths)[:-1], lengths)
    return buckets * RANKS + ranks


def encode_buckets(keys: Keys, starts: Int64s, places: Int64s, bits: int) -> Buckets:
    """Code values by ascending key, each once; the ascending places of value i are places[starts[i]:starts[i + 1]]."""
    numbers, first = np.unique(bucket_numbers(keys, bits), return_index=True)
    ends = np.append(first, len(keys.high)).astype(np.int64)
    most = 10 * (len(numbers) + len(keys.high) + len(places)) + 16 * len(keys.high)
    bucket_starts, data = _encode(keys.high, keys.low, starts, places, ends, np.empty(most, np.uint8))
    return Buckets(numbers, bucket_starts, data)


def decode_buckets(buckets: Buckets) -> tuple[Keys, Int64s, Int64s, Int64s]:
    """Give all values of buckets: keys, the starts of each one's places, these, and the values' numbers."""
    high, low, starts, places, ranks, lengths = _decode(buckets.data, buckets.starts)
    return Keys(high, low), starts, places, np.repeat(buckets.numbers, lengths) * RANKS + ranks


def find_in_buckets(buckets: Buckets, keys: Keys, bits: int) -> Found:
    """Find values in some buckets, and decode nothing; keys by ascending order, each once."""
    asked = bucket_numbers(keys, bits)
    first, end = np.searchsorted(asked, buckets.numbers), np.searchsorted(asked, buckets.numbers, "right")
    ranks, counts, starts, data = _find(buckets.data, buckets.starts, first, end, keys.high, keys.low)
    return Found(np.where(ranks < 0, -1, asked * RANKS + ranks), counts, starts, data)


@kernel
def _write(data: Bytes, at: int, number: int) -> int:
    while number >= 128:
        data[at] = number & 127 | 128
        number >>= 7
        at += 1
    data[at] = number
    return at + 1


@kernel
def _read(data: Bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while data[at] >= 128:
        number |= (int(data[at]) & 127) << shift
        shift += 7
        at += 1
    return number | int(data[at]) << shift, at + 1


@kernel
def _write_word(data: Bytes, at: int, word: np.uint64) -> int:
    for shift in range(56, -1, -8):
        data[at] = word >> np.uint64(shift) & np.uint64(255)
        at += 1
    return at


@kernel
def _word(data: Bytes, at: int) -> np.uint64:
    word = np.uint64(0)
    for byte in data[at : at + 8]:
        word = word << np.uint64(8) | np.uint64(byte)
    return word


@kernel
def _encode(
    high: UInt64s, low: UInt64s, starts: Int64s, places: Int64s, ends: Int64s, data: Bytes
) -> tuple[Int64s, Bytes]:
    bucket_starts = np.zeros(len(ends), np.int64)
    most = 0
    for bucket in range(len(ends) - 1):
        most = max(most, starts[ends[bucket + 1]] - starts[ends[bucket]])
    coded = np.empty(10 * most, np.uint8)
    at = 0
    for bucket in range(len(ends) - 1):
        first, end = ends[bucket], ends[bucket + 1]
        at = _write(data, at, end - first)
        for value in range(first, end):
            at = _write_word(data, _write_word(data, at, high[value]), low[value])
        length = 0
        for value in range(first, end):
            before, last = length, 0
            for place in places[starts[value] : starts[value + 1]]:
                length = _write(coded, length, place - last)
                last = place
            at = _write(data, at, length - before)
        data[at : at + length] = coded[:length]
        at += length
        bucket_starts[bucket + 1] = at
    return bucket_starts, data[:at].copy()


@kernel
def _decode(data: Bytes, bucket_starts: Int64s) -> tuple[UInt64s, UInt64s, Int64s, Int64s, Int64s, Int64s]:
    lengths = np.zeros(len(bucket_starts) - 1, np.int64)
    for bucket in range(len(lengths)):
        lengths[bucket], _ = _read(data, bucket_starts[bucket])
    count = lengths.sum()
    high, low = np.empty(count, np.uint64), np.empty(count, np.uint64)
    starts, ranks = np.zeros(count + 1, np.int64), np.empty(count, np.int64)
    places = np.empty(len(data), np.int64)
    value = total = 0
    for bucket in range(len(lengths)):
        _, at = _read(data, bucket_starts[bucket])
        lengths_at = at + 16 * lengths[bucket]
        places_at = lengths_at
        for _ in range(lengths[bucket]):
            _, places_at = _read(data, places_at)
        for rank in range(lengths[bucket]):
            high[value], low[value], ranks[value] = _word(data, at), _word(data, at + 8), rank
            at += 16
            length, lengths_at = _read(data, lengths_at)
            place, end = 0, places_at + length
            while places_at < end:
                distance, places_at = _read(data, places_at)
                place += distance
                places[total] = place
                total += 1
            value += 1
            starts[value] = total
    return high, low, starts, places[:total].copy(), ranks, lengths


@kernel
def _find(
    data: Bytes, bucket_starts: Int64s, firsts: Int64s, ends: Int64s, high: UInt64s, low: UInt64s
) -> tuple[Int64s, Int64s, Int64s, Bytes]:
    ranks, begins = np.full(len(high), -1, np.int64), np.zeros(len(high), np.int64)
    counts, starts = np.zeros(len(high), np.int64), np.zeros(len(high) + 1, np.int64)
    for bucket in range(len(firsts)):
        asked, last = firsts[bucket], ends[bucket]
        count, keys_at = _read(data, bucket_starts[bucket])
        lengths_at = keys_at + 16 * count
        at = lengths_at
        for _ in range(count):
            _, at = _read(data, at)
        for value in range(count):
            length, lengths_at = _read(data, lengths_at)
            key_high, key_low = _word(data, keys_at + 16 * value), _word(data, keys_at + 16 * value + 8)
            while asked < last and (high[asked] < key_high or (high[asked] == key_high and low[asked] < key_low)):
                asked += 1
            if asked == last:
                break
            if high[asked] == key_high and low[asked] == key_low:
                ranks[asked], begins[asked], starts[asked + 1] = value, at, length
                for byte in data[at : at + length]:
                    counts[asked] += byte < 128
            at += length
    starts = np.cumsum(starts)
    coded = np.empty(starts[-1], np.uint8)
    for key in range(len(high)):
        length = starts[key + 1] - starts[key]
        coded[starts[key] : starts[key + 1]] = data[begins[key] : begins[key] + length]
    return ranks, counts, starts, coded


@kernel
def _places(data: Bytes, starts: Int64s, counts: Int64s, chosen: Int64s) -> Int64s:
    found = np.empty(counts[chosen].sum(), np.int64)
    number = 0
    for value in chosen:
        place, at = 0, starts[value]
        for _ in range(counts[value]):
            distance, at = _read(data, at)
            place += distance
            found[number] = place
            number += 1
    return found

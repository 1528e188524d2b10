"""Own made columns as hashes, of any size and any overlap, without values: what estimators are timed and covered on.

A value is a number of a domain; its hash is the splitmix64 of both (Steele, Lea, Flood 2014), which never collides
within a domain. A column is a range of a domain, so the overlap of two is known.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from service.core.compiled import kernel
from service.core.estimators.model import Column
from service.core.records import UInt64s
from service.core.sketches.hll import Hll


class Pair(NamedTuple):
    """Hold the sizes of two made columns and of what they have in common, and the domain that they are ranges of."""

    domain: int
    x: int
    y: int
    common: int

    @property
    def phi(self) -> float:
        return self.common / self.x

    def hashes(self) -> tuple[UInt64s, UInt64s]:
        """Give the hashes of both, in no order."""
        first = self.x - self.common
        return hash_range(self.domain, 0, self.x), hash_range(self.domain, first, first + self.y)


@kernel
def hash_range(domain: int, first: int, last: int) -> UInt64s:
    """Give the hashes of the values from `first` to `last` of a domain."""
    hashes = np.empty(last - first, np.uint64)
    for i in range(len(hashes)):
        z = np.uint64(domain) + np.uint64(first + i) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        hashes[i] = z ^ (z >> np.uint64(31))
    return hashes


def draw_size(rng: np.random.Generator, least: int, most: int) -> int:
    """Draw a size, each decade with the same chance."""
    return round(float(np.exp(rng.uniform(np.log(least), np.log(most)))))


def draw_pair(rng: np.random.Generator, least: int, most: int) -> Pair:
    """Draw sizes, and an overlap that is none, all, few, all but few, or any, each as often."""
    x, y = draw_size(rng, least, most), draw_size(rng, least, most)
    smaller = min(x, y)
    few = min(draw_size(rng, 1, smaller + 1), smaller)
    common = (0, smaller, few, smaller - few, int(rng.integers(0, smaller + 1)))[rng.integers(5)]
    return Pair(int(rng.integers(1 << 63)), x, y, common)


def as_kept(hashes: UInt64s, m: int, most: int, bottom: int) -> Column:
    """Give a column as a state keeps it: exact size, `bottom` smallest hashes, and all of them if at most `most`."""
    registers = Hll(m)
    registers.update(hashes)
    smallest = np.sort(np.partition(hashes, bottom)[:bottom] if len(hashes) > bottom else hashes)
    complete = np.sort(hashes) if len(hashes) <= most else None
    return Column(registers.registers, float(len(hashes)), hashes=complete, bottom=smallest)


def registers_of(column: Column) -> Column:
    """Give a column of which nothing but its registers is known."""
    estimated = Hll(column.bucket_bits, column.registers).estimate()
    return Column(column.registers, max(estimated, 1.0), is_size_exact=False)

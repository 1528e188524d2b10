"""Read and count sketches a second time, in plain Python: by strings of binary digits, and by docs/sketches.md."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterable

import numpy as np
from hypothesis import strategies as st

from service.core.records import UInt64s

HASHES = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(0, 63).map(lambda bit: 1 << bit),
    st.integers(0, 30),
    st.integers(2**64 - 30, 2**64 - 1),
)
"""Hashes of all sizes: also those that real ones hardly ever are, with long runs of zeros."""


def array(hashes: Iterable[int]) -> UInt64s:
    """Give hashes as sketches take them."""
    return np.array(list(hashes), np.uint64)


def random_hashes(count: int, seed: int) -> UInt64s:
    """Give hashes in no order; two of them hardly ever are the same."""
    return np.random.default_rng(seed).integers(0, 2**64, count, np.uint64)


def bucket_and_rho(value: int, m: int) -> tuple[int, int]:
    """Read bucket and ρ of a hash off its binary digits (Definition 2)."""
    digits = f"{value:064b}"
    return int(digits[:m] or "0", 2), (digits[m:] + "1").index("1") + 1


def count_cells(counted: Counter[int], m: int) -> Counter[tuple[int, int]]:
    """Count the hashes of each (ρ, bucket)."""
    cells: Counter[tuple[int, int]] = Counter()
    for value, count in counted.items():
        bucket, rho = bucket_and_rho(value, m)
        cells[rho, bucket] += count
    return +cells


def maxima(cells: Counter[tuple[int, int]], m: int) -> list[int]:
    """Give the highest ρ of each bucket, 0 for an empty one."""
    registers = [0] * 2**m
    for rho, bucket in cells:
        registers[bucket] = max(registers[bucket], rho)
    return registers


class PlainReader:
    """Read the bytes of any sketch, as docs/sketches.md describes them."""

    def __init__(self, data: bytes) -> None:
        magic, version, self.kind, self.m, self.flags, name, seed, self.k, self.spares, size = struct.unpack(
            "<4sBBBB16sQIIQ", data[:48]
        )
        assert (magic, version, name, seed) == (b"SDSK", 1, b"sha256-64".ljust(16, b"\0"), 0)
        assert len(data) == 48 + size + 4
        assert struct.unpack("<I", data[-4:]) == (zlib.crc32(data[:-4]),)
        self._rest = data[48:-4]
        self.registers: list[int] | None = self._plane() if self.kind == 1 else None
        self.bound, self.held = self._bottom() if self.kind in {3, 4} else (None, Counter[int]())
        self.bits, self.entries = self._prefixes() if self.kind == 5 else (None, None)
        self.cells = self._levels() if self.kind == 2 or (self.kind == 4 and self.flags & 2) else None
        assert not self._rest

    def _take(self, size: int) -> bytes:
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "little")

    def _bits(self, count: int, width: int) -> list[int]:
        stream = self._number(-(-count * width // 8))
        return [stream >> (i * width) & (1 << width) - 1 for i in range(count)]

    def _packed(self, count: int) -> list[int]:
        return self._bits(count, self._number(1))

    def _plane(self) -> list[int]:
        if self._number(1) == 0:
            return self._packed(2**self.m)
        count = self._number(4)
        buckets = self._bits(count, self.m)
        numbers = dict(zip(buckets, self._packed(count), strict=True))
        return [numbers[bucket] + 1 if bucket in numbers else 0 for bucket in range(2**self.m)]

    def _levels(self) -> Counter[tuple[int, int]]:
        planes = [self._plane() for _ in range(self._number(1))]
        return +Counter({(rho, b): n for rho, plane in enumerate(planes, 1) for b, n in enumerate(plane)})

    def _bottom(self) -> tuple[int | None, Counter[int]]:
        bound = self._number(8) or None
        held = self._number(4)
        hashes = [self._number(8) for _ in range(held)]
        return bound, Counter({value: n + 1 for value, n in zip(hashes, self._packed(held), strict=True)})

    def _prefixes(self) -> tuple[int, list[str]]:
        bits, count = self._number(1), self._number(4)
        cells, cell = [], -1
        for gap in self._rice(count):
            cell += gap + 1
            cells.append(f"{cell:064b}"[64 - bits :] if bits else "")
        keeping = [cell for cell in cells if "1" not in cell[self.m :]]
        rhos = dict(zip(keeping, self._rice(len(keeping)), strict=True))
        return bits, [(cell + "0" * rhos[cell] + "1" if cell in rhos else cell)[:64].ljust(64, "0") for cell in cells]

    def _rice(self, count: int) -> list[int]:
        width, size = self._number(1), self._number(4)
        runs = "".join(f"{byte:08b}"[::-1] for byte in self._take(size)).split("1")
        assert len(runs) == count + 1
        assert "1" not in runs.pop()
        return [len(run) << width | low for run, low in zip(runs, self._bits(count, width), strict=True)]


def cut_to(value: int, m: int, bits: int) -> str:
    """Cut a hash to so many bits by its digits, with the leading 1 behind them where there is none from m on."""
    digits = f"{value:064b}"
    kept, rest = digits[:bits], digits[bits:]
    if "1" not in kept[m:] and "1" in rest:
        kept += "0" * rest.index("1") + "1"
    return kept.ljust(64, "0")

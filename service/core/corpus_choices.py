"""Own what can be chosen of the search for INDs in a corpus: what counts, the algorithm, and its signatures."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # settings name algorithms, and no arrays
    from service.core.records import Int64s

EXACT = Fraction(1)


def allowances(sizes: Int64s, threshold: Fraction, coverage: Fraction = Fraction(0)) -> Int64s:
    """Give how many values dependents of these sizes may miss: the most with |A ∩ B| ≥ threshold · |A|, int64[n].

    Raises ValueError for a threshold outside (0, 1] or a coverage outside [0, 1], or with more than six digits.
    """
    if not 0 < threshold <= 1 or not 0 <= coverage <= 1 or max(threshold.denominator, coverage.denominator) > 10**6:
        raise ValueError(
            f"a threshold of {threshold} and a coverage of {coverage}: the one is in (0, 1], the other in [0, 1], "
            "and both have at most six digits"
        )
    return sizes * (threshold.denominator - threshold.numerator) // threshold.denominator


class Algorithm(StrEnum):
    """Name the two algorithms; both give the same INDs."""

    RAREST_FIRST = "rarest-first"
    SIGNATURES = "signatures"


class Strategy(StrEnum):
    """Name which side of an IND is given when its candidates are looked for (MANY, Algorithms 5 and 6)."""

    DEP2REFS = "dep2refs"
    REF2DEPS = "ref2deps"


KEPT_BITS = 1 << 16
"""A signature of more, in all passes, is not kept: of so long ones the bit matrix can have few, which are soon made."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Hold m `bits` and k `hashes` of a signature, its p `passes`, and the strategy; defaults as in MANY, section 5.

    Raises ValueError where one of the numbers is less than 1.
    """

    bits: int = 650
    hashes: int = 6
    passes: int = 2
    strategy: Strategy = Strategy.DEP2REFS

    def __post_init__(self) -> None:
        if min(self.bits, self.hashes, self.passes) < 1:
            raise ValueError(
                f"{self.bits} bits, {self.hashes} hash functions, {self.passes} passes: each is at least 1"
            )

    @property
    def words(self) -> int:
        """Count the words of 64 bits of a signature: bit r of it, of all passes end to end, is r % 64 of r // 64."""
        return (self.passes * self.bits + 63) // 64

    def are_kept_for(self, algorithm: Algorithm | None) -> bool:
        """Say whether signatures by them are kept beside a corpus whose INDs are found so."""
        return algorithm is Algorithm.SIGNATURES and self.passes * self.bits <= KEPT_BITS


DEFAULT = Parameters()

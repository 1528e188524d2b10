"""Own the discovery of a corpus' INDs: which algorithm, by what it would cost, and both behind one function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from service.core import rarest_first, signatures
from service.core.column_sets import Groups
from service.core.corpus_choices import DEFAULT, Algorithm, Parameters
from service.core.group_inds import Inds, as_columns
from service.core.records import Keys
from service.core.signatures import Signed


@dataclass(frozen=True, slots=True)
class Choice:
    """Hold the chosen algorithm and the estimates that chose it, in seconds of one core; None where it cannot run."""

    algorithm: Algorithm
    rarest_first: float
    signatures: float | None


MATRIX_BYTES = 4 << 30
"""A bit matrix of more memory is not built."""

# Nanoseconds, measured on web tables and on columns of random values (docs/many.md).
_CANDIDATE = 40.0
_LOOKED_AT = 300.0
_ANDED_WORD = 8.0
_HASHED = 8.0


def choose(groups: Groups, parameters: Parameters = DEFAULT) -> Choice:
    """Choose the algorithm that costs less: candidates to be narrowed against words of the bit matrix to be ANDed.

    Where dependents may miss values, signatures show nothing, and where the matrix would take more than MATRIX_BYTES
    there is none: rarest-first is the only one.
    """
    narrowing = _LOOKED_AT * len(groups) + _CANDIDATE * int(rarest_first.candidate_counts(groups).sum())
    if np.any(groups.allowance) or signatures.matrix_bytes(groups, parameters) > MATRIX_BYTES:
        return Choice(Algorithm.RAREST_FIRST, narrowing / 1e9, None)
    hashed = 2 * len(groups.values) * parameters.hashes * parameters.passes
    anding = _HASHED * hashed + _ANDED_WORD * int(signatures.ands(groups, parameters).sum())
    algorithm = Algorithm.RAREST_FIRST if narrowing <= anding else Algorithm.SIGNATURES
    return Choice(algorithm, narrowing / 1e9, anding / 1e9)


def choose_wanted(groups: Groups, wanted: Algorithm | None, parameters: Parameters = DEFAULT) -> Choice:
    """Take the wanted algorithm where it can run, and else choose as `choose` does."""
    choice = choose(groups, parameters)
    if wanted is None or (wanted is Algorithm.SIGNATURES and choice.signatures is None):
        return choice
    return replace(choice, algorithm=wanted)


def find_group_inds(
    groups: Groups,
    keys: Keys,
    algorithm: Algorithm,
    parameters: Parameters = DEFAULT,
    threads: int = 1,
    signed: Signed | None = None,
) -> Iterator[Inds]:
    """Yield all INDs between groups in blocks; `keys` are those of the value ids. Raises as the algorithms do.

    `signed` may have the columns' signatures, which are made where it is None.
    """
    if algorithm is Algorithm.RAREST_FIRST:
        return rarest_first.find_inds(groups, threads)
    return signatures.find_inds(groups, keys, parameters, threads, signed)


def find_inds(
    groups: Groups, keys: Keys, algorithm: Algorithm, parameters: Parameters = DEFAULT, threads: int = 1
) -> Iterator[Inds]:
    """Yield all INDs between columns in blocks of at most a million; A ⊆ A is not among them."""
    return as_columns(groups, find_group_inds(groups, keys, algorithm, parameters, threads))

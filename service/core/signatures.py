"""Own MANY: IND discovery by Bloom filters in a bit matrix (Tschirschnitz et al., TODS 42(3), 2017, section 4).

A column's signature has a bit for each of k hash functions of each of its values, in p passes of m bits. A ⊆ B implies
that B's signature has all of A's bits, so rows of the bit matrix, ANDed, give candidates for many columns at once; the
validator then compares the real values. Signatures let wrong candidates through and never lose a right one: what is
reported has been validated.

What differs from the paper (paper-notes.md): equal columns are looked at once; columns without values are left out;
dep2refs masks its candidates with the columns that can be referenced, and ref2deps passes over those that cannot
(Algorithm 11, line 7, has it the other way round); the rows that keep fewest candidates are ANDed first; a candidate's
size must allow it; and a short list of candidates goes to the validator at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from service.core.column_sets import Groups
from service.core.compiled import kernel
from service.core.corpus_choices import DEFAULT, Parameters, Strategy
from service.core.group_inds import BLOCK, Inds, stream
from service.core.rarest_first import missing
from service.core.records import Flags, Int32s, Int64s, Keys, UInt64s

SHORT_LIST = 8
"""Candidates in so few words of their bit vector go to the validator before the other rows are ANDed."""

_CHUNK = 1 << 14
"""Groups that are signed before their signatures are turned into columns of the matrix."""

Signed = Callable[[Int32s], UInt64s]
"""Give the signatures of n columns, uint64[n, words], made of all of their values."""


def find_inds(
    groups: Groups, keys: Keys, parameters: Parameters = DEFAULT, threads: int = 1, signed: Signed | None = None
) -> Iterator[Inds]:
    """Yield all INDs between groups in blocks, those inside a group as (group, group); `keys` are the value ids'.

    Signatures are made of the values that are here, or `signed` has them. Those of a referenced column may show more of
    its values than are here: they let more candidates through, and lose none.
    Raises ValueError for groups whose dependents may miss values: a signature shows nothing of them.
    """
    if np.any(groups.allowance):
        raise ValueError("signatures find whole inclusions only: choose rarest-first for a threshold below 1")
    matrix = signature_matrix(groups, keys, parameters, signed)
    dep2refs = parameters.strategy is Strategy.DEP2REFS
    ones = np.bitwise_count(matrix).sum(1, np.int64)
    order = np.argsort(ones if dep2refs else -ones, kind="stable")
    asked, candidates = _sides(groups, dep2refs)
    low, high = _ranges(groups, dep2refs)

    def step(first: int, end: int) -> tuple[Inds, int]:
        return _propose_and_validate(
            first, end, max(BLOCK, len(groups) + 1), dep2refs, SHORT_LIST, matrix, order, asked, _packed(candidates),
            low, high, groups.starts, groups.values, groups.reflexive,
        )  # fmt: skip

    return stream(step, ands(groups, parameters), threads)


def matrix_bytes(groups: Groups, parameters: Parameters) -> int:
    """Say how much memory the bit matrix takes: passes · bits for each group."""
    return parameters.passes * parameters.bits * ((len(groups) + 63) // 64) * 8


def ands(groups: Groups, parameters: Parameters) -> Int64s:
    """Give about how many words of the matrix are ANDed for each group, int64[g]: what its parts' cost is cut by."""
    asked, _ = _sides(groups, parameters.strategy is Strategy.DEP2REFS)
    low, high = _ranges(groups, parameters.strategy is Strategy.DEP2REFS)
    return np.where(asked, 2 * np.maximum(high - low, 0) // 64 + 8, 0)


def positions(keys: Keys, bits: int, count: int) -> Int64s:
    """Give the bits that `count` hash functions set for each key, int64[n, count], each in [0, bits)."""
    return _positions(keys.high, keys.low, bits, count)


def signature_matrix(groups: Groups, keys: Keys, parameters: Parameters, signed: Signed | None = None) -> UInt64s:
    """Build the bit matrix uint64[passes · bits, words]: bit g % 64 of word g // 64 of a row is group g's."""
    matrix = np.empty((parameters.passes * parameters.bits, (len(groups) + 63) // 64), np.uint64)
    ranked = keys.take(groups.value_ids.astype(np.int64)) if signed is None else None
    kept = None if signed is None else signed(_examples(groups))
    for first in range(0, len(groups), _CHUNK):
        end = min(first + _CHUNK, len(groups))
        if kept is not None:
            signatures = kept[first:end]
        else:
            assert ranked is not None
            signatures = np.zeros((end - first, parameters.words), np.uint64)
            _sign_groups(signatures, groups.starts[first : end + 1], groups.values, ranked.high, ranked.low,
                         parameters.bits, parameters.hashes, parameters.passes)  # fmt: skip
        _turn(signatures, matrix, first // 64)
    return matrix


def sign(signatures: UInt64s, columns: Int32s, keys: Keys, parameters: Parameters) -> None:
    """Set the bits of cells in the signatures of their columns, uint64[n, words]."""
    _sign(signatures, columns, keys.high, keys.low, parameters.bits, parameters.hashes, parameters.passes)


def _examples(groups: Groups) -> Int32s:
    """Give a column of each group; one that can be dependent, if there is any."""
    examples = np.empty(len(groups), np.int32)
    for starts, columns in (
        (groups.referenced_starts, groups.referenced),
        (groups.dependent_starts, groups.dependents),
    ):
        some = np.diff(starts) > 0
        examples[some] = columns[starts[:-1][some]]
    return examples


def _sides(groups: Groups, dep2refs: bool) -> tuple[Flags, Flags]:
    """Give the groups that candidates are looked for, and those that are candidates."""
    dependent, referenced = np.diff(groups.dependent_starts) > 0, np.diff(groups.referenced_starts) > 0
    return (dependent, referenced) if dep2refs else (referenced, dependent)


def _ranges(groups: Groups, dep2refs: bool) -> tuple[Int32s, Int32s]:
    """Give the half-open range of each group's candidates by size: of the larger ones, or of the smaller ones."""
    if dep2refs:
        return groups.first, groups.end
    everyone = np.arange(len(groups))
    return (
        np.searchsorted(groups.end, everyone, "right").astype(np.int32),
        np.searchsorted(groups.first, everyone, "right").astype(np.int32),
    )


def _packed(flags: Flags) -> UInt64s:
    words = np.zeros((len(flags) + 63) // 64 * 64, np.uint8)
    words[: len(flags)] = flags
    return np.packbits(words, bitorder="little").view("<u8").astype(np.uint64)


@kernel
def _position(high: np.uint64, low: np.uint64, number: int, bits: int) -> int:
    """Give the bit that hash function `number` sets for a key.

    Double hashing gives high + number · low; with an odd low no two numbers below 2^64 give the same. splitmix64's
    finaliser then makes functions of them that differ for any `bits`, where (high + number · low) % bits would repeat.
    """
    mixed = high + np.uint64(number) * (low | np.uint64(1))
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return np.int64(((mixed >> np.uint64(32)) * np.uint64(bits)) >> np.uint64(32))  # type: ignore[return-value]


@kernel
def _positions(high: UInt64s, low: UInt64s, bits: int, count: int) -> Int64s:
    out = np.empty((len(high), count), np.int64)
    for i in range(len(high)):
        for number in range(count):
            out[i, number] = _position(high[i], low[i], number, bits)
    return out


@kernel
def _set_bits(
    signatures: UInt64s, column: int, high: np.uint64, low: np.uint64, bits: int, hashes: int, passes: int
) -> None:
    for number in range(passes * hashes):
        row = (number // hashes) * bits + _position(high, low, number, bits)
        signatures[column, row // 64] |= np.uint64(1) << np.uint64(row % 64)


@kernel
def _sign(
    signatures: UInt64s, columns: Int32s, high: UInt64s, low: UInt64s, bits: int, hashes: int, passes: int
) -> None:
    for i in range(len(columns)):
        _set_bits(signatures, columns[i], high[i], low[i], bits, hashes, passes)


@kernel
def _sign_groups(
    signatures: UInt64s,
    starts: Int64s,
    values: Int32s,
    high: UInt64s,
    low: UInt64s,
    bits: int,
    hashes: int,
    passes: int,
) -> None:
    for group in range(len(signatures)):
        for place in range(starts[group], starts[group + 1]):
            _set_bits(signatures, group, high[values[place]], low[values[place]], bits, hashes, passes)


@kernel
def _turn(signatures: UInt64s, matrix: UInt64s, word: int) -> None:
    """Write signatures into the matrix from `word` on, where each is a column: 64 x 64 bits at a time.

    A square of bits is turned by swapping its upper right quarter with the lower left one, then so in each quarter
    (Warren, Hacker's Delight, section 7-3).
    """
    square = np.empty(64, np.uint64)
    for first in range(0, len(signatures), 64):
        for part in range(signatures.shape[1]):
            for i in range(64):
                square[i] = signatures[first + i, part] if first + i < len(signatures) else np.uint64(0)
            width, mask = 32, np.uint64(0xFFFFFFFF)
            while width:
                for i in range(64):
                    if not i & width:
                        swapped = ((square[i] >> np.uint64(width)) ^ square[i + width]) & mask
                        square[i] ^= swapped << np.uint64(width)
                        square[i + width] ^= swapped
                width //= 2
                mask ^= mask << np.uint64(width)
            for i in range(min(64, len(matrix) - part * 64)):
                matrix[part * 64 + i, word + first // 64] = square[i]


@kernel
def _ones(word: np.uint64) -> int:
    """Count the ones of a word, by halves, quarters and so on."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))  # type: ignore[return-value]


@kernel
def _propose_and_validate(
    group: int,
    last: int,
    room: int,
    dep2refs: bool,
    short_list: int,
    matrix: UInt64s,
    order: Int64s,
    asked: Flags,
    candidates: UInt64s,
    first: Int32s,
    end: Int32s,
    starts: Int64s,
    values: Int32s,
    reflexive: Flags,
) -> tuple[Inds, int]:
    """Look at groups of [group:last) while a block of `room` INDs has room for one group's answer.

    The candidates are an indexed bit vector (section 4.5): the words that are not 0, and their places.
    """
    everything = np.uint64(0xFFFFFFFFFFFFFFFF)
    out = (np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.int32))
    written = 0
    active, places = np.empty(len(candidates), np.uint64), np.empty(len(candidates), np.int64)
    while group < last:
        if not asked[group]:
            group += 1
            continue
        low, high = first[group], end[group]
        count = 0
        for word in range(low // 64, (high + 63) // 64 if high > low else low // 64):
            bits = candidates[word]
            if word == low // 64:
                bits &= everything << np.uint64(low % 64)
            if word == high // 64:
                bits &= ~(everything << np.uint64(high % 64))
            if bits:
                active[count], places[count] = bits, word
                count += 1
        # The rows that tell: those of a dependent's bits, those that a referenced column lacks.
        for row in order:
            if count <= short_list:
                break
            if (matrix[row, group // 64] >> np.uint64(group % 64)) & np.uint64(1) != dep2refs:
                continue
            kept = 0
            for i in range(count):
                bits = matrix[row, places[i]]
                bits = active[i] & (bits if dep2refs else ~bits)
                active[kept], places[kept] = bits, places[i]
                kept += bits != 0
            count = kept
        ones = 0
        for i in range(count):
            ones += _ones(active[i])
        if written + ones + 1 > room:
            break
        if reflexive[group]:
            out[0][written], out[1][written], out[2][written] = group, group, starts[group + 1] - starts[group]
            written += 1
        for i in range(count):
            bits = active[i]
            while bits:
                other = places[i] * 64 + _ones((bits & (~bits + np.uint64(1))) - np.uint64(1))
                bits &= bits - np.uint64(1)
                dependent, referenced = (group, other) if dep2refs else (other, group)
                start, stop = starts[dependent], starts[dependent + 1]
                if missing(values, start, stop, starts[referenced], starts[referenced + 1], 0) == 0:
                    out[0][written], out[1][written], out[2][written] = dependent, referenced, stop - start
                    written += 1
        group += 1
    return Inds(out[0][:written], out[1][:written], out[2][:written]), group

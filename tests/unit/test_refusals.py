"""What is refused of sketches, estimates, corpora and their signatures, word by word: a message is read by people."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from service.core.column_sets import ColumnSets, group_columns
from service.core.corpus import CorpusSettings, parse_filters
from service.core.corpus_choices import Parameters, allowances
from service.core.errors import SketchError, SourceError
from service.core.estimators.all_pairs import stack
from service.core.estimators.estimate import METHODS, estimate
from service.core.estimators.lookup import bucket_bits_for
from service.core.estimators.model import Column
from service.core.records import Keys, starts_of
from service.core.signatures import find_inds
from service.core.sketch_changes import SketchChanges, net_changes
from service.core.sketches.bottom_k import BottomK
from service.core.sketches.column import ColumnSketch
from service.core.sketches.comparable import read_comparable
from service.core.sketches.heaps import HllHeaps
from service.core.sketches.hll import Hll
from service.core.sketches.prefixes import HashPrefixes
from service.core.top_referenced import top_referenced

ONE, TWO = np.array([1], np.uint64), np.array([1, 2], np.uint64)
MOST = np.array([2**63 - 1])
X = Column(np.zeros(64, np.uint8), 3.0)
DATA = Hll(4).to_bytes()


def forged(place: int, what: bytes) -> bytes:
    body = DATA[:place] + what + DATA[place + len(what) : -4]
    return body + zlib.crc32(body).to_bytes(4, "little")


def full_counts() -> HllHeaps:
    heaps = HllHeaps(4)
    for _ in range(2):
        heaps.update(ONE, MOST)
    return heaps


def removed_above_the_bound() -> None:
    column = ColumnSketch(4, 1, 0)
    column.update(np.array([2**59, 2**59 + 1, 2**59 + 2], np.uint64))  # all with one bucket and one rho
    column.remove(np.array([2**59 + 1, 2**59 + 2, 2**59 + 3], np.uint64))


def signed_in_part() -> None:
    columns = ColumnSets.of_keys(
        starts_of(np.array([2, 2])), Keys(np.array([1, 2, 1, 3], np.uint64), np.zeros(4, np.uint64))
    )
    every = np.ones(2, np.bool_)
    find_inds(group_columns(columns, every, every, threshold=Fraction(1, 2)), columns.keys)


REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (
        lambda: BottomK(0, 3),
        SketchError,
        "a bottom-k sketch has k from 1 and spares from 0, together up to 16777216: 0, 3",
    ),
    (lambda: BottomK(3, 0).apply(TWO, MOST), SketchError, "2 hashes have 1 differences"),
    (lambda: BottomK(3, 0).update(TWO, MOST), SketchError, "2 hashes have 1 weights"),
    (lambda: BottomK(3, 0).update(TWO, np.array([4, -7])), SketchError, "hash 0000000000000002 has a weight of -7"),
    (
        lambda: BottomK(3, 0).apply(np.array([3, 3], np.uint64), np.array([2**63 - 1, 1])),
        SketchError,
        "the count of hash 0000000000000003 is at its limit of 63 bits",
    ),
    (
        lambda: BottomK(3, 0).remove(ONE),
        SketchError,
        "hash 0000000000000001 is removed more often than it was inserted; the sketch is left as it was",
    ),
    (
        removed_above_the_bound,
        SketchError,
        "more hashes are removed than the sketch counts above its bound; it is left as it was",
    ),
    (lambda: Hll.from_bytes(b"SDSX"), SketchError, "these bytes are no sketch: they do not begin with SDSK"),
    (
        lambda: Hll.from_bytes(forged(4, b"\2")),
        SketchError,
        "the sketch has format version 2; version 1 is read here: make it with this release",
    ),
    (
        lambda: Hll.from_bytes(DATA[:9]),
        SketchError,
        "the sketch is cut off: 9 bytes are less than a header; copy it whole",
    ),
    (
        lambda: Hll.from_bytes(DATA + b"\0"),
        SketchError,
        f"the sketch has a length of {len(DATA) + 1} bytes, its header says {len(DATA)}: copy it whole",
    ),
    (
        lambda: Hll.from_bytes(DATA[:-1] + bytes([DATA[-1] ^ 1])),
        SketchError,
        "the bytes of the sketch are corrupt: their checksum is another; copy them once more, or make it anew",
    ),
    (
        lambda: Hll.from_bytes(forged(8, b"murmur3-128")),
        SketchError,
        "the sketch is of hash function 'murmur3-128', not 'sha256-64': the two cannot be compared",
    ),
    (
        lambda: Hll.from_bytes(forged(24, b"\x2a")),
        SketchError,
        "the sketch is of hash seed 42, not 0: the two cannot be compared",
    ),
    (
        lambda: Hll.from_bytes(forged(5, b"\7")),
        SketchError,
        "the sketch is of an unknown kind (7), wanted is a HyperLogLog (Hll)",
    ),
    (
        lambda: read_comparable(DATA),
        SketchError,
        "the sketch is HLL, a part of one: columns are compared by COLUMN or PREFIXES",
    ),
    (lambda: Hll(19), SketchError, "a sketch has 2^m buckets with m from 0 to 18, not m = 19"),
    (lambda: Hll(4).fold(5), SketchError, "a sketch of m = 4 folds to a smaller m only, not to 5"),
    (lambda: Hll(4).remove(ONE), SketchError, "a HyperLogLog sketch cannot remove; one with heaps can (HllHeaps)"),
    (lambda: Hll(4).merge(Hll(5)), SketchError, "sketches of different m cannot be merged: 4 and 5"),
    (
        lambda: full_counts().update(ONE, np.array([2])),
        SketchError,
        "the count of hash 0000000000000001 is at its limit of 64 bits",
    ),
    (lambda: full_counts().merge(full_counts()), SketchError, "a merged count would be beyond its limit of 64 bits"),
    (
        lambda: full_counts().merge(HllHeaps(3)),
        SketchError,
        "sketches of different m cannot be merged: 4 and 3",
    ),
    (
        lambda: HashPrefixes(4, 31),
        SketchError,
        "a sketch of a fixed size has from 32 to 16777216 bytes: 31",
    ),
    (
        lambda: HashPrefixes(4).remove(ONE),
        SketchError,
        "hash prefixes cannot be removed; a sketch with heaps can (ColumnSketch)",
    ),
    (
        lambda: HashPrefixes(4, 64).merge(HashPrefixes(5, 65)),
        SketchError,
        "sketches of different m and size cannot be merged: (4, 64) and (5, 65)",
    ),
    (
        lambda: HashPrefixes(4).registers(5),
        SketchError,
        "a sketch cut to 64 bits has no registers of m = 5",
    ),
    (
        lambda: SketchChanges.from_bytes(b""),
        SketchError,
        "A row of sketch_change was damaged, or written by another release of subsetd.",
    ),
    (
        lambda: net_changes([SketchChanges.of(np.array([1]), MOST, ONE)] * 2, 1),
        SketchError,
        "a hash comes to or leaves one attribute more than 2^63 times in the versions netted together",
    ),
    (
        lambda: estimate(X, X, "best"),
        SketchError,
        f"unknown method 'best'; choose one of {', '.join(METHODS)}",
    ),
    (lambda: estimate(X, X, level=1), SketchError, "the level of an interval is between 0 and 1, not 1"),
    (
        lambda: estimate(X, X, "bottom-k"),
        SketchError,
        "bottom-k needs the smallest hashes of both columns, which hash prefixes are not; choose another method",
    ),
    (
        lambda: estimate(X._replace(registers=X.registers[1:]), X),
        SketchError,
        "registers are uint8[2^m], not uint8[63]",
    ),
    (
        lambda: estimate(X, X._replace(registers=np.full(64, 60, np.uint8))),
        SketchError,
        "a register of 2^6 buckets is at most 59, not 60",
    ),
    (lambda: estimate(X, X._replace(size=-1.0)), SketchError, "a column has a number of values, not -1.0"),
    (lambda: stack([]), SketchError, "there are no columns to compare"),
    (
        lambda: bucket_bits_for(0.0001),
        SketchError,
        "no sketch of up to 2^18 buckets keeps coefficients within 0.0001 at 95 %; name a larger error",
    ),
    (
        lambda: Parameters(650, 0, 2),
        ValueError,
        "650 bits, 0 hash functions, 2 passes: each is at least 1",
    ),
    (
        signed_in_part,
        ValueError,
        "signatures find whole inclusions only: choose rarest-first for a threshold below 1",
    ),
    (
        lambda: allowances(np.zeros(0, np.int64), Fraction(1), Fraction(1, 10**6 + 1)),
        ValueError,
        "a threshold of 1 and a coverage of 1/1000001: the one is in (0, 1], the other in [0, 1], and both have at "
        "most six digits",
    ),
    (
        lambda: list(top_referenced(None, [], 0)),  # type: ignore[arg-type]
        ValueError,
        "the 0 best referenced columns: ask for at least 1",
    ),
    (
        lambda: parse_filters("paper, uniqe"),
        SourceError,
        "filters 'uniqe': give none, paper, or some of null-columns, integer-columns, non-unique-referenced, "
        "coverage=0.2, min-values=3, with commas between them.",
    ),
]
SETTINGS = [
    ({"delimiter": ";;"}, "delimiter ';;': give one character, and none that ends a line or is not ASCII."),
    ({"delimiter": '"'}, "delimiter '\"': the quote is the same character."),
    ({"encoding": "utf-9"}, "encoding 'utf-9' is not known: give utf-8, latin-1, cp1252, ..."),
    ({"partitions": 0}, "partitions 0: give at least 1."),
    ({"max_failed": 2}, "max_failed 2: give a share of the tables between 0 and 1."),
    (
        {"threshold": 0},
        "threshold, coverage: a threshold of 0 and a coverage of 0: the one is in (0, 1], the other in [0, 1], and "
        "both have at most six digits.",
    ),
    (
        {"algorithm": "signatures", "top": 3},
        "top: rarest-first alone does so. Leave out the algorithm signatures, or it.",
    ),
    (
        {"algorithm": "signatures", "threshold": 0.5},
        "algorithm signatures finds whole inclusions only: leave out the threshold, or it.",
    ),
    ({"bits": 0}, "bits, hashes, passes, strategy: 0 bits, 6 hash functions, 2 passes: each is at least 1."),
    ({"quote": "\0"}, "quote '\\x00': give a text without NUL."),
    ({"null_tokens": 1}, "null_tokens 1: give a list of texts."),
    ({"header": 1}, "header 1: give true or false."),
    ({"top": 2**31}, "top 2147483648: give a whole number."),
    ({"max_table_bytes": 2**53}, "max_table_bytes 9007199254740992: give a whole number."),
    ({"coverage": True}, "coverage True: give a number such as 0.2, or a fraction such as 1/5."),
    ({"coverage": "1/0"}, "coverage '1/0': give a number such as 0.2, or a fraction such as 1/5."),
    ({"coverage": "0." + "1" * 39}, f"coverage '0.{'1' * 39}': give a number such as 0.2, or a fraction such as 1/5."),
    ({"coverage": []}, "coverage []: give a number such as 0.2, or a fraction such as 1/5."),
    ({"strategy": "x"}, "strategy 'x': give one of dep2refs, ref2deps."),
]
REFUSED += [(lambda given=given: CorpusSettings.from_json(given), SourceError, told) for given, told in SETTINGS]


@pytest.mark.parametrize(("ask", "kind", "told"), REFUSED, ids=[told[:60] for *_, told in REFUSED])
def test_what_is_refused_is_told_in_these_words(ask: Callable[[], Any], kind: type[Exception], told: str) -> None:
    with pytest.raises(kind) as refused:
        ask()
    assert str(refused.value) == told


@pytest.mark.parametrize(
    "given",
    [
        {"max_failed": "0"},
        {"max_failed": "1"},
        {"algorithm": "signatures", "threshold": "1"},
        {"max_table_bytes": 2**53 - 1},
        {"top": 1, "partitions": 1},
        {"coverage": "1/1000000"},
    ],
)
def test_what_is_just_allowed_is_kept(given: dict[str, Any]) -> None:
    assert given.items() <= CorpusSettings.from_json(given).to_json().items()


def test_no_filter_and_others_together_are_the_others() -> None:
    assert parse_filters("none, null-columns") == {"null_columns": True}

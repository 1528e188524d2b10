"""All sketches keep the same laws, held against a count in plain Python and a second reader of their bytes."""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from service.core.errors import SketchError
from service.core.sketches.bottom_k import BottomK
from service.core.sketches.byte_format import Kind, Parameters, seal
from service.core.sketches.column import ColumnSketch
from service.core.sketches.heaps import HllHeaps
from service.core.sketches.hll import Hll
from service.core.sketches.prefixes import HashPrefixes
from tests.sketches import HASHES, PlainReader, array, bucket_and_rho, count_cells, cut_to, maxima, random_hashes

M, K, SPARES, BUDGET = 3, 6, 3, 60
Sketch = Hll | HllHeaps | BottomK | ColumnSketch | HashPrefixes


class Subject(NamedTuple):
    make: Callable[[], Sketch]
    read: Callable[[bytes], Sketch]
    can_remove: bool = True


KINDS = {
    "hll": Subject(lambda: Hll(M), Hll.from_bytes, can_remove=False),
    "heaps": Subject(lambda: HllHeaps(M), HllHeaps.from_bytes),
    "bottom-k": Subject(lambda: BottomK(K, SPARES), BottomK.from_bytes),
    "column of values": Subject(lambda: ColumnSketch(M, K, SPARES), ColumnSketch.from_bytes),
    "column of occurrences": Subject(lambda: ColumnSketch(M, K, SPARES, counts_values=False), ColumnSketch.from_bytes),
    "prefixes": Subject(lambda: HashPrefixes(M, BUDGET), HashPrefixes.from_bytes, can_remove=False),
}
EACH = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
REMOVING = pytest.mark.parametrize(
    "kind",
    [kind for kind in KINDS.values() if kind.can_remove],
    ids=[n for n, kind in KINDS.items() if kind.can_remove],
)

SHORT = settings(max_examples=40)
"""Each law is tried on every kind, so each time it may be shorter."""

SETS = st.lists(HASHES, unique=True, max_size=25)
BAGS = st.lists(HASHES, max_size=25)


def built(kind: Subject, hashes: list[int]) -> Sketch:
    sketch = kind.make()
    sketch.update(array(hashes))
    return sketch


def check(sketch: Sketch, counted: Counter[int]) -> None:
    """Hold a sketch, and what a stranger reads in its bytes, against a count of all hashes that are in it."""
    read = PlainReader(sketch.to_bytes())
    cells = count_cells(counted, M)
    if isinstance(sketch, Hll):
        assert sketch.registers.tolist() == read.registers == maxima(cells, M)
    if isinstance(sketch, HllHeaps):
        check_heaps(sketch, counted)
        assert read.cells == cells
    if isinstance(sketch, HashPrefixes):
        check_prefixes(sketch, counted)
        assert (read.bits, read.entries) == (sketch.bits, [f"{entry:064b}" for entry in sketch.entries])
    if isinstance(sketch, BottomK):
        check_bottom(sketch, counted)
        assert (read.bound, read.held) == (sketch.bound, held_by(sketch))
    if isinstance(sketch, ColumnSketch):
        check_bottom(sketch.bottom, counted)
        check_heaps(sketch.dense(), counted)
        assert sketch.size == counted.total()
        assert sketch.registers().tolist() == maxima(cells, M)
        assert (sketch.heaps is None) == sketch.bottom.is_complete == (sketch.hashes is not None)
        assert read.held == held_by(sketch.bottom)
        assert read.cells == (None if sketch.heaps is None else cells)
        if sketch.hashes is not None:
            assert sketch.hashes.tolist() == sorted(counted)


def check_heaps(heaps: HllHeaps, counted: Counter[int]) -> None:
    cells = count_cells(counted, M)
    places = np.argwhere(heaps.counts).tolist()
    assert {(level + 1, bucket): int(heaps.counts[level, bucket]) for level, bucket in places} == cells
    assert heaps.registers.tolist() == maxima(cells, M)
    assert heaps.size == counted.total()


def check_prefixes(prefixes: HashPrefixes, counted: Counter[int]) -> None:
    bits = prefixes.bits
    wanted: dict[str, str] = {}
    for value in sorted(counted):
        entry = cut_to(value, M, bits)
        wanted.setdefault(entry[:bits], entry)
    assert [f"{entry:064b}" for entry in prefixes.entries] == list(wanted.values())
    m = min(M, bits)
    assert prefixes.registers().tolist() == maxima(count_cells(counted, m), m)
    assert len(prefixes.to_bytes()) <= 52 + BUDGET
    registers, ones, zeros = prefixes.cells()
    assert int(registers.sum()) + ones + zeros == 1 << bits
    assert int(registers[1:].sum()) + ones == len(wanted)


def check_bottom(bottom: BottomK, counted: Counter[int]) -> None:
    assert held_by(bottom) == {h: n for h, n in counted.items() if bottom.bound is None or h < bottom.bound}
    assert bottom.hashes.tolist() == sorted(bottom.hashes.tolist())
    assert len(bottom.hashes) <= K + SPARES
    assert bottom.needs_rescan == (len(bottom.hashes) < K and not bottom.is_complete)


def held_by(bottom: BottomK) -> Counter[int]:
    return Counter(dict(zip(bottom.hashes.tolist(), bottom.counts.tolist(), strict=True)))


@EACH
@SHORT
@given(parts=st.lists(BAGS, max_size=4))
def test_it_counts_what_it_was_fed(kind: Subject, parts: list[list[int]]) -> None:
    sketch, counted = kind.make(), Counter[int]()
    for part in parts:
        sketch.update(array(part))
        counted.update(part)
        check(sketch, counted)


@EACH
@SHORT
@given(data=st.data(), hashes=BAGS)
def test_equal_bytes_for_equal_sets_in_any_order_and_any_batches(
    kind: Subject, data: st.DataObject, hashes: list[int]
) -> None:
    shuffled = data.draw(st.permutations(hashes))
    cut = data.draw(st.integers(0, len(hashes)))
    sketch = built(kind, shuffled[:cut])
    sketch.update(array(shuffled[cut:]))
    assert sketch.to_bytes() == built(kind, hashes).to_bytes()


def test_equal_bytes_in_another_process() -> None:
    script = (
        "from tests.unit.test_sketch_conformance import KINDS, built; from tests.sketches import random_hashes\n"
        "for kind in KINDS.values(): print(built(kind, random_hashes(200, 1)[::-1].tolist()).to_bytes().hex())"
    )
    command = [sys.executable, "-c", script]
    other = subprocess.run(command, env={"PYTHONHASHSEED": "4711"}, capture_output=True, text=True, check=True)
    ours = [built(kind, random_hashes(200, 1).tolist()).to_bytes().hex() for kind in KINDS.values()]
    assert other.stdout.split() == ours


@EACH
@SHORT
@given(hashes=BAGS)
def test_what_is_written_is_read(kind: Subject, hashes: list[int]) -> None:
    sketch = built(kind, hashes)
    again = kind.read(sketch.to_bytes())
    check(again, Counter(hashes))
    assert again.to_bytes() == sketch.to_bytes()
    assert again.estimate() == sketch.estimate()


@EACH
@SHORT
@given(x=BAGS, y=BAGS)
def test_merging_is_taking_in_both(kind: Subject, x: list[int], y: list[int]) -> None:
    one, other = built(kind, x), built(kind, y)
    before = one.to_bytes(), other.to_bytes()
    merged = one.merge(other)  # type: ignore[arg-type]
    check(merged, Counter(x + y))
    assert merged.to_bytes() == other.merge(one).to_bytes()  # type: ignore[arg-type]
    if kind is not KINDS["column of values"]:
        assert merged.to_bytes() == built(kind, x + y).to_bytes()
    assert (one.to_bytes(), other.to_bytes()) == before, "neither is changed"
    merged.update(array(x))
    assert (one.to_bytes(), other.to_bytes()) == before, "nor when the merged one is"


@EACH
@SHORT
@given(x=BAGS, y=BAGS, z=BAGS)
def test_merging_associates(kind: Subject, x: list[int], y: list[int], z: list[int]) -> None:
    a, b, c = built(kind, x), built(kind, y), built(kind, z)
    assert a.merge(b).merge(c).to_bytes() == a.merge(b.merge(c)).to_bytes()  # type: ignore[arg-type]


@given(x=SETS, y=SETS)
def test_disjoint_parts_of_a_column_merge_into_the_column(x: list[int], y: list[int]) -> None:
    kind = KINDS["column of values"]
    y = [value for value in y if value not in x]
    merged = built(kind, x).merge(built(kind, y), are_disjoint=True)  # type: ignore[arg-type, call-arg]
    assert merged.to_bytes() == built(kind, x + y).to_bytes()
    assert merged.estimate() == len(x + y)


def test_columns_that_may_share_values_merge_into_a_count_of_occurrences() -> None:
    x, y = random_hashes(3000, seed=1)[:2000], random_hashes(3000, seed=1)[1000:]
    one, other = ColumnSketch(10, 96, 32), ColumnSketch(10, 96, 32)
    one.update(x)
    other.update(y)
    merged = one.merge(other)
    assert merged.size == 4000
    low, high = merged.bounds()
    assert low < 3000 < high
    assert low < merged.estimate() < high
    assert not one.merge(ColumnSketch(10, 96, 32, counts_values=False), are_disjoint=True).counts_values


@REMOVING
@SHORT
@given(hashes=BAGS, more=BAGS)
def test_removing_undoes_updating(kind: Subject, hashes: list[int], more: list[int]) -> None:
    sketch = built(kind, hashes)
    sketch.update(array(more))
    sketch.remove(array(more))  # type: ignore[union-attr]
    check(sketch, Counter(hashes))
    if not isinstance(sketch, HllHeaps):
        assert sketch.agrees_with(built(kind, hashes))  # type: ignore[union-attr, arg-type]
    if isinstance(sketch, HllHeaps) or len(set(hashes + more)) <= K + SPARES:
        assert sketch.to_bytes() == built(kind, hashes).to_bytes()


@REMOVING
@SHORT
@given(
    history=st.lists(st.dictionaries(HASHES | st.integers(0, 9), st.integers(-3, 3), max_size=12), max_size=8),
    data=st.data(),
)
def test_after_every_netted_batch_it_is_as_if_built_anew(
    kind: Subject, history: list[dict[int, int]], data: st.DataObject
) -> None:
    sketch, counted = kind.make(), Counter[int]()
    for batch in history:
        possible = {h: n for h, n in batch.items() if counted[h] + n >= 0}
        order = data.draw(st.permutations(sorted(possible)))
        sketch.apply(array(order), np.array([possible[h] for h in order], np.int64))  # type: ignore[union-attr]
        counted.update(possible)
        check(sketch, +counted)
        check(kind.read(sketch.to_bytes()), +counted)


@REMOVING
@SHORT
@given(hashes=SETS, data=st.data())
def test_removing_what_is_not_there_is_refused_and_changes_nothing(
    kind: Subject, hashes: list[int], data: st.DataObject
) -> None:
    # Below every bound, and alone in its bucket and ρ: removing it is noticed by every kind.
    stranger = 1
    bucket, rho = bucket_and_rho(stranger, M)
    present = [h for h in hashes if h != stranger]
    assume(not count_cells(Counter(present), M)[rho, bucket])
    sketch = built(kind, present)
    before = sketch.to_bytes()
    batch = data.draw(st.permutations([*present[: len(present) // 2], stranger]))
    with pytest.raises(SketchError, match="0000000000000001 is removed more often than it was inserted"):
        sketch.remove(array(batch))  # type: ignore[union-attr]
    assert sketch.to_bytes() == before
    with pytest.raises(SketchError, match="0000000000000001 is removed more often"):
        sketch.apply(array([*batch, 7]), np.array([-1] * len(batch) + [2]))  # type: ignore[union-attr]
    assert sketch.to_bytes() == before


@pytest.mark.parametrize("sketch", [Hll(M), HashPrefixes(M, BUDGET)], ids=["hll", "prefixes"])
def test_a_sketch_that_cannot_remove_says_which_one_can(sketch: Hll | HashPrefixes) -> None:
    with pytest.raises(SketchError, match="heaps"):
        sketch.remove(array([1]))


@REMOVING
@pytest.mark.parametrize("weights", [[1, 0], [1, -1], [1]], ids=["zero", "negative", "too few"])
def test_weights_that_are_none_are_refused(kind: Subject, weights: list[int]) -> None:
    sketch = built(kind, [5, 6])
    before = sketch.to_bytes()
    for verb in (sketch.update, sketch.remove):
        with pytest.raises(SketchError, match="weight"):
            verb(array([5, 6]), np.array(weights))  # type: ignore[call-arg]
        assert sketch.to_bytes() == before


@REMOVING
def test_counts_at_their_limit_widen_and_never_wrap(kind: Subject) -> None:
    sketch, counted, value = kind.make(), Counter[int](), array([3])
    for weight in (2**32 - 1, 1, 2**63 - 1 - 2**32):
        sketch.update(value, np.array([weight]))  # type: ignore[call-arg]
        counted[3] += weight
        check(sketch, counted)
    assert kind.read(sketch.to_bytes()).to_bytes() == sketch.to_bytes()
    sketch.update(array([9]))
    before = sketch.to_bytes()
    if isinstance(sketch, HllHeaps):
        sketch.update(value, np.array([2**63 - 1]))
        before = sketch.to_bytes()
    with pytest.raises(SketchError, match="limit"):
        sketch.update(array([9, 3]), np.array([1, 2**63 - 1]))  # type: ignore[call-arg]
    assert sketch.to_bytes() == before
    with pytest.raises(SketchError, match="limit"):
        sketch.merge(sketch)  # type: ignore[arg-type]
    assert sketch.to_bytes() == before


@EACH
def test_an_empty_sketch(kind: Subject) -> None:
    sketch = kind.make()
    check(sketch, Counter())
    assert sketch.estimate() == 0
    assert sketch.bounds()[0] == 0
    assert sketch.merge(kind.make()).estimate() == 0  # type: ignore[arg-type]
    sketch.update(array([]))
    assert sketch.to_bytes() == kind.make().to_bytes()


LARGE = {
    "hll": lambda: Hll(8),
    "heaps": lambda: HllHeaps(8),
    "bottom-k": lambda: BottomK(96, 32),
    "column of values": lambda: ColumnSketch(8, 96, 32),
    "column of occurrences": lambda: ColumnSketch(8, 96, 32, counts_values=False),
    "prefixes": lambda: HashPrefixes(8, 192),
}


@pytest.mark.parametrize("make", LARGE.values(), ids=LARGE.keys())
@pytest.mark.parametrize("size", [1, 100, 1000, 30_000])
def test_bounds_bracket_the_truth(make: Callable[[], Sketch], size: int) -> None:
    covered, trials = 0, 60
    for seed in range(trials):
        sketch = make()
        sketch.update(random_hashes(size, seed))
        low, high = sketch.bounds(0.95)
        assert low <= sketch.estimate() <= high
        covered += low <= size <= high
    # Fewer than 52 of 60 at 95 % have a probability of 0.4 %.
    assert covered >= 52
    wide = sketch.bounds(0.999)
    assert wide[0] <= low <= high <= wide[1]


@EACH
def test_every_flipped_byte_and_every_other_length_is_refused(kind: Subject) -> None:
    data = built(kind, random_hashes(40, seed=2).tolist()).to_bytes()
    for place in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            corrupt = bytearray(data)
            corrupt[place] ^= flip
            with pytest.raises(SketchError):
                kind.read(bytes(corrupt))
    for size in range(len(data)):
        with pytest.raises(SketchError):
            kind.read(data[:size])
    with pytest.raises(SketchError, match="length"):
        kind.read(data + b"\0")


def forged(data: bytes, place: int, what: bytes) -> bytes:
    """Change bytes, and make the checksum fit again."""
    body = data[:place] + what + data[place + len(what) : -4]
    return body + zlib.crc32(body).to_bytes(4, "little")


@EACH
@pytest.mark.parametrize(
    ("place", "what", "message"),
    [
        (0, b"PNG!", "no sketch"),
        (4, b"\2", "format version 2; version 1 is read here"),
        (5, b"\7", "unknown kind"),
        (6, b"\x13", "m from 0 to 18, not m = 19"),
        (8, b"murmur3-128", "hash function 'murmur3-128', not 'sha256-64'"),
        (24, b"\x2a", "hash seed 42, not 0"),
        (40, b"\0", "length"),
    ],
    ids=["magic", "version", "kind", "m", "hash", "seed", "length"],
)
def test_sketches_that_were_made_otherwise_are_refused_by_name(
    kind: Subject, place: int, what: bytes, message: str
) -> None:
    data = built(kind, random_hashes(40, seed=2).tolist()).to_bytes()
    with pytest.raises(SketchError, match=message):
        kind.read(forged(data, place, what))


def test_one_kind_is_not_read_as_another() -> None:
    for kind in KINDS.values():
        for other in KINDS.values():
            if other.read is not kind.read:
                with pytest.raises(SketchError, match="wanted is"):
                    other.read(kind.make().to_bytes())


SMALLEST_3 = bytes(8) + b"\3\0\0\0" + b"".join(value.to_bytes(8, "little") for value in (3, 5, 9)) + b"\0"


def rice(width: int, unary: bytes = b"", low: bytes = b"") -> bytes:
    return bytes([width]) + len(unary).to_bytes(4, "little") + unary + low


def prefixes(bits: int, count: int, gaps: bytes, rhos: bytes = b"") -> bytes:
    return bytes([bits]) + count.to_bytes(4, "little") + gaps + rhos


IMPOSSIBLE = [
    (Hll.from_bytes, Kind.HLL, (1,), b"\0\7\0\x21", "a register is above 64"),
    (Hll.from_bytes, Kind.HLL, (1,), b"\2", "unknown form 2"),
    (Hll.from_bytes, Kind.HLL, (1,), b"\0\x41", "numbers of 65 bits"),
    (Hll.from_bytes, Kind.HLL, (1,), b"\0\2", "ends too early"),
    (Hll.from_bytes, Kind.HLL, (1,), b"\0\2\x05\0", "longer than what it says"),
    (Hll.from_bytes, Kind.HLL, (1,), b"\1\3\0\0\0", "more buckets than there are"),
    (Hll.from_bytes, Kind.HLL, (1,), b"\1\2\0\0\0\1\0", "buckets of a plane do not ascend"),
    (HllHeaps.from_bytes, Kind.HEAPS, (1,), b"\x41", "65 levels"),
    (HllHeaps.from_bytes, Kind.HEAPS, (0,), b"\1\1\1\0\0\0\x40" + b"\xff" * 8, "beyond 64 bits"),
    (BottomK.from_bytes, Kind.BOTTOM_K, (0, 2, 0), SMALLEST_3, "3 hashes of at most 2"),
    (BottomK.from_bytes, Kind.BOTTOM_K, (0, 0, 9), SMALLEST_3, "k from 1"),
    (BottomK.from_bytes, Kind.BOTTOM_K, (0, 9, 0), SMALLEST_3.replace(b"\5", b"\3"), "hashes do not ascend"),
    (BottomK.from_bytes, Kind.BOTTOM_K, (0, 9, 0), b"\x09" + SMALLEST_3[1:], "beyond the bound"),
    (BottomK.from_bytes, Kind.BOTTOM_K, (0, 9, 0), SMALLEST_3[:-1] + b"\x40" + b"\xff" * 24, "beyond 63 bits"),
    (ColumnSketch.from_bytes, Kind.COLUMN, (0, 9, 0, 2), SMALLEST_3 + b"\0", "heaps exactly when"),
    (ColumnSketch.from_bytes, Kind.COLUMN, (0, 9, 0, 0), b"\x0a" + SMALLEST_3[1:], "heaps exactly when"),
    (ColumnSketch.from_bytes, Kind.COLUMN, (0, 9, 0, 2), b"\x0a" + SMALLEST_3[1:] + b"\0", "do not count what"),
    (HashPrefixes.from_bytes, Kind.PREFIXES, (3, 60), b"\x41" + bytes(14), "cut to 65 bits"),
    (HashPrefixes.from_bytes, Kind.PREFIXES, (3, 31), bytes(15), "from 32 to"),
    (HashPrefixes.from_bytes, Kind.PREFIXES, (3, 60), prefixes(3, 1, rice(64)), "64 lower bits"),
    (HashPrefixes.from_bytes, Kind.PREFIXES, (3, 60), prefixes(3, 2, rice(0, b"\1")), "1 numbers, not 2"),
    (HashPrefixes.from_bytes, Kind.PREFIXES, (3, 60), prefixes(3, 1, rice(0, b"\1\0")), "behind the last number"),
    (HashPrefixes.from_bytes, Kind.PREFIXES, (3, 60), prefixes(64, 1, rice(63, b"\4")), "more than 64 bits"),
    (HashPrefixes.from_bytes, Kind.PREFIXES, (3, 60), prefixes(3, 1, rice(0, b"\0\1")), "beyond the last cell"),
    (HashPrefixes.from_bytes, Kind.PREFIXES, (0, 60), prefixes(64, 2, rice(63, b"\6", b"\xff" * 16)), "last cell"),
    (
        HashPrefixes.from_bytes,
        Kind.PREFIXES,
        (3, 60),
        prefixes(3, 1, rice(0, b"\1"), rice(6, b"\1", b"\x3e")),
        "a rho is",
    ),
    (
        HashPrefixes.from_bytes,
        Kind.PREFIXES,
        (0, 60),
        prefixes(64, 9, rice(60, b"\xff\1", bytes(68)), rice(0)),
        "not 1",
    ),
]


@pytest.mark.parametrize(
    ("read", "kind", "parameters", "payload", "message"), IMPOSSIBLE, ids=[message for *_, message in IMPOSSIBLE]
)
def test_contents_that_cannot_be_are_refused(
    read: Callable[[bytes], Sketch], kind: Kind, parameters: tuple[int, ...], payload: bytes, message: str
) -> None:
    with pytest.raises(SketchError, match=message):
        read(seal(kind, Parameters(*parameters), [payload]))


@EACH
@SHORT
@given(data=st.data())
def test_bytes_forged_with_a_fitting_checksum_are_read_or_refused(kind: Subject, data: st.DataObject) -> None:
    whole = built(kind, data.draw(BAGS)).to_bytes()
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(whole) - 5))
        whole = forged(whole, place, data.draw(st.binary(min_size=1, max_size=1)))
    try:
        sketch = kind.read(whole)
    except SketchError:
        return
    assert kind.read(sketch.to_bytes()).to_bytes() == sketch.to_bytes()
    low, high = sketch.bounds()
    assert 0 <= low <= high


@EACH
def test_sketches_of_other_sizes_are_not_merged(kind: Subject) -> None:
    others = {Hll: Hll(4), HllHeaps: HllHeaps(4), BottomK: BottomK(7, 3), ColumnSketch: ColumnSketch(4, K, SPARES)}
    others[HashPrefixes] = HashPrefixes(M, BUDGET + 1)
    with pytest.raises(SketchError, match="cannot be merged"):
        kind.make().merge(others[type(kind.make())])  # type: ignore[arg-type]


@pytest.mark.parametrize("m", [-1, 19])
def test_m_out_of_range_is_refused(m: int) -> None:
    for make in (Hll, HllHeaps, ColumnSketch, HashPrefixes):
        with pytest.raises(SketchError, match="m from 0 to 18"):
            make(m)
    for k, spares in ((0, 3), (3, -1), (1 << 24, 1)):
        with pytest.raises(SketchError, match="k from 1 and spares from 0"):
            BottomK(k, spares)
    for budget in (31, (1 << 24) + 1):
        with pytest.raises(SketchError, match="from 32 to 16777216 bytes"):
            HashPrefixes(3, budget)

"""Pieces of sketches, by hand and against Python's own numbers: bits, planes, cells by attribute, registers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from service.core.errors import SketchError
from service.core.sketches import bottom_k, rice
from service.core.sketches.bottom_k import BottomK
from service.core.sketches.building import build_columns, group_cells
from service.core.sketches.byte_format import Kind, Parameters, Reader, pack, pack_bits, seal, write_plane
from service.core.sketches.column import ColumnSketch
from service.core.sketches.comparable import read_comparable
from service.core.sketches.hashing import bucket_of, check_bucket_bits, most_rho, rho_of
from service.core.sketches.heaps import HllHeaps
from service.core.sketches.hll import Hll, dropped_bits, require_same
from service.core.sketches.prefixes import HashPrefixes, cut


def numbers(*given: int) -> np.ndarray:
    return np.array(given, np.uint64)


@pytest.mark.parametrize("width", [0, 1, 3, 8, 13, 63, 64])
def test_numbers_are_packed_lowest_bit_first(width: int) -> None:
    given = [number % (1 << width) for number in (0, 2**64 - 1, 0x9E3779B97F4A7C15, 5, 2**63)]
    whole = sum(number << (place * width) for place, number in enumerate(given))
    data = pack_bits(numbers(*given), width).tobytes()
    assert data == whole.to_bytes((5 * width + 7) // 8, "little")
    reader = Reader(data)
    assert reader.bits(5, width).tolist() == given
    reader.end()
    least = max(given).bit_length()
    assert pack(numbers(*given))[0] == least
    assert Reader(pack(numbers(*given))).packed(5).tolist() == given
    assert pack(numbers()) == b"\0"


@pytest.mark.parametrize(
    ("plane", "data"),
    [
        ([0, 0, 0, 0], b"\0\0"),
        ([1, 2, 3, 0], bytes([0, 2, 0b00_11_10_01])),
        ([0] * 60 + [0, 0, 1, 0], bytes([1, 1, 0, 0, 0, 62, 0])),
        ([3] * 4 + [0] * 28, bytes([0, 2, 255, *[0] * 7])),  # as short as a list
        ([9] + [0] * 61 + [0, 2], bytes([1, 2, 0, 0, 0, 0b11_000000, 0b1111, 4, 0b0001_1000])),
    ],
)
def test_a_plane_is_packed_or_lists_what_is_above_0(plane: list[int], data: bytes) -> None:
    m = len(plane).bit_length() - 1
    assert write_plane(numbers(*plane), m) == data
    reader = Reader(data)
    assert reader.plane(m).tolist() == plane
    reader.end()


def test_a_reader_takes_what_there_is_and_no_more() -> None:
    reader = Reader(b"\1\2\3" + (7).to_bytes(8, "little") + (9).to_bytes(8, "little"))
    assert (reader.take(1), reader.number(2)) == (b"\1", 0x0302)
    assert reader.hashes(2).tolist() == [7, 9]
    reader.end()
    with pytest.raises(SketchError, match="it ends too early"):
        reader.take(1)
    with pytest.raises(SketchError, match="numbers of 65 bits"):
        Reader(bytes(9)).bits(1, 65)
    with pytest.raises(SketchError, match="do not ascend"):
        Reader(bytes(16)).hashes(2)


@pytest.mark.parametrize(
    ("given", "width", "data"),
    [
        ([], 0, b"\0\0\0\0\0"),
        ([0, 0, 2], 0, bytes([0, 1, 0, 0, 0, 0b10011])),
        ([5, 6, 4], 2, bytes([2, 1, 0, 0, 0, 0b101010, 0b00_10_01])),
        ([2**64 - 1], 63, bytes([63, 1, 0, 0, 0, 0b10, *[255] * 7, 127])),
    ],
)
def test_rices_code_by_hand(given: list[int], width: int, data: bytes) -> None:
    found = rice.write(numbers(*given))
    assert (found[0], found) == (width, data)
    reader = Reader(data)
    assert rice.read(reader, len(given)).tolist() == given
    reader.end()
    bits = sum((number >> width) + 1 + width for number in given)
    assert rice.bits_of(numbers(*given)) == bits
    for other in range(64):
        assert bits <= sum((number >> other) + 1 + other for number in given)


@pytest.mark.parametrize("m", [-1, 19])
def test_a_number_of_buckets_that_cannot_be_is_named(m: int) -> None:
    with pytest.raises(SketchError, match=f"^a sketch has 2\\^m buckets with m from 0 to 18, not m = {m}$"):
        check_bucket_bits(m)
    assert (check_bucket_bits(0), check_bucket_bits(18)) == (0, 18)


def test_bucket_and_rho_of_hashes_by_hand() -> None:
    value = np.uint64(0b1010_0001 << 56)
    assert [int(bucket_of(value, m)) for m in (0, 1, 3, 8)] == [0, 1, 5, 0b1010_0001]
    assert [rho_of(value, m) for m in (0, 1, 3, 7, 8)] == [1, 2, 5, 1, 57]
    assert [most_rho(m) for m in (0, 8)] == [65, 57]


def test_a_fold_drops_bits_and_never_adds_any() -> None:
    assert [dropped_bits(8, m) for m in (8, 5, 0)] == [0, 3, 8]
    with pytest.raises(SketchError, match=r"^a sketch of m = 8 folds to a smaller m only, not to 9$"):
        dropped_bits(8, 9)
    require_same("k", 3, 3)
    with pytest.raises(SketchError, match=r"^sketches of different k cannot be merged: 3 and 4$"):
        require_same("k", 3, 4)
    few = Hll(2, np.array([0, 3, 0, 1], np.uint8))
    assert few.fold(1).registers.tolist() == [1, 1]
    assert Hll(2, np.array([5, 0, 0, 0], np.uint8)).fold(0).registers.tolist() == [7]
    assert few.merge(Hll(2, np.array([2, 2, 0, 4], np.uint8))).registers.tolist() == [2, 3, 0, 4]


@pytest.mark.parametrize("weights", [None, [3, 1, 4, 1, 5]])
def test_cells_are_grouped_by_attribute_in_the_records_order(weights: list[int] | None) -> None:
    """Records 7 of attributes 1 and 4, 5 of none, 6 of 4, 1 and 2."""
    given = None if weights is None else np.array(weights)
    high = 2**63  # floats would lose what is behind it
    cells = numbers(high + 7, 5, high + 6), np.array([0, 2, 2, 5]), np.array([1, 4, 4, 1, 2]), given
    found = group_cells(*cells)
    assert found.attribute_ids.tolist() == [1, 2, 4]
    assert found.starts.tolist() == [0, 2, 3, 5]
    assert [number - high for number in found.hashes.tolist()] == [7, 6, 6, 7, 6]
    assert found.weights is None or found.weights.dtype == np.int64
    assert (None if found.weights is None else found.weights.tolist()) == (weights and [3, 1, 5, 1, 4])
    built = build_columns(ColumnSketch(3, 5, 2, counts_values=False), *cells)
    assert built.keys() == {1, 2, 4}
    for sketch in built.values():
        assert (sketch.m, sketch.bottom.k, sketch.bottom.spares, sketch.counts_values) == (3, 5, 2, False)
    held = {a: [number - high for number in sketch.bottom.hashes.tolist()] for a, sketch in built.items()}
    assert held == {1: [6, 7], 2: [6], 4: [6, 7]}
    assert {a: sketch.size for a, sketch in built.items()} == ({1: 4, 2: 5, 4: 5} if weights else {1: 2, 2: 1, 4: 2})


def test_the_sketch_of_a_column_is_read_whichever_kind_it_is() -> None:
    for sketch in (ColumnSketch(4, 8, 4), HashPrefixes(4, 64)):
        sketch.update(np.random.default_rng(3).integers(0, 2**64, 40, np.uint64))
        read = read_comparable(sketch.to_bytes())
        assert type(read) is type(sketch)
        assert read.to_bytes() == sketch.to_bytes()
    part = Hll(4)
    with pytest.raises(SketchError, match=r"^the sketch is HLL, a part of one: columns are compared by COLUMN or PREF"):
        read_comparable(part.to_bytes())
    for data in (b"", b"SDSK\1", b"SDSK\1\4"):
        with pytest.raises(SketchError, match="cut off" if data else "do not begin with SDSK"):
            read_comparable(data)


def test_bytes_that_are_as_short_as_a_header_and_a_checksum_are_told_from_a_part_of_a_header() -> None:
    whole = Hll(3).to_bytes()
    with pytest.raises(SketchError, match=f"has a length of 52 bytes, its header says {len(whole)}: copy it whole$"):
        Hll.from_bytes(whole[:52])
    with pytest.raises(SketchError, match=r"is cut off: 51 bytes are less than a header; copy it whole$"):
        Hll.from_bytes(whole[:51])


def test_a_sketch_of_the_smallest_hashes_takes_portions_each_with_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bottom_k, "PORTION", 2)
    assert BottomK(3, 1).hashes.dtype == np.uint64
    for weights, counts in ((None, [1, 1, 1, 1]), ([4, 5, 6, 7, 8], [8, 7, 6, 5])):
        sketch = BottomK(3, 1)
        sketch.update(numbers(9, 8, 7, 6, 5), None if weights is None else np.array(weights))
        assert (sketch.hashes.tolist(), sketch.counts.tolist(), sketch.bound) == ([5, 6, 7, 8], counts, 9)


def test_what_is_removed_more_often_than_63_bits_tell_was_never_there() -> None:
    sketch = BottomK(3, 1)
    sketch.update(numbers(5, 6), np.array([5, 2]))
    sketch.remove(numbers(5), np.array([3]))
    assert sketch.counts.tolist() == [2, 2]
    most = 2**63 - 1
    for differences in ([-most, -most], [-3, 0], [0, -3]):
        with pytest.raises(SketchError, match=r"^hash 0000000000000005 is removed more often than it was inserted"):
            sketch.apply(numbers(5, 5), np.array(differences))
        assert (sketch.hashes.tolist(), sketch.counts.tolist()) == ([5, 6], [2, 2])
    sketch.apply(numbers(5, 5), np.array([-4, 3]))
    assert sketch.counts.tolist() == [1, 2]


@pytest.mark.parametrize("held", [5, 40])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_the_number_below_the_bound_has_garwoods_interval(held: int, level: float) -> None:
    sketch = BottomK(held, 0)
    sketch.update(np.arange(held + 1, dtype=np.uint64) * np.uint64(1 << 50))
    share = held * 2.0**-14
    low, high = stats.gamma.ppf((1 - level) / 2, held) / share, stats.gamma.ppf((1 + level) / 2, held + 1) / share
    found = sketch.bounds(level)
    assert found == (pytest.approx(low, rel=0.01), pytest.approx(high, rel=0.004))
    assert bottom_k._gamma_quantile(1, 0) == pytest.approx((8 / 9) ** 3)


def test_two_hashes_are_taken_in_and_out_each_with_its_weight() -> None:
    sketch = HllHeaps(1)
    high = numbers(2**63, 2**62)
    sketch.update(high, np.array([3, 4]))
    sketch.remove(high, np.array([1, 4]))
    assert (sketch.size, sketch.counts.sum(), sketch.counts[63, 1]) == (2, 2, 2)


def test_counts_of_more_than_64_bits_together_do_not_fold() -> None:
    counts = np.zeros((2, 4), np.uint64)
    counts[0, 2:] = 2**63 - 1
    assert HllHeaps(2, counts).fold(0).counts.max() == 2**64 - 2
    counts[0, 2:] = 2**63
    with pytest.raises(SketchError, match=r"^counts of more than 64 bits together do not fold$"):
        HllHeaps(2, counts).fold(0)


def test_a_column_without_heaps_holds_all_its_hashes_and_prefixes_fit_their_size() -> None:
    column = ColumnSketch(2, 3, 1)
    column.update(numbers(4, 5))
    for flags, payload in (
        (2, column.bottom.payload() + HllHeaps(2).payload()),
        (1, b"\7" + column.bottom.payload()[1:]),
    ):
        with pytest.raises(SketchError, match=r"was made: it has heaps exactly when it has no bound$"):
            ColumnSketch.from_bytes(seal(Kind.COLUMN, Parameters(2, 3, 1, flags), [payload]))
    prefixes = HashPrefixes(2, 400)
    prefixes.update(np.arange(40, dtype=np.uint64) << np.uint64(58))
    assert prefixes.bits == 64
    assert len(prefixes.cells().registers) == 2
    prefixes.budget = 32
    with pytest.raises(SketchError, match=r"was made: it has more than its 32 bytes$"):
        HashPrefixes.from_bytes(prefixes.to_bytes())


def test_of_a_hash_that_is_cut_the_leading_one_behind_is_kept() -> None:
    for bit in range(56):
        for other in range(bit):
            assert cut(numbers(1 << bit | 1 << other), 4, 8).tolist() == [1 << bit]

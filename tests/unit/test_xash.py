"""XASH against the paper in plain Python, its figure, and its law: a row that joins is never filtered out."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.xash import ALPHABET, Xash, character_counts, ones_for, rarest_first, super_keys

TEXTS = st.lists(st.none() | st.text(max_size=30) | st.text(ALPHABET + "ABZéßİK\0", max_size=40), max_size=12)
PARAMETERS = st.builds(
    Xash,
    bits=st.sampled_from([64, 128, 192, 256, 512]),
    ones=st.integers(1, 9),
    rarest=st.permutations(ALPHABET).map("".join),
)


def bit_texts(hashes) -> list[str]:
    """Write hashes as the paper does, the leftmost bit first."""
    return ["".join(f"{word:064b}" for word in one) for one in hashes.tolist()]


def by_the_paper(text: str, xash: Xash) -> str:
    """Hash one value with strings and fractions: sections 5.3.1 to 5.3.5, one after the other."""
    lowered = "".join(c.lower() if c.isascii() else c for c in text)
    beta = max(b for b in range(xash.bits) if 37 * b < xash.bits)
    length, characters = ["0"] * (xash.bits - 37 * beta), ["0"] * (37 * beta)
    if text:
        length[len(lowered) % len(length)] = "1"
    chosen = [c for c in xash.rarest if c in lowered][: xash.ones - 1]
    for character in chosen:
        places = [place for place, c in enumerate(lowered, 1) if c == character]
        x = ceil(Fraction(sum(places), len(places)) * beta / len(lowered))
        characters[ALPHABET.index(character) * beta + x - 1] = "1"
    rotation = len(lowered) % len(characters)
    return "".join(length + characters[rotation:] + characters[:rotation])


@given(TEXTS, PARAMETERS)
def test_hashes_are_those_of_the_paper(texts, xash) -> None:
    expected = [by_the_paper(text or "", xash) for text in texts]
    assert bit_texts(xash.hashes(pa.array(texts, pa.string()))) == expected


@given(TEXTS, PARAMETERS)
def test_a_slice_hashes_as_its_texts(texts, xash) -> None:
    array = pa.array(["other", *texts, None], pa.large_string())
    assert (xash.hashes(array[1:]) == xash.hashes(pa.array([*texts, None], pa.string()))).all()


def test_figure_3_moves_u_from_bit_108_to_bit_100() -> None:
    """Of `muhammad` the characters u, d and one more are chosen; all rotate by 8, and the length has bit 8."""
    (one,) = bit_texts(Xash(ones=4).hashes(pa.array(["muhammad"])))
    bits = {place for place, bit in enumerate(one, 1) if bit == "1"}
    u, d, m, length = 100, 18 + 3 * ALPHABET.index("d") + 2 - 8, 18 + 3 * ALPHABET.index("m") + 1 - 8, 9
    assert bits == {u, d, m, length}


def test_example_3_leaves_one_of_three_rows() -> None:
    """Section 6.3: 8 bits each; of the first a digit is lost in print, which the printed super keys tell."""
    names = ["muhammad", "lee", "us", "ali", "germany", "dancer", "boxer", "birder"]
    bits = ["11001000", "01100000", "00010100", "00010001", "10001001", "10000010", "10000001", "00001001"]
    hashes = np.array([[int(of, 2)] for of in bits], np.uint64)
    rows = ["muhammad lee us dancer", "muhammad ali us boxer", "muhammad lee germany birder", "muhammad lee us"]
    cells = np.array([names.index(name) for row in rows for name in row.split()], np.int64)
    *of_rows, key = super_keys(hashes, cells, np.array([0, 4, 8, 12, 15]))[:, 0].tolist()
    assert [f"{one:08b}" for one in (*of_rows, key)] == ["11111110", "11011101", "11101001", "11111100"]
    assert [not key & ~row for row in of_rows] == [True, False, False]


@given(st.lists(st.lists(st.none() | st.text(max_size=8), min_size=1, max_size=6), max_size=6), PARAMETERS, st.data())
def test_a_row_that_has_the_key_is_never_filtered_out(rows, xash, data) -> None:
    texts = [cell for row in rows for cell in row]
    hashes = xash.hashes(pa.array(texts, pa.string()))
    cells = np.array([-1 if text is None else place for place, text in enumerate(texts)], np.int64)
    starts = np.cumsum([0, *map(len, rows)])
    for row, of_row in zip(rows, super_keys(hashes, cells, starts), strict=True):
        key = data.draw(st.lists(st.sampled_from(row), min_size=1, max_size=4))
        asked = np.bitwise_or.reduce(xash.hashes(pa.array(key, pa.string())), axis=0)
        assert not (asked & ~of_row).any()


def test_a_cell_of_a_megabyte_is_hashed_as_any_other() -> None:
    text = "zé7 " * (1 << 18)
    for xash in (Xash(), Xash(512, 9)):
        assert bit_texts(xash.hashes(pa.array([text]))) == [by_the_paper(text, xash)]


def test_values_without_a_character_of_the_alphabet_have_their_length_alone() -> None:
    hashes = Xash().hashes(pa.array(["—", "日本語", "...", "", None]))
    assert np.bitwise_count(hashes).sum(1).tolist() == [1, 1, 1, 0, 0]


def test_case_of_ascii_makes_no_difference() -> None:
    lower, upper = Xash().hashes(pa.array(["new york 10", "New YORK 10"]))
    assert (lower == upper).all()


@pytest.mark.parametrize(("values", "bits", "ones"), [(700_000_000, 128, 6), (100, 128, 1), (128, 128, 2), (1, 64, 1)])
def test_the_number_of_ones_is_the_least_that_tells_all_values_apart(values: int, bits: int, ones: int) -> None:
    assert ones_for(values, bits) == ones


def test_too_many_values_for_the_bits() -> None:
    with pytest.raises(ValueError, match="64 bits cannot"):
        ones_for(10**30, 64)


@given(st.lists(st.text(ALPHABET + "XYZ-é", max_size=9), max_size=9))
def test_rarity_is_measured_by_counting(texts) -> None:
    joined = "".join(texts).lower()
    counts = [joined.count(character) for character in ALPHABET]
    assert character_counts(pa.array(texts, pa.string())).tolist() == counts
    order = rarest_first(counts)
    assert sorted(order, key=lambda c: (counts[ALPHABET.index(c)], ALPHABET.index(c))) == list(order)
    assert Xash(rarest=order).rarest == order


@pytest.mark.parametrize("wrong", [{"bits": 100}, {"bits": 0}, {"ones": 0}, {"rarest": "abc"}, {"rarest": "a" * 37}])
def test_parameters_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"bits|place"):
        Xash(**wrong)


@pytest.mark.parametrize("bits", [64, 128, 256, 512])
def test_each_character_at_each_place_has_the_bit_of_the_paper(bits: int) -> None:
    texts = ["-" * before + character + "-" * (7 - before) for character in ALPHABET for before in range(8)]
    xash = Xash(bits, 3)
    assert bit_texts(xash.hashes(pa.array(texts))) == [by_the_paper(text, xash) for text in texts]


def test_a_segment_has_as_many_bits_as_leave_one_for_the_length() -> None:
    assert [(of.positions, of.lengths) for of in map(Xash, (64, 128, 1664, 2368))] == [
        (1, 27),
        (3, 17),
        (44, 36),
        (63, 37),
    ]

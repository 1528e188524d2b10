"""Near texts: what is equal once case, spaces, or the zeros that close a number are not looked at."""

from __future__ import annotations

import unicodedata
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.canonical_forms import decimal_text
from service.core.near_matches import Near, folded

TEXTS = st.lists(
    st.text(st.sampled_from("aAbB éÉßΣσς\t\n\u00a0\u2003İıK"), max_size=8) | st.text(max_size=8), max_size=6
)


def fold(texts: list[str], *near: Near) -> list[str]:
    found: list[str] = folded(pa.array(texts, pa.large_string()), near).to_pylist()
    return found


@pytest.mark.parametrize(
    ("text", "near", "told"),
    [
        (" New  York\t", (Near.CASE,), " new  york\t"),
        (" New  York\t", (Near.SPACES,), "New York"),
        (" New \u00a0\u2003 York\u0085", (Near.CASE, Near.SPACES), "new york"),
        (" New York", (), " New York"),
        (" \t\u3000", (Near.SPACES,), ""),
        (" X-ray MAX ", (Near.SPACES,), "X-ray MAX"),
        ("STRASSE Straße", (Near.CASE,), "strasse straße"),
        ("ÉΣ\u212a", (Near.CASE,), "éσk"),
        ("1.50", (Near.CASE, Near.SPACES), "1.50"),
        (" 1.50 ", (Near.SPACES, Near.NUMBERS), "1.5"),
        (" 1.50", (Near.NUMBERS,), " 1.50"),
        ("-0.00", (Near.NUMBERS,), "0"),
        ("1.50\n", (Near.NUMBERS,), "1.50\n"),
        ("007.0", (Near.NUMBERS,), "007.0"),
        ("1.2.0", (Near.NUMBERS,), "1.2.0"),
        ("100", (Near.NUMBERS,), "100"),
    ],
)
def test_case_and_spaces_are_not_looked_at_where_that_is_said(text: str, near: tuple[Near, ...], told: str) -> None:
    assert fold([text], *near) == [told]


@given(TEXTS, st.sets(st.sampled_from(Near)))
def test_folding_twice_is_folding_once(texts: list[str], near: set[Near]) -> None:
    once = fold(texts, *near)
    assert fold(once, *near) == once


@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=4)))
def test_decimals_get_their_canonical_texts(numbers: list[Decimal]) -> None:
    assert fold([f"{number:f}" for number in numbers], Near.NUMBERS) == [decimal_text(number) for number in numbers]


@given(TEXTS)
def test_spaces_are_those_of_python(texts: list[str]) -> None:
    """All that Python splits at but for the separators of files, groups, records and units, which are no spaces."""
    for text, told in zip(texts, fold(texts, Near.SPACES), strict=True):
        if not any("\x1c" <= character <= "\x1f" or character == "\x0b" for character in text):
            assert told == " ".join(text.split())


@given(st.lists(st.text(st.characters(max_codepoint=0x24F)), max_size=6))
def test_what_differs_in_case_alone_is_near(texts: list[str]) -> None:
    for text, told in zip(texts, fold(texts, Near.CASE), strict=True):
        for character, lower in zip(text, told, strict=True):
            if unicodedata.category(character) == "Lu" and len(character.lower()) == 1:
                assert lower == character.lower()

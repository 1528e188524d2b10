"""Own the proof that hashes of texts and tuples are those of plain Python, and tell apart what differs."""

from __future__ import annotations

from functools import reduce
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.text_hashes import mixed, text_hashes

ALL = 2**64 - 1
TEXTS = st.text(max_size=40)


def step(found: int, value: int) -> int:
    """Take one value in as `mixed` does, in whole numbers without bounds."""
    found = (found ^ value) * 0x9E3779B97F4A7C15 & ALL
    found = (found ^ found >> 30) * 0xBF58476D1CE4E5B9 & ALL
    return found ^ found >> 27


def hashed(text: str) -> int:
    data = text.encode()
    words = (int.from_bytes(data[place : place + 8], "little") for place in range(0, len(data), 8))
    return reduce(step, words, step(0, len(data)))


@given(st.lists(st.none() | TEXTS), st.integers(0, 3), st.sampled_from([pa.string(), pa.large_string()]))
def test_hashes_are_those_of_plain_python(texts: list[str | None], first: int, kind: pa.DataType) -> None:
    """Of slices too, and beside nulls."""
    found = text_hashes(pa.array(texts, kind)[first:])
    assert found.dtype == np.uint64
    assert {text: one for text, one in zip(texts[first:], found.tolist(), strict=True) if text is not None} == {
        text: hashed(text) for text in texts[first:] if text is not None
    }


@pytest.mark.parametrize("texts", [[*map(str, range(200_000))], ["".join(of) for of in product("ab\0", repeat=10)]])
def test_texts_that_differ_have_hashes_that_differ(texts: list[str]) -> None:
    """Numbers that count, and texts that differ in their ends and bytes of 0."""
    texts = [*texts, *(text[:-1] for text in texts[-50:])]
    assert len(np.unique(text_hashes(pa.array(texts)))) == len(set(texts))


def test_the_high_bits_are_spread_evenly() -> None:
    """Shares of tuples are ranges of their hashes."""
    found = text_hashes(pa.array([str(number) for number in range(64_000)]))
    counts = np.bincount((mixed(np.uint64(0), found) >> np.uint64(58)).astype(np.int64), minlength=64)
    # 1,000 in each: six standard deviations are 190.
    assert abs(counts - 1000).max() < 190

"""Buckets of postings give back what was put in, and nothing for values that they do not have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.join_layout import EMPTY_CELL
from service.core.posting_buckets import MOST_BITS, bits_for, encode_buckets, find_in_buckets, value_numbers
from service.core.records import Keys, starts_of

KEYS = st.binary(min_size=16, max_size=16) | st.integers(0, 300).map(lambda n: bytes(7) + n.to_bytes(9, "big"))
PLACES = st.sets(st.integers(0, 200) | st.integers(0, 2**62), min_size=1, max_size=9).map(sorted)


@given(st.dictionaries(KEYS, PLACES, max_size=20), st.lists(KEYS, max_size=5), st.sampled_from([1, 4, 9, 32]))
def test_values_are_found_with_their_places(held, others, bits) -> None:
    keys = Keys.of(sorted(held))
    places = [held[key] for key in sorted(held)]
    flat = np.array([place for of_value in places for place in of_value], np.int64)
    coded = encode_buckets(keys, starts_of(list(map(len, places))), flat, bits)
    assert coded.numbers.tolist() == sorted({int.from_bytes(key, "big") >> 128 - bits for key in held})
    asked = Keys.of(sorted({*held, *others}))
    looked_up = find_in_buckets(coded, asked, bits)
    found = {
        asked.key(i): looked_up.places(np.array([i])).tolist() for i in range(len(asked.high)) if looked_up.counts[i]
    }
    chosen = np.flatnonzero(looked_up.counts)[::-1]
    assert looked_up.places(chosen).tolist() == [place for i in chosen for place in found[asked.key(i)]]
    assert looked_up.counts[chosen].tolist() == [len(found[asked.key(i)]) for i in chosen]
    assert dict(zip(sorted({*held, *others}), looked_up.numbers.tolist(), strict=True)) == {
        **dict.fromkeys(others, -1),
        **dict(zip(sorted(held), value_numbers(keys, bits).tolist(), strict=True)),
    }
    assert found == held


@pytest.mark.parametrize(("values", "bits"), [(0, 1), (64, 1), (128, 1), (129, 2), (256, 2), (257, 3), (1 << 30, 24)])
def test_buckets_are_meant_for_64_values(values: int, bits: int) -> None:
    assert bits_for(values) == bits


def test_what_cannot_be_numbered_is_refused() -> None:
    with pytest.raises(ValueError, match="can be numbered"):
        bits_for((1 << 30) + 1)
    with pytest.raises(ValueError, match="256 values in a bucket of 255"):
        value_numbers(Keys(np.zeros(256, np.uint64), np.arange(256, dtype=np.uint64)), 1)


def test_no_value_has_the_number_of_an_empty_cell() -> None:
    last = Keys(np.full(255, 2**64 - 1, np.uint64), np.arange(255, dtype=np.uint64))
    assert value_numbers(last, MOST_BITS).max() == EMPTY_CELL - 1


@pytest.mark.parametrize(
    ("places", "bytes_"), [([0], 1), ([127], 1), ([128], 2), ([128, 129], 3), ([2**62], 9), ([2**14 - 1, 2**14], 3)]
)
def test_a_bucket_has_two_bytes_and_sixteen_a_value_beside_its_places(places: list[int], bytes_: int) -> None:
    coded = encode_buckets(Keys.of([b"k" * 16]), np.array([0, len(places)]), np.array(places), 8)
    assert len(coded.data) == 1 + 16 + 1 + bytes_
    assert coded.data[1:17].tobytes() == b"k" * 16

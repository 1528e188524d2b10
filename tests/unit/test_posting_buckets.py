"""Buckets of postings give back what was put in, and nothing for values that they do not have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.posting_buckets import bucket_numbers, encode_buckets, find_in_bucket
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
    numbers = bucket_numbers(asked, bits)
    found = {}
    for number, start, end in zip(coded.numbers, coded.starts, coded.starts[1:], strict=False):
        of_bucket = asked.take(numbers == number)
        starts, of_values = find_in_bucket(coded.data[start:end].tobytes(), of_bucket)
        for i in range(len(of_bucket.high)):
            if starts[i] < starts[i + 1]:
                found[of_bucket.key(i)] = of_values[starts[i] : starts[i + 1]].tolist()
    assert found == held


@pytest.mark.parametrize(
    ("places", "bytes_"), [([0], 1), ([127], 1), ([128], 2), ([128, 129], 3), ([2**62], 9), ([2**14 - 1, 2**14], 3)]
)
def test_a_bucket_has_two_bytes_and_sixteen_a_value_beside_its_places(places: list[int], bytes_: int) -> None:
    coded = encode_buckets(Keys.of([b"k" * 16]), np.array([0, len(places)]), np.array(places), 8)
    assert len(coded.data) == 1 + 16 + 1 + bytes_
    assert coded.data[1:17].tobytes() == b"k" * 16

"""The distinct of whole numbers: as NumPy's, of every kind and shape that is asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as arrays

from service.core.records import distinct_of


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint64])
def test_the_distinct_of_none_are_none_of_the_same_kind(kind: type[np.integer]) -> None:
    found = distinct_of(np.zeros((0, 2), kind))
    assert found.dtype == kind
    assert found.shape == (0,)


KINDS = arrays.integer_dtypes(endianness="=", sizes=(32, 64)) | arrays.unsigned_integer_dtypes(endianness="=", sizes=64)


@given(arrays.arrays(KINDS, arrays.array_shapes(max_dims=2, min_side=0, max_side=20)))
def test_the_distinct_are_those_of_numpy_and_what_was_given_is_left_as_it_was(values: np.ndarray) -> None:
    before = values.copy()
    found = distinct_of(values)
    np.testing.assert_array_equal(found, np.unique(values), strict=True)
    np.testing.assert_array_equal(values, before)

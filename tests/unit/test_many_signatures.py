"""MANY's signatures: hash functions that differ, no inclusion lost, rows and columns where the paper has them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.canonical import value_key, value_keys
from service.core.column_sets import group_columns
from service.core.corpus_choices import Parameters
from service.core.signatures import positions, signature_matrix
from tests.many import COLUMNS, sets_of

PARAMETERS = st.builds(Parameters, bits=st.integers(1, 90), hashes=st.integers(1, 7), passes=st.integers(1, 3))


@pytest.mark.parametrize("bits", [50, 64, 650])
def test_hash_functions_differ_for_any_number_of_them(bits: int) -> None:
    """75 functions are the paper's most; the published code repeats its own after four."""
    found = positions(value_keys([f"value {n}" for n in range(2_000)]), bits, 75)
    assert found.min() == 0
    assert found.max() == bits - 1
    for number in range(75):
        same = (found[:, number : number + 1] == found[:, number + 1 :]).mean(0)
        assert (same < 5 / bits).all(), f"function {number} agrees with another more often than chance"


def position(key: bytes, number: int, bits: int) -> int:
    """Compute in whole numbers what the kernel does in words: splitmix64's finaliser of high + number · odd low."""
    high, low = int.from_bytes(key[:8], "big"), int.from_bytes(key[8:], "big") | 1
    mixed = (high + number * low) % 2**64
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
    return ((mixed ^ mixed >> 31) >> 32) * bits >> 32


def test_positions_are_uniform_and_follow_from_the_key_alone() -> None:
    texts = [f"value {n}" for n in range(5_000)]
    found = positions(value_keys(texts), 64, 12)
    counts = np.bincount(found.ravel(), minlength=64)
    expected = found.size / 64
    assert ((counts - expected) ** 2 / expected).sum() < 120, "chi-squared, 63 degrees of freedom: 1 in 10,000 above"
    assert found[:50].tolist() == [[position(value_key(text), n, 64) for n in range(12)] for text in texts[:50]]


@given(columns=COLUMNS, parameters=PARAMETERS)
def test_a_row_is_a_bit_of_a_pass_and_has_a_column_for_each_group(columns, parameters) -> None:
    sets = sets_of(columns)
    everyone = np.ones(len(columns), bool)
    groups = group_columns(sets, everyone, everyone)
    matrix = signature_matrix(groups, sets.keys, parameters)
    expected = np.zeros((parameters.passes * parameters.bits, len(groups)), bool)
    bits = positions(sets.keys, parameters.bits, parameters.hashes * parameters.passes)
    for group in range(len(groups)):
        for rank in groups.values[groups.starts[group] : groups.starts[group + 1]]:
            for number, bit in enumerate(bits[groups.value_ids[rank]].tolist()):
                expected[number // parameters.hashes * parameters.bits + bit, group] = True
    unpacked = np.unpackbits(matrix.astype("<u8").view(np.uint8), axis=1, bitorder="little", count=len(groups))
    assert (unpacked.astype(bool) == expected).all()
    assert matrix.shape == (len(expected), (len(groups) + 63) // 64)


@given(columns=COLUMNS, parameters=PARAMETERS)
def test_signatures_keep_every_inclusion(columns, parameters) -> None:
    sets = sets_of(columns)
    everyone = np.ones(len(columns), bool)
    groups = group_columns(sets, everyone, everyone)
    matrix = signature_matrix(groups, sets.keys, parameters)
    signature = np.unpackbits(matrix.astype("<u8").view(np.uint8), axis=1, bitorder="little", count=len(groups))
    values = [
        set(groups.values[low:high].tolist()) for low, high in zip(groups.starts, groups.starts[1:], strict=False)
    ]
    for a, left in enumerate(values):
        for b, right in enumerate(values):
            assert not left <= right or (signature[:, a] <= signature[:, b]).all()


@pytest.mark.parametrize("wrong", [{"bits": 0}, {"hashes": 0}, {"passes": -1}])
def test_parameters_are_at_least_one(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Parameters(**wrong)

"""Signatures of a corpus small enough to be followed: whose bits are set, who is a candidate, what is found."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from service.core import signatures
from service.core.column_sets import group_columns
from service.core.corpus_choices import Parameters, Strategy
from service.core.group_inds import as_columns
from service.core.signatures import find_inds, positions, sign, signature_matrix
from tests.many import brute_force, listed, sets_of

FEW = [Parameters(16, 2, 2), Parameters(70, 3, 1), Parameters(1, 1, 1)]


def corpus(seed: int, count: int) -> list[frozenset[int]]:
    """Draw columns of up to seven of twelve values, and chains that include each other."""
    random = np.random.default_rng(seed)
    columns = [frozenset(random.choice(12, random.integers(1, 8), replace=False).tolist()) for _ in range(count)]
    return columns + [frozenset(range(size)) for size in range(1, 13)]


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("parameters", FEW, ids=str)
@pytest.mark.parametrize("short_list", [0, 8])
def test_signatures_of_any_size_find_what_comparing_all_columns_finds(
    monkeypatch: pytest.MonkeyPatch, strategy: Strategy, parameters: Parameters, short_list: int
) -> None:
    """More than a word of 64 groups; a signature of one bit lets everything through and loses nothing."""
    monkeypatch.setattr(signatures, "SHORT_LIST", short_list)
    monkeypatch.setattr(signatures, "BLOCK", 1)
    columns = corpus(2, 90)
    sides = np.random.default_rng(3).random((2, len(columns))) < 0.8
    sets = sets_of(columns)
    groups = group_columns(sets, *sides)
    assert len(groups) > 64
    made = Parameters(parameters.bits, parameters.hashes, parameters.passes, strategy)
    whole = np.zeros((len(columns), made.words), np.uint64)
    sign(whole, np.repeat(np.arange(len(columns), dtype=np.int32), sets.sizes), sets.keys.take(sets.values), made)
    expected = sorted(brute_force(columns, *sides.tolist()))
    for signed in (None, whole.__getitem__):
        blocks = list(find_inds(groups, sets.keys, made, signed=signed))
        assert listed(as_columns(groups, blocks)) == expected
        assert all(len(block.dependent) <= len(groups) + 1 for block in blocks)


@pytest.mark.parametrize("parameters", FEW, ids=str)
def test_a_groups_bits_are_those_of_its_values_and_no_others(parameters: Parameters) -> None:
    columns = corpus(5, 70)
    sets = sets_of(columns)
    every = np.ones(len(columns), np.bool_)
    groups = group_columns(sets, every, every)
    places = positions(sets.keys, parameters.bits, parameters.hashes * parameters.passes)
    assert ((places >= 0) & (places < parameters.bits)).all()
    matrix = signature_matrix(groups, sets.keys, parameters)
    assert matrix.shape == (parameters.passes * parameters.bits, (len(groups) + 63) // 64)
    for group in range(len(groups)):
        ids = groups.value_ids[groups.values[groups.starts[group] : groups.starts[group + 1]]]
        numbers = product(ids, enumerate(np.arange(places.shape[1]) // parameters.hashes))
        expected = {int(of_pass * parameters.bits + places[value, number]) for value, (number, of_pass) in numbers}
        bits = matrix[:, group // 64] >> np.uint64(group % 64) & np.uint64(1)
        assert set(np.flatnonzero(bits).tolist()) == expected
    last = np.uint64(2 ** (len(groups) % 64 or 64) - 1)
    assert not (matrix[:, -1] & ~last).any(), "no bit is of a group that there is not"


@pytest.mark.parametrize("count", [1, 63, 64, 65, 128])
def test_a_matrix_has_as_many_words_as_its_groups_fill(count: int) -> None:
    columns = [frozenset(range(size)) for size in range(1, count + 1)]
    sets = sets_of(columns)
    every = np.ones(count, np.bool_)
    groups = group_columns(sets, every, every)
    words = -(-count // 64)
    assert signature_matrix(groups, sets.keys, Parameters(8, 1, 2)).shape == (16, words)
    assert signatures.matrix_bytes(groups, Parameters(8, 1, 2)) == 16 * words * 8


@pytest.mark.parametrize("columns", [corpus(7, 200), [frozenset(range(size)) for size in range(1, 136)]], ids=len)
@pytest.mark.parametrize("strategy", list(Strategy))
def test_between_groups_each_ind_is_found_once_and_only_where_columns_may_have_it(
    columns: list[frozenset[int]], strategy: Strategy
) -> None:
    """Of three words of groups; those without dependent or without referenced columns are asked for in vain."""
    sides = np.random.default_rng(9).random((2, len(columns))) < 0.6
    sides[0] |= ~sides[1]
    sides[:, 128] = True
    sets = sets_of(columns)
    groups = group_columns(sets, *sides)
    assert len(groups) > 129
    values = [set(groups.values[a:b].tolist()) for a, b in zip(groups.starts[:-1], groups.starts[1:], strict=True)]
    can_depend, can_refer = np.diff(groups.dependent_starts) > 0, np.diff(groups.referenced_starts) > 0
    expected = [
        (a, b, len(values[a]))
        for a, b in product(range(len(groups)), repeat=2)
        if (groups.reflexive[a] if a == b else can_depend[a] and can_refer[b] and values[a] <= values[b])
    ]
    assert listed(list(find_inds(groups, sets.keys, Parameters(16, 2, 2, strategy)))) == expected

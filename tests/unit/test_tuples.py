"""A tuple's text is the JSON of its parts, and its key is nobody else's: no cell's, and no other tuple's."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.canonical import value_key
from service.core.errors import RecordError
from service.core.tuples import tuple_keys, tuple_name, tuple_parts, tuple_texts

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
tuples = st.lists(st.lists(texts, min_size=1, max_size=6), min_size=1, max_size=8)


@given(tuples)
def test_the_text_is_compact_json(rows: list[list[str]]) -> None:
    assert tuple_texts(rows) == [json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows]
    assert [json.loads(text) for text in tuple_texts(rows)] == rows


@given(tuples)
def test_the_key_is_that_of_a_nul_and_the_text(rows: list[list[str]]) -> None:
    found = tuple_texts(rows)
    keys = tuple_keys(found)
    expected = [hashlib.sha256(b"\0" + text.encode()).digest()[:16] for text in found]
    assert [keys.key(place) for place in range(len(found))] == expected
    assert not set(expected) & {value_key(text) for text in found}


def test_texts_and_keys_of_two_tuples() -> None:
    rows, found = [["a", 'say "x"', ""], ["\u00e9\n"]], ['["a","say \\"x\\"",""]', '["\u00e9\\n"]']
    assert tuple_texts(rows) == found
    assert tuple_parts(found) == rows
    keys = tuple_keys(found)
    for place, text in enumerate(found):
        assert keys.key(place) == hashlib.sha256(b"\0" + text.encode()).digest()[:16]


def test_a_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(RecordError, match="surrogate"):
        tuple_keys(tuple_texts([["a", "\ud800"]]))


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        (["a", "b"], "(a, b)"),
        (["b", "a", "C d"], "(b, a, C d)"),
        (["a,b", "c"], '("a,b", c)'),
        (["a", "b)"], '(a, "b)")'),
        (["(a", "X"], '("(a", X)'),
        (['say "x"', "b"], '("say ""x""", b)'),
    ],
)
def test_a_tuple_is_named_by_its_columns_so_that_no_other_has_its_name(columns: list[str], name: str) -> None:
    assert tuple_name(columns) == name


def test_of_no_tuples_there_are_no_keys() -> None:
    assert len(tuple_keys([]).high) == 0

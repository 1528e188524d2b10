"""How much is kept of values: what is said of it, and texts that are cut to it, one by one and as whole arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import RecordError, SourceError
from service.core.model import Attribute, AttributeName, BadRecord, RawRecord, Table
from service.core.shown_values import (
    WHOLE,
    ShownValues,
    ShownValuesError,
    most_shown,
    parse_mask,
    parse_shown,
    row_text,
    shown_of_tuple,
    told_shown,
)
from service.store.generation import NewName
from service.usecases.withheld import Withholding
from spark_jobs.kernels import concat_entries, count_column, cut_texts, merge_entries
from spark_jobs.shown_values import choose_shown, require_no_images
from spark_jobs.sources import Options, SourceTable

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8), max_size=20)


@pytest.mark.parametrize("said", ["full", "none", "prefix:1", "prefix:64"])
def test_what_is_said_is_told_as_it_was_said(said: str) -> None:
    assert told_shown(parse_shown(said)) == said


@pytest.mark.parametrize("said", ["", "all", "prefix:", "prefix:0", "prefix:65", "prefix:-1", "none:3", "full:"])
def test_what_cannot_be_meant_is_refused(said: str) -> None:
    with pytest.raises(ShownValuesError, match="does not say what to keep"):
        parse_shown(said)


def test_tuples_hold_their_parts() -> None:
    assert shown_of_tuple([None, None]) is None
    assert shown_of_tuple([None, 4]) == 0


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"table": "s.t", "key": {"id": "7", "line": "a'b"}}, """s.t id '7', line "a'b\""""),
        ({"table": "s.t", "key": None, "cells": {"a": "x", "b": None}}, "s.t a 'x'"),
        ({"table": "s.t", "key": {}}, "s.t"),
    ],
)
def test_a_row_is_named_by_its_key_or_else_by_its_first_cells(row: dict[str, Any], told: str) -> None:
    assert row_text(row) == told


def test_the_most_open_attribute_says_how_much_of_a_value_is_kept() -> None:
    shown = [0, 2, None]
    attributes = [Attribute(i, AttributeName("s", "t", str(i)), i, shown_characters=n) for i, n in enumerate(shown)]
    known = ShownValues.of(attributes, 4)
    assert known.characters.dtype == np.int64
    assert known.characters.tolist() == [0, 2, WHOLE, WHOLE]
    assert [known.text(i, "abc") for i in range(4)] == [None, "ab", "abc", "abc"]
    starts, joined = np.array([0, 1, 3, 3, 5]), np.array([0, 0, 1, 1, 2])
    assert most_shown(known.characters, starts, joined).tolist() == [0, 2, 0, WHOLE]
    assert most_shown(known.characters, np.array([0, 0]), joined[:0]).tolist() == [0]
    assert known.cut(["abc"] * 4, starts, joined) == ["", "ab", "", "abc"]


@given(TEXTS, st.data())
def test_texts_are_cut_to_what_the_most_open_attribute_allows(texts: list[str], data: st.DataObject) -> None:
    shown = data.draw(st.lists(st.sampled_from([0, 1, 3, None]), min_size=1, max_size=5))
    attributes = [Attribute(i, AttributeName("s", "t", str(i)), i, shown_characters=n) for i, n in enumerate(shown)]
    ids = st.lists(st.integers(0, len(shown) - 1), max_size=3, unique=True)
    sets = [data.draw(ids) for _ in texts]
    starts = np.concatenate([[0], np.cumsum([len(of) for of in sets], dtype=np.int64)])
    joined = np.array([i for of in sets for i in of], np.int64)
    expected = [
        "" if not of else text if any(shown[i] is None for i in of) else text[: max(shown[i] or 0 for i in of)]
        for text, of in zip(texts, sets, strict=True)
    ]
    known = ShownValues.of(attributes, len(attributes))
    assert known.cut(texts, starts, joined) == expected
    assert known.are_whole == all(n is None for n in shown)
    most = most_shown(known.characters, starts, joined)
    assert cut_texts(pa.array(texts, pa.large_string()), most).to_pylist() == expected


@given(st.lists(st.tuples(st.text("ab\u00e9\u20ac", max_size=5), st.integers(0, 2), st.integers(0, 4)), max_size=30))
def test_of_beginnings_of_one_value_the_longest_stays(cells: list[tuple[str, int, int]]) -> None:
    parts = []
    for text, attribute, kept in cells:
        entries = count_column(pa.chunked_array([[text]], pa.string()), attribute)
        parts.append(
            entries.__class__(entries.high, entries.low, entries.attribute, entries.count, pa.array([text[:kept]]))
        )
    merged = merge_entries(parts, longest=True)
    longest: dict[str, int] = {}
    for text, _, kept in cells:
        longest[text] = max(longest.get(text, 0), kept)
    assert sorted(merged.value.to_pylist()) == sorted(text[:kept] for text, kept in longest.items())
    plain = merge_entries([concat_entries(parts)])
    assert np.array_equal(plain.frequencies, merged.frequencies)
    assert np.array_equal(plain.low, merged.low)


def names(*columns: str) -> list[NewName]:
    return [NewName(AttributeName("s", "t", column)) for column in columns]


def test_what_was_said_of_a_column_stays_until_it_is_said_anew() -> None:
    told = {"s.t.a": None, "s.t.b": 0, "s.t.gone": 2}
    wanted = [*names("a", "b", "new"), NewName(AttributeName("s", "t", "(a, b)"), (0, 1))]
    assert choose_shown(wanted, None, told, Options("-", "s")) == [None, 0, None, 0]
    assert choose_shown(wanted, None, told, Options("-", "s", store_values="prefix")) == [4, 0, 4, 0]
    masks = (("s.t.b", "full"),)
    assert choose_shown(wanted, None, told, Options("-", "s", masks=masks)) == [None, None, None, None]
    assert choose_shown(wanted, "none", {"s.t.a": 0, "s.t.b": None}, Options("-", "s", store_values="none")) == [
        0,
        None,
        0,
        0,
    ]


def test_a_mask_of_no_column_and_one_of_a_table_whose_rows_are_kept_are_refused() -> None:
    with pytest.raises(SourceError, match="no such column"):
        choose_shown(names("a"), None, {}, Options("-", "s", masks=(("s.t.b", "none"),)))
    with pytest.raises(SourceError, match="does not say what to keep"):
        choose_shown(names("a"), None, {}, Options("-", "s", store_values="some"))
    table = SourceTable("s", "t", (("a", "string"),), row_images=True)
    require_no_images([table], names("a"), [None])
    with pytest.raises(SourceError, match="--row-images never"):
        require_no_images([table], names("a"), [0])


def table(name: str, shown: int | None) -> Table:
    return Table("s", name, (Attribute(1, AttributeName("s", name, "a"), 0, shown_characters=shown),))


def test_of_a_record_whose_table_is_not_known_to_be_open_the_place_is_kept_alone() -> None:
    def record(of: str) -> RawRecord:
        source = f'{{"source": {{"schema": "s", "table": "{of}"}}, "after": {{"a": "secret"}}}}'
        return RawRecord("t", 0, 7, b"secret", source.encode(), 5, [("h", b"secret")])

    bad = [BadRecord(record(of), RecordError("secret")) for of in ("open", "shut", "other")]
    assert Withholding([table("open", None)]).letters(bad) is bad
    kept = Withholding([table("open", None), table("shut", 0)]).letters(bad)
    assert kept[0] == bad[0]
    for one in kept[1:]:
        assert one.record == RawRecord("t", 0, 7, None, None, 5, ())
        assert "secret" not in str(one.error)
        assert str(one.error).startswith("topic t, partition 0, offset 7: ")
    for header in (b"R", b"R....s\0\xff\0", b"Q....s\0open\0", None):
        bad = [BadRecord(RawRecord("t", 0, 7, None, b"I", 5, [("relation", header)]), RecordError("secret"))]
        assert Withholding([table("open", None), table("shut", 0)]).letters(bad)[0].record.value is None
    told = Withholding([table("shut", 4)]).letters([BadRecord(record("shut"), RecordError("is secret", "is wrong"))])
    assert str(told[0].error) == "topic t, partition 0, offset 7: is wrong"
    left = Attribute(2, AttributeName("s", "open", "left"), 1, shown_characters=0)
    assert Withholding([table("open", None)], [left]).letters([BadRecord(record("open"), RecordError("x"))]) != bad[:1]
    assert WHOLE > 10**9


@pytest.mark.parametrize(
    ("text", "column", "what"),
    [
        ("s.people.name", "s.people.name", "none"),
        ("s.people.name=prefix:3", "s.people.name", "prefix:3"),
        ("s.people.a=b=full", "s.people.a=b", "full"),
        ("s.people.name=", "s.people.name", ""),
    ],
)
def test_what_is_kept_of_a_column_stands_behind_the_last_equals_sign(text: str, column: str, what: str) -> None:
    assert parse_mask(text) == (column, what)

"""Records from before a change of columns are read as their table was then, and their rows as it is now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from service.core.cell_decoding import WireSettings
from service.core.errors import RecordError
from service.core.model import Attribute, AttributeName, FeedPosition, Row, Since, Table
from service.stream.row_images import TableDecoder

ATTRIBUTES = tuple(
    Attribute(place, AttributeName("s", "t", column), place, "string")
    for place, column in enumerate(("id", "new", "name"))
)
TABLE = Table(
    "s",
    "t",
    ATTRIBUTES,
    key=(0,),
    since={
        "new": Since(100, "topic", 0, is_new=True),
        "name": Since(200, "topic", 0, was=("first", "second")),
        "id": Since(50, "topic", 0, was=("no",)),
    },
)
HERE, ELSEWHERE = FeedPosition("topic", 0, 5), FeedPosition("topic", 1, 5)


@pytest.mark.parametrize(
    ("position", "ts_ms", "late"),
    [
        (HERE, 250, set()),
        (HERE, 200, set()),
        (ELSEWHERE, 200, {"name"}),
        (HERE, 199, {"name"}),
        (HERE, 99, {"name", "new"}),
        (HERE, 49, {"name", "new", "id"}),
        (HERE, 0, set()),
    ],
)
def test_a_record_is_read_as_the_table_was_at_its_time(position: FeedPosition, ts_ms: int, late: set[str]) -> None:
    settings = WireSettings(decimal_handling="string")
    decoder = TableDecoder(TABLE, settings)
    found = decoder.at(position, {"ts_ms": ts_ms})
    assert found.late == late
    assert found.settings is settings
    assert found is decoder.at(position, {"ts_ms": ts_ms})
    assert (found is decoder) == (not late)


def test_a_record_without_a_time_is_one_of_now() -> None:
    decoder = TableDecoder(TABLE)
    assert decoder.at(HERE, {}) is decoder


def test_that_whole_rows_are_sent_is_known_of_late_ones_too_and_stays_so() -> None:
    decoder = TableDecoder(TABLE)
    late = decoder.at(HERE, {"ts_ms": 99})
    assert late.may_send_keys_alone
    decoder.refuse_key_alone({"id": "1", "new": None, "name": "x"}, "u", frozenset({"id"}))
    assert not decoder.at(HERE, {"ts_ms": 99}).may_send_keys_alone
    other = TableDecoder(TABLE)
    other.at(HERE, {"ts_ms": 99}).refuse_key_alone({"id": "1", "new": "x", "name": None}, "u", frozenset({"id"}))
    assert not other.at(HERE, {"ts_ms": 99}).may_send_keys_alone


@pytest.mark.parametrize(
    ("image", "now"),
    [
        ({"id": "1", "first": "a"}, {"id": "1", "new": None, "name": "a"}),
        ({"id": "1", "second": "a"}, {"id": "1", "new": None, "name": "a"}),
        ({"id": "1", "second": "a", "first": "b"}, {"id": "1", "new": None, "name": "a", "first": "b"}),
        ({"id": "1", "name": "a", "new": "n"}, {"id": "1", "new": "n", "name": "a"}),
        ({"no": "1", "first": "a"}, {"id": "1", "new": None, "name": "a"}),
        ({"id": "1"}, {"id": "1", "new": None}),
    ],
)
def test_an_image_of_before_has_the_columns_of_now(image: dict[str, Any], now: dict[str, Any]) -> None:
    decoder = TableDecoder(TABLE).at(HERE, {"ts_ms": 1})
    kept = dict(image)
    assert decoder.as_now(image) == now
    assert image == kept
    assert decoder.as_now(None) is None
    assert decoder.key(image, decoder.decoders, "key") == ("1",)


def test_a_column_that_was_another_before_it_was_one_of_its_own_is_not_null_there() -> None:
    table = replace(TABLE, since={"name": Since(200, "topic", 0, is_new=True, was=("old",))})
    decoder = TableDecoder(table).at(HERE, {"ts_ms": 1})
    assert decoder.as_now({"id": "1", "new": "n"}) == {"id": "1", "new": "n", "name": None}
    assert decoder.as_now({"id": "1", "new": "n", "old": "o"}) == {"id": "1", "new": "n", "name": "o"}


def image(cells: tuple[Any, Any]) -> Mapping[str, Any]:
    return dict(zip(("id", "new"), cells, strict=True))


@pytest.mark.parametrize(
    ("types", "cells", "like", "row"),
    [
        (("int64", "string"), (7, "x"), None, ("7", "x")),
        (("int64", "string"), (7, None), ((7, "y"), ("7", "y")), ("7", None)),
        (("int64", "string"), (8, "y"), ((7, "y"), ("7", "y")), ("8", "y")),
        (("string", "string"), ("7", None), None, ("7", None)),
        (("string", "string"), ("8", "x"), (("7", "x"), ("7", "of the other row")), ("8", "x")),
    ],
)
def test_a_row_is_its_own_whatever_stands_beside_it(
    types: tuple[str, str], cells: tuple[Any, Any], like: tuple[tuple[Any, Any], Row] | None, row: Row
) -> None:
    attributes = tuple(replace(ATTRIBUTES[i], data_type=kind) for i, kind in enumerate(types))
    decoder = TableDecoder(Table("s", "t", attributes))
    other = like and (image(like[0]), like[1])
    assert decoder.row(image(cells), decoder.decoders, "after", careful=False, like=other) == row


def test_a_boolean_is_no_number_though_python_says_that_it_equals_the_one_beside_it() -> None:
    attributes = (replace(ATTRIBUTES[0], data_type="int64"), ATTRIBUTES[1])
    decoder = TableDecoder(Table("s", "t", attributes))
    with pytest.raises(RecordError, match="is no int64"):
        decoder.row(image((True, "y")), decoder.decoders, "after", careful=False, like=(image((1, "y")), ("1", "y")))

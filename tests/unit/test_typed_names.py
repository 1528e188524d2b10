"""Columns are found by the name they are printed under, whatever they are called; else by what there is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, groupby
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.core.errors import NotFoundError
from service.core.foreign_keys.sides import ForeignKeyError, Side
from service.core.model import AttributeName
from service.core.tuples import tuple_name
from service.core.typed_names import read_columns, read_list, written
from service.usecases.answers import AttributeFilter, AttributeInfo, AttributeRef
from service.usecases.foreign_key_names import side_named
from service.usecases.key_values import TupleInfo
from service.usecases.queries import AmbiguousNameError

NAMES = st.text("ab.,()\" \t\n'=:顧é", max_size=4) | st.text(st.characters(min_codepoint=1, codec="utf-8"), max_size=6)
COLUMNS = st.lists(NAMES, min_size=1, max_size=4, unique=True).map(tuple)


@given(NAMES, NAMES, COLUMNS)
@example("", "", ("",))
@example("s", "t", ("x" * 20_000,))
@example("s", "a.b", ("x, y", 'q"', " edge", "(", "\u00a0"))
def test_what_is_printed_can_be_typed(schema: str, table: str, columns: tuple[str, ...]) -> None:
    assert read_columns(written(schema, table, columns)) == (schema, table, columns)


@given(st.lists(st.tuples(NAMES, NAMES, COLUMNS), unique=True, max_size=4))
def test_no_two_are_printed_alike(sides: list[tuple[str, str, tuple[str, ...]]]) -> None:
    assert len({written(*one) for one in sides}) == len(sides)


@pytest.mark.parametrize(
    ("side", "text"),
    [
        (("s", "t", ("a",)), "s.t.a"),
        (("s", "t", ("a b", "größe", "2024")), "s.t(a b, größe, 2024)"),
        (("my s", "t.u", ("x, y", 'say "hi"')), 'my s."t.u"("x, y", "say ""hi""")'),
        (("", "t", (" a",)), '""."t"." a"'.replace('"t"', "t")),
        (("s", "t", ("a.b", "c")), "s.t(a.b, c)"),
        (("s", "t", ('"a"',)), 's.t."""a"""'),
    ],
)
def test_names_are_quoted_only_where_they_need_to_be(side: tuple[str, str, Sequence[str]], text: str) -> None:
    assert written(*side) == text
    assert read_columns(text) == side


@pytest.mark.parametrize("text", ["", "a", "a.b", "s.t(", "s.t()", "s.t(a,)", 's.t("a)', "s.t.a.b", "id:7", "s.t. a"])
def test_what_is_no_such_name(text: str) -> None:
    assert read_columns(text) is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ("a",)),
        (" a ,b", ("a", "b")),
        ('"a, b","",c', ("a, b", "", "c")),
        ("", None),
        ("a,,b", None),
        ('"a', None),
    ],
)
def test_lists_of_names(text: str, names: tuple[str, ...] | None) -> None:
    assert read_list(text) == names


def made(attribute_id: int, name: AttributeName) -> AttributeInfo:
    return AttributeInfo(attribute_id, name, "s", 0, "string", False, 1, 0, 1, 0, 1)


class GivenState:
    """Be a snapshot of tables with these columns, and of followed tuples."""

    def __init__(self, names: Sequence[AttributeName], tuples: Sequence[Side] = ()) -> None:
        ids = count()
        self.infos = [made(next(ids), name) for name in names]
        by_name = {one.name: one.attribute_id for one in self.infos}
        self.followed: list[TupleInfo] = []
        self.of_tuples: list[AttributeInfo] = []
        for side in tuples:
            name = AttributeName(side.schema, side.table, tuple_name(side.columns))
            self.of_tuples.append(made(next(ids), name))
            parts = tuple(by_name[part] for part in side.names)
            self.followed.append(TupleInfo(self.of_tuples[-1].attribute_id, parts, True, False))
        self.head = SimpleNamespace(version=1)

    def attributes(self, chosen: AttributeFilter, after: object, limit: int) -> list[AttributeInfo]:
        return [one for one in self.infos if chosen.schema in (None, one.name.schema)
                and chosen.table in (None, one.name.table)] if after is None else []  # fmt: skip

    def attributes_named(self, text: str) -> list[AttributeInfo]:
        return [one for one in [*self.infos, *self.of_tuples] if str(one.name) == text]

    def attribute(self, attribute_id: int) -> AttributeInfo | None:
        return next((one for one in [*self.infos, *self.of_tuples] if one.attribute_id == attribute_id), None)

    def tuples(self) -> list[TupleInfo]:
        return self.followed

    def references(self, ids: Sequence[int]) -> dict[int, AttributeRef]:
        return {one.attribute_id: AttributeRef(one.attribute_id, one.name) for one in self.infos
                if one.attribute_id in ids}  # fmt: skip


def find(state: GivenState, text: str) -> Side:
    return side_named(cast(Any, state), text)


@given(st.lists(st.builds(AttributeName, NAMES, NAMES, NAMES), min_size=1, max_size=8, unique=True), st.data())
def test_each_printed_side_is_found_again(names: list[AttributeName], data: st.DataObject) -> None:
    by_table = [list(of) for _, of in groupby(sorted(names), lambda name: name[:2])]
    sides = [Side.of(of[:1]) for of in by_table] + [Side.of(of) for of in by_table]
    followed = data.draw(st.sets(st.sampled_from(sides))) if sides else set()
    state = GivenState(names, sorted(one for one in followed if len(one.columns) > 1))
    for side in sides:
        assert find(state, str(side)) == side
    for one in state.of_tuples:
        assert find(state, f"id:{one.attribute_id}") in sides


def names_of(*sides: tuple[str, str, Sequence[str]]) -> list[AttributeName]:
    return [AttributeName(schema, table, column) for schema, table, columns in sides for column in columns]


def test_names_are_also_found_as_they_are() -> None:
    state = GivenState(names_of(("s", "my.table", ["a", "b.c"]), ("s", 't"', ["x (y)"])))
    assert find(state, "s.my.table(a, b.c)") == Side("s", "my.table", ("a", "b.c"))
    assert find(state, "s.my.table.b.c") == Side("s", "my.table", ("b.c",))
    assert find(state, 's.t".x (y)') == Side("s", 't"', ("x (y)",))


def test_an_attribute_of_tuples_stands_for_its_columns() -> None:
    both = Side("s", "t", ("a, b", "c"))
    state = GivenState(names_of(("s", "t", ["a, b", "c"])), [both])
    for text in ('s.t.("a, b", c)', "id:2", 's.t("a, b", c)'):
        assert find(state, text) == both


def test_what_may_be_several_is_refused_and_what_is_printed_is_not() -> None:
    state = GivenState(names_of(("a", "b.c", ["x", "y"]), ("a.b", "c", ["x", "y"])))
    with pytest.raises(ForeignKeyError, match=r"may be a\.\"b\.c\"\(x, y\) or \"a\.b\"\.c\(x, y\): write it as one"):
        find(state, "a.b.c(x, y)")
    with pytest.raises(AmbiguousNameError):
        find(state, "a.b.c.x")
    assert find(state, 'a."b.c"(x, y)') == Side("a", "b.c", ("x", "y"))
    assert find(state, '"a.b".c.x') == Side("a.b", "c", ("x",))


def test_quotes_are_read_as_printed_before_they_are_read_as_part_of_a_name() -> None:
    state = GivenState(names_of(("s", "t", ["a.b", '"a.b"', '"c"'])))
    assert find(state, 's.t."a.b"') == Side("s", "t", ("a.b",))
    assert find(state, 's.t."""a.b"""') == Side("s", "t", ('"a.b"',))
    assert find(state, 's.t."c"') == Side("s", "t", ('"c"',))


@pytest.mark.parametrize(
    "text", ["", "s.u.a", "s.u(a, b)", "s.t.a\x00", "s.t(a\x00)", "id:99999999999", "(", '"', "s.t.("]
)
def test_what_is_not_there_is_not_found(text: str) -> None:
    state = GivenState(names_of(("s", "t", ["a", "b"])))
    with pytest.raises(NotFoundError):
        find(state, text)


def test_columns_that_are_not_there_are_left_to_who_asks() -> None:
    state = GivenState(names_of(("s", "t", ["a", "b"])))
    assert find(state, "s.t(a, z)") == Side("s", "t", ("a", "z"))
    with pytest.raises(ForeignKeyError, match="comes twice"):
        find(state, "s.t(a, a)")

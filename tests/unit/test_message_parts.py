"""What messages and statements quote: names as Postgres reads them, and why a library failed, in one line."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import first_line
from service.core.sql_names import sql_name


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("public", "orders"), "public.orders"),
        (("_a1",), "_a1"),
        (("user", "accounts"), '"user".accounts'),
        (("left", "row"), '"left".row'),
        (("Public", "order items", "é"), '"Public"."order items"."é"'),
        (("1a", "a.b", ""), '"1a"."a.b".""'),
        (('a"b',), '"a""b"'),
        (("orders\n",), '"orders\n"'),
    ],
)
def test_a_name_is_quoted_where_it_must_be(parts: tuple[str, ...], name: str) -> None:
    assert sql_name(*parts) == name


@given(st.lists(st.text(), min_size=1, max_size=3))
def test_parts_come_back_from_a_name(parts: list[str]) -> None:
    part = r"""(?:"((?:[^"]|"")*)"|([a-z_][a-z0-9_]*))"""
    name = sql_name(*parts)
    assert re.fullmatch(rf"{part}(?:\.{part})*", name)
    found = [quoted.replace('""', '"') or bare for quoted, bare in re.findall(rf"{part}(?:\.|\Z)", name)]
    assert found == parts


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError("it is away."), "it is away"),
        (OSError("\n  it is away... \nDETAIL: try again"), "it is away"),
        (OSError(".hidden is missing X"), ".hidden is missing X"),
        (OSError(" \n "), "no reason was given"),
        (OSError(), "no reason was given"),
        (None, "no reason was given"),
    ],
)
def test_why_a_library_failed_is_its_first_line(error: BaseException | None, line: str) -> None:
    assert first_line(error) == line

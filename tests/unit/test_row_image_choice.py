"""Which tables a key is for that names a table without its schema."""

from __future__ import annotations

import pytest

from service.core.errors import SourceError
from spark_jobs.row_images import choose_row_images
from spark_jobs.sources import Options, SourceTable

TABLES = [SourceTable(schema, "t", (("id", "int"), ("x", "int")), ("id", "x"), "default") for schema in ("a", "b")]


def chosen(*keys: tuple[str, tuple[str, ...]]) -> list[tuple[str, ...]]:
    tables, _ = choose_row_images(TABLES, Options("postgresql://x", "s", keys=keys))
    return [table.key_columns for table in tables]


def test_a_key_without_a_schema_is_that_of_all_tables_of_the_name_that_have_none_of_their_own() -> None:
    assert chosen() == [("id", "x"), ("id", "x")]
    assert chosen(("t", ("id",))) == [("id",), ("id",)]
    assert chosen(("t", ("id",)), ("a.t", ("x",))) == [("x",), ("id",)]
    assert chosen(("b.t", ("x",))) == [("id", "x"), ("x",)]
    with pytest.raises(SourceError, match=r"--key c\.t: the source has no such table"):
        chosen(("t", ("id",)), ("c.t", ("id",)))

"""Own how columns of a table are named in one text, printed so that it can be typed back: quoted where they need to be.

    shop.orders.customer_id    shop.lines(order_id, number)    "my shop."."a ""b"" (c)"("x, y", z)

A name is quoted, with " doubled, where it is empty, begins or ends with a space, or has a character that would end it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_QUOTED = r'"(?:[^"]|"")*"'
_PART = rf'{_QUOTED}|[^".(),\s](?:[^".(),]*[^".(),\s])?'
_ITEM = rf'{_QUOTED}|[^"(),\s](?:[^"(),]*[^"(),\s])?'
_LIST = rf"\s*(?:{_ITEM})\s*(?:,\s*(?:{_ITEM})\s*)*"
_COLUMNS = re.compile(rf"({_PART})\.({_PART})(?:\.({_PART})|\(({_LIST})\))", re.DOTALL)


class NamedColumns(NamedTuple):
    """Name columns of one table."""

    schema: str
    table: str
    columns: tuple[str, ...]


def written(schema: str, table: str, columns: Sequence[str]) -> str:
    """Write columns of a table: `schema.table.column`, of several `schema.table(a, b)`."""
    of_table = f"{_quoted(schema, _PART)}.{_quoted(table, _PART)}"
    if len(columns) == 1:
        return f"{of_table}.{_quoted(columns[0], _PART)}"
    return f"{of_table}({', '.join(_quoted(column, _ITEM) for column in columns)})"


def read_columns(text: str) -> NamedColumns | None:
    """Read what `written` writes; None for a text that it could not have written."""
    match = _COLUMNS.fullmatch(text)
    if match is None:
        return None
    schema, table, column, several = match.groups()
    columns = (_plain(column),) if column is not None else read_list(several)
    assert columns is not None
    return NamedColumns(_plain(schema), _plain(table), columns)


def read_list(text: str) -> tuple[str, ...] | None:
    """Read names with commas between them; None for a text that is no such list."""
    if re.fullmatch(_LIST, text, re.DOTALL) is None:
        return None
    return tuple(_plain(item) for item in re.findall(_ITEM, text, re.DOTALL))


def _quoted(name: str, pattern: str) -> str:
    is_plain = not name.startswith('"') and re.fullmatch(pattern, name, re.DOTALL)
    return name if is_plain else '"' + name.replace('"', '""') + '"'


def _plain(written_name: str) -> str:
    return written_name[1:-1].replace('""', '"') if written_name.startswith('"') else written_name

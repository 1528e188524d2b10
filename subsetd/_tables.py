"""Own tables: answers as Arrow tables, with columns and types by the shape of the items, and what others give."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import pyarrow as pa

SCALARS = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_(), NoneType: pa.null()}

UNNAMED_INDEX = re.compile(r"__index_level_\d+__")


def taken_over(given: Any) -> pa.Table:
    """Take over an Arrow table, or what gives itself as one; the index of a frame of pandas only if it has a name."""
    table = pa.table(given)
    index = (table.schema.pandas_metadata or {}).get("index_columns", ())
    unnamed = [one for one in table.column_names if one in index and UNNAMED_INDEX.fullmatch(one)]
    table = table.drop_columns(unnamed)
    for one in index:
        # Of an index that counts pandas gives no column, but how it counts.
        if isinstance(one, dict) and one.get("kind") == "range" and isinstance(one.get("name"), str):
            counted = range(one["start"], one["stop"], one["step"])
            if len(counted) == table.num_rows and one["name"] not in table.column_names:
                table = table.append_column(one["name"], pa.array(counted, pa.int64()))
    return table


def table_of(items: Iterable[Mapping[str, Any]], shape: type) -> pa.Table:
    """Make a table of items of a shape, a TypedDict.

    Objects become columns `outer.inner`, times timestamps in UTC; what has no fixed shape is a column of JSON.
    """
    schema = pa.schema(_fields(shape))
    rows = [{field.name: _cell(one.get(field.name), field.type, field.metadata) for field in schema} for one in items]
    return pa.Table.from_pylist(rows, schema).flatten()


def _fields(shape: type) -> list[pa.Field]:
    hints = get_type_hints(shape, include_extras=True)
    return [pa.field(name, *_type(kind)) for name, kind in hints.items()]


def _type(kind: Any) -> tuple[pa.DataType, bool, dict[str, str] | None]:
    """Give the type, that it may be null, and a mark where cells are written as JSON."""
    if get_origin(kind) is Annotated:
        return pa.timestamp("us", tz="UTC"), True, None
    if get_origin(kind) in (Union, UnionType):
        (one, *others) = [each for each in get_args(kind) if each is not NoneType]
        return _type(one) if not others else (pa.string(), True, {"json": "1"})
    if get_origin(kind) is Literal:
        return pa.string(), True, None
    if get_origin(kind) is list:
        inner, _, mark = _type(get_args(kind)[0])
        return (pa.string(), True, mark) if mark else (pa.list_(inner), True, None)
    if is_typeddict(kind):
        inside = _fields(kind)
        if any(field.metadata for field in inside):
            return pa.string(), True, {"json": "1"}
        return pa.struct(inside), True, None
    known = SCALARS.get(kind)
    return (pa.string(), True, {"json": "1"}) if known is None else (known, True, None)


def _cell(value: Any, kind: pa.DataType, mark: Mapping[bytes, bytes] | None) -> Any:
    if value is None:
        return None
    if mark:
        return json.dumps(value, ensure_ascii=False)
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(value)
    if pa.types.is_struct(kind):
        return {field.name: _cell(value.get(field.name), field.type, field.metadata) for field in kind}
    if pa.types.is_list(kind):
        return [_cell(one, kind.value_type, None) for one in value]
    return value

"""Own how the sides of a foreign key are called by who types them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from service.core.errors import NotFoundError
from service.core.foreign_keys.sides import ForeignKeyError, Side
from service.core.model import AttributeName
from service.core.typed_names import NamedColumns, read_columns, read_list
from service.usecases import queries
from service.usecases.answers import EVERY_ATTRIBUTE, AttributeFilter, AttributeInfo
from service.usecases.ports import StateSnapshot


def side_named(snapshot: StateSnapshot, text: str) -> Side:
    """Find the columns that `schema.table.column`, `id:17` or `schema.table(a, b)` names.

    An attribute of tuples stands for its columns. What is there when it is read as it would have been printed comes
    first, so that a printed side is found again. Names may have any character, so else the text is compared with what
    there is. Raises NotFoundError, AmbiguousNameError or ForeignKeyError where it is nothing, or may be several.
    """
    has_nul = "\x00" in text  # no name in the state has one, and Postgres takes none
    written = None if has_nul else read_columns(text)
    if written is not None and _is_followed(snapshot, written):
        return _side(written)
    if text.endswith(")") and not has_nul and not snapshot.attributes_named(text):
        found = _of_tables(snapshot, text)
        if found:
            followed = [one for one in found if _is_followed(snapshot, one)] or found[:1]
            if len(followed) > 1:
                raise ForeignKeyError(
                    f"{text!r} may be {' or '.join(str(_side(one)) for one in followed)}: write it as one of these."
                )
            return _side(followed[0])
    found_one = queries.resolve(snapshot, text)
    parts = next((one.parts for one in snapshot.tuples() if one.attribute_id == found_one.attribute_id), ())
    names = snapshot.references(parts)
    return Side.of([names[part].name for part in parts] or [found_one.name])


def contract_side(snapshot: StateSnapshot, text: str, which: Literal["dependent", "referenced"]) -> Side:
    """Find columns as `side_named` does, or those of a contract that are gone, by the name that it prints itself."""
    try:
        return side_named(snapshot, text)
    except NotFoundError:
        gone = read_columns(text)
        if gone is None or not snapshot.contracts(0, 1, **{which: _side(gone)}):
            raise
        return _side(gone)


def attribute_of(snapshot: StateSnapshot, side: Side) -> AttributeInfo | None:
    """Find the attribute that a side's column is, or its tuples are; None where there is none."""
    found = [one for name in side.names for one in snapshot.attributes_named(str(name)) if one.name == name]
    if len(found) < len(side.columns):
        return None
    if len(found) == 1:
        return found[0]
    parts = tuple(one.attribute_id for one in found)
    return next((snapshot.attribute(one.attribute_id) for one in snapshot.tuples() if one.parts == parts), None)


def _of_tables(snapshot: StateSnapshot, text: str) -> Sequence[NamedColumns]:
    """Read `schema.table(a, b)` as columns of each table whose plain name the text begins with."""
    listed = queries.walk(lambda after: queries.attributes(snapshot, EVERY_ATTRIBUTE, after))
    found = []
    for schema, table in sorted({one.name[:2] for one in listed}):
        before = f"{schema}.{table}("
        columns = read_list(text[len(before) : -1]) if text.startswith(before) else None
        if columns is not None:
            found.append(NamedColumns(schema, table, columns))
    return found


def _is_followed(snapshot: StateSnapshot, named: NamedColumns) -> bool:
    of_table = AttributeFilter(schema=named.schema, table=named.table)
    listed = queries.walk(lambda after: queries.attributes(snapshot, of_table, after))
    return set(named.columns) <= {one.name.column for one in listed}


def _side(named: NamedColumns) -> Side:
    return Side.of([AttributeName(named.schema, named.table, column) for column in named.columns])

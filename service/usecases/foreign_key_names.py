"""Own how the sides of a foreign key are called by who types them."""

from __future__ import annotations

from service.core.foreign_keys.sides import Side
from service.core.model import AttributeName
from service.usecases import queries
from service.usecases.answers import EVERY_ATTRIBUTE
from service.usecases.ports import StateSnapshot


def side_named(snapshot: StateSnapshot, text: str) -> Side:
    """Find the columns that `schema.table.column`, `id:17` or `schema.table(a, b)` names.

    An attribute of tuples stands for its columns. Names may have any character, so the text is compared with what
    there is. Raises NotFoundError.
    """
    if text.endswith(")") and not snapshot.attributes_named(text):
        listed = queries.walk(lambda after: queries.attributes(snapshot, EVERY_ATTRIBUTE, after))
        for schema, table in {one.name[:2] for one in listed}:
            if text.startswith(f"{schema}.{table}("):
                columns = text[len(schema) + len(table) + 2 : -1].split(",")
                return Side.of([AttributeName(schema, table, column.strip()) for column in columns])
    found = queries.resolve(snapshot, text)
    parts = next((one.parts for one in snapshot.tuples() if one.attribute_id == found.attribute_id), ())
    names = snapshot.references(parts)
    return Side.of([names[part].name for part in parts] or [found.name])

"""Own what a NULL of SQL Server's change tables means: there it also stands for a large value that did not change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.core.errors import RecordError
from service.stream.row_images import PLACEHOLDER, TableDecoder, listed

MOST_CHARACTERS = 8000
"""The longest `varchar(n)` and `varbinary(n)`; what is longer is `(max)`, or of an older large type."""

_TEXTS = frozenset({"string", "text", "bytea"})

_TELL_TYPES = (
    "say how long columns are by column.propagate.source.type=.* in the connector, with schemas in the records"
)


def is_large(field: Mapping[str, Any]) -> bool:
    """Tell whether a field of Kafka Connect's may be a column of which SQL Server leaves values out.

    These are `varchar(max)`, `nvarchar(max)`, `varbinary(max)`, `text`, `ntext`, `image` and `xml`: strings and bytes,
    but those with a length that the connector was told to say (`column.propagate.source.type`).
    """
    if field.get("type") not in ("string", "bytes") or field.get("name") not in (None, "io.debezium.data.Xml"):
        return False
    parameters = field.get("parameters")
    length = parameters.get("__debezium.source.column.length") if type(parameters) is dict else None
    return not (type(length) is str and length.isdecimal() and int(length) <= MOST_CHARACTERS)


def fill_nulls(
    tracked: TableDecoder,
    before: Mapping[str, Any] | None,
    after: dict[str, Any],
    fields: Mapping[str, Mapping[str, Any]] | None,
) -> dict[str, Any]:
    """Give the row after an update of SQL Server's, with placeholders for the values that it may have left out.

    A large value that an update did not change is NULL in the row before (Microsoft, `cdc.<capture_instance>_CT`) and,
    as the connector's own mends of it show, in the row after it (debezium/debezium#7452, #8078). So what is NULL in
    both did not change: a table with row images takes it from there. Raises RecordError where a change cannot be told
    from one that was left out: a NULL without the row before, and for whole rows, where they are needed, a value behind
    a NULL, and a tuple that changes with a NULL in both. `fields` are those of the record's schema, None without one.
    """

    if not tracked.has_row_images and before is None:
        return after  # refused for that
    was_null = {c for c in tracked.columns if c in after and (before is None or before.get(c, 0) is None)}
    if fields is None:
        texts = {a.name.column for a in tracked.table.attributes if a.data_type in _TEXTS}
        unsure = sorted(was_null & texts)
    else:
        unsure = sorted(column for column in was_null if is_large(fields.get(column, {})))
    if not tracked.has_row_images:
        if changed := [column for column in unsure if after[column] is not None]:
            raise RecordError.plain(
                f"changes {listed(changed)} from NULL, which SQL Server also sends for a large value that did not "
                f"change: {_TELL_TYPES}, or bootstrap again with --replace --row-images always"
            )
        if tracked.table.derived and before is not None:
            hidden = {place for place, column in enumerate(tracked.columns) if column in unsure}
            cells = [tuple(image.get(column) for column in tracked.columns) for image in (before, after)]
            tracked.refuse_half_tuples(hidden, *cells)
        return after
    unknown = [column for column in unsure if after[column] is None]
    if unknown and before is None:
        raise RecordError.plain(
            f"has op u, no row before, and NULL in {listed(unknown)}, which SQL Server also sends for a large value "
            f"that did not change: {_TELL_TYPES}, or leave the transform ExtractNewRecordState out"
        )
    return {**after, **dict.fromkeys(unknown, PLACEHOLDER)} if unknown else after

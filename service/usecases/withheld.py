"""Own what is kept of records that are set aside where values are not to be kept: their place, and a plain reason.

A record that cannot be applied often cannot be read either, so nothing tells which of its bytes are which column's.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from service.core.errors import RecordError
from service.core.model import Attribute, BadRecord, RawRecord, SchemaDrift, Table


class Withholding:
    """Tell what may be kept of a record by its table: where all of its columns are kept whole, everything.

    The `stale` ones count: they are not followed, but records may have them still.
    """

    def __init__(self, tables: Sequence[Table], stale: Sequence[Attribute] = ()) -> None:
        named: dict[str, bool] = {}
        restricted = {attribute.name[:2] for attribute in stale if not _is_kept_whole(attribute)}
        for table in tables:
            schema, name = (table.schema, table.name) if table.wire is None else table.wire[1:]
            is_whole = (table.schema, table.name) not in restricted
            is_whole &= all(map(_is_kept_whole, table.followed))
            named[f"{schema}.{name}"] = is_whole and named.get(f"{schema}.{name}", True)
        self._whole = {name for name, is_whole in named.items() if is_whole}
        self._keeps_all = len(self._whole) == len(named)

    def letters(self, bad: list[BadRecord]) -> list[BadRecord]:
        """Give records as they may be kept and told of; of those of no known table their place is kept alone."""
        return bad if self._keeps_all else [self._letter(*one) for one in bad]

    def _letter(self, record: RawRecord, error: RecordError) -> BadRecord:
        if table_named_by(record) in self._whole:
            return BadRecord(record, error)
        if not isinstance(error, SchemaDrift):
            told = error.without_values
            if told is None:
                told = "cannot be applied; why is not told, as that may show values that are not to be kept"
            at = str(record.position)
            error = RecordError.plain(told if told.startswith(at) else f"{at}: {told}")
        return BadRecord(record._replace(key=None, value=None, headers=()), error)


def _is_kept_whole(attribute: Attribute) -> bool:
    return attribute.shown_characters is None and not attribute.sketch_only


def table_named_by(record: RawRecord) -> str | None:
    """Give the table that a record names as schema.table, if it can be read so far."""
    try:
        document = orjson.loads(record.value or b"")  # what it reads, the database takes: it knows no half characters
        envelope = document.get("payload", document)
        source = envelope["source"]
        name = f"{source.get('schema') or source['db']}.{source['table']}"
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return _table_of_message(record)
    return None if "\0" in name else name


def _table_of_message(record: RawRecord) -> str | None:
    """Give the table of a message of Postgres itself: its Relation message is beside it, with no value in it."""
    relation = dict(record.headers).get("relation")
    if relation is None or not relation.startswith(b"R"):
        return None
    try:
        schema, name, _ = relation[5:].split(b"\0", 2)
        return f"{schema.decode()}.{name.decode()}"
    except ValueError:
        return None

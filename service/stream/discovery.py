"""Own what change events say of their tables before any is known: names, columns with types, keys; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from service.core.errors import RecordError
from service.core.model import RawRecord, Row, RowChange, SchemaDrift, Skipped, Table
from service.core.retyping import keeps_texts
from service.stream.avro import SchemaRegistry
from service.stream.envelope import NAMELESS, Decoder
from service.stream.flattened import is_flattened, unflatten
from service.stream.row_images import TableDecoder
from service.stream.wire_schema import WireSchema

WireName = tuple[str | None, str, str]
"""What changes call a table: database, schema, table."""

_NO_COLUMN = "__"


@dataclass(slots=True)
class SeenTable:
    """Hold what the newest record of a table says of it; `at` is that record's (time, offset).

    `emptied` has, by (topic, partition), the offset of the last record that empties the table, and `places` the
    partitions in which it has records. `types` are all that columns had, where they had more than one.
    """

    at: tuple[int, int]
    columns: tuple[tuple[str, str], ...]
    key_columns: tuple[str, ...]
    places: set[tuple[str, int]]
    emptied: dict[tuple[str, int], int]
    types: dict[str, set[str]] = field(default_factory=dict)

    @property
    def retyped(self) -> dict[str, set[str]]:
        """Give, of columns whose older cells may have other texts than their newest type has, the older types."""
        newest = dict(self.columns)
        found = {
            column: {was for was in types if not keeps_texts(was, newest[column])}
            for column, types in self.types.items()
            if column in newest
        }
        return {column: types for column, types in found.items() if types}

    def join(self, other: SeenTable) -> None:
        """Add what was seen elsewhere."""
        if self.columns != other.columns:
            was = dict(self.columns)
            for column, data_type in other.columns:
                if was.get(column, data_type) != data_type:
                    self.types.setdefault(column, set()).update((data_type, was[column]))
        for column, types in other.types.items():
            self.types.setdefault(column, set()).update(types)
        if (bool(other.columns), other.at) > (bool(self.columns), self.at):
            self.at, self.columns = other.at, other.columns
            self.key_columns = other.key_columns or self.key_columns
        self.key_columns = self.key_columns or other.key_columns
        self.places |= other.places
        for place, offset in other.emptied.items():
            self.emptied[place] = max(offset, self.emptied.get(place, -1))


class Discovery(Decoder):
    """Learn from records which tables they change. Records that are no changes are passed over."""

    def __init__(self, registry: SchemaRegistry | None = None) -> None:
        super().__init__((), registry=registry)
        self.tables: dict[WireName, SeenTable] = {}

    def look(self, records: Iterable[RawRecord]) -> dict[WireName, SeenTable]:
        """Look at records; raise RecordError for one that cannot be read at all."""
        for record in records:
            if record.value:
                try:
                    self._look(record)
                except RecordError as error:
                    raise RecordError(f"{record.position}: {error}") from error
        return self.tables

    def _look(self, record: RawRecord) -> None:
        assert record.value is not None
        event, schema, _ = self._parse(record.topic, record.value)
        if type(event) is not dict:
            return
        is_flat = is_flattened(event)
        envelope = unflatten(event) if is_flat else event
        letter = envelope.get("op")
        if letter not in ("c", "r", "u", "d", "t"):
            return
        name = _wire_name(record, envelope.get("source"))
        place = record.topic, record.partition
        payload, _ = self._parse_key(record)
        key_columns = tuple(payload) if type(payload) is dict else ()
        seen = SeenTable((record.timestamp_ms, record.offset), (), key_columns, {place}, {})
        if letter == "t":
            seen.emptied[place] = record.offset
        else:
            seen.columns = _columns(envelope.get("after"), schema, is_flat)
        known = self.tables.get(name)
        if known is None:
            self.tables[name] = seen
        else:
            known.join(seen)


class RowReader(Decoder):
    """Decode changes of tables that are kept by their keys, whatever columns the table had when they were written.

    A column that the table has no longer is left out, one that it did not have yet is NULL, and one that had another
    type is refused where its values may have had other texts.
    """

    def _refuse_other_types(self, schema: WireSchema, tracked: TableDecoder) -> None:
        try:
            super()._refuse_other_types(schema, tracked)
        except SchemaDrift as drift:
            types = {attribute.name.column: attribute.data_type for attribute in tracked.table.attributes}
            other = [f"{c} is {was}, and {types[c]} now" for c, was in drift.retyped if not keeps_texts(was, types[c])]
            if other:
                raise RecordError(
                    f"is from before a column of {tracked.table} got another type ({', '.join(other)}), which gave the "
                    f"database's rows other texts than the topic's. Let the connector send a snapshot again into a new "
                    f"topic, and bootstrap from that"
                ) from drift

    def _rows_by_key(  # type: ignore[override]
        self,
        record: RawRecord,
        tracked: TableDecoder,
        letter: str,
        before: dict[str, Any] | None,
        after: dict[str, Any] | None,
        schema: WireSchema | None,
        careful: bool,
    ) -> tuple[None, Row | None, Row]:
        if after is not None:
            after = {column: after.get(column) for column in tracked.columns}
        return super()._rows_by_key(record, tracked, letter, before, after, schema, careful)

    def read(self, records: Iterable[RawRecord]) -> Iterable[RowChange]:
        """Give the changes that the records make, in their order; raise RecordError for one that cannot be read."""
        for record in records:
            decoded = self.decode(record)
            if not isinstance(decoded, Skipped):
                yield decoded


def key_of(change: RowChange, table: Table) -> Row:
    """Give the key of the row that a change leaves behind, or (deletes) takes away."""
    if change.after is None:
        assert change.key is not None
        return change.key
    return tuple(change.after[place] for place in table.key)


def _wire_name(record: RawRecord, source: object) -> WireName:
    if type(source) is not dict:
        source = {}
    database, schema, name = source.get("db"), source.get("schema") or source.get("db"), source.get("table")
    parts = record.topic.split(".")
    if not schema or not name:
        if len(parts) < 2:
            raise RecordError(NAMELESS)
        schema, name = schema or parts[-2], name or parts[-1]
    return (database or None), str(schema), str(name)


def _columns(after: object, schema: WireSchema | None, is_flat: bool) -> tuple[tuple[str, str], ...]:
    """Name the columns of a row, and their types where the record has a schema; `string` where it has none."""
    if type(after) is not dict:
        return ()
    names = [name for name in after if not (is_flat and name.startswith(_NO_COLUMN))]
    return tuple((name, "string" if schema is None else schema.data_type(name)) for name in names)

"""Own the decoding of Debezium-shaped records into row changes; pure but for the schemas that it asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import orjson

from service.core.cell_decoding import WireSettings
from service.core.errors import RecordError, cut_message
from service.core.model import (
    NOT_FOLLOWED,
    Operation,
    RawRecord,
    Row,
    RowChange,
    SchemaDrift,
    Skipped,
    Table,
    TransactionMark,
)
from service.stream import source_order
from service.stream.avro import MAGIC, AvroReader, SchemaRegistry
from service.stream.flattened import WAY_OUT, is_flattened, row_of, unflatten
from service.stream.row_images import DEFAULT_SETTINGS, TableDecoder, needs_care, replica_identity
from service.stream.sqlserver_nulls import fill_nulls
from service.stream.wire_schema import WireSchema

SOURCE_FIELDS = ("ts_ms", "lsn", "txId", "sequence", "snapshot", "file", "pos", "row", "gtid", "commit_lsn", "scn")
"""What is kept of a record's `source` block, as far as it is there."""

NAMELESS = (
    "does not name its table: source.schema (or source.db) and source.table are missing, and its topic does not end in "
    "schema.table; let what sends it name the table in either way"
)

MOST_NAMES = 100_000
"""How many names of tables are remembered; a feed may say any database."""

OLD_KEY, NEW_KEY = "__debezium.oldkey", "__debezium.newkey"
"""Headers of the create and the delete that a change of a row's key is sent as: the key of the other half."""

_OPERATIONS = {operation.value: operation for operation in Operation}
_SCALARS = frozenset({int, str, bool, type(None)})

Parsed = tuple[Any, WireSchema | None, bool]
"""A record's payload, its schema, and whether its cells must be looked at with care (placeholders, NUL characters)."""


class Decoder:
    """Turn records into row changes of the tracked tables, in canonical texts.

    A record is a change envelope (`before, after, op, source, transaction`) in JSON, with or without `{schema,
    payload}` around it, or in Avro with a schema registry; or what the transform ExtractNewRecordState leaves of one.
    With a schema, its semantic names decide how cells are read; without one, the attributes' data types and `settings`.
    A record that changes no row is Skipped, with the reason; every other record raises RecordError, whose message names
    topic, partition, offset, the fault and the way out; SchemaDrift where the columns are not those of the table, or
    its schema shows other types. Nothing else is ever raised, whatever the bytes are, but what `registry` raises when
    it is away.

    A change of a table with row images has no `before` but the row's `key` before the change, and cells of `after`
    that were not sent are UNAVAILABLE, or NULL_IN_DOUBT where that cannot be told from NULL. Of other tables, a
    Postgres delete whose only values are those of its key is refused until the table is known to send whole rows
    (`has_full_identity`, or a whole before-image was seen): it may be the key alone, with NULL for all that was not
    sent.

    A table is found by what changes call it (`Table.wire`); where two have the name, records are refused. Records of
    unknown tables are refused, or skipped with `unknown_tables="ignore"`.
    """

    def __init__(
        self,
        tables: Iterable[Table],
        settings: WireSettings = DEFAULT_SETTINGS,
        registry: SchemaRegistry | None = None,
        unknown_tables: Literal["ignore", "refuse"] = "refuse",
    ) -> None:
        self.followed: Sequence[Table] = tuple(tables)
        self._tables: dict[tuple[str, str], list[TableDecoder]] = {}
        for table in self.followed:
            _, schema, name = table.wire or (None, table.schema, table.name)
            self._tables.setdefault((schema, name), []).append(TableDecoder(table, settings))
        self._found: dict[tuple[object, str, str], TableDecoder] = {}
        self._schemas: dict[tuple[str, bool], WireSchema] = {}
        self._avro = None if registry is None else AvroReader(registry)
        self._ignores_unknown_tables = unknown_tables == "ignore"

    def decode(self, record: RawRecord) -> RowChange | Skipped:
        """Decode one record; raise RecordError for one that cannot be applied."""
        try:
            return self._decode(record)
        except RecordError as error:
            message = f"{record.position}: {cut_message(str(error))}"
            if isinstance(error, SchemaDrift):
                drift = SchemaDrift(
                    message,
                    error.table,
                    error.added,
                    error.missing,
                    error.source_position,
                    error.filled,
                    error.retyped,
                )
                drift.position = record.position
                raise drift from error.__cause__
            told = RecordError(message, error.without_values)
            told.change = error.change
            raise told from error.__cause__

    def _decode(self, record: RawRecord) -> RowChange | Skipped:
        value = record.value
        if not value:
            if value is None:
                return _skip(record, "tombstone")
            raise RecordError("is not JSON: it is empty")
        envelope, schema, careful = self._parse(record.topic, value)
        if envelope is None:
            return _skip(record, "tombstone")
        if type(envelope) is not dict:
            raise RecordError(f"is no change envelope but {shown(envelope)}; expected an object with op, before, after")
        flattened = is_flattened(envelope)
        if flattened:
            envelope = unflatten(envelope)
        elif "op" not in envelope:
            return _without_op(record, envelope)
        letter = envelope["op"]
        if letter == "m":
            return _skip(record, "logical message")
        operation = _OPERATIONS.get(letter) if type(letter) is str else None
        if operation is None:
            raise RecordError(f"has the unknown op {shown(letter)}; known are c, u, d, r, t and m")
        source = envelope.get("source")
        if source is None:
            source = {}
        elif type(source) is not dict:
            raise RecordError(f"its source is no object but {shown(source)}")
        tracked = self._find_table(record, source)
        if tracked is None:
            return _skip(record, NOT_FOLLOWED)
        position = _source_position(source, envelope.get("transaction"), letter)
        moves: Row | None = None
        tracked = tracked.at(record.position, position)
        try:
            before, after = _images(tracked, letter, envelope)
            if flattened:
                before, after = row_of(before, tracked), row_of(after, tracked)
            if tracked.late:
                before, after = tracked.as_now(before), tracked.as_now(after)
            if schema is not None and letter != "t":
                self._refuse_other_types(schema, tracked)
            if letter == "u" and after is not None and source.get("connector") == "sqlserver":
                told, after = after, fill_nulls(tracked, before, after, None if schema is None else schema.fields)
                careful = careful or after is not told
            if letter == "t":
                rows: tuple[Row | None, Row | None, Row | None] = None, None, None
            elif tracked.has_row_images:
                rows = self._rows_by_key(record, tracked, letter, before, after, schema, careful)
                moved = self._moved_keys(record, tracked, letter, rows[1]) if record.headers else None
                if moved is not None:
                    rows, moves = (None, rows[1], moved[0]), moved[1]
                if (letter == "u" or moves is not None) and source.get("connector") == "postgresql":
                    rows = None, tracked.doubt_nulls(before, rows[1]), rows[2]
            else:
                rows = self._whole_rows(record, tracked, letter, before, after, schema, careful, source)
        except SchemaDrift as drift:
            drift.source_position = position
            if schema is not None:
                drift.filled = schema.filled(column for column, _ in drift.added)
            raise
        except RecordError as error:
            error.change = RowChange(tracked.table, operation, None, None, record.position, position)
            raise
        table, at = tracked.table, record.position
        if table.null_tokens:
            rows, moves = (table.nulled(rows[0]), table.nulled(rows[1]), table.nulled(rows[2])), table.nulled(moves)
        return RowChange(table, operation, rows[0], rows[1], at, position, rows[2], moves)

    def _parse(self, topic: str, value: bytes, is_key: bool = False) -> Parsed:
        """Parse a record's value or key and take the payload out of `{schema, payload}`.

        All records of a topic usually begin with the same bytes: the schema, often longer than the payload. A
        beginning that was once seen to be a whole `{"schema": ..., "payload":` is not parsed again.
        """
        if value[0] == MAGIC:
            if self._avro is None:
                raise RecordError(
                    "is no JSON but looks like Avro (it begins with a zero byte): name the registry of its schemas by "
                    "SUBSETD_SCHEMA_REGISTRY=http://host:port"
                )
            return *self._avro.read(value), True
        known = self._schemas.get((topic, is_key))
        try:
            if known is not None and known.is_prefix_of(value):
                try:
                    payload = orjson.loads(memoryview(value)[len(known.prefix) : -1])
                    return payload, known, needs_care(value)
                except orjson.JSONDecodeError:
                    pass  # not what the prefix promised: parse all of it
            document = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise RecordError(f"is not JSON: {error}; JSON is read, and Avro with a schema registry") from error
        careful = needs_care(value)
        # A flattened row may have columns of these names, and has more beside them.
        if type(document) is not dict or document.keys() != _WRAPPER:
            return document, None, careful
        if document["schema"] is None:
            return document["payload"], None, careful
        schema = WireSchema(document["schema"], value)
        if schema.prefix:
            self._schemas[topic, is_key] = schema
        return document["payload"], schema, careful

    def _find_table(self, record: RawRecord, source: Mapping[str, object]) -> TableDecoder | None:
        database, schema, name = source.get("db"), source.get("schema") or source.get("db"), source.get("table")
        if not schema or not name:
            parts = record.topic.split(".") if not record.topic.startswith("/") else []
            if len(parts) < 2:
                raise RecordError(NAMELESS)
            schema, name = schema or parts[-2], name or parts[-1]
        if type(schema) is not str or type(name) is not str or not (database is None or type(database) is str):
            raise RecordError(f"names its table by {shown(schema)} and {shown(name)}, which are no texts")
        found = self._found.get((database, schema, name))
        if found is not None:
            return found
        tables = [
            tracked
            for tracked in self._tables.get((schema, name), ())
            if not database or (tracked.table.wire or (None,))[0] in (None, database)
        ]
        if not tables:
            if self._ignores_unknown_tables:
                return None
            raise RecordError(
                f"changes table {schema + '.' + name!r}, which is not tracked; bootstrap it, or leave its topic out of "
                f"the feed"
            )
        if len(tables) > 1:
            sources = ", ".join(sorted({tracked.table.source for tracked in tables}))
            raise RecordError(
                f"changes table {schema + '.' + name!r}, which several sources have ({sources}); say which of them "
                f"this feed is of by --source NAME"
            )
        if len(self._found) < MOST_NAMES:
            self._found[database, schema, name] = tables[0]
        return tables[0]

    def _refuse_other_types(self, schema: WireSchema, tracked: TableDecoder) -> None:
        """Raise SchemaDrift where a record's schema shows other types than the state knows."""
        schema.refuse_other_types(tracked)

    def _rows_by_key(
        self,
        record: RawRecord,
        tracked: TableDecoder,
        letter: str,
        before: dict[str, Any] | None,
        after: dict[str, Any] | None,
        schema: WireSchema | None,
        careful: bool,
    ) -> tuple[None, Row | None, Row]:
        """Decode a change of a table with row images: the row after it, and the row's key before it."""
        decoders = tracked.decoders if schema is None else schema.decoders(tracked)
        row, key, payload = None, None, None
        if after is not None:
            row = tracked.row(after, decoders, "after", careful=careful, data_type=_data_type_of(schema))
        if letter in "ud":
            key = tracked.key(before, decoders, "before-image")
            if key is None and record.key:
                payload, key_schema = self._parse_key(record)
                if key_schema is None and type(payload) in _NO_TEXTS and record.key[:1] != b"{":
                    if tracked.has_text_key:
                        payload = record.key.decode()  # what only looks like JSON is the text itself
                    elif type(payload) is float and after is not None:
                        payload = None  # it may have lost digits, which the after-image has
                if payload is not None and type(payload) is not dict and len(tracked.key_columns) == 1:
                    payload = {tracked.key_columns[0]: payload}  # a key of one column, taken out of its row
                if type(payload) is dict:
                    key_decoders = tracked.decoders if key_schema is None else key_schema.decoders(tracked)
                    key = tracked.key(payload, key_decoders, "record key")
        # Where the record has a key of other columns, the kept row's may have changed without a word.
        if key is None and not (letter == "u" and type(payload) is dict):
            key = tracked.key(after, decoders, "after-image")
        if key is None:
            image = before if after is None else after
            if image is not None and tracked.names - set(tracked.key_columns) <= image.keys() != tracked.names:
                raise tracked.drift(image, "before", _data_type_of(schema))  # a column of the key has another name
            raise RecordError(
                f"has op {letter} and does not say which row of {tracked.table} it changes: neither its images nor its "
                f"record key have {', '.join(tracked.key_columns)}; {replica_identity(tracked.table)}"
            )
        return None, row, key

    def _moved_keys(
        self, record: RawRecord, tracked: TableDecoder, letter: str, after: Row | None
    ) -> tuple[Row, Row] | None:
        """Give the keys that the row had and has, where the record is one half of a change of the key; else None."""
        headers = dict(record.headers)
        if letter == "d" and NEW_KEY in headers:
            old = self._told_key(record, tracked, record.key)
            new = self._told_key(record, tracked, headers[NEW_KEY])
        elif letter == "c" and after is not None:
            old = self._told_key(record, tracked, headers.get(OLD_KEY))
            new = tuple([after[place] for place in tracked.table.key])
        else:
            return None
        return None if old is None or new is None else (old, new)

    def _told_key(self, record: RawRecord, tracked: TableDecoder, told: bytes | None) -> Row | None:
        payload, key_schema = self._parse_key(record._replace(key=told))
        if type(payload) is not dict:
            return None
        decoders = tracked.decoders if key_schema is None else key_schema.decoders(tracked)
        return tracked.key(payload, decoders, "record key")

    def _whole_rows(
        self,
        record: RawRecord,
        tracked: TableDecoder,
        letter: str,
        before: dict[str, Any] | None,
        after: dict[str, Any] | None,
        schema: WireSchema | None,
        careful: bool,
        source: Mapping[str, object],
    ) -> tuple[Row | None, Row | None, None]:
        """Decode the whole rows that a table without row images needs; raise RecordError where one is missing."""
        decoders = tracked.decoders if schema is None else schema.decoders(tracked)
        data_type = _data_type_of(schema)
        row_before, row_after = None, None
        if after is not None:
            row_after = tracked.row(after, decoders, "after", careful=careful, data_type=data_type)
        if letter in "ud":
            if before is None or not tracked.names.issubset(before):
                if before is not None and letter == "d" and self._shows_drift(record, tracked, before, source):
                    raise tracked.drift(before, "before", data_type)
                missing = "" if before is None else f" (it lacks {', '.join(sorted(tracked.names - before.keys()))})"
                raise RecordError.plain(
                    f"has op {letter} without the row before{missing}; {replica_identity(tracked.table)}"
                )
            if source.get("connector") == "postgresql" and tracked.may_send_keys_alone:
                fields = None if schema is None else schema.fields
                tracked.refuse_key_alone(before, letter, self._key_columns(record), fields)
        if before is not None:
            like = None if after is None or row_after is None else (after, row_after)
            row_before = tracked.row(before, decoders, "before", careful=careful, like=like, data_type=data_type)
        if careful:
            row_before, row_after = tracked.fill_unavailable(row_before, row_after)
        return row_before, row_after, None

    def _shows_drift(
        self, record: RawRecord, tracked: TableDecoder, before: Mapping[str, Any], source: Mapping[str, object]
    ) -> bool:
        """Tell whether a deleted row that lacks columns is more than its key: then its table has them no longer."""
        keys = self._key_columns(record) or frozenset(tracked.key_columns)
        return not before.keys() <= keys if keys else source.get("connector") is not None

    def _key_columns(self, record: RawRecord) -> frozenset[str]:
        """Name the columns of a record's key; none if it is no object."""
        payload, _ = self._parse_key(record)
        return frozenset(payload) if type(payload) is dict else frozenset()

    def _parse_key(self, record: RawRecord) -> tuple[Any, WireSchema | None]:
        """Parse a record's key; None for one that is neither JSON nor Avro: topics may have keys of any kind."""
        if not record.key:
            return None, None
        try:
            payload, schema, _ = self._parse(record.topic, record.key, is_key=True)
        except RecordError:
            return None, None
        return payload, schema


_NO_TEXTS = frozenset({int, float, bool, list})
_WRAPPER = frozenset({"schema", "payload"})


def shown(value: object) -> str:
    """Show a value in a message: escaped, and cut when long."""
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "..."


def _data_type_of(schema: WireSchema | None) -> Callable[[str], str] | None:
    return None if schema is None else schema.data_type


def _skip(record: RawRecord, reason: str) -> Skipped:
    return Skipped(record.position, reason)


def _without_op(record: RawRecord, envelope: dict[str, Any]) -> Skipped:
    """Recognise what Debezium sends beside changes; raise RecordError for anything else."""
    if record.topic.startswith("__debezium-heartbeat") or envelope.keys() == {"ts_ms"}:
        return _skip(record, "heartbeat")
    status = envelope.get("status")
    if status in ("BEGIN", "END") and "id" in envelope:
        at = record.position
        counts = _event_counts(envelope.get("data_collections")) if status == "END" else None
        return TransactionMark(at, f"transaction {status}", str(envelope["id"]), counts)
    if "ddl" in envelope or "tableChanges" in envelope:
        return _skip(record, "schema change")
    raise RecordError(f"has no op, so it is no change envelope; if it is a flattened one, {WAY_OUT}")


def _event_counts(collections: object) -> dict[str, int] | None:
    """Give the number of a transaction's events by table, None when it is not told."""
    counts: dict[str, int] = {}
    if type(collections) is not list:
        return None
    for one in collections:
        if type(one) is not dict or type(one.get("event_count")) is not int:
            return None
        counts[str(one.get("data_collection"))] = one["event_count"]
    return counts


def _images(
    tracked: TableDecoder, letter: str, envelope: Mapping[str, Any]
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Give the images of a change; raise RecordError for those missing after it and for superfluous ones."""
    before, after = envelope.get("before"), envelope.get("after")
    table = tracked.table
    if letter in "udt" and table.insert_only:
        raise RecordError(
            f"has op {letter}, but the source of {table} was declared insert-only; bootstrap it again without "
            f"--insert-only, or stop updates and deletes at the source"
        )
    for name, image, wanted in (("before", before, letter in "ud"), ("after", after, letter in "cru")):
        if image is not None and (not wanted or type(image) is not dict):
            raise RecordError(f"has op {letter} with {name}: {shown(image)}; expected {'a row' if wanted else 'null'}")
    if letter in "cru" and after is None:
        raise RecordError(f"has op {letter} without an after-image; nothing can be read of the row of {table}")
    return before, after


def _source_position(source: Mapping[str, Any], transaction: object, letter: str) -> dict[str, object]:
    """Keep what the record says of its place in the source; raise RecordError for what the state cannot hold."""
    position: dict[str, object] = {name: source[name] for name in SOURCE_FIELDS if source.get(name) is not None}
    if transaction is not None:
        if type(transaction) is not dict:
            raise RecordError(f"its transaction is no object but {shown(transaction)}")
        position["transaction_id"] = transaction.get("id")
        position["total_order"] = transaction.get("total_order")
    for name, value in position.items():
        if type(value) not in _SCALARS or (type(value) is str and "\0" in value):
            raise RecordError(f"its source says {name}: {shown(value)}; expected a number or a text")
    ts_ms = position.get("ts_ms", 0)
    if type(ts_ms) is not int or not 0 <= ts_ms < 2**63:
        raise RecordError(f"its source says ts_ms: {shown(ts_ms)}; expected milliseconds since 1970")
    mark = source_order.mark(source, transaction, letter)
    if mark is not None:
        position["mark"] = list(mark)
        reader = source_order.reader(source)
        if reader:
            position["marked_by"] = reader
    return position

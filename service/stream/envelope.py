"""Own the decoding of Debezium-shaped JSON records into row changes; pure: no connection, no clock, no log."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import orjson

from service.core.errors import RecordError
from service.core.model import (
    BadRecord,
    FeedPosition,
    Operation,
    RawRecord,
    Row,
    RowChange,
    Skipped,
    Table,
    TransactionMark,
)
from service.stream.row_images import TableDecoder, replica_identity
from service.stream.wire_schema import WireSchema

SOURCE_FIELDS = ("ts_ms", "lsn", "txId", "sequence", "snapshot", "file", "pos", "row", "gtid", "commit_lsn", "scn")
"""What is kept of a record's `source` block, as far as it is there."""

LONGEST_MESSAGE = 2000

# Placeholders of unchanged TOAST, plain and as bytes are sent (base64, hex); and NUL as JSON writes it.
_CAREFUL = re.compile(rb"__debezium_unavailable_value|X19kZWJleml1bV91bmF2|5f5f64656265|\\u0000")
_OPERATIONS = {operation.value: operation for operation in Operation}
_SCALARS = frozenset({int, str, bool, type(None)})


class Decoder:
    """Turn records into row changes of the tracked tables, in canonical texts.

    A record is a change envelope (`before, after, op, source, transaction`), with or without `{schema, payload}`
    around it. With a schema, its semantic names decide how cells are read; without one, the attributes' data types.
    A record that changes no row is Skipped, with the reason; every other record raises RecordError, whose message
    names topic, partition, offset, the fault and the way out. Nothing else is ever raised, whatever the bytes are.

    `complete_before` names tables (`schema.table`) known to have REPLICA IDENTITY FULL. Of others, a Postgres delete
    whose only values are those of its key is refused until the feed has shown a whole before-image: it may be the
    key alone, with NULL for all that was not sent.
    """

    def __init__(self, tables: Iterable[Table], complete_before: Collection[str] = ()) -> None:
        self._tables = {
            (table.schema, table.name): TableDecoder(table, str(table) in complete_before) for table in tables
        }
        self._schemas: dict[str, WireSchema] = {}

    def decode(self, record: RawRecord) -> RowChange | Skipped:
        """Decode one record; raise RecordError for one that cannot be applied."""
        try:
            return self._decode(record)
        except RecordError as error:
            message = str(error).replace("\0", "\\0")
            if len(message) > LONGEST_MESSAGE:
                message = message[:LONGEST_MESSAGE] + "..."
            raise RecordError(
                f"topic {record.topic}, partition {record.partition}, offset {record.offset}: {message}"
            ) from error.__cause__

    def decode_batch(self, records: Iterable[RawRecord]) -> tuple[list[RowChange], list[Skipped], list[BadRecord]]:
        """Decode many records: changes, skipped and bad ones, each in the order of the feed."""
        changes: list[RowChange] = []
        skipped: list[Skipped] = []
        bad: list[BadRecord] = []
        for record in records:
            try:
                decoded = self.decode(record)
            except RecordError as error:
                bad.append(BadRecord(record, error))
                continue
            if type(decoded) is RowChange:
                changes.append(decoded)
            elif isinstance(decoded, Skipped):
                skipped.append(decoded)
        return changes, skipped, bad

    def _decode(self, record: RawRecord) -> RowChange | Skipped:
        value = record.value
        if value is None:
            return _skip(record, "tombstone")
        envelope, schema = self._parse(record.topic, value)
        if envelope is None:
            return _skip(record, "tombstone")
        if type(envelope) is not dict:
            raise RecordError(f"is no change envelope but {shown(envelope)}; expected an object with op, before, after")
        if "op" not in envelope:
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
        careful = _CAREFUL.search(value) is not None
        before, after = _rows(
            tracked, operation, envelope, source=source, key=record.key, schema=schema, careful=careful
        )
        return RowChange(
            tracked.table,
            operation,
            before,
            after,
            FeedPosition(record.topic, record.partition, record.offset),
            _source_position(source, envelope.get("transaction")),
        )

    def _parse(self, topic: str, value: bytes) -> tuple[Any, WireSchema | None]:
        """Parse a record and take the payload out of `{schema, payload}`.

        All records of a topic usually begin with the same bytes: the schema, often longer than the payload. A
        beginning that was once seen to be a whole `{"schema": ..., "payload":` is not parsed again.
        """
        known = self._schemas.get(topic)
        try:
            if known is not None and known.is_prefix_of(value):
                try:
                    return orjson.loads(memoryview(value)[len(known.prefix) : -1]), known
                except orjson.JSONDecodeError:
                    pass  # not what the prefix promised: parse all of it
            document = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise RecordError(f"is not JSON: {error}; only JSON records are read (key and value converter)") from error
        if type(document) is not dict or "payload" not in document or "schema" not in document:
            return document, None
        if document["schema"] is None:
            return document["payload"], None
        schema = WireSchema(document["schema"], value)
        if schema.prefix:
            self._schemas[topic] = schema
        return document["payload"], schema

    def _find_table(self, record: RawRecord, source: Mapping[str, object]) -> TableDecoder:
        schema = source.get("schema") or source.get("db")
        name = source.get("table")
        if not schema or not name:
            parts = record.topic.split(".") if not record.topic.startswith("/") else []
            if len(parts) < 2:
                raise RecordError("does not name its table: source.schema (or source.db) and source.table are missing")
            schema, name = schema or parts[-2], name or parts[-1]
        if type(schema) is not str or type(name) is not str:
            raise RecordError(f"names its table by {shown(schema)} and {shown(name)}, which are no texts")
        tracked = self._tables.get((schema, name))
        if tracked is None:
            raise RecordError(
                f"changes table {schema + '.' + name!r}, which is not tracked; bootstrap it, or leave its topic out of "
                f"the feed"
            )
        return tracked


def shown(value: object) -> str:
    """Show a value in a message: escaped, and cut when long."""
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "..."


def _skip(record: RawRecord, reason: str) -> Skipped:
    return Skipped(FeedPosition(record.topic, record.partition, record.offset), reason)


def _without_op(record: RawRecord, envelope: dict[str, Any]) -> Skipped:
    """Recognise what Debezium sends beside changes; raise RecordError for anything else."""
    if record.topic.startswith("__debezium-heartbeat") or envelope.keys() == {"ts_ms"}:
        return _skip(record, "heartbeat")
    status = envelope.get("status")
    if status in ("BEGIN", "END") and "id" in envelope:
        at = FeedPosition(record.topic, record.partition, record.offset)
        counts = _event_counts(envelope.get("data_collections")) if status == "END" else None
        return TransactionMark(at, f"transaction {status}", str(envelope["id"]), counts)
    if "ddl" in envelope or "tableChanges" in envelope:
        return _skip(record, "schema change")
    raise RecordError(
        "has no op, so it is no change envelope; send Debezium's whole envelope (no ExtractNewRecordState transform)"
    )


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


def _rows(
    tracked: TableDecoder,
    operation: Operation,
    envelope: Mapping[str, Any],
    *,
    source: Mapping[str, object],
    key: bytes | None,
    schema: WireSchema | None,
    careful: bool,
) -> tuple[Row | None, Row | None]:
    """Decode the images that `operation` must have; raise RecordError for missing and superfluous ones."""
    before, after = envelope.get("before"), envelope.get("after")
    table, letter = tracked.table, operation.value
    if letter in "udt" and table.insert_only:
        raise RecordError(
            f"has op {letter}, but the source of {table} was declared insert-only; bootstrap it again without "
            f"--insert-only, or stop updates and deletes at the source"
        )
    for name, image, wanted in (("before", before, letter in "ud"), ("after", after, letter in "cru")):
        if image is not None and (not wanted or type(image) is not dict):
            raise RecordError(f"has op {letter} with {name}: {shown(image)}; expected {'a row' if wanted else 'null'}")
    if letter == "t":
        return None, None
    if letter in "cru" and after is None:
        raise RecordError(f"has op {letter} without an after-image; nothing can be read of the row of {table}")
    if letter in "ud":
        if before is None or not tracked.names.issubset(before):
            missing = "" if before is None else f" (it lacks {', '.join(sorted(tracked.names - before.keys()))})"
            raise RecordError(f"has op {letter} without the row before{missing}; {replica_identity(table)}")
        if source.get("connector") == "postgresql":
            tracked.refuse_key_alone(before, letter, key)
    if careful:
        before, after = tracked.fill_unavailable(before, after)
    decoders = tracked.decoders if schema is None else schema.decoders(tracked)
    return (
        None if before is None else tracked.row(before, decoders, "before", careful),
        None if after is None else tracked.row(after, decoders, "after", careful),
    )


def _source_position(source: Mapping[str, Any], transaction: object) -> dict[str, object]:
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
    return position

"""Own the decoding of Postgres' own change messages (pgoutput, protocol version 1) into row changes; pure.

A record of the direct feed holds one message as the server sent it, and in its headers what else tells its meaning:
`relation` (the message that describes its table), `types` (the columns' types as JSON, domains resolved) and
`transaction` (what the state keeps of the source's position, as JSON). So a record can be set aside, kept and read
again without the feed that gave it. Of a truncate, `T` alone is left, one record for each table; `P` and a name
stand for the truncate of one partition. `gone_from` names tables of which the record's may have been a partition.
"""

from __future__ import annotations

import shlex
import struct
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import orjson

from service.core.errors import RecordError, cut_message
from service.core.model import (
    NOT_FOLLOWED,
    UNAVAILABLE,
    Operation,
    RawRecord,
    Row,
    RowChange,
    SchemaDrift,
    Skipped,
    Table,
)
from service.core.retyping import UNTYPED, is_same_type
from service.stream.pgoutput_cells import TextDecoder, text_decoder
from service.stream.row_images import replica_identity

EPOCH_MICROSECONDS = 946_684_800_000_000
"""Postgres counts from 2000-01-01."""

GONE_TYPE = "???"
"""What format_type calls a type that is no more."""

_BEGIN = struct.Struct(">QqI")
_COMMIT = struct.Struct(">BQQq")
_LENGTH = struct.Struct(">I")
_UNCHANGED = "\0u"


class RelationColumn(NamedTuple):
    """Describe a column as the server sends it: `is_key` says that it belongs to the replica identity."""

    name: str
    is_key: bool
    type_oid: int
    modifier: int


class Relation(NamedTuple):
    """Describe a table as the server sends it; `identity` is pg_class.relreplident (d, n, f or i)."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


class Begin(NamedTuple):
    """Begin a transaction: where its commit begins in the log, when it was committed, and its id (32 bits)."""

    lsn: int
    committed_ms: int
    transaction_id: int


class Commit(NamedTuple):
    """End a transaction, where its commit begins in the log and where it ends."""

    lsn: int
    end_lsn: int


def parse_begin(message: bytes) -> Begin:
    """Read a Begin message."""
    lsn, moment, transaction_id = _BEGIN.unpack_from(message, 1)
    return Begin(lsn, (moment + EPOCH_MICROSECONDS) // 1000, transaction_id)


def parse_commit(message: bytes) -> Commit:
    """Read a Commit message."""
    _, lsn, end_lsn, _ = _COMMIT.unpack_from(message, 1)
    return Commit(lsn, end_lsn)


def parse_truncate(message: bytes) -> tuple[int, ...]:
    """Give the oids of the tables that a Truncate message empties."""
    (number,) = _LENGTH.unpack_from(message, 1)
    return struct.unpack_from(f">{number}I", message, 6)


def relation_oid(message: bytes) -> int:
    """Give the oid of the table that an Insert, Update, Delete or Relation message is about."""
    (oid,) = _LENGTH.unpack_from(message, 1)
    return int(oid)


def parse_relation(message: bytes) -> Relation:
    """Read a Relation message."""
    schema, at = _text(message, 5)
    name, at = _text(message, at)
    identity = chr(message[at])
    (number,) = struct.unpack_from(">H", message, at + 1)
    at += 3
    columns = []
    for _ in range(number):
        is_key = bool(message[at] & 1)
        column, at = _text(message, at + 1)
        oid, modifier = struct.unpack_from(">Ii", message, at)
        at += 8
        columns.append(RelationColumn(column, is_key, oid, modifier))
    return Relation(relation_oid(message), schema or "pg_catalog", name, identity, tuple(columns))


def renamed_relation(message: bytes, schema: str, name: str) -> bytes:
    """Give a Relation message with another name of its table."""
    rest = message.index(b"\0", message.index(b"\0", 5) + 1) + 1
    return message[:5] + schema.encode() + b"\0" + name.encode() + b"\0" + message[rest:]


class PgoutputDecoder:
    """Implement ports.Decoder for the records of a Postgres feed, of the tables of one source.

    Texts are made by the types that the record tells, which are those of its time. A table that is not followed is
    Skipped, or refused with `unknown_tables="refuse"`; columns that the state does not know, that are gone or have
    another type, raise SchemaDrift. Nothing but RecordError is ever raised, whatever the bytes are.
    """

    def __init__(
        self,
        tables: Iterable[Table],
        source: str | None = None,
        unknown_tables: Literal["ignore", "refuse"] = "ignore",
    ) -> None:
        self._ignores_unknown_tables = unknown_tables == "ignore"
        self.followed: Sequence[Table] = [table for table in tables if source is None or table.source == source]
        self._tables: dict[tuple[str, str], Table] = {}
        for table in self.followed:
            _, schema, name = table.wire or (None, table.schema, table.name)
            self._tables[schema, name] = table
        self._shapes: dict[tuple[bytes, bytes], _Shape | None] = {}
        self._transactions: tuple[bytes, dict[str, object]] = (b"", {})

    def decode(self, record: RawRecord) -> RowChange | Skipped:
        """Decode one record; raise RecordError for one that cannot be applied."""
        at = record.position
        if not record.value:
            return Skipped(at, "heartbeat")
        headers: dict[str, bytes] = dict(record.headers)  # type: ignore[arg-type]  # without a value: no message
        position = self._transaction(headers.get("transaction", b"{}"))
        try:
            shape = self._shape(headers["relation"], headers["types"])
            if shape is None:
                if "gone_from" in headers:
                    self._refuse_gone_partition(parse_relation(headers["relation"]), headers["gone_from"])
                if not self._ignores_unknown_tables:
                    raise _unknown(parse_relation(headers["relation"]))
                return Skipped(at, NOT_FOLLOWED)
            operation, before, after, key = shape.read(record.value)
        except SchemaDrift as drift:
            filled = frozenset(orjson.loads(headers["filled"])) if "filled" in headers else None
            raise SchemaDrift(
                cut_message(f"{at}: {drift}"), drift.table, drift.added, drift.missing, position, filled, drift.retyped
            ) from None
        except RecordError as error:
            raise RecordError(cut_message(f"{at}: {error}"), error.without_values) from None
        except (struct.error, KeyError, IndexError, TypeError, ValueError) as error:
            raise RecordError(
                f"{at}: is no message of pgoutput's protocol 1: {error!r}; is this record of another feed?"
            ) from error
        table = shape.table
        if table.null_tokens:
            before, after, key = table.nulled(before), table.nulled(after), table.nulled(key)
        return RowChange(table, operation, before, after, at, position, key)

    def _transaction(self, header: bytes) -> dict[str, object]:
        if self._transactions[0] is not header:
            try:
                self._transactions = (header, dict(orjson.loads(header)))
            except (orjson.JSONDecodeError, ValueError, TypeError):
                self._transactions = (header, {})
        return self._transactions[1]

    def _refuse_gone_partition(self, relation: Relation, gone_from: bytes) -> None:
        """Raise RecordError where a table that is not known may have been a partition of one that is followed."""
        sent = {column.name for column in relation.columns}
        for schema, name in orjson.loads(gone_from):
            table = self._tables.get((schema, name))
            columns = set() if table is None else {attribute.name.column for attribute in table.attributes}
            if table is not None and (columns <= sent or sent <= columns.union(table.stale)):
                raise RecordError(
                    f"changes {relation.schema}.{relation.name}, which is published no more, and may have been a "
                    f"partition of {table} until it was dropped or detached; read the source anew with `subsetd "
                    f"follow ... --replace`, or set its changes aside by --on-error all if it was none"
                )

    def _shape(self, relation: bytes, types: bytes) -> _Shape | None:
        known = (relation, types)
        if known not in self._shapes:
            parsed = parse_relation(relation)
            table = self._tables.get((parsed.schema, parsed.name))
            self._shapes[known] = None if table is None else _Shape(table, parsed, orjson.loads(types))
        return self._shapes[known]


class _Shape:
    """Read the rows of one table as one Relation message describes them."""

    def __init__(self, table: Table, relation: Relation, types: Sequence[str]) -> None:
        self.table = table
        self._relation = relation
        sent = {column.name: place for place, column in enumerate(relation.columns)}
        names = [attribute.name.column for attribute in table.attributes]
        known = {*names, *table.stale}
        # Of a type that was dropped since nobody has the name any more; the column was of the one that is known.
        kept = {a.name.column: a.data_type for a in table.attributes}
        types = [
            kept.get(column.name, told) if told == GONE_TYPE else told
            for column, told in zip(relation.columns, types, strict=True)
        ]
        self._added = [(c.name, types[i]) for i, c in enumerate(relation.columns) if c.name not in known]
        self._missing = [name for name in names if name not in sent]
        self._retyped = [
            (a.name.column, types[sent[a.name.column]])
            for a in table.attributes
            if a.data_type != UNTYPED
            and a.name.column in sent
            and not is_same_type(a.data_type, types[sent[a.name.column]])
        ]
        self._places = [sent[name] for name in names if name in sent]
        self._in_order = self._places == list(range(len(relation.columns)))
        self._decoders: list[TextDecoder | None] = [text_decoder(types[place]) for place in self._places]
        self._work: list[tuple[int, TextDecoder]] = [(i, d) for i, d in enumerate(self._decoders) if d is not None]
        self._sent_keys = {name for name in names if name in sent and relation.columns[sent[name]].is_key}

    def read(self, message: bytes) -> tuple[Operation, Row | None, Row | None, Row | None]:
        """Give (operation, before, after, key) of a message; see RowChange."""
        letter = message[:1]
        if letter != b"I" and self.table.insert_only:
            raise RecordError(
                f"has a {_NAMES.get(letter, 'change')}, but the source of {self.table} was declared insert-only; "
                f"bootstrap it again without --insert-only, or stop updates and deletes at the source"
            )
        if letter == b"P":
            raise RecordError(
                f"empties the partition {message[1:].decode()} of {self.table}, and which values were in it is not "
                f"known; read the source anew with `subsetd follow ... --replace`, and use DELETE in the place of "
                f"TRUNCATE there"
            )
        if letter == b"T":
            return Operation.TRUNCATE, None, None, None
        if self._added or self._missing or self._retyped:
            raise SchemaDrift(self._told_drift(), self.table, self._added, self._missing, retyped=self._retyped)
        mark, at = message[5:6], 6
        if letter == b"I":
            after = self._row(_tuple(message, at)[0])
            return Operation.CREATE, None, after, self._key_of(after) if self.table.row_images else None
        if letter == b"D":
            cells, _ = _tuple(message, at)
            if mark == b"O":
                return Operation.DELETE, self._row(cells), None, None
            return Operation.DELETE, None, None, self._old_key(cells)
        if letter != b"U":
            raise RecordError(f"is the message {letter!r}, which is no change of a row")
        old: list[str | None] | None = None
        if mark in (b"O", b"K"):
            old, at = _tuple(message, at)
            at += 1
        new, _ = _tuple(message, at)
        if mark == b"O":
            assert old is not None
            new = [before if cell is _UNCHANGED else cell for before, cell in zip(old, new, strict=True)]
            return Operation.UPDATE, self._row(old), self._row(new), None
        if not self.table.row_images:
            raise RecordError.plain(f"has an update without the row before; {replica_identity(self.table)}")
        after = self._row(new)
        if old is not None:
            return Operation.UPDATE, None, after, self._old_key(old)
        self._require_key()
        return Operation.UPDATE, None, after, self._key_of(after)

    def _row(self, cells: list[str | None]) -> Row:
        if len(cells) != len(self._relation.columns):
            raise IndexError(f"a row of {len(cells)} cells for {len(self._relation.columns)} columns")
        if not self._in_order:
            cells = [cells[place] for place in self._places]
        for i, decode in self._work:
            cell = cells[i]
            if cell is not None and cell is not _UNCHANGED:
                cells[i] = self._decoded(i, decode, cell)
        if _UNCHANGED in cells:
            if not self.table.row_images:
                columns = [
                    a.name.column for a, cell in zip(self.table.attributes, cells, strict=True) if cell is _UNCHANGED
                ]
                raise RecordError.plain(
                    f"does not have the value of {', '.join(map(repr, columns))}, which did not change; "
                    f"{replica_identity(self.table)}"
                )
            cells = [UNAVAILABLE if cell is _UNCHANGED else cell for cell in cells]
        return tuple(cells)

    def _decoded(self, place: int, decode: TextDecoder, cell: str) -> str | None:
        try:
            return decode(cell)
        except (RecordError, ValueError) as error:
            column = self.table.attributes[place]
            raise RecordError(
                f"column {column.name}: {error}", f"column {column.name}: a value is no {column.data_type}"
            ) from None

    def _old_key(self, cells: list[str | None]) -> Row:
        """Take the key out of a tuple that holds the replica identity's columns alone."""
        table = self.table
        if not table.row_images:
            raise RecordError.plain(f"has a change without the row before; {replica_identity(table)}")
        self._require_key()
        return self._key_of(self._row(cells))

    def _require_key(self) -> None:
        """Raise RecordError where the replica identity does not tell by what the state keeps the table's rows."""
        table = self.table
        needed = {table.attributes[place].name.column for place in table.key}
        if not needed or not needed <= self._sent_keys:
            raise RecordError(
                f"tells the old row of {table} by {', '.join(sorted(self._sent_keys)) or 'nothing'}, but its rows are "
                f"kept by {', '.join(sorted(needed)) or 'no key'}; {replica_identity(table)}"
            )

    def _key_of(self, row: Row) -> Row:
        return tuple(row[place] for place in self.table.key)

    def _told_drift(self) -> str:
        parts = []
        if self._added:
            parts.append("the new column " + ", ".join(repr(name) for name, _ in self._added))
        if self._missing:
            parts.append("no column " + ", ".join(map(repr, self._missing)))
        if self._retyped:
            parts.append("another type: " + ", ".join(f"{name!r} is {kind}" for name, kind in self._retyped))
        return f"table {self.table} has {' and '.join(parts)} now"


def _unknown(relation: Relation) -> RecordError:
    name = f"{relation.schema}.{relation.name}"
    rename = shlex.join(["subsetd", "attribute", "rename", "OLD", name])
    return RecordError(
        f"changes table {name!r}, which is not followed; if a followed one has this name now, `{rename}`, else follow "
        f"without SUBSETD_UNKNOWN_TABLES=refuse"
    )


_NAMES = {b"U": "update", b"D": "delete", b"T": "truncate", b"P": "truncate"}


def _tuple(message: bytes, at: int) -> tuple[list[str | None], int]:
    """Read a tuple of texts that begins at `at`; give its cells, `_UNCHANGED` for what was not sent, and its end."""
    number = message[at] << 8 | message[at + 1]
    at += 2
    cells: list[str | None] = []
    add, length_of = cells.append, _LENGTH.unpack_from
    # Cutting one text is faster than making many out of bytes, where a byte is a character.
    text = message.decode("latin-1") if message[6:].isascii() else None
    for _ in range(number):
        kind = message[at]
        at += 1
        if kind == 116:  # t
            (length,) = length_of(message, at)
            at += 4
            end = at + length
            add(message[at:end].decode() if text is None else text[at:end])
            at = end
        elif kind == 110:  # n
            add(None)
        elif kind == 117:  # u
            add(_UNCHANGED)
        else:
            raise IndexError(f"a cell of the unknown kind {kind}")
    if at > len(message):
        raise IndexError("the message ends inside a cell")
    return cells, at


def _text(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(b"\0", at)
    return message[at:end].decode(), end + 1

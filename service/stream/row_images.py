"""Own one table's before- and after-images: are they whole, and which canonical row are they."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from hashlib import md5
from operator import itemgetter
from typing import Any
from uuid import UUID

from service.core.cell_decoding import WireSettings, bare_cell_decoder
from service.core.errors import RecordError
from service.core.model import NULL_IN_DOUBT, UNAVAILABLE, FeedPosition, Row, SchemaDrift, Table
from service.core.sql_names import sql_name

Image = Mapping[str, Any]

DEFAULT_SETTINGS = WireSettings()

_TEXT_DECODERS = tuple(bare_cell_decoder(data_type, DEFAULT_SETTINGS) for data_type in ("text", "character(1)"))

PLACEHOLDER = "__debezium_unavailable_value"
"""What Debezium sends for a value that it was not given, because it did not change."""

_UNAVAILABLE_UUID = str(UUID(bytes=md5(PLACEHOLDER.encode(), usedforsecurity=False).digest(), version=3))
_UNAVAILABLE_TEXTS = frozenset(
    {
        PLACEHOLDER,
        "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",  # as bytes, base64
        "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ",  # as bytes, base64 without padding
        PLACEHOLDER.encode().hex(),
        f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}',  # of hstore, as JSON
    }
)
_UNAVAILABLE_BYTES = list(PLACEHOLDER.encode())  # of an array of numbers
_SIGNS: tuple[bytes, ...] = (PLACEHOLDER.encode(), b"X19kZWJleml1bV91bmF2", b"5f5f64656265", b"95,95,100,101,98")
_SIGNS += (_UNAVAILABLE_UUID.encode(), b"\\u0000")
_TEXT_OR_NULL = frozenset({str, type(None)})
_ARRAYS_WITH_PLACEHOLDER = frozenset(
    f"{element}[]"
    for element in (
        *("text", "character varying", "character", "bpchar", "json", "jsonb", "uuid"),
        *("bytea", "integer", "bigint", "date"),
    )
)
_WITHOUT_PLACEHOLDER = frozenset({"vector", "halfvec", "sparsevec", "geometry", "geography"})
_FILLERS = re.compile(r"(?:0(?:\.0+)?|AA==|\{\}|P0Y0M0DT0H0M0S|1970-01-01.*|00:00:00.*)?")
_MEMORABLE = frozenset({str, int, float})
_DECODING_FAULTS = (RecordError, ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RecursionError)


class Decoders:
    """Hold the decoders of a table's cells, twice: quick ones, and those that tell what is wrong with a cell."""

    def __init__(self, types: Iterable[tuple[str, WireSettings]]) -> None:
        types = tuple(types)
        self.bare = tuple(bare_cell_decoder(data_type, settings) for data_type, settings in types)
        self.telling = tuple(settings.decoder(data_type) for data_type, settings in types)


class TableDecoder:
    """Decode the row images of one table."""

    def __init__(
        self, table: Table, settings: WireSettings = DEFAULT_SETTINGS, late: frozenset[str] = frozenset()
    ) -> None:
        """Decode rows as they are now, or those from before its columns `late` became what they are."""
        self.table = table
        self.late = late
        self._of_late: dict[frozenset[str], TableDecoder] = {}
        self._changed_ms = max((since.ts_ms for since in table.since.values()), default=-1)
        self.settings = settings
        self.columns = tuple(attribute.name.column for attribute in table.attributes)
        self.names = frozenset(self.columns)
        self.decoders = Decoders((a.data_type, settings) for a in table.attributes)
        self.has_row_images = table.row_images and bool(table.key)
        self.key_columns = tuple(self.columns[place] for place in table.key)
        self.has_text_key = len(table.key) == 1 and self.decoders.bare[table.key[0]] in _TEXT_DECODERS
        self._sends_whole_rows = table.has_full_identity
        self._stale = frozenset(table.stale)
        self._cells = _getter(self.columns)
        self._only_texts = all(attribute.data_type == "string" for attribute in table.attributes)
        self._without_placeholder = tuple(
            place
            for place, attribute in enumerate(table.attributes)
            if place not in table.key and lacks_placeholder(attribute.data_type)
        )

    def at(self, position: FeedPosition, source_position: Mapping[str, Any]) -> TableDecoder:
        """Give the decoder for a record of this place: it may be from before a change of columns that is known."""
        ts_ms = source_position.get("ts_ms", 0)
        if ts_ms > self._changed_ms:
            return self
        late = frozenset(c for c, since in self.table.since.items() if since.is_behind(position, ts_ms))
        if not late:
            return self
        if late not in self._of_late:
            self._of_late[late] = TableDecoder(self.table, self.settings, late)
        self._of_late[late]._sends_whole_rows |= self._sends_whole_rows
        return self._of_late[late]

    def was(self, column: str) -> list[str]:
        """Give the names that one of the late columns had, the last one first, but for those of other columns now."""
        return [name for name in reversed(self.table.since[column].was) if name not in self.names]

    def as_now(self, image: Image | None) -> dict[str, Any] | None:
        """Give an image that is from before changes of columns as it would be behind them."""
        if image is None:
            return None
        now = dict(image)
        for column in self.late - image.keys():
            name = next((name for name in self.was(column) if name in now), None)
            since = self.table.since[column]
            if name is not None:
                now[column] = now.pop(name)
            elif since.is_new and image.keys().isdisjoint(since.was):
                now[column] = None
        return now

    def row(
        self,
        image: Image,
        decoders: Decoders,
        which: str,
        *,
        careful: bool,
        like: tuple[Image, Row] | None = None,
        data_type: Callable[[str], str] | None = None,
    ) -> Row:
        """Give the canonical texts of an image's cells, in the order of the table's attributes.

        `careful` looks for cells that were not sent (UNAVAILABLE in the row) and for NUL characters as well; the
        caller knows whether the record can hold any. `like` is another image of the same record and its row, whose
        texts serve again. Raises SchemaDrift where the image has other columns than the table; `data_type` tells
        the types of new ones.
        """
        if self._stale and not self._stale.isdisjoint(image):
            image = {column: cell for column, cell in image.items() if column not in self._stale}
        try:
            cells = self._cells(image)
        except KeyError:
            cells = ()
        if len(image) != len(cells) or not (cells or (self._stale and not self.columns)):
            raise self.drift(image, which, data_type)
        if careful:
            return self._careful_row(cells, decoders, which)
        if self._only_texts and decoders is self.decoders and _TEXT_OR_NULL.issuperset(map(type, cells)):
            return cells
        try:
            if like is None:
                return tuple([None if c is None else decode(c) for decode, c in zip(decoders.bare, cells, strict=True)])
            return tuple(
                [
                    text
                    if c == other and c.__class__ is other.__class__ and c.__class__ in _MEMORABLE
                    else (None if c is None else decode(c))
                    for decode, c, other, text in zip(decoders.bare, cells, self._cells(like[0]), like[1], strict=True)
                ]
            )
        except _DECODING_FAULTS:
            return self._row_naming_the_fault(cells, decoders, which)

    def _careful_row(self, cells: Sequence[object], decoders: Decoders, which: str) -> Row:
        unavailable = [is_unavailable(cell) for cell in cells]
        sent = [None if missing else cell for cell, missing in zip(cells, unavailable, strict=True)]
        row = self._row_naming_the_fault(sent, decoders, which)
        for column, text in zip(self.columns, row, strict=True):
            if text is not None and "\0" in text:
                raise RecordError.plain(
                    f"its {which}-image of {self.table} has a NUL character in column {column!r}, which the state "
                    f"cannot hold; clean it at the source"
                )
        return tuple([UNAVAILABLE if missing else text for text, missing in zip(row, unavailable, strict=True)])

    def drift(self, image: Image, which: str, data_type: Callable[[str], str] | None) -> SchemaDrift:
        """Say how an image's columns differ from the table's; raise RecordError for a name that no column can have."""
        added, missing = sorted(image.keys() - self.names), sorted(self.names - image.keys())
        if any("\0" in column for column in added):
            raise RecordError(
                f"its {which}-image of {self.table} has a NUL character in the name of a column ({listed(added)}); no "
                f"database has such a column: mend what sends these records"
            )
        faults = []
        if missing:
            faults.append(f"lacks {listed(missing)} (send all columns)")
        if added:
            faults.append(f"has the unknown column {listed(added)}")
        return SchemaDrift(
            f"its {which}-image of {self.table} {' and '.join(faults)}; if columns were added, dropped or renamed, "
            f"bootstrap again with --replace",
            self.table,
            tuple((column, data_type(column) if data_type else "string") for column in added),
            tuple(missing),
        )

    def key(self, image: Image | None, decoders: Decoders, which: str) -> Row | None:
        """Give the canonical texts of the key's cells; None where the image does not have them all."""
        if image is None:
            return None
        if self.late:
            image = self.as_now(image) or {}
        try:
            cells = [image[column] for column in self.key_columns]
        except KeyError:
            return None
        if any(is_unavailable(cell) for cell in cells) or all(cell is None for cell in cells):
            return None
        try:
            return tuple(
                [None if c is None else decoders.telling[at](c) for at, c in zip(self.table.key, cells, strict=True)]
            )
        except _DECODING_FAULTS as error:
            raise RecordError(f"the key in its {which} cannot be read as the key of {self.table}: {error}") from error

    def _row_naming_the_fault(self, cells: Sequence[object], decoders: Decoders, which: str) -> Row:
        """Decode cell by cell, to name the column whose cell cannot be decoded."""
        texts: list[str | None] = []
        for attribute, cell, decode in zip(self.table.attributes, cells, decoders.telling, strict=True):
            try:
                texts.append(None if cell is None else decode(cell))
            except _DECODING_FAULTS as error:
                place = f"its {which}-image of {self.table}, column {attribute.name.column!r}"
                raise RecordError(
                    f"{place} of type {attribute.data_type}: {error}", f"{place}: a value is no {attribute.data_type}"
                ) from error
        return tuple(texts)

    def fill_unavailable(self, before: Row | None, after: Row | None) -> tuple[Row | None, Row | None]:
        """Put the text before in the place of one that was not sent because it did not change (TOAST).

        If neither row has it, it becomes NULL in both: no difference, so nothing is applied. Raises RecordError
        where the text is needed, also for a tuple of which another part changes.
        """
        unknown_before, unknown_after = _unavailable_places(before), _unavailable_places(after)
        if not unknown_before and not unknown_after:
            return before, after
        is_update = before is not None and after is not None
        needed = unknown_before - unknown_after if is_update else unknown_before | unknown_after
        if needed:
            raise RecordError.plain(
                f"does not hold the value of {listed(self.columns[place] for place in needed)} (a large value that "
                f"did not change); {replica_identity(self.table)}"
            )
        assert before is not None
        assert after is not None
        self.refuse_half_tuples(unknown_before, before, after)
        before = tuple([None if text == UNAVAILABLE else text for text in before])
        return before, tuple([b if a == UNAVAILABLE else a for b, a in zip(before, after, strict=True)])

    def doubt_nulls(self, before: Image | None, after: Row | None) -> Row | None:
        """Mark the NULLs of a row of a Postgres connector's that may be large values which an update did not change.

        Of some types it has no placeholder, and what it cannot send it leaves out: that is NULL, too. Only a source
        that sends whole rows, or a value in the row before, shows that a NULL is one.
        """
        if after is None or not self._without_placeholder or self.table.has_full_identity:
            return after
        doubtful = {
            place
            for place in self._without_placeholder
            if after[place] is None and (before is None or before.get(self.columns[place]) is None)
        }
        if not doubtful:
            return after
        return tuple([NULL_IN_DOUBT if place in doubtful else text for place, text in enumerate(after)])

    def refuse_half_tuples(self, unknown: Set[int], before: Sequence[object], after: Sequence[object]) -> None:
        """Raise RecordError where a tuple changes of which a part is at one of the places that neither row tells."""
        for derived in self.table.derived:
            hidden = unknown & set(derived.places)
            told = [(before[place], after[place]) for place in derived.places if place not in hidden]
            was_there, is_there = (None not in cells for cells in zip(*told, strict=True)) if told else (True, True)
            if hidden and any(old != new for old, new in told) and (was_there or is_there):
                raise RecordError.plain(
                    f"does not hold the value of {listed(self.columns[place] for place in hidden)} (a large value that "
                    f"did not change), and the tuple {derived.attribute.name} changes with another part: bootstrap "
                    f"again with --replace --row-images always, or drop that key with `subsetd keys drop`"
                )

    def refuse_key_alone(
        self,
        before: Image,
        letter: str,
        keys: frozenset[str],
        fields: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Raise RecordError if the before-image may be the key (`keys`, where known) and fillers for all other columns.

        Replica identity DEFAULT sends deletes so. A value outside of the key, in any record, shows that whole rows are
        sent, unless Debezium may have filled it in. `fields` are those of the record's schema.
        """
        if not keys or self._sends_whole_rows or keys.issuperset(self.names):
            return
        if not all(may_be_filler(before[column], (fields or {}).get(column, {})) for column in self.names - keys):
            self._sends_whole_rows = True
        elif letter == "d":
            raise RecordError(
                f"deletes a row of {self.table} of which only the key is known ({', '.join(sorted(keys))}), or all "
                f"else was NULL, a default or a zero; {replica_identity(self.table)}"
            )

    @property
    def may_send_keys_alone(self) -> bool:
        """Tell whether it is not known yet that before-images are whole."""
        return not self._sends_whole_rows


def may_be_filler(value: object, field: Mapping[str, Any]) -> bool:
    """Tell whether Debezium may have sent a value for one that it was not given, by the schema of its column.

    That is NULL, or where a column is NOT NULL its default, or a zero of its type. A converter may also send a default
    where there may be NULL.
    """
    if value is None or field.get("default") is not None:
        return True
    if field.get("optional") is True:
        return False
    return _FILLERS.fullmatch(value) is not None if type(value) is str else type(value) is dict or not value


def lacks_placeholder(data_type: str) -> bool:
    """Tell whether a Postgres connector has nothing that it could send for a value of a type that did not change."""
    bare = re.sub(r"\([^)]*\)", "", data_type)
    if bare.endswith("[]"):
        return bare not in _ARRAYS_WITH_PLACEHOLDER
    return bare.rpartition(".")[2] in _WITHOUT_PLACEHOLDER


def replica_identity(table: Table) -> str:
    """Say how Postgres is told to send whole rows, by the name that the table has there."""
    in_sql = sql_name(*(table.wire or (None, table.schema, table.name))[1:])
    return (
        f"let the source send whole rows and bootstrap again with --replace: ALTER TABLE {in_sql} REPLICA IDENTITY FULL"
    )


def listed(columns: Iterable[str]) -> str:
    """List columns in a message: quoted, and the first ten."""
    return ", ".join(sorted(map(repr, columns))[:10])


def _getter(columns: Sequence[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    if len(columns) > 1:
        return itemgetter(*columns)
    return lambda image: tuple([image[column] for column in columns])


def _unavailable_places(row: Row | None) -> set[int]:
    return {place for place, text in enumerate(row or ()) if text == UNAVAILABLE}


def needs_care(value: bytes) -> bool:
    """Tell whether a JSON record may hold a placeholder of Debezium's, or a NUL character."""
    return any(sign in value for sign in _SIGNS)


def is_unavailable(cell: object) -> bool:
    """Tell whether a cell is Debezium's placeholder of a value that did not change, in any of its forms."""
    if type(cell) is str:
        return cell in _UNAVAILABLE_TEXTS
    if type(cell) is list and cell:
        first = cell[0]
        if type(first) is str:
            return len(cell) == 1 and (first in _UNAVAILABLE_TEXTS or first == _UNAVAILABLE_UUID)
        return cell == _UNAVAILABLE_BYTES
    return cell == {PLACEHOLDER: PLACEHOLDER}

"""Own one table's before- and after-images: are they whole, and which canonical row are they."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import orjson

from service.core.canonical import cell_decoder
from service.core.errors import RecordError
from service.core.model import Row, Table

CellDecoder = Callable[[object], str | None]

_UNAVAILABLE = "__debezium_unavailable_value"
_UNAVAILABLE_FORMS = frozenset(
    {
        _UNAVAILABLE,
        "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",  # as bytes, base64
        "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ",  # as bytes, base64 without padding
        _UNAVAILABLE.encode().hex(),
    }
)
_TEXT_OR_NULL = frozenset({str, type(None)})
_DECODING_FAULTS = (RecordError, ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RecursionError)


class TableDecoder:
    """Decode the row images of one table."""

    def __init__(self, table: Table, complete_before: bool = False) -> None:
        self.table = table
        self.columns = tuple(attribute.name.column for attribute in table.attributes)
        self.names = frozenset(self.columns)
        self.decoders: tuple[CellDecoder, ...] = tuple(
            cell_decoder(attribute.data_type) for attribute in table.attributes
        )
        self.complete_before = complete_before
        self._cells = _getter(self.columns)
        self._only_texts = all(attribute.data_type == "string" for attribute in table.attributes)

    def row(self, image: Mapping[str, Any], decoders: Sequence[CellDecoder], which: str, careful: bool) -> Row:
        """Give the canonical texts of an image's cells, in the order of the table's attributes.

        `careful` looks for NUL characters as well; the caller knows whether the record can hold any.
        """
        try:
            cells = self._cells(image)
        except KeyError:
            raise RecordError(
                f"its {which}-image of {self.table} is incomplete: it lacks {_listed(self.names - image.keys())}; send "
                f"all columns, or bootstrap again with --replace if a column was dropped or renamed"
            ) from None
        if len(image) != len(cells):
            raise RecordError(
                f"its {which}-image of {self.table} has the unknown column {_listed(image.keys() - self.names)}; "
                f"bootstrap again with --replace if it was added"
            )
        row: Row
        if self._only_texts and decoders is self.decoders and _TEXT_OR_NULL.issuperset(map(type, cells)):
            row = cells
        else:
            try:
                row = tuple([None if c is None else decode(c) for decode, c in zip(decoders, cells, strict=True)])
            except _DECODING_FAULTS:
                row = self._row_naming_the_fault(cells, decoders, which)
        if careful:
            for column, text in zip(self.columns, row, strict=True):
                if text is not None and "\0" in text:
                    raise RecordError(
                        f"its {which}-image of {self.table} has a NUL character in column {column!r}, which the state "
                        f"cannot hold; clean it at the source"
                    )
        return row

    def _row_naming_the_fault(self, cells: Sequence[object], decoders: Sequence[CellDecoder], which: str) -> Row:
        """Decode cell by cell, to name the column whose cell cannot be decoded."""
        texts: list[str | None] = []
        for attribute, cell, decode in zip(self.table.attributes, cells, decoders, strict=True):
            try:
                texts.append(None if cell is None else decode(cell))
            except _DECODING_FAULTS as error:
                raise RecordError(
                    f"its {which}-image of {self.table}, column {attribute.name.column!r} of type "
                    f"{attribute.data_type}: {error}"
                ) from error
        return tuple(texts)

    def fill_unavailable(
        self, before: dict[str, Any] | None, after: dict[str, Any] | None
    ) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """Put the cell before in the place of one that was not sent because it did not change (TOAST).

        If neither image has it, it becomes NULL in both: no difference, so nothing is applied. Raises RecordError
        where the cell is needed.
        """
        unknown_before = _unavailable_columns(before)
        unknown_after = _unavailable_columns(after)
        if not unknown_before and not unknown_after:
            return before, after
        needed = unknown_before ^ unknown_after if before is None or after is None else unknown_before - unknown_after
        if needed:
            raise RecordError(
                f"does not hold the value of {_listed(needed)} (a large value that did not change); "
                f"{replica_identity(self.table)}"
            )
        assert before is not None
        assert after is not None
        before = {**before, **dict.fromkeys(unknown_before)}
        return before, {**after, **{column: before.get(column) for column in unknown_after}}

    def refuse_key_alone(self, before: Mapping[str, Any], letter: str, key: bytes | None) -> None:
        """Raise RecordError if the before-image may be the key with NULL for all other columns.

        Replica identity DEFAULT sends deletes so. Any value outside of the key, in any record, shows that whole rows
        are sent.
        """
        if self.complete_before or key is None:
            return
        keys = _key_columns(key)
        if keys and not keys.issuperset(self.names):
            if any(before[column] is not None for column in self.names - keys):
                self.complete_before = True
            elif letter == "d":
                raise RecordError(
                    f"deletes a row of {self.table} of which only the key is known ({', '.join(sorted(keys))}), or all "
                    f"else was NULL; {replica_identity(self.table)}"
                )


def replica_identity(table: Table) -> str:
    """Say how Postgres is told to send whole rows."""
    return (
        f"let the source send whole rows and bootstrap again with --replace: ALTER TABLE {_quoted(table.schema)}."
        f"{_quoted(table.name)} REPLICA IDENTITY FULL"
    )


def _listed(columns: Iterable[str]) -> str:
    return ", ".join(sorted(map(repr, columns))[:10])


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'


def _getter(columns: Sequence[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    if len(columns) > 1:
        return itemgetter(*columns)
    return lambda image: tuple([image[column] for column in columns])


def _unavailable_columns(image: Mapping[str, Any] | None) -> set[str]:
    return {column for column, cell in (image or {}).items() if _is_unavailable(cell)}


def _is_unavailable(cell: object) -> bool:
    if type(cell) is str:
        return cell in _UNAVAILABLE_FORMS
    return cell in ([_UNAVAILABLE], {_UNAVAILABLE: _UNAVAILABLE})


def _key_columns(key: bytes) -> frozenset[str]:
    """Name the columns of a record's key; none if it is no JSON object."""
    try:
        document = orjson.loads(key)
    except orjson.JSONDecodeError:
        return frozenset()
    if type(document) is dict and document.keys() == {"schema", "payload"}:
        document = document["payload"]
    return frozenset(document) if type(document) is dict else frozenset()

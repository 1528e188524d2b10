"""Own what another type of a column means for the canonical texts of the values that were there before; pure.

`ALTER TABLE ... TYPE` rewrites the rows of a table and tells no change of them. Where the text of every value as it was
is the text of its cast, what was counted stays true. Types have the names that Postgres' format_type gives them, or
those that a record's schema is read as (stream/wire_schema.py).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from service.core.moment_decoding import is_interval

UNTYPED: Final = "string"
"""The type of a column of which nothing but its texts is known."""

_WIDTHS = {"smallint": 2, "integer": 4, "bigint": 8}
_TEXTS = ("text", "character varying")
_PADDED = ("character", "bpchar")
_CLOCKS = ("timestamp without time zone", "timestamp with time zone", "time without time zone", "time with time zone")
_DOCUMENTS = ("json", "jsonb")

_QUALIFIER = re.compile(r'(?:"(?:[^"]|"")*"|[^".(<\[]+)\.')
_MODIFIER = re.compile(r"\(([-0-9, ]+)\)")


class _Type(NamedTuple):
    base: str
    modifiers: tuple[int, ...]
    is_array: bool

    @property
    def scale(self) -> int | None:
        """Give the places behind a numeric's point; None: any."""
        return (*self.modifiers, 0)[1] if self.modifiers else None

    @property
    def precision(self) -> int:
        """Give the places of a second that a moment has."""
        return self.modifiers[0] if self.modifiers else 6


def is_same_type(known: str, told: str) -> bool:
    """Tell whether two names are of one type: the schema of a type may be named or not."""
    return known == told or _unqualified(known) == _unqualified(told)


def keeps_texts(old: str, new: str) -> bool:
    """Tell whether each value's canonical text as `old` is that of its cast to `new`, in Postgres, without USING.

    A value that the cast refuses does not count: then there is no such ALTER TABLE.
    """
    if is_same_type(old, new):
        return True
    was, now = _parsed(old), _parsed(new)
    if was.is_array != now.is_array or (was.is_array and _form(was) != _form(now)):
        return False
    to_text = now.base in _TEXTS
    if was.base in _WIDTHS:
        return now.base in _WIDTHS or to_text or (now.base == "numeric" and (now.scale is None or now.scale >= 0))
    if was.base == "numeric":
        if now.base == "numeric":
            return now.scale is None or (was.scale is not None and was.scale <= now.scale)
        return was.scale is not None and was.scale <= 0 and (to_text or now.base in _WIDTHS)
    if was.base in _TEXTS:
        return to_text and (not now.modifiers or (bool(was.modifiers) and was.modifiers <= now.modifiers))
    if was.base in _PADDED:
        return to_text or now.base in _PADDED
    if was.base in ("boolean", "uuid"):
        return to_text
    if was.base in _CLOCKS:
        return was.base == now.base and was.precision <= now.precision
    if was.base in _DOCUMENTS:
        return now.base in _DOCUMENTS
    return is_interval(was.base) and now.base == "interval" and not now.modifiers


def shows_other_type(known: str, told: str) -> bool:
    """Tell whether cells that a record's schema says to be `told` cannot be of a column of the type `known`.

    Encodings tell less than types: a decimal may come as a text or a float, a moment, document or binary as a text, and
    lengths and precisions do not show. Integers that are narrower than they might be are no news, for records from
    before may come late. Of types that are not known here, and of `string`, nothing is said.
    """
    was, now = _parsed(known), _parsed(told)
    kind, encoding = _kind(was), _kind(now)
    if kind is None or encoding is None:
        return False
    if was.is_array != now.is_array:
        return now.is_array or encoding != "text"
    if kind == encoding == "integer":
        return _WIDTHS[now.base] > _WIDTHS[was.base]
    if kind == encoding == "numeric":
        return was.scale != now.scale
    if kind == encoding or (encoding == "text" and kind not in ("integer", "boolean", "real", "double", "uuid")):
        return False
    if (kind, encoding) == ("numeric", "double"):
        return False
    return {kind, encoding} != {"integer", "numeric"} or (was if kind == "numeric" else now).scale != 0


_KINDS = {
    **dict.fromkeys(_WIDTHS, "integer"),
    **dict.fromkeys((*_TEXTS, *_PADDED), "text"),
    **dict.fromkeys(_CLOCKS[:2], "timestamp"),
    **dict.fromkeys(_CLOCKS[2:], "time"),
    **dict.fromkeys(_DOCUMENTS, "json"),
    **{base: base for base in ("numeric", "real", "boolean", "date", "uuid", "bytea")},
    "double precision": "double",
    _CLOCKS[1]: "zoned timestamp",
    _CLOCKS[3]: "zoned time",
}


def _kind(of: _Type) -> str | None:
    """Name what values a type has as far as an encoding tells; None where that is not known."""
    if of.base.startswith("timestamp["):
        return "zoned timestamp" if "tz=" in of.base else "timestamp"
    if of.base.startswith(("time32[", "time64[")):
        return "time"
    is_duration = of.base.startswith("duration[") or is_interval(of.base)
    return "interval" if is_duration else _KINDS.get(of.base)


def _form(of: _Type) -> str | None:
    """Tell how an element is written in the document that an array's text is."""
    if of.base in _WIDTHS or of.base == "numeric":
        return "number"
    return of.base if of.base in ("boolean", *_DOCUMENTS) else "string"


def _parsed(name: str) -> _Type:
    name = _unqualified(name)
    is_array = name.endswith("[]")
    name = name.removesuffix("[]")
    found = _MODIFIER.search(name)
    modifiers = tuple(int(part) for part in found[1].split(",")) if found else ()
    return _Type(" ".join(_MODIFIER.sub("", name).split()), modifiers, is_array)


def _unqualified(name: str) -> str:
    found = _QUALIFIER.match(name)
    return name[found.end() :] if found else name

"""Own what the output texts of Postgres' types become: canonical texts, equal to those of a bootstrap; pure.

The texts are those of a session with the settings of POSTGRES_SESSION_SETTINGS.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from service.core.cell_decoding import cell_decoder
from service.core.errors import RecordError

TextDecoder = Callable[[str], str | None]

_PLAIN = {
    *("smallint", "integer", "bigint", "oid", "xid", "xid8", "text", "character varying", "uuid", "name", '"char"'),
    *("cidr", "macaddr", "macaddr8", "bit varying", "xml", "tsvector", "tsquery", "pg_lsn"),
}
"""Types whose output is their canonical text."""

_DELIMITERS = {"box": ";", "geometry": ":", "geography": ":"}
"""What stands between the elements of an array of a type; the last two are PostGIS'."""
_PLAIN_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def text_decoder(data_type: str) -> TextDecoder | None:
    """Choose what turns a type's output text into its canonical text; None where it is that already.

    `data_type` is format_type's name, of a domain its base type's. The decoder raises RecordError or ValueError for
    what is no text of the type.
    """
    name = data_type.strip().lower()
    base = re.sub(r"\([^)]*\)", "", name).strip()
    if base in _PLAIN or base == "bit":
        return None
    if name.endswith("[]"):
        return _array_decoder(name)
    decode = cell_decoder(data_type, "string", "hex")
    if base == "date":
        return lambda text: text if _PLAIN_DATE.fullmatch(text) else decode(text)
    if base == "numeric":
        return lambda text: _numeric(text) or decode(text)
    if base == "boolean":
        return {"t": "true", "f": "false"}.__getitem__
    return decode


def _numeric(text: str) -> str | None:
    """Cut the zeros of a plain decimal; None for what needs more care."""
    if "." not in text:
        return text if text.isdigit() else None
    cut = text.rstrip("0")
    if cut.endswith("."):
        cut = cut[:-1]
    return None if cut == "-0" else cut


def _array_decoder(name: str) -> TextDecoder:
    decode = cell_decoder(name, "string", "hex")
    delimiter = _DELIMITERS.get(re.sub(r"\([^)]*\)", "", name).rstrip("[]").strip(), ",")
    return lambda text: decode(parse_array(text, delimiter))


def parse_array(text: str, delimiter: str = ",") -> list[object]:
    """Read an array as Postgres writes it: nested lists of texts, None for NULL; bounds are passed over."""
    at = text.index("=") + 1 if text.startswith("[") else 0
    item = re.compile(rf'"((?:[^"\\]|\\.)*)"|([^"{{}}\\{delimiter}]+)', re.DOTALL)
    stack: list[list[object]] = []
    while at < len(text):
        mark = text[at]
        if mark == "{":
            inner: list[object] = []
            if stack:
                stack[-1].append(inner)
            stack.append(inner)
            at += 1
        elif mark == "}":
            closed = stack.pop()
            at += 1
            if not stack:
                if at != len(text):
                    break
                return closed
        elif mark == delimiter:
            at += 1
        else:
            found = item.match(text, at)
            if found is None or not stack:
                break
            quoted, bare = found.groups()
            if bare is None:
                stack[-1].append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
            else:
                stack[-1].append(None if bare.upper() == "NULL" else bare)
            at = found.end()
    raise RecordError(f"{text[:80]!r} is no array as Postgres writes it")

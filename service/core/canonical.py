"""Own the canonical text of a cell and the 128-bit key of a value (architecture.md, section 3; design note 1).

The text forms are in `canonical_forms`, the reading of change events in `cell_decoding`, whole Arrow arrays in
`canonical_arrow`, Postgres' expressions in `service.store.canonical_sql`; all of them give the same text.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from hashlib import sha256
from typing import Final, NoReturn
from uuid import UUID

import numpy as np
import pyarrow as pa

from service.core import canonical_forms as forms
from service.core.canonical_arrow import VALUE_BYTES, key_array
from service.core.cell_decoding import BinaryHandling, canonical_json, cell_decoder
from service.core.errors import RecordError, SourceError
from service.core.number_decoding import CellDecoder, DecimalHandling
from service.core.records import Keys

__all__ = [
    "POSTGRES_KEY_EXPRESSION",
    "POSTGRES_SESSION_SETTINGS",
    "SPARK_KEY_EXPRESSION",
    "BinaryHandling",
    "CellDecoder",
    "DecimalHandling",
    "canonical_json",
    "canonical_text",
    "cell_decoder",
    "refuse_nul",
    "stored_value",
    "value_key",
    "value_keys",
]

POSTGRES_SESSION_SETTINGS: Final[dict[str, str]] = {
    "client_encoding": "UTF8",
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "lc_monetary": "C",
    "xmloption": "content",
    "quote_all_identifiers": "off",
    "standard_conforming_strings": "on",
}
"""What a connection sets that texts and names of types are read from; the bootstrap's reader sets the same."""


def canonical_text(value: object, data_type: str | None = None) -> str | None:
    """Give the canonical text of a Python value, None for None.

    With `data_type` the value is read as a cell of such a column: `canonical_text("1.00", "numeric")` is `1`, and
    a text in a `numeric(p,s)` is a decimal, never base64. Raises RecordError for what is none of the type or has
    no text.
    """
    if value is None:
        return None
    if data_type is not None:
        return cell_decoder(data_type, decimal_handling="string")(_as_event_value(value))
    try:
        return forms.document_text(value) if isinstance(value, list | tuple | dict) else forms.scalar_text(value)
    except (TypeError, ValueError) as error:
        raise RecordError(f"A value has no canonical text: {error}. Convert it to text first.") from None


def _as_event_value(value: object) -> object:
    """Give what a change event would hold in place of a Python value that JSON has no form for."""
    if isinstance(value, list | tuple):
        return [_as_event_value(inner) for inner in value]
    if isinstance(value, dict):
        return {key: _as_event_value(inner) for key, inner in value.items()}
    if isinstance(value, bytes | bytearray | memoryview):
        return "\\x" + value.hex()
    if isinstance(value, Decimal | datetime | date | time | timedelta | UUID):
        return forms.scalar_text(value)
    return value


# Keys


def value_key(text: str) -> bytes:
    """Give the key of a value: the first 16 bytes of SHA-256 over its canonical text in UTF-8.

    Raises RecordError for a text that Postgres cannot hold: one with a NUL or a surrogate without its partner.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        _refuse(text, f"the surrogate U+{ord(text[error.start]):04X} without its partner")
    if b"\0" in data:
        _refuse(text, "a NUL character")
    return sha256(data).digest()[:16]


def value_keys(texts: Sequence[str]) -> Keys:
    """Give the keys of many values, in their order; raises as `value_key` does."""
    try:
        halves = key_array(pa.array(texts, pa.large_string()))
    except (SourceError, UnicodeEncodeError):
        for text in texts:
            value_key(text)
        raise
    return Keys(np.ascontiguousarray(halves[:, 0]), np.ascontiguousarray(halves[:, 1]))


def refuse_nul(text: str) -> str:
    """Give the text back, or raise RecordError when it has a NUL character, which Postgres cannot store."""
    if "\0" in text:
        _refuse(text, "a NUL character")
    return text


def _refuse(text: str, what: str) -> NoReturn:
    raise RecordError(
        f"The value that begins {text[:40]!r} has {what}, which Postgres cannot store. "
        f"Remove it in the source, or leave the column out."
    )


def SPARK_KEY_EXPRESSION(column: str) -> str:
    """Give Spark SQL for the key of a string column, as 32 lower-case hexadecimal digits."""
    return f"substring(sha2({column}, 256), 1, 32)"


def POSTGRES_KEY_EXPRESSION(column: str) -> str:
    """Give Postgres' SQL for the key of a text column, as a uuid."""
    return f"encode(substring(sha256(convert_to({column}, 'UTF8')) for 16), 'hex')::uuid"


def stored_value(text: str, limit: int = VALUE_BYTES) -> str:
    """Cut a value to what gen_rec keeps of it: at most `limit` bytes of UTF-8, and no half characters."""
    if len(text) * 4 <= limit:
        return text
    data = text.encode()
    return text if len(data) <= limit else data[:limit].decode(errors="ignore")

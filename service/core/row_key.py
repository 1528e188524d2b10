"""Own the key under which the state keeps a row: 128 bits of a hash of the texts of its key columns."""

from __future__ import annotations

import json
from collections.abc import Sequence

from service.core.canonical import value_key

_json_of = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def row_key(texts: Sequence[str | None]) -> bytes:
    """Give the first 16 bytes of SHA-256 of the compact JSON array of a key's canonical texts, in UTF-8.

    Raises RecordError for a text that is no Unicode.
    """
    return value_key(_json_of(texts))

"""Own the key under which the state keeps a row: 128 bits of a hash of the texts of its key columns."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from service.core.canonical import value_key
from service.core.canonical_arrow import key_array

_ESCAPED = '["\\\\\\x00-\\x1f]'


def row_key(texts: Sequence[str | None]) -> bytes:
    """Give the first 16 bytes of SHA-256 of the compact JSON array of a key's canonical texts, in UTF-8.

    Raises RecordError for a text that is no Unicode.
    """
    return value_key(json.dumps(texts, ensure_ascii=False, separators=(",", ":")))


def row_keys(columns: Sequence[pa.Array]) -> NDArray[np.uint64]:
    """Give the row keys of whole columns of canonical texts as uint64[n, 2]; equal to `row_key`, row by row."""
    return key_array(
        pc.binary_join_element_wise("[", pc.binary_join_element_wise(*map(_quoted, columns), ","), "]", "")
    )


def _quoted(texts: pa.Array) -> pa.Array:
    texts = texts.cast(pa.large_string())
    if pc.any(pc.match_substring_regex(texts, _ESCAPED)).as_py():
        return pa.array([json.dumps(text, ensure_ascii=False) for text in texts.to_pylist()], pa.large_string())
    quote = pa.scalar('"', pa.large_string())
    return pc.fill_null(pc.binary_join_element_wise(quote, texts, quote, ""), "null")

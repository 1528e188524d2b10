"""Own the values of derived attributes: tuples of a row's canonical texts, each as one text with a key of its own.

The text is the compact JSON array of the parts' texts. The key is that of a NUL and the text: no canonical text has a
NUL, so a tuple never meets a value of a column, and clusters and INDs of tuples are apart from all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring

import numpy as np
import orjson
import pyarrow as pa

from service.core.canonical import value_key
from service.core.canonical_arrow import key_array
from service.core.records import Keys

MOST_PARTS = 32
"""Columns of one tuple: as many as an index of Postgres takes."""

TUPLE_TYPE = "tuple"
"""Stands for the data type of a derived attribute."""


def tuple_texts(tuples: Iterable[Sequence[str]]) -> list[str]:
    """Give the text of each tuple of canonical texts, none of which is NULL."""
    return ["[" + ",".join(map(encode_basestring, parts)) + "]" for parts in tuples]


def tuple_parts(texts: Iterable[str]) -> list[list[str]]:
    """Give the canonical texts that each tuple's text was made of."""
    return [orjson.loads(text) for text in texts]


def tuple_keys(texts: Sequence[str]) -> Keys:
    """Give the keys of tuples' texts, in their order; raises RecordError for a text that is no Unicode."""
    try:
        halves = key_array(pa.array(texts, pa.large_string()), of_tuples=True)
    except UnicodeEncodeError:
        for text in texts:
            value_key(text)
        raise
    return Keys(np.ascontiguousarray(halves[:, 0]), np.ascontiguousarray(halves[:, 1]))


def tuple_name(columns: Sequence[str]) -> str:
    """Name a derived attribute by its columns, in their order, as a column of its table is named.

    A column that could be taken for several is quoted.
    """
    return f"({', '.join(_quoted(column) for column in columns)})"


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"' if set(column) & set(',()"') else column

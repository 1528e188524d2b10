"""Own which texts count as near to each other: those that are equal once they are folded."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

_SPACES = r"[\s\pZ\x{85}]+"


class Near(StrEnum):
    """Name what is not looked at: upper and lower case; spaces around a text, and how many are inside it."""

    CASE = "case"
    SPACES = "spaces"


def folded(texts: pa.Array, near: Collection[Near]) -> pa.Array:
    """Fold texts, a string or large_string array, so that near ones are equal; folded once more they stay as they are.

    Case goes by Unicode's simple mapping of single characters to lower case: ß and ss are not near.
    """
    if Near.SPACES in near:
        texts = pc.utf8_trim(pc.replace_substring_regex(texts, _SPACES, " "), " ")
    if Near.CASE in near:
        texts = pc.utf8_lower(texts)
    return texts

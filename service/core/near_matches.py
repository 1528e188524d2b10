"""Own which texts count as near to each other: those that are equal once they are folded."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

_SPACES = r"[\s\pZ\x{85}]+"
_WHOLE = r"-?(?:0|[1-9][0-9]*)"
_CANONICAL = (
    (rf"^({_WHOLE})\.0+$", r"\1"),
    (rf"^({_WHOLE}\.[0-9]*[1-9])0+$", r"\1"),
    (r"^-0$", "0"),
)
"""What makes the canonical text of a decimal (docs/canonical.md): patterns, and what stands in their places."""


class Near(StrEnum):
    """Name what is not looked at: upper and lower case; spaces around a text, and how many are inside it; zeros.

    `NUMBERS` are the zeros that close a decimal: 1.50 and 1.5 are near, 007 and 7 are not.
    """

    CASE = "case"
    SPACES = "spaces"
    NUMBERS = "numbers"


def folded(texts: pa.Array, near: Collection[Near]) -> pa.Array:
    """Fold texts, a string or large_string array, so that near ones are equal; folded once more they stay as they are.

    Case goes by Unicode's simple mapping of single characters to lower case: ß and ss are not near.
    """
    if Near.SPACES in near:
        texts = pc.utf8_trim(pc.replace_substring_regex(texts, _SPACES, " "), " ")
    if Near.CASE in near:
        texts = pc.utf8_lower(texts)
    if Near.NUMBERS in near:
        for pattern, told in _CANONICAL:
            texts = pc.replace_substring_regex(texts, pattern, told)
    return texts

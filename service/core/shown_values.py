"""Own how much of a value's text may be kept and shown: all of it, its first characters, or nothing.

Each attribute says so of its values by a number of characters, None for all. Keys, counts and clusters do not depend on
it: two values are one when their keys are, whatever is kept of their texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from service.core.errors import SubsetdError
from service.core.model import Attribute

Int64s = NDArray[np.int64]

WHOLE: Final = (1 << 31) - 1
"""Characters that no text has: stands for None where numbers are compared."""

DEFAULT_PREFIX: Final = 4
MOST_PREFIX: Final = 64

MOST_CELLS: Final = 16
CELL_CHARACTERS: Final = 64
"""What is told of a row that has no key: so many of its first columns, so much of each."""


class ShownValuesError(SubsetdError):
    """What is said of what may be kept of values cannot be read."""


@dataclass(frozen=True, slots=True, eq=False)
class ShownValues:
    """Hold how many first characters of values may be kept: int64[attributes] by attribute id."""

    characters: Int64s
    are_whole: bool

    @staticmethod
    def of(attributes: Iterable[Attribute], size: int) -> ShownValues:
        """Take attributes, whose ids are below `size`."""
        characters = np.full(size, WHOLE, np.int64)
        for attribute in attributes:
            if attribute.shown_characters is not None:
                characters[attribute.attribute_id] = attribute.shown_characters
        return ShownValues(characters, bool((characters == WHOLE).all()))

    def text(self, attribute_id: int, text: str) -> str | None:
        """Give what an answer about an attribute may show of a value of it; None for nothing."""
        characters = int(self.characters[attribute_id])
        return text[:characters] if characters else None

    def cut(self, texts: Sequence[str], starts: Int64s, attribute_ids: NDArray[np.integer]) -> list[str]:
        """Cut the texts of values to what the most open of their attributes allows.

        The attributes of value i are attribute_ids[starts[i]:starts[i + 1]]; of a value that has none nothing is left.
        """
        most = most_shown(self.characters, starts, attribute_ids).tolist()
        return [text[:characters] for text, characters in zip(texts, most, strict=True)]


def most_shown(characters: Int64s, starts: Int64s, attribute_ids: NDArray[np.integer]) -> Int64s:
    """Give for values, by lists of their attributes end to end, how much the most open one shows; 0 for none."""
    most = np.zeros(len(starts) - 1, np.int64)
    has_some = np.flatnonzero(np.diff(starts))
    if len(has_some):
        most[has_some] = np.maximum.reduceat(characters[attribute_ids], starts[has_some])
    return most


def shown_of_tuple(parts: Iterable[int | None]) -> int | None:
    """Say what may be kept of tuples, whose texts hold those of their parts: all where all of each may, or nothing."""
    return None if all(characters is None for characters in parts) else 0


def parse_shown(text: str) -> int | None:
    """Read `full`, `none`, `prefix` or `prefix:N` as a number of characters; raise ShownValuesError for others."""
    word, colon, number = text.partition(":")
    if word == "full" and not colon:
        return None
    if word == "none" and not colon:
        return 0
    if word == "prefix" and not colon:
        return DEFAULT_PREFIX
    if word == "prefix" and number.isascii() and number.isdecimal() and 0 < int(number) <= MOST_PREFIX:
        return int(number)
    raise ShownValuesError(
        f"{text!r} does not say what to keep of values: full, none, prefix (of {DEFAULT_PREFIX} characters), or "
        f"prefix:N with N from 1 to {MOST_PREFIX}."
    )


def parse_mask(text: str) -> tuple[str, str]:
    """Read SCHEMA.TABLE.COLUMN, or with =WHAT, as a column and what to keep of its values: by itself nothing."""
    column, equals, what = text.rpartition("=")
    return (column, what) if equals else (text, "none")


def told_shown(characters: int | None) -> str:
    """Write what `parse_shown` reads."""
    return "full" if characters is None else f"prefix:{characters}" if characters else "none"


def row_text(row: Mapping[str, Any]) -> str:
    """Write for a person what `model.Cause` says of a row."""
    named = row["key"] or row.get("cells", {})
    told = ", ".join(f"{column} {value!r}" for column, value in named.items() if value is not None)
    return f"{row['table']} {told}".rstrip()

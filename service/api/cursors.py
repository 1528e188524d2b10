"""Own the opaque cursors: a page's last key as text for a URL, and back, trusting nothing."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import cast
from uuid import UUID

from service.core.errors import SubsetdError
from service.usecases.answers import Key

LARGEST = 2**63 - 1
PATTERN = r"^[A-Za-z0-9_-]+$"
MAX_LENGTH = 8192


class CursorError(SubsetdError):
    """A cursor is not one that this route gave."""


@dataclass(frozen=True, slots=True)
class Cursors:
    """Write and read the cursors of one route, whose keys have these columns.

    `i` is an integer, `f` a number from -1 to 2, `s` a text, `u` a UUID.
    """

    route: str
    columns: str

    def encode(self, key: Key | None) -> str | None:
        """Write the key at which a page ended; None stays None."""
        if key is None:
            return None
        return base64.urlsafe_b64encode(json.dumps([self.route, *key]).encode()).rstrip(b"=").decode()

    def decode(self, cursor: str | None) -> Key | None:
        """Read a cursor; raise `CursorError` for one of another route, a cut one, or any other text."""
        if cursor is None:
            return None
        try:
            found = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
            name, *key = found
            if name == self.route and len(key) == len(self.columns) and all(map(_fits, self.columns, key)):
                return tuple(key)
        except (ValueError, TypeError, RecursionError):
            pass
        raise CursorError(
            "The cursor is none of this route; take next_cursor of its last page as it is, or leave it out."
        )


def in_generation(key: Key | None, corpus_id: int, generation: int) -> Key | None:
    """Let the page behind a key go on in a generation of a corpus: the two go before the key of its list."""
    return None if key is None else (corpus_id, generation, *key)


def generation_of(key: Key | None) -> tuple[tuple[int, int] | None, Key | None]:
    """Give the corpus id and generation that a page goes on in, if it does, and the key of its list."""
    return (None, None) if key is None else (cast(tuple[int, int], key[:2]), key[2:])


CHANGES = Cursors("changes", "iii")
"""Of transitions, oldest first: also of those that are answered from memory."""


def _fits(column: str, part: object) -> bool:
    if column == "i":
        return isinstance(part, int) and not isinstance(part, bool) and -1 <= part <= LARGEST
    if column == "f":
        return isinstance(part, int | float) and not isinstance(part, bool) and -1 <= part <= 2
    if not isinstance(part, str) or "\x00" in part or any("\ud800" <= one <= "\udfff" for one in part):
        return False
    return column == "s" or (len(part) == 36 and str(UUID(part)) == part)

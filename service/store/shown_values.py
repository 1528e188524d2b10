"""Own how SQL cuts a stored text to what may be shown of an attribute's values; see `core/shown_values`."""

from __future__ import annotations

from typing import Any

from service.core.errors import ConflictError
from service.core.shown_values import WHOLE

RESTRICTED = "select attribute_id from attribute where shown_characters is not null and dropped_version is null"


def shown_value(value: str = "value", characters: str = "shown_characters") -> str:
    """Give the expression for what may be shown of a text: NULL for nothing."""
    return f"case when {characters} = 0 then null else left({value}, coalesce({characters}, {WHOLE})) end"


def refuse_shards(cursor: Any) -> None:
    """Raise ConflictError where a state has shards and does not keep all values: a shard keeps whole texts to go back.

    To be called behind a change of either, in its transaction.
    """
    cursor.execute(f"select exists ({RESTRICTED}) and exists (select from shard)")
    if cursor.fetchone()[0]:
        raise ConflictError(
            "A state with shards keeps all values: what a shard needs in order to take a batch back holds whole texts. "
            "Keep one shard, or all values (--store-values full)."
        )

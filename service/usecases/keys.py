"""Own the listing of keys: live from the counters of columns, and of the tuples that are tracked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from service.usecases.answers import Key, Page
from service.usecases.key_values import KeyFilter, KeyInfo, RepeatedValue
from service.usecases.ports import StateSnapshot
from service.usecases.queries import MAX_LIMIT, page_of


class NamedKey(NamedTuple):
    """Hold a key, and the most frequent of the values that it has more than once."""

    key: KeyInfo
    repeated: Sequence[RepeatedValue]


def keys(
    snapshot: StateSnapshot, chosen: KeyFilter, after: Key | None = None, limit: int = MAX_LIMIT, values: int = 0
) -> Page[NamedKey]:
    """List keys, by (schema, table, ordinal), each with at most so many of its repeated values.

    Values need a snapshot `with_values`; all records of an attribute that has some are read for them.
    """
    found = snapshot.keys(chosen, after, limit + 1)
    page = page_of(found, limit, _place)
    named = [
        NamedKey(
            one,
            snapshot.repeated_values(one.attribute.attribute_id, values) if values and not _repeats_none(one) else (),
        )
        for one in page.items
    ]
    return Page(named, page.next_key)


def _place(one: KeyInfo) -> Key:
    attribute = one.attribute
    return attribute.name.schema, attribute.name.table, attribute.ordinal, attribute.attribute_id


def _repeats_none(one: KeyInfo) -> bool:
    return not one.attribute.repeated_count

"""Own what tells whether a slot still stands where the state has read it, and what is said where it does not."""

from __future__ import annotations

from service.core.errors import FeedError
from service.stream.postgres_address import PostgresAddress, lsn_text
from service.stream.postgres_catalog import SlotState
from service.stream.postgres_numbering import Numbering


def require_same(address: PostgresAddress, found: SlotState | None, numbers: Numbering) -> None:
    """Raise FeedError where changes are lost, or the log is another, behind what the state has read."""
    if found is None:
        raise FeedError(
            f"The {address.place} has no slot {address.slot}: it was dropped, and the changes since are lost. "
            f"{address.way_out}"
        )
    if found.wal_level != "logical":
        raise FeedError(
            f"The {address.place} has wal_level {found.wal_level}, and changes can be read with logical alone: ALTER "
            f"SYSTEM SET wal_level = logical, and restart the server"
        )
    if found.wal_status == "lost":
        raise FeedError(
            f"The {address.place} has removed log that the slot {address.slot} still needed (max_slot_wal_keep_size). "
            f"{address.way_out}"
        )
    if not found.has_publication:
        raise FeedError(f"The {address.place} has no publication {address.slot} any more. {address.way_out}")
    if found.confirmed > numbers.stored_end:
        raise FeedError(
            f"The slot {address.slot} of the {address.place} stands at {lsn_text(found.confirmed)}, behind "
            f"{lsn_text(numbers.stored_end)} up to where this state has read it: it was moved or made anew, and what "
            f"is between is lost. {address.way_out}"
        )
    if found.current < numbers.reached:
        raise set_back(
            address,
            f"its log ends at {lsn_text(found.current)}, before {lsn_text(numbers.reached)} up to where this state has "
            f"read it",
        )


def set_back(address: PostgresAddress, seen_by: str) -> FeedError:
    """Say that the source lacks what the state has read of it."""
    return FeedError(
        f"The {address.place} was set back: {seen_by}. It was restored from a backup or a snapshot, or a standby that "
        f"lacks the newest transactions took its place; the state holds what is gone there. {address.way_out}"
    )
